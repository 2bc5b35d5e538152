package awskms_test

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/awskms"
	"github.com/tokenkeep/tokenkeep/internal/keyring/envelope"
	"github.com/tokenkeep/tokenkeep/internal/keyring/kmstest"
)

const (
	one = "arn:aws:kms:eu-central-1:111122223333:key/11111111-2222-3333-4444-555555555555"
	two = "arn:aws:kms:eu-central-1:111122223333:key/66666666-7777-8888-9999-000000000000"
)

// fake follows the JSON protocol of AWS KMS for Encrypt and Decrypt.
type fake struct {
	faults *kmstest.Faults
	keys   map[string]cipher.AEAD
}

func newFake(t *testing.T) (*fake, *httptest.Server) {
	f := &fake{faults: kmstest.NewFaults(), keys: map[string]cipher.AEAD{}}
	for _, arn := range []string{one, two} {
		f.keys[arn] = kmstest.NewKey(t)
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
	kmstest.Down: {500, "KMSInternalException"}, kmstest.Throttled: {400, "ThrottlingException"},
	kmstest.Disabled: {400, "DisabledException"}, kmstest.Denied: {400, "AccessDeniedException"},
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		KeyId                     string //nolint:revive // as AWS spells it
		Plaintext, CiphertextBlob []byte
		EncryptionContext         map[string]string
	}
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	if f.faults.Instead(w, r, func(fault kmstest.Fault) { refuse(w, refusals[fault].status, refusals[fault].code) }) {
		return
	}
	key := f.keys[in.KeyId]
	if json.Unmarshal(body, &in) == nil {
		key = f.keys[in.KeyId]
	}
	if key == nil || !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=AKIDTEST/") {
		refuse(w, 400, "NotFoundException")
		return
	}
	bound := []byte(in.EncryptionContext["application"])
	switch r.Header.Get("X-Amz-Target") {
	case "TrentService.Encrypt":
		nonce := make([]byte, 12)
		_, _ = rand.Read(nonce)
		respond(w, map[string]any{"KeyId": in.KeyId, "CiphertextBlob": key.Seal(nonce, nonce, in.Plaintext, bound)})
	case "TrentService.Decrypt":
		if len(in.CiphertextBlob) < 12 {
			refuse(w, 400, "ValidationException")
			return
		}
		plaintext, err := key.Open(nil, in.CiphertextBlob[:12], in.CiphertextBlob[12:], bound)
		if err != nil {
			refuse(w, 400, "InvalidCiphertextException")
			return
		}
		respond(w, map[string]any{"KeyId": in.KeyId, "Plaintext": plaintext})
	}
}

func respond(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	respond(w, map[string]string{"__type": code, "message": kmstest.Echo})
}

func open(t *testing.T, uri string) *envelope.KMS {
	t.Helper()
	k, err := awskms.Open(t.Context(), uri, awskms.Options{
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKIDTEST", SecretAccessKey: "of the test"}, nil
		}),
		Envelope: kmstest.Calls(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestAWSIsAKMS(t *testing.T) {
	kmstest.Run(t, func(t *testing.T) kmstest.Fixture {
		f, s := newFake(t)
		return kmstest.Fixture{
			KMS: open(t, "awskms://"+one+"?endpoint="+s.URL), Other: open(t, "awskms://"+two+"?endpoint="+s.URL), Fail: f.faults.Set, Hung: f.faults.Hung,
		}
	})
}

// KEEPTEST_AWSKMS names a real key as the setting kek does, and
// KEEPTEST_AWSKMS_OTHER another one; the credentials are those of the machine.
func TestARealServiceIsAKMS(t *testing.T) {
	uri, other := os.Getenv("KEEPTEST_AWSKMS"), os.Getenv("KEEPTEST_AWSKMS_OTHER")
	if uri == "" || other == "" {
		t.Skip("KEEPTEST_AWSKMS and KEEPTEST_AWSKMS_OTHER name no keys")
	}
	kmstest.Run(t, func(t *testing.T) (f kmstest.Fixture) {
		for uri, k := range map[string]*keyring.KMS{uri: &f.KMS, other: &f.Other} {
			opened, err := awskms.Open(t.Context(), uri, awskms.Options{})
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
		"awskms://" + one + "?region=x":                          "profile and endpoint",
		"awskms://arn:aws:kms:eu-central-1:111122223333:alias/x": "alias",
		"awskms://x": "awskms://arn",
		one:          "awskms://arn",
	} {
		if _, err := awskms.Open(t.Context(), uri, awskms.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%q) = %v, want one that names %q", uri, err, want)
		}
	}
	k := open(t, "awskms://"+one)
	if k.Primary() != one {
		t.Errorf("Primary = %q", k.Primary())
	}
	for _, what := range []keyring.Operation{keyring.Create, keyring.Rotate, keyring.Drop} {
		if k.Advise(what) == "" {
			t.Errorf("no advice for %s", what)
		}
	}
}
