package store

import "context"

// Session is the row of a session: never its key or its nonce.
type Session struct {
	ID        string
	KeyHash   []byte // keyed hash of the whole key
	NonceHash []byte // keyed hash of the nonce
	Prefix    string // the key's first characters, for people to tell sessions apart
	// Grant is sealed: all that decides about the session, before and after it
	// is authorized.
	Grant        []byte
	CreatedBy    string // the public application that made it
	CreatedKeyID string // the key of that application; empty when an older release made it
	CreatedAt    Time
	AuthorizedBy string // the private application; empty until then
	// AuthorizedKeyID is the key of the private application; empty until then,
	// and when an older release authorized it.
	AuthorizedKeyID string
	AuthorizedAt    Time
	ExpiresAt       Time // no time at all is long ago
	// Version counts the changes; ReplaceSession checks it.
	Version int64
}

// SessionRef names a session of some tenant.
type SessionRef struct{ Tenant, ID string }

// SessionFilter chooses sessions. Now is not optional: what has expired by then
// is not there.
type SessionFilter struct {
	Now Time
	// LiveKeys leaves out the sessions whose creating or authorizing key is gone,
	// or belongs to an application that has expired by Now. Where the id of the
	// key is not recorded, a key of that application must exist that is at least
	// as old as the creation or the authorization.
	LiveKeys bool
}

// SessionRows are the methods of a transaction on sessions.
type SessionRows interface {
	// InsertSession adds a session; ErrExists when its id or one of its hashes
	// is taken, be it by a session that has expired and not been swept.
	InsertSession(ctx context.Context, s Session) error
	// Session returns a session, expired or not: the caller knows the time.
	Session(ctx context.Context, id string) (Session, error)
	// SessionByKey returns the session whose key has that hash, or ErrNotFound.
	SessionByKey(ctx context.Context, hash []byte) (Session, error)
	// SessionByNonce returns the session whose nonce has that hash, or ErrNotFound.
	SessionByNonce(ctx context.Context, hash []byte) (Session, error)
	// ReplaceSession changes a row, except its key, its nonce and who created it,
	// when and with which key.
	// ErrNotFound when it is not there, ErrConflict when s.Version is not one
	// more than the stored one.
	ReplaceSession(ctx context.Context, s Session) error
	// DeleteSession removes a session; ErrNotFound when it is not there.
	DeleteSession(ctx context.Context, id string) error
	// Sessions returns a page, newest first.
	Sessions(ctx context.Context, f SessionFilter, p Page) ([]Session, error)
	CountSessions(ctx context.Context, f SessionFilter) (int64, error)
}
