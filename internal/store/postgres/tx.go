package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// How transactions begin and end. They travel with the statements between
// them: without a BEGIN of its own a pipeline is one transaction on PostgreSQL
// itself, and not on every engine that speaks its protocol.
const (
	beginView   = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
	beginUpdate = "BEGIN ISOLATION LEVEL SERIALIZABLE"
	beginSingle = "BEGIN ISOLATION LEVEL READ COMMITTED"
	setTenant   = "SELECT set_config('tokenkeep.tenant_id', $1, true)"
)

// step is one statement of a round trip. Its first parameter is the tenant.
type step struct {
	doing string
	text  string
	args  []any
	// taken is what a key that is there already means, if not store.ErrExists.
	taken error
	// empty is what a value that is missing where one must be means.
	empty error
	// full is what a division by zero means, by which a statement refuses.
	full error
	// changed gets the number of rows that the statement changed.
	changed *int64
	// rows reads what the statement returns. It may be called again, from the
	// start.
	rows func(pgx.Rows) error
}

// tx is a transaction on one tenant's rows. Every statement below begins its
// conditions with the tenant, which comes from here and from nowhere else. It
// takes a connection with its first read; an update that reads nothing does
// not need one before its commit.
type tx struct {
	store  *Store
	tenant tenantKey
	begin  string
	conn   *pgxpool.Conn // nil before it is needed
	begun  bool          // the connection is in the transaction

	// What was written and not sent: statements, and behind them rows.
	waiting []step
	rows    rows
	// logs says that a view may append to the log. Its entries stay in rows.
	logs bool
	// seen are tokens as this transaction has read them, so that to change one
	// takes no second read. The snapshot does not change; own writes take their
	// token out.
	seen map[string]store.Token
	// sent says that writes have been sent without the commit.
	sent bool
	// needsTenant says that what was written may only be kept if the tenant is
	// there; hasTenant that the transaction has seen to that itself.
	needsTenant, hasTenant bool
	// scrub asks for the table of keysets to be rewritten after the commit,
	// because it holds copies of what the transaction destroyed.
	scrub bool

	ended bool
	// failed is an error after which nothing of the transaction may be kept,
	// even if its function lets the error pass.
	failed error
}

var _ store.Tx = (*tx)(nil)

func (t *tx) Tenant() string { return t.tenant.String() }

func (t *tx) usable() error {
	if t.ended {
		return fmt.Errorf("postgres: transaction has ended: %w", store.ErrUnavailable)
	}
	return t.failed
}

// writes says whether the transaction may write now.
func (t *tx) writes() error {
	if err := t.usable(); err != nil {
		return err
	}
	if t.begin == beginView {
		return store.ErrReadOnly
	}
	return nil
}

// fail sees to it that nothing of the transaction is kept.
func (t *tx) fail(err error) error {
	if err != nil && t.failed == nil {
		t.failed = err
	}
	return err
}

// later writes with the next round trip.
func (t *tx) later(s step) error {
	if err := t.writes(); err != nil {
		return err
	}
	if unstorable(s.args...) {
		return errUnstorable
	}
	t.settleRows()
	t.needsTenant = true
	t.waiting = append(t.waiting, s)
	return nil
}

// now writes at once and returns how many rows were changed.
func (t *tx) now(ctx context.Context, s step) (n int64, err error) {
	if err := t.writes(); err != nil {
		return 0, err
	}
	if unstorable(s.args...) {
		return 0, errUnstorable
	}
	t.settleRows()
	t.needsTenant = true
	s.changed = &n
	err = t.roundTrip(ctx, s)
	t.sent = true
	return n, err
}

// spared runs a write that a tenant need not be there for.
func (t *tx) spared(write func() error) error {
	t.settleRows()
	needs := t.needsTenant
	err := write()
	t.needsTenant = needs
	return err
}

// changeOne writes at once what must change one row, and returns missing otherwise.
func (t *tx) changeOne(ctx context.Context, missing error, s step) error {
	n, err := t.now(ctx, s)
	if err == nil && n == 0 {
		return missing
	}
	return err
}

// query reads, and sends before it what was written.
func (t *tx) query(ctx context.Context, doing, text string, args []any, each func(pgx.Rows) error) error {
	if err := t.usable(); err != nil {
		return err
	}
	if unstorable(args...) {
		return nil // so no row has it
	}
	t.settleRows()
	return t.roundTrip(ctx, step{doing: doing, text: text, args: args, rows: each})
}

// one reads a single row, and reports store.ErrNotFound when there is none.
func (t *tx) one(ctx context.Context, doing, text string, args []any, scan func(pgx.Rows) error) error {
	found := false
	err := t.query(ctx, doing, text, args, func(r pgx.Rows) error {
		if found = r.Next(); !found {
			return nil
		}
		return scan(r)
	})
	if err == nil && !found {
		return store.ErrNotFound
	}
	return err
}

// number reads a single integer; 0 when there is no row or it is null.
func (t *tx) number(ctx context.Context, doing, text string, args ...any) (int64, error) {
	var n pgtype.Int8
	err := t.one(ctx, doing, text, args, func(r pgx.Rows) error { return r.Scan(&n) })
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	return n.Int64, err
}

// list reads rows into a slice.
func list[T any](ctx context.Context, t *tx, doing, text string, args []any, scan func(pgx.Rows) (T, error)) (all []T, err error) {
	err = t.query(ctx, doing, text, args, func(r pgx.Rows) error {
		all = nil
		for r.Next() {
			row, err := scan(r)
			if err != nil {
				return err
			}
			all = append(all, row)
		}
		return nil
	})
	return all, err
}

// settleRows puts the rows that were written behind the statements that were
// written before them, so that the order stays. Counters wait for the end.
func (t *tx) settleRows() {
	if t.logs {
		return // they are kept after the view
	}
	statements := t.rows.statements()
	t.needsTenant = t.needsTenant || len(statements) > 0
	t.waiting = append(t.waiting, statements...)
	t.rows.settled()
}

// settleCounters makes the counters agree with the rows, for who reads them.
func (t *tx) settleCounters(ctx context.Context) error {
	if err := t.usable(); err != nil || t.logs || !t.rows.counted() {
		return err
	}
	if err := t.connect(ctx); err != nil { // the slot is the connection's
		return err
	}
	t.settleRows()
	counters, err := t.rows.counters(slotOf(t.conn.Conn().PgConn()), t.store.maxContainers)
	if err != nil {
		return t.fail(err)
	}
	t.waiting = append(t.waiting, counters...)
	t.rows = rows{}
	return nil
}

// roundTrip sends what waits and the last statement, and reads all answers.
func (t *tx) roundTrip(ctx context.Context, last step) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	steps := append(t.waiting, last)
	t.sent = t.sent || len(t.waiting) > 0
	t.waiting = nil
	began := time.Now()
	for try := 1; ; try++ {
		if err := t.connect(ctx); err != nil {
			return t.fail(err)
		}
		opening := t.opening()
		err := exchange(ctx, t.conn, t.tenant, opening, steps)
		// Nothing has been seen so far, so another connection will do as well.
		if opening != "" && try < 3 && errors.Is(err, errLost) && time.Since(began) < againWait {
			t.drop()
			continue
		}
		return t.fail(err)
	}
}

// opening returns the statement that begins the transaction, once.
func (t *tx) opening() string {
	if t.begun {
		return ""
	}
	t.begun = true
	return t.begin
}

// connect takes a connection from the pool.
func (t *tx) connect(ctx context.Context) error {
	if t.conn != nil {
		return nil
	}
	c, err := t.store.acquire(ctx)
	t.conn = c
	if err == nil && t.logs {
		t.rows.server = serverOf(c.Conn().PgConn())
	}
	return err
}

// acquire takes a connection of requests. It waits as long as the caller does,
// and no longer than for an answer.
func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	waiting, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	c, err := s.requests.Acquire(waiting)
	switch {
	case err == nil:
		return c, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, fmt.Errorf("%w%s", errUnreachable, reason(err))
}

// drop gives up a connection that was lost. Its neighbours have probably gone
// the same way.
func (t *tx) drop() {
	t.conn.Release()
	t.conn, t.begun = nil, false
	t.store.requests.Reset()
}

// end gives the connection back. The caller need not wait for the rollback.
func (t *tx) end() {
	t.ended = true
	c := t.conn
	if c == nil {
		return
	}
	t.conn = nil
	if c.Conn().IsClosed() {
		c.Release()
		t.store.requests.Reset()
		return
	}
	if c.Conn().PgConn().TxStatus() == 'I' {
		c.Release()
		return
	}
	t.store.running.Add(1) // Close is waiting for our caller still
	go func() {
		defer t.store.running.Done()
		ctx, cancel := context.WithTimeout(context.Background(), answerWait)
		defer cancel()
		_ = script(ctx, c.Conn(), "ROLLBACK") // a connection that is not clean is not used again
		c.Release()
	}()
}

// exchange sends statements in one pipeline and reads all answers. opening,
// when not empty, begins a transaction of the tenant before them. An
// interrupted caller is no reason to break the connection: the time-outs of the
// server bound what is lost.
func exchange(ctx context.Context, c *pgxpool.Conn, tenant tenantKey, opening string, steps []step) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWait)
	defer cancel()
	var batch pgx.Batch
	if opening != "" {
		batch.Queue(opening)
		batch.Queue(setTenant, tenant.String())
	}
	key := tenant.column()
	for _, s := range steps {
		if s.text == commit {
			batch.Queue(commit)
			continue
		}
		batch.Queue(s.text, append([]any{key}, s.args...)...)
	}
	trust(c.Conn().PgConn())
	results := c.SendBatch(ctx, &batch)
	defer func() { _ = results.Close() }()
	if opening != "" {
		for range 2 {
			if _, err := results.Exec(); err != nil {
				return stepError(c, step{doing: "begin"}, err)
			}
		}
	}
	for _, s := range steps {
		if err := s.read(results); err != nil {
			return stepError(c, s, err)
		}
	}
	if err := results.Close(); err != nil {
		return stepError(c, step{doing: "end round trip"}, err)
	}
	if steps[len(steps)-1].text == commit && doubtful(c.Conn().PgConn()) {
		_ = c.Conn().Close(ctx)
		return errDoubt
	}
	return nil
}

func (s step) read(results pgx.BatchResults) error {
	if s.rows == nil {
		tag, err := results.Exec()
		if s.changed != nil {
			*s.changed = tag.RowsAffected()
		}
		if err == nil && s.text == commit && tag.String() != "COMMIT" {
			return errRolledBack
		}
		return err
	}
	r, err := results.Query()
	if err != nil {
		return err
	}
	err = s.rows(r)
	r.Close()
	if r.Err() != nil {
		return r.Err()
	}
	if err != nil {
		return unreadableError{err}
	}
	return nil
}

// errRolledBack says that the server answered a commit with a rollback.
var errRolledBack = errors.New("postgres: the transaction was rolled back")

// unreadableError says that a row came and could not be read.
type unreadableError struct{ error }

// stepError maps the error of a step.
func stepError(c *pgxpool.Conn, s step, err error) error {
	var unreadable unreadableError
	switch pe, refused := refusal(err); {
	case refused && pe.Code == "23502" && s.empty != nil: // not_null_violation
		return fmt.Errorf("postgres: %s: %w", s.doing, s.empty)
	case refused && pe.Code == "22012" && s.full != nil: // division_by_zero
		return fmt.Errorf("postgres: %s: %w", s.doing, s.full)
	case errors.Is(err, errRolledBack):
		return err
	case errors.As(err, &unreadable):
		return fmt.Errorf("postgres: %s: a row cannot be read: %w", s.doing, store.ErrDamaged)
	case refused && pe.Code == "25006": // read_only_sql_transaction: not, or no longer, the one to be connected with
		_ = c.Conn().PgConn().Conn().Close()
	case !refused && !c.Conn().IsClosed():
		// The driver could not put an argument into its form. It would say
		// which, with the value.
		return fmt.Errorf("postgres: %s: the statement cannot be sent", s.doing)
	}
	return mapError(s.doing, err, s.taken)
}

// errUnstorable says that a text holds what PostgreSQL's texts cannot.
var errUnstorable = errors.New("postgres: a text must be UTF-8 without NUL")

// unstorable reports whether a text among the arguments cannot be stored, so
// that no row has it either.
func unstorable(args ...any) bool {
	for _, a := range args {
		if s, ok := a.(string); ok && !storable(s) {
			return true
		}
	}
	return false
}

func storable(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// orNull stores no time as NULL, so that indexes on times stay small.
func orNull(t store.Time) pgtype.Int8 { return pgtype.Int8{Int64: int64(t), Valid: !t.IsZero()} }

// orEmpty stores no bytes as none, where a column wants to know.
func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
