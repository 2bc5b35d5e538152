package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
)

// writeUntilKilled is the second process: it prints each change as it is
// acknowledged.
func writeUntilKilled(dir string) error {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, dir, sqlite.Options{Readers: 1, WALSoftBytes: 128 << 10, WALHardBytes: 512 << 10})
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
	for range 8 {
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
	rounds := 100
	if testing.Short() {
		rounds = 10
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the seed was %d", seed)
		}
	})
	var dir string
	var told ledger
	changes := 0
	for round := range rounds {
		if round%10 == 0 {
			dir, told = t.TempDir(), ledger{} // so that the store stays small
		}
		before := len(told.read())
		if err := killAfter(t, dir, &told, random); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		changes += len(told.read()) - before
		s, err := sqlite.Open(t.Context(), dir, sqlite.Options{Readers: 1})
		if err != nil {
			t.Fatalf("round %d: Open: %v", round, err)
		}
		if err := verify(t, s, told.read()); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := s.Close(); err != nil {
			t.Fatalf("round %d: Close: %v", round, err)
		}
	}
	t.Logf("%d rounds, %d changes acknowledged", rounds, changes)
	if changes == 0 { // how many there are is the machine's affair
		t.Error("nothing was acknowledged: the test proves nothing")
	}
}

// killAfter lets a second process write and kills it at some moment.
func killAfter(t *testing.T, dir string, told *ledger, random *rand.Rand) error {
	t.Helper()
	cmd := process(t, "write", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	kill := func() { _ = cmd.Process.Kill() }
	if random.IntN(8) == 0 { // while it opens the store, or soon after
		time.AfterFunc(time.Duration(random.IntN(40_000))*time.Microsecond, kill)
		kill = func() {}
	}
	after := time.Duration(5_000+random.IntN(55_000)) * time.Microsecond
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
