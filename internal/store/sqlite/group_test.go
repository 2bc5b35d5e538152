package sqlite_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// together has the updates wait, in their order, until all can be taken into
// one commit, and returns their errors; the value of a panic counts as one.
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
		for s.Waiting() <= i {
			runtime.Gosched()
		}
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

// The entries of a group are written together at its end, or before one of its
// updates looks at the log. Whoever looks sees those of the updates before and
// its own, and what fails leaves none of its own and takes no other's along.
func TestAnUpdateThatLooksAtTheLogOfItsGroupTakesNothingAlong(t *testing.T) {
	s := open(t, t.TempDir(), sqlite.Options{})
	ctx := t.Context()
	errOwn := errors.New("its own error")
	there := storetest.SomeEntry("there")
	if err := s.Update(ctx, tenantA, func(tx store.Tx) error { return tx.AppendLog(ctx, there) }); err != nil {
		t.Fatal(err)
	}
	sees := func(tx store.Tx, entity string) error {
		list, err := tx.Logs(ctx, store.LogFilter{EntityID: entity}, store.Page{Limit: 10})
		if err == nil && len(list) != 1 {
			err = fmt.Errorf("the update sees %d entries of its own, want 1", len(list))
		}
		return err
	}
	kinds := []struct {
		fn   func(tx store.Tx, entity string) error
		want error
	}{
		{func(store.Tx, string) error { return nil }, nil},
		{sees, nil},
		{func(tx store.Tx, entity string) error { return errors.Join(sees(tx, entity), errOwn) }, errOwn},
		{func(store.Tx, string) error { return errOwn }, errOwn},
		{func(tx store.Tx, entity string) error {
			return errors.Join(tx.InsertToken(ctx, storetest.SomeToken()), sees(tx, entity), errOwn)
		}, errOwn},
		{func(tx store.Tx, entity string) error {
			return errors.Join(tx.InsertToken(ctx, storetest.SomeToken()), sees(tx, entity))
		}, nil},
		{func(tx store.Tx, _ string) error { return tx.PutMark(ctx, "mark", []byte("x")) }, nil},
	}
	for round, doubled := range []bool{false, true} { // one that cannot be kept has all tried again
		var updates []func(tx store.Tx) error
		var names []string
		for i := range 70 {
			names = append(names, fmt.Sprintf("round %d, update %d", round, i))
			updates = append(updates, func(tx store.Tx) error {
				if err := tx.AppendLog(ctx, storetest.SomeEntry(names[i])); err != nil {
					return err
				}
				return kinds[i%len(kinds)].fn(tx, names[i])
			})
		}
		if doubled {
			updates = append(updates, func(tx store.Tx) error { return tx.AppendLog(ctx, there) })
		}
		for i, err := range together(t, s, updates...) {
			want := store.ErrExists
			if i < len(names) {
				want = kinds[i%len(kinds)].want
			}
			if !errors.Is(err, want) {
				t.Errorf("round %d, update %d: got %v, want %v", round, i, err, want)
			}
		}
		for i, name := range names {
			err := s.View(ctx, tenantA, func(tx store.Tx) error { return sees(tx, name) })
			if kept := err == nil; kept != (kinds[i%len(kinds)].want == nil) {
				t.Errorf("%s: its entry is kept: %v, and its update wants %v", name, kept, kinds[i%len(kinds)].want)
			}
		}
	}
	if problems, err := s.Check(ctx, nil); err != nil || len(problems) > 0 {
		t.Errorf("the check says %q, %v", problems, err)
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

// The entry of another may be what finds the disk full while an update looks at
// the log. SQLite then takes everything back by itself, and what comes behind
// must not be committed alone.
func TestADiskThatIsFullUnderTheEntriesOfAGroupLosesNothing(t *testing.T) {
	s := open(t, t.TempDir(), sqlite.Options{})
	ctx := t.Context()
	if err := s.LimitGrowth(60); err != nil {
		t.Fatal(err)
	}
	adds := func(entity string, size int) func(tx store.Tx) error {
		e := storetest.SomeEntry(entity)
		e.Message = strings.Repeat("x", size)
		return func(tx store.Tx) error { return tx.AppendLog(ctx, e) }
	}
	creates := func(entity string) func(tx store.Tx) error {
		tok, add := storetest.SomeToken(), adds(entity, 1)
		return func(tx store.Tx) error { return errors.Join(tx.InsertToken(ctx, tok), add(tx)) }
	}
	looks := func(tx store.Tx) error { _, err := tx.CountLogs(ctx, store.LogFilter{}); return err }
	got := together(t, s, creates("first"), adds("second", 1), adds("too large", 1<<20), looks, creates("fifth"), adds("sixth", 1), looks)
	for i, err := range got {
		if want := map[bool]error{true: store.ErrUnavailable}[i == 2]; !errors.Is(err, want) {
			t.Errorf("update %d: got %v, want %v", i, err, want)
		}
	}
	for entity, want := range map[string]int{"first": 1, "second": 1, "too large": 0, "fifth": 1, "sixth": 1} {
		if err := s.View(ctx, tenantA, func(tx store.Tx) error {
			list, err := tx.Logs(ctx, store.LogFilter{EntityID: entity}, store.Page{Limit: 10})
			if err == nil && len(list) != want {
				err = fmt.Errorf("%d entries, want %d", len(list), want)
			}
			return err
		}); err != nil {
			t.Errorf("%s: %v", entity, err)
		}
	}
	if n := countTokens(t, s); n != 2 {
		t.Errorf("%d tokens, want 2", n)
	}
	if problems, err := s.Check(ctx, nil); err != nil || len(problems) > 0 {
		t.Errorf("the check says %q, %v", problems, err)
	}
}

// TestUpdatesGetSavepointsOnceOneHasFailed: a group whose updates all succeed needs
// none, and one that fails after it has written takes no other's along.
func TestUpdatesGetSavepointsOnceOneHasFailed(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	s := open(t, t.TempDir(), sqlite.Options{Metrics: registry})
	ctx, errOwn := t.Context(), errors.New("its own error")
	insert := func(result error) func(tx store.Tx) error {
		tok := storetest.SomeToken()
		return func(tx store.Tx) error {
			return errors.Join(tx.InsertToken(ctx, tok), tx.PutMark(ctx, "written", []byte(tok.ID)), tx.AppendLog(ctx, storetest.SomeEntry(tok.ID)), result)
		}
	}
	check := func(when string, errs []error, failing int, savepoints bool, tokens int64) {
		t.Helper()
		for i, err := range errs {
			if failed := errors.Is(err, errOwn); failed != (i == failing) || err != nil && !failed {
				t.Errorf("%s: update %d returned %v", when, i, err)
			}
		}
		if got := s.Prepared("SAVEPOINT one"); got != savepoints {
			t.Errorf("%s: savepoints were made: %t, want %t", when, got, savepoints)
		}
		if n := countTokens(t, s); n != tokens {
			t.Errorf("%s: %d tokens, want %d", when, n, tokens)
		}
	}
	check("all succeed", together(t, s, insert(nil), insert(nil), insert(nil)), -1, false, 3)
	before, _ := commits(t, registry)
	check("the second fails", together(t, s, insert(nil), insert(errOwn), insert(nil)), 1, true, 5)
	if after, _ := commits(t, registry); after-before != 2 { // the update that goes first, and the group
		t.Errorf("%d commits, want 2", after-before)
	}
	if err := storetest.Verify(t.Context(), s, nil); err != nil {
		t.Error(err)
	}
}
