package keyring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tink-crypto/tink-go/v2/keyset"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// For returns the keys of a tenant: call it before a transaction, never in
// one. It asks the store now and then whether the keys changed, and the KMS
// only when they did.
func (r *Ring) For(ctx context.Context, tenant string) (*Keys, error) {
	if keys, ok := r.tenants.get(tenant); ok {
		age := r.now().Sub(keys.current.Load().checked)
		if age >= 0 && age < r.cacheFor {
			return keys, nil
		}
	}
	return r.loads.do(ctx, tenant, func(ctx context.Context) (*Keys, error) { return r.refresh(ctx, tenant) })
}

// Forget drops what memory holds of a tenant's keys, epoch keys too. Call it
// when they have been destroyed in the store: from then on For finds none.
func (r *Ring) Forget(tenant string) {
	r.tenants.drop(func(t string) bool { return t == tenant })
	r.epochs.drop(func(e epochID) bool { return e.tenant == tenant })
	r.loads.leave(tenant, nil)
}

// refresh brings what memory holds of a tenant up to what the store has.
func (r *Ring) refresh(ctx context.Context, tenant string) (*Keys, error) {
	before := r.tenants.before()
	keys, cached := r.tenants.get(tenant)
	var known *keySets
	if cached {
		known = keys.current.Load()
	}
	sets, err := r.load(ctx, tenant, known)
	if errors.Is(err, ErrNoKeys) {
		r.Forget(tenant) // another node destroyed them
	}
	if err != nil {
		return nil, err
	}
	if !cached {
		keys = &Keys{tenant: tenant}
		keys.current.Store(sets)
		keys = r.tenants.put(tenant, keys, before)
	}
	keys.learn(sets)
	return keys, nil
}

// stillOpening is how long keys that were replaced go on opening what requests
// under way have read. A rotation may be followed by another at once, so that
// several generations of keys are among them; beyond so many the oldest goes.
const (
	stillOpening   = 30 * time.Second
	maxGenerations = 16
)

// learn replaces the keys by those that were read, unless newer ones came in
// between.
func (k *Keys) learn(sets *keySets) {
	for {
		current := k.current.Load()
		if current.version > sets.version {
			return
		}
		next := *sets
		if current.version < sets.version {
			next.before, next.beforeEnds = current.opening(sets.checked, maxGenerations), sets.checked.Add(stillOpening)
		}
		if k.current.CompareAndSwap(current, &next) {
			return
		}
	}
}

// opening returns the keys without those before them whose time is over, or
// that are too many.
func (k *keySets) opening(now time.Time, generations int) *keySets {
	kept := *k
	if generations == 1 || now.After(k.beforeEnds) {
		kept.before = nil
	}
	if kept.before != nil {
		kept.before = kept.before.opening(now, generations-1)
	}
	return &kept
}

// load reads a tenant's keysets and unwraps them; those that are known already
// are not unwrapped again.
func (r *Ring) load(ctx context.Context, tenant string, known *keySets) (*keySets, error) {
	checked := r.now() // before reading: a change during it is found next time
	rows, err := r.keysets(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if known != nil && slices.EqualFunc(rows, known.rows, sameKeyset) {
		again := *known
		again.checked = checked
		if checked.After(again.beforeEnds) {
			again.before = nil
		}
		return &again, nil
	}
	sets, err := r.unwrapAll(ctx, tenant, rows)
	if err != nil {
		return nil, err
	}
	sets.checked = checked
	return sets, nil
}

func (r *Ring) unwrapAll(ctx context.Context, tenant string, rows []store.Keyset) (*keySets, error) {
	var version int64
	handles := make(map[string]*keyset.Handle)
	for _, row := range rows {
		handle, err := r.unwrapSet(ctx, tenant, row)
		if err != nil {
			return nil, err
		}
		handles[row.Purpose] = handle
		version += row.Version
	}
	sets, err := newKeySets(handles)
	if err != nil {
		return nil, err
	}
	sets.rows, sets.version = rows, version
	return sets, nil
}

// Unstored returns the keys of keysets that NewTenant made and nobody has put
// yet: what a new tenant begins with is sealed before the transaction.
func (r *Ring) Unstored(ctx context.Context, tenant string, rows []store.Keyset) (*Keys, error) {
	sets, err := r.unwrapAll(ctx, tenant, rows)
	if err != nil {
		return nil, err
	}
	keys := &Keys{tenant: tenant}
	keys.current.Store(sets)
	return keys, nil
}

// keysets reads the wrapped keysets of a tenant; ErrNoKeys when there are none.
func (r *Ring) keysets(ctx context.Context, tenant string) (rows []store.Keyset, err error) {
	err = r.store.View(ctx, tenant, func(tx store.Tx) error {
		rows, err = tx.Keysets(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("keyring: read wrapped keys: %w", err)
	}
	if len(rows) == 0 {
		return nil, ErrNoKeys
	}
	return rows, nil
}

func sameKeyset(a, b store.Keyset) bool {
	return a.Purpose == b.Purpose && a.Version == b.Version && a.KEK == b.KEK && bytes.Equal(a.Wrapped, b.Wrapped)
}
