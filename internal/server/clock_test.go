package server_test

import (
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

// A server that starts cannot know whether it was away or its clock is wrong.
func TestAStartThatFindsAnotherTimeDestroysNothingAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		noted  bool
		passed time.Duration
		want   bool
	}{
		"the first start":                  {false, 10 * 365 * 24 * time.Hour, false},
		"a restart":                        {true, time.Second, false},
		"a clock that was a little ahead":  {true, -time.Minute, false},
		"an hour's rest":                   {true, time.Hour, false},
		"a day's rest, or a wrong clock":   {true, 24 * time.Hour, true},
		"a clock ten years ahead":          {true, 10 * 365 * 24 * time.Hour, true},
		"a clock that was set back a year": {true, -365 * 24 * time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktest.New(time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC))
			first := keeptest.Start(t, keeptest.Options{Now: clock.Now})
			if first.DoubtsClock() {
				t.Error("a new server doubts its clock")
			}
			if c.noted {
				if err := first.NoteTime(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := first.Stop(); err != nil {
				t.Fatal(err)
			}
			clock.Advance(c.passed)
			if got := keeptest.Start(t, keeptest.Options{Now: clock.Now, Data: first.Data}).DoubtsClock(); got != c.want {
				t.Errorf("it doubts its clock: %v, want %v", got, c.want)
			}
		})
	}
}
