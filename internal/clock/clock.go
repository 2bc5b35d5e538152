// Package clock tells a server the time.
//
// It promises that a jump of the machine's clock that passes soon is not seen
// at all: time goes on as it would have without it. A jump that lasts is
// followed. So a clock that is wrong for a minute expires nothing, and destroys
// nothing that cannot be brought back. It never waits, and sets no clock.
package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Jump is how far a clock must move by itself to have jumped; what is less
	// is the work of a time service, and is followed at once.
	Jump = time.Minute
	// Doubt is how long a jump must last to be believed.
	Doubt = 4 * time.Minute
)

// Clock is a clock whose jumps are doubted at first. Its method Now is safe for
// concurrent use.
type Clock struct {
	wall    func() time.Time
	elapsed func() time.Duration
	told    func(jump time.Duration, believed bool)

	// steady is what mu guards, as it was when the clock was last looked at closely;
	// nil while a jump is doubted. Most calls need no more than that.
	steady atomic.Pointer[reading]

	mu      sync.Mutex    // guards what follows
	base    time.Time     // what the time was
	at      time.Duration // when so much had elapsed
	doubted time.Duration // the jump that is doubted; 0 when there is none
	since   time.Duration // when it was noticed
}

// reading is the time when so much had elapsed.
type reading struct {
	base time.Time
	at   time.Duration
}

// A reading is good for closeFor, and for times that are within closeTo of it.
const (
	closeFor = time.Second
	closeTo  = 100 * time.Millisecond
)

// New returns a clock after wall, which may jump, and elapsed, which tells how
// much time has passed since some instant and never jumps. told is called when
// a jump is noticed, and when it is believed.
func New(wall func() time.Time, elapsed func() time.Duration, told func(jump time.Duration, believed bool)) *Clock {
	return &Clock{wall: wall, elapsed: elapsed, told: told, base: wall(), at: elapsed()}
}

// Steady says that no jump is doubted: the machine's clock was right all along,
// or was believed.
func (c *Clock) Steady() bool {
	c.look()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.doubted == 0
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	if r := c.steady.Load(); r != nil {
		wall, elapsed := c.wall(), c.elapsed()
		passed := elapsed - r.at
		if moved := wall.Round(0).Sub(r.base.Round(0)) - passed; passed < closeFor && moved.Abs() <= closeTo {
			return wall
		}
	}
	return c.look()
}

// look compares the two clocks closely.
func (c *Clock) look() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, elapsed := c.wall(), c.elapsed()
	expected := c.base.Add(elapsed - c.at)
	// The readings of elapsed time that Go's instants carry would hide the jump.
	jump := wall.Round(0).Sub(expected.Round(0))
	switch {
	case jump.Abs() <= Jump:
		c.doubted = 0
	case c.doubted == 0 || (jump-c.doubted).Abs() > Jump:
		c.doubted, c.since = jump, elapsed
		c.steady.Store(nil)
		c.told(jump, false)
		return expected
	case elapsed-c.since < Doubt:
		return expected
	default:
		c.doubted = 0
		c.told(jump, true)
	}
	c.base, c.at = wall, elapsed
	c.steady.Store(&reading{wall, elapsed})
	return wall
}
