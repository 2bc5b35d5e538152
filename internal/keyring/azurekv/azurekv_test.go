package azurekv_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/azurekv"
	"github.com/tokenkeep/tokenkeep/internal/keyring/envelope"
	"github.com/tokenkeep/tokenkeep/internal/keyring/kmstest"
)

// version is that of all keys here.
const version = "0123456789abcdef0123456789abcdef"

// keys are made once: RSA keys take long.
var keys = sync.OnceValue(func() map[string]*rsa.PrivateKey {
	made := map[string]*rsa.PrivateKey{}
	for _, name := range []string{"one", "two"} {
		k, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		made[name] = k
	}
	return made
})

// fake follows the REST protocol of Key Vault for wrapkey and unwrapkey.
type fake struct {
	url    string
	faults *kmstest.Faults
}

func newFake(t *testing.T) (*fake, *httptest.Server) {
	f := &fake{faults: kmstest.NewFaults()}
	s := httptest.NewTLSServer(f)
	f.url = s.URL
	t.Cleanup(s.Close)
	return f, s
}

// refusals are the responses to calls while the service fails.
var refusals = map[kmstest.Fault]struct {
	status int
	code   string
}{
	kmstest.Down: {503, "ServiceUnavailable"}, kmstest.Throttled: {429, "Throttled"},
	kmstest.Disabled: {403, "Forbidden"}, kmstest.Denied: {403, "Forbidden"},
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct{ Alg, Value string }
	b, _ := io.ReadAll(r.Body)
	if r.Header.Get("Authorization") == "" {
		w.Header().Set("WWW-Authenticate", `Bearer authorization="https://login.example/tenant", resource="https://vault.azure.net"`)
		refuse(w, 401, "Unauthorized")
		return
	}
	if f.faults.Instead(w, r, func(fault kmstest.Fault) { refuse(w, refusals[fault].status, refusals[fault].code) }) {
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // keys, name, version, operation; the version may be missing
	key := keys()[parts[1]]
	value, err := []byte(nil), json.Unmarshal(b, &in)
	if err == nil {
		value, err = base64.RawURLEncoding.DecodeString(in.Value)
	}
	if key == nil || err != nil || in.Alg != "RSA-OAEP-256" {
		refuse(w, 404, "KeyNotFound")
		return
	}
	var result []byte
	switch parts[len(parts)-1] {
	case "wrapkey":
		result, err = rsa.EncryptOAEP(sha256.New(), rand.Reader, &key.PublicKey, value, nil)
	case "unwrapkey":
		if parts[2] != version {
			refuse(w, 404, "KeyNotFound")
			return
		}
		result, err = rsa.DecryptOAEP(sha256.New(), nil, key, value, nil)
	}
	if err != nil {
		refuse(w, 400, "BadParameter")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kid": "https://fake.vault.azure.net/keys/" + parts[1] + "/" + version, "value": base64.RawURLEncoding.EncodeToString(result),
	})
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": code, "message": kmstest.Echo}})
}

type credential struct{}

func (credential) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "of the test", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func open(t *testing.T, s *httptest.Server, key string) *envelope.KMS {
	t.Helper()
	k, err := azurekv.Open("azurekv://"+strings.TrimPrefix(s.URL, "https://")+"/keys/"+key, azurekv.Options{
		Credential: credential{}, Transport: s.Client(),
		Envelope: kmstest.Calls(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeyVaultIsAKMS(t *testing.T) {
	kmstest.Run(t, func(t *testing.T) kmstest.Fixture {
		f, s := newFake(t)
		return kmstest.Fixture{KMS: open(t, s, "one"), Other: open(t, s, "two"), Fail: f.faults.Set, Hung: f.faults.Hung}
	})
}

// KEEPTEST_AZUREKV names a real key as the setting kek does, and
// KEEPTEST_AZUREKV_OTHER another one; the credentials are those of the machine.
func TestARealServiceIsAKMS(t *testing.T) {
	uri, other := os.Getenv("KEEPTEST_AZUREKV"), os.Getenv("KEEPTEST_AZUREKV_OTHER")
	if uri == "" || other == "" {
		t.Skip("KEEPTEST_AZUREKV and KEEPTEST_AZUREKV_OTHER name no keys")
	}
	kmstest.Run(t, func(t *testing.T) (f kmstest.Fixture) {
		for uri, k := range map[string]*keyring.KMS{uri: &f.KMS, other: &f.Other} {
			opened, err := azurekv.Open(uri, azurekv.Options{})
			if err != nil {
				t.Fatal(err)
			}
			*k = opened
		}
		return f
	})
}

func TestURIs(t *testing.T) {
	for _, uri := range []string{
		"azurekv://v.vault.azure.net/secrets/k", "azurekv://v.vault.azure.net/keys", "azurekv://v.vault.azure.net/keys/k/v/x",
		"azurekv://v.vault.azure.net/keys/k?x=y", "azurekv:///keys/k", "https://v.vault.azure.net/keys/k", "azurekv://u:p@v/keys/k",
	} {
		if _, err := azurekv.Open(uri, azurekv.Options{}); err == nil || !strings.Contains(err.Error(), "azurekv://NAME") {
			t.Errorf("Open(%q) = %v, want one that shows the form", uri, err)
		}
	}
	k, err := azurekv.Open("azurekv://v.vault.azure.net/keys/k/"+version, azurekv.Options{})
	if err != nil || k.Primary() != "azurekv:v.vault.azure.net/keys/k" {
		t.Fatalf("Open = %v, %v", k, err)
	}
	for _, what := range []keyring.Operation{keyring.Create, keyring.Rotate, keyring.Drop} {
		if k.Advise(what) == "" {
			t.Errorf("no advice for %s", what)
		}
	}
}
