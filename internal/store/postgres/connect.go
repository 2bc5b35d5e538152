package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
)

// schema holds all tables, apart from whatever else is in the database.
const schema = "tokenkeep"

// How long things may take. The server gives up first, and says why. A line
// that has gone silent is left after answerWait, and one host that is silent
// costs connectWait on the way to the next: together less than ten seconds.
const (
	connectWait   = 3 * time.Second // to reach a host of the URL
	pingWait      = 2 * time.Second // for a connection that was not used for a second
	statementWait = 4 * time.Second // for a statement
	lockWait      = 3 * time.Second // for a lock, which is part of that
	scrubWait     = 200 * time.Millisecond
	idleWait      = 5 * time.Second // for the next statement of a transaction
	answerWait    = 5 * time.Second // for all answers of one round trip
	againWait     = 3 * time.Second // from which on what failed is not tried again, but reported
	choreWait     = 2 * answerWait  // for a statement that crosses tenants
	tidyWait      = 10 * time.Minute
	checkWait     = 24 * time.Hour
)

// Names of the advisory locks, in spaces of their own ("TKEP" and what follows).
const (
	lockSpace    = 0x544b4550
	slotSpace    = 0x544b4551
	releaseSpace = 0x544b4552
	migrationKey = 1
	receiveKey   = 2
	indexKey     = 3
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
	%s`,
	schema, lockWait.Milliseconds(), idleWait.Milliseconds(), syncCommit)

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
	c.ConnConfig.ValidateConnect = takesChanges // of several hosts the one that does, whatever the URL says
	c.ConnConfig.AfterNetConnect = func(_ context.Context, _ *pgconn.Config, conn net.Conn) (net.Conn, error) {
		return uncancelled{conn}, nil
	}
	c.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler { return hangUp{conn.Conn()} }
	c.ConnConfig.OnNotice = func(conn *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" && n.Code == "01000" {
			conn.CustomData()[doubtName] = true
		}
	}
	return c, nil
}

// errNoChanges says that a host is a standby, or takes no changes for another
// reason.
var errNoChanges = errors.New("postgres: the server takes no changes")

func takesChanges(ctx context.Context, c *pgconn.PgConn) error {
	r := c.ExecParams(ctx, "SHOW transaction_read_only", nil, nil, nil, nil).Read()
	if r.Err != nil {
		return r.Err
	}
	if len(r.Rows) != 1 || string(r.Rows[0][0]) != "off" {
		return errNoChanges
	}
	return nil
}

// uncancelled keeps the driver from asking the server to cancel what a
// connection that it gives up was doing: a commit that is told to stop waiting
// for its standby is kept without it, and found to be there. It has no address
// to send that to.
type uncancelled struct{ net.Conn }

func (uncancelled) RemoteAddr() net.Addr { return nowhere{} }

type nowhere struct{}

func (nowhere) Network() string { return "nowhere" }
func (nowhere) String() string  { return "nowhere" }

// hangUp ends a connection that does not answer in time at once. The driver
// would keep it, and its place in the pool, for a farewell.
type hangUp struct{ conn net.Conn }

func (h hangUp) HandleCancel(context.Context) { _ = h.conn.Close() }
func (hangUp) HandleUnwatchAfterCancel()      {}

// doubtName is where a connection notes a warning of the server. With a commit
// that means: somebody made it stop waiting for its standby. At other times it
// means nothing to us.
const doubtName = "tokenkeep.doubt"

func trust(c *pgconn.PgConn)         { delete(c.CustomData(), doubtName) }
func doubtful(c *pgconn.PgConn) bool { return c.CustomData()[doubtName] != nil }

// errDoubt says that a commit came with such a warning.
var errDoubt = fmt.Errorf("postgres: the server warned of a commit: %w", errLost)

// ownerPool is for what crosses tenants and for the installation itself.
func ownerPool(ctx context.Context, c *pgxpool.Config, o Options, r *release) (*pgxpool.Pool, error) {
	c = c.Copy()
	c.MaxConns, c.MinConns = ownerConnections, 0
	c.ConnConfig.Tracer = o.ownerTracer
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, connectWait)
		defer cancel()
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
	turn := make(chan struct{}, 1)
	c.ConnConfig.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if err := takesChanges(ctx, conn); err != nil {
			return err
		}
		return catchUp(ctx, conn, turn)
	}
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, connectWait) // which the pool does not bound
		defer cancel()
		if err := script(ctx, conn, session+requestSession); err != nil {
			return err
		}
		if err := r.admit(ctx, conn, o); err != nil {
			return err
		}
		if err := leaseSlot(ctx, conn); err != nil {
			return err
		}
		if err := nameServer(ctx, conn); err != nil {
			return err
		}
		return script(ctx, conn, "SET ROLE "+pgx.Identifier{o.RequestRole}.Sanitize())
	}
	var pool *pgxpool.Pool
	c.ShouldPing = func(ctx context.Context, p pgxpool.ShouldPingParams) bool {
		if p.IdleDuration < time.Second {
			return false
		}
		ctx, cancel := context.WithTimeout(ctx, pingWait)
		defer cancel()
		if p.Conn.Ping(ctx) == nil {
			return false
		}
		pool.Reset() // its neighbours have probably gone the same way
		return true  // and the pool finds this one closed
	}
	var err error
	pool, err = pgxpool.NewWithConfig(ctx, c)
	return pool, err
}

// syncCommit makes commits wait, for the disk at least.
const syncCommit = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';"

// catchUp commits something that changes nothing, and so waits for the standby
// if commits do. After a crash the server shows commits that were still
// waiting: from here on, the standby has all that the connection can see. And a
// primary whose standby has become the primary is not connected with: no other
// commit would end there either. A server does not notice that somebody has
// left such a wait; so one connection waits at a time, and those that are left
// do not pile up.
func catchUp(ctx context.Context, c *pgconn.PgConn, turn chan struct{}) error {
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	trust(c)
	err := c.Exec(ctx, syncCommit+"SELECT pg_logical_emit_message(true, 'tokenkeep', '')").Close()
	if err == nil && doubtful(c) {
		err = errDoubt
	}
	return err
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

// serverName is where a connection notes which server it leads to.
const serverName = "tokenkeep.server"

const serverStatement = "SELECT pg_postmaster_start_time()::text"

// nameServer notes the server of a connection: the instant at which it started
// tells it from the one that takes over.
func nameServer(ctx context.Context, c *pgx.Conn) error {
	var name string
	err := c.QueryRow(ctx, serverStatement).Scan(&name)
	c.PgConn().CustomData()[serverName] = name
	return err
}

func serverOf(c *pgconn.PgConn) string {
	name, _ := c.CustomData()[serverName].(string)
	return name
}
