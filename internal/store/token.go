package store

import (
	"context"
	"slices"
)

// Token is the row of a token: what may stand in clear, and the rest sealed.
type Token struct {
	ID         string
	Type       string
	Containers []string // at least one, sorted, no repeats
	Data       []byte   // sealed
	Details    []byte   // sealed: mask, metadata, expressions, fingerprint
	ShortLived []byte   // sealed under an epoch key; nil when there is none
	// Terms are keyed hashes by which the token is found: fingerprint,
	// metadata, search indexes. At most 64 bytes each, no repeats.
	Terms      [][]byte
	Expiry     Expiry
	CreatedBy  string
	CreatedAt  Time
	ModifiedBy string
	ModifiedAt Time
	// Version counts the changes, from 1; ReplaceToken checks it.
	Version int64
	// Derived says that the derived values, which are the fingerprint and the
	// terms, are in the form that this release writes. Code that writes them sets
	// it; code that changes something else keeps it as it was read. A change that
	// a server of an older release makes clears it.
	Derived bool
}

// Size returns the bytes of what is sealed in the token.
func (t Token) Size() int64 { return int64(len(t.Data) + len(t.Details) + len(t.ShortLived)) }

// AdmitToken calls Admit with the size of a token.
func (p Page) AdmitToken(t Token) error {
	if p.Admit == nil {
		return nil
	}
	return p.Admit(t.Size())
}

// Expiry is the instant at which a row stops being readable, with the offset
// from UTC in which it was written down. The zero Expiry is never.
type Expiry struct {
	At            Time
	OffsetSeconds int
}

// TokenRef names a token of some tenant.
type TokenRef struct{ Tenant, ID string }

// TokenGroup is one combination of type and containers that a tenant's tokens
// have. Access is decided on type, containers and id alone, so it is decided
// once for a group and not once for each token in it. A group goes with its
// last token, and a backend may bound how many there are: see MaxGroups.
type TokenGroup struct {
	ID         string
	Type       string
	Containers []string
}

// MaxGroups returns how many groups a tenant may have that may have so many
// different containers; 0, which is no bound, for 0. Tokens of several types
// share containers, and a token may have several: without a bound of its own
// the number of groups would have none.
func MaxGroups(containers int64) int64 { return 4 * containers }

// TokenFilter chooses tokens. The zero value matches none: Groups must be set,
// and Now, because a token that has expired by then does not match. IDs and
// Terms narrow the choice unless they are empty.
type TokenFilter struct {
	Now    Time
	Groups Groups
	IDs    []string // only these, in this order and not newest first
	Terms  [][]byte // having every one of these
}

// Groups are the groups that a TokenFilter matches: AllGroups, or OnlyGroups
// and the ids. The zero value is no group at all.
type Groups struct {
	all bool
	ids []string
}

// AllGroups returns every group, those of later tokens included.
func AllGroups() Groups { return Groups{all: true} }

// OnlyGroups returns the groups of these ids, which are those of
// TokenGroup.ID. Without ids it returns no group.
func OnlyGroups(ids ...string) Groups { return Groups{ids: slices.Clone(ids)} }

// All reports whether these are AllGroups.
func (g Groups) All() bool { return g.all }

// None reports whether no token can be in one of the groups.
func (g Groups) None() bool { return !g.all && len(g.ids) == 0 }

// Len returns how many ids OnlyGroups was given; 0 for AllGroups.
func (g Groups) Len() int { return len(g.ids) }

// Has reports whether the group of this id is among the groups.
func (g Groups) Has(id string) bool { return g.all || slices.Contains(g.ids, id) }

// Keys returns the keys of OnlyGroups, each once; none for AllGroups.
// ErrNotFound when an id is not that of a group.
func (g Groups) Keys() ([]GroupKey, error) {
	keys, seen := make([]GroupKey, 0, len(g.ids)), make(map[GroupKey]bool, len(g.ids))
	for _, id := range g.ids {
		key, err := ParseGroup(id)
		if err != nil {
			return nil, err
		}
		if !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// TokenRows are the methods of a transaction on tokens.
type TokenRows interface {
	// InsertToken adds a token; ErrExists when the id is taken, be it by a
	// token that has expired and not been swept.
	InsertToken(ctx context.Context, t Token) error
	// Token returns a token, expired or not: the caller knows the time.
	Token(ctx context.Context, id string) (Token, error)
	// TokenType returns the type of a token, expired or not, or ErrNotFound. It
	// reads nothing that is sealed: its cost does not grow with the token.
	TokenType(ctx context.Context, id string) (string, error)
	// ReplaceToken changes a token, but for its type and its making.
	// ErrNotFound when it is not there, ErrConflict when t.Version is not one
	// more than the stored one.
	ReplaceToken(ctx context.Context, t Token) error
	// DeleteToken removes a token; ErrNotFound when it is not there.
	DeleteToken(ctx context.Context, id string) error

	// TokenGroups returns the groups that have tokens, expired or not. The list may
	// be shared with other transactions: nobody changes it.
	TokenGroups(ctx context.Context) ([]TokenGroup, error)
	// CountTypes returns how many tokens there are of each type that has some.
	// Its cost depends neither on their number nor on that of their containers;
	// tokens that have expired and not been swept add to it.
	CountTypes(ctx context.Context, now Time) (map[string]int64, error)
	// Tokens returns a page, newest first. Where IDs are given, a page begins
	// behind the one of them that After names.
	Tokens(ctx context.Context, f TokenFilter, p Page) ([]Token, error)
	// CountTokens returns how many there are. By group, its cost grows with the
	// number of groups that are named, and not with that of tokens; unfiltered
	// with neither.
	CountTokens(ctx context.Context, f TokenFilter) (int64, error)
}

// Page is a part of a list that is ordered newest first: by creation, then by
// id, both descending. A page begins behind the row that After names, or at
// Offset from the start.
type Page struct {
	After  *Position
	Offset int
	Limit  int
	// Admit, where it is not nil, is called with the size of each token that
	// Tokens has read, before it reads the next. Its error ends the list.
	Admit func(bytes int64) error
}

// Position is the place of a row in a list. Rows that come or go elsewhere do
// not move it. Kind is for lists of several kinds, which have ids of their own
// and come kind by kind; elsewhere it is empty.
type Position struct {
	CreatedAt Time
	ID        string
	Kind      string `json:",omitempty"`
}
