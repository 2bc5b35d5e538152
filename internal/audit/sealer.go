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
	maxRound   = 512 // batches of one tenant before others get their turn
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
			missing = s.round(ctx, missing)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSeal)
			defer cancel()
			s.round(last, missing)
			return
		}
	}
}

// round seals once and logs what went wrong, once for all tenants. It returns
// how many entries are missing; that is said when it changes.
func (s *Sealer) round(ctx context.Context, before int64) (missing int64) {
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

// SealAll seals what waits in the logs of all tenants. A tenant that fails
// does not keep the others waiting; the error is that of the first, with how
// many failed.
func (s *Sealer) SealAll(ctx context.Context) (Sealed, error) {
	var (
		mu       sync.Mutex // guards the three below
		all      Sealed
		failed   int
		firstErr error
	)
	var wg sync.WaitGroup
	defer wg.Wait()
	turns := make(chan struct{}, sealers)
	for after := ""; ; {
		tenants, err := s.store.AllTenants().UnsealedTenants(ctx, after, sealPage)
		if err != nil {
			return Sealed{}, fmt.Errorf("audit: look for entries to seal: %w", err)
		}
		for _, tenant := range tenants {
			turns <- struct{}{}
			wg.Go(func() {
				defer func() { <-turns }()
				sealed, err := s.SealTenant(ctx, tenant)
				mu.Lock()
				defer mu.Unlock()
				all.add(sealed)
				if err != nil {
					failed++
					firstErr = cmp.Or(firstErr, err)
					s.failures.Inc()
				}
			})
			after = tenant
		}
		if len(tenants) < sealPage {
			break
		}
	}
	wg.Wait()
	if failed > 0 {
		return all, fmt.Errorf("audit: %d tenants: %w", failed, firstErr)
	}
	return all, ctx.Err()
}

// SealTenant seals what waits in the log of one tenant. That there is nothing
// to seal, or that the tenant's keys are destroyed, is no error. A tenant that
// is to be deleted is sealed by this a last time, while it has its keys.
func (s *Sealer) SealTenant(ctx context.Context, tenant string) (Sealed, error) {
	var done Sealed
	tenant, err := canonical(tenant)
	if err != nil {
		return done, err
	}
	keys, err := s.ring.For(ctx, tenant)
	if errors.Is(err, keyring.ErrNoKeys) {
		done.Left = 1
		return done, nil
	}
	if err != nil {
		return done, fmt.Errorf("audit: seal: %w", err)
	}
	for tries := 0; done.Batches < maxRound && tries < maxRetries; {
		last, entries, missing, err := s.next(ctx, tenant)
		done.Missing = missing
		if err != nil {
			return done, fmt.Errorf("audit: read what is to be sealed: %w", err)
		}
		if len(entries) == 0 {
			break
		}
		row, sealed, err := newBatch(keys, last, entries, store.At(s.now()))
		if err != nil {
			return done, err
		}
		err = s.store.Update(ctx, tenant, func(tx store.Tx) error { return tx.AppendLogBatch(ctx, row, sealed) })
		if errors.Is(err, store.ErrConflict) {
			tries++ // somebody else was faster: see what is left
			continue
		}
		if err != nil {
			return done, fmt.Errorf("audit: keep a batch: %w", err)
		}
		done.Batches++
		done.Entries += len(entries)
		s.batches.Inc()
		s.entries.Add(float64(len(entries)))
		if len(entries) < maxBatch {
			break
		}
	}
	return done, nil
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
