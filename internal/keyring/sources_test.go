package keyring_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

var (
	parcelKinds     = []string{store.ParcelAnswer, store.ParcelJob, store.ParcelDelivery, store.ParcelResult, store.ParcelRun}
	definitionKinds = []string{store.DefinitionReactor, store.DefinitionProxy}
)

// furnish gives a tenant n sessions, some of them expired, and n parcels and
// definitions of each kind, all with the same ids and of one instant: some
// parcels are empty, and one of each kind is under an epoch key. It returns how
// many values it sealed with the data key.
func (w *world) furnish(tenant string, n int) (values int) {
	w.t.Helper()
	ctx, keys := w.t.Context(), w.keys(tenant)
	epochs := make(map[string]store.Parcel)
	for _, kind := range parcelKinds {
		p := store.Parcel{Kind: kind, ID: "in an epoch", Version: 1}
		var err error
		if p.Contents, err = w.ring.SealShortLived(ctx, tenant, p.Record(), keyring.FieldParcel, []byte("contents of "+p.Record())); err != nil {
			w.t.Fatal(err)
		}
		if p.Epoch, err = keyring.SealedEpoch(p.Contents); err != nil {
			w.t.Fatal(err)
		}
		epochs[kind] = p
	}
	w.update(tenant, func(tx store.Tx) error {
		values = 0
		for i := range n {
			s := store.Session{ID: fmt.Sprintf("session-%03d", i), CreatedAt: store.At(start), Version: 1}
			s.KeyHash, s.NonceHash = []byte(s.ID), []byte(s.ID)
			s.Grant = mustSeal(w.t, keys, s.ID, keyring.FieldSessionGrant, "grant of "+s.ID)
			if i%3 > 0 {
				s.ExpiresAt = store.At(start.Add(time.Duration(i%3*2-3) * time.Hour)) // past and to come; else no time at all
			}
			values++
			if err := tx.InsertSession(ctx, s); err != nil {
				return err
			}
		}
		for _, kind := range parcelKinds {
			for i := range n {
				p := store.Parcel{Kind: kind, ID: fmt.Sprintf("parcel-%03d", i), CreatedAt: store.At(start), Version: 1}
				if i%4 != 3 {
					p.Contents = mustSeal(w.t, keys, p.Record(), keyring.FieldParcel, "contents of "+p.Record())
					values++
				}
				if err := tx.InsertParcel(ctx, p); err != nil {
					return err
				}
			}
			if err := tx.InsertParcel(ctx, epochs[kind]); err != nil {
				return err
			}
		}
		for _, kind := range definitionKinds {
			for i := range n {
				d := store.Definition{Kind: kind, ID: fmt.Sprintf("definition-%03d", i), CreatedAt: store.At(start), Version: 1}
				d.Contents = mustSeal(w.t, keys, d.Record(), keyring.FieldDefinition, "contents of "+d.Record())
				values++
				if err := tx.InsertDefinition(ctx, d); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return values
}

// furniture checks that everything that furnish sealed opens, and returns how
// many values each key seals.
func (w *world) furniture(tenant string) map[uint32]int {
	w.t.Helper()
	ctx, keys := w.t.Context(), w.keys(tenant)
	used := make(map[uint32]int)
	check := func(record, field, want string, sealed []byte) {
		if got, err := keys.Open(record, field, sealed); err != nil || string(got) != want {
			w.t.Errorf("Open(%s, %s) = %q, %v, want %q", record, field, got, err, want)
		}
		id, _ := keyring.KeyID(sealed) // Open has read it
		used[id]++
	}
	var short []store.Parcel
	w.update(tenant, func(tx store.Tx) error {
		sessions, err := tx.Sessions(ctx, store.SessionFilter{Now: math.MinInt64}, store.Page{Limit: 1000})
		if err != nil {
			return err
		}
		for _, s := range sessions {
			check(s.ID, keyring.FieldSessionGrant, "grant of "+s.ID, s.Grant)
		}
		definitions, err := tx.Definitions(ctx, store.DefinitionFilter{}, store.Page{Limit: 1000})
		if err != nil {
			return err
		}
		for _, d := range definitions {
			check(d.Record(), keyring.FieldDefinition, "contents of "+d.Record(), d.Contents)
		}
		parcels, err := tx.Parcels(ctx, store.ParcelFilter{}, store.Page{Limit: 1000})
		for _, p := range parcels {
			switch {
			case p.Epoch != 0:
				short = append(short, p)
			case p.Contents != nil:
				check(p.Record(), keyring.FieldParcel, "contents of "+p.Record(), p.Contents)
			}
		}
		return err
	})
	for _, p := range short {
		got, err := w.ring.OpenShortLived(ctx, tenant, 0, p.Record(), keyring.FieldParcel, p.Contents)
		if err != nil || string(got) != "contents of "+p.Record() || p.Version != 1 {
			w.t.Errorf("OpenShortLived(%s) of version %d = %q, %v, want it untouched", p.Record(), p.Version, got, err)
		}
	}
	if len(short) != len(parcelKinds) {
		w.t.Errorf("%d parcels are under epoch keys, want %d", len(short), len(parcelKinds))
	}
	return used
}

func TestRotateTenantSealsRowsOfEveryKindAnew(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	values := w.furnish(tenant, 30) // more than a batch of each
	old := w.keys(tenant).Primary()
	var last keyring.Rotation
	if err := w.ring.RotateTenant(t.Context(), tenant, func(at keyring.Rotation) { last = at }); err != nil {
		t.Fatalf("RotateTenant = %v", err)
	}
	if last.Seen != 30+5*31+2*30+1 || last.Resealed != int64(values) || last.Damaged != 0 { // and the tenant's row
		t.Errorf("rotation saw %d rows, sealed %d anew, found %d damaged, want 246, %d, 0", last.Seen, last.Resealed, last.Damaged, values)
	}
	key := w.keys(tenant).Primary()
	if used := w.furniture(tenant); len(used) != 1 || used[key] != values || key == old {
		t.Errorf("values by key: %v, want %d under %d, and not %d", used, values, key, old)
	}
	if err := w.ring.RetireTenant(t.Context(), tenant); err != nil {
		t.Fatalf("RetireTenant = %v", err)
	}
	w.ring = w.open(keyring.Options{})
	w.furniture(tenant)
}

// A value that is moved to another row does not open, be it one of the same id.
func TestARowOpensOnlyAsItsKind(t *testing.T) {
	w := newWorld(t)
	keys := w.keys(w.tenant())
	d := store.Definition{Kind: store.DefinitionProxy, ID: "1"}
	contents := mustSeal(t, keys, d.Record(), keyring.FieldDefinition, "a proxy")
	for _, other := range []store.Definition{{Kind: store.DefinitionReactor, ID: "1"}, {Kind: store.DefinitionProxy, ID: "2"}} {
		if _, err := keys.Open(other.Record(), keyring.FieldDefinition, contents); !errors.Is(err, keyring.ErrDamaged) {
			t.Errorf("Open as %s = %v, want ErrDamaged", other.Record(), err)
		}
	}
	p := store.Parcel{Kind: store.ParcelJob, ID: "1"}
	sealed := mustSeal(t, keys, p.Record(), keyring.FieldParcel, "a job")
	for _, other := range []store.Parcel{{Kind: store.ParcelResult, ID: "1"}, {Kind: store.ParcelJob, ID: "2"}, {ID: "1"}} {
		if _, err := keys.Open(other.Record(), keyring.FieldParcel, sealed); !errors.Is(err, keyring.ErrDamaged) {
			t.Errorf("Open as %s = %v, want ErrDamaged", other.Record(), err)
		}
	}
}

// An old key is kept as long as a single row of any kind needs it.
func TestASealedRowOfAnyKindKeepsItsKey(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	parcel := store.Parcel{Kind: store.ParcelJob, ID: "late", Version: 1}
	definition := store.Definition{Kind: store.DefinitionProxy, ID: "late", Version: 1}
	for name, test := range map[string]struct {
		record, field string
		put           func(tx store.Tx, sealed []byte) error
		get           func(tx store.Tx) ([]byte, error)
	}{
		"a session": {"late", keyring.FieldSessionGrant,
			func(tx store.Tx, sealed []byte) error {
				return tx.InsertSession(ctx, store.Session{ID: "late", KeyHash: []byte("k"), NonceHash: []byte("n"), Grant: sealed, Version: 1})
			},
			func(tx store.Tx) ([]byte, error) { s, err := tx.Session(ctx, "late"); return s.Grant, err }},
		"a parcel": {parcel.Record(), keyring.FieldParcel,
			func(tx store.Tx, sealed []byte) error {
				p := parcel
				p.Contents = sealed
				return tx.InsertParcel(ctx, p)
			},
			func(tx store.Tx) ([]byte, error) {
				p, err := tx.Parcel(ctx, parcel.Kind, parcel.ID)
				return p.Contents, err
			}},
		"a definition": {definition.Record(), keyring.FieldDefinition,
			func(tx store.Tx, sealed []byte) error {
				d := definition
				d.Contents = sealed
				return tx.InsertDefinition(ctx, d)
			},
			func(tx store.Tx) ([]byte, error) {
				d, err := tx.Definition(ctx, definition.Kind, definition.ID)
				return d.Contents, err
			}},
	} {
		tenant := w.tenant()
		late := mustSeal(t, w.keys(tenant), test.record, test.field, "a late value")
		rotate := func() {
			t.Helper()
			if err := w.ring.RotateTenant(ctx, tenant, nil); err != nil {
				t.Fatalf("%s: RotateTenant = %v", name, err)
			}
		}
		rotate()
		w.update(tenant, func(tx store.Tx) error { return test.put(tx, late) })
		if err := w.ring.RetireTenant(ctx, tenant); !errors.Is(err, keyring.ErrInUse) {
			t.Errorf("%s: RetireTenant = %v, want ErrInUse", name, err)
		}
		rotate()
		if err := w.ring.RetireTenant(ctx, tenant); err != nil {
			t.Errorf("%s: RetireTenant = %v", name, err)
		}
		var sealed []byte
		w.update(tenant, func(tx store.Tx) (err error) { sealed, err = test.get(tx); return err })
		if got, err := w.keys(tenant).Open(test.record, test.field, sealed); err != nil || string(got) != "a late value" {
			t.Errorf("%s: Open = %q, %v", name, got, err)
		}
	}
}
