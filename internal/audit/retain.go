package audit

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// byRetention ends the message of the entry that retention leaves behind. Its
// entity is the last batch that lost its entries.
const byRetention = "retention"

// The bounds of one transaction of retention.
const (
	retainBatches = 128
	retainEntries = 512
)

// Retained is what retention did.
type Retained struct {
	Batches int64 `json:"batches"`
	Entries int64 `json:"entries"`
	// Through is the last batch whose entries are gone, now or since earlier.
	Through int64 `json:"through"`
}

// ErrRetention says that a batch is not what was sealed: its entries are
// evidence, so retention leaves them and all later ones. Verify names them.
var ErrRetention = errors.New("audit: a batch that was to be dropped does not verify")

// Retain removes the entries of whole batches, oldest first, all of whose
// entries are older than keep, and keeps the batches' records: the chain stays
// verifiable. What it removes, it verifies first, and it leaves an entry that
// says so in the same transaction. A keep of 0 removes nothing.
func (s *Service) Retain(ctx context.Context, tenant string, keep time.Duration, progress func(Progress)) (Retained, error) {
	var done Retained
	tenant, err := canonical(tenant)
	if err != nil || keep <= 0 {
		return done, err
	}
	keys, err := s.ring.For(ctx, tenant)
	if err != nil {
		return done, err
	}
	now := s.now()
	before := store.At(now.Add(-keep))
	for {
		var old []*batch
		var link []byte // of the batch before the first of them
		err := s.store.View(ctx, tenant, func(tx store.Tx) (err error) {
			if done.Through, err = droppedThrough(ctx, tx, done.Through); err != nil {
				return err
			}
			old, link, err = oldBatches(ctx, tx, done.Through, before)
			return err
		})
		if err != nil {
			return done, fmt.Errorf("audit: read batches: %w", err)
		}
		if len(old) == 0 {
			return done, nil
		}
		for _, b := range old {
			if !b.intact(keys.Verifier(), link) {
				return done, fmt.Errorf("%w: batch %d", ErrRetention, b.head.Number)
			}
			link = b.head.Link[:]
		}
		entries, err := s.drop(ctx, tenant, old, now)
		if errors.Is(err, store.ErrConflict) {
			continue // another node was at it: see what is left
		}
		if err != nil {
			return done, fmt.Errorf("audit: drop batches: %w", err)
		}
		done.Batches += int64(len(old))
		done.Entries += entries
		done.Through = old[len(old)-1].head.Number
		report(progress, "dropping batches", done.Batches, 0)
	}
}

// oldBatches returns the batches behind a number that are old enough, as many
// as one transaction takes.
func oldBatches(ctx context.Context, tx store.Tx, through int64, before store.Time) (old []*batch, link []byte, err error) {
	if through > 0 {
		rows, err := tx.LogBatches(ctx, through-1, 1)
		if err != nil {
			return nil, nil, err
		}
		if len(rows) > 0 {
			link = rows[0].Link
		}
	}
	rows, err := tx.LogBatches(ctx, through, retainBatches)
	if err != nil {
		return nil, nil, err
	}
	entries := 0
	for _, row := range rows {
		b := parseBatch(tx.Tenant(), row)
		entries += len(b.leaves)
		if len(old) > 0 && entries > retainEntries || row.SealedAt >= before || !b.olderThan(before) {
			break
		}
		if err := b.readEntries(ctx, tx); err != nil {
			return nil, nil, err
		}
		old = append(old, b)
	}
	return old, link, nil
}

// olderThan reports whether every entry of the batch is from before a time.
func (b *batch) olderThan(t store.Time) bool {
	n := len(b.leaves)
	return n == 0 || b.leaves[n-1].at < t
}

// drop removes the entries of batches and says so in the log.
func (s *Service) drop(ctx context.Context, tenant string, old []*batch, now time.Time) (entries int64, err error) {
	through := old[len(old)-1].head.Number
	said := EntryBy(access.NewSystem(tenant), now, Log, decimal(through), Delete, byRetention)
	err = s.store.Update(ctx, tenant, func(tx store.Tx) error {
		entries = 0
		gone, err := droppedThrough(ctx, tx, old[0].head.Number-1)
		if err != nil {
			return err
		}
		if gone != old[0].head.Number-1 {
			return store.ErrConflict
		}
		for _, b := range old {
			places := make([]store.Position, len(b.leaves))
			for i, l := range b.leaves {
				places[i] = l.position()
			}
			if err := tx.DropLogBatch(ctx, b.head.Number, places); err != nil {
				return err
			}
			entries += int64(len(places))
		}
		return tx.AppendLog(ctx, said)
	})
	return entries, err
}

// droppedThrough returns the number of the last batch that retention emptied;
// it emptied all before that one too. known is one that is known to be so.
func droppedThrough(ctx context.Context, tx store.Tx, known int64) (int64, error) {
	last, err := tx.LastLogBatch(ctx)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var failed error
	dropped := func(number int64) bool {
		rows, err := tx.LogBatches(ctx, number-1, 1)
		failed = errors.Join(failed, err)
		return len(rows) > 0 && rows[0].Number == number && rows[0].Dropped
	}
	if !dropped(known + 1) {
		return known, failed
	}
	n := sort.Search(int(last.Number-known), func(i int) bool { return !dropped(known + 1 + int64(i)) })
	return known + int64(n), failed
}

// retentionSaid returns the last batch, up to a given one, of which the log has
// the entry that retention dropped it.
func retentionSaid(ctx context.Context, tx store.Tx, through int64) (int64, error) {
	want := EntryBy(access.NewSystem(tx.Tenant()), time.Time{}, Log, "", Delete, byRetention)
	stop := max(0, through-maxUnsaid)
	for number := through; number > stop; number-- {
		entries, err := tx.Logs(ctx, store.LogFilter{EntityType: Log, EntityID: decimal(number)}, store.Page{Limit: 100})
		if err != nil {
			return 0, err
		}
		for _, e := range entries {
			if e.ActorType == want.ActorType && e.Operation == want.Operation && e.Outcome == want.Outcome && e.Message == want.Message {
				return number, nil
			}
		}
	}
	return stop, nil
}
