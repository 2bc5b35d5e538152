package definition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

const (
	// maxVersions is how many versions of its code a definition keeps.
	maxVersions = 20
	// versionLife is longer than any definition lives: versions go with it.
	versionLife = 100 * 365 * 24 * time.Hour
)

var errNoVersion = fault.New(fault.NotFound, "no such version")

// Version is the code of a definition as it once was.
type Version struct {
	Number    int64             `json:"number"` // of the definition at that time
	Code      map[string]string `json:"code"`   // by the name of each piece
	By        string            `json:"by"`     // the actor that wrote it
	ActorName string            `json:"actor_name"`
	At        time.Time         `json:"at"`
}

// Versioned has the service keep the last versions of the code in definitions.
// code returns the pieces of code in contents, by name.
func (s *Service[T]) Versioned(code func(contents jsonvalue.Value) map[string]string) *Service[T] {
	s.code = code
	return s
}

// keepVersion keeps the code that a row has from now on, in the transaction that
// writes the row. before is the version that it replaces, which is kept too when
// none is yet; nil for a new definition.
func (s *Service[T]) keepVersion(ctx context.Context, tx store.Tx, c access.Caller, keys *keyring.Keys, r store.Definition, contents jsonvalue.Value, before *Version) error {
	if s.code == nil {
		return nil
	}
	v := Version{Number: r.Version, Code: s.code(contents), By: c.Application(), ActorName: c.ActorName(), At: s.now().UTC()}
	if before != nil && maps.Equal(before.Code, v.Code) {
		return nil
	}
	kept, err := tx.Parcels(ctx, store.ParcelFilter{Kind: store.ParcelVersion, Group: r.ID}, store.Page{Limit: 2 * maxVersions})
	if err != nil {
		return fmt.Errorf("list versions: %w", err)
	}
	fresh := []Version{v}
	if len(kept) == 0 && before != nil {
		fresh = append(fresh, *before)
	}
	for _, v := range fresh {
		p, err := sealVersion(keys, r.ID, v)
		if err != nil {
			return err
		}
		if err := tx.InsertParcel(ctx, p); err != nil {
			return fmt.Errorf("keep a version: %w", err)
		}
	}
	for _, old := range kept[min(len(kept), maxVersions-1):] {
		if err := tx.DeleteParcel(ctx, store.ParcelVersion, old.ID); err != nil {
			return fmt.Errorf("drop a version: %w", err)
		}
	}
	return nil
}

// versionOf is the version that an opened definition is.
func (s *Service[T]) versionOf(d Definition) *Version {
	if s.code == nil {
		return nil
	}
	v := &Version{Number: d.Version, Code: s.code(d.Contents), By: d.CreatedBy, At: d.CreatedAt.UTC()}
	if !d.ModifiedAt.IsZero() {
		v.By, v.At = d.ModifiedBy, d.ModifiedAt.UTC()
	}
	return v
}

// dropVersions removes the versions of a definition that goes.
func (s *Service[T]) dropVersions(ctx context.Context, tx store.Tx, id string) error {
	if s.code == nil {
		return nil
	}
	kept, err := tx.Parcels(ctx, store.ParcelFilter{Kind: store.ParcelVersion, Group: id}, store.Page{Limit: 2 * maxVersions})
	if err != nil {
		return fmt.Errorf("list versions: %w", err)
	}
	for _, p := range kept {
		if err := tx.DeleteParcel(ctx, store.ParcelVersion, p.ID); err != nil {
			return fmt.Errorf("drop a version: %w", err)
		}
	}
	return nil
}

func sealVersion(keys *keyring.Keys, id string, v Version) (p store.Parcel, err error) {
	p = store.Parcel{
		Kind: store.ParcelVersion, ID: id + "." + strconv.FormatInt(v.Number, 10), Group: id, Owner: v.By,
		CreatedAt: store.At(v.At), ExpiresAt: store.At(v.At.Add(versionLife)), Version: 1,
	}
	plain, err := json.Marshal(v)
	if err != nil {
		return p, errors.New("encode a version")
	}
	defer clear(plain)
	p.Contents, err = keys.Seal(p.Record(), keyring.FieldParcel, plain)
	return p, err
}

func openVersion(keys *keyring.Keys, p store.Parcel) (v Version, err error) {
	plain, err := keys.Open(p.Record(), keyring.FieldParcel, p.Contents)
	if err != nil {
		return v, fmt.Errorf("open a version: %w", err)
	}
	defer clear(plain)
	if json.Unmarshal(plain, &v) != nil {
		return v, errors.New("decode a version")
	}
	return v, nil
}

// Versions returns the last versions of the code of a definition, newest first.
// The first is the code as it is now. A definition that was not changed since an
// older release has one.
func (s *Service[T]) Versions(ctx context.Context, c access.Caller, id string) (list []Version, err error) {
	keys, err := s.keysFor(ctx, c, s.kind.Read)
	if err != nil {
		return nil, err
	}
	var rows []store.Parcel
	var r store.Definition
	err = s.store.Update(ctx, c.Tenant(), func(tx store.Tx) (err error) {
		if r, err = s.row(ctx, tx, id); err != nil {
			return err
		}
		if rows, err = tx.Parcels(ctx, store.ParcelFilter{Kind: store.ParcelVersion, Group: id}, store.Page{Limit: 2 * maxVersions}); err != nil {
			return fmt.Errorf("list versions: %w", err)
		}
		return tx.AppendLog(ctx, audit.EntryPart(c, s.now(), s.kind.Entity, id, "versions", audit.Read))
	})
	if err != nil {
		return nil, err
	}
	for _, p := range rows {
		v, err := openVersion(keys, p)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	if len(list) == 0 {
		d, err := s.open(keys, r)
		if err != nil {
			return nil, err
		}
		list = append(list, *s.versionOf(d))
	}
	slices.SortFunc(list, func(a, b Version) int { return int(b.Number - a.Number) })
	return list, nil
}

// Version returns the code of a version. It asks for no permission and logs
// nothing: it is for whoever restores it.
func (s *Service[T]) Version(ctx context.Context, tenant, id, number string) (v Version, err error) {
	keys, err := s.keysOf(ctx, tenant)
	if err != nil {
		return v, err
	}
	if n, err := strconv.ParseInt(number, 10, 64); err != nil || strconv.FormatInt(n, 10) != number {
		return v, errNoVersion
	}
	var p store.Parcel
	err = s.store.View(ctx, tenant, func(tx store.Tx) (err error) {
		if _, err := s.row(ctx, tx, id); err != nil {
			return err
		}
		p, err = tx.Parcel(ctx, store.ParcelVersion, id+"."+number)
		if errors.Is(err, store.ErrNotFound) {
			return errNoVersion
		}
		return err
	})
	if err != nil {
		return v, err
	}
	return openVersion(keys, p)
}
