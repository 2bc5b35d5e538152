package postgres

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// allTenants implements store.AllTenants. It acts as the owner of the tables,
// whose policy lets it see all tenants.
type allTenants struct{ store *Store }

// AllTenants implements store.Store.
func (s *Store) AllTenants() store.AllTenants { return allTenants{s} }

// across reads rows of all tenants.
func across[T any](ctx context.Context, s *Store, doing, text string, args []any, scan func(pgx.Rows) (T, error)) ([]T, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.running.Done()
	rows, err := s.owner.Query(ctx, text, args...)
	if err != nil {
		return nil, callerError(ctx, doing, err)
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		row, err := scan(rows)
		if err != nil {
			return nil, callerError(ctx, doing, err)
		}
		all = append(all, row)
	}
	return all, callerError(ctx, doing, rows.Err())
}

// behindTenant is where a walk over tenants goes on.
func behindTenant(after string) (pgtype.UUID, error) {
	if after == "" {
		return tenantKey{}.column(), nil // no tenant has this id
	}
	key, err := parseTenant(after)
	return key.column(), err
}

func (a allTenants) Tenants(ctx context.Context, after string, limit int) ([]store.Tenant, error) {
	from, err := behindTenant(after)
	if err != nil {
		return nil, err
	}
	return across(ctx, a.store, "list tenants", "SELECT "+tenantColumns+" FROM tenants WHERE tenant_id > $1 ORDER BY tenant_id LIMIT $2", []any{from, limit}, scanTenant)
}

func (a allTenants) ExpiredTokens(ctx context.Context, now store.Time, limit int) ([]store.TokenRef, error) {
	return across(ctx, a.store, "find expired tokens", "SELECT tenant_id, id FROM tokens WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2", []any{int64(now), limit},
		func(row pgx.Rows) (r store.TokenRef, err error) {
			var id pgtype.UUID
			err = row.Scan(&id, &r.ID)
			r.Tenant = uuid.UUID(id.Bytes).String()
			return r, err
		})
}

// UnsealedTenants seeks from tenant to tenant in the key of the queue.
func (a allTenants) UnsealedTenants(ctx context.Context, after string, limit int) ([]string, error) {
	from, err := behindTenant(after)
	if err != nil || limit <= 0 {
		return nil, err
	}
	return across(ctx, a.store, "find unsealed tenants", `
		WITH RECURSIVE waiting (tenant_id, n) AS (
		  (SELECT tenant_id, 1 FROM log_unsealed WHERE tenant_id > $1 ORDER BY tenant_id LIMIT 1)
		  UNION ALL
		  SELECT next.tenant_id, n + 1 FROM waiting, LATERAL (
		    SELECT tenant_id FROM log_unsealed l WHERE l.tenant_id > waiting.tenant_id ORDER BY tenant_id LIMIT 1) AS next WHERE n < $2)
		SELECT tenant_id FROM waiting`, []any{from, limit}, func(row pgx.Rows) (string, error) {
		var id pgtype.UUID
		err := row.Scan(&id)
		return uuid.UUID(id.Bytes).String(), err
	})
}

// putInstallation keeps a value of the installation.
const putInstallation = "INSERT INTO installation (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value"

func (a allTenants) Setting(ctx context.Context, name string) ([]byte, error) {
	found, err := across(ctx, a.store, "read setting", "SELECT value FROM installation WHERE name = $1", []any{"setting:" + name},
		func(row pgx.Rows) (value []byte, err error) { return value, row.Scan(&value) })
	if err == nil && len(found) == 0 {
		return nil, store.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// PutSetting may be done twice with the same end, so its outcome needs no care.
func (a allTenants) PutSetting(ctx context.Context, name string, value []byte) error {
	if err := a.store.enter(ctx); err != nil {
		return err
	}
	defer a.store.running.Done()
	_, err := a.store.owner.Exec(ctx, putInstallation, "setting:"+name, orEmpty(value))
	return callerError(ctx, "put setting", err)
}
