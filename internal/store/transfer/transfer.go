// Package transfer moves the rows of a store from one backend to another.
//
// It promises that rows move as they are and in the order of their keys, so
// that a move which was cut short goes on behind the last row that arrived, and
// that stores with equal digests hold equal rows. It never opens or changes
// what is sealed, and its errors name a row by its place, never by its id:
// that may be a tenant's own word.
package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// What keeps rows from moving.
var (
	// ErrOccupied says that a database which must be empty is not.
	ErrOccupied = errors.New("the database is not empty")
	// ErrDiffers says that what arrived is not what was sent.
	ErrDiffers = errors.New("the copy is not the same as its source")
)

// PageRows and PageBytes bound what a backend reads at a time: a row may hold
// megabytes. A page ends with the row that reaches the second.
const (
	PageRows  = 100
	PageBytes = 4 << 20
)

// Row has a value for each column of its table: [16]byte for a UUID, string,
// []byte, int64, bool, and nil for none.
type Row []any

// Key returns the part of a row by which its table is ordered.
func (r Row) Key(t Table) Row { return r[:t.Key] }

// Size is about how many bytes a row has.
func (r Row) Size() (n int) {
	for _, v := range r {
		switch v := v.(type) {
		case string:
			n += len(v)
		case []byte:
			n += len(v)
		default:
			n += 16
		}
	}
	return n
}

// Reader is a store whose rows can be read as they stand.
type Reader interface {
	// Rows returns the next page of a table in the order of its key, from the
	// row behind a key (nil: from the start). An empty page is the end.
	Rows(ctx context.Context, t Table, after Row) ([]Row, error)
}

// Writer is a store that rows can be moved to.
type Writer interface {
	Reader
	// LastKey returns the key of the last row of a table, nil when it has none.
	LastKey(ctx context.Context, t Table) (Row, error)
	// InsertRows adds rows, all or none, and has them on disk when it returns.
	// A row that is there already is left as it is.
	InsertRows(ctx context.Context, t Table, rows []Row) error
}

// Digest says what the rows of a table are.
type Digest struct {
	Rows   int64  `json:"rows"`
	SHA256 string `json:"sha256"` // of all rows in the order of their keys
}

// DigestOf reads a table. It fails with a RowError for a row that not every
// backend can hold. progress is called after every page.
func DigestOf(ctx context.Context, from Reader, t Table, progress func(rows int64)) (d Digest, err error) {
	sum := sha256.New()
	for after := Row(nil); ; {
		rows, err := from.Rows(ctx, t, after)
		if err != nil {
			return d, fmt.Errorf("read %s: %w", t.Name, err)
		}
		if len(rows) == 0 {
			d.SHA256 = hex.EncodeToString(sum.Sum(nil))
			return d, nil
		}
		for _, row := range rows {
			d.Rows++
			if !storable(row) {
				return d, &RowError{Table: t, Row: row, Number: d.Rows}
			}
			write(sum, row)
		}
		after = rows[len(rows)-1].Key(t)
		progress(d.Rows)
	}
}

// Copy adds the rows of a table that lie behind the last one which is there.
// progress is called after every page with how many were added.
func Copy(ctx context.Context, from Reader, to Writer, t Table, progress func(rows int64)) error {
	after, err := to.LastKey(ctx, t)
	if err != nil {
		return fmt.Errorf("look for the last row of %s: %w", t.Name, err)
	}
	for added := int64(0); ; {
		rows, err := from.Rows(ctx, t, after)
		if err != nil {
			return fmt.Errorf("read %s: %w", t.Name, err)
		}
		if len(rows) == 0 {
			return nil
		}
		if err := to.InsertRows(ctx, t, rows); err != nil {
			return fmt.Errorf("write %s: %w", t.Name, err)
		}
		after = rows[len(rows)-1].Key(t)
		added += int64(len(rows))
		progress(added)
	}
}

// RowError says that a row holds a text which not every backend can hold: it
// is no UTF-8, or has a NUL in it.
type RowError struct {
	Table  Table
	Row    Row
	Number int64 // of the row in its table, from 1, in the order of its key
}

func (e *RowError) Error() string {
	where := ""
	if tenant, ok := e.Row[0].([16]byte); ok {
		where = " (of tenant " + uuid.UUID(tenant).String() + ")"
	}
	return fmt.Sprintf("row %d of %s in the order of its key%s has a text that PostgreSQL cannot hold: it is no UTF-8, or has a NUL in it", e.Number, e.Table.Name, where)
}

func storable(row Row) bool {
	for _, v := range row {
		if s, ok := v.(string); ok && (!utf8.ValidString(s) || strings.ContainsRune(s, 0)) {
			return false
		}
	}
	return true
}

// write puts a row into a hash: for each value a byte for its kind, the length,
// the bytes, so that no two rows are written alike.
func write(h hash.Hash, row Row) {
	put := func(kind byte, b []byte) {
		head := binary.BigEndian.AppendUint64([]byte{kind}, uint64(len(b)))
		_, _ = h.Write(head) // a hash takes everything
		_, _ = h.Write(b)
	}
	for _, v := range row {
		switch v := v.(type) {
		case nil:
			put('n', nil)
		case [16]byte:
			put('u', v[:])
		case string:
			put('t', []byte(v))
		case []byte:
			put('b', v)
		case int64:
			put('i', binary.BigEndian.AppendUint64(nil, uint64(v)))
		case bool:
			put('f', []byte{map[bool]byte{true: 1}[v]})
		}
	}
}

// Mark is what a database that rows move to keeps of the move. A server does
// not use a database whose mark is not complete.
type Mark struct {
	Schema int       `json:"schema"` // number of the last migration, of both backends
	Begun  time.Time `json:"begun"`
	// Tables say what the source holds; nil until it was read.
	Tables   map[string]Digest `json:"tables,omitempty"`
	Complete *time.Time        `json:"complete,omitempty"`
}
