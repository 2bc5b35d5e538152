package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// oldest is the first version of PostgreSQL that is served.
const oldest = 14

// tenantTables are emptied in this order when a tenant goes; its own row goes
// last, so that a stopped deletion is found and finished. Log batches stay.
var tenantTables = []string{
	"keysets", "application_keys", "applications", "tokens", "token_terms", "token_groups",
	"token_types", "token_containers", "container_counts", "token_groups_emptied",
	"sessions", "parcels", "definitions", "marks", "log_unsealed", "log", "log_counts", "event_queue", "events", "event_heads", "log_activity", "tenants",
}

// requestTables are what the role of requests may read and change.
var requestTables = append([]string{"log_batches", "commits", "epoch_keys"}, tenantTables...)

// migrations returns the texts in the order of their numbers, which have no gaps.
func migrations(o Options) ([]string, error) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(names))
	for i, name := range names { // fs.Glob sorts
		if want := fmt.Sprintf("migrations/%04d_", i+1); !strings.HasPrefix(name, want) {
			return nil, fmt.Errorf("postgres: migration %d is missing: found %s", i+1, name)
		}
		b, err := migrationFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		texts[i] = string(b)
	}
	return append(texts, o.Ahead...), nil
}

// prepare brings the database up to date. Servers that start together take
// turns. It fails with store.ErrNewerSchema before it has changed anything, and
// with store.ErrInUse when older servers are connected that could not go on.
func prepare(ctx context.Context, config *pgx.ConnConfig, o Options) (err error) {
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return mapError("connect", err, nil)
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }() // which frees the lock
	for _, step := range []struct {
		doing string
		do    func(ctx context.Context, c *pgx.Conn, o Options) error
	}{
		{"look at the server", checkServer},
		{"wait for other servers", func(ctx context.Context, c *pgx.Conn, _ Options) error {
			_, err := c.Exec(ctx, "SELECT pg_advisory_lock($1, $2)", lockSpace, migrationKey)
			return err
		}},
		{"look for a migration from another store", checkMark},
		{"migrate", migrate},
		{"begin a migration from another store", leaveMark},
		{"prepare the role of requests", prepareRole},
		{"choose how epoch keys are kept", keepEpochKeys},
		{"build indexes", buildIndexes}, // last: it gives up the lock
	} {
		if err := step.do(ctx, c, o); err != nil {
			var own ownError
			if errors.As(err, &own) || ctx.Err() != nil {
				return errors.Join(ctx.Err(), own.error)
			}
			return mapError(step.doing, err, nil)
		}
	}
	return nil
}

// ownError is an error of ours, without anything of the server's in its text.
type ownError struct{ error }

func (e ownError) Unwrap() error { return e.error }

func own(format string, args ...any) error { return ownError{fmt.Errorf("postgres: "+format, args...)} }

func checkServer(ctx context.Context, c *pgx.Conn, o Options) error {
	var version int
	var encoding, fsync, fullPages string
	if err := c.QueryRow(ctx, `
		SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
		  current_setting('fsync'), current_setting('full_page_writes')`).Scan(&version, &encoding, &fsync, &fullPages); err != nil {
		return err
	}
	switch {
	case version < oldest*10_000:
		return own("the server is older than PostgreSQL %d", oldest)
	case encoding != "UTF8":
		return own("the database must have the encoding UTF8")
	}
	if fsync != "on" || fullPages != "on" {
		o.Logger.Warn("the database server does not sync to disk: what it acknowledges can be lost", "fsync", fsync, "full_page_writes", fullPages)
	}
	return nil
}

// migrate runs the migrations that the database has not seen, each in a
// transaction of its own. Servers that are connected go on meanwhile.
func migrate(ctx context.Context, c *pgx.Conn, o Options) error {
	texts, err := migrations(o)
	if err != nil {
		return ownError{err}
	}
	version, oldest, err := schemaVersion(ctx, c)
	switch {
	case err != nil:
		return err
	case oldest > len(texts):
		return ownError{fmt.Errorf("%w: its schema is number %d, which takes a release that knows number %d, and this one knows %d", store.ErrNewerSchema, version, oldest, len(texts))}
	case version > len(texts):
		o.Logger.Warn("a newer release has changed the database: this server goes on until it is replaced", "schema", version, "knows", len(texts))
	case version == 0:
		// IF NOT EXISTS would ask for the right to create even when it is there.
		var there bool
		if err := c.QueryRow(ctx, "SELECT to_regnamespace($1) IS NOT NULL", schema).Scan(&there); err != nil {
			return err
		}
		if !there {
			if err := script(ctx, c, "CREATE SCHEMA "+schema); err != nil {
				return err
			}
		}
	}
	if err := script(ctx, c, "SET search_path = "+schema+", pg_temp"); err != nil {
		return err
	}
	for n := version; n < len(texts); n++ {
		begin, needs := "", oldestServer(texts[:n+1])
		if n == 0 {
			begin = "CREATE TABLE installation (name text COLLATE \"C\" NOT NULL PRIMARY KEY, value bytea NOT NULL);"
		} else if err := dismiss(ctx, c, oldest, needs); err != nil {
			return err
		}
		done := fmt.Sprintf(`
			;
			INSERT INTO installation (name, value) VALUES ('schema', convert_to('%d', 'UTF8')), ('oldest', convert_to('%d', 'UTF8'))
			ON CONFLICT (name) DO UPDATE SET value = excluded.value`, n+1, needs)
		if err := patiently(ctx, c, begin+texts[n]+done); err != nil {
			return err
		}
		oldest = needs
	}
	return nil
}

// schemaVersion returns the number of the last migration, 0 when there was
// none, and the number that a server must know to work on it.
func schemaVersion(ctx context.Context, c *pgx.Conn) (version, oldest int, err error) {
	var there bool
	if err := c.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", schema+".installation").Scan(&there); err != nil || !there {
		return 0, 0, err
	}
	if version, err = installationNumber(ctx, c, "schema"); err != nil {
		return 0, 0, err
	}
	if version == 0 {
		return 0, 0, own("the schema %s is of another program: %w", schema, store.ErrDamaged)
	}
	if oldest, err = installationNumber(ctx, c, "oldest"); oldest == 0 {
		oldest = version
	}
	return version, oldest, err
}

// prepareRole makes the role of requests, when it is missing and may be made,
// and gives it what requests need.
func prepareRole(ctx context.Context, c *pgx.Conn, o Options) error {
	role := pgx.Identifier{o.RequestRole}.Sanitize()
	there, err := roleExists(ctx, c, o.RequestRole)
	if err != nil {
		return err
	}
	if !there {
		// Another database of the cluster may be made ready at the same time.
		failed := script(ctx, c, "CREATE ROLE "+role+" NOLOGIN NOINHERIT")
		if there, err = roleExists(ctx, c, o.RequestRole); err != nil {
			return err
		}
		if !there {
			if pe, ok := refusal(failed); ok && pe.Code == "42501" {
				return own("the role of requests is missing and may not be made: let an administrator run CREATE ROLE %s NOLOGIN, and GRANT it to the role of the URL", role)
			}
			return failed
		}
	}
	var wall, member bool
	if err := c.QueryRow(ctx, "SELECT NOT rolsuper AND NOT rolbypassrls, pg_has_role(oid, 'MEMBER') FROM pg_roles WHERE rolname = $1", o.RequestRole).Scan(&wall, &member); err != nil {
		return err
	}
	if !wall {
		return own("the role of requests, %s, passes row-level security: it must be neither SUPERUSER nor BYPASSRLS", role)
	}
	if !member {
		if err := script(ctx, c, "GRANT "+role+" TO CURRENT_USER"); err != nil {
			return own("the role of the URL is no member of %s: let an administrator GRANT it", role)
		}
	}
	return script(ctx, c, fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s; GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %s", schema, role, strings.Join(requestTables, ", "), role))
}

func roleExists(ctx context.Context, c *pgx.Conn, role string) (there bool, err error) {
	err = c.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = $1)", role).Scan(&there)
	return there, err
}

// keepEpochKeys makes their table logged or unlogged, as it was chosen.
func keepEpochKeys(ctx context.Context, c *pgx.Conn, o Options) error {
	var logged bool
	if err := c.QueryRow(ctx, "SELECT relpersistence = 'p' FROM pg_class WHERE oid = 'epoch_keys'::regclass").Scan(&logged); err != nil || logged == o.LoggedEpochKeys {
		return err
	}
	if o.LoggedEpochKeys {
		return patiently(ctx, c, "ALTER TABLE epoch_keys SET LOGGED")
	}
	return patiently(ctx, c, "ALTER TABLE epoch_keys SET UNLOGGED")
}
