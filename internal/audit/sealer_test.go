package audit_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

func TestSealAllSealsEveryTenantOnce(t *testing.T) {
	w := newWorld(t)
	var tenants []string
	for i := range 6 {
		tenants = append(tenants, w.tenant())
		w.write(tenants[i], i*100) // none, less than a batch, more than one
	}
	sealed, err := w.sealer.SealAll(t.Context())
	if want := (audit.Sealed{Batches: 1 + 1 + 2 + 2 + 2, Entries: 1500}); err != nil || sealed != want {
		t.Errorf("SealAll = %+v, %v, want %+v", sealed, err, want)
	}
	if sealed, err := w.sealer.SealAll(t.Context()); err != nil || sealed != (audit.Sealed{}) {
		t.Errorf("a second SealAll = %+v, %v, want nothing", sealed, err)
	}
	for i, tenant := range tenants {
		w.clean(tenant, nil, int64(i*100), 0)
	}
}

func TestAnEntryThatComesLateIsSealedToo(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	late := w.write(tenant, 1)[0]
	w.seal(tenant, 1)
	// An entry with an older time commits when newer ones are sealed.
	late.ID, late.CreatedAt = uuid.NewString(), late.CreatedAt-5_000_000
	w.update(tenant, func(tx store.Tx) error { return tx.AppendLog(t.Context(), late) })
	w.seal(tenant, 1)
	w.clean(tenant, nil, 2, 0)
}

func TestTwoNodesSealOneLog(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	const n = 10*audit.MaxBatch + 3
	for range n / 100 {
		w.write(tenant, 100)
	}
	w.write(tenant, n%100)
	var wg sync.WaitGroup
	for range 4 {
		node := audit.NewSealer(w.store, w.ring, w.options())
		wg.Go(func() {
			for range 20 {
				if _, err := node.SealTenant(t.Context(), tenant); err != nil {
					t.Errorf("SealTenant = %v", err)
				}
			}
		})
	}
	wg.Wait()
	if v := w.clean(tenant, nil, n, 0); v.Batches != 11 {
		t.Errorf("%d batches, want 11", v.Batches)
	}
}

func TestATenantWithoutKeysIsLeft(t *testing.T) {
	w := newWorld(t)
	gone, there := w.tenant(), w.tenant()
	w.write(gone, 3)
	w.write(there, 3)
	w.update(gone, func(tx store.Tx) error { return tx.DestroyKeysets(t.Context()) })
	w.ring.Forget(gone)
	for range 2 {
		sealed, err := w.sealer.SealAll(t.Context())
		if err != nil || sealed.Left != 1 {
			t.Errorf("SealAll = %+v, %v, want one tenant left and no error", sealed, err)
		}
	}
	w.clean(there, nil, 3, 0)
}

func TestATenantThatFailsDoesNotStopTheOthers(t *testing.T) {
	w := newWorld(t)
	r := prometheus.NewRegistry()
	sealer := audit.NewSealer(w.store, w.ring, audit.Options{Now: w.clock.Now, Metrics: r})
	broken := w.tenant()
	w.write(broken, 3)
	w.tamper("UPDATE keysets SET wrapped = x'00' WHERE tenant_id = ?", id(broken))
	var others []string
	for range 5 {
		others = append(others, w.tenant())
		w.write(others[len(others)-1], 3)
	}
	sealed, err := sealer.SealAll(t.Context())
	if err == nil || sealed.Entries != 15 {
		t.Errorf("SealAll = %+v, %v, want the entries of five tenants and an error", sealed, err)
	}
	for _, tenant := range others {
		w.clean(tenant, nil, 3, 0)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		got[f.GetName()] = f.GetMetric()[0].GetCounter().GetValue()
	}
	for name, want := range map[string]float64{
		"tokenkeep_audit_sealed_entries_total": 15, "tokenkeep_audit_sealed_batches_total": 5, "tokenkeep_audit_seal_failures_total": 1,
	} {
		if got[name] != want {
			t.Errorf("%s = %v, want %v", name, got[name], want)
		}
	}
}

func TestEntriesTakenFromTheQueuesLogDoNotStopSealing(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	entries := w.write(tenant, 3*audit.MaxBatch)
	// More than a batch of those that wait is gone from the log.
	w.tamper("DELETE FROM log WHERE tenant_id = ? AND created_at < ?", id(tenant), int64(entries[audit.MaxBatch+10].CreatedAt))
	sealed, err := w.sealer.SealTenant(t.Context(), tenant)
	if err != nil || sealed.Entries != 2*audit.MaxBatch-10 || sealed.Missing != audit.MaxBatch+10 {
		t.Errorf("SealTenant = %+v, %v, want %d entries sealed and %d missing", sealed, err, 2*audit.MaxBatch-10, audit.MaxBatch+10)
	}
	v := w.verify(tenant, nil)
	if v.Found != audit.MaxBatch+10 || v.Findings[0].Kind != audit.Removed || v.Findings[0].ID != entries[0].ID {
		t.Errorf("Verify found %d, first %v, want %d, first %s removed", v.Found, v.Findings[0], audit.MaxBatch+10, entries[0].ID)
	}
}

// lines gathers what a logger writes.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) count(words string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), words)
}

// signal is a store that tells when a batch was kept.
type signal struct {
	store.Store
	kept chan struct{}
}

func (s signal) Update(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	err := s.Store.Update(ctx, tenant, fn)
	if err == nil {
		s.kept <- struct{}{}
	}
	return err
}

func TestRunSealsUntilItIsToldToStopAndOnceMore(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	s := signal{w.store, make(chan struct{}, 10)}
	out := &lines{}
	options := audit.Options{Now: w.clock.Now, Logger: slog.New(slog.NewTextHandler(out, nil)), SealEvery: time.Millisecond}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() { defer close(ended); audit.NewSealer(s, w.ring, options).Run(ctx) }()
	w.write(tenant, 3)
	<-s.kept
	w.clean(tenant, nil, 3, 0)
	cancel()
	<-ended

	// Nothing ticks any more; what is written before the end is sealed at it.
	w.write(tenant, 2)
	options.SealEvery = time.Hour
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	audit.NewSealer(s, w.ring, options).Run(ctx)
	w.clean(tenant, nil, 5, 0)
	if got := out.count("\n"); got != 0 {
		t.Errorf("Run logged %d lines when all was well", got)
	}
}

func TestRunSaysOnceThatEntriesAreGone(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	e := w.write(tenant, 2)
	w.tamper("DELETE FROM log"+row, rowOf(tenant, e[0])...)
	s := signal{w.store, make(chan struct{}, 10)}
	out := &lines{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	sealer := audit.NewSealer(s, w.ring, audit.Options{Now: w.clock.Now, Logger: slog.New(slog.NewTextHandler(out, nil)), SealEvery: time.Millisecond})
	go func() { defer close(ended); sealer.Run(ctx) }()
	<-s.kept
	w.write(tenant, 1) // a later round
	<-s.kept
	cancel()
	<-ended
	if got := out.count("gone from the log"); got != 1 {
		t.Errorf("Run said %d times that an entry is gone, want once", got)
	}
	if out.count(e[0].ID) != 0 {
		t.Error("Run logged an id")
	}
}

func TestSealTenantWantsAnID(t *testing.T) {
	w := newWorld(t)
	if _, err := w.sealer.SealTenant(t.Context(), "tenant"); !errors.Is(err, store.ErrNoTenant) {
		t.Errorf("SealTenant of what is no id = %v, want %v", err, store.ErrNoTenant)
	}
	if sealed, err := w.sealer.SealTenant(t.Context(), uuid.NewString()); err != nil || sealed.Left != 1 {
		t.Errorf("SealTenant of an unknown tenant = %+v, %v, want it left", sealed, err)
	}
}

// counted is a store that counts the batches of each tenant.
type counted struct {
	store.Store
	mu      sync.Mutex // guards the two below
	batches map[string]int
	kept    func(tenant string, batches map[string]int)
}

func (c *counted) Update(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	err := c.Store.Update(ctx, tenant, fn)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batches[tenant]++
	c.kept(tenant, c.batches)
	return err
}

// TestTenantsAreSealedInTurn: as many tenants with long logs as are sealed at
// once come before one with a short log.
func TestTenantsAreSealedInTurn(t *testing.T) {
	w := newWorld(t)
	var tenants []string
	for range audit.Sealers + 1 {
		tenants = append(tenants, w.tenant())
	}
	slices.Sort(tenants)
	neighbour := tenants[audit.Sealers]
	for _, tenant := range tenants[:audit.Sealers] {
		for range audit.MaxTurn + 2 {
			w.write(tenant, audit.MaxBatch)
		}
	}
	w.write(neighbour, 1)
	s := &counted{Store: w.store, batches: make(map[string]int)}
	s.kept = func(tenant string, batches map[string]int) {
		if tenant != neighbour {
			return
		}
		for name, n := range batches {
			if n > audit.MaxTurn {
				t.Errorf("tenant %s had %d batches before the neighbour had one, want %d at most", name, n, audit.MaxTurn)
			}
		}
	}
	sealed, err := audit.NewSealer(s, w.ring, audit.Options{Now: w.clock.Now}).SealAll(t.Context())
	want := audit.Sealed{Batches: audit.Sealers*(audit.MaxTurn+2) + 1, Entries: audit.Sealers*(audit.MaxTurn+2)*audit.MaxBatch + 1}
	if err != nil || sealed != want || s.batches[neighbour] != 1 {
		t.Errorf("SealAll = %+v, %v with %d batches of the neighbour, want %+v and 1", sealed, err, s.batches[neighbour], want)
	}
}
