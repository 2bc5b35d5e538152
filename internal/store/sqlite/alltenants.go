package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// allTenants implements store.AllTenants.
type allTenants struct{ store *Store }

// AllTenants implements store.Store.
func (s *Store) AllTenants() store.AllTenants { return allTenants{s} }

func (a allTenants) Tenants(ctx context.Context, after string, limit int) ([]store.Tenant, error) {
	var from tenantKey
	if after != "" {
		key, err := parseTenant(after)
		if err != nil {
			return nil, err
		}
		from = key
	}
	var list []store.Tenant
	err := a.store.read(ctx, tenantKey{}, func(t *tx) error {
		return t.conn.query(ctx, "SELECT "+tenantColumns+" FROM tenants WHERE tenant_id > ? ORDER BY tenant_id LIMIT ?", []driver.Value{from[:], int64(limit)},
			func(row []driver.Value) (bool, error) {
				var r store.Tenant
				err := scanTenant(row, &r)
				list = append(list, r)
				return true, err
			})
	})
	return list, err
}

func (a allTenants) ExpiredTokens(ctx context.Context, now store.Time, skip, limit int) ([]store.TokenRef, error) {
	return a.tokens(ctx, "SELECT tenant_id, id FROM tokens INDEXED BY tokens_by_expiry WHERE expires_at <= ? ORDER BY expires_at LIMIT ? OFFSET ?",
		int64(now), int64(limit), int64(skip))
}

func (a allTenants) OutdatedTokens(ctx context.Context, after string, skip, limit int) ([]store.TokenRef, error) {
	var from tenantKey
	if after != "" {
		key, err := parseTenant(after)
		if err != nil {
			return nil, err
		}
		from = key
	}
	return a.tokens(ctx, "SELECT tenant_id, id FROM tokens INDEXED BY tokens_outdated WHERE derived_at <> version AND tenant_id > ? ORDER BY tenant_id, id LIMIT ? OFFSET ?",
		from[:], int64(limit), int64(skip))
}

func (a allTenants) tokens(ctx context.Context, statement string, args ...driver.Value) (list []store.TokenRef, err error) {
	err = a.store.read(ctx, tenantKey{}, func(t *tx) error {
		return t.conn.query(ctx, statement, args, func(row []driver.Value) (bool, error) {
			id, err := uuid.FromBytes(blob(row[0]))
			list = append(list, store.TokenRef{Tenant: id.String(), ID: text(row[1])})
			return true, err
		})
	})
	return list, err
}

func (a allTenants) ExpiredSessions(ctx context.Context, now store.Time, skip, limit int) ([]store.SessionRef, error) {
	var list []store.SessionRef
	err := a.store.read(ctx, tenantKey{}, func(t *tx) error {
		return t.conn.query(ctx, "SELECT tenant_id, id FROM sessions INDEXED BY sessions_by_expiry WHERE expires_at <= ? ORDER BY expires_at LIMIT ? OFFSET ?",
			[]driver.Value{int64(now), int64(limit), int64(skip)}, func(row []driver.Value) (bool, error) {
				id, err := uuid.FromBytes(blob(row[0]))
				list = append(list, store.SessionRef{Tenant: id.String(), ID: text(row[1])})
				return true, err
			})
	})
	return list, err
}

func (a allTenants) ExpiredParcels(ctx context.Context, now store.Time, skip, limit int) ([]store.ParcelRef, error) {
	return a.parcels(ctx, "SELECT tenant_id, kind, id FROM parcels INDEXED BY parcels_by_expiry WHERE expires_at <= ? ORDER BY expires_at LIMIT ? OFFSET ?", now, skip, limit)
}

// DueParcels seeks from tenant to tenant in the index.
func (a allTenants) DueParcels(ctx context.Context, kind string, now store.Time, after string, tenants, each int) (due []store.ParcelRef, next string, err error) {
	var at tenantKey
	if after != "" {
		if at, err = parseTenant(after); err != nil {
			return nil, "", err
		}
	}
	err = a.store.read(ctx, tenantKey{}, func(t *tx) error {
		due, next = nil, ""
		for range tenants {
			err := t.conn.one(ctx, "SELECT tenant_id FROM parcels INDEXED BY parcels_due_by_tenant WHERE kind = ? AND tenant_id > ? AND due_at IS NOT NULL ORDER BY tenant_id LIMIT 1",
				[]driver.Value{kind, at[:]}, func(row []driver.Value) error {
					id, err := uuid.FromBytes(blob(row[0]))
					at = tenantKey(id)
					return err
				})
			if errors.Is(err, store.ErrNotFound) {
				next = ""
				return nil
			}
			if err != nil {
				return err
			}
			next = at.String()
			err = t.conn.query(ctx, "SELECT id FROM parcels INDEXED BY parcels_due_by_tenant WHERE kind = ? AND tenant_id = ? AND due_at <= ? ORDER BY due_at LIMIT ?",
				[]driver.Value{kind, at[:], int64(now), int64(each)}, func(row []driver.Value) (bool, error) {
					due = append(due, store.ParcelRef{Tenant: next, Kind: kind, ID: text(row[0])})
					return true, nil
				})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return due, next, err
}

// DueKinds seeks from kind to kind in the index.
func (a allTenants) DueKinds(ctx context.Context) (kinds []string, err error) {
	err = a.store.read(ctx, tenantKey{}, func(t *tx) error {
		kinds = nil
		for last := ""; ; {
			err := t.conn.one(ctx, "SELECT kind FROM parcels INDEXED BY parcels_due_by_tenant WHERE kind > ? AND due_at IS NOT NULL ORDER BY kind LIMIT 1",
				[]driver.Value{last}, func(row []driver.Value) error { last = text(row[0]); return nil })
			if errors.Is(err, store.ErrNotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			kinds = append(kinds, last)
		}
	})
	return kinds, err
}

func (a allTenants) parcels(ctx context.Context, statement string, now store.Time, skip, limit int) (list []store.ParcelRef, err error) {
	err = a.store.read(ctx, tenantKey{}, func(t *tx) error {
		return t.conn.query(ctx, statement, []driver.Value{int64(now), int64(limit), int64(skip)}, func(row []driver.Value) (bool, error) {
			id, err := uuid.FromBytes(blob(row[0]))
			list = append(list, store.ParcelRef{Tenant: id.String(), Kind: text(row[1]), ID: text(row[2])})
			return true, err
		})
	})
	return list, err
}

// UnsealedTenants seeks from tenant to tenant in the key of the queue.
func (a allTenants) UnsealedTenants(ctx context.Context, after string, limit int) ([]string, error) {
	var at tenantKey
	if after != "" {
		key, err := parseTenant(after)
		if err != nil {
			return nil, err
		}
		at = key
	}
	var list []string
	err := a.store.read(ctx, tenantKey{}, func(t *tx) error {
		for len(list) < limit {
			err := t.conn.one(ctx, "SELECT tenant_id FROM log_unsealed WHERE tenant_id > ? ORDER BY tenant_id LIMIT 1", []driver.Value{at[:]},
				func(row []driver.Value) error {
					id, err := uuid.FromBytes(blob(row[0]))
					at = tenantKey(id)
					return err
				})
			if errors.Is(err, store.ErrNotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			list = append(list, at.String())
		}
		return nil
	})
	return list, err
}

// Current implements store.AllTenants: no other process has the store.
func (allTenants) Current(context.Context) error { return nil }

func (a allTenants) Setting(ctx context.Context, name string) (value []byte, err error) {
	err = a.store.read(ctx, tenantKey{}, func(t *tx) error {
		return t.conn.one(ctx, "SELECT value FROM installation WHERE name = ?", []driver.Value{"setting:" + name},
			func(row []driver.Value) error { value = blob(row[0]); return nil })
	})
	return value, err
}

func (a allTenants) PutSetting(ctx context.Context, name string, value []byte) error {
	return a.store.writer.submit(ctx, tenantKey{}, func(t *tx) error {
		_, err := t.conn.exec("INSERT OR REPLACE INTO installation (name, value) VALUES (?, ?)", "setting:"+name, value)
		return err
	})
}
