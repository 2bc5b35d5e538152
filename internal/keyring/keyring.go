// Package keyring seals and opens protected data, one tenant at a time.
//
// It promises that a value sealed for one tenant, record and field cannot be
// opened as any other, and that a short-lived value cannot be opened by anyone
// an hour after the minute in which it was sealed. It never writes plaintext
// or keys anywhere. Only what takes a context does I/O or calls the KMS: get
// *Keys, *EpochKey and *EpochSet before a transaction, and use them inside.
//
// Every primitive is Tink's. FORMAT.md beside this file describes the bytes.
package keyring

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// What the keyring reports.
var (
	// ErrWrongKEK says that this installation was made with another
	// key-encryption key than the one that was configured.
	ErrWrongKEK = errors.New("keyring: this is not the key-encryption key of this installation")
	// ErrNoKeys says that a tenant has no keys: there is no such tenant, or its
	// keys were destroyed.
	ErrNoKeys = errors.New("keyring: the tenant has no keys")
	// ErrDamaged says that bytes are not what was sealed for this tenant,
	// record and field. It comes inside an OpenError.
	ErrDamaged = errors.New("keyring: a sealed value does not open")
	// ErrGone says that the key of a short-lived value was destroyed.
	ErrGone = errors.New("keyring: the short-lived key is gone")
	// ErrOtherEpoch says that an EpochSet was asked to open a value of an epoch
	// for which it was not made.
	ErrOtherEpoch = errors.New("keyring: the key of this epoch was not fetched")
	// ErrInUse says that a key cannot be dropped: something still needs it.
	ErrInUse = errors.New("keyring: the key is still in use")
	// ErrNotRotated says that there is no finished rotation whose old keys
	// could be dropped.
	ErrNotRotated = errors.New("keyring: no finished rotation")
)

// OpenError says which value did not open. Its words name the field alone,
// because a record's id may be a tenant's own; the id is there for a tool of
// the operator that asks for it.
type OpenError struct {
	Record string
	Field  string
}

func (e *OpenError) Error() string { return ErrDamaged.Error() + ": " + e.Field }

// Unwrap makes errors.Is(err, ErrDamaged) hold.
func (e *OpenError) Unwrap() error { return ErrDamaged }

// Options are the settings of a Ring. The zero Options are good ones.
type Options struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// CacheTenants bounds the tenants whose keys are held in memory, and four
	// times as many epoch keys; 0 means 1024.
	CacheTenants int
	// CacheFor is how long keys in memory are used before the store is asked
	// whether they changed; 0 means 30 seconds. A rotation waits twice as long
	// wherever another node, or a running request, could hold older keys.
	CacheFor time.Duration
	// Requests is how long a request may take from sealing a value to storing
	// it. An old key is not destroyed before that time has passed since values
	// were last sealed with it: what came in later would be lost.
	Requests time.Duration
	// Wait pauses a rotation; nil means a timer.
	Wait func(ctx context.Context, d time.Duration) error
	// Missing is called, at most once a second, with the id of a key-encryption
	// key that something is wrapped with and that the KMS does not have; nil
	// means nothing is called.
	Missing func(id string)
	// Later lets Open succeed while the KMS is not reachable. No key of a tenant
	// is used before the KMS has proved that it holds the right key; see Prove.
	Later bool
}

// Ring hands out the keys of tenants. Its methods are safe for concurrent use.
type Ring struct {
	kms      KMS
	store    store.Store
	now      func() time.Time
	wait     func(context.Context, time.Duration) error
	cacheFor time.Duration
	requests time.Duration
	missing  missing
	proven   atomic.Bool // the KMS opened the check value

	tenants *lru[string, *Keys]
	loads   flights[string, *Keys]
	epochs  *lru[epochID, *EpochKey]
	makes   flights[epochID, *EpochKey]
}

// Open returns the ring of an installation. On an empty store it leaves a
// check value behind; from then on it returns ErrWrongKEK for a KMS that does
// not open it, before a single key of a tenant is used.
func Open(ctx context.Context, kms KMS, s store.Store, o Options) (*Ring, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.CacheTenants <= 0 {
		o.CacheTenants = 1024
	}
	if o.CacheFor <= 0 {
		o.CacheFor = 30 * time.Second
	}
	if o.Wait == nil {
		o.Wait = pause
	}
	r := &Ring{
		kms: kms, store: s, now: o.Now, wait: o.Wait, cacheFor: o.CacheFor, requests: o.Requests, missing: missing{report: o.Missing},
		tenants: newLRU[string, *Keys](o.CacheTenants),
		epochs:  newLRU[epochID, *EpochKey](4 * o.CacheTenants),
	}
	if err := r.Prove(ctx); err != nil && !(o.Later && IsKMSDown(err)) {
		return nil, err
	}
	return r, nil
}

// Prove makes sure that the KMS holds the key-encryption key of this
// installation. It does nothing once that was seen. An error for which
// IsKMSDown holds says that it could not be found out; ErrWrongKEK is final.
func (r *Ring) Prove(ctx context.Context) error {
	if r.proven.Load() {
		return nil
	}
	if err := r.check(ctx); err != nil {
		return err
	}
	r.proven.Store(true)
	return nil
}

// Proven reports whether the KMS has proved that it holds the right key.
func (r *Ring) Proven() bool { return r.proven.Load() }

// ForgetAll drops every key from memory: from then on the KMS is asked again.
func (r *Ring) ForgetAll() {
	r.tenants.clear()
	r.epochs.clear()
}

// checkSetting names the installation's check value: a constant, wrapped.
const (
	checkSetting = "keyring.check"
	checkText    = "tokenkeep"
)

// check verifies the KEK against the check value, and leaves one when the
// installation is new. It reads back what it left: of two nodes that start on
// an empty store with different KEKs, one loses here.
func (r *Ring) check(ctx context.Context) error {
	value, err := r.store.AllTenants().Setting(ctx, checkSetting)
	if errors.Is(err, store.ErrNotFound) {
		if value, err = r.leaveCheck(ctx); err != nil {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("keyring: read the check value: %w", err)
	}
	id, wrapped, err := parseCheck(value)
	if err != nil {
		return err
	}
	text, err := r.kms.Unwrap(ctx, id, wrapped, bind(checkLabel))
	if errors.Is(err, ErrUnwrap) {
		return fmt.Errorf("%w: it was made with %q", ErrWrongKEK, id)
	}
	if err != nil {
		return fmt.Errorf("keyring: open the check value: %w", err)
	}
	if string(text) != checkText {
		return fmt.Errorf("keyring: the check value holds something else: %w", ErrDamaged)
	}
	return nil
}

// leaveCheck puts a check value on an installation without tenants and returns
// what is stored then.
func (r *Ring) leaveCheck(ctx context.Context) ([]byte, error) {
	tenants, err := r.store.AllTenants().Tenants(ctx, "", 1)
	if err != nil {
		return nil, fmt.Errorf("keyring: look for tenants: %w", err)
	}
	if len(tenants) > 0 {
		return nil, fmt.Errorf("keyring: there are tenants but no check value: %w", ErrDamaged)
	}
	if err := r.putCheck(ctx); err != nil {
		return nil, err
	}
	return r.store.AllTenants().Setting(ctx, checkSetting)
}

// putCheck wraps the check value with the primary KEK.
func (r *Ring) putCheck(ctx context.Context) error {
	wrapped, id, err := r.kms.Wrap(ctx, []byte(checkText), bind(checkLabel))
	if err != nil {
		return fmt.Errorf("keyring: wrap the check value: %w", err)
	}
	if err := r.store.AllTenants().PutSetting(ctx, checkSetting, formatCheck(id, wrapped)); err != nil {
		return fmt.Errorf("keyring: keep the check value: %w", err)
	}
	return nil
}

// pause waits for d or until the context ends.
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
