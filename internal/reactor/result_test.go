package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/reactor"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// entries returns the log entries of one operation, oldest first, as
// "entity_type entity_id message outcome".
func (w *world) entries(operation string) (list []string) {
	w.t.Helper()
	w.must(w.store.View(w.t.Context(), w.tenant, func(tx store.Tx) error {
		list = nil
		entries, err := tx.Logs(w.t.Context(), store.LogFilter{}, store.Page{Limit: 1000})
		for _, e := range slices.Backward(entries) {
			if e.Operation == operation {
				list = append(list, e.EntityType+" "+e.EntityID+" "+e.Message+" "+e.Outcome)
			}
		}
		return err
	}))
	return list
}

func TestReadingAResultIsLogged(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		id, failing := w.define(echo), w.define(`module.exports = () => { throw new Error('x') }`)
		request, failed := w.ask(id, `{"a":1}`, ""), w.ask(failing, `{}`, "")
		before := w.entries("read")
		if _, _, err := w.node.Result(ctx, w.user, id, request); !errors.Is(err, fault.NotFound) {
			t.Errorf("the result before the run: %v", err)
		}
		w.do(w.node, 2)
		want := before
		for range 2 {
			if _, body, err := w.node.Result(ctx, w.user, id, request); err != nil || string(body) != `{"raw":{"a":1}}` {
				t.Errorf("the result is %s, %v", body, err)
			}
			want = append(want, "reactor "+id+" Reactor result retrieved allowed")
			w.clock.Advance(time.Second)
		}
		if status, _, err := w.node.Result(ctx, w.user, failing, failed); err != nil || status != 422 {
			t.Errorf("the result of code that throws is %d, %v", status, err)
		}
		want = append(want, "reactor "+failing+" Reactor result retrieved allowed")
		for name, c := range map[string]access.Caller{"a manager": w.manager, "another tenant": w.stranger()} {
			if _, body, err := w.node.Result(ctx, c, id, request); err == nil || body != nil {
				t.Errorf("%s: the result is %s, %v", name, body, err)
			}
		}
		if got := w.entries("read"); !slices.Equal(got, want) {
			t.Errorf("the log has %q, want %q", got, want)
		}
	})
}

func TestAResultThatCannotBeLoggedIsNotShown(t *testing.T) {
	w := onOne(t)
	id := w.define(echo)
	request := w.ask(id, `{"a":1}`, "")
	w.do(w.node, 1)
	failing := storetest.NewFailing(w.store, func(context.Context) bool { return true })
	parts := w.parts()
	parts.Store = failing
	node := newNode(parts, reactor.Options{Now: w.clock.Now})
	for n := 1; ; n++ {
		cause := errors.New("a test says so")
		failing.FailAt(n, cause)
		_, body, err := node.Result(t.Context(), w.user, id, request)
		if failing.Rest() == "" {
			if n < 4 || err != nil {
				t.Errorf("only %d calls to the store, %v", n-1, err)
			}
			return
		}
		if !errors.Is(err, cause) || body != nil {
			t.Errorf("call %d to the store fails, and the result is %s, %v", n, body, err)
		}
	}
}

// A result was made from tokens: it is shown only to a caller that has, on each
// of them that is left, the access that it had when it started the run.
func TestAResultNeedsTheAccessOfThen(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		id := w.define(echo)
		use := func(container, transform string) access.Rule {
			return access.Rule{Container: container, Transform: transform, Permissions: []string{"token:use"}}
		}
		grant := func(application string, rules ...access.Rule) {
			t.Helper()
			_, err := w.directory.ReplaceApplication(ctx, w.manager, application, directory.NewApplication{Name: "a", Rules: rules})
			w.must(err)
		}
		tests := map[string]struct {
			then, now []access.Rule
			change    func(card string)
			reduced   bool // allowed, but with less than then
			refused   bool
		}{
			"the same access":                     {then: []access.Rule{use("/", "reveal")}, now: []access.Rule{use("/", "reveal")}},
			"more access":                         {then: []access.Rule{use("/", "mask")}, now: []access.Rule{use("/", "reveal")}},
			"no access to the container":          {then: []access.Rule{use("/", "reveal")}, now: []access.Rule{use("/other/", "reveal")}, refused: true},
			"a mask where it was revealed":        {then: []access.Rule{use("/", "reveal")}, now: []access.Rule{use("/", "mask")}, reduced: true, refused: true},
			"a mask as then":                      {then: []access.Rule{use("/", "mask")}, now: []access.Rule{use("/", "mask")}},
			"redacted where it was a mask":        {then: []access.Rule{use("/", "mask")}, now: []access.Rule{use("/pci/", "redact"), use("/", "mask")}, refused: true},
			"no access, and the token is deleted": {then: []access.Rule{use("/", "reveal")}, now: []access.Rule{use("/other/", "reveal")}, change: func(card string) { w.must(w.tokens.Delete(ctx, w.user, card)) }},
			"no access, and the token has expired": {then: []access.Rule{use("/", "reveal")}, now: []access.Rule{use("/other/", "reveal")},
				change: func(string) { w.clock.Advance(2 * time.Hour) }},
			"the token has moved": {then: []access.Rule{use("/pci/", "reveal")}, now: []access.Rule{use("/pci/", "reveal")}, refused: true, change: func(card string) {
				_, err := w.tokens.Update(ctx, w.user, card, value(t, `{"containers":["/elsewhere/"]}`))
				w.must(err)
			}},
		}
		n := 0
		for name, test := range tests {
			n++
			card := w.token(fmt.Sprintf(`{"id":"card-%d","type":"card_number","data":"%s","expires_at":%q}`, n, visa, w.clock.Now().Add(time.Hour).Format(time.RFC3339)))
			a, err := w.directory.CreateApplication(ctx, w.manager, directory.NewApplication{Name: "a", Type: "private", Rules: test.then})
			w.must(err)
			request := w.askAs(w.acting(a.ID), id, `{"n":"{{ `+card+` }}"}`, "")
			w.do(w.node, 1)
			if _, _, err := w.node.Result(ctx, w.acting(a.ID), id, request); err != nil {
				t.Errorf("%s: at once: %v", name, err)
			}
			before := w.entries("read")
			grant(a.ID, test.now...)
			if test.change != nil {
				test.change(card)
			}
			_, body, err := w.node.Result(ctx, w.acting(a.ID), id, request)
			if !test.refused {
				if want := append(before, "reactor "+id+" Reactor result retrieved allowed"); err != nil || !slices.Equal(w.entries("read"), want) {
					t.Errorf("%s: the result is %s, %v, and the log has %q", name, body, err, w.entries("read"))
				}
				continue
			}
			var denial *access.Denial
			if !errors.As(err, &denial) || !errors.Is(err, fault.Forbidden) || body != nil || !slices.Equal(denial.Entities(), []access.Entity{{Type: "card_number", ID: card}}) {
				t.Errorf("%s: the result is %s, %v, want a denial about the token", name, body, err)
			}
			if code := fault.Of(err).Code(); (code == "access_reduced") != test.reduced {
				t.Errorf("%s: the code of the error is %q", name, code)
			}
			if got := w.entries("read"); !slices.Equal(got, before) {
				t.Errorf("%s: what was refused is in the log as read: %q", name, got)
			}
			grant(a.ID, use("/", "reveal"))
			if _, _, err := w.node.Result(ctx, w.acting(a.ID), id, request); err != nil {
				t.Errorf("%s: with the access back: %v", name, err)
			}
		}
		w.absent("results", `"card-1"`, "card_number")
	})
}

// The list of tokens goes with the job from server to server.
func TestAnInterruptedRunKeepsTheTokensItWasGiven(t *testing.T) {
	w := onOne(t)
	ctx := t.Context()
	id, card := w.define(echo), w.token(`{"type":"card_number","data":"`+visa+`"}`)
	a, err := w.directory.CreateApplication(ctx, w.manager, directory.NewApplication{
		Name: "a", Type: "private", Rules: []access.Rule{{Container: "/", Transform: "reveal", Permissions: []string{"token:use"}}},
	})
	w.must(err)
	request := w.askAs(w.acting(a.ID), id, `{"n":"{{ `+card+` }}"}`, "")
	w.die(store.ParcelJob, request)
	w.clock.Advance(time.Minute)
	w.do(w.newNode(), 1)
	_, err = w.directory.ReplaceApplication(ctx, w.manager, a.ID, directory.NewApplication{
		Name: "a", Rules: []access.Rule{{Container: "/", Transform: "mask", Permissions: []string{"token:use"}}},
	})
	w.must(err)
	_, _, err = w.node.Result(ctx, w.acting(a.ID), id, request)
	is(t, "the result of an interrupted run, with less access", err, fault.Forbidden)
	status, _, err := w.node.Result(ctx, w.user, id, request)
	is(t, "the same for another application", err, fault.NotFound)
	if status != 0 {
		t.Errorf("its status is %d", status)
	}
}
