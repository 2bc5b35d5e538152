package store

import "context"

// Tenant is the row of a tenant. Names and settings stand in clear: both are
// an operator's words, never protected values.
type Tenant struct {
	ID         string
	Name       string
	Settings   map[string]string
	Secrets    []byte // sealed; nil when there are none
	CreatedBy  string
	CreatedAt  Time
	ModifiedBy string
	ModifiedAt Time
	// Deleting is set from the moment that the tenant's keys are destroyed
	// until its last row is gone.
	Deleting bool
}

// TenantRows are the methods of a transaction on the tenant's own row.
type TenantRows interface {
	// InsertTenant adds the row of this transaction's tenant.
	InsertTenant(ctx context.Context, t Tenant) error
	// TenantRow returns the row of this transaction's tenant.
	TenantRow(ctx context.Context) (Tenant, error)
	// ReplaceTenant changes the row of this transaction's tenant. ErrNotFound
	// when it is not there or says Deleting already: that is not taken back.
	ReplaceTenant(ctx context.Context, t Tenant) error
	// DeleteTenantRows removes up to limit rows of the tenant, its own row
	// last, and reports whether any are left. The log batches stay: an
	// operator can still verify them.
	DeleteTenantRows(ctx context.Context, limit int) (more bool, err error)
}

// KeysetRows are the methods on the tenant's wrapped keysets and on the marks
// that long work leaves behind.
type KeysetRows interface {
	// Keysets returns all wrapped keysets of the tenant.
	Keysets(ctx context.Context) ([]Keyset, error)
	// PutKeyset keeps a wrapped keyset. ErrConflict when Version is not one
	// more than that of the row it replaces (0 when there is none).
	PutKeyset(ctx context.Context, k Keyset) error
	// DestroyKeysets overwrites and removes every wrapped keyset.
	DestroyKeysets(ctx context.Context) error

	// Mark returns how far a named piece of long work has come, or ErrNotFound.
	Mark(ctx context.Context, name string) ([]byte, error)
	// PutMark notes how far it has come; a nil value removes the mark.
	PutMark(ctx context.Context, name string, value []byte) error
}

// Keyset is a set of keys of one tenant for one purpose, wrapped by the
// key-encryption key that KEK names.
type Keyset struct {
	Purpose    string
	Wrapped    []byte
	KEK        string
	Version    int64
	CreatedAt  Time
	ModifiedAt Time
}
