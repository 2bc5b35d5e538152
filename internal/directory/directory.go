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
	"slices"
	"strings"
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
	grants      grants
	used        keyUse
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
	} else if strings.TrimSpace(name) == "" {
		f.Add("name", "must not be blank")
	}
	for _, r := range name {
		if unicode.IsControl(r) {
			f.Add("name", "must not hold control characters")
		}
	}
}

// logged runs a change or a read with its entry in one transaction.
func (s *Service) logged(ctx context.Context, c access.Caller, entityType, entityID string, op audit.Operation, fn func(store.Tx) error) error {
	run := s.update
	if op == audit.Read {
		run = s.read
	}
	return run(ctx, c, func(tx store.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return tx.AppendLog(ctx, audit.Entry(c, s.now(), entityType, entityID, op))
	})
}

// update runs fn on the rows of the caller's tenant, unless that is gone or
// going. The store would keep nothing of it anyway; to look first is to say why.
func (s *Service) update(ctx context.Context, c access.Caller, fn func(store.Tx) error) error {
	return s.within(ctx, c, s.store.Update, fn)
}

// read is update for what only reads, and logs that.
func (s *Service) read(ctx context.Context, c access.Caller, fn func(store.Tx) error) error {
	return s.within(ctx, c, s.store.Read, fn)
}

// within runs fn in a transaction of the store, after the look at the tenant.
func (s *Service) within(ctx context.Context, c access.Caller, run func(context.Context, string, func(store.Tx) error) error, fn func(store.Tx) error) error {
	err := run(ctx, c.Tenant(), func(tx store.Tx) error {
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

// sealedGrant is all that decides what an application may do. It is sealed as
// one, for this application alone, although the row has some of it in clear:
// whoever can write to the database, and has a key, must not give that key
// more by changing a row, or by taking the rules away that hold it back.
type sealedGrant struct {
	Type        string        `json:"type"`
	Permissions []string      `json:"permissions,omitempty"`
	Rules       []access.Rule `json:"rules,omitempty"`
	ExpiresAt   store.Time    `json:"expires_at,omitempty"`
	// AllowedOrigins are the pages that may embed fields. A server of the
	// release before drops them when it replaces an application.
	AllowedOrigins []string `json:"allowed_origins,omitempty"`
}

// sealGrant seals a row with the rules and the origins.
func sealGrant(keys *keyring.Keys, r *store.Application, rules []access.Rule, origins []string) error {
	b, err := json.Marshal(sealedGrant{r.Type, r.Permissions, rules, r.ExpiresAt, origins})
	if err != nil {
		return fmt.Errorf("encode a grant: %w", err)
	}
	r.Rules, err = keys.Seal(r.ID, keyring.FieldApplicationRules, b)
	return err
}

// openGrant returns the grant of an application whose row says what was sealed.
func openGrant(keys *keyring.Keys, r store.Application) (g sealedGrant, err error) {
	b, err := keys.Open(r.ID, keyring.FieldApplicationRules, r.Rules)
	if err != nil {
		return g, err
	}
	if err := json.Unmarshal(b, &g); err != nil {
		return sealedGrant{}, errors.New("decode a grant") // the decoder's words may repeat it
	}
	if g.Type != r.Type || g.ExpiresAt != r.ExpiresAt || !slices.Equal(g.Permissions, r.Permissions) {
		return sealedGrant{}, &keyring.OpenError{Record: r.ID, Field: keyring.FieldApplicationRules}
	}
	return g, nil
}

// notFound turns the store's "not there" into words for the caller.
func notFound(err error, otherwise *fault.Fault) error {
	if errors.Is(err, store.ErrNotFound) {
		return otherwise
	}
	return err
}
