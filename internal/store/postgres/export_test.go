package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// OpenTraced opens a store whose statements are traced: those of requests, and
// those that cross tenants.
func OpenTraced(ctx context.Context, url string, o Options, requests, owner pgx.QueryTracer) (*Store, error) {
	o.requestTracer, o.ownerTracer = requests, owner
	return Open(ctx, url, o)
}

// Untenanted are the statements on the connections of requests that concern no
// tenant's rows, and so no tenant.
var Untenanted = []string{beginView, beginUpdate, beginSingle, commit, leaseStatement, serverStatement, readyStatement, clockStatement, "-- ping"}

// Tables returns the tables of tenants, and the one of the installation.
func Tables() (tenants []string, installation string) { return requestTables, "installation" }

// AsTenant runs a statement in a transaction of a tenant, as the role of
// requests, and returns how many rows it saw or changed. Without a tenant the
// transaction has none.
func (s *Store) AsTenant(ctx context.Context, tenant, text string, args ...any) (n int64, err error) {
	c, err := s.requests.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer c.Release()
	err = pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		if tenant != "" {
			if _, err := tx.Exec(ctx, setTenant, tenant); err != nil {
				return err
			}
		}
		tag, err := tx.Exec(ctx, text, args...)
		n = tag.RowsAffected()
		return err
	})
	return n, err
}

// Show returns a setting of the connections of requests.
func (s *Store) Show(ctx context.Context, name string) (value string, err error) {
	err = s.requests.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value)
	return value, err
}

// AsOwner runs a statement as the owner of the tables.
func (s *Store) AsOwner(ctx context.Context, text string, args ...any) error {
	_, err := s.owner.Exec(ctx, text, args...)
	return err
}

// Impatient bounds how long the outcome of a commit is asked for.
func (s *Store) Impatient(d time.Duration) { s.patience = d }

// Tidy does what is done every minute.
func (s *Store) Tidy(ctx context.Context) error { return s.tidyOnce(ctx) }

// Migrations returns the texts of the migrations.
func Migrations() ([]string, error) { return migrations(Options{}) }

// Disconnect ends the connections of a store, which makes new ones when it
// needs them.
func (s *Store) Disconnect() {
	s.requests.Reset()
	s.owner.Reset()
}

// OldestServer is the number that a server must know for these migrations.
func OldestServer(texts []string) int { return oldestServer(texts) }

// ReleaseSpace is where servers say which migrations they know.
const ReleaseSpace = releaseSpace

// HoldCommits stands for a commit of a tenant that is under way until it is
// released: what comes meanwhile is gathered for the next. waiting returns how
// many wait.
func (s *Store) HoldCommits(tenant string) (waiting func() int, release func(), err error) {
	key, err := parseTenant(tenant)
	if err != nil {
		return nil, nil, err
	}
	g, q := s.gatherer, &queue{leaders: maxLeaders}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queues[key] = q
	waiting = func() int {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(q.waiting)
	}
	return waiting, func() { g.handOver(key) }, nil
}

// Rename gives the server of a transaction's connection another name, as if
// that one led to a server of its own.
func (s *Store) Rename(ctx context.Context, of store.Tx, name string) error {
	t := of.(*tx)
	if err := t.connect(ctx); err != nil {
		return err
	}
	t.conn.Conn().PgConn().CustomData()[serverName] = name
	t.rows.server = name
	return nil
}
