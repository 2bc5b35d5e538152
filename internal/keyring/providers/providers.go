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
	"github.com/tokenkeep/tokenkeep/internal/keyring/transit"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// Options are what does not stand in a URI.
type Options struct {
	// Token is the token for Vault and OpenBao with auth=token.
	Token secret.Text
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
}

// All lists the kinds.
var All = []Provider{
	{Scheme: "file", Name: "a file", Example: "file:/etc/tokenkeep/kek",
		open: func(_ context.Context, uri string, _ Options) (keyring.KMS, error) {
			return localkms.Open(strings.TrimPrefix(uri, "file:"))
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
	{Scheme: "gcpkms", Name: "Google Cloud KMS", Example: "gcpkms://projects/P/locations/europe-west3/keyRings/R/cryptoKeys/tokenkeep", Experimental: true,
		open: func(_ context.Context, uri string, o Options) (keyring.KMS, error) {
			return gcpkms.Open(uri, gcpkms.Options{Envelope: o.envelope()})
		}},
	{Scheme: "azurekv", Name: "Azure Key Vault or Managed HSM", Example: "azurekv://NAME.vault.azure.net/keys/tokenkeep", Experimental: true,
		open: func(_ context.Context, uri string, o Options) (keyring.KMS, error) {
			return azurekv.Open(uri, azurekv.Options{Envelope: o.envelope()})
		}},
}

func (o Options) envelope() envelope.Options { return envelope.Options{Called: o.Called, Now: o.Now} }

// Open opens the key-encryption keys of the URIs: the first wraps, all unwrap.
func Open(ctx context.Context, uris []string, o Options) (keyring.Several, error) {
	var all keyring.Several
	for _, uri := range uris {
		scheme, _, _ := strings.Cut(uri, ":")
		i := slices.IndexFunc(All, func(p Provider) bool { return p.Scheme == scheme })
		if i < 0 {
			return nil, fmt.Errorf("unknown kind of key-encryption key; the kinds are %s", schemes())
		}
		k, err := All[i].open(ctx, uri, o)
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

// Advise returns what an operator runs to do something with the key of a URI; ""
// for a file, which the server's own commands change.
func Advise(ctx context.Context, uri string, what keyring.Operation) (string, error) {
	scheme, _, found := strings.Cut(uri, ":")
	known := slices.ContainsFunc(All, func(p Provider) bool { return p.Scheme == scheme })
	if !found || !known || scheme == "file" {
		return "", nil
	}
	all, err := Open(ctx, []string{uri}, Options{Token: secret.NewText("unused")})
	if err != nil {
		return "", err
	}
	if a, ok := all[0].(keyring.Adviser); ok {
		return a.Advise(what), nil
	}
	return "", nil
}

func schemes() string {
	var names []string
	for _, p := range All {
		names = append(names, p.Scheme+":")
	}
	return strings.Join(names, ", ")
}
