// Package clocktest is a clock that tests move by hand.
//
// It promises to stand still until it is moved, and to be safe for concurrent
// use. It never looks at the machine's clock, and it is used by tests alone.
package clocktest

import (
	"sync"
	"time"
)

// Clock is a clock. Its method Now is what servers and services take.
type Clock struct {
	mu  sync.Mutex // guards now
	now time.Time
}

// New returns a clock that stands at an instant.
func New(at time.Time) *Clock { return &Clock{now: at} }

// Now returns where it stands.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves it, back where d is negative, and returns where it stands then.
func (c *Clock) Advance(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	return c.now
}
