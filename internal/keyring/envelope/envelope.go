// Package envelope makes a keyring.KMS out of a service that encrypts short
// keys.
//
// It promises that every wrap has a fresh key, that the wrapped bytes open only
// with the associated data and the key id that they were wrapped with, and that
// a service is never called by more than a few requests at a time. Only the
// fresh key goes to the service, never what is wrapped. It never passes on what
// a service said: error texts of services are known to repeat plaintext.
package envelope

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tink-crypto/tink-go/v2/aead/subtle"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
)

// Service encrypts and decrypts keys of 32 bytes with one key-encryption key. It
// returns keyring.ErrKMSUnavailable, ErrKEKRefused, ErrNoKEK or ErrUnwrap, and
// an error without one of these counts as ErrKMSUnavailable. Its methods are
// safe for concurrent use and return when the context ends.
type Service interface {
	Encrypt(ctx context.Context, key []byte) (encrypted []byte, err error)
	Decrypt(ctx context.Context, encrypted []byte) (key []byte, err error)
}

// Options are the settings of a KMS. The zero Options are good ones.
type Options struct {
	// Concurrent bounds the calls in flight; 0 means 16.
	Concurrent int
	// Attempts bounds the calls for one operation while the service is not
	// available; 0 means 5.
	Attempts int
	// Timeout bounds one call; 0 means DefaultTimeout.
	Timeout time.Duration
	// Wait pauses between attempts; nil means a timer.
	Wait func(ctx context.Context, d time.Duration) error
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Called is told how a call ended and how long it took; nil means nobody is.
	Called func(operation string, err error, took time.Duration)
}

// KMS wraps with fresh keys that a service encrypts.
type KMS struct {
	id      string
	service Service
	options Options
	slots   chan struct{}
	// rest is until when nobody calls the service, in Unix nanoseconds: it was
	// not available a moment ago, and every request of every tenant may want it.
	rest atomic.Int64
}

// resting is how long the service is left alone after it was not available.
const resting = time.Second

// DefaultTimeout is how long one call of a service may take.
const DefaultTimeout = 5 * time.Second

var _ interface {
	keyring.KMS
	keyring.Prober
	keyring.Adviser
	io.Closer
} = (*KMS)(nil)

// New returns the KMS of the key-encryption key with that id.
func New(id string, s Service, o Options) *KMS {
	if o.Concurrent <= 0 {
		o.Concurrent = 16
	}
	if o.Attempts <= 0 {
		o.Attempts = 5
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Wait == nil {
		o.Wait = pause
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &KMS{id: id, service: s, options: o, slots: make(chan struct{}, o.Concurrent)}
}

// Primary returns the id of the key.
func (k *KMS) Primary() string { return k.id }

// Owns reports whether it is the id of the key.
func (k *KMS) Owns(id string) bool { return id == k.id }

// The format of wrapped bytes: a version, the length of the encrypted key in two
// bytes, the encrypted key, and what AES-256-GCM makes of the plaintext.
const (
	version   = 1
	header    = 1 + 2
	keySize   = 32
	maxWrap   = 4 << 10
	maxSealed = 1<<16 - 1
)

// Wrap encrypts with a fresh key and has the service encrypt that.
func (k *KMS) Wrap(ctx context.Context, plaintext, associated []byte) ([]byte, string, error) {
	if len(plaintext) > maxWrap {
		return nil, "", errors.New("envelope: more than 4 KiB to wrap")
	}
	key := make([]byte, keySize)
	defer clear(key)
	_, _ = rand.Read(key) // it never fails
	var encrypted []byte
	err := k.call(ctx, "encrypt", func(ctx context.Context) (err error) {
		encrypted, err = k.service.Encrypt(ctx, key)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	if len(encrypted) == 0 || len(encrypted) > maxSealed {
		return nil, "", fmt.Errorf("envelope: the service returned %d bytes: %w", len(encrypted), keyring.ErrKMSUnavailable)
	}
	cipher, err := subtle.NewAESGCM(key)
	if err != nil {
		return nil, "", fmt.Errorf("envelope: %w", err)
	}
	sealed, err := cipher.Encrypt(plaintext, k.bind(associated, encrypted))
	if err != nil {
		return nil, "", fmt.Errorf("envelope: %w", err)
	}
	wrapped := make([]byte, header, header+len(encrypted)+len(sealed))
	wrapped[0] = version
	binary.BigEndian.PutUint16(wrapped[1:], uint16(len(encrypted)))
	return append(append(wrapped, encrypted...), sealed...), k.id, nil
}

// Unwrap has the service decrypt the key and decrypts with that.
func (k *KMS) Unwrap(ctx context.Context, id string, wrapped, associated []byte) ([]byte, error) {
	if id != k.id {
		return nil, fmt.Errorf("%w: %q", keyring.ErrNoKEK, id)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(wrapped) < header || wrapped[0] != version {
		return nil, keyring.ErrUnwrap
	}
	end := header + int(binary.BigEndian.Uint16(wrapped[1:]))
	if len(wrapped) < end {
		return nil, keyring.ErrUnwrap
	}
	encrypted, sealed := wrapped[header:end], wrapped[end:]
	var key []byte
	err := k.call(ctx, "decrypt", func(ctx context.Context) (err error) {
		key, err = k.service.Decrypt(ctx, encrypted)
		return err
	})
	defer clear(key)
	if err != nil {
		return nil, err
	}
	if len(key) != keySize {
		return nil, keyring.ErrUnwrap
	}
	cipher, err := subtle.NewAESGCM(key)
	if err != nil {
		return nil, fmt.Errorf("envelope: %w", err)
	}
	plaintext, err := cipher.Decrypt(sealed, k.bind(associated, encrypted))
	if err != nil {
		return nil, keyring.ErrUnwrap
	}
	return plaintext, nil
}

// bind returns what the encryption is bound to: each part with its length in
// front, so that no two lists of parts are the same bytes.
func (k *KMS) bind(associated, encrypted []byte) []byte {
	var bound []byte
	for _, part := range [][]byte{[]byte("tokenkeep envelope 1"), []byte(k.id), associated, encrypted} {
		bound = binary.BigEndian.AppendUint32(bound, uint32(len(part)))
		bound = append(bound, part...)
	}
	return bound
}

// Probe wraps and unwraps a constant, and has the service look at its own
// permissions when it can.
func (k *KMS) Probe(ctx context.Context) error {
	wrapped, id, err := k.Wrap(ctx, []byte("probe"), nil)
	if err == nil {
		_, err = k.Unwrap(ctx, id, wrapped, nil)
	}
	if err != nil {
		return err
	}
	if p, ok := k.service.(keyring.Prober); ok {
		return p.Probe(ctx)
	}
	return nil
}

// Advise returns what the service advises.
func (k *KMS) Advise(what keyring.Operation) string {
	if a, ok := k.service.(keyring.Adviser); ok {
		return a.Advise(what)
	}
	return ""
}

// Close closes the service when it can be.
func (k *KMS) Close() error {
	if c, ok := k.service.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// call calls the service when fewer than Concurrent others do, and again while
// it is not available.
func (k *KMS) call(ctx context.Context, operation string, do func(context.Context) error) error {
	select {
	case k.slots <- struct{}{}:
		defer func() { <-k.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for attempt := 0; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if k.options.Now().UnixNano() < k.rest.Load() {
			return keyring.ErrKMSUnavailable
		}
		began := time.Now()
		err := k.once(ctx, do)
		if k.options.Called != nil {
			k.options.Called(operation, err, time.Since(began))
		}
		if !errors.Is(err, keyring.ErrKMSUnavailable) {
			return err
		}
		if attempt+1 >= k.options.Attempts || errors.Is(err, context.DeadlineExceeded) {
			k.rest.Store(k.options.Now().Add(resting).UnixNano())
			return err
		}
		if k.options.Wait(ctx, backoff(attempt)) != nil {
			return err
		}
	}
}

// once calls the service one time and classifies its error.
func (k *KMS) once(ctx context.Context, do func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, k.options.Timeout)
	defer cancel()
	err := do(within)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case within.Err() != nil:
		return fmt.Errorf("%w: %w", keyring.ErrKMSUnavailable, within.Err())
	case errors.Is(err, keyring.ErrKEKRefused), errors.Is(err, keyring.ErrUnwrap), errors.Is(err, keyring.ErrKMSUnavailable):
		return err
	}
	return keyring.ErrKMSUnavailable // its own words stay out
}

// backoff returns a random time up to a bound that doubles, so that callers who
// were refused together do not come back together.
func backoff(attempt int) time.Duration {
	return mathrand.N(min(100*time.Millisecond<<attempt, 2*time.Second))
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
