package keyring

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// TenantStatus says which keys a tenant has and what still needs them.
type TenantStatus struct {
	Tenant string
	// KEKs are the key-encryption keys that wrap the tenant's keysets: more
	// than one, or another than the KMS's primary, while RotateKEK has work.
	KEKs []string
	// Made is when the tenant's first keys were made.
	Made time.Time
	Data []DataKey
	// Rotation is the last one, of the zero Phase when there never was one.
	Rotation Rotation
}

// DataKey is a key under which values of a tenant are sealed.
type DataKey struct {
	ID      uint32
	Primary bool
	Made    time.Time
	// Values counts what is sealed with the key. It is counted while there is
	// more than one, and -1 otherwise: then it is everything.
	Values int64
}

// Status calls each with the state of every tenant, in the order of their ids.
// It asks the KMS only about tenants whose rotation is not finished, and for
// those it also looks at every value.
func (r *Ring) Status(ctx context.Context, each func(TenantStatus) error) error {
	return r.eachTenant(ctx, func(tenant string) error {
		status, err := r.status(ctx, tenant)
		if err != nil {
			return err
		}
		return each(status)
	})
}

func (r *Ring) status(ctx context.Context, tenant string) (TenantStatus, error) {
	status := TenantStatus{Tenant: tenant}
	var rows []store.Keyset
	var row store.Tenant
	err := r.store.View(ctx, tenant, func(tx store.Tx) (err error) {
		if rows, err = tx.Keysets(ctx); err != nil {
			return err
		}
		if row, err = tx.TenantRow(ctx); err != nil {
			return err
		}
		status.Rotation, err = readRotation(ctx, tx)
		return err
	})
	if err != nil {
		return TenantStatus{}, fmt.Errorf("keyring: read the state of keys: %w", err)
	}
	if len(rows) == 0 {
		return TenantStatus{}, ErrNoKeys
	}
	for _, row := range rows {
		if !slices.Contains(status.KEKs, row.KEK) {
			status.KEKs = append(status.KEKs, row.KEK)
		}
		if row.Purpose == purposeData {
			status.Made = row.CreatedAt.Time()
		}
	}
	// A tenant has one data key unless a rotation is under way, and that key
	// sealed the tenant's own secrets.
	switch key, err := KeyID(row.Secrets); {
	case status.Rotation.Phase == Retired:
		status.Data = []DataKey{{ID: status.Rotation.Key, Primary: true, Made: status.Rotation.Made.Time(), Values: -1}}
		return status, nil
	case status.Rotation.Phase == "" && err == nil:
		status.Data = []DataKey{{ID: key, Primary: true, Made: status.Made, Values: -1}}
		return status, nil
	}
	return status, r.countKeys(ctx, tenant, &status)
}

// countKeys opens a tenant's keyset and counts what is sealed with each of its
// data keys.
func (r *Ring) countKeys(ctx context.Context, tenant string, status *TenantStatus) error {
	sets, err := r.load(ctx, tenant, nil)
	if err != nil {
		return err
	}
	var uses map[uint32]int64
	if sets.data.Len() > 1 {
		if uses, err = r.uses(ctx, tenant); err != nil {
			return err
		}
	}
	for _, info := range sets.data.KeysetInfo().GetKeyInfo() {
		key := DataKey{ID: info.GetKeyId(), Primary: info.GetKeyId() == sets.primary, Made: status.Made, Values: -1}
		switch {
		case key.ID == status.Rotation.Key:
			key.Made = status.Rotation.Made.Time()
		case status.Rotation.Phase != "":
			key.Made = status.Rotation.Old.Time()
		}
		if uses != nil {
			key.Values = uses[key.ID]
		}
		status.Data = append(status.Data, key)
	}
	return nil
}

// OpenKeys opens the keysets of every tenant, all of them with the KMS.
func (r *Ring) OpenKeys(ctx context.Context) error {
	return r.eachTenant(ctx, func(tenant string) error {
		_, err := r.load(ctx, tenant, nil)
		return err
	})
}

// OldKEKs returns the key-encryption keys, other than the primary one, that
// wrap something: keysets, or the check value, which a rotation wraps last. It
// does not ask the KMS.
func (r *Ring) OldKEKs(ctx context.Context) ([]string, error) {
	check, err := r.checkedBy(ctx)
	if err != nil {
		return nil, err
	}
	var old []string
	if check != r.kms.Primary() {
		old = append(old, check)
	}
	err = r.eachTenant(ctx, func(tenant string) error {
		rows, err := r.keysets(ctx, tenant)
		for _, row := range rows {
			if row.KEK != r.kms.Primary() && !slices.Contains(old, row.KEK) {
				old = append(old, row.KEK)
			}
		}
		return err
	})
	return old, err
}

// uses counts the sealed values of a tenant by the key that they name, and the
// epoch keys with them; what names no key counts under 0.
func (r *Ring) uses(ctx context.Context, tenant string) (map[uint32]int64, error) {
	uses := make(map[uint32]int64)
	for _, source := range sources {
		if err := r.countSource(ctx, tenant, source, uses); err != nil {
			return nil, fmt.Errorf("keyring: look at %s: %w", source.name, err)
		}
	}
	err := r.eachEpoch(ctx, tenant, func(_ epochID, wrapped []byte) error {
		id, _ := KeyID(wrapped)
		uses[id]++
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("keyring: %w", err)
	}
	return uses, nil
}

// countSource adds the values of one source.
func (r *Ring) countSource(ctx context.Context, tenant string, s source, uses map[uint32]int64) error {
	return r.eachPage(ctx, tenant, s, func(row sealedRow) {
		for _, value := range row.values {
			if len(*value.sealed) > 0 {
				id, _ := KeyID(*value.sealed)
				uses[id]++
			}
		}
	}, nil)
}
