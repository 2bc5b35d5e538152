package storetest

import (
	"context"
	"sync"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Failing is a store of which one call fails: it stands in front of another and
// lets everything through but the call that FailAt chose. A commit is a call
// too. A call that fails did nothing.
type Failing struct {
	inner  store.Store
	counts func(context.Context) bool

	mu    sync.Mutex // guards what follows
	left  int        // calls until one fails; 0 when none will
	cause error
	name  string // of the call that failed
}

// NewFailing stands in front of a store. It counts the calls whose context
// counts says true of, so that others, such as chores, neither fail nor count.
func NewFailing(inner store.Store, counts func(context.Context) bool) *Failing {
	return &Failing{inner: inner, counts: counts}
}

// Inner returns the store behind it.
func (f *Failing) Inner() store.Store { return f.inner }

// FailAt lets the n-th call from now fail, once, with that cause.
func (f *Failing) FailAt(n int, cause error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left, f.cause, f.name = n, cause, ""
}

// Rest lets everything through again, and returns the name of the call that
// failed, or "" when it did not come to that.
func (f *Failing) Rest() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = 0
	return f.name
}

// fails counts a call, and returns why it fails if it is its turn.
func (f *Failing) fails(ctx context.Context, name string) error {
	if !f.counts(ctx) {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == 0 {
		return nil
	}
	if f.left--; f.left > 0 {
		return nil
	}
	f.name = name
	return f.cause
}

func (f *Failing) do(ctx context.Context, name string, call func() error) error {
	if err := f.fails(ctx, name); err != nil {
		return err
	}
	return call()
}

func get[T any](ctx context.Context, f *Failing, name string, call func() (T, error)) (v T, err error) {
	if err := f.fails(ctx, name); err != nil {
		return v, err
	}
	return call()
}

// View implements store.Store.
func (f *Failing) View(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	return f.do(ctx, "View", func() error {
		return f.inner.View(ctx, tenant, func(tx store.Tx) error { return fn(failingTx{f, tx}) })
	})
}

// Read implements store.Store. The commit of its entries is a call too.
func (f *Failing) Read(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	return f.do(ctx, "Read", func() error { return f.inner.Read(ctx, tenant, f.transaction(ctx, fn)) })
}

// Update implements store.Store.
func (f *Failing) Update(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	return f.do(ctx, "Update", func() error { return f.inner.Update(ctx, tenant, f.transaction(ctx, fn)) })
}

// transaction is fn with calls that may fail. A store may run a transaction
// again, say because another in the same commit was taken back: one that failed
// fails again then.
func (f *Failing) transaction(ctx context.Context, fn func(store.Tx) error) func(store.Tx) error {
	var failed error
	return func(tx store.Tx) error {
		if failed != nil {
			return failed
		}
		before := f.failedCall()
		err := fn(failingTx{f, tx})
		if err == nil {
			err = f.fails(ctx, "commit")
		}
		if err != nil && f.failedCall() != before {
			failed = err
		}
		return err
	}
}

// failedCall returns the name of the call that failed; "" when none has.
func (f *Failing) failedCall() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.name
}

// AllTenants implements store.Store.
func (f *Failing) AllTenants() store.AllTenants { return failingTenants{f, f.inner.AllTenants()} }

// EpochKeys implements store.Store.
func (f *Failing) EpochKeys() store.EpochKeys { return failingEpochs{f, f.inner.EpochKeys()} }

// Ready implements store.Store.
func (f *Failing) Ready(ctx context.Context) error {
	return f.do(ctx, "Ready", func() error { return f.inner.Ready(ctx) })
}

// Room implements store.Store.
func (f *Failing) Room() error { return f.inner.Room() }

// Check implements store.Store.
func (f *Failing) Check(ctx context.Context, progress func(string)) ([]string, error) {
	return f.inner.Check(ctx, progress)
}

// Now implements store.Store.
func (f *Failing) Now(ctx context.Context) (time.Time, error) { return f.inner.Now(ctx) }

// Backups implements store.Store.
func (f *Failing) Backups() store.Backups { return f.inner.Backups() }

// Close implements store.Store.
func (f *Failing) Close() error { return f.inner.Close() }
