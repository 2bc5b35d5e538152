package sqlite_test

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// together has the updates wait until all can be taken into one commit, and
// returns their errors; the value of a panic counts as one.
func together(t *testing.T, s *sqlite.Store, updates ...func(tx store.Tx) error) []error {
	t.Helper()
	begun, leave := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Update(t.Context(), tenantB, func(store.Tx) error { close(begun); <-leave; return nil }); err != nil {
			t.Errorf("the update that goes first: %v", err)
		}
	})
	<-begun
	errs := make([]error, len(updates))
	for i, fn := range updates {
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					errs[i] = p.(error)
				}
			}()
			errs[i] = s.Update(t.Context(), tenantA, fn)
		})
	}
	for s.Waiting() < len(updates) {
		runtime.Gosched()
	}
	close(leave)
	wg.Wait()
	return errs
}

// commits returns how many commits there were and how many updates shared them.
func commits(t *testing.T, registry *prometheus.Registry) (n uint64, updates float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "tokenkeep_store_commit_updates" {
			h := f.GetMetric()[0].GetHistogram()
			return h.GetSampleCount(), h.GetSampleSum()
		}
	}
	t.Fatal("there is no metric of commits")
	return 0, 0
}

func TestUpdatesShareACommitAndNoOtherFate(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	s := open(t, t.TempDir(), sqlite.Options{Metrics: registry})
	ctx := t.Context()
	errOwn, errPanic := errors.New("its own error"), errors.New("its own panic")
	insert := func(then func() error) func(tx store.Tx) error {
		tok := storetest.SomeToken()
		return func(tx store.Tx) error {
			if err := errors.Join(tx.InsertToken(ctx, tok), tx.AppendLog(ctx, storetest.SomeEntry(tok.ID))); err != nil {
				return err
			}
			return then()
		}
	}
	fine := func() error { return nil }
	want := []error{nil, errOwn, nil, errPanic, nil, nil, errOwn, nil}
	before, beforeUpdates := commits(t, registry)
	got := together(t, s, insert(fine), insert(func() error { return errOwn }), insert(fine), insert(func() error { panic(errPanic) }),
		insert(fine), insert(fine), insert(func() error { return errOwn }), insert(fine))
	for i := range want {
		if !errors.Is(got[i], want[i]) {
			t.Errorf("update %d: got %v, want %v", i, got[i], want[i])
		}
	}
	after, afterUpdates := commits(t, registry)
	// The first update, alone, and then the rest.
	if after-before != 2 || afterUpdates-beforeUpdates != 9 {
		t.Errorf("%d commits of %v updates, want 2 of 9", after-before, afterUpdates-beforeUpdates)
	}
	if n := countTokens(t, s); n != 5 {
		t.Errorf("%d tokens, want the 5 of the updates that returned nil", n)
	}
	if err := storetest.Verify(t.Context(), s, nil); err != nil {
		t.Error(err)
	}
}

func TestAnUpdateTooLargeForTheDiskFailsAlone(t *testing.T) {
	for name, swallow := range map[string]bool{"and says so": false, "and lets the error pass": true} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir(), sqlite.Options{})
			ctx := t.Context()
			insertMany(t, s, 20)
			if err := s.LimitGrowth(60); err != nil {
				t.Fatal(err)
			}
			small := func(tx store.Tx) error {
				tok := storetest.SomeToken()
				return errors.Join(tx.InsertToken(ctx, tok), tx.AppendLog(ctx, storetest.SomeEntry(tok.ID)))
			}
			huge := func(tx store.Tx) error {
				tok := storetest.SomeToken()
				tok.Data = make([]byte, 1<<20)
				err := tx.InsertToken(ctx, tok)
				if swallow {
					// Both would be committed alone: SQLite has rolled back.
					_ = tx.AppendLog(ctx, storetest.SomeEntry(tok.ID))
					_ = tx.PutMark(ctx, "left behind", []byte("x"))
					return nil
				}
				return err
			}
			got := together(t, s, small, small, huge, small, huge, small)
			for i, err := range got {
				if want := map[bool]error{true: store.ErrUnavailable}[i == 2 || i == 4]; !errors.Is(err, want) {
					t.Errorf("update %d: got %v, want %v", i, err, want)
				}
			}
			if n := countTokens(t, s); n != 24 {
				t.Errorf("%d tokens, want 24", n)
			}
			if err := s.View(ctx, tenantA, func(tx store.Tx) error { _, err := tx.Mark(ctx, "left behind"); return err }); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("a part of the update that failed: got error %v, want %v", err, store.ErrNotFound)
			}
			if err := storetest.Verify(t.Context(), s, nil); err != nil {
				t.Error(err)
			}
			if err := s.LimitGrowth(10_000); err != nil {
				t.Fatal(err)
			}
			if err := s.Update(ctx, tenantA, func(tx store.Tx) error { return tx.InsertToken(ctx, storetest.SomeToken()) }); err != nil {
				t.Errorf("an update when there is space again: %v", err)
			}
		})
	}
}
