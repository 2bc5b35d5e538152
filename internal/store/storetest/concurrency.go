package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

var concurrencyTests = []test{
	{"increments of a mark are all counted", markIncrements},
	{"one of two changes of a version wins", versionRace},
	{"64 writers on several tenants keep every row", manyWriters},
	{"failing and panicking neighbours do no harm", badNeighbours},
	{"each of many changes of parcels gets its own answer", parcelRace},
	{"a view is one consistent snapshot while others write", snapshot},
}

// inParallel runs fn on n goroutines and waits for them.
func inParallel(n int, fn func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { fn(i) })
	}
	wg.Wait()
}

// retryable reports whether a caller may try an update again after err.
func retryable(err error) bool {
	return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrUnavailable)
}

func increment(ctx context.Context, tx store.Tx, name string) error {
	value, err := tx.Mark(ctx, name)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	n, _ := strconv.Atoi(string(value)) // no value is 0
	return tx.PutMark(ctx, name, []byte(strconv.Itoa(n+1)))
}

func markIncrements(f *fixture) {
	var done atomic.Int64
	inParallel(16, func(int) {
		for range 25 {
			err := f.Update(f.Context(), tenantA, func(tx store.Tx) error { return increment(f.Context(), tx, "counter") })
			if err == nil {
				done.Add(1)
			} else if !retryable(err) {
				f.Errorf("Update: %v", err)
			}
		}
	})
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		value, err := tx.Mark(ctx, "counter")
		f.same("the counter", string(value), strconv.FormatInt(done.Load(), 10))
		return err
	})
	if done.Load() == 0 {
		f.Error("not one of the updates went through")
	}
}

func versionRace(f *fixture) {
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.InsertToken(ctx, token(1)) })
	var won, lost atomic.Int64
	inParallel(16, func(i int) {
		for range 15 {
			var t store.Token
			err := f.View(f.Context(), tenantA, func(tx store.Tx) (err error) {
				t, err = tx.Token(f.Context(), token(1).ID)
				return err
			})
			if err != nil {
				f.Errorf("View: %v", err)
				return
			}
			t.Version++
			t.Containers = []string{fmt.Sprintf("/writer/%d/", i)}
			t.Terms = [][]byte{fmt.Appendf(nil, "writer %d", i), fmt.Appendf(nil, "version %d", t.Version)}
			err = f.Update(f.Context(), tenantA, func(tx store.Tx) error { return tx.ReplaceToken(f.Context(), t) })
			switch {
			case err == nil:
				won.Add(1)
			case retryable(err):
				lost.Add(1)
			default:
				f.Errorf("Update: got error %v, want none or %v", err, store.ErrConflict)
			}
		}
	})
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		t, err := tx.Token(ctx, token(1).ID)
		if err != nil {
			return err
		}
		f.same("version after the race", t.Version, 1+won.Load())
		n, err := tx.CountTokens(ctx, store.TokenFilter{Now: day, Groups: every, Terms: t.Terms})
		f.same("tokens with the terms of the last winner", n, int64(1))
		return err
	})
	if won.Load() == 0 || lost.Load() == 0 {
		f.Logf("%d changes won and %d lost: little of a race", won.Load(), lost.Load())
	}
	f.sound()
}

func manyWriters(f *fixture) {
	tenants := []string{tenantA, tenantB, tenantC}
	var kept [3]atomic.Int64
	inParallel(64, func(i int) {
		for n := range 4 {
			id := i*100 + n
			err := f.Update(f.Context(), tenants[i%3], func(tx store.Tx) error {
				return errors.Join(tx.InsertToken(f.Context(), token(id)), tx.AppendLog(f.Context(), entry(id)))
			})
			if err == nil {
				kept[i%3].Add(1)
			} else if !retryable(err) {
				f.Errorf("Update: %v", err)
			}
		}
	})
	for i, id := range tenants {
		c, want := f.contents(id), kept[i].Load()
		if c.TokenCount != want || int64(len(c.Tokens)) != want || c.ByTerm != want || c.LogCount != want || c.UnsealedN != want {
			f.Errorf("tenant %d: %d tokens, %d listed, %d by term, %d log entries, %d unsealed; want %d of each",
				i, c.TokenCount, len(c.Tokens), c.ByTerm, c.LogCount, c.UnsealedN, want)
		}
		if want == 0 {
			f.Errorf("tenant %d: not one of the updates went through", i)
		}
	}
	f.sound()
}

func badNeighbours(f *fixture) {
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.InsertToken(ctx, token(0)) })
	var kept atomic.Int64
	inParallel(60, func(i int) {
		defer func() {
			if p := recover(); (p != nil) != (i%3 == 2) || (p != nil && p != errStop) {
				f.Errorf("writer %d recovered %v", i, p)
			}
		}()
		ctx := f.Context()
		err := f.Update(ctx, tenantA, func(tx store.Tx) error {
			if err := errors.Join(tx.InsertToken(ctx, token(100+i)), tx.AppendLog(ctx, entry(i))); err != nil {
				return err
			}
			switch i % 3 {
			case 1:
				return tx.InsertToken(ctx, token(0)) // taken
			case 2:
				panic(errStop)
			}
			return nil
		})
		switch {
		case i%3 == 0 && err == nil:
			kept.Add(1)
		case i%3 == 1 && errors.Is(err, store.ErrExists), retryable(err):
		default:
			f.Errorf("writer %d: got error %v", i, err)
		}
	})
	c := f.contents(tenantA)
	if want := kept.Load(); c.TokenCount != 1+want || c.ByTerm != 1+want || c.LogCount != want || want == 0 {
		f.Errorf("got %d tokens, %d by term, %d log entries; want %d and one, and as many entries", c.TokenCount, c.ByTerm, c.LogCount, want)
	}
	for _, t := range c.Tokens {
		var n int
		if _, err := fmt.Sscanf(t.ID, "token-%d", &n); err != nil || (n != 0 && (n-100)%3 != 0) {
			f.Errorf("a token was kept of a writer that failed")
		}
	}
	f.sound()
}

func snapshot(f *fixture) {
	Long(f.T)
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	change := func(n int) error {
		return f.Update(f.Context(), tenantA, func(tx store.Tx) error {
			if err := errors.Join(increment(f.Context(), tx, "a"), tx.InsertToken(f.Context(), token(n)), tx.AppendLog(f.Context(), entry(n))); err != nil {
				return err
			}
			return increment(f.Context(), tx, "b")
		})
	}
	if err := change(0); err != nil {
		f.Fatalf("Update: %v", err)
	}
	var writers sync.WaitGroup
	var next atomic.Int64
	for range 4 {
		writers.Go(func() {
			for ctx.Err() == nil && next.Load() < 300 {
				if err := change(int(next.Add(1))); err != nil && !retryable(err) {
					f.Errorf("Update: %v", err)
					return
				}
			}
		})
	}
	inParallel(3, func(int) {
		for range 15 {
			err := f.View(f.Context(), tenantA, func(tx store.Tx) error {
				first, err := tx.Mark(f.Context(), "a")
				if err != nil {
					return err
				}
				c, err := readAll(f.Context(), tx)
				if err != nil {
					return err
				}
				last, err := tx.Mark(f.Context(), "b")
				if err != nil {
					return err
				}
				want, _ := strconv.Atoi(string(first))
				got := fmt.Sprint(string(last), len(c.Tokens), c.TokenCount, c.ByTerm, len(c.Log), c.LogCount, c.UnsealedN)
				if got != fmt.Sprint(string(first), want, want, want, want, want, want) {
					f.Errorf("a view saw %s where all should be %d", got, want)
				}
				return nil
			})
			if err != nil {
				f.Errorf("View: %v", err)
			}
		}
	})
	cancel()
	writers.Wait()
	f.sound()
}
