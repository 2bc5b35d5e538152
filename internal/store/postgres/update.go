package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const commit = "COMMIT"

const (
	// attempts is how often the function of an update is run, whatever time
	// that takes; and for againWait, however often that is.
	attempts = 12
	// quick is how many of them are made without waiting for a turn.
	quick = 3
	// patience is how long the outcome of a commit is asked for.
	patience = 10 * time.Second
)

// errUnknown says that nobody could be asked what became of a commit.
var errUnknown = fmt.Errorf("postgres: the connection was lost over a commit, and its outcome is not known: %w", store.ErrUnavailable)

// Update implements store.Store.
func (s *Store) Update(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	key, err := parseTenant(tenant)
	if err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.running.Done()
	return s.noted(s.update(ctx, key, fn))
}

// noted remembers whether changes are refused.
func (s *Store) noted(err error) error {
	if err == nil {
		s.failing.Store(false)
	} else if errors.Is(err, store.ErrUnavailable) {
		s.failing.Store(true)
	}
	return err
}

// update runs fn until it is committed or refused. An attempt is made again
// when nothing of it was kept: after a conflict with a concurrent transaction,
// and after a connection was lost.
func (s *Store) update(ctx context.Context, tenant tenantKey, fn func(store.Tx) error) error {
	began, folded := time.Now(), false
	for n := 1; ; n++ {
		if n == quick+1 {
			// Those who meet again and again take turns.
			leave, err := s.turns.take(ctx, tenant)
			if err != nil {
				return err
			}
			defer leave()
		}
		err := s.attempt(ctx, tenant, fn)
		if errors.Is(err, store.ErrContainers) && !folded {
			// Groups without tokens count until they are removed.
			removed, failed := s.fold(ctx, tenant.column())
			if folded = true; failed == nil && removed > 0 {
				continue
			}
		}
		soon := time.Since(began) < againWait
		if again := errors.Is(err, errAgain) && (soon || n < attempts) || errors.Is(err, errLost) && soon; !again {
			return err
		}
		s.metrics.retries.Inc()
		if err := pause(ctx, time.Duration(rand.Int64N(int64(time.Millisecond)<<min(n, 6)))); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Store) attempt(ctx context.Context, tenant tenantKey, fn func(store.Tx) error) error {
	t := &tx{store: s, tenant: tenant, begin: beginUpdate}
	defer t.end()
	err := fn(t)
	t.ended = true
	if t.failed != nil && (errors.Is(t.failed, errAgain) || errors.Is(t.failed, errLost)) {
		return t.failed // whatever the function made of it
	}
	if err != nil {
		return err
	}
	if t.failed != nil {
		return t.failed
	}
	if err := ctx.Err(); err != nil {
		return err // nothing was committed so far
	}
	return t.commit(ctx)
}

// commit sends what waits and the commit.
func (t *tx) commit(ctx context.Context) error {
	if t.conn == nil && len(t.waiting) == 0 {
		if t.rows.empty() {
			return nil
		}
		return t.store.gatherer.commit(ctx, t.tenant, &t.rows)
	}
	if err := t.connect(ctx); err != nil {
		return err
	}
	t.settleRows()
	counters, err := t.rows.counters(slotOf(t.conn.Conn().PgConn()), t.store.maxContainers)
	if err != nil {
		return err
	}
	steps := append(t.waiting, counters...)
	if !t.sent && len(steps) == 0 {
		// It read and changed nothing; its commit tells whether what it read
		// was a state that there could have been.
		return exchange(ctx, t.conn, t.tenant, "", []step{{doing: "commit", text: commit}})
	}
	err = t.seal(ctx, steps)
	if t.scrub {
		t.store.staleKeysets.Store(true)
	}
	return err
}

// nameForTenant names a commit that may only be kept if the tenant is there and
// not being deleted: otherwise there is no value where one must be. What it
// reads is a read like any other of a serializable transaction, so no deletion
// that it does not see comes before it. It costs no round trip.
const nameForTenant = "INSERT INTO commits (tenant_id, id, kept) VALUES ($1, $2, (SELECT true FROM tenants WHERE tenant_id = $1 AND NOT deleting))"

// seal sends the last statements of the transaction with its commit. It
// returns nil when they are kept, and any error means that they are not; but
// for errUnknown.
func (t *tx) seal(ctx context.Context, steps []step) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("postgres: name a commit: %w", err)
	}
	mark := pgtype.UUID{Bytes: id, Valid: true}
	name := step{doing: "name the commit", text: "INSERT INTO commits (tenant_id, id, kept) VALUES ($1, $2, true)", args: []any{mark}, taken: errLost}
	if t.needsTenant && !t.hasTenant {
		name.text, name.empty = nameForTenant, store.ErrNoTenant
	}
	all := make([]step, 0, len(steps)+2)
	all = append(all, name)
	all = append(append(all, steps...), step{doing: "commit", text: commit})
	err = exchange(ctx, t.conn, t.tenant, t.opening(), all)
	if err == nil || !errors.Is(err, errLost) || !t.conn.Conn().IsClosed() {
		return err
	}
	t.store.metrics.outcomes.Inc()
	t.drop() // others may wait for its place in the pool, to ask the same
	return t.store.resolve(ctx, t.tenant, mark)
}

// resolve finds out what became of a transaction whose commit was not
// answered. It claims the transaction's name: either the name is there, then
// the transaction was committed; or it is not, then it never can be, because
// the transaction would find its name taken, be it still on its way to the
// server. One that is under way is waited for by the key itself. A claim always
// writes: its own commit then waits for the standby, and brings along the one
// that it asks for.
func (s *Store) resolve(ctx context.Context, tenant tenantKey, mark pgtype.UUID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.patience)
	defer cancel()
	for {
		kept, err := s.claim(ctx, tenant, mark)
		switch {
		case err == nil && kept:
			return nil
		case err == nil:
			return errLost
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			return errUnknown
		}
	}
}

const claimStatement = "INSERT INTO commits (tenant_id, id, kept) VALUES ($1, $2, false) ON CONFLICT (tenant_id, id) DO UPDATE SET kept = commits.kept RETURNING kept"

func (s *Store) claim(ctx context.Context, tenant tenantKey, mark pgtype.UUID) (kept bool, err error) {
	c, err := s.acquire(ctx)
	if err != nil {
		return false, err
	}
	defer c.Release()
	err = exchange(ctx, c, tenant, beginSingle, []step{
		{doing: "claim a commit", text: claimStatement, args: []any{mark}, rows: func(r pgx.Rows) error {
			if !r.Next() {
				return pgx.ErrNoRows
			}
			return r.Scan(&kept)
		}},
		{doing: "commit", text: commit},
	})
	return kept, err
}

// turns are taken by updates that failed several times, of tenants that share
// a turn by chance too.
type turns [64]chan struct{}

func newTurns() (t turns) {
	for i := range t {
		t[i] = make(chan struct{}, 1)
	}
	return t
}

// take waits for a turn and returns the function that ends it.
func (t *turns) take(ctx context.Context, tenant tenantKey) (leave func(), err error) {
	turn := t[tenant[15]%64]
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
