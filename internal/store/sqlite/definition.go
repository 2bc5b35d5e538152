package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"math"
	"slices"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const definitionColumns = "kind, id, name, application_id, key_hash, created_by, created_at, modified_by, modified_at, version, contents"

func scanDefinition(row []driver.Value) store.Definition {
	return store.Definition{
		Kind: text(row[0]), ID: text(row[1]), Name: text(row[2]), ApplicationID: text(row[3]), KeyHash: blob(row[4]),
		CreatedBy: text(row[5]), CreatedAt: when(row[6]), ModifiedBy: text(row[7]), ModifiedAt: when(row[8]), Version: whole(row[9]),
		Contents: blob(row[10]),
	}
}

// orNoHash stores no hash as NULL, so that many may have none.
func orNoHash(hash []byte) driver.Value {
	if len(hash) == 0 {
		return nil
	}
	return hash
}

func (t *tx) InsertDefinition(_ context.Context, d store.Definition) error {
	if err := t.grows(); err != nil {
		return err
	}
	_, err := t.exec("INSERT INTO definitions (tenant_id, "+definitionColumns+", folded_name) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		d.Kind, d.ID, d.Name, d.ApplicationID, orNoHash(d.KeyHash), d.CreatedBy, int64(d.CreatedAt), d.ModifiedBy, int64(d.ModifiedAt), d.Version,
		orNullBytes(d.Contents), store.FoldName(d.Name))
	return err
}

func (t *tx) Definition(ctx context.Context, kind, id string) (store.Definition, error) {
	return t.definition(ctx, kind, id, "SELECT "+definitionColumns+" FROM definitions WHERE tenant_id = ? AND kind = ? AND id = ?", kind, id)
}

func (t *tx) DefinitionByKey(ctx context.Context, hash []byte) (store.Definition, error) {
	return t.definition(ctx, "by key", string(hash),
		"SELECT "+definitionColumns+" FROM definitions INDEXED BY definitions_by_key WHERE tenant_id = ? AND key_hash = ?"+unlessDeleting, orNoHash(hash))
}

func (t *tx) definition(ctx context.Context, kind, id, statement string, args ...driver.Value) (store.Definition, error) {
	size := func(d store.Definition) int { return len(d.Contents) }
	return remember(t, kind, id, size, func() (d store.Definition, err error) {
		err = t.one(ctx, statement, args, func(row []driver.Value) error { d = scanDefinition(row); return nil })
		return d, err
	})
}

func (t *tx) ReplaceDefinition(ctx context.Context, d store.Definition) error {
	if err := t.grows(); err != nil {
		return err
	}
	err := t.changeOne(store.ErrConflict, `
		UPDATE definitions SET name = ?4, folded_name = ?5, application_id = ?6, key_hash = ?7, contents = ?8, modified_by = ?9, modified_at = ?10, version = ?11
		WHERE tenant_id = ?1 AND kind = ?2 AND id = ?3 AND version = ?11 - 1`,
		d.Kind, d.ID, d.Name, store.FoldName(d.Name), d.ApplicationID, orNoHash(d.KeyHash), orNullBytes(d.Contents), d.ModifiedBy, int64(d.ModifiedAt), d.Version)
	if errors.Is(err, store.ErrConflict) {
		if _, missing := t.Definition(ctx, d.Kind, d.ID); missing != nil {
			return missing
		}
	}
	return err
}

func (t *tx) DeleteDefinition(_ context.Context, kind, id string) error {
	return t.changeOne(store.ErrNotFound, "DELETE FROM definitions WHERE tenant_id = ? AND kind = ? AND id = ?", kind, id)
}

func (t *tx) Definitions(ctx context.Context, f store.DefinitionFilter, p store.Page) ([]store.Definition, error) {
	places, err := t.definitionPlaces(ctx, f, p)
	if err != nil {
		return nil, err
	}
	list := make([]store.Definition, 0, len(places))
	for _, place := range places {
		d, err := t.Definition(ctx, place.Kind, place.ID)
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

func (t *tx) CountDefinitions(ctx context.Context, f store.DefinitionFilter) (int64, error) {
	places, err := t.definitionPlaces(ctx, f, store.Page{Limit: math.MaxInt})
	return int64(len(places)), err
}

// definitionPlaces returns where the definitions of a page stand. They are few,
// so ids and names pass over them in the order of the list.
func (t *tx) definitionPlaces(ctx context.Context, f store.DefinitionFilter, p store.Page) (places []store.Position, err error) {
	index, where := "definitions_by_kind", ""
	var args []driver.Value
	if f.ApplicationID != "" {
		index, where, args = "definitions_by_application", " AND application_id = ? AND application_id <> ''", append(args, f.ApplicationID)
	}
	if f.Kind != "" {
		where, args = where+" AND kind = ?", append(args, f.Kind)
	}
	if f.Name != "" {
		where, args = where+` AND folded_name LIKE ? ESCAPE '\'`, append(args, store.NamePattern(f.Name))
	}
	skip := p.Offset
	end, more := behindKinds(f.Kind, p.After)
	err = t.query(ctx, "SELECT kind, id FROM definitions INDEXED BY "+index+" WHERE tenant_id = ?"+where+end, append(args, more...),
		func(row []driver.Value) (bool, error) {
			switch id := text(row[1]); {
			case len(f.IDs) > 0 && !slices.Contains(f.IDs, id):
			case skip > 0:
				skip--
			case len(places) < p.Limit:
				places = append(places, store.Position{Kind: text(row[0]), ID: id})
			default:
				return false, nil
			}
			return true, nil
		})
	return places, err
}
