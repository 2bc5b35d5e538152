package keyring_test

import (
	"bytes"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
)

func FuzzNothingOpensButWhatWasSealed(f *testing.F) {
	v, w := readVectors(f)
	keys := w.keys(v.Tenant)
	known := map[string]bool{}
	for _, value := range v.Values {
		known[string(value.Sealed)] = true
		f.Add([]byte(value.Sealed))
	}
	for _, value := range v.ShortLived {
		known[string(value.Sealed)] = true
		f.Add([]byte(value.Sealed))
	}
	for _, vectors := range []map[string]hexBytes{v.Malformed, v.MalformedShortLived} {
		for _, sealed := range vectors {
			f.Add([]byte(sealed))
		}
	}
	f.Fuzz(func(t *testing.T, sealed []byte) {
		before := bytes.Clone(sealed)
		_, errID := keyring.KeyID(sealed)
		_, errEpoch := keyring.SealedEpoch(sealed)
		_, errOpen := keys.Open("r", "f", sealed)
		_, errShort := w.ring.OpenShortLived(t.Context(), v.Tenant, 0, "r", "f", sealed)
		if (errOpen == nil || errShort == nil) && !known[string(sealed)] {
			t.Errorf("%x opens", sealed)
		}
		if errOpen == nil && errID != nil || errShort == nil && errEpoch != nil {
			t.Errorf("%x opens and names no key: %v, %v", sealed, errID, errEpoch)
		}
		if !bytes.Equal(before, sealed) {
			t.Error("opening changed the sealed bytes")
		}
	})
}
