package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/reactor"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

func TestARunThatNobodyWaitsForIsDelivered(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		to := newReceiver(t)
		id := w.define(echo)
		tok := w.token(`{"type":"card_number","data":"` + visa + `"}`)
		request := w.ask(id, `{"n":"{{ `+tok+` }}","plain":"seen-in-clear"}`, to.URL+"/hook")
		w.absent("before the run", visa, "seen-in-clear", to.URL)
		if got := to.take(); len(got) != 0 {
			t.Fatal("something was delivered before anything ran")
		}
		w.do(w.node, 2)
		got := to.one(t)
		if want := `{"raw":{"n":"` + visa + `","plain":"seen-in-clear"}}`; got.body != want {
			t.Errorf("the callback got %s, want %s", got.body, want)
		}
		for name, want := range map[string]string{
			"Svc-Trace-Id": "trace-1", "Svc-Reactor-Id": id, "Svc-Request-Id": request, "Webhook-Id": request, "Content-Type": "application/json",
		} {
			if got.header.Get(name) != want {
				t.Errorf("the callback has %s %q, want %q", name, got.header.Get(name), want)
			}
		}
		if n := len(w.parcels(store.ParcelJob)) + len(w.parcels(store.ParcelDelivery)) + len(w.parcels(store.ParcelResult)); n != 0 {
			t.Errorf("%d rows are left of what was delivered", n)
		}
		w.do(w.node, 0)
	})
}

func TestWhatIsDelivered(t *testing.T) {
	storetest.Long(t)
	w := onOne(t)
	to := newReceiver(t)
	tok := w.token(`{"type":"token","data":"secret-in-a-text"}`)
	for name, test := range map[string]struct {
		code   string
		body   string
		status int
		words  string
	}{
		"nothing":                    {code: `module.exports = async () => {}`, body: `{}`},
		"a custom answer":            {code: custom(`{status: 202, body: {a: 1}}`), body: `{"a":1}`},
		"a custom answer of 402":     {code: custom(`{status: 402, body: {declined: true}}`), body: `{"declined":true}`},
		"a custom answer of 503":     {code: custom(`{status: 503, body: "later"}`), body: `"later"`},
		"a custom answer of nothing": {code: custom(`{status: 404}`), body: `{}`},
		"an error":                   {code: `module.exports = async () => { throw new Error('no luck') }`, status: 422, words: "no luck"},
		"an error with a value": {
			code:   `module.exports = async (req) => { throw new Error('bad ' + req.args.h.split(' ')[1]) }`,
			status: 422, words: "bad [protected]",
		},
		"no function":        {code: `module.exports = 1`, status: 422, words: "function"},
		"not JSON":           {code: `module.exports = async () => ({raw: 1n})`, status: 422, words: "JSON"},
		"a token of no type": {code: `module.exports = async () => ({tokenize: {type: 'nope', data: 'x'}})`, status: 422, words: ""},
	} {
		w.ask(w.define(test.code), `{"h":"Bearer {{ `+tok+` }}"}`, to.URL)
		w.do(w.node, 2)
		got := to.one(t)
		switch {
		case test.status != 0:
			problem(t, got.body, test.status, test.words)
		case got.body != test.body:
			t.Errorf("%s: the callback got %s, want %s", name, got.body, test.body)
		}
		if strings.Contains(got.body, "secret-in-a-text") {
			t.Errorf("%s: the callback got a protected value: %s", name, got.body)
		}
	}
}

func custom(answer string) string {
	return `const { CustomHttpResponseError } = require('tokenkeep/errors');
module.exports = async () => { throw new CustomHttpResponseError(` + answer + `) }`
}

func TestTokensOfARunAreMadeWithItsResult(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		to := newReceiver(t)
		w.ask(w.define(`module.exports = async () => ({ raw: 1, tokenize: { type: 'card_number', data: '`+visa+`', id: 'made-by-code' } })`), `{}`, to.URL)
		w.do(w.node, 2)
		if got := to.one(t).body; !strings.Contains(got, `"id":"made-by-code"`) || strings.Contains(got, visa) {
			t.Errorf("the callback got %s", got)
		}
		if _, err := w.tokens.Get(t.Context(), w.user, "made-by-code"); err != nil {
			t.Errorf("the token: %v", err)
		}
	})
}

func TestAJobGoesOnAfterARestart(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		to, g := newReceiver(t), newGate(t)
		close(g.open)
		id := w.define(g.code())
		ran := func(want int) {
			t.Helper()
			if n := len(g.came); n != want {
				t.Errorf("the code ran %d times, want %d", n, want)
			}
		}

		w.ask(id, `{"a":1}`, to.URL) // accepted, and nothing else
		w.do(w.newNode(), 2)
		if got := to.one(t).body; got != `{"raw":{"a":1}}` {
			t.Errorf("accepted before the restart: %s", got)
		}
		ran(1)

		request := w.ask(id, `{"a":2}`, to.URL) // in the middle of the run
		w.die(store.ParcelJob, request)
		w.do(w.newNode(), 0)
		w.clock.Advance(15 * time.Second)
		w.do(w.newNode(), 2)
		got := to.one(t)
		problem(t, got.body, 422, "interrupted")
		if got.header.Get("Webhook-Id") != request {
			t.Error("the delivery has another id")
		}
		ran(1)

		request = w.ask(id, `{"a":3}`, to.URL) // before and in the middle of the delivery
		to.answers(refuse)
		w.do(w.node, 2)
		to.answers(nil)
		first := to.one(t)
		w.clock.Advance(20 * time.Second)
		w.die(store.ParcelDelivery, request)
		w.do(w.newNode(), 0)
		w.clock.Advance(15 * time.Second)
		w.do(w.newNode(), 1)
		again := to.one(t)
		if again.body != `{"raw":{"a":3}}` || again.body != first.body || again.header.Get("Webhook-Id") != request || first.header.Get("Webhook-Id") != request {
			t.Errorf("the deliveries are %+v and %+v", first, again)
		}
		ran(2)
	})
}

func TestAServerThatStopsSaysSoAtOnce(t *testing.T) {
	w := onOne(t)
	to, g := newReceiver(t), newGate(t)
	w.ask(w.define(g.code()), `{}`, to.URL)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = w.node.DoDue(ctx)
	}()
	<-g.came
	stop()
	<-done
	close(g.open)
	w.do(w.newNode(), 1)
	problem(t, to.one(t).body, 422, "interrupted")
	if len(g.came) != 0 {
		t.Error("the code ran again")
	}
}

func TestADeliveryThatTheServerCutOffIsNoTry(t *testing.T) {
	w := onOne(t)
	to := newReceiver(t)
	arrived := make(chan struct{}, 1)
	to.answers(func(_ http.ResponseWriter, q *http.Request) {
		arrived <- struct{}{}
		<-q.Context().Done()
	})
	w.ask(w.define(echo), `{}`, to.URL)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = w.node.DoDue(ctx)
	}()
	<-arrived
	stop()
	<-done
	if p := w.parcels(store.ParcelDelivery); len(p) != 1 || p[0].Attempts != 0 || p[0].DueAt > store.At(w.clock.Now()) {
		t.Errorf("the delivery is %d rows, %+v, want one that is due and counts no try", len(p), p)
	}
}

func TestAResultOutlivesARotationOfKeys(t *testing.T) {
	storetest.Long(t)
	onBoth(t, func(t *testing.T, w *world) {
		to, g := newReceiver(t), newGate(t)
		request := w.ask(w.define(g.code()), `{"a":1}`, to.URL)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if n, err := w.node.DoDue(t.Context()); n != 2 || err != nil {
				t.Errorf("DoDue = %d, %v, want 2", n, err)
			}
		}()
		<-g.came
		before := w.parcels(store.ParcelJob)
		other := w.newRing() // of another node, so that this one's hears nothing
		w.must(other.RotateTenant(t.Context(), w.tenant, nil))
		w.must(other.RetireTenant(t.Context(), w.tenant))
		w.clock.Advance(time.Second)
		if after := w.parcels(store.ParcelJob); len(before) != 1 || len(after) != 1 || after[0].Version <= before[0].Version {
			t.Errorf("the rotation left the job as it was: %d, %d rows", len(before), len(after))
		}
		to.answers(refuse)
		close(g.open)
		<-done
		to.answers(nil)
		to.take()
		w.clock.Advance(20 * time.Second)
		parts := w.parts()
		parts.Ring = w.newRing() // which never heard of the old key
		w.do(newNode(parts, reactor.Options{Now: w.clock.Now}), 1)
		if got := to.one(t); got.body != `{"raw":{"a":1}}` || got.header.Get("Webhook-Id") != request {
			t.Errorf("the callback got %+v", got)
		}
	})
}

// TestALeaseIsRenewed takes the five seconds that pass between two renewals.
func TestALeaseIsRenewed(t *testing.T) {
	storetest.Long(t)
	if testing.Short() {
		t.Skip("it waits for a renewal")
	}
	w := onOne(t)
	to, g := newReceiver(t), newGate(t)
	w.ask(w.define(g.code()), `{"a":1}`, to.URL)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = w.node.DoDue(t.Context())
	}()
	<-g.came
	w.must(w.ring.RotateTenant(t.Context(), w.tenant, nil)) // changes the row
	claimed := w.parcels(store.ParcelJob)[0].DueAt
	w.clock.Advance(10 * time.Second)
	waittest.Until(t, "the lease is renewed", func() bool { return w.parcels(store.ParcelJob)[0].DueAt > claimed })
	w.clock.Advance(10 * time.Second) // the first lease is over by now
	w.do(w.newNode(), 0)
	close(g.open)
	<-done
	if got := to.one(t).body; got != `{"raw":{"a":1}}` {
		t.Errorf("the callback got %s", got)
	}
}

func TestALostJobIsNotFinishedTwice(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		to, g := newReceiver(t), newGate(t)
		w.ask(w.define(g.code()), `{"late":true}`, to.URL)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = w.node.DoDue(t.Context())
		}()
		<-g.came
		w.clock.Advance(16 * time.Second) // the first node is cut off from the store for so long
		w.do(w.newNode(), 2)
		problem(t, to.one(t).body, 422, "interrupted")
		close(g.open)
		<-done
		w.do(w.newNode(), 0)
		if got := to.take(); len(got) != 0 {
			t.Errorf("the callback got a second answer: %+v", got)
		}
	})
}

func TestTwoNodesDoEachJobOnce(t *testing.T) {
	storetest.Long(t)
	const jobs = 20
	onBoth(t, func(t *testing.T, w *world) {
		to, g := newReceiver(t), newGate(t)
		close(g.open)
		var asked []string
		for range 2 {
			id := w.define(g.code())
			for i := range jobs / 2 {
				asked = append(asked, w.ask(id, fmt.Sprintf(`{"i":%d}`, i), to.URL))
			}
		}
		var group sync.WaitGroup
		for _, node := range []*node{w.node, w.newNode()} {
			group.Go(func() {
				if _, err := node.DoDue(t.Context()); err != nil {
					t.Errorf("DoDue: %v", err)
				}
			})
		}
		group.Wait()
		w.do(w.node, 0)
		var got []string
		for _, d := range to.take() {
			got = append(got, d.header.Get("Webhook-Id"))
		}
		slices.Sort(got)
		slices.Sort(asked)
		if !slices.Equal(got, asked) || len(g.came) != jobs {
			t.Errorf("%d jobs came to %d runs and %d deliveries, want each once", jobs, len(g.came), len(got))
		}
	})
}

func TestCodeThatFoundNoRoomRunsLater(t *testing.T) {
	storetest.Long(t)
	w := onOne(t)
	to, g := newReceiver(t), newGate(t)
	id := w.define(g.code())
	const jobs = 16 // of which the sandbox runs 10 at once
	for range jobs {
		w.ask(id, `{}`, to.URL)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = w.node.DoDue(t.Context())
	}()
	for range 10 {
		<-g.came
	}
	waiting := func() (n int) {
		for _, p := range w.parcels(store.ParcelJob) {
			if p.Attempts == 0 && p.DueAt == store.At(w.clock.Now().Add(time.Second)) {
				n++
			}
		}
		return n
	}
	waittest.Until(t, "the other jobs wait for their next turn", func() bool { return waiting() >= jobs-10 })
	close(g.open)
	<-done
	w.clock.Advance(time.Second)
	w.do(w.node, 2*(jobs-10))
	if n := len(to.take()); n != jobs || len(g.came) != jobs-10 {
		t.Errorf("%d deliveries and %d further runs, want %d and %d", n, len(g.came), jobs, jobs-10)
	}
}

func TestOneTenantLeavesRoomForOthers(t *testing.T) {
	storetest.Long(t)
	w := onOne(t)
	to, g := newReceiver(t), newGate(t)
	for range 3 { // more than a node runs for one tenant
		id := w.define(g.code())
		for range 10 {
			w.ask(id, `{}`, to.URL)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = w.node.DoDue(t.Context())
	}()
	for range 16 {
		<-g.came
	}
	first := w.tenant
	made, applications, err := w.directory.CreateTenant(t.Context(), "Other", directory.DemoApplications()...)
	w.must(err)
	w.tenant = made.ID
	w.manager, w.user = w.acting(applications[0].ID), w.acting(applications[1].ID)
	w.ask(w.define(echo), `{"other":true}`, to.URL)
	w.do(w.node, 2)
	if got := to.one(t).body; got != `{"raw":{"other":true}}` {
		t.Errorf("the other tenant's callback got %s", got)
	}
	w.tenant = first
	close(g.open)
	<-done
}

func TestASecurityCodeIsGoneBeforeTheRun(t *testing.T) {
	storetest.Long(t)
	onBoth(t, func(t *testing.T, w *world) {
		to, g := newReceiver(t), newGate(t)
		tok := w.token(`{"type":"card","data":{"number":"` + visa + `","cvc":"987"}}`)
		w.ask(w.define(g.code()), `{"card":"{{ `+tok+` }}"}`, to.URL)
		w.ask(w.define(echo), `{"plain":1}`, to.URL+"/plain")
		w.clock.Advance(61 * time.Minute)
		_, err := w.ring.DestroyDue(t.Context(), 0)
		w.must(err)
		w.do(w.node, 4)
		var bodies []string
		for _, d := range to.take() {
			bodies = append(bodies, d.body)
		}
		slices.Sort(bodies)
		if len(bodies) != 2 || bodies[0] != `{"raw":{"plain":1}}` || len(g.came) != 0 {
			t.Fatalf("the callback got %q after %d runs", bodies, len(g.came))
		}
		problem(t, bodies[1], 409, "no longer available")
	})
}

func TestASecurityCodeIsGoneBeforeTheDelivery(t *testing.T) {
	storetest.Long(t)
	onBoth(t, func(t *testing.T, w *world) {
		to := newReceiver(t)
		tok := w.token(`{"type":"card","data":{"number":"` + visa + `","cvc":"987"}}`)
		to.answers(refuse)
		w.ask(w.define(echo), `{"card":"{{ `+tok+` }}"}`, to.URL)
		w.ask(w.define(`module.exports = async (req) => { throw new Error('cvc ' + req.args.cvc) }`), `{"cvc":"{{ `+tok+` | json: '$.cvc' }}"}`, to.URL)
		w.do(w.node, 4)
		for _, d := range to.take() {
			if !strings.Contains(d.body, "987") {
				t.Errorf("the first try was %s", d.body)
			}
		}
		to.answers(nil)
		w.clock.Advance(61 * time.Minute)
		_, err := w.ring.DestroyDue(t.Context(), 0)
		w.must(err)
		w.do(w.node, 2)
		for _, d := range to.take() {
			problem(t, d.body, 409, "no longer available")
		}
	})
}

// requested is a job that waits, with what it depends on.
type requested struct {
	caller, session access.Caller         // who requested it; the session, if one did
	public, private directory.Application // those of the session; private is the caller's own otherwise
	spare           directory.Key         // of the private application: nothing was done with it
	key             secret.Text           // of the caller
	id, request     string
}

// request queues a job, in the name of a session or of a private application.
func (w *world) request(session bool, id, callback string) (r requested) {
	w.t.Helper()
	ctx := w.t.Context()
	r.id, r.private = id, w.application(access.Private, "token:use")
	var err error
	r.spare, err = w.directory.CreateKey(ctx, w.manager, r.private.ID)
	w.must(err)
	r.key = r.private.Key
	if session {
		r.public = w.application(access.Public, "token:create")
		r.key = w.sessionOf(r.public, r.private)
		r.session = w.authenticated(r.key)
	}
	r.caller = w.authenticated(r.key).WithOrigin(access.Origin{TraceID: "trace-of-the-job", Address: "192.0.2.7"})
	r.request = w.askAs(r.caller, id, `{}`, callback)
	w.clock.Advance(time.Second)
	return r
}

func (w *world) expire(a directory.Application) {
	w.t.Helper()
	_, err := w.directory.ReplaceApplication(w.t.Context(), w.manager, a.ID, directory.NewApplication{
		Name: "a", Permissions: a.Permissions, ExpiresAt: w.clock.Now().Add(time.Second),
	})
	w.must(err)
	w.clock.Advance(time.Second)
}

// grant gives an application other permissions, and no expiry.
func (w *world) grant(a directory.Application, permissions ...string) {
	w.t.Helper()
	_, err := w.directory.ReplaceApplication(w.t.Context(), w.manager, a.ID, directory.NewApplication{Name: "a", Permissions: permissions})
	w.must(err)
}

// A job that waits is cancelled when the session that requested it dies, and
// when the application that requested it is gone or has lost token:use. That is
// in the log, as of the caller, and whoever waits for the result is told.
func TestAJobIsCancelledWithWhoRequestedIt(t *testing.T) {
	storetest.Long(t)
	onBoth(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		to, g := newReceiver(t), newGate(t)
		close(g.open)
		id := w.define(g.code())
		d := w.directory
		regenerate := func(a directory.Application) { _, err := d.Regenerate(ctx, w.manager, a.ID); w.must(err) }
		for name, test := range map[string]struct {
			session bool
			do      func(r requested)
			runs    bool
		}{
			"the key that created the session is deleted":        {true, func(r requested) { w.must(d.DeleteKey(ctx, w.manager, r.public.ID, r.public.Keys[0].ID)) }, false},
			"the key that created the session is regenerated":    {true, func(r requested) { regenerate(r.public) }, false},
			"the application that created it is deleted":         {true, func(r requested) { w.must(d.DeleteApplication(ctx, w.manager, r.public.ID)) }, false},
			"the application that created it expires":            {true, func(r requested) { w.expire(r.public) }, false},
			"the key that authorized the session is deleted":     {true, func(r requested) { w.must(d.DeleteKey(ctx, w.manager, r.private.ID, r.private.Keys[0].ID)) }, false},
			"the key that authorized the session is regenerated": {true, func(r requested) { regenerate(r.private) }, false},
			"the application that authorized it is deleted":      {true, func(r requested) { w.must(d.DeleteApplication(ctx, w.manager, r.private.ID)) }, false},
			"the application that authorized it expires":         {true, func(r requested) { w.expire(r.private) }, false},
			"the application that authorized it loses token:use": {true, func(r requested) { w.grant(r.private, "token:read") }, false},
			"the session is deleted":                             {true, func(r requested) { w.must(d.DeleteSession(ctx, w.manager, r.session.Session())) }, false},
			"the session expires":                                {true, func(requested) { w.clock.Advance(3 * time.Minute) }, false},
			"the session expires and is swept": {true, func(requested) {
				w.clock.Advance(3 * time.Minute)
				_, err := d.SweepSessions(ctx)
				w.must(err)
			}, false},
			"another key of the application that authorized it is deleted": {true, func(r requested) { w.must(d.DeleteKey(ctx, w.manager, r.private.ID, r.spare.ID)) }, true},
			"the application is deleted":                                   {false, func(r requested) { w.must(d.DeleteApplication(ctx, w.manager, r.private.ID)) }, false},
			"the application expires":                                      {false, func(r requested) { w.expire(r.private) }, false},
			"the application loses token:use":                              {false, func(r requested) { w.grant(r.private, "token:read") }, false},
			"the application, whose job it is, gets another key":           {false, func(r requested) { regenerate(r.private) }, true},
		} {
			for _, callback := range []string{to.URL, ""} {
				r := w.request(test.session, id, callback)
				test.do(r)
				w.do(w.newNode(), map[bool]int{true: 1, false: 2}[callback == ""])
				if ran := len(g.came) == 1; ran != test.runs {
					t.Errorf("%s: the code ran: %t, want %t", name, ran, test.runs)
				}
				for len(g.came) > 0 {
					<-g.came
				}
				if n := len(w.parcels(store.ParcelJob)); n != 0 {
					t.Errorf("%s: %d jobs are left", name, n)
				}
				entries := w.cancelled(id)
				if test.runs {
					if len(entries) != 0 {
						t.Errorf("%s: the log has %+v, want nothing cancelled", name, entries)
					}
					if callback != "" {
						to.one(t)
					}
					continue
				}
				want := store.LogEntry{
					ActorID: r.caller.Application(), ActorType: "application", SessionID: r.caller.Session(), EntityType: "reactor", EntityID: id,
					Operation: "update", Outcome: "denied", Message: "Reactor job cancelled", TraceID: "trace-of-the-job", ClientAddress: "192.0.2.7",
				}
				if len(entries) != 1 || entries[0] != want {
					t.Errorf("%s: the log has %+v, want %+v", name, entries, want)
				}
				if callback != "" {
					got := to.one(t)
					cancelled(t, got.body)
					if got.header.Get("Webhook-Id") != r.request {
						t.Errorf("%s: the delivery has another id", name)
					}
				} else if n := len(w.parcels(store.ParcelResult)); n != 1 {
					t.Errorf("%s: %d results are kept, want 1", name, n)
				}
				w.forget()
			}
		}
	})
}

// The result of a cancelled job is kept for its caller, who can read it when it
// is valid again.
func TestTheResultOfACancelledJob(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		id := w.define(echo)
		for name, test := range map[string]struct {
			session   bool
			end, back func(r requested)
		}{
			"a session": {true, func(r requested) { w.expire(r.private) }, func(r requested) { w.grant(r.private, "token:use") }},
			"an application": {false, func(r requested) { w.grant(r.private, "token:read") },
				func(r requested) { w.grant(r.private, "token:use") }},
		} {
			r := w.request(test.session, id, "")
			test.end(r)
			w.do(w.node, 1)
			if c, err := w.directory.Authenticate(ctx, r.key); err == nil {
				_, _, err = w.node.Result(ctx, c, id, r.request)
				is(t, name+" without the permission", err, fault.Forbidden)
			} else {
				is(t, name+" that is dead", err, fault.Unauthenticated)
			}
			test.back(r)
			status, body, err := w.node.Result(ctx, w.authenticated(r.key), id, r.request)
			w.must(err)
			if status != 403 {
				t.Errorf("%s: the result has status %d, want 403", name, status)
			}
			cancelled(t, string(body))
			_, _, err = w.node.Result(ctx, w.user, id, r.request)
			is(t, "somebody else", err, fault.NotFound)
			_, _, err = w.node.Result(ctx, w.stranger(), id, r.request)
			is(t, "another tenant", err, fault.NotFound)
		}
	})
}

// An entry that cannot be written keeps the job: it is cancelled later, and
// runs no code.
func TestAJobIsNotCancelledWithoutItsEntry(t *testing.T) {
	w := onOne(t)
	g := newGate(t)
	close(g.open)
	id := w.define(g.code())
	r := w.request(true, id, "")
	w.must(w.directory.DeleteApplication(t.Context(), w.manager, r.public.ID))
	parts := w.parts()
	parts.Store = mute{w.store}
	if _, err := newNode(parts, reactor.Options{Now: w.clock.Now}).DoDue(t.Context()); !errors.Is(err, errMute) {
		t.Errorf("DoDue without the log = %v, want %v", err, errMute)
	}
	if jobs, results := len(w.parcels(store.ParcelJob)), len(w.parcels(store.ParcelResult)); jobs != 1 || results != 0 || len(w.cancelled(id)) != 0 {
		t.Errorf("%d jobs and %d results are left, want the job", jobs, results)
	}
	if len(g.came) != 0 {
		t.Error("the code ran")
	}
}

var errMute = errors.New("no entry can be appended")

// mute is a store to whose log nothing can be appended.
type mute struct{ store.Store }

type muteTx struct{ store.Tx }

func (m mute) Update(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	return m.Store.Update(ctx, tenant, func(tx store.Tx) error { return fn(muteTx{tx}) })
}

func (m mute) Read(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	return m.Store.Read(ctx, tenant, func(tx store.Tx) error { return fn(muteTx{tx}) })
}

func (muteTx) AppendLog(context.Context, ...store.LogEntry) error { return errMute }

// cancelled fails unless a body says that a job was cancelled.
func cancelled(t testing.TB, body string) {
	t.Helper()
	problem(t, body, 403, "the run was cancelled")
	if !strings.Contains(body, `"code":"job_cancelled"`) {
		t.Errorf("the body %s has another code", body)
	}
}

// cancelled returns the entries about cancelled jobs of a reactor since the
// world was told to forget, without what no two have in common.
func (w *world) cancelled(id string) (list []store.LogEntry) {
	w.t.Helper()
	w.must(w.store.View(w.t.Context(), w.tenant, func(tx store.Tx) error {
		entries, err := tx.Logs(w.t.Context(), store.LogFilter{EntityID: id, From: w.since}, store.Page{Limit: 100})
		list = nil
		for _, e := range entries {
			if strings.Contains(e.Message, "cancelled") {
				e.ID, e.CreatedAt = "", 0
				list = append(list, e)
			}
		}
		return err
	}))
	return list
}

// forget removes what is kept of jobs, and looks only at later entries.
func (w *world) forget() {
	w.t.Helper()
	results := w.parcels(store.ParcelResult)
	w.must(w.store.Update(w.t.Context(), w.tenant, func(tx store.Tx) (err error) {
		for _, p := range results {
			err = errors.Join(err, tx.DeleteParcel(w.t.Context(), p.Kind, p.ID))
		}
		return err
	}))
	w.clock.Advance(time.Second)
	w.since = store.At(w.clock.Now())
}

func TestTheReactorOfAJobIsGone(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		to, g := newReceiver(t), newGate(t)
		id := w.define(g.code())
		w.ask(id, `{}`, to.URL)
		w.must(w.node.Delete(t.Context(), w.manager, id))
		w.do(w.node, 2)
		problem(t, to.one(t).body, 404, "no such reactor")
		if len(g.came) != 0 {
			t.Error("code ran that is gone")
		}
	})
}

// sessionOf returns the key of a session that may use tokens, for three minutes.
func (w *world) sessionOf(public, private directory.Application) secret.Text {
	w.t.Helper()
	ctx := w.t.Context()
	made, err := w.directory.CreateSession(ctx, w.authenticated(public.Key))
	w.must(err)
	_, err = w.directory.AuthorizeSession(ctx, w.authenticated(private.Key), directory.Authorization{Nonce: made.Nonce, Permissions: []string{"token:use"}})
	w.must(err)
	return made.Key
}

// authenticated is the caller of a key.
func (w *world) authenticated(key secret.Text) access.Caller {
	w.t.Helper()
	c, err := w.directory.Authenticate(w.t.Context(), key)
	w.must(err)
	return c
}

func (w *world) session() access.Caller {
	w.t.Helper()
	return w.authenticated(w.sessionOf(w.application(access.Public, "token:create"), w.application(access.Private, "token:use")))
}

func TestAResultIsForTheOneWhoAsked(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		id, other := w.define(echo), w.define(echo)
		session := w.session()
		request, ofSession := w.ask(id, `{"a":1}`, ""), w.askAs(session, id, `{"s":1}`, "")
		_, _, err := w.node.Result(ctx, w.user, id, request)
		is(t, "before it ran", err, fault.NotFound)
		w.do(w.node, 2)
		w.absent("results", `"raw"`)
		colleague := w.acting(w.application(access.Private, "token:use").ID)
		for name, test := range map[string]struct {
			caller      access.Caller
			id, request string
			want        string
			kind        error
		}{
			"whoever asked":      {w.user, id, request, `{"raw":{"a":1}}`, nil},
			"again":              {w.user, id, request, `{"raw":{"a":1}}`, nil},
			"the session":        {session, id, ofSession, `{"raw":{"s":1}}`, nil},
			"not its maker":      {w.acting(session.Application()), id, ofSession, "", fault.Forbidden},
			"the session, other": {session, id, request, "", fault.NotFound},
			"a colleague":        {colleague, id, request, "", fault.NotFound},
			"a manager":          {w.manager, id, request, "", fault.Forbidden},
			"another tenant":     {w.stranger(), id, request, "", fault.NotFound},
			"another reactor":    {w.user, other, request, "", fault.NotFound},
			"another request":    {w.user, id, access.NewID(), "", fault.NotFound},
		} {
			status, body, err := w.node.Result(ctx, test.caller, test.id, test.request)
			is(t, name, err, test.kind)
			if string(body) != test.want || err == nil && status != 200 {
				t.Errorf("%s: the result is %d %s, want %s", name, status, body, test.want)
			}
		}
		w.clock.Advance(24*time.Hour - time.Second)
		if _, _, err := w.node.Result(ctx, w.user, id, request); err != nil {
			t.Errorf("within the day: %v", err)
		}
		w.clock.Advance(time.Second)
		_, _, err = w.node.Result(ctx, w.user, id, request)
		is(t, "after a day", err, fault.NotFound)
		_, err = store.SweepParcels(ctx, w.store, store.At(w.clock.Now()))
		w.must(err)
		if n := len(w.parcels(store.ParcelResult)); n != 0 {
			t.Errorf("%d results were not swept", n)
		}
	})
}

func TestAResultOfASecurityCodeGoesWithIt(t *testing.T) {
	w := onOne(t)
	ctx := t.Context()
	tok := w.token(`{"type":"card","data":{"number":"` + visa + `","cvc":"987"}}`)
	id := w.define(echo)
	request := w.ask(id, `{"cvc":"{{ `+tok+` | json: '$.cvc' }}"}`, "")
	w.do(w.node, 1)
	if _, body, err := w.node.Result(ctx, w.user, id, request); err != nil || string(body) != `{"raw":{"cvc":"987"}}` {
		t.Errorf("the result is %s, %v", body, err)
	}
	w.clock.Advance(time.Hour)
	_, _, err := w.node.Result(ctx, w.user, id, request)
	is(t, "after an hour", err, fault.Conflict)
}

func TestTheLastHundredRunsAreKept(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		id := w.define(`module.exports = async (req) => { console.log('run', req.args.i) }`)
		for i := range 103 {
			if _, err := w.node.React(t.Context(), w.user, id, reactor.Invocation{Args: value(t, fmt.Sprintf(`{"i":%d}`, i))}); err != nil {
				t.Fatal(err)
			}
			w.clock.Advance(time.Second)
		}
		list, total, err := w.node.Runs(t.Context(), w.manager, id, store.Page{Limit: 100})
		w.must(err)
		if total != 100 || len(list) != 100 {
			t.Fatalf("%d runs are kept and %d shown, want 100", total, len(list))
		}
		if got := string(list[99].Console[0]); !strings.Contains(got, "run 3") {
			t.Errorf("the oldest run printed %s, want that of run 3", got)
		}
		w.absent("runs", "run 5")
	})
}
