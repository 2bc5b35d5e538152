package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/limit"
	"github.com/tokenkeep/tokenkeep/internal/reactor"
	"github.com/tokenkeep/tokenkeep/internal/script"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// neighbour is the same installation as another tenant sees it.
func (w *world) neighbour() *world {
	w.t.Helper()
	made, applications, err := w.directory.CreateTenant(w.t.Context(), "Neighbour", directory.DemoApplications()...)
	w.must(err)
	n := *w
	n.tenant = made.ID
	n.manager, n.user = n.acting(applications[0].ID), n.acting(applications[1].ID)
	return &n
}

// turnstile is where every run of a node stops when it begins, until it is
// opened. No code runs behind it: each run ends with an error, which is its result.
type turnstile struct {
	came chan string // the tenants, in the order in which their runs began
	open chan struct{}
}

// unhurried sends requests without a time limit: what is slow here is meant to be.
type unhurried struct{ http.RoundTripper }

func (u unhurried) RoundTrip(r *http.Request) (*http.Response, error) {
	return u.RoundTripper.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
}

// withTurnstile gives both tenants a node that runs no code.
func withTurnstile(worlds ...*world) *turnstile {
	g := &turnstile{came: make(chan string, 1000), open: make(chan struct{})}
	parts := worlds[0].parts()
	acting := parts.Acting
	parts.Scripts = script.New(nil, nil, nil)
	parts.Acting = func(ctx context.Context, tenant, application, session string) (access.Caller, error) {
		g.came <- tenant
		<-g.open
		return acting(ctx, tenant, application, session)
	}
	transport := parts.Transport
	parts.Transport = func(tenant string, _ time.Duration) http.RoundTripper {
		return unhurried{transport(tenant, time.Hour)}
	}
	node := newNode(parts, reactor.Options{Now: worlds[0].clock.Now})
	for _, w := range worlds {
		w.node = node
	}
	return g
}

// count returns how many of the next n runs are a tenant's.
func (g *turnstile) count(n int, tenant string) (of int) {
	for range n {
		if <-g.came == tenant {
			of++
		}
	}
	return of
}

// doInBackground lets the node do what is due, until the function that is
// returned has waited for it.
func (w *world) doInBackground() (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = w.node.DoDue(w.t.Context())
	}()
	return func() { <-done }
}

// TestJobsAreTakenTenantByTenant: a tenant with few jobs does not wait for the
// many that another one queued before. An idle node gives one tenant all turns.
func TestJobsAreTakenTenantByTenant(t *testing.T) {
	onBoth(t, func(t *testing.T, attacker *world) {
		neighbour := attacker.neighbour()
		g := withTurnstile(attacker, neighbour)
		id := attacker.define(echo)
		for range 50 {
			attacker.ask(id, `{}`, "")
		}
		wait := attacker.doInBackground()
		if n := g.count(32, attacker.tenant); n != 32 {
			t.Errorf("an idle node began %d of the one tenant's runs, want 32", n)
		}
		// All turns are taken, and none of these runs ends.
		to := newReceiver(t)
		neighbour.ask(neighbour.define(echo), `{}`, to.URL)
		waitNeighbour := neighbour.doInBackground()
		if n := g.count(1, neighbour.tenant); n != 1 {
			t.Error("a run of the attacker took the spare turn, want that of the neighbour")
		}
		close(g.open)
		wait()
		waitNeighbour()
		attacker.doInBackground()() // two that look at once may leave something to each other
		if n := len(to.take()); n != 1 || g.count(18, attacker.tenant) != 18 || len(g.came) != 0 {
			t.Errorf("the neighbour was delivered %d results, and %d runs too many began, want 1 and 0", n, len(g.came))
		}
	})
}

// TestALookForJobsServesTheTenantsInTurn: with all jobs there at once, those of
// a tenant with few are begun beside the first of those with many.
func TestALookForJobsServesTheTenantsInTurn(t *testing.T) {
	onBoth(t, func(t *testing.T, attacker *world) {
		second, neighbour := attacker.neighbour(), attacker.neighbour()
		g := withTurnstile(attacker, second, neighbour)
		for w, jobs := range map[*world]int{attacker: 40, second: 40, neighbour: 10} {
			id := w.define(echo)
			for range jobs {
				w.ask(id, `{}`, "")
			}
		}
		wait := attacker.doInBackground()
		began := make(map[string]int)
		for range 32 {
			began[<-g.came]++
		}
		if began[neighbour.tenant] != 10 || began[attacker.tenant] != 11 || began[second.tenant] != 11 {
			t.Errorf("of the first 32 runs %d are the neighbour's, %d and %d those of the attackers, want 10, 11 and 11",
				began[neighbour.tenant], began[attacker.tenant], began[second.tenant])
		}
		close(g.open)
		wait()
	})
}

// TestASlowReceiverHoldsUpNobodyElse: as many deliveries of one tenant as a node
// makes for it are under way, and do not end.
func TestASlowReceiverHoldsUpNobodyElse(t *testing.T) {
	onBoth(t, func(t *testing.T, attacker *world) {
		neighbour, slow, to := attacker.neighbour(), newGate(t), newReceiver(t)
		g := withTurnstile(attacker, neighbour)
		close(g.open)
		id := attacker.define(echo)
		for range 40 {
			attacker.ask(id, `{}`, slow.URL)
		}
		ctx, stop := context.WithCancel(t.Context())
		worked := make(chan struct{})
		go func() {
			defer close(worked)
			attacker.node.Work(ctx, t.Context())
		}()
		for range 32 {
			waittest.Receive(t, "a delivery of the attacker begins", slow.came)
		}
		neighbour.ask(neighbour.define(echo), `{}`, to.URL)
		waittest.Until(t, "the neighbour is delivered its result", func() bool { return len(to.take()) == 1 })
		if n := len(slow.came); n != 0 {
			t.Errorf("%d more deliveries of the attacker began, want 0", n)
		}
		close(slow.open)
		stop()
		<-worked
	})
}

func TestATenantMayQueueSoManyJobs(t *testing.T) {
	onBoth(t, func(t *testing.T, attacker *world) {
		neighbour := attacker.neighbour()
		limits := limit.NewRecorder(attacker.clock.Now, prometheus.NewRegistry())
		parts := attacker.parts()
		parts.Scripts = script.New(nil, nil, nil)
		node := newNode(parts, reactor.Options{Now: attacker.clock.Now, QueuedJobs: 5, Limits: limits})
		attacker.node, neighbour.node = node, node
		id, other := attacker.define(echo), neighbour.define(echo)
		for range 5 {
			attacker.ask(id, `{}`, "")
		}
		card := attacker.token(`{"type":"card","data":{"number":"` + visa + `","expiration_month":12,"expiration_year":2040}}`)
		start := func(w *world, id string) error {
			_, err := node.Start(t.Context(), w.user, id, reactor.Invocation{Args: value(t, `{"card":"{{ `+card+` }}"}`)})
			return err
		}
		for range 2 {
			err := start(attacker, id)
			if f := fault.Of(err); !errors.Is(err, fault.TooMany) || f.Code() != "too_many_queued_jobs" || f.Wait() <= 0 {
				t.Errorf("the sixth job: %v with code %q and wait %s, want a refusal", err, f.Code(), f.Wait())
			}
		}
		if reached := limits.LastHour(); len(reached) != 1 || reached[0].Name != limit.QueuedJobs || reached[0].Count != 2 {
			t.Errorf("the limits that were reached are %v, want %s twice", reached, limit.QueuedJobs)
		}
		neighbour.ask(other, `{}`, "")
		if n := len(attacker.parcels(store.ParcelJob)); n != 5 {
			t.Errorf("%d jobs wait, want 5", n)
		}
		attacker.do(node, 6)
		if err := start(attacker, id); err != nil {
			t.Errorf("a job after the others have run: %v", err)
		}
	})
}

// countingStore counts what is read of the queue.
type countingStore struct {
	store.Store
	rows *int
}

func (c countingStore) AllTenants() store.AllTenants {
	return countingTenants{c.Store.AllTenants(), c.rows}
}

type countingTenants struct {
	store.AllTenants
	rows *int
}

func (c countingTenants) DueParcels(ctx context.Context, kind string, now store.Time, after string, tenants, each int) ([]store.ParcelRef, string, error) {
	due, next, err := c.AllTenants.DueParcels(ctx, kind, now, after, tenants, each)
	*c.rows += len(due)
	return due, next, err
}

// TestALookForJobsReadsNoMoreThanItCanBegin: a long queue costs no more than a
// short one.
func TestALookForJobsReadsNoMoreThanItCanBegin(t *testing.T) {
	w := onOne(t)
	id := w.define(echo)
	for i := range 120 {
		p := store.Parcel{
			Kind: store.ParcelJob, ID: fmt.Sprint(i), Group: id, CreatedAt: store.At(w.clock.Now()), DueAt: store.At(w.clock.Now()),
			ExpiresAt: store.At(w.clock.Now().Add(-time.Second)), Version: 1, // which nobody can claim
		}
		w.must(w.store.Update(t.Context(), w.tenant, func(tx store.Tx) error { return tx.InsertParcel(t.Context(), p) }))
	}
	rows, parts := 0, w.parts()
	parts.Store = countingStore{w.store, &rows}
	w.do(newNode(parts, reactor.Options{Now: w.clock.Now}), 0)
	if rows != 32 {
		t.Errorf("%d rows of the queue were read, want 32, as many as a node begins at once", rows)
	}
}
