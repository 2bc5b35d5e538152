package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const sessionColumns = "id, key_hash, nonce_hash, prefix, sealed_grant, created_by, created_at, authorized_by, authorized_at, expires_at, version"

func scanSession(row []driver.Value) store.Session {
	return store.Session{
		ID: text(row[0]), KeyHash: blob(row[1]), NonceHash: blob(row[2]), Prefix: text(row[3]), Grant: blob(row[4]),
		CreatedBy: text(row[5]), CreatedAt: when(row[6]), AuthorizedBy: text(row[7]), AuthorizedAt: when(row[8]),
		ExpiresAt: when(row[9]), Version: whole(row[10]),
	}
}

func (t *tx) InsertSession(_ context.Context, s store.Session) error {
	if err := t.grows(); err != nil {
		return err
	}
	if len(s.KeyHash) == 0 || len(s.NonceHash) == 0 {
		return errors.New("sqlite: a session must have the hashes of its key and its nonce")
	}
	_, err := t.exec("INSERT INTO sessions (tenant_id, "+sessionColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		s.ID, s.KeyHash, s.NonceHash, s.Prefix, orNullBytes(s.Grant), s.CreatedBy, int64(s.CreatedAt),
		s.AuthorizedBy, int64(s.AuthorizedAt), int64(s.ExpiresAt), s.Version)
	return err
}

func (t *tx) Session(ctx context.Context, id string) (store.Session, error) {
	return t.session(ctx, "id", id, "")
}

func (t *tx) SessionByKey(ctx context.Context, hash []byte) (store.Session, error) {
	return t.session(ctx, "key_hash", hash, unlessDeleting)
}

func (t *tx) SessionByNonce(ctx context.Context, hash []byte) (store.Session, error) {
	return t.session(ctx, "nonce_hash", hash, "")
}

// session finds a session by a column in which no two of a tenant's are alike.
func (t *tx) session(ctx context.Context, column string, value driver.Value, and string) (s store.Session, err error) {
	err = t.one(ctx, "SELECT "+sessionColumns+" FROM sessions WHERE tenant_id = ? AND "+column+" = ?"+and, []driver.Value{value},
		func(row []driver.Value) error { s = scanSession(row); return nil })
	return s, err
}

func (t *tx) ReplaceSession(ctx context.Context, s store.Session) error {
	err := t.changeOne(store.ErrConflict, `
		UPDATE sessions SET sealed_grant = ?3, authorized_by = ?4, authorized_at = ?5, expires_at = ?6, version = ?7
		WHERE tenant_id = ?1 AND id = ?2 AND version = ?7 - 1`,
		s.ID, orNullBytes(s.Grant), s.AuthorizedBy, int64(s.AuthorizedAt), int64(s.ExpiresAt), s.Version)
	if errors.Is(err, store.ErrConflict) {
		if _, missing := t.Session(ctx, s.ID); missing != nil {
			return missing
		}
	}
	return err
}

func (t *tx) DeleteSession(_ context.Context, id string) error {
	return t.changeOne(store.ErrNotFound, "DELETE FROM sessions WHERE tenant_id = ? AND id = ?", id)
}

// Sessions that expired and were not swept are passed over in the index: few,
// because sweeps are frequent.
func (t *tx) Sessions(ctx context.Context, f store.SessionFilter, p store.Page) ([]store.Session, error) {
	var ids []string
	skip := p.Offset
	after, args := behind(p.After)
	err := t.query(ctx, "SELECT id, expires_at FROM sessions INDEXED BY sessions_by_time WHERE tenant_id = ?"+after+" ORDER BY created_at DESC, id DESC", args,
		func(row []driver.Value) (bool, error) {
			switch {
			case when(row[1]) <= f.Now:
			case skip > 0:
				skip--
			case len(ids) < p.Limit:
				ids = append(ids, text(row[0]))
			default:
				return false, nil
			}
			return true, nil
		})
	if err != nil {
		return nil, err
	}
	list := make([]store.Session, 0, len(ids))
	for _, id := range ids {
		s, err := t.Session(ctx, id)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

func (t *tx) CountSessions(ctx context.Context, f store.SessionFilter) (n int64, err error) {
	err = t.query(ctx, "SELECT expires_at FROM sessions INDEXED BY sessions_by_time WHERE tenant_id = ?", nil, func(row []driver.Value) (bool, error) {
		if when(row[0]) > f.Now {
			n++
		}
		return true, nil
	})
	return n, err
}
