package gcpkms_test

import (
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"golang.org/x/oauth2"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/envelope"
	"github.com/tokenkeep/tokenkeep/internal/keyring/gcpkms"
	"github.com/tokenkeep/tokenkeep/internal/keyring/kmstest"
)

const (
	one = "projects/p/locations/global/keyRings/r/cryptoKeys/one"
	two = "projects/p/locations/global/keyRings/r/cryptoKeys/two"
)

// fake follows the REST protocol of Cloud KMS for encrypt and decrypt.
type fake struct {
	faults *kmstest.Faults
	keys   map[string]cipher.AEAD
}

func newFake(t *testing.T) (*fake, *httptest.Server) {
	f := &fake{faults: kmstest.NewFaults(), keys: map[string]cipher.AEAD{}}
	for _, name := range []string{one, two} {
		f.keys[name] = kmstest.NewKey(t)
	}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return f, s
}

// refusals are the responses to calls while the service fails.
var refusals = map[kmstest.Fault]struct {
	status int
	code   string
}{
	kmstest.Down: {503, "UNAVAILABLE"}, kmstest.Throttled: {429, "RESOURCE_EXHAUSTED"},
	kmstest.Disabled: {400, "FAILED_PRECONDITION"}, kmstest.Denied: {403, "PERMISSION_DENIED"},
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct{ Plaintext, Ciphertext []byte }
	b, _ := io.ReadAll(r.Body)
	if f.faults.Instead(w, r, func(fault kmstest.Fault) { refuse(w, refusals[fault].status, refusals[fault].code) }) {
		return
	}
	name, operation, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/"), ":")
	key := f.keys[name]
	if key == nil || r.Header.Get("Authorization") != "Bearer of the test" {
		refuse(w, 404, "NOT_FOUND")
		return
	}
	if json.Unmarshal(b, &in) != nil {
		refuse(w, 400, "INVALID_ARGUMENT")
		return
	}
	if operation == "encrypt" {
		nonce := make([]byte, 12)
		_, _ = rand.Read(nonce)
		_ = json.NewEncoder(w).Encode(map[string]any{"name": name + "/cryptoKeyVersions/1", "ciphertext": key.Seal(nonce, nonce, in.Plaintext, nil)})
		return
	}
	if len(in.Ciphertext) < 12 {
		refuse(w, 400, "INVALID_ARGUMENT")
		return
	}
	plaintext, err := key.Open(nil, in.Ciphertext[:12], in.Ciphertext[12:], nil)
	if err != nil {
		refuse(w, 400, "INVALID_ARGUMENT")
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"plaintext": plaintext})
}

func refuse(w http.ResponseWriter, status int, name string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": status, "status": name, "message": kmstest.Echo}})
}

func open(t *testing.T, uri string) *envelope.KMS {
	t.Helper()
	k, err := gcpkms.Open(uri, gcpkms.Options{
		Tokens:   oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "of the test", TokenType: "Bearer"}),
		Envelope: kmstest.Calls(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestCloudKMSIsAKMS(t *testing.T) {
	kmstest.Run(t, func(t *testing.T) kmstest.Fixture {
		f, s := newFake(t)
		return kmstest.Fixture{
			KMS: open(t, "gcpkms://"+one+"?endpoint="+s.URL), Other: open(t, "gcpkms://"+two+"?endpoint="+s.URL), Fail: f.faults.Set, Hung: f.faults.Hung,
		}
	})
}

// KEEPTEST_GCPKMS names a real key as the setting kek does, and
// KEEPTEST_GCPKMS_OTHER another one; the credentials are those of the machine.
func TestARealServiceIsAKMS(t *testing.T) {
	uri, other := os.Getenv("KEEPTEST_GCPKMS"), os.Getenv("KEEPTEST_GCPKMS_OTHER")
	if uri == "" || other == "" {
		t.Skip("KEEPTEST_GCPKMS and KEEPTEST_GCPKMS_OTHER name no keys")
	}
	kmstest.Run(t, func(t *testing.T) (f kmstest.Fixture) {
		for uri, k := range map[string]*keyring.KMS{uri: &f.KMS, other: &f.Other} {
			opened, err := gcpkms.Open(uri, gcpkms.Options{})
			if err != nil {
				t.Fatal(err)
			}
			*k = opened
		}
		return f
	})
}

func TestURIs(t *testing.T) {
	for uri, want := range map[string]string{
		"gcpkms://" + one + "?key=x":               "it takes endpoint",
		"gcpkms://" + one + "/cryptoKeyVersions/1": "gcpkms://projects",
		"gcpkms://x": "gcpkms://projects",
		one:          "gcpkms://projects",
	} {
		if _, err := gcpkms.Open(uri, gcpkms.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%q) = %v, want one that names %q", uri, err, want)
		}
	}
	k := open(t, "gcpkms://"+one)
	if k.Primary() != "gcpkms:"+one {
		t.Errorf("Primary = %q", k.Primary())
	}
	for _, what := range []keyring.Operation{keyring.Create, keyring.Rotate, keyring.Drop} {
		if k.Advise(what) == "" {
			t.Errorf("no advice for %s", what)
		}
	}
}
