package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const tenantColumns = "tenant_id, name, settings, created_by, created_at, modified_by, modified_at, deleting, secrets"

func scanTenant(row []driver.Value, t *store.Tenant) error {
	id, err := uuid.FromBytes(blob(row[0]))
	if err != nil {
		return fmt.Errorf("sqlite: read tenant id: %w", store.ErrDamaged)
	}
	*t = store.Tenant{
		ID: id.String(), Name: text(row[1]), CreatedBy: text(row[3]), CreatedAt: when(row[4]),
		ModifiedBy: text(row[5]), ModifiedAt: when(row[6]), Deleting: whole(row[7]) != 0, Secrets: blob(row[8]),
	}
	if err := json.Unmarshal([]byte(text(row[2])), &t.Settings); err != nil {
		return fmt.Errorf("sqlite: read tenant settings: %w", store.ErrDamaged)
	}
	return nil
}

func encodeSettings(settings map[string]string) string {
	b, _ := json.Marshal(settings) // strings always marshal
	return string(b)
}

func (t *tx) InsertTenant(_ context.Context, r store.Tenant) error {
	if err := t.grows(); err != nil {
		return err
	}
	_, err := t.exec("INSERT INTO tenants ("+tenantColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
		r.Name, encodeSettings(r.Settings), r.CreatedBy, int64(r.CreatedAt), r.ModifiedBy, int64(r.ModifiedAt), r.Deleting, orNullBytes(r.Secrets))
	return err
}

func (t *tx) TenantRow(ctx context.Context) (store.Tenant, error) {
	size := func(r store.Tenant) int { return 64*len(r.Settings) + len(r.Secrets) }
	r, err := remember(t, "tenant", "", size, func() (r store.Tenant, err error) {
		err = t.one(ctx, "SELECT "+tenantColumns+" FROM tenants WHERE tenant_id = ?", nil,
			func(row []driver.Value) error { return scanTenant(row, &r) })
		return r, err
	})
	r.Settings = maps.Clone(r.Settings) // what is kept must not change
	return r, err
}

func (t *tx) ReplaceTenant(_ context.Context, r store.Tenant) error {
	err := t.changeOne(store.ErrNotFound,
		"UPDATE tenants SET name = ?2, settings = ?3, modified_by = ?4, modified_at = ?5, deleting = ?6, secrets = ?7 WHERE tenant_id = ?1 AND deleting = 0",
		r.Name, encodeSettings(r.Settings), r.ModifiedBy, int64(r.ModifiedAt), r.Deleting, orNullBytes(r.Secrets))
	t.hasTenant = t.hasTenant || err == nil
	return err
}

// tenantTables are emptied in this order when a tenant goes; its own row goes
// last, so that a stopped deletion is found and finished. Log batches stay.
var tenantTables = []string{
	"keysets", "application_keys", "applications", "tokens", "token_terms", "token_term_counts", "token_groups", "token_types", "token_containers", "container_counts",
	"sessions", "parcels", "definitions", "marks", "log_unsealed", "log", "log_counts", "events", "event_heads", "log_activity", "tenants",
}

// deletion removes a bounded number of rows of a table. Tables without row ids
// are cut by their own keys.
var deletion = map[string]string{
	"keysets":           "(tenant_id, purpose) IN (SELECT tenant_id, purpose FROM keysets WHERE tenant_id = ?1 LIMIT ?2)",
	"application_keys":  "(tenant_id, hash) IN (SELECT tenant_id, hash FROM application_keys WHERE tenant_id = ?1 LIMIT ?2)",
	"applications":      "(tenant_id, id) IN (SELECT tenant_id, id FROM applications WHERE tenant_id = ?1 LIMIT ?2)",
	"token_terms":       "(tenant_id, term, created_at, id) IN (SELECT tenant_id, term, created_at, id FROM token_terms WHERE tenant_id = ?1 LIMIT ?2)",
	"token_term_counts": "(tenant_id, term, group_id) IN (SELECT tenant_id, term, group_id FROM token_term_counts WHERE tenant_id = ?1 LIMIT ?2)",
	"tokens":            "row_id IN (SELECT row_id FROM tokens WHERE tenant_id = ?1 LIMIT ?2)",
	"token_groups":      "(tenant_id, group_id) IN (SELECT tenant_id, group_id FROM token_groups WHERE tenant_id = ?1 LIMIT ?2)",
	"token_types":       "(tenant_id, type) IN (SELECT tenant_id, type FROM token_types WHERE tenant_id = ?1 LIMIT ?2)",
	"token_containers":  "(tenant_id, container, group_id) IN (SELECT tenant_id, container, group_id FROM token_containers WHERE tenant_id = ?1 LIMIT ?2)",
	"container_counts":  "tenant_id IN (SELECT tenant_id FROM container_counts WHERE tenant_id = ?1 LIMIT ?2)",
	"sessions":          "row_id IN (SELECT row_id FROM sessions WHERE tenant_id = ?1 LIMIT ?2)",
	"parcels":           "row_id IN (SELECT row_id FROM parcels WHERE tenant_id = ?1 LIMIT ?2)",
	"definitions":       "row_id IN (SELECT row_id FROM definitions WHERE tenant_id = ?1 LIMIT ?2)",
	"marks":             "(tenant_id, name) IN (SELECT tenant_id, name FROM marks WHERE tenant_id = ?1 LIMIT ?2)",
	"log_unsealed":      "(tenant_id, created_at, id) IN (SELECT tenant_id, created_at, id FROM log_unsealed WHERE tenant_id = ?1 LIMIT ?2)",
	"log":               "(tenant_id, created_at, id) IN (SELECT tenant_id, created_at, id FROM log WHERE tenant_id = ?1 LIMIT ?2)",
	"log_counts":        "(tenant_id, entity_type) IN (SELECT tenant_id, entity_type FROM log_counts WHERE tenant_id = ?1 LIMIT ?2)",
	"events":            "(tenant_id, number) IN (SELECT tenant_id, number FROM events WHERE tenant_id = ?1 LIMIT ?2)",
	"event_heads":       "tenant_id IN (SELECT tenant_id FROM event_heads WHERE tenant_id = ?1 LIMIT ?2)",
	"log_activity":      "(tenant_id, width, at, actor_id, kind) IN (SELECT tenant_id, width, at, actor_id, kind FROM log_activity WHERE tenant_id = ?1 LIMIT ?2)",
	"tenants":           "tenant_id IN (SELECT tenant_id FROM tenants WHERE tenant_id = ?1 LIMIT ?2)",
}

// unlessDeleting goes with the statements by which callers are found.
const unlessDeleting = " AND EXISTS (SELECT 1 FROM tenants WHERE tenant_id = ?1 AND NOT deleting)"

func (t *tx) DeleteTenantRows(ctx context.Context, limit int) (more bool, err error) {
	if !t.writable {
		return false, store.ErrReadOnly
	}
	// What was written before goes too, now or before the tenant's own row.
	defer func() { t.needsTenant, t.hasTenant = false, false }()
	left := int64(limit)
	for i, table := range tenantTables {
		// Counters must not come back after their rows have gone.
		if err := t.flush(); err != nil {
			return false, err
		}
		n, err := t.deleteSome(ctx, table, left)
		if err != nil {
			return false, t.fail(err)
		}
		if left -= n; left <= 0 {
			return t.hasRows(ctx, tenantTables[i:])
		}
	}
	return false, nil
}

// deleteSome removes up to limit rows of a table. A token takes its search
// terms along, and counters follow their rows, so that a deletion that is cut
// short leaves a sound store.
func (t *tx) deleteSome(ctx context.Context, table string, limit int64) (n int64, err error) {
	statement := "DELETE FROM " + table + " WHERE " + deletion[table]
	switch table {
	case "tokens":
		return t.deleteTokens(ctx, statement, limit)
	case "log":
		err = t.query(ctx, statement+" RETURNING entity_type", []driver.Value{limit}, func(row []driver.Value) (bool, error) {
			t.uncountEntry(text(row[0]))
			n++
			return true, nil
		})
		return n, err
	}
	return t.exec(statement, limit)
}

func (t *tx) deleteTokens(ctx context.Context, statement string, limit int64) (n int64, err error) {
	var gone []store.Token
	err = t.query(ctx, statement+" RETURNING "+tokenColumns, []driver.Value{limit}, func(row []driver.Value) (bool, error) {
		r, err := scanToken(row)
		r.Data, r.Details, r.ShortLived = nil, nil, nil
		gone = append(gone, r)
		return true, err
	})
	if err != nil {
		return 0, err
	}
	for _, r := range gone {
		group, containers := store.GroupOf(r.Type, r.Containers)
		t.countToken(group, r.Type, containers, -1)
		if err := t.deleteTerms(r, group); err != nil {
			return 0, err
		}
	}
	return int64(len(gone)), nil
}

func (t *tx) hasRows(ctx context.Context, tables []string) (bool, error) {
	for _, table := range tables {
		if n, err := t.number(ctx, "SELECT EXISTS (SELECT 1 FROM "+table+" WHERE tenant_id = ?)"); err != nil || n > 0 {
			return n > 0, err
		}
	}
	return false, nil
}

// keysetPadding stands before a wrapped keyset. SQLite leaves stale copies of
// small cells in pages when it balances a tree, and no setting overwrites
// those. With this much in front, the bytes that count stand in an overflow
// page of their own, which is never moved and is overwritten when it is freed.
const keysetPadding = 2048

func padKeyset(wrapped []byte) []byte { return append(make([]byte, keysetPadding), wrapped...) }

func unpadKeyset(b []byte) ([]byte, error) {
	if len(b) < keysetPadding {
		return nil, fmt.Errorf("sqlite: read keyset: %w", store.ErrDamaged)
	}
	return b[keysetPadding:], nil
}

func (t *tx) Keysets(ctx context.Context) ([]store.Keyset, error) {
	var list []store.Keyset
	err := t.query(ctx, "SELECT purpose, wrapped, kek, version, created_at, modified_at FROM keysets WHERE tenant_id = ? ORDER BY purpose", nil,
		func(row []driver.Value) (bool, error) {
			wrapped, err := unpadKeyset(blob(row[1]))
			list = append(list, store.Keyset{
				Purpose: text(row[0]), Wrapped: wrapped, KEK: text(row[2]), Version: whole(row[3]),
				CreatedAt: when(row[4]), ModifiedAt: when(row[5]),
			})
			return true, err
		})
	return list, err
}

func (t *tx) PutKeyset(_ context.Context, k store.Keyset) error {
	if k.Version == 1 {
		_, err := t.exec("INSERT INTO keysets (tenant_id, purpose, wrapped, kek, version, created_at, modified_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
			k.Purpose, padKeyset(k.Wrapped), k.KEK, k.Version, int64(k.CreatedAt), int64(k.ModifiedAt))
		if errors.Is(err, store.ErrExists) {
			return store.ErrConflict
		}
		return err
	}
	t.scrub = true // the write-ahead log must not keep the older one
	return t.spared(func() error {
		return t.changeOne(store.ErrConflict,
			"UPDATE keysets SET wrapped = ?3, kek = ?4, version = ?5, modified_at = ?6 WHERE tenant_id = ?1 AND purpose = ?2 AND version = ?5 - 1",
			k.Purpose, padKeyset(k.Wrapped), k.KEK, k.Version, int64(k.ModifiedAt))
	})
}

// DestroyKeysets removes the rows: secure_delete overwrites them in the file,
// and the write-ahead log, which still has them, is emptied after the commit.
func (t *tx) DestroyKeysets(_ context.Context) error {
	t.scrub = true
	return t.spared(func() error {
		_, err := t.exec("DELETE FROM keysets WHERE tenant_id = ?")
		return err
	})
}

func (t *tx) Mark(ctx context.Context, name string) (value []byte, err error) {
	err = t.one(ctx, "SELECT value FROM marks WHERE tenant_id = ? AND name = ?", []driver.Value{name},
		func(row []driver.Value) error { value = blob(row[0]); return nil })
	return value, err
}

func (t *tx) PutMark(_ context.Context, name string, value []byte) error {
	if value == nil {
		_, err := t.exec("DELETE FROM marks WHERE tenant_id = ? AND name = ?", name)
		return err
	}
	_, err := t.exec("INSERT INTO marks (tenant_id, name, value) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", name, value)
	return err
}
