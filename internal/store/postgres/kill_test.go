package postgres_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// returnWait is how long after the database's return an error may still come.
const returnWait = time.Minute

func TestADatabaseThatStopsHardLosesNothing(t *testing.T) {
	storetest.Long(t)
	t.Parallel()
	random := storetest.Randomly(t)
	cluster := pgtest.Start(t, pgtest.Options{})
	registry := prometheus.NewPedanticRegistry()
	s := open(t, cluster.Database(t), postgres.Options{Metrics: registry})
	var told storetest.Ledger
	var wg sync.WaitGroup
	stopped := make(chan struct{})
	for range storetest.Writers {
		wg.Go(func() {
			if err := storetest.WorkOn(context.WithoutCancel(t.Context()), s, told.Note, func() bool {
				select {
				case <-stopped:
					return false
				default:
					return true
				}
			}); err != nil {
				t.Errorf("a writer ended: %v", err)
			}
		})
	}
	stop := sync.OnceFunc(func() { close(stopped); wg.Wait() })
	t.Cleanup(stop)
	var longest time.Duration
	rounds := storetest.Rounds(50, 250)
	for round := range rounds {
		// Something is acknowledged in each round, however slow the machine is.
		before := told.Count(storetest.Kept)
		if err := waitFor(t, func() error {
			if told.Count(storetest.Kept) == before {
				return errors.New("nothing is acknowledged")
			}
			return nil
		}); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		time.Sleep(time.Duration(20+random.IntN(150)) * time.Millisecond)
		if round%2 == 0 {
			cluster.Kill()
		} else {
			cluster.Quit()
		}
		if err := cluster.Restart(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		took, err := served(t.Context(), s)
		if err != nil {
			t.Fatalf("round %d: %v after the database's return, an update still fails: %v", round, took, err)
		}
		longest = max(longest, took)
	}
	stop()
	if err := storetest.Verify(t.Context(), s, told.Read()); err != nil {
		t.Error(err)
	}
	counts := map[string]int{}
	for _, e := range told.Read() {
		counts[e.What]++
	}
	t.Logf("%d rounds, %v; %v outcomes were asked for; served again after at most %v", rounds, counts, metric(t, registry, "tokenkeep_store_unanswered_commits_total"), longest)
}

// served waits until a view and an update go through, and returns how long it took.
func served(ctx context.Context, s store.Store) (took time.Duration, err error) {
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		err = errors.Join(s.Ready(ctx), s.Update(ctx, tenantB, func(tx store.Tx) error {
			if _, err := tx.Mark(ctx, "served"); err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			return tx.PutMark(ctx, "served", []byte("x"))
		}))
		if took = time.Since(start); err == nil || took > returnWait {
			return took, err
		}
	}
}

func metric(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// writeUntilKilled is the second process.
func writeUntilKilled(url string) error {
	return storetest.WriteUntilKilled(func() (store.Store, error) {
		return postgres.Open(context.Background(), url, postgres.Options{})
	})
}

func TestAKilledProcessLosesNothing(t *testing.T) {
	storetest.Long(t)
	t.Parallel()
	random := storetest.Randomly(t)
	cluster := pgtest.Start(t, pgtest.Options{})
	url := cluster.Database(t)
	s := open(t, url, postgres.Options{})
	var told storetest.Ledger
	for round := range storetest.Rounds(50, 250) {
		if err := storetest.KillSometime(writer(t, url), round, &told, random, 100*time.Millisecond, 120*time.Millisecond); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	// What the last ones left with the server ends on its own.
	if err := waitFor(t, func() error { return storetest.Verify(t.Context(), s, told.Read()) }); err != nil {
		t.Error(err)
	}
	t.Logf("%d rounds, %d events", storetest.Rounds(50, 250), len(told.Read()))
	if len(told.Read()) == 0 {
		t.Error("nothing was acknowledged: the test proves nothing")
	}
}

// waitFor tries again for a while.
func waitFor(t *testing.T, try func() error) (err error) {
	t.Helper()
	for deadline := time.Now().Add(returnWait); ; time.Sleep(20 * time.Millisecond) {
		if err = try(); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// writer prepares a second process that writes.
func writer(t *testing.T, url string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), writerVariable+"="+url)
	return cmd
}
