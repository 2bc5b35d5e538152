package reactor_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/egress"
	"github.com/tokenkeep/tokenkeep/internal/egress/egresstest"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/reactor"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

func TestADeliveryIsTriedTenTimes(t *testing.T) {
	storetest.Long(t)
	onBoth(t, func(t *testing.T, w *world) {
		to := newReceiver(t)
		to.answers(refuse)
		request := w.ask(w.define(echo), `{"a":1}`, to.URL)
		w.do(w.node, 2)
		var sum time.Duration
		for try := 1; try < 10; try++ {
			got := to.one(t)
			if got.body != `{"raw":{"a":1}}` || got.header.Get("Webhook-Id") != request || got.header.Get("Webhook-Timestamp") != strconv.FormatInt(w.clock.Now().Unix(), 10) {
				t.Fatalf("try %d is %+v", try, got)
			}
			rows := w.parcels(store.ParcelDelivery)
			if len(rows) != 1 || rows[0].Attempts != try {
				t.Fatalf("after try %d there are %d rows", try, len(rows))
			}
			wait := rows[0].DueAt.Time().Sub(w.clock.Now())
			if least := 18 * time.Second << (try - 1); wait < least || wait > least+least/10 {
				t.Errorf("after try %d comes a wait of %v, want %v and a little", try, wait, least)
			}
			sum += wait
			w.clock.Advance(wait - time.Microsecond)
			w.do(w.newNode(), 0)
			w.clock.Advance(time.Microsecond)
			w.do(w.newNode(), 1)
		}
		if sum < 150*time.Minute || sum > 170*time.Minute {
			t.Errorf("the tries stretch over %v, want about two and a half hours", sum)
		}
		to.one(t)
		if n := len(w.parcels(store.ParcelDelivery)); n != 0 {
			t.Errorf("%d rows are left of what was given up", n)
		}
		w.clock.Advance(24 * time.Hour)
		w.do(w.node, 0)
	})
}

func TestTheTenthTryIsASuccess(t *testing.T) {
	storetest.Long(t)
	w := onOne(t)
	to := newReceiver(t)
	to.answers(refuse)
	w.ask(w.define(echo), `{"a":1}`, to.URL)
	w.do(w.node, 2)
	for range 8 {
		w.clock.Advance(w.parcels(store.ParcelDelivery)[0].DueAt.Time().Sub(w.clock.Now()))
		w.do(w.node, 1)
	}
	to.answers(nil)
	w.clock.Advance(w.parcels(store.ParcelDelivery)[0].DueAt.Time().Sub(w.clock.Now()))
	w.do(w.node, 1)
	if got := to.take(); len(got) != 10 || len(w.parcels(store.ParcelDelivery)) != 0 {
		t.Errorf("%d tries and %d rows, want 10 and none", len(got), len(w.parcels(store.ParcelDelivery)))
	}
}

func TestWhatIsNoSuccess(t *testing.T) {
	storetest.Long(t)
	w := onOne(t)
	elsewhere := newReceiver(t)
	id := w.define(echo)
	asked := time.Duration(0)
	parts := w.parts()
	parts.Transport = func(tenant string, firstByte time.Duration) http.RoundTripper {
		asked = firstByte
		return w.egress.Transport(tenant, min(firstByte, 200*time.Millisecond)) // a test does not wait that long
	}
	node := newNode(parts, reactor.Options{Now: w.clock.Now})
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"a redirect": func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, elsewhere.URL, http.StatusTemporaryRedirect)
		},
		"a refusal": func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusBadRequest) },
		"gone":      func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusGone) },
		"a hang":    func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"a hang-up": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"nobody":    nil,
	} {
		to := newReceiver(t)
		to.answers(answer)
		if answer == nil {
			to.Close()
		}
		request := w.ask(id, `{}`, to.URL)
		w.do(node, 2)
		if rows := w.parcels(store.ParcelDelivery); len(rows) != 1 || rows[0].Attempts != 1 || rows[0].ID != request {
			t.Errorf("%s: %d deliveries wait, want one that was tried once", name, len(rows))
		}
		w.must(w.store.Update(t.Context(), w.tenant, func(tx store.Tx) error { return tx.DeleteParcel(t.Context(), store.ParcelDelivery, request) }))
	}
	if len(elsewhere.take()) != 0 {
		t.Error("a redirect was followed")
	}
	if asked == 0 || asked >= 15*time.Second {
		t.Errorf("a receiver has %v to answer, want less than a lease", asked)
	}
}

// TestForbiddenCallbacks sends callbacks to everything that tenants must not
// reach.
func TestForbiddenCallbacks(t *testing.T) {
	storetest.Long(t)
	w := onOne(t)
	names, witness := egresstest.NewNames(t), egresstest.NewWitness(t)
	var err error
	w.egress, err = egress.New(egress.Settings{Resolver: names.Resolver(), Metrics: witness.Registry})
	w.must(err)
	node := w.newNode()
	id := w.define(echo)
	accepted := 0
	for _, row := range egresstest.Forbidden(witness.Port()) {
		var body jsonvalue.Builder
		body.Add("callback_url", jsonvalue.NewString(row.URL))
		in, err := reactor.ParseInvocation(body.Value())
		if err == nil {
			_, err = node.Start(t.Context(), w.user, id, in)
		}
		switch row.Where {
		case egresstest.AtDefinition:
			if !errors.Is(err, fault.Invalid) || fault.Of(err).Fields()["callback_url"] == nil {
				t.Errorf("%s: Start = %v, want a fault of callback_url", row.Name, err)
			}
		case egresstest.AtDial:
			if err != nil {
				t.Errorf("%s: Start = %v, want nil", row.Name, err)
				continue
			}
			names.SetAll(row.Answers)
			accepted++
		}
	}
	if accepted < 50 {
		t.Fatalf("%d callbacks were accepted: the corpus is not what it was", accepted)
	}
	tried := func() (n int) {
		for _, p := range w.parcels(store.ParcelDelivery) {
			if p.Attempts > 0 {
				n++
			}
		}
		return n
	}
	for range 10 * accepted { // the sandbox may have no room for some
		if tried() == accepted {
			break
		}
		_, err := node.DoDue(t.Context())
		w.must(err)
		w.clock.Advance(time.Second)
	}
	if n := witness.Connections(); n != 0 {
		t.Errorf("%d connections were made, want none", n)
	}
	if n := tried(); n != accepted {
		t.Errorf("%d of %d deliveries were tried", n, accepted)
	}
}

func TestRedirectsToForbiddenPlacesAreNotFollowed(t *testing.T) {
	w := onOne(t)
	witness := egresstest.NewWitness(t)
	to := newReceiver(t)
	id := w.define(echo)
	for _, row := range egresstest.Forbidden(witness.Port()) {
		if row.Where != egresstest.AfterRedirect {
			continue
		}
		to.answers(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Location", row.URL)
			rw.WriteHeader(http.StatusPermanentRedirect)
		})
		w.ask(id, `{}`, to.URL)
		w.do(w.node, 2)
		to.one(t)
	}
	if n := witness.Connections(); n != 0 {
		t.Errorf("%d connections were made, want none", n)
	}
}

// verified checks a delivery as a receiver does that has one secret.
func verified(t testing.TB, d delivery, s secret.Text) bool {
	t.Helper()
	text, ok := strings.CutPrefix(s.Reveal(), "whsec_")
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) < 24 {
		t.Fatal("the secret is not of the form that receivers know")
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(d.header.Get("Webhook-Id") + "." + d.header.Get("Webhook-Timestamp") + "." + d.body))
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for signature := range strings.SplitSeq(d.header.Get("Webhook-Signature"), " ") {
		if hmac.Equal([]byte(signature), []byte(want)) {
			return true
		}
	}
	return false
}

func TestBothSecretsSignForADay(t *testing.T) {
	w := onOne(t)
	to := newReceiver(t)
	id := w.define(echo)
	deliver := func() delivery {
		w.ask(id, `{"a":1}`, to.URL)
		w.do(w.node, 2)
		return to.one(t)
	}
	old := w.secrets()[0]
	if d := deliver(); !verified(t, d, old) || strings.Contains(d.header.Get("Webhook-Signature"), " ") {
		t.Errorf("before the rotation the signature is %q", d.header.Get("Webhook-Signature"))
	}
	_, err := w.directory.RotateCallbackSecret(t.Context(), w.manager)
	w.must(err)
	fresh := w.secrets()[0]
	for _, step := range []struct {
		later time.Duration
		old   bool
	}{{0, true}, {24*time.Hour - time.Second, true}, {time.Second, false}} {
		w.clock.Advance(step.later)
		d := deliver()
		if got := verified(t, d, old); got != step.old {
			t.Errorf("%v later the old secret verifies: %v, want %v", step.later, got, step.old)
		}
		if !verified(t, d, fresh) {
			t.Errorf("%v later the new secret does not verify", step.later)
		}
		d.body += " "
		if verified(t, d, fresh) {
			t.Error("a changed body verifies")
		}
	}
}

func TestNoSecretIsNoTry(t *testing.T) {
	w := onOne(t)
	to := newReceiver(t)
	parts := w.parts()
	w.ask(w.define(echo), `{}`, to.URL)
	broken := errors.New("the store is away")
	parts.Secrets = func(context.Context, string) ([]secret.Text, error) { return nil, broken }
	if _, err := newNode(parts, reactor.Options{Now: w.clock.Now}).DoDue(t.Context()); !errors.Is(err, broken) {
		t.Errorf("DoDue = %v, want %v", err, broken)
	}
	if rows := w.parcels(store.ParcelDelivery); len(rows) != 1 || rows[0].Attempts != 0 {
		t.Fatalf("%d deliveries wait, want one that counts no try", len(rows))
	}
	w.clock.Advance(15 * time.Second)
	w.do(w.node, 1)
	to.one(t)
}

func TestCallersWhoMayNotAsk(t *testing.T) {
	w := onOne(t)
	id := w.define(echo)
	card := w.token(`{"type":"card_number","data":"` + visa + `"}`)
	elsewhere, err := w.directory.CreateApplication(t.Context(), w.manager, directory.NewApplication{
		Name: "a", Type: string(access.Private), Rules: []access.Rule{accesstest.Rule("/general/", access.Reveal, access.TokenUse)},
	})
	w.must(err)
	for name, test := range map[string]struct {
		caller access.Caller
		id     string
		args   string
		url    string
		kind   error
	}{
		"no token:use":        {w.manager, id, `{}`, "https://example.com/", fault.Forbidden},
		"another container":   {w.acting(elsewhere.ID), id, `{"n":"{{ ` + card + ` }}"}`, "https://example.com/", fault.Forbidden},
		"another tenant":      {w.stranger(), id, `{}`, "https://example.com/", fault.NotFound},
		"no reactor":          {w.user, access.NewID(), `{}`, "https://example.com/", fault.NotFound},
		"no token":            {w.user, id, `{"n":"{{ nope }}"}`, "https://example.com/", fault.Invalid},
		"no URL":              {w.user, id, `{}`, "nope", fault.Invalid},
		"arguments of a kind": {w.user, id, `[1]`, "https://example.com/", fault.Invalid},
	} {
		_, err := w.node.Start(t.Context(), test.caller, test.id, reactor.Invocation{Args: value(t, test.args), Callback: test.url})
		is(t, name, err, test.kind)
	}
	if n := len(w.parcels(store.ParcelJob)); n != 0 {
		t.Errorf("%d jobs were accepted", n)
	}
}
