package directory

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

var (
	errUnknownKey = fault.New(fault.Unauthenticated, "unknown API key").WithCode("api_key_unknown")
	errNoElements = fault.New(fault.NotFound, "no such public key")
	errExpired    = fault.New(fault.Unauthenticated, "the application of this API key has expired").WithCode("application_expired")
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
	found, known, err := s.lookUp(ctx, keys, k)
	if err != nil {
		return access.Caller{}, err
	}
	s.used.note(k.Tenant(), found.ID, s.now())
	return access.NewApplication(k.Tenant(), known.row.ID, access.ApplicationType(known.row.Type), known.grant).WithKey(found.ID).WithActorName(known.row.Name), nil
}

// lookUp finds the application of a key, as it is now.
func (s *Service) lookUp(ctx context.Context, keys *keyring.Keys, k access.Key) (found store.Key, known knownGrant, err error) {
	hash := keys.HashKey(k.Text())
	var a store.Application
	err = s.store.View(ctx, k.Tenant(), func(tx store.Tx) (err error) {
		found, a, err = tx.KeyByHash(ctx, hash)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return found, known, errUnknownKey
	}
	if err != nil {
		return found, known, fmt.Errorf("look up key: %w", err)
	}
	bound := subtle.ConstantTimeCompare([]byte(found.ID), []byte(keyID(keys, k.Text(), a.ID)))
	if subtle.ConstantTimeCompare(found.Hash, hash)&bound != 1 || access.ApplicationType(a.Type).KeyKind() != k.Kind() {
		return found, known, errUnknownKey
	}
	if known, err = s.grants.opened(k.Tenant(), keys, a); err != nil {
		return found, known, err
	}
	if !a.ExpiresAt.IsZero() && a.ExpiresAt <= store.At(s.now()) {
		return found, known, errExpired
	}
	return found, known, nil
}

// AllowedOrigins returns the pages that may embed fields with the key of a
// public application: none when the application has no list. A key that is
// malformed, revoked, expired or not of a public application is not found, and
// the fault is the same for all of them: nothing is told of keys that are not
// made for browsers. It reads the store every time, as Authenticate does.
func (s *Service) AllowedOrigins(ctx context.Context, key secret.Text) ([]string, error) {
	k, ok := access.ParseKey(key, access.PublicKey)
	if !ok {
		return nil, errNoElements
	}
	keys, err := s.ring.For(ctx, k.Tenant())
	if errors.Is(err, keyring.ErrNoKeys) || errors.Is(err, store.ErrNoTenant) {
		return nil, errNoElements
	}
	if err != nil {
		return nil, fmt.Errorf("get keys: %w", err)
	}
	_, known, err := s.lookUp(ctx, keys, k)
	if errors.Is(err, fault.Unauthenticated) {
		return nil, errNoElements
	}
	return slices.Clone(known.origins), err
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
