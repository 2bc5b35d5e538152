// Package directory knows the tenants of an installation, their applications
// and keys, and whose key a caller presents.
//
// It promises that a key is shown once and kept only as a keyed hash, that a
// key which was revoked opens nothing from the next request on, and that every
// change and every look is in the log with it. It never decides what a caller
// may do beyond asking package access.
package directory

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Service keeps the directory. Its methods are safe for concurrent use.
type Service struct {
	store       store.Store
	ring        *keyring.Ring
	now         func() time.Time
	environment string
	seal        func(ctx context.Context, tenant string) error
	random      io.Reader
}

// New returns a service. environment is the word that its keys carry; seal
// seals a tenant's log, which must happen before the tenant's keys go.
func New(s store.Store, ring *keyring.Ring, now func() time.Time, environment string, seal func(ctx context.Context, tenant string) error) *Service {
	return &Service{store: s, ring: ring, now: now, environment: environment, seal: seal, random: rand.Reader}
}

// Made says who made and last changed a thing, and when.
type Made struct {
	CreatedBy  string
	CreatedAt  time.Time
	ModifiedBy string
	ModifiedAt time.Time
}

const maxName = 200 // characters

// checkName notes what is wrong with the name of a thing.
func checkName(f *fault.Fields, name string) {
	if n := utf8.RuneCountInString(name); n < 1 || n > maxName {
		f.Add("name", "must have 1 to 200 characters")
	}
	for _, r := range name {
		if unicode.IsControl(r) {
			f.Add("name", "must not hold control characters")
		}
	}
}

// logged runs a change or a look with its entry in one transaction.
func (s *Service) logged(ctx context.Context, c access.Caller, entityType, entityID string, op audit.Operation, fn func(store.Tx) error) error {
	return s.update(ctx, c, func(tx store.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return tx.AppendLog(ctx, audit.Entry(c, s.now(), entityType, entityID, op))
	})
}

// update runs fn on the rows of the caller's tenant, unless that is gone or
// going: a request that was let in before must not leave rows behind those
// that a deletion removes.
func (s *Service) update(ctx context.Context, c access.Caller, fn func(store.Tx) error) error {
	err := s.store.Update(ctx, c.Tenant(), func(tx store.Tx) error {
		t, err := tx.TenantRow(ctx)
		if err != nil {
			return notFound(err, errNoTenant)
		}
		if t.Deleting {
			return errTenantIsGone
		}
		return fn(tx)
	})
	if errors.Is(err, store.ErrNoTenant) {
		return errNoTenant // the operator named one that cannot exist
	}
	return err
}

// sealJSON seals a value for a field of a record; nil when it is empty.
func sealJSON[T any](keys *keyring.Keys, record, field string, v []T) ([]byte, error) {
	if len(v) == 0 {
		return nil, nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", field, err)
	}
	return keys.Seal(record, field, b)
}

func openJSON[T any](keys *keyring.Keys, record, field string, sealed []byte) (v []T, err error) {
	if sealed == nil {
		return nil, nil
	}
	b, err := keys.Open(record, field, sealed)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, fmt.Errorf("decode %s: %w", field, err)
	}
	return v, nil
}

// notFound turns the store's "not there" into words for the caller.
func notFound(err error, otherwise *fault.Fault) error {
	if errors.Is(err, store.ErrNotFound) {
		return otherwise
	}
	return err
}
