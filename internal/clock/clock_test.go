package clock_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/clock"
)

func TestAJumpIsBelievedWhenItLasts(t *testing.T) {
	const year = 365 * 24 * time.Hour
	start := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	// Of each step: how much time passes, by how much the clock jumps then, and
	// how far from the time without any jump the clock should be.
	type step struct{ pass, jump, off time.Duration }
	for name, c := range map[string]struct {
		steps []step
		told  []string
	}{
		"no jump":                        {[]step{{time.Second, 0, 0}, {24 * time.Hour, 0, 0}}, nil},
		"a small step is followed":       {[]step{{0, time.Minute, time.Minute}, {0, -time.Second, 59 * time.Second}}, nil},
		"small steps add up":             {[]step{{0, time.Minute, time.Minute}, {0, time.Minute, 2 * time.Minute}, {0, time.Minute, 3 * time.Minute}}, nil},
		"a minute ten years ahead":       {[]step{{0, 10 * year, 0}, {time.Minute, 0, 0}, {0, -10 * year, 0}, {time.Hour, 0, 0}}, []string{"87600h0m0s false"}},
		"a minute a year back":           {[]step{{0, -year, 0}, {time.Minute, 0, 0}, {0, year, 0}, {time.Hour, 0, 0}}, []string{"-8760h0m0s false"}},
		"ten years ahead, to stay":       {[]step{{0, 10 * year, 0}, {4*time.Minute - 1, 0, 0}, {1, 0, 10 * year}, {time.Hour, 0, 10 * year}}, []string{"87600h0m0s false", "87600h0m0s true"}},
		"a year back, to stay":           {[]step{{0, -year, 0}, {4 * time.Minute, 0, -year}}, []string{"-8760h0m0s false", "-8760h0m0s true"}},
		"a jump upon a jump":             {[]step{{0, year, 0}, {3 * time.Minute, year, 0}, {3 * time.Minute, 0, 0}, {time.Minute, 0, 2 * year}}, []string{"8760h0m0s false", "17520h0m0s false", "17520h0m0s true"}},
		"to and fro":                     {[]step{{0, year, 0}, {3 * time.Minute, -year, 0}, {0, year, 0}, {3 * time.Minute, 0, 0}, {time.Minute, 0, year}}, []string{"8760h0m0s false", "8760h0m0s false", "8760h0m0s true"}},
		"drift while a jump is doubted":  {[]step{{0, year, 0}, {4 * time.Minute, time.Second, year + time.Second}}, []string{"8760h0m0s false", "8760h0m1s true"}},
		"nobody asked for days":          {[]step{{1000 * time.Hour, 30 * time.Second, 30 * time.Second}}, nil},
		"a jump while nobody asked":      {[]step{{1000 * time.Hour, year, 0}, {4 * time.Minute, 0, year}}, []string{"8760h0m0s false", "8760h0m0s true"}},
		"a little more than a small one": {[]step{{0, time.Minute + 1, 0}}, []string{"1m0.000000001s false"}},
	} {
		var elapsed, off time.Duration
		var told []string
		k := clock.New(func() time.Time { return start.Add(elapsed + off) }, func() time.Duration { return elapsed }, func(jump time.Duration, believed bool) {
			told = append(told, fmt.Sprint(jump, " ", believed))
		})
		for i, s := range c.steps {
			elapsed += s.pass
			off += s.jump
			if got, want := k.Now(), start.Add(elapsed+s.off); !got.Equal(want) {
				t.Errorf("%s: after step %d it is %v, want %v", name, i+1, got, want)
			}
			if got, want := k.Steady(), s.off == off; got != want {
				t.Errorf("%s: after step %d it is steady: %v, want %v", name, i+1, got, want)
			}
		}
		if !slices.Equal(told, c.told) {
			t.Errorf("%s: it told %q, want %q", name, told, c.told)
		}
	}
}

// Go's instants carry a reading of a clock that never jumps; the differences
// between two of them hide that the wall clock did.
func TestTheMachinesOwnClock(t *testing.T) {
	begun := time.Now()
	off := time.Duration(0)
	k := clock.New(func() time.Time { return time.Now().Add(off) }, func() time.Duration { return time.Since(begun) }, func(time.Duration, bool) {})
	off = 24 * time.Hour
	if got := k.Now(); time.Since(got).Abs() > time.Hour {
		t.Errorf("a second after a jump it is %v", got)
	}
}
