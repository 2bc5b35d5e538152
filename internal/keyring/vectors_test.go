package keyring_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// update writes the vectors anew. That is right only together with a new
// version of a format: what older releases wrote must open for ever.
var update = flag.Bool("update", false, "write testdata/vectors.json anew")

const vectorsFile = "testdata/vectors.json"

// vectors are what an installation with fixed test keys has in its store.
type vectors struct {
	Warning  string          `json:"warning"`
	TestKEK  json.RawMessage `json:"test_kek"`
	KEK      string          `json:"kek"`
	Now      time.Time       `json:"now"`
	Check    hexBytes        `json:"check"`
	Tenant   string          `json:"tenant"`
	Keysets  []keysetVector  `json:"keysets"`
	Epoch    int64           `json:"epoch"`
	EpochKey hexBytes        `json:"epoch_key"`

	Values     []valueVector     `json:"values"`
	ShortLived []valueVector     `json:"short_lived"`
	Hashes     []hashVector      `json:"hashes"`
	PublicKey  string            `json:"public_key"`
	Signatures []signatureVector `json:"signatures"`

	// What must not open, as record "r", field "f".
	Malformed           map[string]hexBytes `json:"malformed"`
	MalformedShortLived map[string]hexBytes `json:"malformed_short_lived"`
}

type keysetVector struct {
	Purpose string   `json:"purpose"`
	Wrapped hexBytes `json:"wrapped"`
}

type valueVector struct {
	Record    string   `json:"record"`
	Field     string   `json:"field"`
	Plaintext string   `json:"plaintext"`
	Sealed    hexBytes `json:"sealed"`
}

type hashVector struct {
	Function string   `json:"function"`
	Kind     string   `json:"kind,omitempty"`
	Value    string   `json:"value"`
	Hash     hexBytes `json:"hash"`
}

type signatureVector struct {
	Message   string   `json:"message"`
	Signature hexBytes `json:"signature"`
}

// hexBytes are bytes that are written in hexadecimal.
type hexBytes []byte

func (b hexBytes) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(b)), nil }

func (b *hexBytes) UnmarshalText(text []byte) (err error) {
	*b, err = hex.DecodeString(string(text))
	return err
}

// taken is the fingerprint of a value that is written at once.
func taken(keys *keyring.Keys, of keyring.Fingerprinted, value string) []byte {
	sum, _ := keys.Fingerprint(of, func(w io.Writer) error { // it never fails
		_, err := io.WriteString(w, value)
		return err
	})
	return sum
}

// fingerprint is that of data that is a string and is its own value.
func fingerprint(keys *keyring.Keys, kind, value string) []byte {
	return taken(keys, keyring.Fingerprinted{Type: kind, JSONType: "string", Expression: []byte("ED;")}, value)
}

// hash computes what a vector of hashes names.
func hash(keys *keyring.Keys, v hashVector) []byte {
	switch v.Function {
	case "fingerprint":
		return fingerprint(keys, v.Kind, v.Value)
	case "index":
		return keys.IndexTerm(v.Kind, v.Value)
	default:
		return keys.HashKey(secret.NewText(v.Value))
	}
}

func TestTodaysCodeOpensWhatWasStored(t *testing.T) {
	if *update {
		writeVectors(t)
	}
	v, w := readVectors(t)
	keys := w.keys(v.Tenant)
	for _, value := range v.Values {
		if got, err := keys.Open(value.Record, value.Field, value.Sealed); err != nil || string(got) != value.Plaintext {
			t.Errorf("Open(%q, %q) = %q, %v, want %q", value.Record, value.Field, got, err, value.Plaintext)
		}
	}
	for _, value := range v.ShortLived {
		got, err := w.ring.OpenShortLived(t.Context(), v.Tenant, 0, value.Record, value.Field, value.Sealed)
		if err != nil || string(got) != value.Plaintext {
			t.Errorf("OpenShortLived(%q, %q) = %q, %v, want %q", value.Record, value.Field, got, err, value.Plaintext)
		}
	}
	for _, h := range v.Hashes {
		if got := hash(keys, h); !bytes.Equal(got, h.Hash) {
			t.Errorf("%s(%q, %q) = %x, want %x", h.Function, h.Kind, h.Value, got, h.Hash)
		}
	}
	verifier, err := keyring.ParseVerifier([]byte(v.PublicKey))
	if err != nil {
		t.Fatalf("ParseVerifier = %v", err)
	}
	for _, s := range v.Signatures {
		if err := verifier.Verify(s.Signature, []byte(s.Message)); err != nil {
			t.Errorf("Verify = %v", err)
		}
		if got, err := keys.Sign([]byte(s.Message)); err != nil || !bytes.Equal(got, s.Signature) {
			t.Errorf("Sign = %x, %v, want %x", got, err, s.Signature)
		}
	}
	if len(v.Values) == 0 || len(v.ShortLived) == 0 || len(v.Hashes) == 0 || len(v.Signatures) == 0 {
		t.Error("a kind of vector is missing")
	}
}

func TestTodaysCodeOpensNothingMalformed(t *testing.T) {
	v, w := readVectors(t)
	keys := w.keys(v.Tenant)
	for name, sealed := range v.Malformed {
		if got, err := keys.Open("r", "f", sealed); !errors.Is(err, keyring.ErrDamaged) || got != nil {
			t.Errorf("%s: Open = %q, %v, want ErrDamaged", name, got, err)
		}
	}
	for name, sealed := range v.MalformedShortLived {
		got, err := w.ring.OpenShortLived(t.Context(), v.Tenant, 0, "r", "f", sealed)
		if !errors.Is(err, keyring.ErrDamaged) && !errors.Is(err, keyring.ErrGone) || got != nil {
			t.Errorf("%s: OpenShortLived = %q, %v, want ErrDamaged or ErrGone", name, got, err)
		}
	}
	if len(v.Malformed) < 10 || len(v.MalformedShortLived) < 10 {
		t.Error("malformed vectors are missing")
	}
}

// readVectors opens an installation that holds what the vectors say.
func readVectors(t testing.TB) (vectors, *world) {
	t.Helper()
	text, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	w := newBlankWorld(t)
	if w.local, err = localkms.FromText(secret.NewText(string(v.TestKEK))); err != nil {
		t.Fatalf("FromText = %v", err)
	}
	w.kms.KMS = w.local
	w.clock.Advance(v.Now.Sub(w.clock.Now()))
	if err := w.store.AllTenants().PutSetting(t.Context(), checkSetting, v.Check); err != nil {
		t.Fatal(err)
	}
	w.update(v.Tenant, func(tx store.Tx) error {
		for _, set := range v.Keysets {
			if err := tx.PutKeyset(t.Context(), store.Keyset{Purpose: set.Purpose, Wrapped: set.Wrapped, KEK: v.KEK, Version: 1}); err != nil {
				return err
			}
		}
		return tx.InsertTenant(t.Context(), store.Tenant{ID: v.Tenant})
	})
	if _, err := w.store.EpochKeys().AddEpochKey(t.Context(), v.Tenant, v.Epoch, v.EpochKey); err != nil {
		t.Fatal(err)
	}
	w.ring = w.open(keyring.Options{})
	return v, w
}

// writeVectors makes vectors with new test keys.
func writeVectors(t *testing.T) {
	t.Helper()
	w := newBlankWorld(t)
	path := filepath.Join(t.TempDir(), "kek.json")
	if _, err := localkms.Generate(path); err != nil {
		t.Fatal(err)
	}
	local, err := localkms.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	w.local, w.kms.KMS = local, local
	w.ring = w.open(keyring.Options{})
	tenant := w.tenant()
	keys := w.keys(tenant)
	v := vectors{
		Warning: "Test keys. They protect nothing and must never be used for anything but these tests.",
		KEK:     local.Primary(), Now: w.clock.Now(), Tenant: tenant, PublicKey: string(keys.Verifier().PEM()),
	}
	if v.TestKEK, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	if v.Check, err = w.store.AllTenants().Setting(t.Context(), checkSetting); err != nil {
		t.Fatal(err)
	}
	for _, set := range w.keysets(tenant) {
		v.Keysets = append(v.Keysets, keysetVector{set.Purpose, set.Wrapped})
	}
	for _, value := range []valueVector{
		{Record: "r", Field: "f", Plaintext: "a value"},
		{Record: "r", Field: "f", Plaintext: ""},
		{Record: "4a1f8c9e-58a3-4b6c-9d0e-0123456789ab", Field: keyring.FieldTokenData, Plaintext: `{"number":"4242424242424242"}`},
		{Record: "an id of a tenant's own: é", Field: keyring.FieldTokenDetails, Plaintext: "{}"},
	} {
		value.Sealed = mustSeal(t, keys, value.Record, value.Field, value.Plaintext)
		v.Values = append(v.Values, value)
		sealed, err := w.ring.SealShortLived(t.Context(), tenant, value.Record, value.Field, []byte(value.Plaintext))
		if err != nil {
			t.Fatal(err)
		}
		value.Sealed = sealed
		v.ShortLived = append(v.ShortLived, value)
	}
	if v.Epoch, err = keyring.SealedEpoch(v.ShortLived[0].Sealed); err != nil {
		t.Fatal(err)
	}
	if v.EpochKey, err = w.store.EpochKeys().EpochKey(t.Context(), tenant, v.Epoch); err != nil {
		t.Fatal(err)
	}
	for _, h := range []hashVector{
		{Function: "fingerprint", Kind: "card", Value: "4242424242424242"},
		{Function: "fingerprint", Kind: "token", Value: ""},
		{Function: "index", Kind: "data", Value: "a folded value"},
		{Function: "index", Kind: "metadata.customer", Value: ""},
		{Function: "key", Value: "key_test_pvt_11111111111111111111111111111111111111111111"},
	} {
		h.Hash = hash(keys, h)
		v.Hashes = append(v.Hashes, h)
	}
	for _, message := range []string{"", "root of batch 7"} {
		signature, err := keys.Sign([]byte(message))
		if err != nil {
			t.Fatal(err)
		}
		v.Signatures = append(v.Signatures, signatureVector{message, signature})
	}
	v.Malformed = malformed(v.Values[0].Sealed, 1)
	v.Malformed["a short-lived value"] = hexBytes(v.ShortLived[0].Sealed)
	v.MalformedShortLived = malformed(v.ShortLived[0].Sealed, 9)
	v.MalformedShortLived["a lasting value"] = hexBytes(v.Values[0].Sealed)
	v.MalformedShortLived["another epoch"] = hexBytes(flip(v.ShortLived[0].Sealed, 8))
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(vectorsFile, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// malformed spoils a sealed value in the ways in which rows go bad. Tink's
// prefix begins at tink.
func malformed(sealed []byte, tink int) map[string]hexBytes {
	return map[string]hexBytes{
		"empty":                {},
		"the format byte":      sealed[:1],
		"cut in Tink's prefix": sealed[:tink+3],
		"cut in the nonce":     sealed[:tink+5+12],
		"the last byte cut":    sealed[:len(sealed)-1],
		"a byte too many":      append(bytes.Clone(sealed), 0),
		"another version":      flip(sealed, 0),
		"no version":           sealed[1:],
		"another Tink prefix":  flip(sealed, tink),
		"another key id":       flip(sealed, tink+4),
		"another nonce":        flip(sealed, tink+5),
		"another tag":          flip(sealed, len(sealed)-1),
	}
}

func flip(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 2
	return b
}
