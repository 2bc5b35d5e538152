package reactor_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/reactor"
	"github.com/tokenkeep/tokenkeep/internal/script"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// react runs a reactor for the world's user, and returns the response as JSON.
func (w *world) react(id, args string, last ...func(store.Tx, reactor.Response, *keyring.EpochKey) error) (string, error) {
	w.t.Helper()
	out, err := w.node.React(w.t.Context(), w.user, id, reactor.Invocation{Args: value(w.t, args)}, last...)
	return string(out.Object().AppendJSON(nil)), err
}

// count is how many entries of the log are on an entity with an operation.
func (w *world) count(entity, id string, op audit.Operation) (n int) {
	w.t.Helper()
	w.must(w.store.View(w.t.Context(), w.tenant, func(tx store.Tx) error {
		entries, err := tx.Logs(w.t.Context(), store.LogFilter{EntityType: entity, EntityID: id}, store.Page{Limit: 100})
		for _, e := range entries {
			if e.Operation == string(op) {
				n++
			}
		}
		return err
	}))
	return n
}

func TestARunIsBoundByTenSeconds(t *testing.T) {
	if reactor.SyncTimeout != 10*time.Second {
		t.Errorf("callers wait for %s at most, want 10 s", reactor.SyncTimeout)
	}
	w := onOne(t)
	_, err := w.node.React(t.Context(), w.user, w.define(echo), reactor.Invocation{Timeout: 10 * time.Second})
	if fault.Of(err).Fields()["timeout_ms"] == nil {
		t.Errorf("a timeout for somebody who waits = %v, want a fault of timeout_ms", err)
	}
}

func TestUsesAreInTheLogWhateverBecomesOfTheRun(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		id, failing := w.define(echo), w.define(`module.exports = () => { throw new Error('x') }`)
		card, name := w.token(`{"type":"card_number","data":"`+visa+`"}`), w.token(`{"type":"token","data":"Ada"}`)
		args := fmt.Sprintf(`{"a":"{{ %s }}","b":"{{ %s }} {{ %s }}"}`, card, card, name)
		if got, err := w.react(id, args); err != nil || got != `{"raw":{"a":"`+visa+`","b":"`+visa+` Ada"}}` {
			t.Errorf("React = %s, %v", got, err)
		}
		if _, err := w.react(failing, args); !errors.As(err, new(*script.Thrown)) {
			t.Errorf("React of code that throws = %v", err)
		}
		if n, m := w.count("card_number", card, audit.Use), w.count("token", name, audit.Use); n != 2 || m != 2 {
			t.Errorf("%d and %d uses are in the log, want one for each run", n, m)
		}
		if n, m := w.count(audit.Reactor, id, audit.Use), w.count(audit.Reactor, failing, audit.Use); n != 1 || m != 1 {
			t.Errorf("%d and %d uses of reactors are in the log, want one each", n, m)
		}
		// One of the tokens is not there: nothing is used, and nothing says so.
		if _, err := w.react(id, fmt.Sprintf(`{"a":"{{ %s }}","b":"{{ nope }}"}`, card)); !errors.Is(err, fault.Invalid) {
			t.Errorf("React with a token that is not there = %v, want not valid", err)
		}
		if n, m := w.count("card_number", card, audit.Use), w.count(audit.Reactor, id, audit.Use); n != 2 || m != 1 {
			t.Errorf("%d uses of the token and %d of the reactor are in the log, want as many as before", n, m)
		}
	})
}

// TestTheLastStepIsPartOfTheAnswer: what it does commits with the tokens that
// the code made, or neither does.
func TestTheLastStepIsPartOfTheAnswer(t *testing.T) {
	storetest.Long(t)
	onBoth(t, func(t *testing.T, w *world) {
		both := w.define(`module.exports = () => ({ raw: 1, tokenize: { id: 'made-by-code', type: 'token', data: 'x' } })`)
		stop := errors.New("stop")
		if _, err := w.react(both, `{}`, func(store.Tx, reactor.Response, *keyring.EpochKey) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("React = %v, want the error of its last step", err)
		}
		shown := ""
		keep := func(_ store.Tx, out reactor.Response, _ *keyring.EpochKey) error {
			shown = string(out.Object().AppendJSON(nil))
			return nil
		}
		// The id is free: nothing was left behind.
		if got, err := w.react(both, `{}`, keep); err != nil || got != shown || !strings.Contains(got, `"tokens"`) || !strings.Contains(got, `"raw":1`) {
			t.Errorf("React = %s, %v; its last step saw %s", got, err, shown)
		}
		for code, kept := range map[string]bool{
			`module.exports = () => {}`: true, `module.exports = () => ({ raw: null })`: true, `module.exports = () => ({ tokenize: [] })`: true,
			`module.exports = () => 1`: false, `module.exports = () => { throw new Error() }`: false,
			`module.exports = () => { throw { name: 'CustomHttpResponseError', status: 204 } }`: true,
			`module.exports = () => { throw { name: 'CustomHttpResponseError', status: 300 } }`: false,
		} {
			ran := false
			_, _ = w.react(w.define(code), `{}`, func(store.Tx, reactor.Response, *keyring.EpochKey) error { ran = true; return nil })
			if ran != kept {
				t.Errorf("%s: the last step ran: %t, want %t", code, ran, kept)
			}
		}
	})
}

// TestAnAnswerFromASecurityCodeBelongsToItsEpoch, and one without does not.
func TestAnAnswerFromASecurityCodeBelongsToItsEpoch(t *testing.T) {
	w := onOne(t)
	id := w.define(echo)
	card := `{"type":"card","data":{"number":"` + visa + `","expiration_month":12,"expiration_year":2040,"cvc":"%s"}}`
	first := w.token(fmt.Sprintf(card, "111"))
	w.clock.Advance(5 * time.Minute)
	second := w.token(fmt.Sprintf(card, "222"))
	without := w.token(`{"type":"card_number","data":"` + visa + `"}`)
	epochOf := func(args string) (epoch int64) {
		_, err := w.react(id, args, func(_ store.Tx, _ reactor.Response, key *keyring.EpochKey) error {
			if epoch = 0; key != nil {
				epoch = key.Epoch()
			}
			return nil
		})
		w.must(err)
		return epoch
	}
	older, newer := epochOf(`{"a":"{{ `+first+` }}"}`), epochOf(`{"a":"{{ `+second+` }}"}`)
	both, none := epochOf(`{"a":"{{ `+second+` }}","b":"{{ `+first+` }}"}`), epochOf(`{"a":"{{ `+without+` }}"}`)
	if older == 0 || newer <= older || both != older || none != 0 {
		t.Errorf("the epochs are %d, %d, %d for both and %d for none; want the older one for both", older, newer, both, none)
	}
}

func TestAConfigurationMayBeOptional(t *testing.T) {
	w := onOne(t)
	lax := newNode(w.parts(), reactor.Options{Now: w.clock.Now, OptionalConfiguration: true})
	for _, body := range []string{`{"name":"x","code":"1"}`, `{"name":"x","code":"1","configuration":null}`} {
		if _, err := w.node.Create(t.Context(), w.manager, value(t, body)); fault.Of(err).Fields()["configuration"] == nil {
			t.Errorf("Create(%s) = %v, want a fault of configuration", body, err)
		}
		made, err := lax.Create(t.Context(), w.manager, value(t, body))
		if err != nil || string(reactor.Configuration(made).AppendJSON(nil)) != `{}` {
			t.Errorf("Create(%s) where it is optional = %v", body, err)
		}
		if _, err := lax.Patch(t.Context(), w.manager, made.ID, value(t, `{"configuration":null}`)); err != nil {
			t.Errorf("Patch where it is optional = %v", err)
		}
	}
}

// TestManagementIsAskedForFirst: code is not even read for who may not keep it.
func TestManagementIsAskedForFirst(t *testing.T) {
	w := onOne(t)
	id := w.define(echo)
	bad := value(t, `{"name":"","code":"let let","configuration":5}`)
	for name, err := range map[string]error{
		"Create":  errOf(w.node.Create(t.Context(), w.user, bad)),
		"Replace": errOf(w.node.Replace(t.Context(), w.user, id, bad)),
		"Patch":   errOf(w.node.Patch(t.Context(), w.user, id, bad)),
		"Get":     errOf(w.node.Get(t.Context(), w.user, id)),
		"Delete":  w.node.Delete(t.Context(), w.user, id),
	} {
		is(t, name, err, fault.Forbidden)
	}
	if _, _, err := w.node.Runs(t.Context(), w.user, id, store.Page{Limit: 1}); !errors.Is(err, fault.Forbidden) {
		t.Errorf("Runs = %v, want forbidden", err)
	}
	if _, err := w.node.React(t.Context(), w.manager, id, reactor.Invocation{}); !errors.Is(err, fault.Forbidden) {
		t.Errorf("React for a manager = %v, want forbidden", err)
	}
	if _, err := w.node.React(t.Context(), w.stranger(), id, reactor.Invocation{}); !errors.Is(err, fault.NotFound) {
		t.Errorf("React for another tenant = %v, want not found", err)
	}
	if _, err := w.node.React(t.Context(), w.user, access.NewID(), reactor.Invocation{}); !errors.Is(err, fault.NotFound) {
		t.Errorf("React of nothing = %v, want not found", err)
	}
}

func errOf(_ reactor.Reactor, err error) error { return err }

// cramped is a store on a full disk: its log goes on, and it takes no tokens.
type cramped struct{ store.Store }

func (cramped) Room() error { return store.ErrUnavailable }

// TestNoCodeRunsThatCouldNotKeepWhatItMakes holds what a 503 of ours says:
// that nothing ran, and that it may be sent again.
func TestNoCodeRunsThatCouldNotKeepWhatItMakes(t *testing.T) {
	w := onOne(t)
	id := w.define(`module.exports = async () => ({ tokenize: "made" })`)
	parts := w.parts()
	parts.Store = cramped{w.store}
	_, err := newNode(parts, reactor.Options{Now: w.clock.Now}).React(t.Context(), w.user, id, reactor.Invocation{Args: value(t, `{}`)})
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("React = %v, want %v", err, store.ErrUnavailable)
	}
	if n := w.count(audit.Reactor, id, audit.Use); n != 0 {
		t.Errorf("%d runs are in the log, want none", n)
	}
	if _, err := w.react(id, `{}`); err != nil || w.count(audit.Reactor, id, audit.Use) != 1 {
		t.Errorf("React with room = %v", err)
	}
}
