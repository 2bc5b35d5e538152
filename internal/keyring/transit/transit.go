// Package transit encrypts keys with the transit engine of HashiCorp Vault or
// OpenBao.
//
// It promises to renew its token before the lease ends, to log in again when the
// token is refused, and to return when the context ends. It never sends anything
// but fresh keys of 32 bytes, never follows a redirect to another host, and never
// passes on what the server said: a response may repeat what was sent.
package transit

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/envelope"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// Options are what does not stand in the URI.
type Options struct {
	// Token is the token for auth=token when no token_file is given.
	Token secret.Text
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Envelope are the settings of calls.
	Envelope envelope.Options
}

// kubernetesJWT is where Kubernetes puts the token of a pod's service account.
const kubernetesJWT = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// parameters are what may stand in the query of a URI.
var parameters = []string{"auth", "auth_mount", "role", "role_id", "secret_id_file", "jwt_file", "token_file", "namespace", "ca_file", "plain_http", "id"}

// Open returns the KMS of a key such as
// hcvault://vault.example:8200/transit/keys/tokenkeep?auth=approle&role_id=…&secret_id_file=….
// It calls nobody.
func Open(uri string, o Options) (*envelope.KMS, error) {
	c, err := newClient(uri, o)
	if err != nil {
		return nil, err
	}
	return envelope.New(c.id, c, o.Envelope), nil
}

// client calls one server about one key.
type client struct {
	base        string // scheme and host
	mount, name string
	id          string
	namespace   string
	login       func(ctx context.Context) (*lease, error)
	http        *http.Client
	now         func() time.Time

	mu    sync.Mutex // guards lease, and lets one at a time get a new one
	lease *lease
}

// lease is a token with the time at which it is to be renewed.
type lease struct {
	token     secret.Text
	renewable bool
	renewAt   time.Time // the zero time means never
}

var errURI = errors.New("must look like hcvault://host:8200/transit/keys/NAME?auth=approle|kubernetes|token")

func newClient(uri string, o Options) (*client, error) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "hcvault" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return nil, errURI
	}
	mount, name, found := strings.Cut(strings.Trim(u.Path, "/"), "/keys/")
	if !found || mount == "" || name == "" || strings.Contains(name, "/") {
		return nil, errURI
	}
	q := u.Query()
	for p, values := range q {
		if !slices.Contains(parameters, p) || len(values) != 1 {
			return nil, fmt.Errorf("unknown or repeated parameter in the query; it takes %s", strings.Join(parameters, ", "))
		}
	}
	c := &client{
		base: "https://" + u.Host, mount: mount, name: name, namespace: q.Get("namespace"), now: o.Now,
		id: "hcvault:" + mount + "/keys/" + name,
	}
	if id := q.Get("id"); id != "" {
		c.id = id
	}
	if c.now == nil {
		c.now = time.Now
	}
	if q.Get("plain_http") == "true" {
		c.base = "http://" + u.Host
	}
	if c.http, err = httpClient(q.Get("ca_file")); err != nil {
		return nil, err
	}
	return c, c.chooseLogin(q, o)
}

// httpClient trusts the machine's authorities, or those in a file.
func httpClient(caFile string) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		pool := x509.NewCertPool()
		if err != nil || !pool.AppendCertsFromPEM(pem) {
			return nil, errors.New("ca_file holds no certificate that can be read")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) > 3 || r.URL.Host != via[0].URL.Host || r.URL.Scheme != via[0].URL.Scheme {
			return http.ErrUseLastResponse // the token must not go elsewhere
		}
		return nil
	}}, nil
}

// chooseLogin sets how the client gets a token.
func (c *client) chooseLogin(q url.Values, o Options) error {
	at := func(standard string) string {
		if m := q.Get("auth_mount"); m != "" {
			return m
		}
		return standard
	}
	switch q.Get("auth") {
	case "approle":
		if q.Get("role_id") == "" || q.Get("secret_id_file") == "" {
			return errors.New("auth=approle takes role_id and secret_id_file")
		}
		c.login = func(ctx context.Context) (*lease, error) {
			return c.logIn(ctx, at("approle"), "role_id", q.Get("role_id"), "secret_id", q.Get("secret_id_file"))
		}
	case "kubernetes":
		if q.Get("role") == "" {
			return errors.New("auth=kubernetes takes role")
		}
		file := q.Get("jwt_file")
		if file == "" {
			file = kubernetesJWT
		}
		c.login = func(ctx context.Context) (*lease, error) {
			return c.logIn(ctx, at("kubernetes"), "role", q.Get("role"), "jwt", file)
		}
	case "token", "":
		file := q.Get("token_file")
		if file == "" && o.Token.IsZero() {
			return errors.New("auth=token takes token_file, or the token in the environment variable TOKENKEEP_KEK_TOKEN")
		}
		c.login = func(ctx context.Context) (*lease, error) { return c.adopt(ctx, file, o.Token) }
	default:
		return errors.New("auth must be approle, kubernetes or token")
	}
	return nil
}

// logIn exchanges a role and a secret from a file for a token.
func (c *client) logIn(ctx context.Context, mount, roleName, role, secretName, file string) (*lease, error) {
	proof, err := readSecret(file)
	if err != nil {
		return nil, err
	}
	var out authentication
	in := map[string]string{roleName: role, secretName: proof.Reveal()}
	if err := c.request(ctx, http.MethodPost, "auth/"+mount+"/login", secret.Text{}, in, &out); err != nil {
		return nil, err
	}
	return c.leaseOf(out), nil
}

// adopt uses a token that exists, and finds out for how long.
func (c *client) adopt(ctx context.Context, file string, token secret.Text) (*lease, error) {
	if file != "" {
		var err error
		if token, err = readSecret(file); err != nil {
			return nil, err
		}
	}
	var out struct {
		Data struct {
			TTL       int64 `json:"ttl"`
			Renewable bool  `json:"renewable"`
		} `json:"data"`
	}
	if err := c.request(ctx, http.MethodGet, "auth/token/lookup-self", token, nil, &out); err != nil {
		return nil, err
	}
	l := &lease{token: token, renewable: out.Data.Renewable}
	if out.Data.TTL > 0 {
		l.renewAt = c.now().Add(time.Duration(out.Data.TTL) * time.Second * 2 / 3)
	}
	return l, nil
}

// authentication is what a login and a renewal return.
type authentication struct {
	Auth struct {
		Token     string `json:"client_token"`
		Lease     int64  `json:"lease_duration"`
		Renewable bool   `json:"renewable"`
	} `json:"auth"`
}

func (c *client) leaseOf(a authentication) *lease {
	l := &lease{token: secret.NewText(a.Auth.Token), renewable: a.Auth.Renewable}
	if a.Auth.Lease > 0 {
		l.renewAt = c.now().Add(time.Duration(a.Auth.Lease) * time.Second * 2 / 3)
	}
	return l
}

func readSecret(file string) (secret.Text, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return secret.Text{}, fmt.Errorf("transit: the file with the credentials cannot be read: %w", keyring.ErrKEKRefused)
	}
	defer clear(b)
	return secret.NewText(string(bytes.TrimSpace(b))), nil
}

// token returns a token that is good for some time. It renews one whose lease is
// two thirds over, and replaces one that was refused.
func (c *client) token(ctx context.Context, refused *lease) (*lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lease
	switch {
	case l == nil, l == refused:
	case l.renewAt.IsZero() || c.now().Before(l.renewAt):
		return l, nil
	case l.renewable:
		var out authentication
		err := c.request(ctx, http.MethodPost, "auth/token/renew-self", l.token, map[string]string{}, &out)
		if err == nil && out.Auth.Token != "" {
			c.lease = c.leaseOf(out)
			return c.lease, nil
		}
		if err != nil && !errors.Is(err, errDenied) {
			return l, nil // it is good for another third of its lease
		}
	}
	l, err := c.login(ctx)
	if err != nil {
		return nil, err
	}
	c.lease = l
	return l, nil
}

// call makes a request with a token, and once more with a new one when the first
// is refused.
func (c *client) call(ctx context.Context, path string, in, out any) error {
	l, err := c.token(ctx, nil)
	if err != nil {
		return err
	}
	err = c.request(ctx, http.MethodPost, path, l.token, in, out)
	if !errors.Is(err, errDenied) {
		return err
	}
	if l, err = c.token(ctx, l); err != nil {
		return err
	}
	return c.request(ctx, http.MethodPost, path, l.token, in, out)
}

// Encrypt encrypts a key with the newest version of the transit key.
func (c *client) Encrypt(ctx context.Context, key []byte) ([]byte, error) {
	var out struct {
		Data struct {
			Ciphertext string `json:"ciphertext"`
		} `json:"data"`
	}
	in := map[string]string{"plaintext": base64.StdEncoding.EncodeToString(key)}
	if err := c.call(ctx, c.mount+"/encrypt/"+c.name, in, &out); err != nil {
		return nil, err
	}
	return []byte(out.Data.Ciphertext), nil
}

// Decrypt decrypts a key with the version of the transit key that it names.
func (c *client) Decrypt(ctx context.Context, encrypted []byte) ([]byte, error) {
	var out struct {
		Data struct {
			Plaintext string `json:"plaintext"`
		} `json:"data"`
	}
	if err := c.call(ctx, c.mount+"/decrypt/"+c.name, map[string]string{"ciphertext": string(encrypted)}, &out); err != nil {
		return nil, err
	}
	key, err := base64.StdEncoding.DecodeString(out.Data.Plaintext)
	if err != nil {
		return nil, keyring.ErrKMSUnavailable
	}
	return key, nil
}

// Probe returns ErrExcess for a token that may create keys: such a token makes a
// deleted key again, under the same name, the next time it encrypts.
func (c *client) Probe(ctx context.Context) error {
	paths := []string{c.mount + "/encrypt/" + c.name, c.mount + "/keys/" + c.name}
	var out struct {
		Data map[string]json.RawMessage `json:"data"`
	}
	if err := c.call(ctx, "sys/capabilities-self", map[string][]string{"paths": paths}, &out); err != nil {
		return err
	}
	for i, path := range paths {
		var capabilities []string
		if json.Unmarshal(out.Data[path], &capabilities) != nil {
			return keyring.ErrKMSUnavailable
		}
		for _, can := range capabilities {
			if can == "root" || can == "create" || i == 1 && (can == "update" || can == "delete") {
				return fmt.Errorf("%w: the token may create or change transit keys; give it only update on %s and %s", keyring.ErrExcess, paths[0], c.mount+"/decrypt/"+c.name)
			}
		}
	}
	return nil
}

// Advise names the commands of Vault and OpenBao.
func (c *client) Advise(what keyring.Operation) string {
	switch what {
	case keyring.Create:
		return fmt.Sprintf(`run 'vault write -f %s/keys/%s', and give the server this policy:
path "%[1]s/encrypt/%[2]s" { capabilities = ["update"] }
path "%[1]s/decrypt/%[2]s" { capabilities = ["update"] }`, c.mount, c.name)
	case keyring.Rotate:
		return fmt.Sprintf("run 'vault write -f %s/keys/%s/rotate': what is wrapped from then on uses the new version, and older versions go on unwrapping", c.mount, c.name)
	case keyring.Drop:
		return fmt.Sprintf("remove the key from kek.also; 'vault delete %s/keys/%s' deletes it at Vault once its deletion_allowed is true, and with it every backup that needs it", c.mount, c.name)
	}
	return ""
}

// What a response says.
var (
	errDenied  = fmt.Errorf("transit: permission denied: %w", keyring.ErrKEKRefused)
	errRefused = fmt.Errorf("transit: the key does not exist or may not be used: %w", keyring.ErrKEKRefused)
	errDown    = fmt.Errorf("transit: %w", keyring.ErrKMSUnavailable)
)

// maxResponse bounds what is read of a response.
const maxResponse = 64 << 10

// request calls the server once.
func (c *client) request(ctx context.Context, method, path string, token secret.Text, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("transit: %w", err)
		}
		defer clear(b)
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+"/v1/"+path, body)
	if err != nil {
		return errDown
	}
	r.Header.Set("X-Vault-Request", "true")
	if !token.IsZero() {
		r.Header.Set("X-Vault-Token", token.Reveal())
	}
	if c.namespace != "" {
		r.Header.Set("X-Vault-Namespace", c.namespace)
	}
	response, err := c.http.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return errDown
	}
	defer func() { _ = response.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	defer clear(b)
	if err != nil {
		return errDown
	}
	if response.StatusCode == http.StatusOK {
		if json.Unmarshal(b, out) != nil {
			return errDown
		}
		return nil
	}
	return classify(response.StatusCode, b)
}

// classify reads what a refusal means. Nothing of the body is passed on.
func classify(status int, body []byte) error {
	switch status {
	case http.StatusForbidden:
		return errDenied
	case http.StatusNotFound:
		return errRefused
	case http.StatusBadRequest:
		text := strings.ToLower(string(body))
		for _, damaged := range []string{"authentication failed", "invalid ciphertext", "could not decode", "unable to decrypt"} {
			if strings.Contains(text, damaged) {
				return keyring.ErrUnwrap
			}
		}
		return errRefused // the key is gone, or its version is not allowed any more
	}
	return errDown // 412, 429, 472, 473, 5xx: try again
}
