// Package gcpkms encrypts keys with Google Cloud KMS. It is experimental: it has
// been tried with a server of our own that follows the published protocol.
//
// It promises to use the application default credentials and nothing else, and
// to return when the context ends. It never sends anything but fresh keys of 32
// bytes, and never passes on what the service said.
package gcpkms

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/envelope"
)

// Options are what does not stand in the URI.
type Options struct {
	// Tokens replace the application default credentials; nil means those.
	Tokens oauth2.TokenSource
	// Envelope are the settings of calls.
	Envelope envelope.Options
}

const (
	scheme   = "gcpkms://"
	endpoint = "https://cloudkms.googleapis.com"
	scope    = "https://www.googleapis.com/auth/cloudkms"
)

var keyName = regexp.MustCompile(`^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$`)

// service is one key.
type service struct {
	name, endpoint string

	mu     sync.Mutex // guards tokens
	tokens oauth2.TokenSource
}

// Open returns the KMS of a key such as
// gcpkms://projects/P/locations/L/keyRings/R/cryptoKeys/K. It calls nobody.
func Open(uri string, o Options) (*envelope.KMS, error) {
	name, query, _ := strings.Cut(strings.TrimPrefix(uri, scheme), "?")
	if !strings.HasPrefix(uri, scheme) || !keyName.MatchString(name) {
		return nil, errors.New("must look like gcpkms://projects/P/locations/L/keyRings/R/cryptoKeys/K")
	}
	s := &service{name: name, endpoint: endpoint, tokens: o.Tokens}
	q, err := url.ParseQuery(query)
	if err != nil || len(q) > 1 || len(q) == 1 && q.Get("endpoint") == "" {
		return nil, errors.New("unknown parameter in the query; it takes endpoint")
	}
	if e := q.Get("endpoint"); e != "" {
		s.endpoint = strings.TrimSuffix(e, "/")
	}
	return envelope.New("gcpkms:"+name, s, o.Envelope), nil
}

// Encrypt encrypts a key with the primary version.
func (s *service) Encrypt(ctx context.Context, key []byte) ([]byte, error) {
	out, err := s.call(ctx, "encrypt", body{Plaintext: key})
	return out.Ciphertext, err
}

// Decrypt decrypts a key with the version that the bytes name.
func (s *service) Decrypt(ctx context.Context, encrypted []byte) ([]byte, error) {
	out, err := s.call(ctx, "decrypt", body{Ciphertext: encrypted})
	return out.Plaintext, err
}

// body is what goes there and what comes back.
type body struct {
	Plaintext  []byte `json:"plaintext,omitempty"`
	Ciphertext []byte `json:"ciphertext,omitempty"`
}

// token returns an access token of the machine's credentials.
func (s *service) token(ctx context.Context) (*oauth2.Token, error) {
	s.mu.Lock()
	tokens := s.tokens
	if tokens == nil {
		// The source outlives this call, and so does its context.
		found, err := google.FindDefaultCredentials(context.WithoutCancel(ctx), scope)
		if err != nil {
			s.mu.Unlock()
			return nil, fmt.Errorf("gcpkms: no application default credentials: %w", keyring.ErrKEKRefused)
		}
		tokens = found.TokenSource
		s.tokens = tokens
	}
	s.mu.Unlock()
	token, err := tokens.Token()
	if err != nil {
		return nil, fmt.Errorf("gcpkms: no access token: %w", keyring.ErrKMSUnavailable)
	}
	return token, nil
}

// maxResponse bounds what is read of a response.
const maxResponse = 64 << 10

func (s *service) call(ctx context.Context, operation string, in body) (out body, err error) {
	down := fmt.Errorf("gcpkms: %w", keyring.ErrKMSUnavailable)
	token, err := s.token(ctx)
	if err != nil {
		return out, err
	}
	sent, err := json.Marshal(in)
	if err != nil {
		return out, down
	}
	defer clear(sent)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.endpoint+"/v1/"+s.name+":"+operation, bytes.NewReader(sent))
	if err != nil {
		return out, down
	}
	token.SetAuthHeader(r)
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return out, down
	}
	defer func() { _ = response.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	defer clear(b)
	switch {
	case err != nil:
		return out, down
	case response.StatusCode != http.StatusOK:
		return out, classify(response.StatusCode, b)
	case json.Unmarshal(b, &out) != nil:
		return body{}, down
	}
	return out, nil
}

// classify reads what a refusal means. Nothing of the body is passed on.
func classify(status int, b []byte) error {
	var out struct {
		Error struct{ Status string }
	}
	_ = json.Unmarshal(b, &out)
	switch {
	case status == http.StatusBadRequest && out.Error.Status == "INVALID_ARGUMENT":
		return fmt.Errorf("gcpkms: %w", keyring.ErrUnwrap)
	case status == http.StatusBadRequest, status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusNotFound:
		return fmt.Errorf("gcpkms: %w", keyring.ErrKEKRefused) // FAILED_PRECONDITION: disabled or destroyed
	}
	return fmt.Errorf("gcpkms: %w", keyring.ErrKMSUnavailable)
}

// Advise names the commands of Google Cloud.
func (s *service) Advise(what keyring.Operation) string {
	switch what {
	case keyring.Create:
		return "run 'gcloud kms keys create' with --purpose=encryption, and give the server's service account the role roles/cloudkms.cryptoKeyEncrypterDecrypter on the key"
	case keyring.Rotate:
		return "run 'gcloud kms keys versions create --primary' for " + s.name + ": what is wrapped from then on uses the new version, and older versions go on unwrapping"
	case keyring.Drop:
		return "remove the key from kek.also; 'gcloud kms keys versions destroy' destroys it at Google, and with it every backup that needs it"
	}
	return ""
}
