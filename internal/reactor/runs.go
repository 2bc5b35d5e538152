package reactor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/script"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// What is kept of runs: how long, and how many of each reactor. At most
// waitingRuns wait to be written; further ones are not kept, as a run must not
// wait for its own record.
const (
	runLife     = time.Hour
	runsKept    = 100
	waitingRuns = 1000
	// waitingRunsOfATenant is how many of these one tenant may have.
	waitingRunsOfATenant = waitingRuns / 4
)

// Run is what is remembered of a run for an hour.
type Run struct {
	ID        string            `json:"id"`
	RequestID string            `json:"request_id,omitempty"` // of a run that nobody waited for
	StartedAt time.Time         `json:"started_at"`
	Took      time.Duration     `json:"took"`
	Memory    int64             `json:"memory"`
	Failed    bool              `json:"failed"`
	Console   []json.RawMessage `json:"console,omitempty"`
}

// waiting is a run that is to be kept.
type waiting struct {
	tenant  string
	reactor string
	epoch   *keyring.EpochKey
	run     Run
}

// printed notes a run and returns its id. It is written soon after. What found no
// room never ran, and has none.
func (s *Service) printed(tenant string, r ready, out script.Outcome, err error) string {
	if out.Took == 0 {
		return ""
	}
	run := Run{
		ID: access.NewID(), RequestID: r.request, StartedAt: s.options.Now().Add(-out.Took), Took: out.Took, Memory: out.Memory, Failed: err != nil,
	}
	for line := range bytes.Lines(out.Console) {
		if json.Valid(line) { // what a sandbox says is not trusted to be
			run.Console = append(run.Console, json.RawMessage(bytes.TrimSpace(line)))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ofTenant := 0
	for _, w := range s.waiting {
		if w.tenant == tenant {
			ofTenant++
		}
	}
	if len(s.waiting) >= waitingRuns || ofTenant >= waitingRunsOfATenant {
		s.runsLost.Inc()
		return run.ID
	}
	s.waiting = append(s.waiting, waiting{tenant, r.reactor.ID, r.epoch, run})
	return run.ID
}

// keepingTime is how long writing the runs that wait may take.
const keepingTime = time.Minute

// KeepRuns writes what is to be remembered of runs, every second until ctx ends,
// and then what is left.
func (s *Service) KeepRuns(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			s.reportRuns(ctx, keepingTime)
		}
	}
	s.reportRuns(ctx, settling)
}

func (s *Service) reportRuns(ctx context.Context, within time.Duration) {
	if err := s.keepRuns(ctx, within); err != nil {
		s.options.Logger.Error("what runs printed could not be kept", "cause", err)
	}
}

// keepRuns writes the runs that wait. It is not cut off in the middle: the runs
// are of all tenants.
func (s *Service) keepRuns(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	s.keeping.Lock()
	defer s.keeping.Unlock()
	s.mu.Lock()
	list := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	byReactor := make(map[reactorID][]waiting)
	for _, w := range list {
		id := reactorID{w.tenant, w.reactor}
		byReactor[id] = append(byReactor[id], w)
	}
	var errs []error
	for id, runs := range byReactor {
		errs = append(errs, s.keepRunsOf(ctx, id, runs[max(0, len(runs)-runsKept):]))
	}
	return errors.Join(errs...)
}

type reactorID struct{ tenant, id string }

// keepRunsOf writes runs of one reactor in one transaction, and forgets the
// oldest above the bound.
func (s *Service) keepRunsOf(ctx context.Context, of reactorID, runs []waiting) error {
	keys, err := s.parts.Ring.For(ctx, of.tenant)
	if errors.Is(err, keyring.ErrNoKeys) || errors.Is(err, store.ErrNoTenant) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get keys: %w", err)
	}
	now, err := s.parts.Ring.Epoch(ctx, of.tenant)
	if err != nil {
		return fmt.Errorf("get epoch key: %w", err)
	}
	var rows []store.Parcel
	for _, w := range runs {
		p, err := s.sealRun(keys, now, w)
		if errors.Is(err, keyring.ErrGone) {
			continue
		}
		if err != nil {
			return err
		}
		rows = append(rows, p)
	}
	err = s.parts.Store.Update(ctx, of.tenant, func(tx store.Tx) error {
		// With the new ones there are as many as are kept.
		oldest, err := tx.Parcels(ctx, store.ParcelFilter{Kind: store.ParcelRun, Group: of.id}, store.Page{Offset: runsKept - len(rows), Limit: runsKept})
		if err != nil {
			return err
		}
		for _, old := range oldest {
			if err := tx.DeleteParcel(ctx, store.ParcelRun, old.ID); err != nil {
				return err
			}
		}
		for _, p := range rows {
			if err := tx.InsertParcel(ctx, p); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, store.ErrNoTenant) {
		return nil // it is being deleted
	}
	if err != nil {
		return fmt.Errorf("keep runs: %w", err)
	}
	return nil
}

// sealRun seals a run under the epoch key of this minute or, when it is older,
// of what the run was given.
func (s *Service) sealRun(keys *keyring.Keys, epoch *keyring.EpochKey, w waiting) (store.Parcel, error) {
	p := store.Parcel{
		Kind: store.ParcelRun, ID: w.run.ID, Group: w.reactor, CreatedAt: store.At(w.run.StartedAt), ExpiresAt: store.At(s.options.Now().Add(runLife)), Version: 1,
	}
	if w.epoch != nil && w.epoch.Epoch() < epoch.Epoch() {
		epoch = w.epoch
	}
	plain, err := json.Marshal(w.run)
	if err != nil {
		return p, errors.New("encode a run")
	}
	defer clear(plain)
	err = keys.SealParcel(&p, epoch, plain)
	return p, err
}

// Runs returns a page of a reactor's last runs, newest first, and how many
// there are. It takes reactor:read.
func (s *Service) Runs(ctx context.Context, c access.Caller, id string, page store.Page) (list []Run, total int64, err error) {
	if err := c.Require(access.ReactorRead); err != nil {
		return nil, 0, err
	}
	if err := s.keepRuns(ctx, keepingTime); err != nil {
		return nil, 0, err
	}
	if _, err := s.definitions.Find(ctx, c.Tenant(), id); err != nil {
		return nil, 0, err
	}
	keys, err := s.parts.Ring.For(ctx, c.Tenant())
	if err != nil {
		return nil, 0, fmt.Errorf("get keys: %w", err)
	}
	filter := store.ParcelFilter{Kind: store.ParcelRun, Group: id}
	var rows []store.Parcel
	err = s.parts.Store.Read(ctx, c.Tenant(), func(tx store.Tx) (err error) {
		if rows, err = tx.Parcels(ctx, filter, page); err != nil {
			return fmt.Errorf("list runs: %w", err)
		}
		if total, err = tx.CountParcels(ctx, filter); err != nil {
			return fmt.Errorf("count runs: %w", err)
		}
		return tx.AppendLog(ctx, audit.EntryPart(c, s.options.Now(), audit.Reactor, id, "runs", audit.Read))
	})
	if err != nil {
		return nil, 0, err
	}
	for _, p := range rows {
		plain, err := s.parts.Ring.OpenParcel(ctx, keys, p)
		if errors.Is(err, keyring.ErrGone) {
			total--
			continue
		}
		if err != nil {
			return nil, 0, fmt.Errorf("open a run: %w", err)
		}
		var run Run
		err = json.Unmarshal(plain, &run)
		clear(plain)
		if err != nil {
			return nil, 0, errors.New("decode a run")
		}
		list = append(list, run)
	}
	return list, total, nil
}
