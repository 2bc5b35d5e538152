package waittest_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// limited is a test whose binary has a time limit.
type limited struct {
	testing.TB
	deadline time.Time
	failed   bool
	message  string
}

func (l *limited) Helper()                     {}
func (l *limited) Failed() bool                { return l.failed }
func (l *limited) Deadline() (time.Time, bool) { return l.deadline, !l.deadline.IsZero() }

func (l *limited) Fatalf(format string, args ...any) {
	l.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// run calls a function as the testing package does, and returns how it failed.
func run(l *limited, test func(t testing.TB)) string {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		test(l)
	}()
	<-ended
	return l.message
}

func TestWaitsEndByTheirEvents(t *testing.T) {
	for name, l := range map[string]*limited{"without a time limit": {}, "with a time limit": {deadline: time.Now().Add(time.Hour)}} {
		t.Run(name, func(t *testing.T) {
			asked, got := 0, ""
			c := make(chan string)
			go func() { c <- "it" }()
			if message := run(l, func(t testing.TB) {
				waittest.Until(t, "the third time", func() bool { asked++; return asked == 3 })
				got = waittest.Receive(t, "something", c)
			}); message != "" || asked != 3 || got != "it" {
				t.Errorf("asked %d times, received %q, failed with %q", asked, got, message)
			}
			close(c)
			if message := run(l, func(t testing.TB) { got = waittest.Receive(t, "the end", c) }); message != "" || got != "" {
				t.Errorf("a closed channel: received %q, failed with %q", got, message)
			}
		})
	}
}

func TestWaitsThatAreStoppedNameTheirEvent(t *testing.T) {
	never := func() bool { return false }
	for name, c := range map[string]struct {
		t    *limited
		wait func(t testing.TB)
	}{
		"a condition at the time limit": {&limited{deadline: time.Now()}, func(t testing.TB) { waittest.Until(t, "the sun", never) }},
		"a channel at the time limit":   {&limited{deadline: time.Now()}, func(t testing.TB) { waittest.Receive(t, "the sun", make(chan bool)) }},
		"a condition in a test that has failed": {&limited{failed: true}, func(t testing.TB) {
			waittest.Until(t, "the sun", never)
		}},
		"a try that fails": {&limited{deadline: time.Now()}, func(t testing.TB) {
			waittest.Succeeds(t, "the sun", func() error { return errors.New("it is night") })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if message := run(c.t, c.wait); !strings.HasPrefix(message, "the sun: not before") {
				t.Errorf("failed with %q", message)
			}
		})
	}
}
