package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// schema holds all tables, apart from whatever else is in the database.
const schema = "tokenkeep"

// How long things may take. The server gives up first, and says why.
const (
	connectWait   = 5 * time.Second  // to reach the server
	statementWait = 10 * time.Second // for a statement
	lockWait      = 5 * time.Second  // for a lock, which is part of that
	scrubWait     = 200 * time.Millisecond
	idleWait      = 30 * time.Second // for the next statement of a transaction
	answerWait    = 20 * time.Second // for all answers of one round trip
)

// Names of the advisory locks, in spaces of their own ("TKEP" and what follows).
const (
	lockSpace    = 0x544b4550
	slotSpace    = 0x544b4551
	releaseSpace = 0x544b4552
	migrationKey = 1
)

// slots is how many connections of all servers together can have a slot of
// the counters to themselves. Rows are made for those alone that are used.
const slots = 1024

// session are the settings of every connection. Sequential scans lock whole
// tables against the changes of others, and statements are written for one
// index each: the planner's other ideas are switched off.
var session = fmt.Sprintf(`
	SET search_path = %s, pg_temp;
	SET client_encoding = 'UTF8';
	SET lock_timeout = %d;
	SET idle_in_transaction_session_timeout = %d;
	SET default_transaction_deferrable = off;
	SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';`,
	schema, lockWait.Milliseconds(), idleWait.Milliseconds())

var requestSession = fmt.Sprintf(`
	SET statement_timeout = %d;
	SET plan_cache_mode = force_generic_plan;
	SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
	SET jit = off;`, statementWait.Milliseconds())

// parseURL reads the URL. Its parts end up in no error.
func parseURL(url string) (*pgxpool.Config, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("postgres: the database URL cannot be read")
	}
	c.ConnConfig.ConnectTimeout = connectWait
	c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement // which pipelines need, whatever the URL says
	c.ConnConfig.RuntimeParams["application_name"] = "tokenkeep"
	return c, nil
}

// ownerPool is for what crosses tenants and for the installation itself.
func ownerPool(ctx context.Context, c *pgxpool.Config, o Options, r *release) (*pgxpool.Pool, error) {
	c = c.Copy()
	c.MaxConns, c.MinConns = ownerConnections, 0
	c.ConnConfig.Tracer = o.ownerTracer
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := script(ctx, conn, session); err != nil {
			return err
		}
		return r.admit(ctx, conn, o)
	}
	return pgxpool.NewWithConfig(ctx, c)
}

// requestPool is for View, Update and the epoch keys of a tenant: its
// connections act as a role that sees the rows of one tenant alone.
func requestPool(ctx context.Context, c *pgxpool.Config, o Options, r *release) (*pgxpool.Pool, error) {
	c = c.Copy()
	c.MaxConns, c.MinConns = int32(o.Connections), 0
	c.ConnConfig.Tracer = o.requestTracer
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := script(ctx, conn, session+requestSession); err != nil {
			return err
		}
		if err := r.admit(ctx, conn, o); err != nil {
			return err
		}
		if err := leaseSlot(ctx, conn); err != nil {
			return err
		}
		return script(ctx, conn, "SET ROLE "+pgx.Identifier{o.RequestRole}.Sanitize())
	}
	return pgxpool.NewWithConfig(ctx, c)
}

// script runs statements that are not worth keeping prepared.
func script(ctx context.Context, c *pgx.Conn, text string) error {
	return c.PgConn().Exec(ctx, text).Close()
}

// slotName is where a connection keeps the number of its slot.
const slotName = "tokenkeep.slot"

const leaseStatement = "SELECT n FROM generate_series(0, $2::int - 1) AS n WHERE pg_try_advisory_lock($1, n) LIMIT 1"

// leaseSlot gives a connection the lowest slot of the counters that no other
// connection holds, until it ends. It makes conflicts rare and is needed for
// nothing else: two connections on one slot wait for each other and retry.
func leaseSlot(ctx context.Context, c *pgx.Conn) error {
	var slot int
	err := c.QueryRow(ctx, leaseStatement, slotSpace, slots).Scan(&slot)
	if errors.Is(err, pgx.ErrNoRows) {
		slot, err = rand.IntN(slots), nil
	}
	c.PgConn().CustomData()[slotName] = slot
	return err
}

func slotOf(c *pgconn.PgConn) int {
	slot, _ := c.CustomData()[slotName].(int)
	return slot
}
