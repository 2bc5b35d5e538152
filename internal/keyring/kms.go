package keyring

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// KMS wraps and unwraps keysets with key-encryption keys that never leave it.
// Package kmstest checks an implementation against these words. Its methods
// are safe for concurrent use.
type KMS interface {
	// Primary returns the id of the key that Wrap uses: 1 to 255 printable
	// ASCII characters, not secret, the same for as long as the key exists. It
	// does no I/O.
	Primary() string

	// Owns reports whether the key of that id is known to be one of its own. It
	// does no I/O: a KMS that learns of new keys later may own more than it
	// reports.
	Owns(id string) bool

	// Wrap encrypts up to 4 KiB, bound to the associated data, and returns the
	// id of the key that it used.
	Wrap(ctx context.Context, plaintext, associated []byte) (wrapped []byte, id string, err error)

	// Unwrap returns what was wrapped with the key of that id and with the same
	// associated data. It returns ErrNoKEK when it does not have the key,
	// ErrUnwrap when the key does not open the bytes, ErrKMSUnavailable when it
	// cannot find out, and ErrKEKRefused when the key exists and may not be used.
	// Errors never contain plaintext or text from outside.
	Unwrap(ctx context.Context, id string, wrapped, associated []byte) ([]byte, error)
}

// What only some can do. Callers look for these with a type assertion.
type (
	// Lister names all its keys, oldest first.
	Lister interface{ IDs() []string }
	// Reloader reads its keys again.
	Reloader interface{ Reload() error }
	// Rotator makes a new key, which is the primary one from then on.
	Rotator interface {
		Rotate(ctx context.Context) (id string, err error)
	}
	// Dropper removes a key that is not the primary one. What the key wrapped
	// does not open any more: Ring.DropKEK makes sure that there is nothing.
	Dropper interface {
		Drop(ctx context.Context, id string) error
	}
	// Prober finds out whether the primary key can be used, and whether the
	// server may do more with it than it should.
	Prober interface {
		Probe(ctx context.Context) error
	}
	// Adviser tells an operator what to run where the server cannot do it.
	Adviser interface {
		Advise(what Operation) string
	}
)

// Operation is something that an operator wants done with key-encryption keys.
type Operation string

// The operations that a KMS may leave to other tools.
const (
	Create Operation = "create"
	Rotate Operation = "rotate"
	Drop   Operation = "drop"
)

// What a KMS reports.
var (
	// ErrUnwrap says that a KMS does not have the key, or that the key does not
	// open the bytes.
	ErrUnwrap = errors.New("keyring: the key-encryption key does not open this")
	// ErrNoKEK is an ErrUnwrap that says that a KMS does not have the key.
	// Another server may: the configuration is to be made the same there and here.
	ErrNoKEK = fmt.Errorf("%w: this server does not have the key-encryption key", ErrUnwrap)
	// ErrKMSUnavailable says that a KMS cannot be reached, is overloaded, or
	// does not respond as it should. It is never an ErrUnwrap: nothing is lost.
	ErrKMSUnavailable = errors.New("keyring: the KMS is not available")
	// ErrKEKRefused says that a KMS refuses to use the key: it is disabled or
	// scheduled for deletion, or the server lacks a permission. It is never an
	// ErrUnwrap: nothing is lost.
	ErrKEKRefused = errors.New("keyring: the KMS refuses to use the key-encryption key")
	// ErrExcess says that the server may do more with a key than it should.
	ErrExcess = errors.New("keyring: the server's credentials allow more than they should")
)

// IsKMSDown reports whether an error says that the KMS could not be used, so
// that a later attempt may succeed.
func IsKMSDown(err error) bool {
	return errors.Is(err, ErrKMSUnavailable) || errors.Is(err, ErrKEKRefused)
}

// Unsupported says that a KMS leaves an operation to other tools.
type Unsupported struct {
	What   Operation
	Advice string // what to run; "" when that is not known
}

func (u *Unsupported) Error() string {
	if u.Advice == "" {
		return fmt.Sprintf("keyring: this KMS does not let the server %s key-encryption keys", u.What)
	}
	return fmt.Sprintf("keyring: this KMS does not let the server %s key-encryption keys; %s", u.What, u.Advice)
}

// Several is a KMS of one or more: the first wraps, and each unwraps what is its
// own. It can do what its members can, and returns Unsupported for the rest.
type Several []KMS

var _ interface {
	KMS
	Lister
	Reloader
	Rotator
	Dropper
	Prober
	io.Closer
} = Several(nil)

// Primary returns the id of the key that wraps.
func (s Several) Primary() string { return s[0].Primary() }

// Owns reports whether one of them owns the key.
func (s Several) Owns(id string) bool {
	for _, k := range s {
		if k.Owns(id) {
			return true
		}
	}
	return false
}

// Wrap encrypts with the first.
func (s Several) Wrap(ctx context.Context, plaintext, associated []byte) ([]byte, string, error) {
	return s[0].Wrap(ctx, plaintext, associated)
}

// Unwrap decrypts with the one that owns the key, or else with the first that
// turns out to have it.
func (s Several) Unwrap(ctx context.Context, id string, wrapped, associated []byte) ([]byte, error) {
	for _, k := range s {
		if k.Owns(id) {
			return k.Unwrap(ctx, id, wrapped, associated)
		}
	}
	err := fmt.Errorf("%w: %q", ErrNoKEK, id)
	for _, k := range s {
		plaintext, e := k.Unwrap(ctx, id, wrapped, associated)
		if !errors.Is(e, ErrNoKEK) {
			return plaintext, e
		}
	}
	return nil, err
}

// IDs returns the ids of all keys that the members name, and otherwise those
// that wrap; the primary one is among them.
func (s Several) IDs() []string {
	var ids []string
	for _, k := range s {
		if l, ok := k.(Lister); ok {
			ids = append(ids, l.IDs()...)
		} else {
			ids = append(ids, k.Primary())
		}
	}
	return ids
}

// Reload reads the keys again of those that can.
func (s Several) Reload() error {
	var failed []error
	for _, k := range s {
		if r, ok := k.(Reloader); ok {
			failed = append(failed, r.Reload())
		}
	}
	return errors.Join(failed...)
}

// Rotate makes a new primary key.
func (s Several) Rotate(ctx context.Context) (string, error) {
	if r, ok := s[0].(Rotator); ok {
		return r.Rotate(ctx)
	}
	return "", unsupported(s[0], Rotate)
}

// Drop removes a key of the one that owns it.
func (s Several) Drop(ctx context.Context, id string) error {
	for _, k := range s {
		if !k.Owns(id) {
			continue
		}
		if d, ok := k.(Dropper); ok {
			return d.Drop(ctx, id)
		}
		return unsupported(k, Drop)
	}
	return fmt.Errorf("%w: %q", ErrNoKEK, id)
}

// Probe tries the primary key.
func (s Several) Probe(ctx context.Context) error {
	if p, ok := s[0].(Prober); ok {
		return p.Probe(ctx)
	}
	return nil
}

// Close closes those that can be closed.
func (s Several) Close() error {
	var failed []error
	for _, k := range s {
		if c, ok := k.(io.Closer); ok {
			failed = append(failed, c.Close())
		}
	}
	return errors.Join(failed...)
}

func unsupported(k KMS, what Operation) error {
	u := &Unsupported{What: what}
	if a, ok := k.(Adviser); ok {
		u.Advice = a.Advise(what)
	}
	return u
}

// missing reports key-encryption keys that are not here, once a second at most.
type missing struct {
	report func(id string)

	mu   sync.Mutex // guards last
	last time.Time
}

func (m *missing) tell(id string, now time.Time) {
	if m.report == nil {
		return
	}
	m.mu.Lock()
	soon := now.Sub(m.last) >= 0 && now.Sub(m.last) < time.Second
	if !soon {
		m.last = now
	}
	m.mu.Unlock()
	if !soon {
		m.report(id)
	}
}
