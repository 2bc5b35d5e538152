package directory

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

var (
	errUnknownKey = fault.New(fault.Unauthenticated, "the API key is not known")
	errExpired    = fault.New(fault.Unauthenticated, "the application of this API key has expired")
)

// Authenticate finds the caller of a key. The key is looked up by its keyed
// hash, so that neither the look-up nor its time tells anything of the keys
// that exist. It asks the store every time: a key that was revoked a moment
// ago, or a session that ended on another node, opens nothing.
func (s *Service) Authenticate(ctx context.Context, text secret.Text) (access.Caller, error) {
	k, ok := access.ParseKey(text, access.PublicKey, access.PrivateKey, access.ManagementKey, access.SessionKey)
	if !ok {
		return access.Caller{}, errUnknownKey
	}
	keys, err := s.ring.For(ctx, k.Tenant())
	if errors.Is(err, keyring.ErrNoKeys) || errors.Is(err, store.ErrNoTenant) {
		return access.Caller{}, errUnknownKey
	}
	if err != nil {
		return access.Caller{}, fmt.Errorf("get keys: %w", err)
	}
	if k.Kind() == access.SessionKey {
		return s.authenticateSession(ctx, keys, text)
	}
	hash := keys.HashKey(text)
	var found store.Key
	var a store.Application
	err = s.store.View(ctx, k.Tenant(), func(tx store.Tx) (err error) {
		found, a, err = tx.KeyByHash(ctx, hash)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return access.Caller{}, errUnknownKey
	}
	if err != nil {
		return access.Caller{}, fmt.Errorf("look up key: %w", err)
	}
	kind := access.ApplicationType(a.Type)
	bound := subtle.ConstantTimeCompare([]byte(found.ID), []byte(keyID(keys, text, a.ID)))
	if subtle.ConstantTimeCompare(found.Hash, hash)&bound != 1 || kind.KeyKind() != k.Kind() {
		return access.Caller{}, errUnknownKey
	}
	grant, err := s.grants.of(k.Tenant(), keys, a)
	if err != nil {
		return access.Caller{}, err
	}
	if !a.ExpiresAt.IsZero() && a.ExpiresAt <= store.At(s.now()) {
		return access.Caller{}, errExpired
	}
	return access.NewApplication(k.Tenant(), a.ID, kind, grant).WithKey(found.ID), nil
}

// Acting is the caller that an application or, where session is not empty, one
// of its sessions is at this moment, for work that goes on in its name without
// its key: code of a reactor, and runs that nobody waits for.
func (s *Service) Acting(ctx context.Context, tenant, application, session string) (c access.Caller, err error) {
	keys, err := s.ring.For(ctx, tenant)
	if err != nil {
		return access.Caller{}, fmt.Errorf("get keys: %w", err)
	}
	err = s.store.View(ctx, tenant, func(tx store.Tx) error {
		if session != "" {
			r, err := tx.Session(ctx, session)
			if err != nil {
				return notFound(err, errNoSession)
			}
			c, err = s.callerOfSession(ctx, tx, keys, r)
			return err
		}
		r, err := rowOf(ctx, tx, application)
		if err != nil {
			return err
		}
		var state Inactive
		if c, state, err = s.holderOf(keys, r); err == nil && state != Active {
			return errExpired
		}
		return err
	})
	return c, err
}
