package store

import "context"

// The kinds of parcels. No kind has a slash in its name.
const (
	ParcelAnswer   = "answer"   // the first answer to an idempotent request
	ParcelJob      = "job"      // a run that nobody waits for, until it has run
	ParcelDelivery = "delivery" // what such a run returned, until its callback took it
	ParcelResult   = "result"   // what such a run returned, until it is asked for
	ParcelRun      = "run"      // what a run printed
	ParcelSignIn   = "sign-in"  // a member who is signed in; its group is the member
	ParcelLink     = "link"     // a link that signs a member in, until it is used
)

// Parcel is something sealed that is kept for a while. What its parts mean is
// the business of whoever keeps it.
type Parcel struct {
	Kind  string
	ID    string // one of its kind
	Group string // what it belongs to, such as a reactor; empty for nothing
	Owner string // whose it is
	// Contents are sealed under the tenant's data key or, when Epoch is not 0,
	// under the key of that epoch. They are nil while there is nothing to keep.
	Contents  []byte
	Epoch     int64
	CreatedAt Time
	DueAt     Time // when it wants attention; no time for never
	ExpiresAt Time // from when on it is swept; no time at all is long ago
	Attempts  int
	// Version counts the changes; ReplaceParcel checks it.
	Version int64
}

// Record is the name of the row to which its contents are sealed.
func (p Parcel) Record() string { return p.Kind + "/" + p.ID }

// ParcelRef names a parcel of some tenant.
type ParcelRef struct{ Tenant, Kind, ID string }

// ParcelFilter chooses parcels. The zero filter chooses all.
type ParcelFilter struct {
	Kind  string
	Group string // only with a Kind
	Most  int64  // CountParcels counts no further, and reads no more rows; 0 counts all
}

// ParcelRows are the methods of a transaction on parcels. A parcel is there
// until it is deleted, expired or not: the caller knows the time. What is
// missing or in conflict is reported by the write or, at the latest, by Update.
type ParcelRows interface {
	// InsertParcel adds a parcel; ErrExists when its kind has one of that id.
	InsertParcel(ctx context.Context, p Parcel) error
	Parcel(ctx context.Context, kind, id string) (Parcel, error)
	// ReplaceParcel changes a parcel, but for its group and its making.
	// ErrNotFound when it is not there, ErrConflict when p.Version is not one
	// more than the stored one.
	ReplaceParcel(ctx context.Context, p Parcel) error
	// DeleteParcel removes a parcel; ErrNotFound when it is not there.
	DeleteParcel(ctx context.Context, kind, id string) error
	// Parcels returns a page, newest first; of all kinds, kind by kind.
	Parcels(ctx context.Context, f ParcelFilter, p Page) ([]Parcel, error)
	CountParcels(ctx context.Context, f ParcelFilter) (int64, error)
}
