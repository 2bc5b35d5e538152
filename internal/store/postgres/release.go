package postgres

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Servers of two releases share a database while one replaces the other. The
// database says in 'schema' which migration was the last, and in 'oldest'
// which number a server must know at least to work on it. Without the second
// it is the first: whoever does not say that others can go on stops them.

// goesOn is the first line of a migration that servers who do not know it can
// live with, from those on who know the number in it. It only adds what they
// need not know: docs/decisions/upgrades.md has the rules.
const goesOn = "-- Servers that know number %d go on working."

// oldestServer returns the number that a server must know at least to work on
// the schema that these migrations make.
func oldestServer(texts []string) (oldest int) {
	for i, text := range texts {
		needs := i + 1
		if n := 0; scanned(text, &n) && n > 0 {
			needs = min(needs, n)
		}
		oldest = max(oldest, needs)
	}
	return oldest
}

func scanned(text string, n *int) bool {
	_, err := fmt.Sscanf(text, goesOn, n)
	return err == nil
}

// How long a migration waits for a table before it lets the requests through
// that wait behind it, and how often it tries.
const (
	migrationWait  = 500 * time.Millisecond
	migrationPause = 500 * time.Millisecond
	migrationTries = 300
)

// patiently runs a migration, in a transaction of its own, until nothing stands
// in its way: a dump reads every table for as long as it takes.
func patiently(ctx context.Context, c *pgx.Conn, text string) (err error) {
	for range migrationTries {
		err = script(ctx, c, fmt.Sprintf("BEGIN; SET LOCAL lock_timeout = %d; %s; COMMIT", migrationWait.Milliseconds(), text))
		pe, ok := refusal(err)
		if err == nil || !ok || pe.Code != "55P03" {
			return err
		}
		if err := script(ctx, c, "ROLLBACK"); err != nil {
			return err
		}
		select {
		case <-time.After(migrationPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return own("something holds the tables that must be changed, a dump perhaps: %w", store.ErrUnavailable)
}

// dismiss makes sure that no server is connected that knows less than a
// migration wants, and keeps new ones from it until c ends.
func dismiss(ctx context.Context, c *pgx.Conn, from, oldest int) error {
	for n := from; n < oldest; n++ {
		var alone bool
		if err := c.QueryRow(ctx, "SELECT pg_try_advisory_lock($1, $2)", releaseSpace, n).Scan(&alone); err != nil {
			return err
		}
		if !alone {
			return own("this release cannot run beside the older one that uses the database: stop its servers first: %w", store.ErrInUse)
		}
	}
	return nil
}

// release is what a server knows of the schema.
type release struct {
	known int // the last of its migrations
	say   sync.Once
}

// admit looks whether this server still may use the database, whenever it
// connects. The lock that the connection holds from then on stands in the way
// of a migration that this server could not live with; what is read behind it
// stays true for as long as the connection lives.
func (r *release) admit(ctx context.Context, c *pgx.Conn, o Options) error {
	if err := script(ctx, c, fmt.Sprintf("SELECT pg_advisory_lock_shared(%d, %d)", releaseSpace, r.known)); err != nil {
		return err
	}
	oldest, err := installationNumber(ctx, c, "oldest")
	if err != nil || oldest <= r.known {
		return err
	}
	r.say.Do(func() {
		o.Logger.Error("a newer release has changed the database so that this one cannot go on: replace this server", "needs", oldest, "knows", r.known)
	})
	return store.ErrNewerSchema
}

// installationNumber reads a number of the installation; 0 when there is none.
func installationNumber(ctx context.Context, c *pgx.Conn, name string) (int, error) {
	results, err := c.PgConn().Exec(ctx, fmt.Sprintf("SELECT convert_from(value, 'UTF8') FROM %s.installation WHERE name = '%s'", schema, name)).ReadAll()
	if err != nil || len(results) != 1 || len(results[0].Rows) == 0 {
		return 0, err
	}
	n, err := strconv.Atoi(string(results[0].Rows[0][0]))
	if err != nil || n < 1 {
		return 0, own("the number of the schema cannot be read: %w", store.ErrDamaged)
	}
	return n, nil
}

// Current implements store.AllTenants.
func (a allTenants) Current(ctx context.Context) error {
	found, err := across(ctx, a.store, "read the number of the schema", "SELECT convert_from(value, 'UTF8')::int FROM installation WHERE name = 'schema'", nil,
		func(row pgx.Rows) (n int, err error) { return n, row.Scan(&n) })
	if err == nil && len(found) == 1 && found[0] > a.store.release.known {
		return store.ErrNewerSchema
	}
	return err
}
