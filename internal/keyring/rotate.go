package keyring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Phase is how far the rotation of a tenant's data key has come.
type Phase string

// The phases, in their order. Each is written down in the transaction that
// brings it about, so a run that was killed goes on from there.
const (
	// Introduced: the new key is in the keyset and opens; nothing is sealed
	// with it before every node and every running request knows it.
	Introduced Phase = "introduced"
	// Promoted: new values are sealed with the new key, except by those who
	// have not yet heard of it.
	Promoted Phase = "promoted"
	// Resealing: nobody seals with the old key; old values are sealed anew.
	Resealing Phase = "resealing"
	// Resealed: every value was seen. RetireTenant may destroy the old keys.
	Resealed Phase = "resealed"
	// Retired: the old keys are destroyed. A next rotation may begin.
	Retired Phase = "retired"
)

var phases = []Phase{Introduced, Promoted, Resealing, Resealed, Retired}

// Rotation tells how far the rotation of a tenant's data key has come.
type Rotation struct {
	Phase Phase      `json:"phase"`
	Key   uint32     `json:"key"`   // the new key
	Made  store.Time `json:"made"`  // when it was made
	Old   store.Time `json:"old"`   // when the key before it was made
	Since store.Time `json:"since"` // when the phase began
	// Promoted is when the new key began to seal; no time in marks of older
	// releases.
	Promoted store.Time `json:"promoted,omitempty"`
	// How many rows have been looked at, sealed anew and found damaged. What
	// is damaged stays as it is, and so does the key that it names.
	Seen     int64 `json:"seen"`
	Resealed int64 `json:"resealed"`
	Damaged  int64 `json:"damaged"`

	Source int             `json:"source"`          // index of the source at work
	After  *store.Position `json:"after,omitempty"` // the last row that was seen
}

// rotationMark is where a tenant's Rotation is kept. It is trusted with no
// more than the order of the work: whether an old key can go is found out by
// looking at every value.
const rotationMark = "keyring.rotation"

// resealBatch is how many rows one transaction looks at. A row may hold
// megabytes.
const resealBatch = 25

// RotateTenant gives a tenant a new data key and seals its old values anew, in
// small transactions, while requests are served. A run that was killed, or
// whose context ended, is simply run again; one on a tenant whose rotation is
// Resealed does nothing. Short-lived values are under epoch keys, of which
// only the wrapping changes, and hashes have keys that never change. progress,
// when not nil, is called after every step.
//
// The new key is introduced in two steps because a node that has not heard of
// it can neither open what another one sealed nor know that it should look.
func (r *Ring) RotateTenant(ctx context.Context, tenant string, progress func(Rotation)) error {
	for {
		at, err := r.step(ctx, tenant)
		if err != nil {
			return fmt.Errorf("keyring: rotate a tenant's key: %w", err)
		}
		if progress != nil {
			progress(at)
		}
		if at.Phase == Resealed {
			return nil
		}
	}
}

// step does the next piece of a rotation.
func (r *Ring) step(ctx context.Context, tenant string) (at Rotation, err error) {
	if at, err = r.rotation(ctx, tenant); err != nil {
		return at, err
	}
	switch at.Phase {
	case Introduced:
		if err := r.settle(ctx, at.Since); err != nil {
			return at, err
		}
		return r.changeKeys(ctx, tenant, at.Phase, func(m *keyset.Manager, _ store.Keyset, at *Rotation) error {
			at.Phase, at.Promoted = Promoted, store.At(r.now())
			return m.SetPrimary(at.Key)
		})
	case Promoted:
		if err := r.settle(ctx, at.Since); err != nil {
			return at, err
		}
		return r.advance(ctx, tenant, Promoted, Resealing)
	case Resealing:
		if at.Source < len(sources) {
			return r.reseal(ctx, tenant)
		}
		if err := r.rewrapEpochs(ctx, tenant); err != nil {
			return at, err
		}
		return r.advance(ctx, tenant, Resealing, Resealed)
	case Resealed:
		return at, nil
	default: // never rotated, or Retired
		return r.changeKeys(ctx, tenant, at.Phase, func(m *keyset.Manager, row store.Keyset, at *Rotation) error {
			old := at.Made
			if old.IsZero() {
				old = row.CreatedAt
			}
			id, err := m.Add(aead.XAES256GCM192BitNonceKeyTemplate())
			*at = Rotation{Phase: Introduced, Key: id, Made: store.At(r.now()), Old: old}
			return err
		})
	}
}

// RetireTenant destroys a tenant's old data keys, the last step of a rotation.
// It waits until no request from before is left, and looks at every value:
// ErrInUse when one still names an old key, and then the next RotateTenant goes
// through all rows once more. ErrNotRotated when there is no rotation that is
// Resealed. store.ErrNewerSchema when a newer release may have values that this
// one does not know to look at.
func (r *Ring) RetireTenant(ctx context.Context, tenant string) error {
	at, err := r.rotation(ctx, tenant)
	if err != nil {
		return err
	}
	if at.Phase != Resealed {
		return ErrNotRotated
	}
	// A request that sealed a value before may still be about to store it.
	if err := r.outwait(ctx, at.Promoted, 2*r.cacheFor+r.requests); err != nil {
		return err
	}
	uses, err := r.uses(ctx, tenant)
	if err != nil {
		return err
	}
	if err := r.store.AllTenants().Current(ctx); err != nil {
		return fmt.Errorf("keyring: destroy an old key on a server of the newest release: %w", err)
	}
	delete(uses, at.Key)
	if len(uses) > 0 {
		if _, err := r.advance(ctx, tenant, Resealed, Resealing); err != nil {
			return err
		}
		return fmt.Errorf("%w: values are sealed with %d other keys", ErrInUse, len(uses))
	}
	_, err = r.changeKeys(ctx, tenant, Resealed, func(m *keyset.Manager, _ store.Keyset, at *Rotation) error {
		at.Phase = Retired
		return keepOnly(m, at.Key)
	})
	return err
}

// replacePasses bounds how often ReplaceTenantKey goes through all rows.
const replacePasses = 3

// ReplaceTenantKey rotates a tenant's data key and retires the old ones. When
// something has stored a value under an old key behind the look at it, all rows
// are looked at again; what is damaged stops it with ErrInUse, as do values
// that keep coming.
func (r *Ring) ReplaceTenantKey(ctx context.Context, tenant string, progress func(Rotation)) error {
	for pass := 1; ; pass++ {
		var last Rotation
		err := r.RotateTenant(ctx, tenant, func(at Rotation) {
			last = at
			progress(at)
		})
		if err != nil {
			return err
		}
		if err = r.RetireTenant(ctx, tenant); !errors.Is(err, ErrInUse) || last.Damaged > 0 || pass == replacePasses {
			return err
		}
	}
}

// keepOnly takes every key but one out of a keyset.
func keepOnly(m *keyset.Manager, id uint32) error {
	var errs []error
	for _, key := range must(m.Handle()).KeysetInfo().GetKeyInfo() {
		if key.GetKeyId() != id {
			errs = append(errs, m.Delete(key.GetKeyId()))
		}
	}
	return errors.Join(errs...)
}

// rotation reads how far a tenant's rotation has come; the zero Rotation when
// there never was one.
func (r *Ring) rotation(ctx context.Context, tenant string) (at Rotation, err error) {
	err = r.store.View(ctx, tenant, func(tx store.Tx) error {
		at, err = readRotation(ctx, tx)
		return err
	})
	return at, err
}

func readRotation(ctx context.Context, tx store.Tx) (at Rotation, err error) {
	mark, err := tx.Mark(ctx, rotationMark)
	if errors.Is(err, store.ErrNotFound) {
		return Rotation{}, nil
	}
	if err != nil {
		return Rotation{}, err
	}
	if err := json.Unmarshal(mark, &at); err != nil || at.Source < 0 || !slices.Contains(phases, at.Phase) {
		return Rotation{}, fmt.Errorf("the mark of the rotation: %w", ErrDamaged)
	}
	return at, nil
}

func putRotation(ctx context.Context, tx store.Tx, at Rotation) error {
	return tx.PutMark(ctx, rotationMark, must(json.Marshal(at)))
}

// settle waits until whoever held keys at that instant holds them no more. A
// clock that was set back makes it no longer than it is at most.
func (r *Ring) settle(ctx context.Context, since store.Time) error {
	return r.outwait(ctx, since, 2*r.cacheFor)
}

// outwait waits until so much time has passed since an instant.
func (r *Ring) outwait(ctx context.Context, since store.Time, full time.Duration) error {
	left := since.Time().Add(full).Sub(r.now())
	if left <= 0 {
		return nil
	}
	return r.wait(ctx, min(left, full))
}

// changeKeys changes the data keyset together with the state of the rotation,
// unless another run was faster and the phase is not from any more.
func (r *Ring) changeKeys(ctx context.Context, tenant string, from Phase,
	change func(*keyset.Manager, store.Keyset, *Rotation) error) (at Rotation, err error) {
	err = r.again(ctx, func() error {
		rows, err := r.keysets(ctx, tenant)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(rows, func(k store.Keyset) bool { return k.Purpose == purposeData })
		if i < 0 {
			return ErrNoKeys
		}
		row := rows[i]
		if at, err = r.rotation(ctx, tenant); err != nil || at.Phase != from {
			return err
		}
		keys, err := r.unwrapSet(ctx, tenant, row)
		if err != nil {
			return err
		}
		manager := keyset.NewManagerFromHandle(keys)
		if err := change(manager, row, &at); err != nil {
			return err
		}
		at.Since = store.At(r.now())
		if err := r.wrapSet(ctx, tenant, must(manager.Handle()), &row); err != nil {
			return err
		}
		row.Version++
		row.ModifiedAt = at.Since
		return r.store.Update(ctx, tenant, func(tx store.Tx) error {
			// The version of the keyset guards the mark too: no phase from
			// which this is called is left without a change of the keyset.
			if err := tx.PutKeyset(ctx, row); err != nil {
				return err
			}
			return putRotation(ctx, tx, at)
		})
	})
	if err != nil {
		return at, err
	}
	_, err = r.refresh(ctx, tenant)
	return at, err
}

// advance goes from one phase to another, unless another run was faster.
// Sealing anew always begins with the first row.
func (r *Ring) advance(ctx context.Context, tenant string, from, to Phase) (at Rotation, err error) {
	err = r.again(ctx, func() error {
		return r.store.Update(ctx, tenant, func(tx store.Tx) error {
			if at, err = readRotation(ctx, tx); err != nil || at.Phase != from {
				return err
			}
			at.Phase, at.Since = to, store.At(r.now())
			if to == Resealing {
				at.Source, at.After, at.Seen, at.Damaged = 0, nil, 0, 0
			}
			return putRotation(ctx, tx, at)
		})
	})
	return at, err
}

// reseal seals the values of the next batch of rows anew, and notes how far it
// came in the same transaction.
func (r *Ring) reseal(ctx context.Context, tenant string) (at Rotation, err error) {
	keys, err := r.refresh(ctx, tenant)
	if err != nil {
		return at, err
	}
	err = r.again(ctx, func() error {
		return r.store.Update(ctx, tenant, func(tx store.Tx) error {
			if at, err = readRotation(ctx, tx); err != nil {
				return err
			}
			if at.Phase != Resealing || at.Source >= len(sources) {
				return nil // another run was faster
			}
			rows, err := sources[at.Source].page(ctx, tx, at.After, resealBatch)
			if err != nil {
				return err
			}
			for _, row := range rows {
				if err := resealRow(keys, row, &at); err != nil {
					return err
				}
			}
			if len(rows) > 0 {
				at.After = &rows[len(rows)-1].at
			}
			if len(rows) < resealBatch {
				at.Source, at.After = at.Source+1, nil
			}
			return putRotation(ctx, tx, at)
		})
	})
	return at, err
}

// resealRow seals the values of one row anew that are under an old key.
func resealRow(keys *Keys, row sealedRow, at *Rotation) error {
	at.Seen++
	changed, damaged := false, false
	for _, value := range row.values {
		if id, err := KeyID(*value.sealed); len(*value.sealed) == 0 || err == nil && id == at.Key {
			continue
		}
		plaintext, err := keys.Open(row.record, value.field, *value.sealed)
		if err != nil {
			damaged = true
			continue
		}
		sealed, err := keys.Seal(row.record, value.field, plaintext)
		clear(plaintext)
		if err != nil {
			return err
		}
		*value.sealed, changed = sealed, true
	}
	if damaged {
		at.Damaged++
	}
	if !changed {
		return nil
	}
	at.Resealed++
	return row.put()
}

// rewrapEpochs wraps the tenant's epoch keys with its new data key.
func (r *Ring) rewrapEpochs(ctx context.Context, tenant string) error {
	keys, err := r.refresh(ctx, tenant)
	if err != nil {
		return err
	}
	return r.eachEpoch(ctx, tenant, func(id epochID, wrapped []byte) error {
		if by, err := KeyID(wrapped); err == nil && by == keys.Primary() {
			return nil
		}
		handle, err := readWrapped(keys, id, wrapped)
		if err != nil {
			return nil //nolint:nilerr // it opens nothing, and will be gone within the hour
		}
		err = r.store.EpochKeys().ReplaceEpochKey(ctx, tenant, id.number, wrapEpoch(keys, id, handle))
		if errors.Is(err, store.ErrNotFound) {
			return nil // destroyed meanwhile
		}
		return err
	})
}

// eachEpoch calls do with every wrapped epoch key of a tenant.
func (r *Ring) eachEpoch(ctx context.Context, tenant string, do func(epochID, []byte) error) error {
	numbers, err := r.store.EpochKeys().EpochKeyList(ctx, tenant)
	if err != nil {
		return fmt.Errorf("list epoch keys: %w", err)
	}
	for _, number := range numbers {
		wrapped, err := r.store.EpochKeys().EpochKey(ctx, tenant, number)
		if errors.Is(err, store.ErrNotFound) {
			continue // destroyed meanwhile
		}
		if err != nil {
			return fmt.Errorf("read an epoch key: %w", err)
		}
		if err := do(epochID{tenant, number}, wrapped); err != nil {
			return err
		}
	}
	return nil
}
