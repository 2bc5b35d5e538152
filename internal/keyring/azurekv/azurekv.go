// Package azurekv encrypts keys with Azure Key Vault or Managed HSM. It is
// experimental: it has been tried with a server of our own that follows the
// published protocol.
//
// It promises to use the default credential chain of the Azure SDK and nothing
// else, and to return when the context ends. It never sends anything but fresh
// keys of 32 bytes, and never passes on what the service said.
package azurekv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azkeys"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/envelope"
)

// Options are what does not stand in the URI.
type Options struct {
	// Credential replaces the SDK's chain; nil means the chain.
	Credential azcore.TokenCredential
	// Transport replaces the SDK's; nil means the SDK's.
	Transport policy.Transporter
	// Envelope are the settings of calls.
	Envelope envelope.Options
}

// service is one key.
type service struct {
	vault, name, version string
	options              Options

	mu     sync.Mutex // guards client
	client *azkeys.Client
}

// Open returns the KMS of a key such as
// azurekv://NAME.vault.azure.net/keys/KEY. It calls nobody.
func Open(uri string, o Options) (*envelope.KMS, error) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "azurekv" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errURI
	}
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	if len(parts) < 2 || len(parts) > 3 || parts[0] != "keys" || parts[1] == "" {
		return nil, errURI
	}
	s := &service{vault: "https://" + u.Host, name: parts[1], options: o}
	if len(parts) == 3 {
		s.version = parts[2]
	}
	return envelope.New("azurekv:"+u.Host+"/keys/"+s.name, s, o.Envelope), nil
}

var errURI = errors.New("must look like azurekv://NAME.vault.azure.net/keys/KEY or …/keys/KEY/VERSION")

// open makes the client when it is first needed: the credential chain looks at
// the machine.
func (s *service) open() (*azkeys.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		return s.client, nil
	}
	credential := s.options.Credential
	if credential == nil {
		var err error
		if credential, err = azidentity.NewDefaultAzureCredential(nil); err != nil {
			return nil, fmt.Errorf("azurekv: no credential on this machine: %w", keyring.ErrKEKRefused)
		}
	}
	c, err := azkeys.NewClient(s.vault, credential, &azkeys.ClientOptions{
		ClientOptions: policy.ClientOptions{
			Transport: s.options.Transport,
			Retry:     policy.RetryOptions{MaxRetries: -1}, // package envelope tries again
		},
		DisableChallengeResourceVerification: s.options.Transport != nil,
	})
	if err != nil {
		return nil, fmt.Errorf("azurekv: %w", keyring.ErrKEKRefused)
	}
	s.client = c
	return c, nil
}

var algorithm = azkeys.EncryptionAlgorithmRSAOAEP256

// Encrypt encrypts a key with the newest version, or the one that the URI names.
// The version stands in front of the result, because a decryption must name it.
func (s *service) Encrypt(ctx context.Context, key []byte) ([]byte, error) {
	c, err := s.open()
	if err != nil {
		return nil, err
	}
	out, err := c.WrapKey(ctx, s.name, s.version, azkeys.KeyOperationParameters{Algorithm: &algorithm, Value: key}, nil)
	if err != nil {
		return nil, classify(err)
	}
	if out.KID == nil || out.KID.Version() == "" || len(out.Result) == 0 {
		return nil, fmt.Errorf("azurekv: %w", keyring.ErrKMSUnavailable)
	}
	return append([]byte(out.KID.Version()+"\n"), out.Result...), nil
}

// Decrypt decrypts a key with the version that stands in front of it.
func (s *service) Decrypt(ctx context.Context, encrypted []byte) ([]byte, error) {
	version, wrapped, found := bytes.Cut(encrypted, []byte("\n"))
	if !found || !isVersion(version) || len(wrapped) == 0 {
		return nil, keyring.ErrUnwrap
	}
	c, err := s.open()
	if err != nil {
		return nil, err
	}
	out, err := c.UnwrapKey(ctx, s.name, string(version), azkeys.KeyOperationParameters{Algorithm: &algorithm, Value: wrapped}, nil)
	if err != nil {
		return nil, classify(err)
	}
	return out.Result, nil
}

// isVersion refuses what could not stand in a path as one name.
func isVersion(v []byte) bool {
	for _, c := range v {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return len(v) > 0
}

// Advise names the commands of Azure.
func (s *service) Advise(what keyring.Operation) string {
	switch what {
	case keyring.Create:
		return "run 'az keyvault key create --kty RSA --size 3072 --ops wrapKey unwrapKey', and give the server's identity the role Key Vault Crypto Service Encryption User on the key"
	case keyring.Rotate:
		return "run 'az keyvault key rotate' for " + s.name + ": what is wrapped from then on uses the new version, and older versions go on unwrapping while they are enabled"
	case keyring.Drop:
		return "remove the key from kek.also; 'az keyvault key delete' deletes it at Azure, and with it every backup that needs it"
	}
	return ""
}

// classify reads what an error means. Nothing of its text is passed on.
func classify(err error) error {
	var response *azcore.ResponseError
	if !errors.As(err, &response) {
		return fmt.Errorf("azurekv: %w", keyring.ErrKMSUnavailable)
	}
	switch response.StatusCode {
	case http.StatusBadRequest:
		return fmt.Errorf("azurekv: %w", keyring.ErrUnwrap)
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return fmt.Errorf("azurekv: %w", keyring.ErrKEKRefused)
	}
	return fmt.Errorf("azurekv: %w", keyring.ErrKMSUnavailable)
}
