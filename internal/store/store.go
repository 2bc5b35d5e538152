// Package store keeps Tokenkeep's rows and defines what every backend promises.
//
// It promises that a transaction sees and changes the rows of one tenant
// alone, that what Update acknowledged survives a crash of the process and of
// the machine, and that what it did not acknowledge is either wholly there or
// not at all. It never sees plaintext: protected values arrive sealed, search
// terms arrive as keyed hashes, and no type here could hold anything else.
package store

import (
	"context"
	"errors"
	"time"
)

// What a backend reports. Everything else that it returns is a failure of the
// database, wrapped with what was being done.
var (
	// ErrNotFound says that this tenant has no such row.
	ErrNotFound = errors.New("store: not found")
	// ErrExists says that the tenant already has a row under that id.
	ErrExists = errors.New("store: already exists")
	// ErrConflict says that a row changed since it was read.
	ErrConflict = errors.New("store: changed meanwhile")
	// ErrNoTenant says that a transaction was asked for without a tenant, or
	// wrote for one that is not there or is being deleted.
	ErrNoTenant = errors.New("store: no tenant")
	// ErrContainers says that the tenant has as many different containers, or
	// groups, as it may have, and that the transaction would have added one.
	ErrContainers = errors.New("store: too many containers")
	// ErrReadOnly says that a View tried to write.
	ErrReadOnly = errors.New("store: a view cannot write")
	// ErrUnavailable says that nothing was changed and a later try may succeed:
	// a full disk, a lost connection, a store that is closing.
	ErrUnavailable = errors.New("store: unavailable")
	// ErrInUse says that another process holds the store.
	ErrInUse = errors.New("store: in use by another process")
	// ErrNewerSchema says that a newer release wrote this store: this one cannot
	// use it or, when Current says so, does not know all of its rows.
	ErrNewerSchema = errors.New("store: written by a newer release")
	// ErrOlderSchema says that an older release wrote this store, and that it
	// was to be taken as it is.
	ErrOlderSchema = errors.New("store: written by an older release")
	// ErrUnfinished says that a store is being moved to this database.
	ErrUnfinished = errors.New("store: a migration to this database was begun and is not complete: run 'tokenkeep migrate-store' again until it is, or empty the database")
	// ErrNoClock says that the backend has no clock but the machine's.
	ErrNoClock = errors.New("store: no clock of its own")
	// ErrDamaged says that the stored bytes are not what was written.
	ErrDamaged = errors.New("store: damaged")
)

// Store is a database of tenants' rows. Its methods are safe for concurrent use.
type Store interface {
	// View runs fn on a consistent snapshot of one tenant's rows. It sees
	// every Update that returned before it began. fn may run more than once, as
	// that of Update may.
	View(ctx context.Context, tenant string, fn func(Tx) error) error

	// Read is View for what must be in the log before anyone sees it: fn may
	// append to the log, and write nothing else. Reads run beside each other and
	// beside updates; one takes effect at the instant of its snapshot. The entries
	// are committed after fn has returned, together with those of other reads, and
	// are on disk when Read returns nil. fn does not see them. When Read returns an
	// error, nothing that fn has read may be shown, and the entries may be missing.
	//
	// A tenant that has no row, or whose row says Deleting, gets no entries, as
	// with Update: Read reports ErrNoTenant.
	Read(ctx context.Context, tenant string, fn func(Tx) error) error

	// Update runs fn in a serializable transaction on one tenant and commits
	// if fn returns nil; when Update returns nil, the change is on disk. fn may
	// run more than once: it must not do I/O of its own or keep state between
	// runs. A conflict that a write causes may be reported by the write or, at
	// the latest, by Update. A function that lets the error of a write pass
	// keeps no part of that write, and perhaps nothing at all: then Update
	// reports it.
	//
	// What is written for a tenant that has no row, or whose row says Deleting,
	// is not kept: Update reports ErrNoTenant. So nothing comes in behind a
	// deletion, whatever its writer saw before. A transaction that inserts the
	// tenant, or marks it as Deleting, writes as for any other. What deletions
	// need is let through: DestroyKeysets, DeleteTenantRows, AppendLogBatch,
	// and a PutKeyset that replaces, so that the last batch can be signed.
	Update(ctx context.Context, tenant string, fn func(Tx) error) error

	// AllTenants is the one door to work that crosses tenants: sweeps and the
	// operator's commands. No request of a tenant goes through it.
	AllTenants() AllTenants

	// EpochKeys keeps the short-lived keys, apart from the rows that they open.
	EpochKeys() EpochKeys

	// Ready returns nil when a View and an Update would be served.
	Ready(ctx context.Context) error

	// Room returns ErrUnavailable while the store refuses what would make it
	// larger, and takes the rest: on a full disk. Whoever is about to do what
	// cannot be undone, and will want to keep something of it, asks before.
	Room() error

	// Check reads the whole store and returns what is wrong with it, nothing
	// when all is well. The error says that the check itself could not finish.
	// progress, when not nil, is called now and then with what is being done.
	Check(ctx context.Context, progress func(doing string)) ([]string, error)

	// Now returns what time it is for the backend; ErrNoClock where that has no
	// clock but the machine's.
	Now(ctx context.Context) (time.Time, error)

	// Backups returns what makes copies of the store while it is used; nil
	// where the backend has its own tools for that.
	Backups() Backups

	// Close waits for the running transactions and releases the store. What
	// comes later gets ErrUnavailable.
	Close() error
}

// Backups makes copies of a store while it is used.
type Backups interface {
	// Backup writes the store, as it is at one instant, into a new file at path,
	// where there must be nothing or an empty file. Short-lived keys are not
	// in it. progress, when not nil, is called now and then with how many bytes
	// are written, of about how many.
	Backup(ctx context.Context, path string, progress func(written, of int64)) (BackupContents, error)
}

// BackupContents says what a copy of a store holds.
type BackupContents struct {
	Schema int              // number of its last migration
	Rows   map[string]int64 // by table
	KEKs   []string         // ids of the key-encryption keys that wrap its keysets
}

// Tx is a transaction on the rows of one tenant. It is valid until the
// function that received it returns, and belongs to that function's goroutine.
type Tx interface {
	// Tenant returns the tenant whose rows these are.
	Tenant() string

	TenantRows
	ApplicationRows
	KeysetRows
	TokenRows
	SessionRows
	ParcelRows
	DefinitionRows
	LogRows
	EventRows
	ActivityRows
}

// AllTenants reads across tenants. It changes nothing: whoever finds work here
// does it in an Update of the tenant concerned.
type AllTenants interface {
	// Tenants returns up to limit tenants in the order of their ids, from the
	// one behind after.
	Tenants(ctx context.Context, after string, limit int) ([]Tenant, error)

	// ExpiredTokens returns up to limit tokens whose expiry is at or before
	// now, longest expired first, but for the first skip of them.
	ExpiredTokens(ctx context.Context, now Time, skip, limit int) ([]TokenRef, error)

	// OutdatedTokens returns up to limit tokens whose derived values an older
	// release wrote, of the tenants that follow the tenant after, in the order of
	// tenant and id, skipping the first skip rows.
	// Its cost does not depend on how many tokens are up to date.
	OutdatedTokens(ctx context.Context, after string, skip, limit int) ([]TokenRef, error)

	// ExpiredSessions returns up to limit sessions whose expiry is at or before
	// now, longest expired first, but for the first skip of them.
	ExpiredSessions(ctx context.Context, now Time, skip, limit int) ([]SessionRef, error)

	// ExpiredParcels returns up to limit parcels whose expiry is at or before
	// now, longest expired first, but for the first skip of them.
	ExpiredParcels(ctx context.Context, now Time, skip, limit int) ([]ParcelRef, error)

	// DueParcels returns parcels of one kind that are due at now, tenant by
	// tenant: of each of up to tenants tenants, in the order of their ids from the
	// first one after the tenant after, up to each parcels, longest due first. The
	// number of parcels of one tenant has no effect on the cost of the others.
	// next is where to go on, and empty when no tenant follows.
	DueParcels(ctx context.Context, kind string, now Time, after string, tenants, each int) (due []ParcelRef, next string, err error)

	// DueKinds returns the kinds of the parcels that are due now or later, in
	// order. Its cost depends on how many kinds there are, not on how many parcels.
	DueKinds(ctx context.Context) ([]string, error)

	// UnsealedTenants returns up to limit tenants that have log entries waiting
	// for a batch, in the order of their ids, from the one behind after. Its
	// cost does not depend on how many tenants have none.
	UnsealedTenants(ctx context.Context, after string, limit int) ([]string, error)

	// EventTenants returns up to limit tenants that have events which are not
	// dispatched, in the order of their ids, from the one after the tenant after.
	// Its cost does not depend on how many tenants have none.
	EventTenants(ctx context.Context, after string, limit int) ([]string, error)

	// Current returns ErrNewerSchema when a newer release, which shares the store
	// until it has replaced this one, has added to the schema. Then there may be
	// rows that this one does not know, and what must not miss any before it
	// destroys something is left to the newer one.
	Current(ctx context.Context) error

	// Setting returns a value of the installation itself, such as the check
	// value of its key-encryption key: ErrNotFound when there is none.
	Setting(ctx context.Context, name string) ([]byte, error)

	// PutSetting keeps a value of the installation, in place of an older one.
	PutSetting(ctx context.Context, name string, value []byte) error
}

// EpochKeys keeps wrapped keys that must not outlive their time. They live
// apart from the data, in a place that backups leave out, and a destroyed one
// is overwritten.
type EpochKeys interface {
	// EpochKey returns the wrapped key of a tenant's epoch, or ErrNotFound.
	EpochKey(ctx context.Context, tenant string, epoch int64) ([]byte, error)

	// AddEpochKey keeps a wrapped key durably and returns it, or returns the
	// one that was already there: all who ask get the same one.
	AddEpochKey(ctx context.Context, tenant string, epoch int64, wrapped []byte) ([]byte, error)

	// ReplaceEpochKey keeps a wrapped key in place of the one that is there;
	// ErrNotFound when there is none, because a destroyed key stays destroyed.
	ReplaceEpochKey(ctx context.Context, tenant string, epoch int64, wrapped []byte) error

	// EpochKeyList returns the epochs of a tenant that still have a key.
	EpochKeyList(ctx context.Context, tenant string) ([]int64, error)

	// DestroyEpochKeys destroys the keys of every epoch but those from first to
	// last, of all tenants, and returns how many.
	DestroyEpochKeys(ctx context.Context, first, last int64) (int, error)

	// DestroyTenantEpochKeys destroys all epoch keys of one tenant.
	DestroyTenantEpochKeys(ctx context.Context, tenant string) error
}

// Step is what a caller of a service adds to the end of the transaction of an
// effect: it gets the result that is about to be given out. The stored answer
// of an idempotent request is such a step, so that effect and record commit
// together or not at all.
type Step[T any] func(Tx, T) error

// Finish runs the steps in their order; a service calls it last in its Update.
func Finish[T any](tx Tx, result T, steps []Step[T]) error {
	for _, step := range steps {
		if err := step(tx, result); err != nil {
			return err
		}
	}
	return nil
}
