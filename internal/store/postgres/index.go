package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// lateIndexes are indexes on tables that may already be large when the index is
// introduced. A migration is a transaction, in which PostgreSQL cannot build an
// index without locking out the writers of its table. These are built
// CONCURRENTLY after the migrations, while servers of both releases go on.
// Nothing but speed depends on them.
var lateIndexes = []struct{ name, on string }{
	{"tokens_outdated", "tokens (tenant_id, id) WHERE derived_at <> version"},
	// For jobs and deliveries, which are taken tenant by tenant.
	{"parcels_due_by_tenant", "parcels (kind, tenant_id, due_at, id) WHERE due_at IS NOT NULL"},
}

const (
	// indexWait is how long the build waits for each transaction that began
	// before it, a dump perhaps. It holds up nobody meanwhile.
	indexWait = 5 * time.Minute
	// indexPause is how often a server looks whether another one has finished.
	indexPause = 100 * time.Millisecond
)

// buildIndexes builds the late indexes that are missing, and builds again those
// that an interrupted build left invalid. An older server leaves the indexes of
// a newer schema alone: a newer release may have dropped one.
//
// PostgreSQL waits during the build for every transaction that has a snapshot,
// also for a statement that waits for an advisory lock. So this connection gives
// up its advisory locks first, for which starting servers wait; and a server
// that waits for the build tries the lock again and again.
func buildIndexes(ctx context.Context, c *pgx.Conn, o Options) error {
	known, err := migrations(o)
	if err != nil {
		return ownError{err}
	}
	if version, _, err := schemaVersion(ctx, c); err != nil || version > len(known) {
		return err
	}
	if err := script(ctx, c, fmt.Sprintf("SET lock_timeout = %d; SET statement_timeout = 0; SELECT pg_advisory_unlock_all()", indexWait.Milliseconds())); err != nil {
		return err
	}
	for _, index := range lateIndexes {
		for built := false; !built; {
			if built, err = indexed(ctx, c, index.name); err != nil {
				return err
			}
			if !built {
				if built, err = buildIndex(ctx, c, o, index.name, index.on); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// indexed reports whether an index is there and complete.
func indexed(ctx context.Context, c *pgx.Conn, name string) (yes bool, err error) {
	err = c.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_index WHERE indexrelid = to_regclass($1) AND indisvalid)", schema+"."+name).Scan(&yes)
	return yes, err
}

// buildIndex builds an index unless another server is building one: then it
// pauses and returns false.
func buildIndex(ctx context.Context, c *pgx.Conn, o Options, name, on string) (built bool, err error) {
	var ours bool
	if err := c.QueryRow(ctx, "SELECT pg_try_advisory_lock($1, $2)", lockSpace, indexKey).Scan(&ours); err != nil {
		return false, err
	}
	if !ours {
		return false, pause(ctx, indexPause)
	}
	defer func() { _ = script(context.WithoutCancel(ctx), c, "SELECT pg_advisory_unlock_all()") }()
	if built, err := indexed(ctx, c, name); err != nil || built {
		return built, err // by another server, since we looked
	}
	o.Logger.Info("building an index, which takes a while on a large table", "index", name)
	for _, text := range []string{"DROP INDEX CONCURRENTLY IF EXISTS " + name, "CREATE INDEX CONCURRENTLY " + name + " ON " + on} {
		err := script(ctx, c, text)
		if pe, ok := refusal(err); ok && pe.Code == "55P03" {
			return false, own("a transaction that has not ended holds up the build of an index, a dump perhaps: %w", store.ErrUnavailable)
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}
