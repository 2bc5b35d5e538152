package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const applicationColumns = "id, name, type, permissions, rules, expires_at, created_by, created_at, modified_by, modified_at, version"

// applicationFields are where the columns go; behind a key's, for a join.
func applicationFields(a *store.Application, permissions *string) []any {
	return []any{&a.ID, &a.Name, &a.Type, permissions, &a.Rules, &a.ExpiresAt, &a.CreatedBy, &a.CreatedAt, &a.ModifiedBy, &a.ModifiedAt, &a.Version}
}

func scanApplication(row pgx.Rows) (a store.Application, err error) {
	var permissions string
	if err := row.Scan(applicationFields(&a, &permissions)...); err != nil {
		return a, err
	}
	a.Permissions, err = store.DecodeStrings(permissions)
	return a, err
}

func (t *tx) InsertApplication(_ context.Context, a store.Application) error {
	return t.later(step{doing: "insert application",
		text: "INSERT INTO applications (tenant_id, " + applicationColumns + ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
		args: []any{a.ID, a.Name, a.Type, store.EncodeStrings(a.Permissions), a.Rules, int64(a.ExpiresAt),
			a.CreatedBy, int64(a.CreatedAt), a.ModifiedBy, int64(a.ModifiedAt), a.Version}})
}

func (t *tx) Application(ctx context.Context, id string) (a store.Application, err error) {
	err = t.one(ctx, "read application", "SELECT "+applicationColumns+" FROM applications WHERE tenant_id = $1 AND id = $2", []any{id},
		func(row pgx.Rows) (err error) { a, err = scanApplication(row); return err })
	return a, err
}

func (t *tx) ReplaceApplication(ctx context.Context, a store.Application) error {
	err := t.changeOne(ctx, store.ErrConflict, step{doing: "replace application", text: `
		UPDATE applications SET name = $3, permissions = $4, rules = $5, expires_at = $6, modified_by = $7, modified_at = $8, version = $9
		WHERE tenant_id = $1 AND id = $2 AND version = $9 - 1`,
		args: []any{a.ID, a.Name, store.EncodeStrings(a.Permissions), a.Rules, int64(a.ExpiresAt), a.ModifiedBy, int64(a.ModifiedAt), a.Version}})
	if errors.Is(err, store.ErrConflict) {
		if _, missing := t.Application(ctx, a.ID); missing != nil {
			return missing
		}
	}
	return err
}

func (t *tx) DeleteApplication(ctx context.Context, id string) error {
	if err := t.changeOne(ctx, store.ErrNotFound, step{doing: "delete application",
		text: "DELETE FROM applications WHERE tenant_id = $1 AND id = $2", args: []any{id}}); err != nil {
		return err
	}
	return t.later(step{doing: "delete keys", text: "DELETE FROM application_keys WHERE tenant_id = $1 AND application_id = $2", args: []any{id}})
}

// Applications are few, so a filter passes over them in the order of the list.
func (t *tx) Applications(ctx context.Context, f store.ApplicationFilter, p store.Page) ([]store.Application, error) {
	if p.After != nil && !storable(p.After.ID) {
		return nil, t.usable()
	}
	s := chosen(f)
	s.page(p)
	return list(ctx, t, "list applications", "SELECT "+applicationColumns+" FROM "+s.text, s.args, scanApplication)
}

func (t *tx) CountApplications(ctx context.Context, f store.ApplicationFilter) (int64, error) {
	s := chosen(f)
	return t.number(ctx, "count applications", "SELECT count(*) FROM "+s.text, s.args...)
}

func chosen(f store.ApplicationFilter) (s selection) {
	s.text = "applications WHERE tenant_id = $1"
	for _, part := range []struct {
		column string
		values []string
	}{{"id", f.IDs}, {"type", f.Types}} {
		if len(part.values) > 0 {
			s.among(part.column, part.values)
		}
	}
	return s
}

const keyColumns = "id, application_id, version, hash, prefix, created_by, created_at"

func keyFields(k *store.Key) []any {
	return []any{&k.ID, &k.ApplicationID, &k.Version, &k.Hash, &k.Prefix, &k.CreatedBy, &k.CreatedAt}
}

func (t *tx) InsertKey(ctx context.Context, k store.Key) error {
	return t.changeOne(ctx, store.ErrNotFound, step{doing: "insert key", text: `
		INSERT INTO application_keys (tenant_id, ` + keyColumns + `)
		SELECT $1, $2::text, $3::text, $4::bigint, $5::bytea, $6::text, $7::text, $8::bigint FROM applications WHERE tenant_id = $1 AND id = $3`,
		args: []any{k.ID, k.ApplicationID, int64(k.Version), orEmpty(k.Hash), k.Prefix, k.CreatedBy, int64(k.CreatedAt)}})
}

func (t *tx) Keys(ctx context.Context, applicationID string) ([]store.Key, error) {
	keys, err := list(ctx, t, "read keys", "SELECT "+keyColumns+" FROM application_keys WHERE tenant_id = $1 AND application_id = $2", []any{applicationID},
		func(row pgx.Rows) (k store.Key, err error) { return k, row.Scan(keyFields(&k)...) })
	slices.SortFunc(keys, func(a, b store.Key) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.Version, b.Version), cmp.Compare(a.ID, b.ID))
	})
	return keys, err
}

func (t *tx) KeyByHash(ctx context.Context, hash []byte) (k store.Key, a store.Application, err error) {
	err = t.one(ctx, "find key", `
		SELECT k.id, k.application_id, k.version, k.hash, k.prefix, k.created_by, k.created_at,
		  a.id, a.name, a.type, a.permissions, a.rules, a.expires_at, a.created_by, a.created_at, a.modified_by, a.modified_at, a.version
		FROM application_keys k JOIN applications a ON a.tenant_id = $1 AND a.id = k.application_id
		WHERE k.tenant_id = $1 AND k.hash = $2`+unlessDeleting, []any{orEmpty(hash)},
		func(row pgx.Rows) (err error) {
			var permissions string
			if err := row.Scan(append(keyFields(&k), applicationFields(&a, &permissions)...)...); err != nil {
				return err
			}
			a.Permissions, err = store.DecodeStrings(permissions)
			return err
		})
	return k, a, err
}

func (t *tx) DeleteKey(ctx context.Context, applicationID, id string) error {
	return t.changeOne(ctx, store.ErrNotFound, step{doing: "delete key",
		text: "DELETE FROM application_keys WHERE tenant_id = $1 AND application_id = $2 AND id = $3", args: []any{applicationID, id}})
}
