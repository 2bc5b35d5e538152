package store

import "context"

// Application is the row of an application. Rules may hold a tenant's own
// words, so they are sealed, together with all else that decides about access;
// names, types and permissions stand in clear too.
type Application struct {
	ID          string
	Name        string
	Type        string
	Permissions []string
	Rules       []byte // sealed
	ExpiresAt   Time
	CreatedBy   string
	CreatedAt   Time
	ModifiedBy  string
	ModifiedAt  Time
	// Version counts the changes; ReplaceApplication checks it.
	Version int64
}

// Key is one of an application's keys: never the key itself.
type Key struct {
	ID            string
	ApplicationID string
	Version       int
	Hash          []byte // keyed hash of the whole key
	Prefix        string // its first characters, for people to tell keys apart
	CreatedBy     string
	CreatedAt     Time
}

// ApplicationFilter chooses applications. The zero filter chooses all.
type ApplicationFilter struct {
	IDs   []string
	Types []string
}

// ApplicationRows are the methods of a transaction on applications and keys.
type ApplicationRows interface {
	// InsertApplication adds an application; ErrExists when the id is taken.
	InsertApplication(ctx context.Context, a Application) error
	Application(ctx context.Context, id string) (Application, error)
	// ReplaceApplication changes a row, but for its type and its making.
	// ErrNotFound when it is not there, ErrConflict when a.Version is not one
	// more than the stored one.
	ReplaceApplication(ctx context.Context, a Application) error
	// DeleteApplication removes the application with its keys.
	DeleteApplication(ctx context.Context, id string) error
	// Applications returns a page, newest first.
	Applications(ctx context.Context, f ApplicationFilter, p Page) ([]Application, error)
	CountApplications(ctx context.Context, f ApplicationFilter) (int64, error)

	// InsertKey adds a key; ErrNotFound when the tenant has no such
	// application, ErrExists when the hash is taken or the application has a
	// key under that id.
	InsertKey(ctx context.Context, k Key) error
	// Keys returns the keys of an application, oldest first.
	Keys(ctx context.Context, applicationID string) ([]Key, error)
	// KeyByHash returns the key with that hash and its application, or
	// ErrNotFound. By such a hash callers are found: none is, here and by a
	// session's or a definition's, once the tenant's row says Deleting.
	KeyByHash(ctx context.Context, hash []byte) (Key, Application, error)
	// DeleteKey removes a key of an application. ErrNotFound when it is not there.
	DeleteKey(ctx context.Context, applicationID, id string) error
}
