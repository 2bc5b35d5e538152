package webhook_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/definition"
	"github.com/tokenkeep/tokenkeep/internal/egress"
	"github.com/tokenkeep/tokenkeep/internal/egress/egresstest"
	"github.com/tokenkeep/tokenkeep/internal/event"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/webhook"
)

// TestEachEventArrivesInTheOrderOfItsEntity has a receiver that fails, hangs and
// lies, and nodes that die at any of their steps.
func TestEachEventArrivesInTheOrderOfItsEntity(t *testing.T) {
	onBoth(t, func(f *fixture) {
		f.webhook(`"token.*"`)
		const each, kills = 5, 3
		entities := 20
		if storetest.All() || storetest.Soak() {
			entities = 2000 // 10,000 events
		}
		tried := map[string]int{}
		f.answers(func(m message) int { // its lock guards tried
			tried[m.id]++
			h := fnv.New32a()
			_, _ = h.Write([]byte(m.id))
			switch n := int(h.Sum32() % 8); {
			case n < 4 || tried[m.id] > n-3:
				return http.StatusOK
			case n%2 == 0:
				return 0 // it took the message and hangs, or the connection breaks
			default:
				return http.StatusInternalServerError // it took the message and lies
			}
		})
		for e := range entities {
			f.change(fmt.Sprint("entity-", e), audit.Create, audit.Update, audit.Update, audit.Update, audit.Delete)
		}
		for k := range kills {
			dying := &mortal{Store: f.store}
			dying.left.Store(int64(20 + 37*k))
			n := f.newNode(dying)
			_ = n.events.Dispatch(f.Context())
			_, _ = n.jobs.DoDue(f.Context())
			f.clock.Advance(time.Minute)
		}
		second := f.newNode(f.store)
		var got []message
		for range 200 {
			var both sync.WaitGroup
			for _, n := range []*node{f.node, second} {
				both.Go(func() {
					if err := n.events.Dispatch(f.Context()); err != nil {
						t.Error(err)
					}
					if _, err := n.jobs.DoDue(f.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			both.Wait()
			if got = append(got, f.received()...); f.waiting() == 0 {
				break
			}
			f.clock.Advance(10 * time.Minute)
		}
		orders := map[string][]string{}
		for _, m := range got {
			orders[m.event.EntityID] = append(orders[m.event.EntityID], m.id)
		}
		for e := range entities {
			entity := fmt.Sprint("entity-", e)
			var want []string
			f.must(f.store.View(f.Context(), f.tenant, func(tx store.Tx) error {
				list, err := tx.Events(f.Context(), store.EventFilter{EntityID: entity}, 0, 100)
				for _, one := range list {
					want = append(want, one.ID)
				}
				return err
			}))
			// A message that came again came before the next one.
			if order := slices.Compact(orders[entity]); len(want) != each || !slices.Equal(order, want) {
				t.Errorf("events of %s arrived as %v, want %v", entity, order, want)
			}
		}
	})
}

// waiting is how many events a webhook still has to get.
func (f *fixture) waiting() (n int64) {
	f.Helper()
	f.must(f.store.View(f.Context(), f.tenant, func(tx store.Tx) (err error) {
		n, err = tx.CountParcels(f.Context(), store.ParcelFilter{Kind: store.ParcelWebhook})
		return err
	}))
	return n
}

func TestAMessageHasTheEventAndASignatureAndNothingElse(t *testing.T) {
	f := onSQLite(t)
	w := f.webhook(`"token.created","application.*"`)
	f.change("card-of-jane", audit.Create, audit.Update)
	f.settle()
	list := f.received()
	if len(list) != 1 {
		t.Fatalf("received %v, want one message", types(list))
	}
	m := list[0]
	want := fmt.Sprintf(`{"id":%q,"tenant_id":%q,"type":"token.created","entity_type":"card","entity_id":"card-of-jane","containers":["/pci/"],"actor_id":"application-1","actor_type":"application","created_at":"2031-05-06T07:08:00.000000+00:00"}`,
		m.id, f.tenant)
	if m.body != want || m.url != "https://shop.example.com/hooks" {
		t.Errorf("the receiver got %s at %s, want %s", m.body, m.url, want)
	}
	if !signed(t, m, webhook.Secret(w).Reveal()) {
		t.Errorf("the signature %q does not verify", m.signature)
	}
}

func TestARotatedSecretSignsForADay(t *testing.T) {
	f := onSQLite(t)
	old := f.webhook(`"token.*"`)
	fresh, err := f.node.webhooks.RotateSecret(t.Context(), f.manager(f.tenant), old.ID)
	f.must(err)
	for _, step := range []struct {
		after    time.Duration
		old, new bool
	}{{0, true, true}, {webhook.Overlap - time.Second, true, true}, {2 * time.Second, false, true}} {
		f.clock.Advance(step.after)
		f.change("x", audit.Update)
		f.settle()
		m := f.received()[0]
		if byOld, byNew := signed(t, m, webhook.Secret(old).Reveal()), signed(t, m, webhook.Secret(fresh).Reveal()); byOld != step.old || byNew != step.new {
			t.Errorf("%v later: signed with the old secret %v, with the new one %v, want %v, %v", step.after, byOld, byNew, step.old, step.new)
		}
	}
}

func TestADeliveryFailsAfterTenAttemptsAndTheNextGoes(t *testing.T) {
	onBoth(t, func(f *fixture) {
		w := f.webhook(`"token.*"`)
		f.answers(func(m message) int {
			if m.event.Type == "token.created" && m.event.EntityID == "bad" {
				return http.StatusServiceUnavailable
			}
			return http.StatusOK
		})
		f.change("bad", audit.Create, audit.Delete)
		f.change("good", audit.Create)
		began := f.clock.Now()
		f.settle()
		if got := types(f.received()); len(got) != 2 || slices.Contains(got, "token.deleted") {
			f.Errorf("the first attempts sent %v, want the creation of both", got)
		}
		attempts := 1
		var last time.Time
		for range 2000 {
			f.clock.Advance(time.Minute)
			f.settle()
			got := types(f.received())
			if slices.Contains(got, "token.created") {
				attempts++
				last = f.clock.Now()
			}
			if slices.Contains(got, "token.deleted") {
				break
			}
		}
		if took := last.Sub(began); attempts != 10 || took < 20*time.Hour || took > 30*time.Hour {
			f.Errorf("%d attempts over %v, want 10 over a day", attempts, took)
		}
		list, total, err := f.node.webhooks.Deliveries(f.Context(), f.manager(f.tenant), w.ID, store.Page{Limit: 10})
		f.must(err)
		states := map[string]int{}
		for _, d := range list {
			states[d.EventType+" "+d.EntityID+" "+d.State] = d.Attempts*1000 + d.Status
		}
		if total != 3 || states["token.created bad failed"] != 10503 || states["token.deleted bad delivered"] != 1200 || states["token.created good delivered"] != 1200 {
			f.Errorf("the deliveries are %v", states)
		}
	})
}

func TestAReceiverThatIsGoneOrFailsForLongDisablesItsWebhook(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		days   int
		reason string
	}{
		"410 at once":      {http.StatusGone, 0, "the receiver returned 410"},
		"500 for six days": {http.StatusInternalServerError, 6, "the receiver has failed for five days"},
		"no answer":        {0, 6, "the receiver has failed for five days"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := onSQLite(t)
			w := f.webhook(`"*"`)
			f.answers(func(message) int { return c.status })
			f.change("x", audit.Create, audit.Update)
			f.settle()
			for range c.days * 24 {
				f.change("y", audit.Update)
				f.settle()
				f.clock.Advance(time.Hour)
			}
			f.settle()
			got, err := f.node.webhooks.Get(t.Context(), f.manager(f.tenant), w.ID)
			if err != nil || webhook.State(got) != webhook.Disabled || webhook.DisabledReason(got) != c.reason {
				t.Fatalf("the webhook is %s because %q, %v; want it disabled because %q", webhook.State(got), webhook.DisabledReason(got), err, c.reason)
			}
			page, err := f.node.events.List(t.Context(), f.manager(f.tenant), event.Query{Types: []string{audit.EventWebhookDisabled}, Size: 10})
			if err != nil || len(page.Events) != 1 || page.Events[0].EntityID != w.ID {
				t.Errorf("the events are %v, %v; want one of %s", page.Events, err, audit.EventWebhookDisabled)
			}
			if log := f.logged(); strings.Count(log, "a webhook was disabled") != 1 || !strings.Contains(log, w.ID) {
				t.Errorf("the log is %q, want one warning", log)
			}
			// What waited has failed, and nothing more is sent.
			f.answers(func(message) int { return http.StatusOK })
			f.clock.Advance(48 * time.Hour)
			f.settle()
			f.received()
			f.change("x", audit.Delete)
			f.settle()
			if n, came := f.waiting(), f.received(); n != 0 || len(came) != 0 {
				t.Errorf("%d events wait, and %v came; want none", n, types(came))
			}
			// It begins again when it is enabled.
			_, err = f.node.webhooks.Replace(t.Context(), f.manager(f.tenant), w.ID, value(t, `{"name":"w","url":"https://shop.example.com/hooks","events":["token.*"]}`))
			f.must(err)
			f.change("x", audit.Create)
			f.settle()
			if came := types(f.received()); !slices.Equal(came, []string{"token.created"}) {
				t.Errorf("after it was enabled %v came, want token.created", came)
			}
		})
	}
}

func TestAReceiverThatRecoversIsNotDisabled(t *testing.T) {
	f := onSQLite(t)
	w := f.webhook(`"token.*"`)
	for range 8 { // each time for less than five days
		f.answers(func(message) int { return http.StatusInternalServerError })
		f.change("x", audit.Update)
		f.settle()
		f.clock.Advance(23 * time.Hour)
		f.answers(func(message) int { return http.StatusOK })
		for range 20 {
			f.clock.Advance(time.Hour)
			f.settle()
		}
	}
	if got, err := f.node.webhooks.Get(t.Context(), f.manager(f.tenant), w.ID); err != nil || webhook.State(got) != webhook.Enabled {
		t.Errorf("the webhook is %s, %v", webhook.State(got), err)
	}
}

func TestADeliveryIsSentAgainUnderItsID(t *testing.T) {
	f := onSQLite(t)
	w := f.webhook(`"token.*"`)
	c := f.manager(f.tenant)
	f.change("x", audit.Create)
	f.settle()
	first := f.received()[0]
	if d, err := f.node.webhooks.Resend(t.Context(), c, w.ID, first.id); err != nil || d.ID != first.id {
		t.Fatalf("Resend = %+v, %v", d, err)
	}
	f.settle()
	if again := f.received(); len(again) != 1 || again[0].id != first.id || again[0].body != first.body {
		t.Errorf("the message came again as %v, want %v", again, first)
	}
	// One that waits for its next attempt is attempted at once.
	f.answers(func(message) int { return http.StatusBadGateway })
	f.change("y", audit.Create)
	f.settle()
	waiting := f.received()[0]
	f.answers(func(message) int { return http.StatusOK })
	if d, err := f.node.webhooks.Resend(t.Context(), c, w.ID, waiting.id); err != nil || d.State != webhook.Retrying {
		t.Errorf("Resend of one that waits = %+v, %v", d, err)
	}
	f.settle()
	if again := f.received(); len(again) != 1 || again[0].id != waiting.id || f.waiting() != 0 {
		t.Errorf("%v came, and %d wait", again, f.waiting())
	}
	for name, call := range map[string]struct {
		caller            access.Caller
		webhook, delivery string
		want              error
	}{
		"unknown delivery": {c, w.ID, "nothing", fault.NotFound},
		"unknown webhook":  {c, "nothing", first.id, fault.NotFound},
		"another tenant":   {f.manager(f.other), w.ID, first.id, fault.NotFound},
		"no permission":    {accesstest.Caller(t, f.tenant, "a", access.WebhookRead), w.ID, first.id, fault.Forbidden},
	} {
		if _, err := f.node.webhooks.Resend(t.Context(), call.caller, call.webhook, call.delivery); !errors.Is(err, call.want) {
			t.Errorf("%s: Resend = %v, want %v", name, err, call.want)
		}
	}
}

func TestATestIsOneAttempt(t *testing.T) {
	f := onSQLite(t)
	w := f.webhook(`"token.created"`)
	c := f.manager(f.tenant)
	for _, status := range []int{http.StatusOK, http.StatusInternalServerError, 0} {
		f.answers(func(message) int { return status })
		d, err := f.node.webhooks.Test(t.Context(), c, w.ID)
		if err != nil || (d.State == webhook.Delivered) != (status == http.StatusOK) || d.Status != status || d.Attempts != 1 {
			t.Errorf("Test with status %d = %+v, %v", status, d, err)
		}
		if list := f.received(); len(list) != 1 || list[0].event.Type != "webhook.test" || list[0].id != d.ID || !signed(t, list[0], webhook.Secret(w).Reveal()) {
			t.Errorf("the receiver got %v", list)
		}
	}
	f.settle()
	if n, came := f.waiting(), f.received(); n != 0 || len(came) != 0 {
		t.Errorf("%d events wait, and %v came; want none", n, types(came))
	}
	for name, caller := range map[string]access.Caller{"another tenant": f.manager(f.other), "no permission": accesstest.Caller(t, f.tenant, "a", access.WebhookRead)} {
		if _, err := f.node.webhooks.Test(t.Context(), caller, w.ID); !errors.Is(err, fault.NotFound) && !errors.Is(err, fault.Forbidden) {
			t.Errorf("%s: Test = %v", name, err)
		}
	}
}

func TestWhatAWebhookMayBe(t *testing.T) {
	f := onSQLite(t)
	c := f.manager(f.tenant)
	for body, field := range map[string]string{
		`[]`: "",
		`{"url":"https://shop.example.com","events":["*"]}`:                                       "name",
		`{"name":"w","events":["*"]}`:                                                             "url",
		`{"name":"w","url":7,"events":["*"]}`:                                                     "url",
		`{"name":"w","url":"https://inner.example.com","events":["*"]}`:                           "url",
		`{"name":"w","url":"https://x.example/` + strings.Repeat("a", 2000) + `","events":["*"]}`: "url",
		`{"name":"w","url":"https://shop.example.com"}`:                                           "events",
		`{"name":"w","url":"https://shop.example.com","events":[]}`:                               "events",
		`{"name":"w","url":"https://shop.example.com","events":"*"}`:                              "events",
		`{"name":"w","url":"https://shop.example.com","events":["token.exploded"]}`:               "events",
		`{"name":"w","url":"https://shop.example.com","events":[1]}`:                              "events",
		`{"name":"w","url":"https://shop.example.com","events":["*"],"state":"asleep"}`:           "state",
	} {
		_, err := f.node.webhooks.Create(t.Context(), c, value(t, body))
		if told := fault.Of(err); err == nil || told.Kind() != fault.Invalid || field != "" && !strings.Contains(fmt.Sprint(told.Fields()), field) {
			t.Errorf("Create(%.80s) = %v, want a fault of %q", body, err, field)
		}
	}
	for range webhook.MaxWebhooks {
		f.webhook(`"webhook.test"`)
	}
	if _, err := f.node.webhooks.Create(t.Context(), c, value(t, `{"name":"w","url":"https://shop.example.com","events":["*"]}`)); !errors.Is(err, fault.Conflict) {
		t.Errorf("one webhook too many: %v, want a conflict", err)
	}
}

func TestWebhooksAreOfOneTenant(t *testing.T) {
	f := onSQLite(t)
	w := f.webhook(`"*"`)
	stranger, s := f.manager(f.other), f.node.webhooks
	body := value(t, `{"name":"w","url":"https://shop.example.com","events":["*"]}`)
	for name, call := range map[string]func() error{
		"Get":          func() error { _, err := s.Get(t.Context(), stranger, w.ID); return err },
		"Replace":      func() error { _, err := s.Replace(t.Context(), stranger, w.ID, body); return err },
		"RotateSecret": func() error { _, err := s.RotateSecret(t.Context(), stranger, w.ID); return err },
		"Delete":       func() error { return s.Delete(t.Context(), stranger, w.ID) },
		"Deliveries": func() error {
			_, _, err := s.Deliveries(t.Context(), stranger, w.ID, store.Page{Limit: 10})
			return err
		},
	} {
		if err := call(); !errors.Is(err, fault.NotFound) {
			t.Errorf("%s by another tenant = %v, want not found", name, err)
		}
	}
	if list, total, err := s.List(t.Context(), stranger, definition.Filter{}, store.Page{Limit: 10}); err != nil || total != 0 || len(list) != 0 {
		t.Errorf("List by another tenant = %v, %d, %v", list, total, err)
	}
	// Events of another tenant do not come here.
	f.must(f.store.Update(t.Context(), f.other, func(tx store.Tx) error {
		return tx.AppendLog(t.Context(), audit.Entry(stranger, f.clock.Now(), "card", "theirs", audit.Create))
	}))
	f.settle()
	if came := f.received(); len(came) != 0 {
		t.Errorf("%v came, want nothing", types(came))
	}
}

func TestADeletedWebhookGetsNothing(t *testing.T) {
	f := onSQLite(t)
	w := f.webhook(`"token.*"`)
	f.change("x", audit.Create, audit.Update, audit.Delete)
	f.must(f.node.events.Dispatch(t.Context()))
	f.must(f.node.webhooks.Delete(t.Context(), f.manager(f.tenant), w.ID))
	f.settle()
	if n, came := f.waiting(), f.received(); n != 0 || len(came) != 0 {
		t.Errorf("%d events wait, and %v came; want none", n, types(came))
	}
}

// TestNoForbiddenDestinationIsReached has the corpus of what egress refuses.
func TestNoForbiddenDestinationIsReached(t *testing.T) {
	f := onSQLite(t)
	witness, names := egresstest.NewWitness(t), egresstest.NewNames(t)
	out, err := egress.New(egress.Settings{Resolver: names.Resolver()})
	f.must(err)
	s := webhook.New(f.store, f.ring, webhook.Options{
		Now: f.clock.Now, Jobs: f.node.jobs, Transport: out.Transport, CheckURL: func(address string) error { _, err := out.Check(address); return err },
	})
	c := f.manager(f.tenant)
	for _, row := range egresstest.Forbidden(witness.Port()) {
		if row.Where != egresstest.AtDefinition && row.Where != egresstest.AtDial {
			continue // redirects are not followed
		}
		names.SetAll(row.Answers)
		w, err := s.Create(t.Context(), c, value(t, `{"name":"w","url":`+quoted(t, row.URL)+`,"events":["webhook.test"]}`))
		if row.Where == egresstest.AtDefinition {
			if !errors.Is(err, fault.Invalid) {
				t.Errorf("%s: Create = %v, want a refusal", row.Name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: Create = %v", row.Name, err)
			continue
		}
		if d, err := s.Test(t.Context(), c, w.ID); err != nil || d.State != webhook.Failed || d.Status != 0 {
			t.Errorf("%s: Test = %+v, %v, want no answer", row.Name, d, err)
		}
		f.must(s.Delete(t.Context(), c, w.ID))
	}
	if n := witness.Connections(); n != 0 {
		t.Errorf("%d connections were made, want none", n)
	}
}

func quoted(t *testing.T, text string) string {
	t.Helper()
	b, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
