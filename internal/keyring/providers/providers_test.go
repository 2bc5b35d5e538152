package providers_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/providers"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

func TestEveryKindCreatesOrAdvises(t *testing.T) {
	for scheme, want := range map[string]string{
		"hcvault": `path "transit/encrypt/tokenkeep" { capabilities = ["update"] }`,
		"awskms":  `"Action":["kms:Encrypt","kms:Decrypt"]`,
		"gcpkms":  "roles/cloudkms.cryptoKeyEncrypterDecrypter",
		"azurekv": "Key Vault Crypto Service Encryption User",
	} {
		for _, p := range providers.All {
			if p.Scheme != scheme {
				continue
			}
			id, advice, err := providers.Create(t.Context(), p.Example, providers.Options{})
			if err != nil || id != "" || !strings.Contains(advice, want) {
				t.Errorf("Create(%s) = %q, %q, %v; want advice with %q", scheme, id, advice, err, want)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "kek")
	id, advice, err := providers.Create(t.Context(), "file:"+path, providers.Options{})
	if err != nil || advice != "" || !strings.HasPrefix(id, "local-") {
		t.Errorf("Create of a file = %q, %q, %v", id, advice, err)
	}
	if _, _, err := providers.Create(t.Context(), "file:"+path, providers.Options{}); err == nil {
		t.Error("Create replaces a file")
	}
	// Without the program a key in a token is not made, and the error names it.
	t.Setenv("PATH", t.TempDir())
	_, _, err = providers.Create(t.Context(), "pkcs11:token=t;object=k?module-path=/m.so", providers.Options{PIN: secret.NewText("4711")})
	if err == nil || !strings.Contains(err.Error(), "tokenkeep-pkcs11") || strings.Contains(err.Error(), "4711") {
		t.Errorf("Create in a token = %v, want one that names the program", err)
	}
	if _, _, err := providers.Create(t.Context(), "other:x", providers.Options{}); err == nil || !strings.Contains(err.Error(), "pkcs11:") {
		t.Errorf("Create of an unknown kind = %v, want the kinds", err)
	}
}

func TestEveryExampleOpensAndAdvises(t *testing.T) {
	for _, p := range providers.All {
		if p.Scheme == "file" {
			continue // it is read when it is opened
		}
		all, err := providers.Open(t.Context(), []string{p.Example}, providers.Options{Token: secret.NewText("unused")})
		if err != nil {
			t.Errorf("Open(%q) = %v", p.Example, err)
			continue
		}
		if _, err := all.Rotate(t.Context()); err == nil || !strings.Contains(err.Error(), "; ") {
			t.Errorf("%s: Rotate = %v, want it refused with what to run", p.Scheme, err)
		}
		if err := all.Drop(t.Context(), all.Primary()); err == nil || !strings.Contains(err.Error(), "remove the key from kek.also") {
			t.Errorf("%s: Drop = %v, want it refused with what to run", p.Scheme, err)
		}
		if _, ok := all[0].(keyring.Prober); !ok {
			t.Errorf("%s cannot be probed", p.Scheme)
		}
		if _, err := providers.Open(t.Context(), []string{p.Example, p.Example}, providers.Options{Token: secret.NewText("unused")}); err == nil {
			t.Errorf("%s: the same key twice opens", p.Scheme)
		}
	}
}

func TestWhatIsAURI(t *testing.T) {
	for text, want := range map[string]bool{"file:/kek": true, "pkcs11:token=t": true, "/etc/kek": false, "file": false, "c:kek": false, "": false} {
		if got := providers.IsURI(text); got != want {
			t.Errorf("IsURI(%q) = %t, want %t", text, got, want)
		}
	}
}
