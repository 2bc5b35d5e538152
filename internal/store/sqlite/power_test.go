package sqlite_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite/powercut"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

func TestAPowerCutLosesNothing(t *testing.T) {
	const cuts = 20
	for n := range storetest.Rounds(500, 10_000) / cuts { // several stores, so that each stays small
		t.Run(fmt.Sprint("store ", n+1), func(t *testing.T) {
			t.Parallel()
			cutPower(t, cuts)
		})
	}
}

func cutPower(t *testing.T, cuts int) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	recorder := powercut.New(t, dir)
	s := open(t, dir, sqlite.Options{VFS: recorder.Name(), Readers: 1, WALSoftBytes: 64 << 10, WALHardBytes: 192 << 10})
	var told storetest.Ledger
	var writers sync.WaitGroup
	allowed := make(chan struct{}) // changes, until the next cut
	for range 6 {
		writers.Go(func() {
			next := func() bool { _, ok := <-allowed; return ok }
			if err := storetest.Work(t.Context(), s, told.Note, next); err != nil {
				t.Errorf("Update: %v", err)
				for next() {
				}
			}
		})
	}
	stop := sync.OnceFunc(func() { close(allowed); writers.Wait() })
	t.Cleanup(stop)
	for i := range cuts {
		pause := feed(allowed)
		var events []storetest.Event
		disk := recorder.CutAfter(random.IntN(60), func() { events = told.Read() })()
		pause()
		loss := powercut.Losses[i%len(powercut.Losses)]
		if err := verifyCut(t, disk.Write(t, loss, random), events); err != nil {
			t.Fatalf("cut %d of seed %d, losing %s: %v", i, seed, loss, err)
		}
	}
	stop()
	if err := storetest.Verify(t.Context(), s, told.Read()); err != nil {
		t.Errorf("the store that ran on: %v", err)
	}
	if len(told.Read()) < cuts {
		t.Errorf("only %d changes were acknowledged", len(told.Read()))
	}
}

// feed allows changes until pause is called: while a cut is looked at, the
// workload rests, so that stores stay small.
func feed(allowed chan<- struct{}) (pause func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case allowed <- struct{}{}:
			case <-stop:
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// verifyCut opens what a power cut left, without the recorder.
func verifyCut(t *testing.T, dir string, events []storetest.Event) error {
	t.Helper()
	s, err := sqlite.Open(t.Context(), dir, sqlite.Options{Readers: 1})
	if err != nil {
		return err
	}
	err = storetest.Verify(t.Context(), s, events)
	return errors.Join(err, s.Close(), os.RemoveAll(dir))
}

func TestAPowerCutWhileAStoreOpensAndClosesIsNoDamage(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range storetest.Rounds(60, 1000) {
		dir := t.TempDir()
		recorder := powercut.New(t, dir)
		var told storetest.Ledger
		var events []storetest.Event
		cut := recorder.CutAfter(1+random.IntN(150), func() { events = told.Read() })
		done := make(chan error, 1)
		go func() {
			for range 3 { // the first time it is made, and then there
				s, err := sqlite.Open(t.Context(), dir, sqlite.Options{VFS: recorder.Name(), Readers: 1})
				if err != nil {
					done <- err
					return
				}
				n := 0
				err = storetest.Work(t.Context(), s, told.Note, func() bool { n++; return n <= 2 })
				if err := errors.Join(err, s.Close()); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		disk := cut()
		loss := powercut.Losses[i%len(powercut.Losses)]
		if err := verifyCut(t, disk.Write(t, loss, random), events); err != nil {
			t.Errorf("cut %d of seed %d, losing %s: %v", i, seed, loss, err)
		}
		if err := <-done; err != nil {
			t.Errorf("cut %d of seed %d: %v", i, seed, err)
		}
	}
}

func TestAFullDiskStopsWritersAndNothingElse(t *testing.T) {
	for name, fail := range map[string]func(r *powercut.Recorder, n int){
		"writes find no space": func(r *powercut.Recorder, n int) { r.FailWrites(n, sqlite3.SQLITE_FULL) },
		"writes fail":          func(r *powercut.Recorder, n int) { r.FailWrites(n, sqlite3.SQLITE_IOERR_WRITE) },
		"syncs fail":           func(r *powercut.Recorder, n int) { r.FailSyncs(1+n%3, sqlite3.SQLITE_IOERR_FSYNC) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			recorder := powercut.New(t, dir)
			s := open(t, dir, sqlite.Options{VFS: recorder.Name(), Readers: 2, WALSoftBytes: 32 << 10, WALHardBytes: 96 << 10})
			var told storetest.Ledger
			insertSome := func(goroutines, each int) (failed int) {
				var mu sync.Mutex
				var wg sync.WaitGroup
				for range goroutines {
					wg.Go(func() {
						n := 0
						err := storetest.Work(t.Context(), s, told.Note, func() bool { n++; return n <= each })
						if err != nil && !errors.Is(err, store.ErrUnavailable) {
							t.Errorf("Update on a full disk: got error %v, want %v", err, store.ErrUnavailable)
						}
						mu.Lock()
						defer mu.Unlock()
						if err != nil {
							failed++
						}
					})
				}
				wg.Wait()
				return failed
			}
			if failed := insertSome(2, 4); failed != 0 {
				t.Fatal("a write failed before any fault")
			}
			refusals := 0
			for n := 1; n <= 40; n++ {
				fail(recorder, n)
				refused := insertSome(3, 3)
				refusals += refused
				if err := s.Ready(t.Context()); refused == 3 && !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("fault at %d: Ready: got error %v, want %v", n, err, store.ErrUnavailable)
				}
				if got := countTokens(t, s); got == 0 {
					t.Errorf("fault at %d: a view sees nothing", n)
				}
				recorder.Heal()
				if err := s.Ready(t.Context()); err != nil {
					t.Errorf("fault at %d: Ready after the fault had gone: %v", n, err)
				}
				if failed := insertSome(1, 1); failed != 0 {
					t.Errorf("fault at %d: a write failed after the fault had gone", n)
				}
			}
			if err := storetest.Verify(t.Context(), s, told.Read()); err != nil {
				t.Errorf("after all faults: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			if err := storetest.Verify(t.Context(), open(t, dir, sqlite.Options{}), told.Read()); err != nil {
				t.Errorf("after a restart: %v", err)
			}
			if refusals < 20 {
				t.Errorf("only %d writes were refused: the faults did little", refusals)
			}
		})
	}
}
