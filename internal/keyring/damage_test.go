package keyring_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/prf"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"
	"github.com/tink-crypto/tink-go/v2/signature"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

func TestEveryFlippedBitIsDetected(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	keys := w.keys(tenant)
	sealed := mustSeal(t, keys, "r", "f", "4242424242424242")
	short, err := w.ring.SealShortLived(t.Context(), tenant, "r", "f", []byte("123"))
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		bit := random.IntN(len(sealed) * 8)
		changed := bytes.Clone(sealed)
		changed[bit/8] ^= 1 << (bit % 8)
		if _, err := keys.Open("r", "f", changed); !errors.Is(err, keyring.ErrDamaged) {
			t.Errorf("bit %d of a value: Open = %v, want ErrDamaged", bit, err)
		}
		bit = random.IntN(len(short) * 8)
		changed = bytes.Clone(short)
		changed[bit/8] ^= 1 << (bit % 8)
		_, err := w.ring.OpenShortLived(t.Context(), tenant, 0, "r", "f", changed)
		if !errors.Is(err, keyring.ErrDamaged) && !errors.Is(err, keyring.ErrGone) {
			t.Errorf("bit %d of a short-lived value: Open = %v, want ErrDamaged or ErrGone", bit, err)
		}
	}
}

func TestEverySwappedRowIsDetected(t *testing.T) {
	w := newWorld(t)
	type place struct {
		keys          *keyring.Keys
		record, field string
		sealed        []byte
	}
	var places []place
	for range 3 {
		keys := w.keys(w.tenant())
		for record := range 8 {
			for _, field := range []string{keyring.FieldTokenData, keyring.FieldTokenDetails, keyring.FieldApplicationRules} {
				p := place{keys: keys, record: fmt.Sprint(record), field: field}
				p.sealed = mustSeal(t, keys, p.record, p.field, "the same value everywhere")
				places = append(places, p)
			}
		}
	}
	for i, from := range places {
		for j, to := range places {
			_, err := to.keys.Open(to.record, to.field, from.sealed)
			if i == j && err != nil || i != j && !errors.Is(err, keyring.ErrDamaged) {
				t.Errorf("value of place %d at %d: Open = %v", i, j, err)
			}
		}
	}
}

func TestEveryEditedKeyIDIsDetected(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	if err := w.ring.RotateTenant(t.Context(), tenant, nil); err != nil { // so that there are two keys
		t.Fatal(err)
	}
	keys := w.keys(tenant)
	sealed := mustSeal(t, keys, "r", "f", "v")
	ids := []uint32{0, 1, keys.Primary() ^ 1, keys.Primary() + 1}
	status := w.status(tenant)
	for _, key := range status.Data {
		if !key.Primary {
			ids = append(ids, key.ID)
		}
	}
	if len(ids) != 5 {
		t.Fatalf("the tenant has %d keys, want two", len(status.Data))
	}
	for _, id := range ids {
		changed := bytes.Clone(sealed)
		binary.BigEndian.PutUint32(changed[2:], id)
		if got, err := keyring.KeyID(changed); err != nil || got != id {
			t.Fatalf("KeyID = %d, %v, want %d", got, err, id)
		}
		if _, err := keys.Open("r", "f", changed); !errors.Is(err, keyring.ErrDamaged) {
			t.Errorf("key id %d: Open = %v, want ErrDamaged", id, err)
		}
	}
}

func TestDamagedKeysetsServeNothing(t *testing.T) {
	w := newWorld(t)
	one, two := w.tenant(), w.tenant()
	first, second := w.keysets(one), w.keysets(two)
	at := func(sets []store.Keyset, purpose string) store.Keyset {
		for _, set := range sets {
			if set.Purpose == purpose {
				return set
			}
		}
		t.Fatalf("no keyset for %s", purpose)
		return store.Keyset{}
	}
	random := rand.New(rand.NewPCG(5, 6))
	type change struct {
		name string
		set  store.Keyset
	}
	var changes []change
	for _, set := range first {
		set.Wrapped = bytes.Clone(set.Wrapped)
		bit := random.IntN(len(set.Wrapped) * 8)
		set.Wrapped[bit/8] ^= 1 << (bit % 8)
		changes = append(changes, change{fmt.Sprintf("bit %d of %s", bit, set.Purpose), set})

		other := at(second, set.Purpose)
		changes = append(changes, change{"the other tenant's " + set.Purpose, other})

		edited := at(first, set.Purpose)
		edited.KEK = "local-00000000"
		changes = append(changes, change{"another KEK for " + set.Purpose, edited})

		cut := at(first, set.Purpose)
		cut.Wrapped = []byte{}
		changes = append(changes, change{"no bytes for " + set.Purpose, cut})
	}
	swapped := at(first, "index")
	swapped.Purpose = "fingerprint"
	changes = append(changes, change{"index as fingerprint", swapped})

	for _, c := range changes {
		w.watch().from(nil)
		good := at(w.keysets(one), c.set.Purpose)
		put := func(set store.Keyset) {
			good.Version++
			set.Version = good.Version
			w.update(one, func(tx store.Tx) error { return tx.PutKeyset(t.Context(), set) })
		}
		put(c.set)
		w.ring.Forget(one)
		keys, err := w.ring.For(t.Context(), one)
		if keys != nil || !errors.Is(err, keyring.ErrUnwrap) && !errors.Is(err, keyring.ErrDamaged) {
			t.Errorf("%s: For = %v, want ErrUnwrap or ErrDamaged", c.name, err)
		}
		put(good)
		if _, err := w.ring.For(t.Context(), one); err != nil {
			t.Fatalf("%s put right again: For = %v", c.name, err)
		}
	}
}

func TestKeysOfTheWrongKindOrAbsentServeNothing(t *testing.T) {
	w := newWorld(t)
	for _, purpose := range []string{"data", "fingerprint", "index", "keyhash", "audit"} {
		tenant := w.blankTenant(func(set store.Keyset) bool { return set.Purpose != purpose })
		if keys, err := w.ring.For(t.Context(), tenant); err == nil || keys != nil {
			t.Errorf("without %s: For = %v, want an error", purpose, err)
		}
	}
}

func TestKeysetsOfTheWrongKindServeNothing(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	good := map[string]store.Keyset{}
	for _, set := range w.keysets(tenant) {
		good[set.Purpose] = set
	}
	for name, test := range map[string]struct {
		purpose string
		kind    *tinkpb.KeyTemplate
	}{
		"a PRF for data":                {"data", prf.HMACSHA256PRFKeyTemplate()},
		"an AEAD for fingerprints":      {"fingerprint", aead.AES256GCMKeyTemplate()},
		"another signature for audit":   {"audit", signature.ECDSAP256KeyTemplate()},
		"a key without a public half":   {"audit", aead.AES256GCMKeyTemplate()},
		"no keyset at all in the bytes": {"index", nil},
	} {
		set := store.Keyset{Purpose: test.purpose}
		var err error
		if test.kind == nil {
			var wrapped []byte
			wrapped, set.KEK, err = w.local.Wrap(t.Context(), []byte{0xff}, keyring.SetBinding(tenant, test.purpose))
			set.Wrapped = append([]byte{0x31}, wrapped...)
		} else {
			set, err = keyring.WrapSet(t.Context(), w.ring, tenant, test.purpose, test.kind)
		}
		if err != nil {
			t.Fatal(err)
		}
		put := func(set store.Keyset) {
			for _, now := range w.keysets(tenant) {
				if now.Purpose == set.Purpose {
					set.Version = now.Version + 1
				}
			}
			w.update(tenant, func(tx store.Tx) error { return tx.PutKeyset(t.Context(), set) })
			w.ring.Forget(tenant)
		}
		put(set)
		if keys, err := w.ring.For(t.Context(), tenant); err == nil || keys != nil {
			t.Errorf("%s: For = %v, want an error", name, err)
		}
		put(good[test.purpose])
	}
	w.keys(tenant)
}

func TestKeyIDAndSealedEpochReadOnlyWhatIsSealed(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	sealed := mustSeal(t, w.keys(tenant), "r", "f", "v")
	short, err := w.ring.SealShortLived(t.Context(), tenant, "r", "f", []byte("v"))
	if err != nil {
		t.Fatal(err)
	}
	if epoch, err := keyring.SealedEpoch(short); err != nil || epoch != start.Unix()/60 {
		t.Errorf("SealedEpoch = %d, %v, want %d", epoch, err, start.Unix()/60)
	}
	if _, err := keyring.KeyID(short); err != nil {
		t.Errorf("KeyID of a short-lived value = %v", err)
	}
	for name, value := range map[string][]byte{
		"nothing":              nil,
		"the format alone":     sealed[:1],
		"cut in the id":        sealed[:5],
		"another format":       append([]byte{0x12}, sealed[1:]...),
		"not Tink's":           append([]byte{0x11, 0}, sealed[2:]...),
		"a cut short-lived":    short[:13],
		"the check's format":   append([]byte{0x51}, sealed[1:]...),
		"a keyset, not opened": append([]byte{0x31}, sealed[1:]...),
	} {
		if id, err := keyring.KeyID(value); err == nil {
			t.Errorf("%s: KeyID = %d, want an error", name, id)
		}
	}
	for name, value := range map[string][]byte{"nothing": nil, "data": sealed, "cut": short[:8]} {
		if epoch, err := keyring.SealedEpoch(value); err == nil {
			t.Errorf("%s: SealedEpoch = %d, want an error", name, epoch)
		}
	}
}
