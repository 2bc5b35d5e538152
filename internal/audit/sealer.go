package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// The bounds of sealing. A batch takes its writer a few milliseconds, during
// which other commits wait; hence its size.
const (
	maxBatch   = 256 // entries
	maxRound   = 512 // batches of one tenant in a round
	maxTurn    = 8   // batches of one tenant before the others get their turn
	sealPage   = 256 // tenants that are looked up at once
	sealers    = 4   // tenants that are sealed at once: their commits share a sync
	lastSeal   = 10 * time.Second
	maxRetries = 8 // when other nodes seal the same log
)

// Sealer gathers entries that wait into signed batches. Several nodes may seal
// the same logs: of two that make the same batch, one finds it made.
type Sealer struct {
	store store.Store
	ring  *keyring.Ring
	now   func() time.Time
	log   *slog.Logger
	every time.Duration

	entries, batches, failures prometheus.Counter
}

// Sealed is what a round of sealing did.
type Sealed struct {
	Batches int `json:"batches"`
	Entries int `json:"entries"`
	// Missing counts entries that waited to be sealed and are gone from the
	// log. Verify names them.
	Missing int64 `json:"missing,omitempty"`
	// Left counts tenants whose keys are destroyed: what waits there stays.
	Left int `json:"left,omitempty"`
}

func (s *Sealed) add(more Sealed) {
	s.Batches += more.Batches
	s.Entries += more.Entries
	s.Missing += more.Missing
	s.Left += more.Left
}

// NewSealer returns a sealer over a store and the ring of its keys.
func NewSealer(s store.Store, ring *keyring.Ring, o Options) *Sealer {
	o = o.filled()
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		if o.Metrics != nil {
			o.Metrics.MustRegister(c)
		}
		return c
	}
	return &Sealer{
		store: s, ring: ring, now: o.Now, log: o.Logger, every: o.SealEvery,
		entries:  counter("tokenkeep_audit_sealed_entries_total", "Log entries that were sealed."),
		batches:  counter("tokenkeep_audit_sealed_batches_total", "Batches of log entries that were sealed."),
		failures: counter("tokenkeep_audit_seal_failures_total", "Tenants whose log could not be sealed in some round."),
	}
}

// Run seals in rounds until ctx ends, and once more then: what the last
// requests wrote does not wait for the next start. Close the store after it
// has returned.
func (s *Sealer) Run(ctx context.Context) {
	ticker := time.NewTicker(s.every)
	defer ticker.Stop()
	var missing int64
	for {
		select {
		case <-ticker.C:
			missing = s.sealRound(ctx, missing)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSeal)
			defer cancel()
			s.sealRound(last, missing)
			return
		}
	}
}

// sealRound seals once and logs what went wrong, once for all tenants. It returns
// how many entries are missing; that is said when it changes.
func (s *Sealer) sealRound(ctx context.Context, before int64) (missing int64) {
	sealed, err := s.SealAll(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.log.Error("the log could not be sealed", "error", err)
		}
		return before
	}
	if sealed.Missing != before && sealed.Missing > 0 {
		s.log.Error("entries that waited to be sealed are gone from the log; run 'tokenkeep audit verify'", "entries", sealed.Missing)
	}
	return sealed.Missing
}

// SealAll seals what waits in the logs of all tenants, which take turns: one
// with a long log does not keep the others waiting. Neither does one that fails;
// the error is that of the first, with how many failed.
func (s *Sealer) SealAll(ctx context.Context) (Sealed, error) {
	r := round{sealer: s, turns: make(chan struct{}, sealers)}
	defer r.running.Wait()
	for after := ""; ; {
		tenants, err := s.store.AllTenants().UnsealedTenants(ctx, after, sealPage)
		if err != nil {
			return Sealed{}, fmt.Errorf("audit: look for entries to seal: %w", err)
		}
		for _, tenant := range tenants {
			r.begin(ctx, tenant)
			after = tenant
		}
		if len(tenants) < sealPage {
			break
		}
	}
	r.running.Wait()
	for turn := 1; turn < maxRound/maxTurn && len(r.again) > 0 && ctx.Err() == nil; turn++ {
		tenants := r.again
		r.again = nil
		for _, tenant := range tenants {
			r.begin(ctx, tenant)
		}
		r.running.Wait()
	}
	if r.failed > 0 {
		return r.all, fmt.Errorf("audit: %d tenants: %w", r.failed, r.firstErr)
	}
	return r.all, ctx.Err()
}

// round is one SealAll.
type round struct {
	sealer  *Sealer
	turns   chan struct{}
	running sync.WaitGroup

	mu       sync.Mutex // guards what follows
	all      Sealed
	again    []string // tenants that have more to seal
	failed   int
	firstErr error
}

// begin seals some of a tenant's log as soon as one of the sealers is free.
func (r *round) begin(ctx context.Context, tenant string) {
	r.turns <- struct{}{}
	r.running.Go(func() {
		defer func() { <-r.turns }()
		sealed, more, err := r.sealer.sealSome(ctx, tenant, maxTurn)
		r.mu.Lock()
		defer r.mu.Unlock()
		if more {
			sealed.Missing = 0 // it is counted with the last turn
			r.again = append(r.again, tenant)
		}
		r.all.add(sealed)
		if err != nil {
			r.failed++
			r.firstErr = cmp.Or(r.firstErr, err)
			r.sealer.failures.Inc()
		}
	})
}

// SealTenant seals what waits in the log of one tenant. That there is nothing
// to seal, or that the tenant's keys are destroyed, is no error. A tenant that
// is to be deleted is sealed by this a last time, while it has its keys.
func (s *Sealer) SealTenant(ctx context.Context, tenant string) (Sealed, error) {
	tenant, err := canonical(tenant)
	if err != nil {
		return Sealed{}, err
	}
	done, _, err := s.sealSome(ctx, tenant, maxRound)
	return done, err
}

// sealSome makes up to most batches of a tenant's log. more says that there may
// be more to seal.
func (s *Sealer) sealSome(ctx context.Context, tenant string, most int) (done Sealed, more bool, err error) {
	keys, err := s.ring.For(ctx, tenant)
	if errors.Is(err, keyring.ErrNoKeys) {
		done.Left = 1
		return done, false, nil
	}
	if err != nil {
		return done, false, fmt.Errorf("audit: seal: %w", err)
	}
	for tries := 0; tries < maxRetries; {
		if done.Batches == most {
			return done, true, nil
		}
		last, entries, missing, err := s.next(ctx, tenant)
		done.Missing = missing
		if err != nil {
			return done, false, fmt.Errorf("audit: read what is to be sealed: %w", err)
		}
		if len(entries) == 0 {
			break
		}
		row, sealed, err := newBatch(keys, last, entries, store.At(s.now()))
		if err != nil {
			return done, false, err
		}
		err = s.store.Update(ctx, tenant, func(tx store.Tx) error {
			if err := tx.AppendLogBatch(ctx, row, sealed); err != nil {
				return err
			}
			return addActivity(ctx, tx, entries, s.now())
		})
		if errors.Is(err, store.ErrConflict) {
			tries++ // somebody else was faster: see what is left
			continue
		}
		if err != nil {
			return done, false, fmt.Errorf("audit: keep a batch: %w", err)
		}
		done.Batches++
		done.Entries += len(entries)
		s.batches.Inc()
		s.entries.Add(float64(len(entries)))
		if len(entries) < maxBatch {
			break
		}
	}
	return done, false, nil
}

// next reads the last batch and up to maxBatch entries that wait. When some of
// those that wait are gone from the log, it looks further behind them.
func (s *Sealer) next(ctx context.Context, tenant string) (last store.LogBatch, entries []store.LogEntry, missing int64, err error) {
	err = s.store.View(ctx, tenant, func(tx store.Tx) (err error) {
		last, err = tx.LastLogBatch(ctx)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		for look := maxBatch; ; look *= 2 {
			if entries, err = tx.UnsealedLog(ctx, look); err != nil {
				return err
			}
			if len(entries) == maxBatch && look == maxBatch {
				missing = 0
				return nil
			}
			waiting, err := tx.CountUnsealedLog(ctx)
			if err != nil {
				return err
			}
			missing = min(waiting, int64(look)) - int64(len(entries))
			if len(entries) >= maxBatch || waiting <= int64(look) {
				entries = entries[:min(len(entries), maxBatch)]
				return nil
			}
		}
	})
	return last, entries, missing, err
}
