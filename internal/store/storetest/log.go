package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

var logTests = []test{
	{"activity is counted by bucket, actor and kind", activityIsCounted},
	{"every filter agrees with the entries, by offset and by position", logFilters},
	{"positions come oldest first and lead to their entries", logPositions},
	{"entries wait unsealed until a batch takes them", logSealing},
	{"a batch out of turn or over a sealed entry conflicts", logConflicts},
	{"two sealers do not seal an entry twice", logSealers},
	{"a dropped batch keeps its root and loses its entries", logDropping},
	{"an entry is appended once", logExists},
}

// mixed makes entries of several kinds, two at each instant.
func mixed(n int) store.LogEntry {
	e := entry(n)
	e.CreatedAt = day + store.Time(n/2)
	e.EntityType = []string{"card", "bank", "application"}[n%3]
	e.EntityID = fmt.Sprintf("entity %d", n%7)
	return e
}

func (f *fixture) appendMixed(n int) (newest []store.LogEntry) {
	f.Helper()
	for i := range n {
		newest = append(newest, mixed(i))
	}
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.AppendLog(ctx, newest...) })
	slices.Reverse(newest) // ids rise with n, so ties are in order too
	return newest
}

func logFilters(f *fixture) {
	entries := f.appendMixed(60)
	for name, filter := range map[string]store.LogFilter{
		"nothing":           {},
		"type":              {EntityType: "card"},
		"unknown type":      {EntityType: "robot"},
		"but one type":      {ExceptType: "card"},
		"but an unknown":    {ExceptType: "robot"},
		"but one, a range":  {ExceptType: "bank", From: day + 5, Before: day + 25},
		"but one, entity":   {ExceptType: "bank", EntityID: "entity 3"},
		"what it excepts":   {EntityType: "card", ExceptType: "card"},
		"entity":            {EntityID: "entity 3"},
		"unknown entity":    {EntityID: "entity 9"},
		"type and entity":   {EntityType: "bank", EntityID: "entity 4"},
		"from":              {From: day + 10},
		"before":            {Before: day + 10},
		"an instant":        {From: day + 10, Before: day + 11},
		"an empty range":    {From: day + 11, Before: day + 11},
		"type in a range":   {EntityType: "card", From: day + 5, Before: day + 25},
		"entity in a range": {EntityID: "entity 3", From: day + 5, Before: day + 25},
		"all together":      {EntityType: "application", EntityID: "entity 2", From: day + 1, Before: day + 29},
	} {
		var want []store.LogEntry
		for _, e := range entries {
			if (filter.EntityType == "" || e.EntityType == filter.EntityType) && (filter.ExceptType == "" || filter.EntityType != "" || e.EntityType != filter.ExceptType) && (filter.EntityID == "" || e.EntityID == filter.EntityID) &&
				(filter.From.IsZero() || e.CreatedAt >= filter.From) && (filter.Before.IsZero() || e.CreatedAt < filter.Before) {
				want = append(want, e)
			}
		}
		f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
			n, err := tx.CountLogs(ctx, filter)
			if err != nil {
				return err
			}
			f.same("count by "+name, n, int64(len(want)))
			for _, size := range []int{1, 7, 100} {
				var byOffset, byPosition []store.LogEntry
				for page := (store.Page{Limit: size}); ; page.Offset += size {
					list, err := tx.Logs(ctx, filter, page)
					if err != nil {
						return err
					}
					byOffset = append(byOffset, list...)
					if len(list) < size {
						break
					}
				}
				for page := (store.Page{Limit: size}); len(byPosition) < 200; {
					list, err := tx.Logs(ctx, filter, page)
					if err != nil {
						return err
					}
					byPosition = append(byPosition, list...)
					if len(list) < size {
						break
					}
					last := at(list[len(list)-1])
					page.After = &last
				}
				f.same(fmt.Sprintf("pages by %s, size %d", name, size), byOffset, want)
				f.same(fmt.Sprintf("walk by %s, size %d", name, size), byPosition, want)
			}
			return nil
		})
	}
}

func logPositions(f *fixture) {
	entries := f.appendMixed(25)
	slices.Reverse(entries)
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		var after *store.Position
		var got []store.LogEntry
		for len(got) < 100 {
			list, err := tx.LogPositions(ctx, after, 4)
			if err != nil {
				return err
			}
			for _, p := range list {
				e, err := tx.LogEntry(ctx, p)
				if err != nil {
					return err
				}
				got, after = append(got, e), &p
			}
			if len(list) < 4 {
				break
			}
		}
		f.same("entries at the positions", got, entries)
		for name, p := range map[string]store.Position{
			"another time": {CreatedAt: day + hour, ID: entries[0].ID}, "another id": {CreatedAt: entries[0].CreatedAt, ID: uuid(99)},
		} {
			if _, err := tx.LogEntry(ctx, p); !errors.Is(err, store.ErrNotFound) {
				f.Errorf("LogEntry at %s: got error %v, want %v", name, err, store.ErrNotFound)
			}
		}
		return nil
	})
}

func positions(entries []store.LogEntry) (list []store.Position) {
	for _, e := range entries {
		list = append(list, at(e))
	}
	return list
}

func logSealing(f *fixture) {
	entries := f.appendMixed(20)
	slices.Reverse(entries)
	unsealed := func(limit int) (list []store.LogEntry, n int64) {
		f.view(tenantA, func(ctx context.Context, tx store.Tx) (err error) {
			if list, err = tx.UnsealedLog(ctx, limit); err != nil {
				return err
			}
			n, err = tx.CountUnsealedLog(ctx)
			return err
		})
		return list, n
	}
	list, n := unsealed(8)
	f.same("unsealed, oldest first", list, entries[:8])
	f.same("unsealed counted", n, int64(20))
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		return tx.AppendLogBatch(ctx, batch(1, 8), positions(list))
	})
	// An entry whose clock stood behind waits like any other.
	late := version2(entry(500), func(e *store.LogEntry) { e.CreatedAt = day - hour })
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.AppendLog(ctx, late) })
	list, n = unsealed(100)
	f.same("unsealed after the first batch", list, append([]store.LogEntry{late}, entries[8:]...))
	f.same("unsealed counted after the first batch", n, int64(13))
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		return tx.AppendLogBatch(ctx, batch(2, len(list)), positions(list))
	})
	list, n = unsealed(100)
	if len(list) != 0 || n != 0 {
		f.Errorf("unsealed after all were sealed: %d listed, %d counted", len(list), n)
	}
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		for after, want := range map[int64][]store.LogBatch{0: {batch(1, 8), batch(2, 13)}, 1: {batch(2, 13)}, 2: nil} {
			got, err := tx.LogBatches(ctx, after, 10)
			if err != nil {
				return err
			}
			f.same(fmt.Sprintf("batches behind %d", after), got, want)
		}
		got, err := tx.LogBatches(ctx, 0, 1)
		if err != nil {
			return err
		}
		f.same("one batch", got, []store.LogBatch{batch(1, 8)})
		last, err := tx.LastLogBatch(ctx)
		f.same("last batch", last, batch(2, 13))
		if n, err := tx.CountLogs(ctx, store.LogFilter{}); n != 21 || err != nil {
			f.Errorf("CountLogs: got %d, error %v; want 21: sealing removes nothing", n, err)
		}
		return err
	})
	f.sound()
}

func logConflicts(f *fixture) {
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.AppendLog(ctx, entry(1), entry(2), entry(3)) })
	appendBatch := func(b store.LogBatch, entries ...store.LogEntry) func(ctx context.Context, tx store.Tx) error {
		return func(ctx context.Context, tx store.Tx) error { return tx.AppendLogBatch(ctx, b, positions(entries)) }
	}
	f.refused("batch 2 before batch 1", tenantA, store.ErrConflict, appendBatch(batch(2, 1), entry(1)))
	f.refused("batch 0", tenantA, store.ErrConflict, appendBatch(batch(0, 1), entry(1)))
	f.update(tenantA, appendBatch(batch(1, 1), entry(1)))
	want := f.contents(tenantA)
	f.refused("batch 1 again", tenantA, store.ErrConflict, appendBatch(batch(1, 1), entry(2)))
	f.refused("batch 3 after batch 1", tenantA, store.ErrConflict, appendBatch(batch(3, 1), entry(2)))
	f.refused("a batch over a sealed entry", tenantA, store.ErrConflict, appendBatch(batch(2, 3), entry(2), entry(1), entry(3)))
	f.refused("a batch over an entry that is not there", tenantA, store.ErrConflict, appendBatch(batch(2, 2), entry(2), entry(9)))
	f.same("contents afterwards", f.contents(tenantA), want)
	f.refused("dropping a batch that is not there", tenantA, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.DropLogBatch(ctx, 2, nil)
	})
	f.sound()
}

func logSealers(f *fixture) {
	const n = 60
	f.appendMixed(n)
	var sealed, batches atomic.Int64
	inParallel(4, func(int) {
		for range 200 {
			took := 0
			err := f.Update(f.Context(), tenantA, func(tx store.Tx) error {
				list, err := tx.UnsealedLog(f.Context(), 5)
				if took = len(list); err != nil || took == 0 {
					return err
				}
				last, err := tx.LastLogBatch(f.Context())
				if err != nil && !errors.Is(err, store.ErrNotFound) {
					return err
				}
				return tx.AppendLogBatch(f.Context(), batch(last.Number+1, took), positions(list))
			})
			switch {
			case err == nil && took == 0:
				return
			case err == nil:
				sealed.Add(int64(took))
				batches.Add(1)
			case !retryable(err):
				f.Errorf("Update: %v", err)
				return
			}
		}
	})
	f.same("entries sealed", sealed.Load(), int64(n))
	c := f.contents(tenantA)
	f.same("batches", int64(len(c.Batches)), batches.Load())
	for i, b := range c.Batches {
		f.same("number of a batch", b.Number, int64(i+1))
	}
	f.sound()
}

func logDropping(f *fixture) {
	entries := f.appendMixed(10)
	slices.Reverse(entries)
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.AppendLogBatch(ctx, batch(1, 4), positions(entries[:4])), tx.AppendLogBatch(ctx, batch(2, 4), positions(entries[4:8])))
	})
	drop := func(ctx context.Context, tx store.Tx) error { return tx.DropLogBatch(ctx, 1, positions(entries[:4])) }
	f.update(tenantA, drop)
	f.update(tenantA, drop) // a retention that was cut short comes again
	c := f.contents(tenantA)
	left := slices.Clone(entries[4:])
	f.same("unsealed", c.Unsealed, entries[8:])
	slices.Reverse(left)
	f.same("entries left", c.Log, left)
	f.same("entries counted", c.LogCount, int64(6))
	f.same("batches", c.Batches, []store.LogBatch{version2(batch(1, 4), func(b *store.LogBatch) { b.Dropped = true }), batch(2, 4)})
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		return tx.AppendLogBatch(ctx, batch(3, 2), positions(entries[8:]))
	})
	f.sound()
}

func logExists(f *fixture) {
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.AppendLog(ctx, entry(1)) })
	f.refused("AppendLog of an entry that is there", tenantA, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
		return tx.AppendLog(ctx, entry(1))
	})
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.AppendLog(ctx) })
	c := f.contents(tenantA)
	f.same("log", c.Log, []store.LogEntry{entry(1)})
	f.same("count", c.LogCount, int64(1))
}
