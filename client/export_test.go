package client

import (
	"context"
	"time"
)

// WithSleep replaces the waiting between tries.
func WithSleep(f func(context.Context, time.Duration) error) Option {
	return func(c *caller) error {
		c.sleep = f
		return nil
	}
}

// WithNow replaces the clock against which the dates of Retry-After are read.
func WithNow(f func() time.Time) Option {
	return func(c *caller) error {
		c.now = f
		return nil
	}
}

// Sleep is the waiting that WithSleep replaces.
var Sleep = sleep

// NewUUID makes the trace ids of Follow.
var NewUUID = newUUID
