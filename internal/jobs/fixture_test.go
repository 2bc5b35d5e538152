package jobs_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/jobs"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// work is the kind of most tests.
const work = "test-work"

// fixture is a store with a clock, and the log of its nodes.
type fixture struct {
	*testing.T
	store store.Store
	clock *clocktest.Clock

	mu  sync.Mutex // guards log
	log bytes.Buffer
}

// onBoth runs a test on both stores.
func onBoth(t *testing.T, test func(f *fixture)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(onSQLite(t)) })
	t.Run("postgres", func(t *testing.T) {
		s, err := postgres.Open(t.Context(), pgtest.Database(t), postgres.Options{Connections: 8})
		if err != nil {
			t.Fatal(err)
		}
		test(newFixture(t, s))
	})
}

// onSQLite is for tests of what no store decides.
func onSQLite(t *testing.T) *fixture {
	t.Helper()
	s, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return newFixture(t, s)
}

func newFixture(t *testing.T, s store.Store) *fixture {
	t.Cleanup(func() { _ = s.Close() })
	return &fixture{T: t, store: s, clock: clocktest.New(time.Date(2031, 5, 6, 7, 8, 0, 0, time.UTC))}
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// Write takes what nodes log.
func (f *fixture) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log.Write(line)
}

// logged counts the records with those words.
func (f *fixture) logged(words string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return bytes.Count(f.log.Bytes(), []byte(words))
}

// tenant adds a tenant.
func (f *fixture) tenant() string {
	f.Helper()
	id := uuid.NewString()
	f.must(f.store.Update(f.Context(), id, func(tx store.Tx) error {
		return tx.InsertTenant(f.Context(), store.Tenant{ID: id, Name: "test"})
	}))
	return id
}

// row is a kind that does nothing and has room for a few.
func row(name string, handle jobs.Handler) jobs.Kind {
	return jobs.Kind{
		Name: name, Handle: handle, Life: 24 * time.Hour, Lease: 15 * time.Second, AtOnce: 4, PerTenant: 4, Spare: 2,
		Retry: jobs.Schedule{Attempts: 3, First: 10 * time.Second, Most: time.Minute, CutOff: 10},
	}
}

// node is a queue with its metrics.
type node struct {
	*jobs.Queue
	f       *fixture
	metrics *prometheus.Registry
}

func (f *fixture) node(kinds ...jobs.Kind) node {
	n := node{f: f, metrics: prometheus.NewRegistry()}
	n.Queue = jobs.New(f.store, jobs.Options{Now: f.clock.Now, Logger: slog.New(slog.NewTextHandler(f, nil)), Metrics: n.metrics})
	n.SetKinds(kinds...)
	return n
}

// metric is the sum of a metric over its labels.
func (n node) metric(name string) (sum float64) {
	n.f.Helper()
	families, err := n.metrics.Gather()
	n.f.must(err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// does fails unless what is due are that many jobs, all without an error.
func (n node) does(want int) {
	n.f.Helper()
	if got, err := n.DoDue(n.f.Context()); got != want || err != nil {
		n.f.Fatalf("DoDue = %d, %v, want %d", got, err, want)
	}
}

// inBackground does what is due until the returned function has waited for it.
func (n node) inBackground(ctx context.Context) (wait func()) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = n.DoDue(ctx)
	}()
	return func() { <-over }
}

// adds inserts jobs of a kind, and returns their ids.
func (n node) adds(tenant, kind string, count int) (ids []string) {
	n.f.Helper()
	ctx := n.f.Context()
	for range count {
		ids = append(ids, uuid.NewString())
	}
	n.f.must(n.f.store.Update(ctx, tenant, func(tx store.Tx) error {
		for _, id := range ids {
			if err := n.Insert(ctx, tx, n.Record(kind, id)); err != nil {
				return err
			}
		}
		return nil
	}))
	return ids
}

// parcel returns a row; the zero Parcel when it is gone.
func (f *fixture) parcel(tenant, kind, id string) (p store.Parcel) {
	f.Helper()
	err := f.store.View(f.Context(), tenant, func(tx store.Tx) (err error) {
		p, err = tx.Parcel(f.Context(), kind, id)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return store.Parcel{}
	}
	f.must(err)
	return p
}

// count returns how many rows a tenant has.
func (f *fixture) count(tenant, kind string) (n int64) {
	f.Helper()
	f.must(f.store.View(f.Context(), tenant, func(tx store.Tx) (err error) {
		n, err = tx.CountParcels(f.Context(), store.ParcelFilter{Kind: kind})
		return err
	}))
	return n
}

// ledger notes which jobs were begun, in order. Handlers of several nodes write
// to it.
type ledger struct {
	mu   sync.Mutex // guards list
	list []string
}

func (l *ledger) note(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, id)
}

func (l *ledger) of(id string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, other := range l.list {
		if other == id {
			n++
		}
	}
	return n
}

// noting is a handler that notes its job, which is done then.
func (l *ledger) noting(_ context.Context, j jobs.Job) (jobs.Verdict, error) {
	l.note(j.ID)
	return jobs.Done, nil
}

// gate is where a handler stops, whatever becomes of its context, until the gate
// is opened.
type gate struct {
	came chan string // the tenants of jobs, as they arrive
	open chan struct{}
}

func newGate() *gate { return &gate{came: make(chan string, 1000), open: make(chan struct{})} }

// pass is a handler.
func (g *gate) pass(_ context.Context, j jobs.Job) (jobs.Verdict, error) {
	g.came <- j.Tenant
	<-g.open
	return jobs.Done, nil
}
