package keyring_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

func TestAValueOpensOnlyWhereItWasSealed(t *testing.T) {
	w := newWorld(t)
	one, two := w.tenant(), w.tenant()
	sealed := mustSeal(t, w.keys(one), "record", "field", "4242424242424242")
	for name, test := range map[string]struct {
		tenant, record, field string
		want                  error
	}{
		"in its place":           {one, "record", "field", nil},
		"another tenant":         {two, "record", "field", keyring.ErrDamaged},
		"another record":         {one, "record2", "field", keyring.ErrDamaged},
		"another field":          {one, "record", "fiel", keyring.ErrDamaged},
		"record and field moved": {one, "recordf", "ield", keyring.ErrDamaged},
		"no record":              {one, "", "field", keyring.ErrDamaged},
		"no field":               {one, "record", "", keyring.ErrDamaged},
	} {
		got, err := w.keys(test.tenant).Open(test.record, test.field, sealed)
		if !errors.Is(err, test.want) || err == nil && string(got) != "4242424242424242" {
			t.Errorf("%s: Open = %q, %v, want %v", name, got, err, test.want)
		}
	}
}

func TestAFailureNamesTheFieldAndShowsNoIDs(t *testing.T) {
	w := newWorld(t)
	_, err := w.keys(w.tenant()).Open("4242424242424242", "token.data", []byte("secret bytes"))
	var failure *keyring.OpenError
	if !errors.As(err, &failure) || failure.Record != "4242424242424242" || failure.Field != "token.data" {
		t.Fatalf("Open = %#v, want an OpenError with record and field", err)
	}
	if text := fmt.Sprint(err); !strings.Contains(text, "token.data") || strings.Contains(text, "4242") || strings.Contains(text, "bytes") {
		t.Errorf("the error says %q, want the field alone", text)
	}
}

func TestEmptyAndLargeValuesComeBack(t *testing.T) {
	w := newWorld(t)
	keys := w.keys(w.tenant())
	for _, size := range []int{0, 1, 255, 5 << 20} {
		value := strings.Repeat("v", size)
		got, err := keys.Open("r", "f", mustSeal(t, keys, "r", "f", value))
		if err != nil || string(got) != value {
			t.Errorf("Open of %d bytes = %d bytes, %v", size, len(got), err)
		}
	}
}

func TestSealingTwiceGivesDifferentBytesUnderThePrimaryKey(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	keys := w.keys(tenant)
	if keys.Tenant() != tenant {
		t.Errorf("Tenant = %s, want %s", keys.Tenant(), tenant)
	}
	a, b := mustSeal(t, keys, "r", "f", "v"), mustSeal(t, keys, "r", "f", "v")
	if bytes.Equal(a, b) {
		t.Error("two calls of Seal gave the same bytes")
	}
	if id, err := keyring.KeyID(a); err != nil || id != keys.Primary() {
		t.Errorf("KeyID = %d, %v, want %d", id, err, keys.Primary())
	}
}

func TestNoTwoListsOfPartsBindToTheSameBytes(t *testing.T) {
	lists := [][]string{
		{}, {""}, {"", ""}, {"a"}, {"a", ""}, {"", "a"}, {"ab"}, {"a", "b"}, {"a\x00\x00\x00\x01b"},
		{"\x00\x00\x00\x00"}, {"\x00\x00\x00\x00", ""}, {strings.Repeat("a", 256)}, {"b", "a"},
	}
	seen := map[string]int{}
	for i, list := range lists {
		bound := string(keyring.Bind("label", list...))
		if j, there := seen[bound]; there {
			t.Errorf("%q and %q give the same bytes", lists[j], list)
		}
		seen[bound] = i
	}
	if bytes.Equal(keyring.Bind("a", "b"), keyring.Bind("ab")) || bytes.Equal(keyring.Bind("a"), keyring.Bind("", "a")) {
		t.Error("label and parts run together")
	}
}

func TestHashesDependOnEverythingThatTheyShould(t *testing.T) {
	w := newWorld(t)
	one, two := w.keys(w.tenant()), w.keys(w.tenant())
	type hash struct {
		name string
		sum  []byte
		size int
	}
	card := keyring.Fingerprinted{Type: "card", JSONType: "object", Expression: []byte("e")}
	hashes := []hash{
		{"fingerprint", taken(one, card, "v"), 32},
		{"fingerprint of another value", taken(one, card, "w"), 32},
		{"fingerprint of nothing", taken(one, card, ""), 32},
		{"fingerprint of another type", taken(one, keyring.Fingerprinted{Type: "bank", JSONType: "object", Expression: []byte("e")}, "v"), 32},
		{"fingerprint of another JSON type", taken(one, keyring.Fingerprinted{Type: "card", JSONType: "string", Expression: []byte("e")}, "v"), 32},
		{"fingerprint of another expression", taken(one, keyring.Fingerprinted{Type: "card", JSONType: "object", Expression: []byte("f")}, "v"), 32},
		{"fingerprint of another tenant", taken(two, card, "v"), 32},
		{"index term", one.IndexTerm("data", "v"), 16},
		{"index term of another value", one.IndexTerm("data", "w"), 16},
		{"index term of another field", one.IndexTerm("datav", ""), 16},
		{"index term of another tenant", two.IndexTerm("data", "v"), 16},
		{"key hash", one.HashKey(secret.NewText("v")), 32},
		{"key hash of another key", one.HashKey(secret.NewText("w")), 32},
		{"key holder", one.KeyHolder(secret.NewText("v"), "a"), 16},
		{"key holder of another key", one.KeyHolder(secret.NewText("w"), "a"), 16},
		{"another key holder", one.KeyHolder(secret.NewText("v"), "b"), 16},
		{"key holder of another tenant", two.KeyHolder(secret.NewText("v"), "a"), 16},
		{"key hash of another tenant", two.HashKey(secret.NewText("v")), 32},
	}
	seen := map[string]string{}
	for _, h := range hashes {
		if len(h.sum) != h.size {
			t.Errorf("%s has %d bytes, want %d", h.name, len(h.sum), h.size)
		}
		start := string(h.sum[:16])
		if other, there := seen[start]; there {
			t.Errorf("%s equals %s", h.name, other)
		}
		seen[start] = h.name
	}
	if !bytes.Equal(hashes[0].sum, taken(one, card, "v")) ||
		!bytes.Equal(hashes[7].sum, one.IndexTerm("data", "v")) ||
		!bytes.Equal(hashes[11].sum, one.HashKey(secret.NewText("v"))) {
		t.Error("the same value gave another hash")
	}
}

func TestAFingerprintInPiecesIsThatOfTheWhole(t *testing.T) {
	w := newWorld(t)
	keys := w.keys(w.tenant())
	value := strings.Repeat("a long value", 1000)
	of := keyring.Fingerprinted{Type: "token", JSONType: "string"}
	got, err := keys.Fingerprint(of, func(to io.Writer) error {
		_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{strings.NewReader(value)}, make([]byte, 7))
		return err
	})
	if want := taken(keys, of, value); err != nil || !bytes.Equal(got, want) {
		t.Errorf("Fingerprint in pieces = %x, %v, want %x", got, err, want)
	}
	if _, err := keys.Fingerprint(of, func(io.Writer) error { return errKilled }); !errors.Is(err, errKilled) {
		t.Errorf("Fingerprint = %v, want the writer's error", err)
	}
}

func TestSignaturesAreVerifiedWithThePublicKeyAlone(t *testing.T) {
	w := newWorld(t)
	keys, other := w.keys(w.tenant()), w.keys(w.tenant())
	message := []byte("root of batch 7")
	signature, err := keys.Sign(message)
	if err != nil {
		t.Fatalf("Sign = %v", err)
	}
	verifier, err := keyring.ParseVerifier(keys.Verifier().PEM())
	if err != nil {
		t.Fatalf("ParseVerifier = %v", err)
	}
	for name, v := range map[string]*keyring.Verifier{"of the keys": keys.Verifier(), "parsed": verifier} {
		if err := v.Verify(signature, message); err != nil {
			t.Errorf("%s: Verify = %v", name, err)
		}
		if err := v.Verify(signature, []byte("root of batch 8")); !errors.Is(err, keyring.ErrSignature) {
			t.Errorf("%s: Verify of another message = %v, want ErrSignature", name, err)
		}
		if err := v.Verify(signature[1:], message); !errors.Is(err, keyring.ErrSignature) {
			t.Errorf("%s: Verify of a cut signature = %v, want ErrSignature", name, err)
		}
	}
	if err := other.Verifier().Verify(signature, message); !errors.Is(err, keyring.ErrSignature) {
		t.Errorf("Verify with another tenant's key = %v, want ErrSignature", err)
	}
	// Any implementation of Ed25519 verifies it.
	block, _ := pem.Decode(keys.Verifier().PEM())
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if !ed25519.Verify(public.(ed25519.PublicKey), message, signature) {
		t.Error("the standard library does not verify the signature")
	}
}

func TestParseVerifierRefusesWhatIsNoPublicKey(t *testing.T) {
	w := newWorld(t)
	good := w.keys(w.tenant()).Verifier().PEM()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	rsaDER, err := x509.MarshalPKIXPublicKey(&rsaKey.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"nothing":          nil,
		"no PEM":           []byte("key"),
		"another type":     bytes.ReplaceAll(good, []byte("PUBLIC"), []byte("PRIVATE")),
		"more behind it":   append(bytes.Clone(good), "more"...),
		"no key in it":     pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("key")}),
		"an RSA key":       pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: rsaDER}),
		"a key that's cut": good[:len(good)/2],
	} {
		if v, err := keyring.ParseVerifier(text); err == nil || v != nil {
			t.Errorf("%s: ParseVerifier = %v, want an error", name, err)
		}
	}
}

// broken is a primitive that opens and cannot seal.
type broken struct{}

func (broken) Encrypt([]byte, []byte) ([]byte, error) { return nil, errKilled }
func (broken) Decrypt([]byte, []byte) ([]byte, error) { return []byte("v"), nil }

func TestAPrimitiveThatFailsSealsNothing(t *testing.T) {
	if sealed, err := keyring.SealWith(broken{}, []byte("v")); !errors.Is(err, errKilled) || sealed != nil {
		t.Errorf("seal = %x, %v, want nothing and the error", sealed, err)
	}
	w := newWorld(t)
	keys := keyring.WithAEAD(w.keys(w.tenant()), broken{})
	if err := keyring.Reseal(keys, []byte{0x11}); !errors.Is(err, errKilled) {
		t.Errorf("a row was sealed anew by a primitive that fails: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("must went on after an error")
		}
	}()
	keyring.Must(errKilled)
}
