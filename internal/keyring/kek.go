package keyring

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// tries bounds how often a change is begun again because rows changed meanwhile.
const tries = 10

// again runs do until it meets no conflict. Work of this kind is long, and
// stands behind no request: a store that is busy, or away for a moment, is
// waited for.
func (r *Ring) again(ctx context.Context, do func() error) (err error) {
	for n := range tries {
		if err = do(); errors.Is(err, store.ErrUnavailable) {
			if stopped := r.wait(ctx, min(20*time.Millisecond<<n, 2*time.Second)); stopped != nil {
				return err
			}
		} else if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return err
}

// eachTenant calls do with the id of every tenant that still has keys.
func (r *Ring) eachTenant(ctx context.Context, do func(tenant string) error) error {
	const page = 100
	for after := ""; ; {
		tenants, err := r.store.AllTenants().Tenants(ctx, after, page)
		if err != nil {
			return fmt.Errorf("keyring: list tenants: %w", err)
		}
		for _, t := range tenants {
			if err := do(t.ID); err != nil && !errors.Is(err, ErrNoKeys) {
				return err
			}
			after = t.ID
		}
		if len(tenants) < page {
			return nil
		}
	}
}

// RotateKEK wraps everything anew that is not wrapped by the KMS's primary
// key. Values stay as they are, and requests are served meanwhile: a keyset is
// readable with the one key before and with the other one after. A run that
// was killed is simply run again. progress, when not nil, gets the number of
// keysets that were wrapped so far.
func (r *Ring) RotateKEK(ctx context.Context, progress func(wrapped int)) error {
	wrapped := 0
	for {
		before := wrapped
		err := r.eachTenant(ctx, func(tenant string) error {
			n, err := r.rewrap(ctx, tenant)
			if wrapped += n; n > 0 && progress != nil {
				progress(wrapped)
			}
			return err
		})
		if err != nil {
			return err
		}
		if wrapped == before { // nothing came in behind us
			break
		}
	}
	// The check value comes last: until all is done, a start without the old
	// key is refused.
	return r.putCheck(ctx)
}

// rewrap wraps the keysets of one tenant with the primary KEK and returns how
// many were not.
func (r *Ring) rewrap(ctx context.Context, tenant string) (n int, err error) {
	err = r.again(ctx, func() error {
		rows, err := r.keysets(ctx, tenant)
		if err != nil {
			return err
		}
		var changed []store.Keyset
		for _, row := range rows {
			if row.KEK == r.kms.Primary() {
				continue
			}
			keys, err := r.unwrapSet(ctx, tenant, row)
			if err != nil {
				return err
			}
			if err := r.wrapSet(ctx, tenant, keys, &row); err != nil {
				return err
			}
			row.Version++
			row.ModifiedAt = store.At(r.now())
			changed = append(changed, row)
		}
		if n = len(changed); n == 0 {
			return nil
		}
		return r.store.Update(ctx, tenant, func(tx store.Tx) error {
			for _, row := range changed {
				if err := tx.PutKeyset(ctx, row); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return 0, fmt.Errorf("keyring: wrap a tenant's keys anew: %w", err)
	}
	return n, nil
}

// DropKEK calls drop with the id of a key-encryption key after it made sure
// that nothing is wrapped by it: ErrInUse otherwise, and for the primary one.
// Backups made before the rotation need the old key: whoever drops it keeps a
// copy for as long as they keep those.
func (r *Ring) DropKEK(ctx context.Context, id string, drop func(ctx context.Context, id string) error) error {
	if id == r.kms.Primary() {
		return fmt.Errorf("%w: it is the primary one", ErrInUse)
	}
	wrappedBy, err := r.checkedBy(ctx)
	if err != nil {
		return err
	}
	if wrappedBy == id {
		return fmt.Errorf("%w: it wraps the check value", ErrInUse)
	}
	uses := 0
	err = r.eachTenant(ctx, func(tenant string) error {
		rows, err := r.keysets(ctx, tenant)
		for _, row := range rows {
			if row.KEK == id {
				uses++
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	if uses > 0 {
		return fmt.Errorf("%w: it wraps %d keysets", ErrInUse, uses)
	}
	return drop(ctx, id)
}

// checkedBy returns the id of the key-encryption key that wraps the check value.
func (r *Ring) checkedBy(ctx context.Context) (string, error) {
	value, err := r.store.AllTenants().Setting(ctx, checkSetting)
	if err != nil {
		return "", fmt.Errorf("keyring: read the check value: %w", err)
	}
	id, _, err := parseCheck(value)
	return id, err
}
