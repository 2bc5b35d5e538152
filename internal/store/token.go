package store

import "context"

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
	// Version counts the changes; ReplaceToken checks it.
	Version int64
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
// once for a group and not once for each token in it. Groups are few.
type TokenGroup struct {
	ID         string
	Type       string
	Containers []string
}

// TokenFilter chooses tokens; each part narrows the choice, and an empty part
// does not. Now is not optional: what has expired by then is not there.
type TokenFilter struct {
	Now    Time
	IDs    []string // these alone, in this order and not newest first
	Groups []string // in one of these groups, named by TokenGroup.ID
	Terms  [][]byte // having every one of these
	// NoGroup says that Groups is meant although it is empty: nothing matches.
	NoGroup bool
}

// TokenRows are the methods of a transaction on tokens.
type TokenRows interface {
	// InsertToken adds a token; ErrExists when the id is taken, be it by a
	// token that has expired and not been swept.
	InsertToken(ctx context.Context, t Token) error
	// Token returns a token, expired or not: the caller knows the time.
	Token(ctx context.Context, id string) (Token, error)
	// ReplaceToken changes a token, but for its type and its making.
	// ErrNotFound when it is not there, ErrConflict when t.Version is not one
	// more than the stored one.
	ReplaceToken(ctx context.Context, t Token) error
	// DeleteToken removes a token; ErrNotFound when it is not there.
	DeleteToken(ctx context.Context, id string) error

	// TokenGroups returns the groups that have had tokens.
	TokenGroups(ctx context.Context) ([]TokenGroup, error)
	// Tokens returns a page, newest first. Where IDs are given, a page begins
	// behind the one of them that After names.
	Tokens(ctx context.Context, f TokenFilter, p Page) ([]Token, error)
	// CountTokens returns how many there are. Unfiltered, and by group, its
	// cost does not grow with their number.
	CountTokens(ctx context.Context, f TokenFilter) (int64, error)
}

// Page is a part of a list that is ordered newest first: by creation, then by
// id, both descending. A page begins behind the row that After names, or at
// Offset from the start.
type Page struct {
	After  *Position
	Offset int
	Limit  int
}

// Position is the place of a row in a list. Rows that come or go elsewhere do
// not move it. Kind is for lists of several kinds, which have ids of their own
// and come kind by kind; elsewhere it is empty.
type Position struct {
	CreatedAt Time
	ID        string
	Kind      string `json:",omitempty"`
}
