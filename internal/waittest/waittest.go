// Package waittest waits in tests until something has happened.
//
// It promises that a wait ends when what it waits for happens, however slow
// the machine is, and that a test which is stopped by the time limit of its
// binary (go test -timeout) names what it was waiting for. It never has a
// limit of its own, and only tests use it.
package waittest

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

// The time between two looks at a condition grows from the first to the last.
const (
	firstPause = time.Millisecond
	lastPause  = 50 * time.Millisecond
)

// Until calls happened again and again until it returns true. When the test
// has failed meanwhile, or its binary is about to be stopped, it ends the test.
func Until(t testing.TB, what string, happened func() bool) {
	t.Helper()
	Succeeds(t, what, func() error {
		if !happened() {
			return errNotYet
		}
		return nil
	})
}

var errNotYet = errors.New("not yet")

// Succeeds is Until for a function that returns nil when it has happened; its
// last error is part of the message.
func Succeeds(t testing.TB, what string, try func() error) {
	t.Helper()
	last := latest(t)
	for pause := firstPause; ; pause = min(pause*5/4, lastPause) {
		err := try()
		switch {
		case err == nil:
			return
		case t.Failed():
			t.Fatalf("%s: not before the test failed: %v", what, err)
		case !last.IsZero() && time.Now().After(last):
			t.Fatalf("%s: not before the time limit of the test binary: %v", what, err)
		}
		time.Sleep(pause)
	}
}

// Sometime lets a random time pass, less than most, so that what follows comes
// at any moment of what others do. No test may rely on what happens meanwhile.
func Sometime(most time.Duration) {
	time.Sleep(rand.N(most))
}

// Receive returns what comes from a channel; the zero value when it is closed.
// When the test binary is about to be stopped, it ends the test.
func Receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	var over <-chan time.Time
	if last := latest(t); !last.IsZero() {
		timer := time.NewTimer(time.Until(last))
		defer timer.Stop()
		over = timer.C
	}
	select {
	case v := <-from:
		return v
	case <-over:
	}
	t.Fatalf("%s: not before the time limit of the test binary", what)
	panic("not reached")
}

// latest returns when a wait that begins now has to end, so that its message is
// printed before the test binary is stopped; the zero time when there is no limit.
func latest(t testing.TB) time.Time {
	limited, ok := t.(interface{ Deadline() (time.Time, bool) })
	if !ok {
		return time.Time{}
	}
	deadline, ok := limited.Deadline()
	if !ok {
		return time.Time{}
	}
	return deadline.Add(-min(5*time.Second, time.Until(deadline)/10))
}
