package postgres_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
)

// returnWait is how long after the database's return an error may still come.
const returnWait = 10 * time.Second

// writers is how many write at once in these tests.
const writers = 8

func rounds() int {
	if testing.Short() {
		return 5
	}
	return 50
}

// randomly returns a source of numbers whose seed a failure tells.
func randomly(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the seed was %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

func TestADatabaseThatStopsHardLosesNothing(t *testing.T) {
	t.Parallel()
	random := randomly(t)
	cluster := pgtest.Start(t, pgtest.Options{})
	registry := prometheus.NewPedanticRegistry()
	s := open(t, cluster.Database(t), postgres.Options{Metrics: registry})
	var told ledger
	var wg sync.WaitGroup
	stopped := make(chan struct{})
	for range writers {
		wg.Go(func() {
			if err := work(context.WithoutCancel(t.Context()), s, told.note, func() bool {
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
	var longest time.Duration
	done := 0
	// On a machine that is busy with other things, recovery alone takes a second.
	for begun := time.Now(); done < rounds() && (done < 20 || time.Since(begun) < time.Minute); done++ {
		time.Sleep(time.Duration(20+random.IntN(150)) * time.Millisecond)
		if done%2 == 0 {
			cluster.Kill()
		} else {
			cluster.Quit()
		}
		if err := cluster.Restart(); err != nil {
			t.Fatalf("round %d: %v", done, err)
		}
		took, err := served(t.Context(), s)
		if err != nil {
			t.Fatalf("round %d: %v after the database's return, an update still fails: %v", done, took, err)
		}
		longest = max(longest, took)
	}
	close(stopped)
	wg.Wait()
	if err := verify(t, s, told.read()); err != nil {
		t.Error(err)
	}
	counts := map[string]int{}
	for _, e := range told.read() {
		counts[e.what]++
	}
	t.Logf("%d rounds, %v; %v outcomes were asked for; served again after at most %v", done, counts, metric(t, registry, "tokenkeep_store_unanswered_commits_total"), longest)
	if counts[kept] == 0 { // how many there are is the machine's affair
		t.Error("nothing was acknowledged: the test proves nothing")
	}
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

// writeUntilKilled is the second process: it prints each change as it is
// acknowledged.
func writeUntilKilled(url string) error {
	ctx := context.Background()
	s, err := postgres.Open(ctx, url, postgres.Options{})
	if err != nil {
		return err
	}
	say := func(what, id string) {
		// One write of less than a page arrives whole or not at all.
		if _, err := fmt.Fprintln(os.Stdout, what, id); err != nil {
			os.Exit(1) // nobody listens any more
		}
	}
	say("open", "")
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			if err := work(ctx, s, say, func() bool { return true }); err != nil {
				say("failed", err.Error())
			}
		})
	}
	wg.Wait()
	return nil
}

func TestAKilledProcessLosesNothing(t *testing.T) {
	t.Parallel()
	random := randomly(t)
	cluster := pgtest.Start(t, pgtest.Options{})
	url := cluster.Database(t)
	s := open(t, url, postgres.Options{})
	var told ledger
	for round := range rounds() {
		if err := killAfter(t, url, &told, random); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	// What the last ones left with the server ends on its own.
	if err := waitFor(t, func() error { return verify(t, s, told.read()) }); err != nil {
		t.Error(err)
	}
	t.Logf("%d rounds, %d events", rounds(), len(told.read()))
	if len(told.read()) == 0 {
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

// killAfter lets a second process write and kills it at some moment.
func killAfter(t *testing.T, url string, told *ledger, random *rand.Rand) error {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), writerVariable+"="+url)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	kill := func() { _ = cmd.Process.Kill() }
	if random.IntN(8) == 0 { // while it opens the store, or soon after
		time.AfterFunc(time.Duration(random.IntN(100_000))*time.Microsecond, kill)
		kill = func() {}
	}
	after := time.Duration(5_000+random.IntN(120_000)) * time.Microsecond
	var failed error
	for lines := bufio.NewScanner(out); lines.Scan(); {
		what, id, ok := strings.Cut(lines.Text(), " ")
		switch {
		case what == "open":
			time.AfterFunc(after, kill)
		case ok && (what == kept || what == dropping || what == dropped):
			told.note(what, id)
		default:
			failed = fmt.Errorf("the process said %q", lines.Text())
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait() // it was killed
	return failed
}
