package postgres

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const sessionColumns = "id, key_hash, nonce_hash, prefix, sealed_grant, created_by, created_at, authorized_by, authorized_at, expires_at, version, created_key_id, authorized_key_id"

func scanSession(row pgx.Rows) (s store.Session, err error) {
	err = row.Scan(&s.ID, &s.KeyHash, &s.NonceHash, &s.Prefix, &s.Grant, &s.CreatedBy, &s.CreatedAt, &s.AuthorizedBy, &s.AuthorizedAt, &s.ExpiresAt, &s.Version,
		&s.CreatedKeyID, &s.AuthorizedKeyID)
	return s, err
}

func (t *tx) InsertSession(_ context.Context, s store.Session) error {
	if err := t.writes(); err != nil {
		return err
	}
	if len(s.KeyHash) == 0 || len(s.NonceHash) == 0 {
		return errors.New("postgres: a session must have the hashes of its key and its nonce")
	}
	if unstorable(s.ID, s.Prefix, s.CreatedBy, s.CreatedKeyID, s.AuthorizedBy, s.AuthorizedKeyID) {
		return errUnstorable
	}
	t.rows.sessions = append(t.rows.sessions, s)
	t.rows.bytes += len(s.Grant) + 500
	return nil
}

func insertSessions(sessions []store.Session) step {
	n := len(sessions)
	var (
		ids, prefixes, makers, authorizers = make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		makingKeys, authorizingKeys        = make([]string, n), make([]string, n)
		keys, nonces, grants               = make([][]byte, n), make([][]byte, n), make([][]byte, n)
		made, authorized, expires          = make([]int64, n), make([]int64, n), make([]int64, n)
		versions                           = make([]int64, n)
	)
	for i, s := range sessions {
		ids[i], prefixes[i], makers[i], authorizers[i] = s.ID, s.Prefix, s.CreatedBy, s.AuthorizedBy
		makingKeys[i], authorizingKeys[i] = s.CreatedKeyID, s.AuthorizedKeyID
		keys[i], nonces[i], grants[i] = s.KeyHash, s.NonceHash, s.Grant
		made[i], authorized[i], expires[i] = int64(s.CreatedAt), int64(s.AuthorizedAt), int64(s.ExpiresAt)
		versions[i] = s.Version
	}
	return step{doing: "insert sessions", text: `
		INSERT INTO sessions (tenant_id, ` + sessionColumns + `)
		SELECT $1, * FROM unnest($2::text[], $3::bytea[], $4::bytea[], $5::text[], $6::bytea[], $7::text[], $8::bigint[], $9::text[],
		  $10::bigint[], $11::bigint[], $12::bigint[], $13::text[], $14::text[])`,
		args: []any{ids, keys, nonces, prefixes, grants, makers, made, authorizers, authorized, expires, versions, makingKeys, authorizingKeys}}
}

func (t *tx) Session(ctx context.Context, id string) (store.Session, error) {
	return t.session(ctx, "id", id, "")
}

func (t *tx) SessionByKey(ctx context.Context, hash []byte) (store.Session, error) {
	return t.session(ctx, "key_hash", orEmpty(hash), unlessDeleting)
}

func (t *tx) SessionByNonce(ctx context.Context, hash []byte) (store.Session, error) {
	return t.session(ctx, "nonce_hash", orEmpty(hash), "")
}

// session finds a session by a column in which no two of a tenant's are alike.
func (t *tx) session(ctx context.Context, column string, value any, and string) (s store.Session, err error) {
	err = t.one(ctx, "read session", "SELECT "+sessionColumns+" FROM sessions WHERE tenant_id = $1 AND "+column+" = $2"+and, []any{value},
		func(row pgx.Rows) (err error) { s, err = scanSession(row); return err })
	return s, err
}

func (t *tx) ReplaceSession(ctx context.Context, s store.Session) error {
	err := t.changeOne(ctx, store.ErrConflict, step{doing: "replace session", text: `
		UPDATE sessions SET sealed_grant = $3, authorized_by = $4, authorized_at = $5, expires_at = $6, version = $7, authorized_key_id = $8
		WHERE tenant_id = $1 AND id = $2 AND version = $7 - 1`,
		args: []any{s.ID, s.Grant, s.AuthorizedBy, int64(s.AuthorizedAt), int64(s.ExpiresAt), s.Version, s.AuthorizedKeyID}})
	if errors.Is(err, store.ErrConflict) {
		if _, missing := t.Session(ctx, s.ID); missing != nil {
			return missing
		}
	}
	return err
}

func (t *tx) DeleteSession(ctx context.Context, id string) error {
	return t.changeOne(ctx, store.ErrNotFound, step{doing: "delete session", text: "DELETE FROM sessions WHERE tenant_id = $1 AND id = $2", args: []any{id}})
}

// Sessions that expired and were not swept are passed over: few, because
// sweeps are frequent.
func (t *tx) Sessions(ctx context.Context, f store.SessionFilter, p store.Page) ([]store.Session, error) {
	s := live(f)
	s.page(p)
	return list(ctx, t, "list sessions", "SELECT "+sessionColumns+" FROM "+s.text, s.args, scanSession)
}

func (t *tx) CountSessions(ctx context.Context, f store.SessionFilter) (int64, error) {
	s := live(f)
	return t.number(ctx, "count sessions", "SELECT count(*) FROM "+s.text, s.args...)
}

func live(f store.SessionFilter) (s selection) {
	s.text = "sessions WHERE tenant_id = $1"
	s.where("expires_at > %s", int64(f.Now))
	if f.LiveKeys {
		s.where(hasLiveKey("created"), int64(f.Now))
		s.where("(authorized_by = '' OR "+hasLiveKey("authorized")+")", int64(f.Now))
	}
	return s
}

// hasLiveKey is the condition that the key which created or authorized a session
// exists and its application has not expired. OFFSET 0 keeps the planner from
// turning it into a join that gives up the order of the list.
func hasLiveKey(did string) string {
	return strings.ReplaceAll(`EXISTS (
		SELECT 1 FROM application_keys AS k JOIN applications AS a ON a.tenant_id = $1 AND a.id = k.application_id
		WHERE k.tenant_id = $1 AND k.application_id = sessions.@_by AND (a.expires_at = 0 OR a.expires_at > %s)
		  AND (k.id = sessions.@_key_id OR sessions.@_key_id = '' AND k.created_at <= sessions.@_at) OFFSET 0)`, "@", did)
}
