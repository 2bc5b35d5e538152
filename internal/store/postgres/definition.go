package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const definitionColumns = "kind, id, name, application_id, key_hash, created_by, created_at, modified_by, modified_at, version, contents"

func scanDefinition(row pgx.Rows) (d store.Definition, err error) {
	err = row.Scan(&d.Kind, &d.ID, &d.Name, &d.ApplicationID, &d.KeyHash, &d.CreatedBy, &d.CreatedAt, &d.ModifiedBy, &d.ModifiedAt, &d.Version, &d.Contents)
	return d, err
}

// orNoHash stores no hash as NULL, so that many may have none.
func orNoHash(hash []byte) []byte {
	if len(hash) == 0 {
		return nil
	}
	return hash
}

func (t *tx) InsertDefinition(_ context.Context, d store.Definition) error {
	return t.later(step{doing: "insert definition",
		text: "INSERT INTO definitions (tenant_id, " + definitionColumns + ", folded_name) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
		args: []any{d.Kind, d.ID, d.Name, d.ApplicationID, orNoHash(d.KeyHash), d.CreatedBy, int64(d.CreatedAt), d.ModifiedBy, int64(d.ModifiedAt),
			d.Version, d.Contents, store.FoldName(d.Name)}})
}

func (t *tx) Definition(ctx context.Context, kind, id string) (d store.Definition, err error) {
	err = t.one(ctx, "read definition", "SELECT "+definitionColumns+" FROM definitions WHERE tenant_id = $1 AND kind = $2 AND id = $3", []any{kind, id},
		func(row pgx.Rows) (err error) { d, err = scanDefinition(row); return err })
	return d, err
}

func (t *tx) DefinitionByKey(ctx context.Context, hash []byte) (d store.Definition, err error) {
	err = t.one(ctx, "find definition", "SELECT "+definitionColumns+" FROM definitions WHERE tenant_id = $1 AND key_hash = $2"+unlessDeleting, []any{orNoHash(hash)},
		func(row pgx.Rows) (err error) { d, err = scanDefinition(row); return err })
	return d, err
}

func (t *tx) ReplaceDefinition(ctx context.Context, d store.Definition) error {
	err := t.changeOne(ctx, store.ErrConflict, step{doing: "replace definition", text: `
		UPDATE definitions SET name = $4, folded_name = $5, application_id = $6, key_hash = $7, contents = $8, modified_by = $9, modified_at = $10, version = $11
		WHERE tenant_id = $1 AND kind = $2 AND id = $3 AND version = $11 - 1`,
		args: []any{d.Kind, d.ID, d.Name, store.FoldName(d.Name), d.ApplicationID, orNoHash(d.KeyHash), d.Contents, d.ModifiedBy, int64(d.ModifiedAt), d.Version}})
	if errors.Is(err, store.ErrConflict) {
		if _, missing := t.Definition(ctx, d.Kind, d.ID); missing != nil {
			return missing
		}
	}
	return err
}

func (t *tx) DeleteDefinition(ctx context.Context, kind, id string) error {
	return t.changeOne(ctx, store.ErrNotFound, step{doing: "delete definition",
		text: "DELETE FROM definitions WHERE tenant_id = $1 AND kind = $2 AND id = $3", args: []any{kind, id}})
}

// Definitions are few, so ids and names pass over them in the order of the list.
func (t *tx) Definitions(ctx context.Context, f store.DefinitionFilter, p store.Page) ([]store.Definition, error) {
	s := definitionSource(f)
	s.pageOfKinds(f.Kind, p)
	return list(ctx, t, "list definitions", "SELECT "+definitionColumns+" FROM "+s.text, s.args, scanDefinition)
}

func (t *tx) CountDefinitions(ctx context.Context, f store.DefinitionFilter) (int64, error) {
	s := definitionSource(f)
	return t.number(ctx, "count definitions", "SELECT count(*) FROM "+s.text, s.args...)
}

func definitionSource(f store.DefinitionFilter) (s selection) {
	s.text = "definitions WHERE tenant_id = $1"
	if f.ApplicationID != "" {
		s.where("application_id = %s AND application_id <> ''", f.ApplicationID)
	}
	if f.Kind != "" {
		s.where("kind = %s", f.Kind)
	}
	if len(f.IDs) > 0 {
		s.among("id", f.IDs)
	}
	if f.Name != "" {
		// What is not compared keeps the order of the list's index.
		s.where(`nullif(folded_name LIKE %s ESCAPE '\', false) IS NOT NULL`, store.NamePattern(f.Name))
	}
	return s
}
