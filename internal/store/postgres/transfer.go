package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/transfer"
)

var _ transfer.Writer = (*Store)(nil)

// markName names the mark of a migration among the values of the installation.
const markName = "migration"

const readMark = "SELECT value FROM " + schema + ".installation WHERE name = $1"

// parseMark reads a mark; nil when there is none.
func parseMark(row pgx.Row) (*transfer.Mark, error) {
	var value []byte
	err := row.Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := new(transfer.Mark)
	if json.Unmarshal(value, m) != nil {
		return nil, own("the mark of a migration cannot be read: %w", store.ErrDamaged)
	}
	return m, nil
}

// checkMark refuses a database that another process than ours must not use, or
// that ours must not fill. It runs before anything is changed.
func checkMark(ctx context.Context, c *pgx.Conn, o Options) error {
	version, _, err := schemaVersion(ctx, c)
	if err != nil || version == 0 {
		return err
	}
	m, err := parseMark(c.QueryRow(ctx, readMark, markName))
	if err != nil {
		return err
	}
	if !o.Receive {
		if m != nil && m.Complete == nil {
			return ownError{store.ErrUnfinished}
		}
		return nil
	}
	known, err := migrations(o)
	if err != nil {
		return ownError{err}
	}
	if version > len(known) {
		return ownError{fmt.Errorf("%w: the schema of the database is number %d, and this release has %d", store.ErrNewerSchema, version, len(known))}
	}
	if version < len(known) || m != nil && m.Schema < len(known) {
		return ownError{fmt.Errorf("%w: the schema of the database is number %d, and this release has %d: empty the database", store.ErrOlderSchema, version, len(known))}
	}
	return nil
}

// leaveMark says of an empty database that rows are moving to it, from before
// the first of them. Servers that start meanwhile wait for our lock, and then
// find the mark.
func leaveMark(ctx context.Context, c *pgx.Conn, o Options) error {
	if !o.Receive {
		return nil
	}
	m, err := parseMark(c.QueryRow(ctx, readMark, markName))
	if err != nil || m != nil {
		return err
	}
	occupied := []string{"SELECT 1 FROM installation WHERE name NOT IN ('schema', 'oldest', 'ready')"}
	for _, table := range requestTables {
		occupied = append(occupied, "SELECT 1 FROM "+table)
	}
	var some bool
	if err := c.QueryRow(ctx, "SELECT EXISTS ("+strings.Join(occupied, " UNION ALL ")+")").Scan(&some); err != nil {
		return err
	}
	if some {
		return ownError{transfer.ErrOccupied}
	}
	known, err := migrations(o)
	if err != nil {
		return ownError{err}
	}
	value, err := json.Marshal(transfer.Mark{Schema: len(known), Begun: time.Now().UTC()})
	if err != nil {
		return ownError{err}
	}
	_, err = c.Exec(ctx, putInstallation, markName, value)
	return err
}

// Claim keeps other migrations away from the database until the function that
// it returns is called, or the connection is lost.
func (s *Store) Claim(ctx context.Context) (free func(), err error) {
	c, err := s.owner.Acquire(ctx)
	if err != nil {
		return nil, mapError("connect", err, nil)
	}
	var ours bool
	if err := c.QueryRow(ctx, "SELECT pg_try_advisory_lock($1, $2)", lockSpace, receiveKey).Scan(&ours); err != nil || !ours {
		c.Release()
		if err != nil {
			return nil, mapError("claim the database", err, nil)
		}
		return nil, fmt.Errorf("%w: another migration to this database is under way", store.ErrInUse)
	}
	return func() { _ = c.Hijack().Close(context.WithoutCancel(ctx)) }, nil // and with it the lock
}

// Mark returns the mark of the migration to this database; it has one when it
// was opened to receive.
func (s *Store) Mark(ctx context.Context) (m *transfer.Mark, err error) {
	err = s.asOwner(ctx, "read the mark of the migration", func(ctx context.Context, pool *pgxpool.Pool) (err error) {
		m, err = parseMark(pool.QueryRow(ctx, readMark, markName))
		return err
	})
	if err == nil && m == nil {
		return nil, fmt.Errorf("postgres: the mark of the migration is gone: %w", store.ErrDamaged)
	}
	return m, err
}

// PutMark replaces the mark.
func (s *Store) PutMark(ctx context.Context, m *transfer.Mark) error {
	value, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("postgres: write the mark of the migration: %w", err)
	}
	return s.asOwner(ctx, "write the mark of the migration", func(ctx context.Context, pool *pgxpool.Pool) error {
		_, err := pool.Exec(ctx, putInstallation, markName, value)
		return err
	})
}

// Rows implements transfer.Reader.
func (s *Store) Rows(ctx context.Context, t transfer.Table, after transfer.Row) ([]transfer.Row, error) {
	var conditions, places []string
	var args []any
	if t.Where != "" {
		conditions = append(conditions, t.Where)
	}
	for i, v := range after {
		args, places = append(args, v), append(places, fmt.Sprintf("$%d", i+1))
	}
	if after != nil {
		conditions = append(conditions, fmt.Sprintf("(%s) > (%s)", t.Names(t.Key), strings.Join(places, ", ")))
	}
	return s.rows(ctx, t, len(t.Columns), conditions, args, "", transfer.PageRows)
}

// LastKey implements transfer.Writer.
func (s *Store) LastKey(ctx context.Context, t transfer.Table) (transfer.Row, error) {
	var conditions []string
	if t.Where != "" {
		conditions = append(conditions, t.Where)
	}
	rows, err := s.rows(ctx, t, t.Key, conditions, nil, " DESC", 1)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0], nil
}

// rows reads the first columns of some rows in the order of their key.
func (s *Store) rows(ctx context.Context, t transfer.Table, columns int, conditions []string, args []any, direction string, limit int) (list []transfer.Row, err error) {
	text := "SELECT " + t.Names(columns) + " FROM " + t.Name
	if len(conditions) > 0 {
		text += " WHERE " + strings.Join(conditions, " AND ")
	}
	order := strings.ReplaceAll(t.Names(t.Key), ",", direction+",") + direction
	text += fmt.Sprintf(" ORDER BY %s LIMIT %d", order, limit)
	err = s.asOwner(ctx, "read rows", func(ctx context.Context, pool *pgxpool.Pool) error {
		rows, err := pool.Query(ctx, text, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		list = nil
		for size := 0; size < transfer.PageBytes && rows.Next(); {
			row, err := rows.Values()
			if err != nil {
				return err
			}
			list, size = append(list, row), size+transfer.Row(row).Size()
		}
		rows.Close()
		return rows.Err()
	})
	return list, err
}

// columnTypes are the types of arrays of columns, and how a value is put into one.
var columnTypes = map[transfer.Kind]struct {
	name  string
	array func(rows []transfer.Row, i int) any
}{
	transfer.UUID: {"uuid[]", func(rows []transfer.Row, i int) any {
		return column(rows, i, func(v [16]byte) pgtype.UUID { return pgtype.UUID{Bytes: v, Valid: true} })
	}},
	transfer.Text:  {"text[]", func(rows []transfer.Row, i int) any { return column(rows, i, func(v string) *string { return &v }) }},
	transfer.Bytes: {"bytea[]", func(rows []transfer.Row, i int) any { return column(rows, i, func(v []byte) []byte { return v }) }},
	transfer.Whole: {"bigint[]", func(rows []transfer.Row, i int) any {
		return column(rows, i, func(v int64) pgtype.Int8 { return pgtype.Int8{Int64: v, Valid: true} })
	}},
	transfer.Flag: {"boolean[]", func(rows []transfer.Row, i int) any { return column(rows, i, func(v bool) *bool { return &v }) }},
}

// column puts the values of one column into an array; one that is missing
// becomes the zero value, which is NULL.
func column[V, C any](rows []transfer.Row, i int, put func(V) C) []C {
	list := make([]C, len(rows))
	for n, row := range rows {
		if v, ok := row[i].(V); ok {
			list[n] = put(v)
		}
	}
	return list
}

// InsertRows implements transfer.Writer. It does not use COPY, which row-level
// security forbids.
func (s *Store) InsertRows(ctx context.Context, t transfer.Table, rows []transfer.Row) error {
	var arrays []string
	var args []any
	for i, c := range t.Columns {
		of := columnTypes[c.Kind]
		arrays, args = append(arrays, fmt.Sprintf("$%d::%s", i+1, of.name)), append(args, of.array(rows, i))
	}
	into, from := t.Names(len(t.Columns)), "*"
	if t.Slotted {
		into, from = into+", slot", "*, 0"
	}
	text := fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM unnest(%s) ON CONFLICT DO NOTHING", t.Name, into, from, strings.Join(arrays, ", "))
	return s.asOwner(ctx, "insert rows", func(ctx context.Context, pool *pgxpool.Pool) error {
		_, err := pool.Exec(ctx, text, args...)
		return err
	})
}

// Analyze counts what is in the tables, so that the planner knows.
func (s *Store) Analyze(ctx context.Context) error {
	tables := slices.Concat([]string{"installation"}, requestTables)
	return s.asOwnerWithin(ctx, tidyWait, "analyze", func(ctx context.Context, pool *pgxpool.Pool) error {
		_, err := pool.Exec(ctx, "ANALYZE "+strings.Join(tables, ", "))
		return err
	})
}
