package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const sessionColumns = "id, key_hash, nonce_hash, prefix, sealed_grant, created_by, created_at, authorized_by, authorized_at, expires_at, version, created_key_id, authorized_key_id"

func scanSession(row []driver.Value) store.Session {
	return store.Session{
		ID: text(row[0]), KeyHash: blob(row[1]), NonceHash: blob(row[2]), Prefix: text(row[3]), Grant: blob(row[4]),
		CreatedBy: text(row[5]), CreatedAt: when(row[6]), AuthorizedBy: text(row[7]), AuthorizedAt: when(row[8]),
		ExpiresAt: when(row[9]), Version: whole(row[10]), CreatedKeyID: text(row[11]), AuthorizedKeyID: text(row[12]),
	}
}

func (t *tx) InsertSession(_ context.Context, s store.Session) error {
	if err := t.grows(); err != nil {
		return err
	}
	if len(s.KeyHash) == 0 || len(s.NonceHash) == 0 {
		return errors.New("sqlite: a session must have the hashes of its key and its nonce")
	}
	_, err := t.exec("INSERT INTO sessions (tenant_id, "+sessionColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		s.ID, s.KeyHash, s.NonceHash, s.Prefix, orNullBytes(s.Grant), s.CreatedBy, int64(s.CreatedAt),
		s.AuthorizedBy, int64(s.AuthorizedAt), int64(s.ExpiresAt), s.Version, s.CreatedKeyID, s.AuthorizedKeyID)
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
		UPDATE sessions SET sealed_grant = ?3, authorized_by = ?4, authorized_at = ?5, expires_at = ?6, version = ?7, authorized_key_id = ?8
		WHERE tenant_id = ?1 AND id = ?2 AND version = ?7 - 1`,
		s.ID, orNullBytes(s.Grant), s.AuthorizedBy, int64(s.AuthorizedAt), int64(s.ExpiresAt), s.Version, s.AuthorizedKeyID)
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

// Sessions that expired and were not swept are passed over: few, because sweeps
// are frequent.
func (t *tx) Sessions(ctx context.Context, f store.SessionFilter, p store.Page) ([]store.Session, error) {
	var ids []string
	skip := p.Offset
	err := t.eachSession(ctx, f, p.After, func(id string) bool {
		switch {
		case skip > 0:
			skip--
		case len(ids) < p.Limit:
			ids = append(ids, id)
		default:
			return false
		}
		return true
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
	err = t.eachSession(ctx, f, nil, func(string) bool { n++; return true })
	return n, err
}

// eachSession calls do with the id of every session that a filter chooses,
// newest first, until do returns false. Without LiveKeys it reads only the index.
func (t *tx) eachSession(ctx context.Context, f store.SessionFilter, from *store.Position, do func(id string) bool) error {
	columns := "id, expires_at"
	var keys liveKeys
	if f.LiveKeys {
		columns += ", created_by, created_key_id, created_at, authorized_by, authorized_key_id, authorized_at"
		var err error
		if keys, err = t.readLiveKeys(ctx, f.Now); err != nil {
			return err
		}
	}
	after, args := behind(from)
	return t.query(ctx, "SELECT "+columns+" FROM sessions INDEXED BY sessions_by_time WHERE tenant_id = ?"+after+" ORDER BY created_at DESC, id DESC", args,
		func(row []driver.Value) (bool, error) {
			if when(row[1]) <= f.Now {
				return true, nil
			}
			if f.LiveKeys {
				authorizer := text(row[5])
				if !keys.has(text(row[2]), text(row[3]), when(row[4])) || authorizer != "" && !keys.has(authorizer, text(row[6]), when(row[7])) {
					return true, nil
				}
			}
			return do(text(row[0])), nil
		})
}

// liveKeys are the keys of a tenant's applications that have not expired, by
// application and id. Applications are few, and have at most a few keys.
type liveKeys map[string]map[string]store.Time

// has reports whether the key with which an application acted at an instant is
// live. When its id is not known, any key that is old enough counts.
func (k liveKeys) has(application, id string, at store.Time) bool {
	if id != "" {
		_, ok := k[application][id]
		return ok
	}
	for _, created := range k[application] {
		if created <= at {
			return true
		}
	}
	return false
}

func (t *tx) readLiveKeys(ctx context.Context, now store.Time) (liveKeys, error) {
	keys := liveKeys{}
	err := t.query(ctx, "SELECT id, expires_at FROM applications WHERE tenant_id = ?", nil, func(row []driver.Value) (bool, error) {
		if expires := when(row[1]); expires.IsZero() || expires > now {
			keys[text(row[0])] = map[string]store.Time{}
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	err = t.query(ctx, "SELECT application_id, id, created_at FROM application_keys WHERE tenant_id = ?", nil, func(row []driver.Value) (bool, error) {
		if of := keys[text(row[0])]; of != nil {
			of[text(row[1])] = when(row[2])
		}
		return true, nil
	})
	return keys, err
}
