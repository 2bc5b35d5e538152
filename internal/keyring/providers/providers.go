// Package providers opens key-encryption keys by their URIs.
//
// It promises that every kind of URI is a row of All. Opening calls no service,
// so that a server starts while its KMS is down. It never puts a URI into an
// error: a part of one may have been meant to be secret.
package providers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/awskms"
	"github.com/tokenkeep/tokenkeep/internal/keyring/azurekv"
	"github.com/tokenkeep/tokenkeep/internal/keyring/envelope"
	"github.com/tokenkeep/tokenkeep/internal/keyring/gcpkms"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/keyring/pkcs11"
	"github.com/tokenkeep/tokenkeep/internal/keyring/transit"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// Options are what does not stand in a URI.
type Options struct {
	// Token is the token for Vault and OpenBao with auth=token.
	Token secret.Text
	// PIN is the PIN of PKCS#11 tokens whose URI has no pin-source.
	PIN secret.Text
	// Timeout bounds one call of a service; 0 means 5 seconds.
	Timeout time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Called is told how a call of a service ended; nil means nobody is.
	Called func(operation string, err error, took time.Duration)
}

// Provider is a kind of KMS.
type Provider struct {
	Scheme  string
	Name    string
	Example string
	// Experimental says that it was never tried with the service itself.
	Experimental bool

	open func(ctx context.Context, uri string, o Options) (keyring.KMS, error)
	// create makes the key; nil where only the KMS's own tools do.
	create func(ctx context.Context, uri string, o Options) (id string, err error)
}

// All lists the kinds.
var All = []Provider{
	{Scheme: "file", Name: "a file", Example: "file:/etc/tokenkeep/kek",
		open: func(_ context.Context, uri string, _ Options) (keyring.KMS, error) {
			return localkms.Open(strings.TrimPrefix(uri, "file:"))
		},
		create: func(_ context.Context, uri string, _ Options) (string, error) {
			return localkms.Generate(strings.TrimPrefix(uri, "file:"))
		}},
	{Scheme: "hcvault", Name: "HashiCorp Vault or OpenBao, transit engine",
		Example: "hcvault://vault.example:8200/transit/keys/tokenkeep?auth=approle&role_id=ROLE&secret_id_file=/etc/tokenkeep/secret-id",
		open: func(_ context.Context, uri string, o Options) (keyring.KMS, error) {
			return transit.Open(uri, transit.Options{Token: o.Token, Now: o.Now, Envelope: o.envelope()})
		}},
	{Scheme: "awskms", Name: "AWS KMS", Example: "awskms://arn:aws:kms:eu-central-1:111122223333:key/11111111-2222-3333-4444-555555555555",
		open: func(ctx context.Context, uri string, o Options) (keyring.KMS, error) {
			return awskms.Open(ctx, uri, awskms.Options{Envelope: o.envelope()})
		}},
	{Scheme: "pkcs11", Name: "an HSM or another PKCS#11 token",
		Example: "pkcs11:token=vault;object=tokenkeep?module-path=/usr/lib/softhsm/libsofthsm2.so&pin-source=file:/etc/tokenkeep/pin",
		open: func(_ context.Context, uri string, o Options) (keyring.KMS, error) {
			return pkcs11.Open(uri, o.pkcs11())
		},
		create: func(ctx context.Context, uri string, o Options) (string, error) {
			return pkcs11.Create(ctx, uri, o.pkcs11())
		}},
	{Scheme: "gcpkms", Name: "Google Cloud KMS", Example: "gcpkms://projects/P/locations/europe-west3/keyRings/R/cryptoKeys/tokenkeep", Experimental: true,
		open: func(_ context.Context, uri string, o Options) (keyring.KMS, error) {
			return gcpkms.Open(uri, gcpkms.Options{Envelope: o.envelope()})
		}},
	{Scheme: "azurekv", Name: "Azure Key Vault or Managed HSM", Example: "azurekv://NAME.vault.azure.net/keys/tokenkeep", Experimental: true,
		open: func(_ context.Context, uri string, o Options) (keyring.KMS, error) {
			return azurekv.Open(uri, azurekv.Options{Envelope: o.envelope()})
		}},
}

func (o Options) envelope() envelope.Options {
	return envelope.Options{Called: o.Called, Now: o.Now, Timeout: o.Timeout}
}

func (o Options) pkcs11() pkcs11.Options {
	return pkcs11.Options{PIN: o.PIN, Now: o.Now, Envelope: o.envelope()}
}

// Open opens the key-encryption keys of the URIs: the first wraps, all unwrap.
func Open(ctx context.Context, uris []string, o Options) (keyring.Several, error) {
	var all keyring.Several
	for _, uri := range uris {
		scheme, _, _ := strings.Cut(uri, ":")
		p, err := find(uri)
		if err != nil {
			return nil, err
		}
		k, err := p.open(ctx, uri, o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", scheme, err)
		}
		for _, other := range all {
			if other.Primary() == k.Primary() {
				return nil, fmt.Errorf("%s: two key-encryption keys have the same id: list each once, or give one of them another id", scheme)
			}
		}
		all = append(all, k)
	}
	return all, nil
}

// Create makes the key of a URI and returns its id. Where only the KMS's own tools
// make keys, it makes none and returns what an operator runs.
func Create(ctx context.Context, uri string, o Options) (id, advice string, err error) {
	p, err := find(uri)
	if err != nil {
		return "", "", err
	}
	if p.create != nil {
		id, err = p.create(ctx, uri, o)
		return id, "", err
	}
	o.Token = secret.NewText("unused") // nobody is called
	all, err := Open(ctx, []string{uri}, o)
	if err != nil {
		return "", "", err
	}
	if a, ok := all[0].(keyring.Adviser); ok {
		advice = a.Advise(keyring.Create)
	}
	return "", advice, nil
}

// find returns the row of a URI.
func find(uri string) (Provider, error) {
	scheme, _, _ := strings.Cut(uri, ":")
	i := slices.IndexFunc(All, func(p Provider) bool { return p.Scheme == scheme })
	if i < 0 {
		return Provider{}, fmt.Errorf("unknown kind of key-encryption key; the kinds are %s", schemes())
	}
	return All[i], nil
}

// IsURI reports whether a text names a key as a URI of one of the kinds.
func IsURI(text string) bool {
	_, err := find(text)
	return err == nil && strings.Contains(text, ":")
}

func schemes() string {
	var names []string
	for _, p := range All {
		names = append(names, p.Scheme+":")
	}
	return strings.Join(names, ", ")
}
