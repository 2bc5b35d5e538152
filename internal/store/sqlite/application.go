package sqlite

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const applicationColumns = "id, name, type, permissions, rules, expires_at, created_by, created_at, modified_by, modified_at, version"

func scanApplication(row []driver.Value) (a store.Application, err error) {
	a = store.Application{
		ID: text(row[0]), Name: text(row[1]), Type: text(row[2]), Rules: blob(row[4]), ExpiresAt: when(row[5]),
		CreatedBy: text(row[6]), CreatedAt: when(row[7]), ModifiedBy: text(row[8]), ModifiedAt: when(row[9]), Version: whole(row[10]),
	}
	a.Permissions, err = store.DecodeStrings(text(row[3]))
	return a, err
}

func (t *tx) InsertApplication(_ context.Context, a store.Application) error {
	if err := t.grows(); err != nil {
		return err
	}
	_, err := t.exec("INSERT INTO applications (tenant_id, "+applicationColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		a.ID, a.Name, a.Type, store.EncodeStrings(a.Permissions), orNullBytes(a.Rules), int64(a.ExpiresAt),
		a.CreatedBy, int64(a.CreatedAt), a.ModifiedBy, int64(a.ModifiedAt), a.Version)
	return err
}

func (t *tx) Application(ctx context.Context, id string) (a store.Application, err error) {
	err = t.one(ctx, "SELECT "+applicationColumns+" FROM applications WHERE tenant_id = ? AND id = ?", []driver.Value{id},
		func(row []driver.Value) (err error) { a, err = scanApplication(row); return err })
	return a, err
}

func (t *tx) ReplaceApplication(ctx context.Context, a store.Application) error {
	err := t.changeOne(store.ErrConflict, `
		UPDATE applications SET name = ?3, permissions = ?4, rules = ?5, expires_at = ?6, modified_by = ?7, modified_at = ?8, version = ?9
		WHERE tenant_id = ?1 AND id = ?2 AND version = ?9 - 1`,
		a.ID, a.Name, store.EncodeStrings(a.Permissions), orNullBytes(a.Rules), int64(a.ExpiresAt), a.ModifiedBy, int64(a.ModifiedAt), a.Version)
	if errors.Is(err, store.ErrConflict) {
		if _, missing := t.Application(ctx, a.ID); missing != nil {
			return missing
		}
	}
	return err
}

func (t *tx) DeleteApplication(_ context.Context, id string) error {
	if err := t.changeOne(store.ErrNotFound, "DELETE FROM applications WHERE tenant_id = ? AND id = ?", id); err != nil {
		return err
	}
	_, err := t.exec("DELETE FROM application_keys INDEXED BY application_keys_by_application WHERE tenant_id = ? AND application_id = ?", id)
	return err
}

// Applications are few, so a filter passes over them in the order of the list.
func (t *tx) Applications(ctx context.Context, f store.ApplicationFilter, p store.Page) ([]store.Application, error) {
	var list []store.Application
	skip := p.Offset
	after, args := behind(p.After)
	err := t.query(ctx, "SELECT "+applicationColumns+" FROM applications WHERE tenant_id = ?"+after+" ORDER BY created_at DESC, id DESC", args,
		func(row []driver.Value) (bool, error) {
			if !chosen(f, text(row[0]), text(row[2])) {
				return true, nil
			}
			if skip > 0 {
				skip--
				return true, nil
			}
			if len(list) >= p.Limit {
				return false, nil
			}
			a, err := scanApplication(row)
			list = append(list, a)
			return true, err
		})
	return list, err
}

func (t *tx) CountApplications(ctx context.Context, f store.ApplicationFilter) (n int64, err error) {
	err = t.query(ctx, "SELECT id, type FROM applications WHERE tenant_id = ?", nil, func(row []driver.Value) (bool, error) {
		if chosen(f, text(row[0]), text(row[1])) {
			n++
		}
		return true, nil
	})
	return n, err
}

func chosen(f store.ApplicationFilter, id, kind string) bool {
	return (len(f.IDs) == 0 || slices.Contains(f.IDs, id)) && (len(f.Types) == 0 || slices.Contains(f.Types, kind))
}

const keyColumns = "id, application_id, version, hash, prefix, created_by, created_at"

func scanKey(row []driver.Value) store.Key {
	return store.Key{
		ID: text(row[0]), ApplicationID: text(row[1]), Version: int(whole(row[2])), Hash: blob(row[3]),
		Prefix: text(row[4]), CreatedBy: text(row[5]), CreatedAt: when(row[6]),
	}
}

func (t *tx) InsertKey(_ context.Context, k store.Key) error {
	return t.changeOne(store.ErrNotFound, `
		INSERT INTO application_keys (tenant_id, `+keyColumns+`)
		SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 FROM applications WHERE tenant_id = ?1 AND id = ?3`,
		k.ID, k.ApplicationID, int64(k.Version), k.Hash, k.Prefix, k.CreatedBy, int64(k.CreatedAt))
}

func (t *tx) Keys(ctx context.Context, applicationID string) ([]store.Key, error) {
	var list []store.Key
	err := t.query(ctx, "SELECT "+keyColumns+" FROM application_keys INDEXED BY application_keys_by_application WHERE tenant_id = ? AND application_id = ?",
		[]driver.Value{applicationID}, func(row []driver.Value) (bool, error) {
			list = append(list, scanKey(row))
			return true, nil
		})
	slices.SortFunc(list, func(a, b store.Key) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.Version, b.Version), cmp.Compare(a.ID, b.ID))
	})
	return list, err
}

// keyByHash is one statement, because every request begins with it.
var keyByHash = `
	SELECT ` + qualified("k", keyColumns) + `, ` + qualified("a", applicationColumns) + `
	FROM application_keys AS k CROSS JOIN applications AS a
	WHERE k.tenant_id = ?1 AND k.hash = ?2 AND a.tenant_id = ?1 AND a.id = k.application_id` + unlessDeleting

func (t *tx) KeyByHash(ctx context.Context, hash []byte) (store.Key, store.Application, error) {
	found, err := remember(t, "key", string(hash), keyHolder.size, func() (h keyHolder, err error) {
		err = t.one(ctx, keyByHash, []driver.Value{hash},
			func(row []driver.Value) (err error) {
				const columns = 7 // of the key
				h.key = scanKey(row)
				h.application, err = scanApplication(row[columns:])
				return err
			})
		return h, err
	})
	return found.key, found.application, err
}

// keyHolder is a key with its application.
type keyHolder struct {
	key         store.Key
	application store.Application
}

func (h keyHolder) size() int { return len(h.application.Rules) + 32*len(h.application.Permissions) }

func (t *tx) DeleteKey(_ context.Context, applicationID, id string) error {
	return t.changeOne(store.ErrNotFound, "DELETE FROM application_keys WHERE tenant_id = ? AND application_id = ? AND id = ?", applicationID, id)
}

// qualified puts the name of a table before each column of a list.
func qualified(table, columns string) string {
	return table + "." + strings.ReplaceAll(columns, ", ", ", "+table+".")
}
