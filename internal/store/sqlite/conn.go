package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// conn is one connection with its prepared statements. It speaks to the driver
// directly: database/sql would add its own pool, locks and conversions between
// a single-threaded connection and the one goroutine that owns it.
type conn struct {
	raw        driver.Conn
	statements map[string]statement
	args       []driver.NamedValue // of the statement at hand; the driver copies them
	forgets    bool                // a statement has changed what memory keeps
	changed    recentChange        // the tokens that statements have changed or removed
	regroups   bool                // a statement has added or removed groups of tokens
	group      *groupWork          // of the updates that write here; nil where only views read
	cost       int64               // statements that were run and rows that were read or inserted, so far
	changes    int64               // statements that were run and read nothing, so far
}

// durable are the settings that the promise of this package rests on. Every
// connection gets them, and a test reads them back from every connection.
var durable = []struct{ pragma, set, want string }{
	{"journal_mode", "WAL", "wal"},
	{"synchronous", "FULL", "2"},
	{"fullfsync", "ON", "1"},
	{"checkpoint_fullfsync", "ON", "1"},
	{"wal_autocheckpoint", "0", "0"}, // the checkpointer does it
	{"secure_delete", "ON", "1"},     // what is deleted is overwritten
	{"cell_size_check", "ON", "1"},
	{"trusted_schema", "OFF", "0"},
	{"temp_store", "MEMORY", "2"}, // no temporary files beside the store's own
}

// connect opens a connection. cacheKiB bounds its page cache, and wait how long
// it waits for a lock that another connection holds.
func connect(path string, o Options, readOnly bool, cacheKiB int, wait time.Duration) (*conn, error) {
	c, err := connectPlain(path, o.VFS, false)
	if err != nil {
		return nil, err
	}
	var settings strings.Builder
	fmt.Fprintf(&settings, "PRAGMA busy_timeout = %d;", wait.Milliseconds())
	for _, d := range durable {
		fmt.Fprintf(&settings, "PRAGMA %s = %s;", d.pragma, d.set)
	}
	fmt.Fprintf(&settings, "PRAGMA journal_size_limit = %d; PRAGMA cache_size = -%d;", o.WALSoftBytes, cacheKiB)
	if readOnly {
		settings.WriteString("PRAGMA query_only = ON;")
	}
	if err := c.script(settings.String()); err != nil {
		_ = c.close()
		return nil, err
	}
	return c, nil
}

// connectPlain opens a connection that changes nothing of the file's settings.
func connectPlain(path, vfs string, readOnly bool) (*conn, error) {
	query := url.Values{}
	if readOnly {
		query.Set("mode", "ro")
	}
	if vfs != "" {
		query.Set("vfs", vfs)
	}
	name := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: query.Encode()}).String()
	raw, err := (&sqlite.Driver{}).Open(name)
	if err != nil {
		return nil, mapError("open database", err)
	}
	return &conn{raw: raw, statements: make(map[string]statement)}, nil
}

func (c *conn) close() error {
	for _, s := range c.statements {
		_ = s.Close()
	}
	return c.raw.Close()
}

// script runs statements that are not worth keeping prepared.
func (c *conn) script(text string) error {
	_, err := c.raw.(driver.ExecerContext).ExecContext(context.Background(), text, nil)
	return mapError("run script", err)
}

// statement is a prepared one.
type statement struct {
	driver.Stmt
	writes  bool
	forgets bool // it changes what memory keeps
	tokens  bool // it changes or removes tokens
	// regroups says that it adds or removes groups of tokens. Another number of
	// tokens in a group is no such change.
	regroups bool
	log      bool // it reads or changes the log
}

// What a statement does is found in its text, so that none can be forgotten
// where it is written.
var (
	writingStatement = regexp.MustCompile(`^\s*(INSERT|UPDATE|DELETE|REPLACE)\b`)
	rememberedTables = regexp.MustCompile(`\b(tenants|applications|application_keys|definitions)\b`)
	changedTokens    = regexp.MustCompile(`^\s*(UPDATE|DELETE FROM|REPLACE INTO|INSERT OR \w+ INTO)\s+tokens\b`)
	groupStatement   = regexp.MustCompile(`(?s)^\s*(INSERT|DELETE|REPLACE)\b.*\btoken_groups\b`)
	logTables        = regexp.MustCompile(`\blog(_[a-z]+)?\b`)
)

func (c *conn) prepare(text string) (statement, error) {
	if s, ok := c.statements[text]; ok {
		return s, nil
	}
	raw, err := c.raw.Prepare(text)
	if err != nil {
		return statement{}, mapError("prepare statement", err)
	}
	s := statement{Stmt: raw, writes: writingStatement.MatchString(text), tokens: changedTokens.MatchString(text), log: logTables.MatchString(text)}
	s.forgets = s.writes && rememberedTables.MatchString(text)
	s.regroups = groupStatement.MatchString(text)
	c.statements[text] = s
	return s, nil
}

// ready prepares a statement of an update's or a view's, and what has to be
// done before it can run.
func (c *conn) ready(text string, args []driver.Value) (statement, error) {
	s, err := c.prepare(text)
	if err != nil || c.group == nil {
		return s, err
	}
	c.forgets, c.regroups = c.forgets || s.forgets, c.regroups || s.regroups
	if s.tokens {
		c.changed.note(args)
	}
	if s.log {
		if err := c.group.show(); err != nil {
			return s, err
		}
	}
	if s.writes {
		return s, c.group.save()
	}
	return s, nil
}

// exec runs a statement and returns how many rows it changed. Statements are
// few and constant, so each is prepared once for the life of the connection.
func (c *conn) exec(text string, args ...driver.Value) (int64, error) {
	s, err := c.ready(text, args)
	if err != nil {
		return 0, err
	}
	return c.step(s, args)
}

// run is exec for those who write a group: it asks nothing of the group.
func (c *conn) run(text string, args ...driver.Value) (int64, error) {
	s, err := c.prepare(text)
	if err != nil {
		return 0, err
	}
	return c.step(s, args)
}

func (c *conn) step(s statement, args []driver.Value) (int64, error) {
	c.cost++
	c.changes++
	// A context that can end would cost a goroutine for each statement.
	r, err := s.Stmt.(driver.StmtExecContext).ExecContext(context.Background(), c.named(args))
	if err != nil {
		return 0, c.failed("execute statement", err)
	}
	n, err := r.RowsAffected()
	return n, mapError("count changed rows", err)
}

// query runs a statement and calls each for every row until it returns false.
// The values belong to each: the driver copies them out.
func (c *conn) query(ctx context.Context, text string, args []driver.Value, each func(row []driver.Value) (more bool, err error)) error {
	s, err := c.ready(text, args)
	if err != nil {
		return err
	}
	c.cost++
	rows, err := s.Stmt.(driver.StmtQueryContext).QueryContext(context.Background(), c.named(args))
	if err != nil {
		return c.failed("run query", err)
	}
	defer func() { _ = rows.Close() }()
	row := make([]driver.Value, len(rows.Columns()))
	for n := 1; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := rows.Next(row); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return c.failed("read row", err)
		}
		c.cost++
		if more, err := each(row); err != nil || !more {
			return err
		}
	}
}

// one runs a query for a single row and reports store.ErrNotFound when there is none.
func (c *conn) one(ctx context.Context, text string, args []driver.Value, scan func(row []driver.Value) error) error {
	found := false
	err := c.query(ctx, text, args, func(row []driver.Value) (bool, error) {
		found = true
		return false, scan(row)
	})
	if err == nil && !found {
		return store.ErrNotFound
	}
	return err
}

// number runs a query for a single integer; 0 when there is no row or it is null.
func (c *conn) number(ctx context.Context, text string, args ...driver.Value) (int64, error) {
	var n int64
	err := c.one(ctx, text, args, func(row []driver.Value) error {
		n, _ = row[0].(int64)
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	return n, err
}

// failed maps the error of a statement, and tells the group of one that may
// have ended the transaction.
func (c *conn) failed(doing string, err error) error {
	err = mapError(doing, err)
	if c.group != nil && !errors.Is(err, store.ErrExists) {
		c.group.failed = err
	}
	return err
}

func (c *conn) named(args []driver.Value) []driver.NamedValue {
	clear(c.args) // keeps nothing large alive
	c.args = c.args[:0]
	for i, a := range args {
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return c.args
}

// mapError turns the driver's errors into the store's. SQLite's own messages
// name tables and columns, never values.
func mapError(doing string, err error) error {
	if err == nil {
		return nil
	}
	var se *sqlite.Error
	if !errors.As(err, &se) {
		return fmt.Errorf("sqlite: %s: %w", doing, err)
	}
	switch code := se.Code(); code & 0xff {
	case sqlite3.SQLITE_CONSTRAINT:
		if code == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY || code == sqlite3.SQLITE_CONSTRAINT_UNIQUE {
			return fmt.Errorf("sqlite: %s: %w", doing, store.ErrExists)
		}
	case sqlite3.SQLITE_READONLY:
		return fmt.Errorf("sqlite: %s: %w", doing, store.ErrReadOnly)
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM:
		return fmt.Errorf("sqlite: %s: %w: %w", doing, store.ErrUnavailable, err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("sqlite: %s: %w: %w", doing, store.ErrDamaged, err)
	}
	return fmt.Errorf("sqlite: %s: %w", doing, err)
}

// The readers of values are strict on purpose in one direction only: a null
// reads as the zero value, and STRICT tables keep every other mismatch out.

func text(v driver.Value) string     { s, _ := v.(string); return s }
func blob(v driver.Value) []byte     { b, _ := v.([]byte); return b }
func whole(v driver.Value) int64     { n, _ := v.(int64); return n }
func when(v driver.Value) store.Time { return store.Time(whole(v)) }

// orNull stores no time as NULL, so that indexes on times stay small.
func orNull(t store.Time) driver.Value {
	if t.IsZero() {
		return nil
	}
	return int64(t)
}

// orEmpty stores no bytes as none, where a column wants to know.
func orEmpty(b []byte) driver.Value {
	if b == nil {
		return []byte{}
	}
	return b
}

func orNullBytes(b []byte) driver.Value {
	if b == nil {
		return nil
	}
	return b
}
