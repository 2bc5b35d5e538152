package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Attempt is what a refused call was about, as far as its route tells. The zero
// Attempt is a call that names nothing in its path.
type Attempt struct {
	// Entity is the entity type that the call is about; Token for tokens of
	// every type.
	Entity string
	// ID is the id in the path as the caller sent it, and may be anything. It
	// is logged only if there is such an entity.
	ID string
	// Application is the application in the path of a key.
	Application string
	// Permission is what the call needs. The refusal of another permission is
	// about something else, unless it is one on the same entity type.
	Permission access.Permission
	// Operation is what the call does to the entity, if the permission does not
	// tell.
	Operation Operation
}

// find returns the entity that the refusal of a permission was about: its type
// and, if it exists, its id. It makes the same reads, of small columns only,
// whether the entity exists or not.
func (a Attempt) find(ctx context.Context, tx store.Tx, p access.Permission, now time.Time) (access.Entity, error) {
	if a.Entity == "" || p != a.Permission && p.Entity() != a.Entity {
		return access.Entity{}, nil
	}
	if a.ID == "" {
		return access.Entity{Type: a.Entity}, nil
	}
	e, err := a.existing(ctx, tx, now)
	if errors.Is(err, store.ErrNotFound) {
		return access.Entity{Type: a.Entity}, nil
	}
	if err != nil {
		return e, fmt.Errorf("look for what was refused: %w", err)
	}
	return e, nil
}

// existing returns the entity, or ErrNotFound.
func (a Attempt) existing(ctx context.Context, tx store.Tx, now time.Time) (access.Entity, error) {
	switch a.Entity {
	case Token:
		kind, err := tx.TokenType(ctx, a.ID)
		return access.Entity{Type: kind, ID: a.ID}, err
	case Key:
		return a.existingKey(ctx, tx)
	case Session:
		row, err := tx.Session(ctx, a.ID)
		if err == nil && row.ExpiresAt <= store.At(now) {
			err = store.ErrNotFound
		}
		return access.Entity{Type: Session, ID: a.ID}, err
	}
	var n int64
	var err error
	switch a.Entity {
	case Application:
		n, err = tx.CountApplications(ctx, store.ApplicationFilter{IDs: []string{a.ID}})
	case Reactor:
		n, err = tx.CountDefinitions(ctx, store.DefinitionFilter{Kind: store.DefinitionReactor, IDs: []string{a.ID}})
	case Proxy:
		n, err = tx.CountDefinitions(ctx, store.DefinitionFilter{Kind: store.DefinitionProxy, IDs: []string{a.ID}})
	case Member:
		n, err = tx.CountDefinitions(ctx, store.DefinitionFilter{Kind: store.DefinitionMember, IDs: []string{a.ID}})
	case Role:
		n, err = tx.CountDefinitions(ctx, store.DefinitionFilter{Kind: store.DefinitionRole, IDs: []string{a.ID}})
	}
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	return access.Entity{Type: a.Entity, ID: a.ID}, err
}

// existingKey returns a key of the application, or else the application.
func (a Attempt) existingKey(ctx context.Context, tx store.Tx) (access.Entity, error) {
	keys, err := tx.Keys(ctx, a.Application)
	if err != nil {
		return access.Entity{}, err
	}
	n, err := tx.CountApplications(ctx, store.ApplicationFilter{IDs: []string{a.Application}})
	switch {
	case err != nil:
		return access.Entity{}, err
	case slices.ContainsFunc(keys, func(k store.Key) bool { return k.ID == a.ID }):
		return access.Entity{Type: Key, ID: a.ID}, nil
	case n > 0:
		return access.Entity{Type: Application, ID: a.Application}, nil
	}
	return access.Entity{}, store.ErrNotFound
}
