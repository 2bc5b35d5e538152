package storetest

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Writers is how many write at once while things are killed.
const Writers = 8

// Rounds returns how often something is killed, cut off or tried: all of the
// rounds in make check, soak of them in make soak, a tenth of all otherwise.
func Rounds(all, soak int) int {
	switch {
	case Soak():
		return soak
	case All():
		return all
	}
	return max(all/10, 1)
}

// Long leaves a test that takes seconds out of a plain 'go test': it runs when
// KEEPTEST_ROUNDS is set, as make test sets it to few.
func Long(t testing.TB) {
	t.Helper()
	if os.Getenv(roundsVariable) == "" {
		t.Skip("it takes long: " + roundsVariable + "=few runs it, as make test does")
	}
}

// CheckOnly leaves a test to make check, which sets KEEPTEST_ROUNDS to all: one
// that takes many seconds, and that few changes can break.
func CheckOnly(t testing.TB) {
	t.Helper()
	if value := os.Getenv(roundsVariable); value != "all" && value != "soak" {
		t.Skip("it takes very long: " + roundsVariable + "=all runs it, as make check does")
	}
}

// All reports whether tests run in their full size, or a larger one. With
// -short, as make check runs the race detector, they run in that of make test.
func All() bool {
	return Soak() || os.Getenv(roundsVariable) == "all" && !testing.Short()
}

// Soak reports whether tests run in their largest size, which takes an hour or more.
func Soak() bool { return os.Getenv(roundsVariable) == "soak" }

const roundsVariable = "KEEPTEST_ROUNDS"

// Randomly returns a source of numbers whose seed a failure tells.
func Randomly(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the seed was %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// WriteUntilKilled is the second process: it opens a store, lets several work
// on it and prints each change as it is acknowledged.
func WriteUntilKilled(open func() (store.Store, error)) error {
	s, err := open()
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
	for range Writers {
		wg.Go(func() {
			if err := Work(context.Background(), s, say, func() bool { return true }); err != nil {
				say("failed", err.Error())
			}
		})
	}
	wg.Wait()
	return nil
}

// KillSometime runs the second process and kills it: one round in eight at some
// moment of its opening, otherwise at some moment of its writing. In every
// second round something is acknowledged before, however slow the machine is.
func KillSometime(cmd *exec.Cmd, round int, told *Ledger, random *rand.Rand, opening, writing time.Duration) error {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	from, after := "open", 5*time.Millisecond+time.Duration(random.Int64N(int64(writing)))
	if round%2 == 0 {
		from = Kept
	}
	begin := sync.OnceFunc(func() { time.AfterFunc(after, func() { _ = cmd.Process.Kill() }) })
	if round%8 == 7 {
		after = time.Duration(random.Int64N(int64(opening)))
		begin()
	}
	var failed error
	for lines := bufio.NewScanner(out); lines.Scan(); {
		what, id, ok := strings.Cut(lines.Text(), " ")
		if what == from {
			begin()
		}
		switch {
		case what == "open":
		case ok && slices.Contains([]string{Kept, Dropping, Dropped, Seen}, what):
			told.Note(what, id)
		default:
			failed = fmt.Errorf("the process said %q", lines.Text())
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait() // it was killed
	return failed
}
