package postgres_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

func TestADatabaseThatStopsHardLosesNothing(t *testing.T) {
	storetest.CheckOnly(t)
	t.Parallel()
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
		waittest.Until(t, fmt.Sprintf("round %d: something is acknowledged", round), func() bool { return told.Count(storetest.Kept) > before })
		waittest.Sometime(200 * time.Millisecond)
		if round%2 == 0 {
			cluster.Kill()
		} else {
			cluster.Quit()
		}
		if err := cluster.Restart(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		longest = max(longest, served(t, s))
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
func served(t *testing.T, s store.Store) time.Duration {
	t.Helper()
	ctx, start := t.Context(), time.Now()
	waittest.Succeeds(t, "an update after the database's return", func() error {
		return errors.Join(s.Ready(ctx), s.Update(ctx, tenantB, func(tx store.Tx) error {
			if _, err := tx.Mark(ctx, "served"); err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			return tx.PutMark(ctx, "served", []byte("x"))
		}))
	})
	return time.Since(start)
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
	storetest.CheckOnly(t)
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
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	waittest.Until(t, "the connections of the killed processes end", func() bool {
		return statement(t, cluster, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tokenkeep'") == "0"
	})
	s = open(t, url, postgres.Options{})
	if err := storetest.Verify(t.Context(), s, told.Read()); err != nil {
		t.Error(err)
	}
	t.Logf("%d rounds, %d events", storetest.Rounds(50, 250), len(told.Read()))
	if len(told.Read()) == 0 {
		t.Error("nothing was acknowledged: the test proves nothing")
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
