package token

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// User is the reactor or the proxy through which tokens are used.
type User struct {
	Type string // audit.Reactor or audit.Proxy
	ID   string
	// Reactors are those whose code shapes what passes through a proxy.
	Reactors []string
}

// Used are the tokens of one act, opened for the one who uses them.
type Used struct {
	tokens []UsedToken
	data   map[string]jsonvalue.Value
	whole  map[string]jsonvalue.Value
	epoch  *keyring.EpochKey
	size   int // about how many bytes the tokens have
}

// UsedToken says which token was used and how much of it.
type UsedToken struct {
	ID         string
	Type       string
	Containers []string
	Transform  access.Transform
}

// Use gathers the tokens that expressions name for a reactor or a proxy. It
// takes token:use, even when there are none, and on each container of each
// token. The act and every token are in the log before it returns.
func (s *Service) Use(ctx context.Context, c access.Caller, by User, refs []expression.Reference) (*Used, error) {
	if err := c.RequireSomewhere(access.TokenUse); err != nil {
		return nil, err
	}
	act := []store.LogEntry{audit.Entry(c, s.now(), by.Type, by.ID, audit.Use)}
	for _, id := range by.Reactors {
		act = append(act, audit.Entry(c, s.now(), audit.Reactor, id, audit.Use))
	}
	return s.gather(ctx, c, holding(access.TokenUse), refs, func(row store.Token, now time.Time) store.LogEntry {
		return audit.EntryBy(c, now, row.Type, row.ID, audit.Use, by.Type)
	}, act...)
}

// use opens what a transaction found.
func (s *Service) use(ctx context.Context, c access.Caller, keys *keyring.Keys, found shown) (*Used, error) {
	list, err := s.open(ctx, c, keys, found)
	if err != nil {
		return nil, err
	}
	u := &Used{data: make(map[string]jsonvalue.Value, len(list)), whole: make(map[string]jsonvalue.Value, len(list))}
	for i, t := range list {
		u.data[t.ID], u.whole[t.ID] = t.Data, t.enriched().Object()
		u.size += len(found.rows[i].Data) + len(found.rows[i].Details)
		u.tokens = append(u.tokens, UsedToken{t.ID, t.Type, t.Containers, found.sights[i].data})
		if found.sights[i].data != access.Reveal || len(found.rows[i].ShortLived) == 0 {
			continue
		}
		epoch, err := s.epochOf(ctx, c, found.rows[i])
		if err != nil {
			return nil, err
		}
		if epoch != nil && (u.epoch == nil || epoch.Epoch() < u.epoch.Epoch()) {
			u.epoch = epoch
		}
	}
	return u, nil
}

// epochOf returns the key of a row's short-lived members; nil when it is gone.
func (s *Service) epochOf(ctx context.Context, c access.Caller, row store.Token) (*keyring.EpochKey, error) {
	number, err := keyring.SealedEpoch(row.ShortLived)
	if err != nil {
		return nil, fmt.Errorf("open token: %w", err)
	}
	key, err := s.ring.EpochKeyOf(ctx, c.Tenant(), number)
	if errors.Is(err, keyring.ErrGone) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get epoch key: %w", err)
	}
	return key, nil
}

// lookup gives an expression the token that it names.
func (u *Used) lookup(ref expression.Reference) (jsonvalue.Value, error) {
	if ref.Token {
		return u.whole[ref.ID], nil
	}
	return u.data[ref.ID], nil
}

// Grow adds to a budget what the size of the tokens allows for.
func (u *Used) Grow(b *expression.Budget) { b.Grow(u.size) }

// Lookup gives expressions the tokens that they name.
func (u *Used) Lookup() expression.Lookup { return u.lookup }

// Tokens says which tokens were used.
func (u *Used) Tokens() []UsedToken { return u.tokens }

// Epoch is the key under which everything belongs that is made from these
// values and kept: that of the oldest short-lived one among them. It is nil
// when there are none.
func (u *Used) Epoch() *keyring.EpochKey { return u.epoch }

// Leaves yields every scalar among the values that were used.
func (u *Used) Leaves() iter.Seq[jsonvalue.Value] {
	return func(yield func(jsonvalue.Value) bool) {
		for _, v := range u.data {
			for leaf := range v.Leaves() {
				if !yield(leaf) {
					return
				}
			}
		}
	}
}
