package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const tenantColumns = "tenant_id, name, settings, created_by, created_at, modified_by, modified_at, deleting, secrets"

func scanTenant(row pgx.Rows) (r store.Tenant, err error) {
	var id pgtype.UUID
	var settings string
	if err := row.Scan(&id, &r.Name, &settings, &r.CreatedBy, &r.CreatedAt, &r.ModifiedBy, &r.ModifiedAt, &r.Deleting, &r.Secrets); err != nil {
		return r, err
	}
	r.ID = uuid.UUID(id.Bytes).String()
	if err := json.Unmarshal([]byte(settings), &r.Settings); err != nil {
		return r, fmt.Errorf("postgres: read tenant settings: %w", store.ErrDamaged)
	}
	return r, nil
}

func encodeSettings(settings map[string]string) string {
	b, _ := json.Marshal(settings) // strings always marshal
	return string(b)
}

func (t *tx) InsertTenant(_ context.Context, r store.Tenant) error {
	err := t.later(step{doing: "insert tenant", text: "INSERT INTO tenants (" + tenantColumns + ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
		args: []any{r.Name, encodeSettings(r.Settings), r.CreatedBy, int64(r.CreatedAt), r.ModifiedBy, int64(r.ModifiedAt), r.Deleting, r.Secrets}})
	t.hasTenant = t.hasTenant || err == nil
	return err
}

func (t *tx) TenantRow(ctx context.Context) (r store.Tenant, err error) {
	err = t.one(ctx, "read tenant", "SELECT "+tenantColumns+" FROM tenants WHERE tenant_id = $1", nil,
		func(row pgx.Rows) (err error) { r, err = scanTenant(row); return err })
	return r, err
}

func (t *tx) ReplaceTenant(ctx context.Context, r store.Tenant) error {
	err := t.changeOne(ctx, store.ErrNotFound, step{doing: "replace tenant",
		text: "UPDATE tenants SET name = $2, settings = $3, modified_by = $4, modified_at = $5, deleting = $6, secrets = $7 WHERE tenant_id = $1 AND NOT deleting",
		args: []any{r.Name, encodeSettings(r.Settings), r.ModifiedBy, int64(r.ModifiedAt), r.Deleting, r.Secrets}})
	t.hasTenant = t.hasTenant || err == nil
	return err
}

// keys of the tables that a tenant's deletion empties, behind the tenant.
var tableKeys = map[string]string{
	"keysets": "purpose", "application_keys": "hash", "applications": "id", "tokens": "id", "token_terms": "term, created_at, id",
	"token_groups": "group_id, slot", "token_types": "type, slot", "token_containers": "container, group_id", "container_counts": "tenant_id",
	"token_groups_emptied": "group_id, slot", "sessions": "id", "parcels": "kind, id", "definitions": "kind, id",
	"marks": "name", "log_unsealed": "created_at, id", "log": "created_at, id", "log_counts": "entity_type, slot",
	"log_activity": "width, at, actor_id, kind", "tenants": "tenant_id",
	"event_queue": "xid, position, id", "events": "number", "event_heads": "tenant_id",
}

func (t *tx) DeleteTenantRows(ctx context.Context, limit int) (more bool, err error) {
	if err := t.writes(); err != nil {
		return false, err
	}
	clear(t.seen)
	t.scrub = true
	// What was written before goes too, now or before the tenant's own row.
	defer func() { t.needsTenant, t.hasTenant = false, false }()
	left := int64(limit)
	for i, table := range tenantTables {
		// Counters must not come back after their rows have gone.
		if err := t.settleCounters(ctx); err != nil {
			return false, err
		}
		n, err := t.deleteSome(ctx, table, left)
		if err != nil {
			return false, t.fail(err)
		}
		if left -= n; left <= 0 {
			if err := t.settleCounters(ctx); err != nil {
				return false, err
			}
			return t.hasRows(ctx, tenantTables[i:])
		}
	}
	return false, nil
}

// deleteSome removes up to limit rows of a table. A token takes its search
// terms along, and counters follow their rows, so that a deletion that is cut
// short leaves a sound store.
func (t *tx) deleteSome(ctx context.Context, table string, limit int64) (n int64, err error) {
	key := tableKeys[table]
	first := fmt.Sprintf("(SELECT %s FROM %s WHERE tenant_id = $1 ORDER BY %[1]s LIMIT $2)", key, table)
	s := step{doing: "delete rows of a tenant", text: fmt.Sprintf("DELETE FROM %s WHERE tenant_id = $1 AND (%s) IN %s", table, key, first), args: []any{limit}}
	switch table {
	case "token_groups":
		// What they count has gone, and neither the slots of one counter, which
		// add up to nothing, nor all that follows the groups may go together.
		for _, text := range []string{
			"UPDATE token_groups SET tokens = 0, counted = 0 WHERE tenant_id = $1 AND (tokens <> 0 OR counted <> 0)",
			"DELETE FROM token_types WHERE tenant_id = $1", "DELETE FROM token_containers WHERE tenant_id = $1",
			"DELETE FROM container_counts WHERE tenant_id = $1", "DELETE FROM token_groups_emptied WHERE tenant_id = $1",
		} {
			if err := t.later(step{doing: "clear counters of a tenant", text: text}); err != nil {
				return 0, err
			}
		}
	case "log_counts":
		if err := t.later(step{doing: "clear counters of a tenant", text: fmt.Sprintf("UPDATE log_counts SET entries = 0 WHERE tenant_id = $1 AND entries <> 0 AND (entity_type) IN (SELECT entity_type FROM %s AS gone)",
			first), args: []any{limit}}); err != nil {
			return 0, err
		}
	case "tokens":
		var gone []store.Token
		s.text += " RETURNING " + tokenColumns
		s.rows = func(r pgx.Rows) error {
			gone = nil
			for r.Next() {
				token, err := scanToken(r)
				if err != nil {
					return err
				}
				token.Data, token.Details, token.ShortLived = nil, nil, nil
				gone = append(gone, token)
			}
			return nil
		}
		if _, err := t.now(ctx, s); err != nil {
			return 0, err
		}
		for _, token := range gone {
			group, containers := store.GroupOf(token.Type, token.Containers)
			t.rows.countToken(group, token.Type, containers, -1)
		}
		return int64(len(gone)), t.deleteTerms(gone...)
	case "log":
		var kinds []string
		s.text += " RETURNING entity_type"
		s.rows = readKinds(&kinds)
		_, err := t.now(ctx, s)
		for _, kind := range kinds {
			t.rows.countEntry(kind, -1)
		}
		return int64(len(kinds)), err
	}
	return t.now(ctx, s)
}

func readKinds(kinds *[]string) func(pgx.Rows) error {
	return func(r pgx.Rows) error {
		*kinds = nil
		for r.Next() {
			var kind string
			if err := r.Scan(&kind); err != nil {
				return err
			}
			*kinds = append(*kinds, kind)
		}
		return nil
	}
}

// unlessDeleting goes with the statements by which callers are found.
const unlessDeleting = " AND EXISTS (SELECT 1 FROM tenants WHERE tenant_id = $1 AND NOT deleting)"

func (t *tx) hasRows(ctx context.Context, tables []string) (bool, error) {
	for _, table := range tables {
		if n, err := t.number(ctx, "look for rows of a tenant", "SELECT count(*) FROM (SELECT 1 FROM "+table+" WHERE tenant_id = $1 LIMIT 1) AS few"); err != nil || n > 0 {
			return n > 0, err
		}
	}
	return false, nil
}

func (t *tx) Keysets(ctx context.Context) ([]store.Keyset, error) {
	return list(ctx, t, "read keysets", "SELECT purpose, wrapped, kek, version, created_at, modified_at FROM keysets WHERE tenant_id = $1 ORDER BY purpose", nil,
		func(row pgx.Rows) (k store.Keyset, err error) {
			return k, row.Scan(&k.Purpose, &k.Wrapped, &k.KEK, &k.Version, &k.CreatedAt, &k.ModifiedAt)
		})
}

func (t *tx) PutKeyset(ctx context.Context, k store.Keyset) error {
	if k.Version == 1 {
		return t.later(step{doing: "insert keyset", taken: store.ErrConflict,
			text: "INSERT INTO keysets (tenant_id, purpose, wrapped, kek, version, created_at, modified_at) VALUES ($1, $2, $3, $4, $5, $6, $7)",
			args: []any{k.Purpose, orEmpty(k.Wrapped), k.KEK, k.Version, int64(k.CreatedAt), int64(k.ModifiedAt)}})
	}
	t.scrub = true
	return t.spared(func() error {
		return t.changeOne(ctx, store.ErrConflict, step{doing: "replace keyset",
			text: "UPDATE keysets SET wrapped = $3, kek = $4, version = $5, modified_at = $6 WHERE tenant_id = $1 AND purpose = $2 AND version = $5 - 1",
			args: []any{k.Purpose, orEmpty(k.Wrapped), k.KEK, k.Version, int64(k.ModifiedAt)}})
	})
}

// DestroyKeysets removes the rows; their bytes go when tidy rewrites the table.
func (t *tx) DestroyKeysets(_ context.Context) error {
	t.scrub = true
	return t.spared(func() error {
		return t.later(step{doing: "destroy keysets", text: "DELETE FROM keysets WHERE tenant_id = $1"})
	})
}

func (t *tx) Mark(ctx context.Context, name string) (value []byte, err error) {
	err = t.one(ctx, "read mark", "SELECT value FROM marks WHERE tenant_id = $1 AND name = $2", []any{name},
		func(row pgx.Rows) error { return row.Scan(&value) })
	return value, err
}

func (t *tx) PutMark(_ context.Context, name string, value []byte) error {
	if value == nil {
		err := t.later(step{doing: "remove mark", text: "DELETE FROM marks WHERE tenant_id = $1 AND name = $2", args: []any{name}})
		if errors.Is(err, errUnstorable) {
			return nil // it was never there
		}
		return err
	}
	return t.later(step{doing: "put mark",
		text: "INSERT INTO marks (tenant_id, name, value) VALUES ($1, $2, $3) ON CONFLICT (tenant_id, name) DO UPDATE SET value = excluded.value",
		args: []any{name, value}})
}
