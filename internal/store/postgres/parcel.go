package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const parcelColumns = "kind, id, group_name, owner, contents, epoch, created_at, due_at, expires_at, attempts, version"

func scanParcel(row pgx.Rows) (p store.Parcel, err error) {
	var due pgtype.Int8
	err = row.Scan(&p.Kind, &p.ID, &p.Group, &p.Owner, &p.Contents, &p.Epoch, &p.CreatedAt, &due, &p.ExpiresAt, &p.Attempts, &p.Version)
	p.DueAt = store.Time(due.Int64)
	return p, err
}

func (t *tx) InsertParcel(_ context.Context, p store.Parcel) error {
	return t.writeParcel(p, &t.rows.parcels.insert)
}

func (t *tx) ReplaceParcel(_ context.Context, p store.Parcel) error {
	return t.writeParcel(p, &t.rows.parcels.replace)
}

func (t *tx) DeleteParcel(_ context.Context, kind, id string) error {
	return t.writeParcel(store.Parcel{Kind: kind, ID: id}, &t.rows.parcels.remove)
}

// writeParcel puts a parcel among those to be written with the commit. Between
// two writes of one parcel the order counts, so the first is settled.
func (t *tx) writeParcel(p store.Parcel, list *[]store.Parcel) error {
	if err := t.writes(); err != nil {
		return err
	}
	if unstorable(p.Kind, p.ID, p.Group, p.Owner) {
		return errUnstorable
	}
	if t.rows.parcels.touch(p) {
		t.settleRows()
		t.rows.parcels.touch(p)
	}
	*list = append(*list, p)
	t.rows.bytes += len(p.Contents) + 500
	return nil
}

// parcelRows are changes of parcels. Each stands for one parcel, so they depend
// on no order; those of several updates may meet at a parcel, and then one of
// the statements fails and each update is tried alone.
type parcelRows struct {
	insert, replace, remove []store.Parcel
	touched                 map[string]bool
}

// touch notes that a parcel changes, and returns whether it was noted before.
func (r *parcelRows) touch(p store.Parcel) (again bool) {
	if again = r.touched[p.Record()]; !again {
		if r.touched == nil {
			r.touched = make(map[string]bool)
		}
		r.touched[p.Record()] = true
	}
	return again
}

func (r *parcelRows) empty() bool { return len(r.insert)+len(r.replace)+len(r.remove) == 0 }

func (r *parcelRows) add(other *parcelRows) {
	r.insert = append(r.insert, other.insert...)
	r.replace = append(r.replace, other.replace...)
	r.remove = append(r.remove, other.remove...)
}

func (r *parcelRows) statements() (steps []step) {
	if len(r.insert) > 0 {
		c := listsOf(r.insert)
		steps = append(steps, step{doing: "insert parcels", text: `
			INSERT INTO parcels (tenant_id, ` + parcelColumns + `)
			SELECT $1, * FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::bigint[], $8::bigint[], $9::bigint[],
			  $10::bigint[], $11::bigint[], $12::bigint[])`,
			args: []any{c.kinds, c.ids, c.groups, c.owners, c.contents, c.epochs, c.made, c.due, c.expires, c.attempts, c.versions}})
	}
	// The commit travels with the statements, so a statement that did not find
	// its rows must fail by itself: a negative number has no square root when
	// one is not there, and no logarithm when one has another version.
	if len(r.replace) > 0 {
		c := listsOf(r.replace)
		steps = append(steps, step{doing: "replace parcels", text: `
			WITH given AS (
			  SELECT * FROM unnest($2::text[], $3::text[], $4::text[], $5::bytea[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[])
			    AS g (kind, id, owner, contents, epoch, due_at, expires_at, attempts, version)),
			changed AS (
			  UPDATE parcels p SET owner = g.owner, contents = g.contents, epoch = g.epoch, due_at = g.due_at, expires_at = g.expires_at,
			    attempts = g.attempts, version = g.version
			  FROM given g WHERE p.tenant_id = $1 AND p.kind = g.kind AND p.id = g.id AND p.version = g.version - 1 RETURNING 1)
			SELECT sqrt((SELECT count(*) - $11::bigint FROM given g WHERE
			    (SELECT true FROM parcels p WHERE p.tenant_id = $1 AND p.kind = g.kind AND p.id = g.id))::float8),
			  ln((SELECT count(*) - $11::bigint + 1 FROM changed)::float8)`,
			args: []any{c.kinds, c.ids, c.owners, c.contents, c.epochs, c.due, c.expires, c.attempts, c.versions, int64(len(r.replace))}})
	}
	if len(r.remove) > 0 {
		c := listsOf(r.remove)
		steps = append(steps, step{doing: "delete parcels", text: `
			WITH gone AS (
			  DELETE FROM parcels p USING unnest($2::text[], $3::text[]) AS g (kind, id)
			  WHERE p.tenant_id = $1 AND p.kind = g.kind AND p.id = g.id RETURNING 1)
			SELECT sqrt((SELECT count(*) - $4::bigint FROM gone)::float8)`,
			args: []any{c.kinds, c.ids, int64(len(r.remove))}})
	}
	return steps
}

// parcelLists are parcels as a statement unnests them.
type parcelLists struct {
	kinds, ids, groups, owners                []string
	contents                                  [][]byte
	epochs, made, expires, attempts, versions []int64
	due                                       []pgtype.Int8
}

func listsOf(parcels []store.Parcel) (c parcelLists) {
	for _, p := range parcels {
		c.kinds, c.ids, c.groups, c.owners = append(c.kinds, p.Kind), append(c.ids, p.ID), append(c.groups, p.Group), append(c.owners, p.Owner)
		c.contents, c.epochs, c.made, c.due = append(c.contents, p.Contents), append(c.epochs, p.Epoch), append(c.made, int64(p.CreatedAt)), append(c.due, orNull(p.DueAt))
		c.expires, c.attempts, c.versions = append(c.expires, int64(p.ExpiresAt)), append(c.attempts, int64(p.Attempts)), append(c.versions, p.Version)
	}
	return c
}

func (t *tx) Parcel(ctx context.Context, kind, id string) (p store.Parcel, err error) {
	err = t.one(ctx, "read parcel", "SELECT "+parcelColumns+" FROM parcels WHERE tenant_id = $1 AND kind = $2 AND id = $3", []any{kind, id},
		func(row pgx.Rows) (err error) { p, err = scanParcel(row); return err })
	return p, err
}

func (t *tx) Parcels(ctx context.Context, f store.ParcelFilter, p store.Page) ([]store.Parcel, error) {
	s, err := parcelSource(f)
	if err != nil {
		return nil, err
	}
	s.pageOfKinds(f.Kind, p)
	return list(ctx, t, "list parcels", "SELECT "+parcelColumns+" FROM "+s.text, s.args, scanParcel)
}

func (t *tx) CountParcels(ctx context.Context, f store.ParcelFilter) (int64, error) {
	s, err := parcelSource(f)
	if err != nil {
		return 0, err
	}
	if f.Most > 0 {
		order := " ORDER BY created_at, id" // so that the planner reads an index and stops
		if f.Kind == "" {
			order = " ORDER BY kind, created_at, id"
		}
		s.text = "(SELECT 1 FROM " + s.text + order + " LIMIT " + s.arg(f.Most) + ") AS counted"
	}
	return t.number(ctx, "count parcels", "SELECT count(*) FROM "+s.text, s.args...)
}

func parcelSource(f store.ParcelFilter) (s selection, err error) {
	s.text = "parcels WHERE tenant_id = $1"
	if f.Kind == "" && f.Group != "" {
		return s, errors.New("postgres: parcels of a group are of one kind")
	}
	if f.Kind != "" {
		s.where("kind = %s", f.Kind)
	}
	if f.Group != "" {
		s.where("group_name = %s AND group_name <> ''", f.Group)
	}
	return s, nil
}

// pageOfKinds cuts a page out of a list of one kind, newest first, or of all
// kinds, kind by kind.
func (s *selection) pageOfKinds(kind string, p store.Page) {
	if kind != "" {
		s.page(p)
		return
	}
	if p.After != nil {
		s.where("(kind, created_at, id) < (%s, %s, %s)", p.After.Kind, int64(p.After.CreatedAt), p.After.ID)
	}
	s.text += " ORDER BY kind DESC, created_at DESC, id DESC LIMIT " + s.arg(int64(p.Limit)) + " OFFSET " + s.arg(int64(p.Offset))
}
