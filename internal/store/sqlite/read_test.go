package sqlite_test

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// reads begins reads of one token while the writer is busy, waits until each has
// read and left its entry to the writer, and then lets the writer go on.
func reads(t *testing.T, s *sqlite.Store, id string, n int) []error {
	t.Helper()
	begun, leave := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Update(t.Context(), tenantB, func(store.Tx) error { close(begun); <-leave; return nil }); err != nil {
			t.Errorf("the update that goes first: %v", err)
		}
	})
	<-begun
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = readToken(t.Context(), s, id) })
	}
	for s.Waiting() < n { // which they would never be if a read needed the writer to read
		runtime.Gosched()
	}
	close(leave)
	wg.Wait()
	return errs
}

func readToken(ctx context.Context, s *sqlite.Store, id string) error {
	return s.Read(ctx, tenantA, func(tx store.Tx) error {
		if _, err := tx.Token(ctx, id); err != nil {
			return err
		}
		e := storetest.SomeEntry(id)
		e.Operation = "read"
		return tx.AppendLog(ctx, e)
	})
}

func TestReadsDoNotWaitForTheWriterAndShareACommit(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	s := open(t, t.TempDir(), sqlite.Options{Metrics: registry})
	tok := storetest.SomeToken()
	if err := s.Update(t.Context(), tenantA, func(tx store.Tx) error { return tx.InsertToken(t.Context(), tok) }); err != nil {
		t.Fatal(err)
	}
	before, beforeUpdates := commits(t, registry)
	for i, err := range reads(t, s, tok.ID, 40) {
		if err != nil {
			t.Errorf("read %d: %v", i, err)
		}
	}
	after, afterUpdates := commits(t, registry)
	// The update that goes first, alone, and then the entries of all reads.
	if after-before != 2 || afterUpdates-beforeUpdates != 41 {
		t.Errorf("%d commits of %v updates, want 2 of 41", after-before, afterUpdates-beforeUpdates)
	}
}

// TestReadsDoNotWaitForViews: as many views as there may be hold up no read.
func TestReadsDoNotWaitForViews(t *testing.T) {
	s := open(t, t.TempDir(), sqlite.Options{Readers: 2})
	tok := storetest.SomeToken()
	if err := s.Update(t.Context(), tenantA, func(tx store.Tx) error { return tx.InsertToken(t.Context(), tok) }); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	inside, leave := make(chan struct{}), make(chan struct{})
	for range 2 {
		wg.Go(func() {
			if err := s.View(t.Context(), tenantB, func(tx store.Tx) error {
				_, err := tx.CountTokens(t.Context(), store.TokenFilter{Now: 1, Groups: store.AllGroups()})
				inside <- struct{}{}
				<-leave
				return err
			}); err != nil {
				t.Errorf("View: %v", err)
			}
		})
	}
	<-inside
	<-inside
	if err := readToken(t.Context(), s, tok.ID); err != nil {
		t.Errorf("Read: %v", err)
	}
	close(leave)
	wg.Wait()
}

// TestAReadTakesFewStatements counts what a read asks of SQLite: a snapshot, the
// token and the end of the snapshot on its own connection, nothing for a token
// that was read before, and of the writer only the entries of all that wait.
func TestAReadTakesFewStatements(t *testing.T) {
	s := open(t, t.TempDir(), sqlite.Options{})
	tok := storetest.SomeToken()
	if err := s.Update(t.Context(), tenantA, func(tx store.Tx) error { return tx.InsertToken(t.Context(), tok) }); err != nil {
		t.Fatal(err)
	}
	readers, _ := s.Costs()
	if err := readToken(t.Context(), s, tok.ID); err != nil {
		t.Fatal(err)
	}
	const n = 40
	first, writer := s.Costs()
	// BEGIN, SELECT with its row, ROLLBACK.
	if got := first - readers; got != 4 {
		t.Errorf("the first read took %d statements and rows, want 4", got)
	}
	for i, err := range reads(t, s, tok.ID, n) {
		if err != nil {
			t.Fatalf("read %d: %v", i, err)
		}
	}
	readersAfter, writerAfter := s.Costs()
	if got := readersAfter - first; got != 0 {
		t.Errorf("%d further reads took %d statements and rows on their connections, want none", n, got)
	}
	// Two commits: the empty one, and that of 40 entries in two statements for 32
	// and two for 8, with one for the counter.
	if got := writerAfter - writer; got != 2+2+5 {
		t.Errorf("the entries of %d reads took %d statements of the writer, want 9", n, got)
	}
}
