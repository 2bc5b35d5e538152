package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const parcelColumns = "kind, id, group_name, owner, contents, epoch, created_at, due_at, expires_at, attempts, version"

func scanParcel(row []driver.Value) store.Parcel {
	return store.Parcel{
		Kind: text(row[0]), ID: text(row[1]), Group: text(row[2]), Owner: text(row[3]), Contents: blob(row[4]), Epoch: whole(row[5]),
		CreatedAt: when(row[6]), DueAt: when(row[7]), ExpiresAt: when(row[8]), Attempts: int(whole(row[9])), Version: whole(row[10]),
	}
}

func (t *tx) InsertParcel(_ context.Context, p store.Parcel) error {
	if err := t.grows(); err != nil {
		return err
	}
	_, err := t.exec("INSERT INTO parcels (tenant_id, "+parcelColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		p.Kind, p.ID, p.Group, p.Owner, orNullBytes(p.Contents), p.Epoch, int64(p.CreatedAt), orNull(p.DueAt), int64(p.ExpiresAt),
		int64(p.Attempts), p.Version)
	return err
}

func (t *tx) Parcel(ctx context.Context, kind, id string) (p store.Parcel, err error) {
	err = t.one(ctx, "SELECT "+parcelColumns+" FROM parcels WHERE tenant_id = ? AND kind = ? AND id = ?", []driver.Value{kind, id},
		func(row []driver.Value) error { p = scanParcel(row); return nil })
	return p, err
}

func (t *tx) ReplaceParcel(ctx context.Context, p store.Parcel) error {
	if err := t.grows(); err != nil {
		return err
	}
	err := t.changeOne(store.ErrConflict, `
		UPDATE parcels SET owner = ?4, contents = ?5, epoch = ?6, due_at = ?7, expires_at = ?8, attempts = ?9, version = ?10
		WHERE tenant_id = ?1 AND kind = ?2 AND id = ?3 AND version = ?10 - 1`,
		p.Kind, p.ID, p.Owner, orNullBytes(p.Contents), p.Epoch, orNull(p.DueAt), int64(p.ExpiresAt), int64(p.Attempts), p.Version)
	if errors.Is(err, store.ErrConflict) {
		if _, missing := t.Parcel(ctx, p.Kind, p.ID); missing != nil {
			return missing
		}
	}
	return err
}

func (t *tx) DeleteParcel(_ context.Context, kind, id string) error {
	return t.changeOne(store.ErrNotFound, "DELETE FROM parcels WHERE tenant_id = ? AND kind = ? AND id = ?", kind, id)
}

// parcelSource picks the index of a list.
func parcelSource(f store.ParcelFilter) (from string, args []driver.Value, err error) {
	switch {
	case f.Kind == "" && f.Group != "":
		return "", nil, errors.New("sqlite: parcels of a group are of one kind")
	case f.Kind == "":
		return "parcels INDEXED BY parcels_by_kind WHERE tenant_id = ?", nil, nil
	case f.Group == "":
		return "parcels INDEXED BY parcels_by_kind WHERE tenant_id = ? AND kind = ?", []driver.Value{f.Kind}, nil
	}
	return "parcels INDEXED BY parcels_by_group WHERE tenant_id = ? AND kind = ? AND group_name = ? AND group_name <> ''", []driver.Value{f.Kind, f.Group}, nil
}

func (t *tx) Parcels(ctx context.Context, f store.ParcelFilter, p store.Page) ([]store.Parcel, error) {
	from, args, err := parcelSource(f)
	if err != nil {
		return nil, err
	}
	end, more := behindKinds(f.Kind, p.After)
	args = append(append(args, more...), int64(p.Limit), int64(p.Offset))
	var list []store.Parcel
	err = t.query(ctx, "SELECT "+parcelColumns+" FROM "+from+end+" LIMIT ? OFFSET ?", args, func(row []driver.Value) (bool, error) {
		list = append(list, scanParcel(row))
		return true, nil
	})
	return list, err
}

func (t *tx) CountParcels(ctx context.Context, f store.ParcelFilter) (int64, error) {
	from, args, err := parcelSource(f)
	if err != nil {
		return 0, err
	}
	if f.Most > 0 {
		return t.number(ctx, "SELECT count(*) FROM (SELECT 1 FROM "+from+" LIMIT ?)", append(args, f.Most)...)
	}
	return t.number(ctx, "SELECT count(*) FROM "+from, args...)
}

// behindKinds orders a list of one kind newest first, or one of all kinds kind
// by kind, and narrows it to what follows a position.
func behindKinds(kind string, after *store.Position) (end string, args []driver.Value) {
	if kind != "" {
		end, args = behind(after)
		return end + " ORDER BY created_at DESC, id DESC", args
	}
	if after != nil {
		end, args = " AND (kind, created_at, id) < (?, ?, ?)", []driver.Value{after.Kind, int64(after.CreatedAt), after.ID}
	}
	return end + " ORDER BY kind DESC, created_at DESC, id DESC", args
}
