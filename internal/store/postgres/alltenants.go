package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// allTenants implements store.AllTenants. It acts as the owner of the tables,
// whose policy lets it see all tenants.
type allTenants struct{ store *Store }

// AllTenants implements store.Store.
func (s *Store) AllTenants() store.AllTenants { return allTenants{s} }

// asOwner runs what may be run twice with the same end: when a connection is
// lost, it is run on another one. It does not wait for ever for one that is
// silent.
func (s *Store) asOwner(ctx context.Context, doing string, run func(context.Context, *pgxpool.Pool) error) error {
	return s.asOwnerWithin(ctx, choreWait, doing, run)
}

func (s *Store) asOwnerWithin(ctx context.Context, wait time.Duration, doing string, run func(context.Context, *pgxpool.Pool) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.running.Done()
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for try := 1; ; try++ {
		err := callerError(ctx, doing, run(bounded, s.owner))
		if try == 3 || !errors.Is(err, errLost) || bounded.Err() != nil {
			return err
		}
		s.owner.Reset()
	}
}

// across reads rows of all tenants.
func across[T any](ctx context.Context, s *Store, doing, text string, args []any, scan func(pgx.Rows) (T, error)) (all []T, err error) {
	err = s.asOwner(ctx, doing, func(ctx context.Context, pool *pgxpool.Pool) error {
		rows, err := pool.Query(ctx, text, args...)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, func(pgx.CollectableRow) (T, error) { return scan(rows) })
		return err
	})
	return all, err
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

func (a allTenants) ExpiredTokens(ctx context.Context, now store.Time, skip, limit int) ([]store.TokenRef, error) {
	return across(ctx, a.store, "find expired tokens",
		"SELECT tenant_id, id FROM tokens WHERE expires_at + 0 <= $1 ORDER BY expires_at + 0 LIMIT $2 OFFSET $3", []any{int64(now), limit, skip}, scanTokenRef)
}

func (a allTenants) OutdatedTokens(ctx context.Context, after string, skip, limit int) ([]store.TokenRef, error) {
	from, err := behindTenant(after)
	if err != nil {
		return nil, err
	}
	return across(ctx, a.store, "find outdated tokens",
		"SELECT tenant_id, id FROM tokens WHERE derived_at <> version AND tenant_id > $1 ORDER BY tenant_id, id LIMIT $2 OFFSET $3", []any{from, limit, skip}, scanTokenRef)
}

func scanTokenRef(row pgx.Rows) (r store.TokenRef, err error) {
	var id pgtype.UUID
	err = row.Scan(&id, &r.ID)
	r.Tenant = uuid.UUID(id.Bytes).String()
	return r, err
}

func (a allTenants) ExpiredSessions(ctx context.Context, now store.Time, skip, limit int) ([]store.SessionRef, error) {
	return across(ctx, a.store, "find expired sessions",
		"SELECT tenant_id, id FROM sessions WHERE expires_at + 0 <= $1 ORDER BY expires_at + 0 LIMIT $2 OFFSET $3", []any{int64(now), limit, skip},
		func(row pgx.Rows) (r store.SessionRef, err error) {
			var id pgtype.UUID
			err = row.Scan(&id, &r.ID)
			r.Tenant = uuid.UUID(id.Bytes).String()
			return r, err
		})
}

func scanParcelRef(row pgx.Rows) (r store.ParcelRef, err error) {
	var id pgtype.UUID
	err = row.Scan(&id, &r.Kind, &r.ID)
	r.Tenant = uuid.UUID(id.Bytes).String()
	return r, err
}

func (a allTenants) ExpiredParcels(ctx context.Context, now store.Time, skip, limit int) ([]store.ParcelRef, error) {
	return across(ctx, a.store, "find expired parcels",
		"SELECT tenant_id, kind, id FROM parcels WHERE expires_at + 0 <= $1 ORDER BY expires_at + 0 LIMIT $2 OFFSET $3", []any{int64(now), limit, skip}, scanParcelRef)
}

// DueParcels seeks from tenant to tenant in the index. The first column of a row
// is the tenant, the second whether it is the last one that was looked at; the
// id is null for a tenant of which nothing is due.
func (a allTenants) DueParcels(ctx context.Context, kind string, now store.Time, after string, tenants, each int) (due []store.ParcelRef, next string, err error) {
	from, err := behindTenant(after)
	if err != nil || tenants <= 0 {
		return nil, "", err
	}
	type row struct {
		tenant pgtype.UUID
		last   bool
		id     pgtype.Text
	}
	rows, err := across(ctx, a.store, "find due parcels", `
		WITH RECURSIVE walked (tenant_id, n) AS (
		  (SELECT tenant_id, 1 FROM parcels WHERE kind = $1 AND tenant_id > $2 AND due_at IS NOT NULL ORDER BY tenant_id LIMIT 1)
		  UNION ALL
		  SELECT next.tenant_id, n + 1 FROM walked, LATERAL (
		    SELECT p.tenant_id FROM parcels p WHERE p.kind = $1 AND p.tenant_id > walked.tenant_id AND p.due_at IS NOT NULL ORDER BY p.tenant_id LIMIT 1) AS next WHERE n < $3)
		SELECT walked.tenant_id, n = $3, found.id FROM walked LEFT JOIN LATERAL (
		  SELECT p.id FROM parcels p WHERE p.kind = $1 AND p.tenant_id = walked.tenant_id AND p.due_at <= $4 ORDER BY p.due_at LIMIT $5) AS found ON true`,
		[]any{kind, from, tenants, int64(now), each}, func(r pgx.Rows) (one row, err error) { return one, r.Scan(&one.tenant, &one.last, &one.id) })
	for _, r := range rows {
		tenant := uuid.UUID(r.tenant.Bytes).String()
		if r.last {
			next = tenant
		}
		if r.id.Valid {
			due = append(due, store.ParcelRef{Tenant: tenant, Kind: kind, ID: r.id.String})
		}
	}
	return due, next, err
}

// DueKinds seeks from kind to kind in the index.
func (a allTenants) DueKinds(ctx context.Context) ([]string, error) {
	return across(ctx, a.store, "find due kinds", `
		WITH RECURSIVE walked (kind) AS (
		  (SELECT kind FROM parcels WHERE due_at IS NOT NULL ORDER BY kind LIMIT 1)
		  UNION ALL
		  SELECT next.kind FROM walked, LATERAL (
		    SELECT p.kind FROM parcels p WHERE p.kind > walked.kind AND p.due_at IS NOT NULL ORDER BY p.kind LIMIT 1) AS next)
		SELECT kind FROM walked`, nil, func(row pgx.Rows) (kind string, err error) { return kind, row.Scan(&kind) })
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

func (a allTenants) PutSetting(ctx context.Context, name string, value []byte) error {
	return a.store.asOwner(ctx, "put setting", func(ctx context.Context, pool *pgxpool.Pool) error {
		_, err := pool.Exec(ctx, putInstallation, "setting:"+name, orEmpty(value))
		return err
	})
}
