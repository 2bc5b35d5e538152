package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// tx is a transaction on one tenant's rows. Every statement below begins its
// conditions with the tenant, which comes from here and from nowhere else.
type tx struct {
	conn     *conn
	tenant   tenantKey
	writable bool
	ended    bool
	// begin connects a view that has not read yet, within ctx; nil once it has.
	begin func(*tx) error
	ctx   context.Context
	// pool is where the connection of a view comes from. logs gets the entries of
	// a view that may append to the log.
	pool connPool
	logs *[]groupEntry
	// memory answers the first reads of a view; remembered is its count of
	// changes when it did.
	memory     *memory
	remembered *uint64
	// recent and recalled are the same for tokens; nil in an update.
	recent   *recentTokens
	recalled *uint64
	inserts  tokenInserts
	// groups and kinds are changes of the counters that flush writes once,
	// however many rows of a kind the transaction touches.
	groups map[store.GroupKey]*groupDelta
	kinds  map[string]int64
	// maxContainers is how many different containers the tenant may have; 0 for
	// any number.
	maxContainers int64
	// terms are changes of the counters of common terms, and maybeCommon the
	// terms that may have become so. common is nil in a view.
	terms       map[termKey]int64
	maybeCommon map[string]bool
	common      *commonTerms
	// failed is an error after which nothing of the transaction may be kept,
	// even if its function lets the error pass: SQLite may have rolled back by
	// itself, so that what follows would be committed alone, or a write that
	// takes several statements stopped between two of them.
	failed error
	// needsTenant says that what was written may only be kept if the tenant is
	// there; hasTenant that the transaction has seen to that itself.
	needsTenant, hasTenant bool
	// served are tenants that need not be looked for; nil in a view.
	served map[tenantKey]bool
	// full says that the disk is, so that only some writes are let through.
	full bool
	// scrub asks for the write-ahead log to be emptied after the commit,
	// because it holds copies of what the transaction destroyed.
	scrub bool
}

var _ store.Tx = (*tx)(nil)

func (t *tx) Tenant() string { return t.tenant.String() }

// exec runs a statement whose first parameter is the tenant.
func (t *tx) exec(text string, args ...driver.Value) (int64, error) {
	if !t.writable && !t.ended {
		return 0, store.ErrReadOnly
	}
	if err := t.usable(); err != nil {
		return 0, err
	}
	if err := t.flushTokens(); err != nil {
		return 0, err
	}
	t.needsTenant = true
	n, err := t.conn.exec(text, t.with(args)...)
	return n, t.note(err)
}

// spared runs a write that a tenant need not be there for.
func (t *tx) spared(write func() error) error {
	needs := t.needsTenant
	err := write()
	t.needsTenant = needs
	return err
}

// checkTenant refuses what was written for a tenant that is gone or going.
func (t *tx) checkTenant() error {
	if !t.needsTenant || t.hasTenant || t.served[t.tenant] && !t.conn.forgets {
		return nil
	}
	n, err := t.conn.number(context.Background(), "SELECT 1 FROM tenants WHERE tenant_id = ? AND deleting = 0", t.tenant[:])
	if err == nil && n == 0 {
		return fmt.Errorf("sqlite: write: %w", store.ErrNoTenant)
	}
	if err == nil && !t.conn.forgets { // no change of tenants that may not be kept is under way
		t.served[t.tenant] = true
	}
	return err
}

func (t *tx) usable() error {
	if t.ended {
		return fmt.Errorf("sqlite: transaction has ended: %w", store.ErrUnavailable)
	}
	if t.begin != nil {
		if err := t.fail(t.snapshot()); err != nil {
			return err
		}
	}
	return t.failed
}

// note fails the transaction unless err leaves it as it was before the statement.
func (t *tx) note(err error) error {
	for _, harmless := range []error{nil, store.ErrExists, store.ErrNotFound, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, harmless) {
			return err
		}
	}
	return t.fail(err)
}

// fail sees to it that nothing of the transaction is kept.
func (t *tx) fail(err error) error {
	if err != nil && t.failed == nil {
		t.failed = err
	}
	return err
}

// changeOne runs a statement that must change one row, and returns missing otherwise.
func (t *tx) changeOne(missing error, text string, args ...driver.Value) error {
	n, err := t.exec(text, args...)
	if err == nil && n == 0 {
		return missing
	}
	return err
}

func (t *tx) query(ctx context.Context, text string, args []driver.Value, each func(row []driver.Value) (bool, error)) error {
	if err := t.usable(); err != nil {
		return err
	}
	if err := t.flushTokens(); err != nil {
		return err
	}
	return t.note(t.conn.query(ctx, text, t.with(args), each))
}

func (t *tx) one(ctx context.Context, text string, args []driver.Value, scan func(row []driver.Value) error) error {
	if err := t.usable(); err != nil {
		return err
	}
	if err := t.flushTokens(); err != nil {
		return err
	}
	return t.note(t.conn.one(ctx, text, t.with(args), scan))
}

func (t *tx) number(ctx context.Context, text string, args ...driver.Value) (int64, error) {
	if err := t.usable(); err != nil {
		return 0, err
	}
	if err := t.flushTokens(); err != nil {
		return 0, err
	}
	n, err := t.conn.number(ctx, text, t.with(args)...)
	return n, t.note(err)
}

func (t *tx) with(args []driver.Value) []driver.Value {
	out := make([]driver.Value, 1, 1+len(args))
	out[0] = t.tenant[:]
	return append(out, args...)
}

// flush writes the tokens that wait, and the counters that the transaction has
// changed.
func (t *tx) flush() error {
	if err := t.flushTokens(); err != nil {
		return err
	}
	if err := t.flushGroups(); err != nil {
		return err
	}
	if err := t.flushTerms(); err != nil {
		return err
	}
	return t.flushKinds()
}

// behind narrows a list that is ordered newest first to what follows a position.
func behind(after *store.Position) (condition string, args []driver.Value) {
	if after == nil {
		return "", nil
	}
	return " AND (created_at, id) < (?, ?)", []driver.Value{int64(after.CreatedAt), after.ID}
}
