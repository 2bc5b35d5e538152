package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/transfer"
)

var _ transfer.Reader = (*Store)(nil)

// Rows implements transfer.Reader.
func (s *Store) Rows(ctx context.Context, t transfer.Table, after transfer.Row) (rows []transfer.Row, err error) {
	key := t.Names(t.Key)
	var conditions []string
	var args []driver.Value
	if t.Where != "" {
		conditions = append(conditions, t.Where)
	}
	if after != nil {
		conditions = append(conditions, fmt.Sprintf("(%s) > (%s)", key, strings.TrimSuffix(strings.Repeat("?, ", t.Key), ", ")))
		for _, v := range after {
			if id, ok := v.([16]byte); ok {
				v = id[:]
			}
			args = append(args, v)
		}
	}
	text := "SELECT " + t.Names(len(t.Columns)) + " FROM " + t.Name
	if len(conditions) > 0 {
		text += " WHERE " + strings.Join(conditions, " AND ")
	}
	text += " ORDER BY " + key + " LIMIT ?"
	size := 0
	err = s.read(ctx, tenantKey{}, func(tx *tx) error {
		rows, size = nil, 0
		return tx.conn.query(ctx, text, append(args, int64(transfer.PageRows)), func(values []driver.Value) (bool, error) {
			row := make(transfer.Row, len(values))
			for i, c := range t.Columns {
				v := values[i]
				if t.Name == "keysets" && c.Name == "wrapped" {
					if v, err = unpadKeyset(blob(v)); err != nil {
						return false, err
					}
				}
				if row[i], err = plain(c.Kind, v); err != nil {
					return false, err
				}
			}
			rows, size = append(rows, row), size+row.Size()
			return size < transfer.PageBytes, nil
		})
	})
	return rows, err
}

// plain turns a value of SQLite's into one of a row that moves.
func plain(kind transfer.Kind, v driver.Value) (any, error) {
	if v == nil {
		return nil, nil
	}
	switch kind {
	case transfer.UUID:
		if b := blob(v); len(b) == 16 {
			return [16]byte(b), nil
		}
	case transfer.Text:
		if s, ok := v.(string); ok {
			return s, nil
		}
	case transfer.Bytes:
		if b, ok := v.([]byte); ok {
			return append([]byte{}, b...), nil // none is not the same as no value
		}
	case transfer.Whole:
		if n, ok := v.(int64); ok {
			return n, nil
		}
	case transfer.Flag:
		if n, ok := v.(int64); ok {
			return n != 0, nil
		}
	}
	return nil, fmt.Errorf("sqlite: a value is not of its column's kind: %w", store.ErrDamaged)
}
