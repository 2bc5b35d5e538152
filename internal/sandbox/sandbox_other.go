//go:build !linux

package sandbox

import (
	"context"
	"errors"
)

// Sandbox stands for one where there is no wall to build: nothing runs.
type Sandbox struct{}

// Main reports false: no process is ever started here.
func Main() bool { return false }

// New refuses every level but UnsafeNone, with which a server may start for
// development; calls then give ErrOff.
func New(_ context.Context, s Settings) (*Sandbox, error) {
	if s.Level != UnsafeNone {
		return nil, errors.New("code of tenants runs on Linux alone: set the level to unsafe_none to go without")
	}
	s.filled().Log.Warn("code of tenants does not run on this system")
	return &Sandbox{}, nil
}

// Level is UnsafeNone.
func (*Sandbox) Level() Level { return UnsafeNone }

// Close does nothing.
func (*Sandbox) Close() error { return nil }

// Run gives ErrOff.
func (*Sandbox) Run(_ context.Context, _ Program, c Call) (Outcome, error) {
	clear(c.Input)
	return Outcome{}, ErrOff
}

// Check gives ErrOff.
func (*Sandbox) Check(context.Context, string, string) error { return ErrOff }
