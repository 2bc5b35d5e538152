// Package client calls a Tokenkeep server.
//
// It promises that a call is repeated only where repeating does no harm: when
// its method is idempotent, when it only reads, when it carries an idempotency
// key under which the service knows it again, or when the service said that it
// did nothing. Retries, waits and the size of answers are bounded, and errors
// can be told apart with errors.Is.
// It never follows a redirect, which would hand the key to another server; it
// never prints the key or puts it into an error; and no error repeats ids or
// other values that were sent or came back. One exception is the server's: it
// names the tokens that it could not find for Detokenize.
//
// The key travels in a header: use an https address for anything but loopback.
package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
)

// Client calls one server with one key. It is safe for concurrent use.
type Client struct {
	Tenant       Tenant
	Applications Applications
	Keys         Keys
	Permissions  Permissions
	Tokens       Tokens
	Logs         Logs
	Sessions     Sessions
	Access       Access
	Proxies      Proxies
	Reactors     Reactors
	Members      Members
	Roles        Roles

	caller *caller
}

// Option changes how a Client works.
type Option func(*caller) error

// WithKey sets the key that every call carries, but for health checks.
func WithKey(key string) Option {
	return func(c *caller) error {
		if !isVisible(key) {
			return errors.New("client: the key must be of visible ASCII characters, without spaces")
		}
		c.key = func() string { return key }
		return nil
	}
}

// WithHeaderPrefix sets the prefix of the server's own headers. Default SVC.
func WithHeaderPrefix(prefix string) Option {
	return func(c *caller) error {
		letters := strings.Trim(prefix, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-") == ""
		if prefix == "" || !letters {
			return errors.New("client: the header prefix must be of letters, digits and dashes")
		}
		c.prefix = prefix
		return nil
	}
}

// WithHTTPClient sets the HTTP client to call with, for its transport and
// timeout. A copy is used, and redirects are not followed whatever it says.
func WithHTTPClient(h *http.Client) Option {
	return func(c *caller) error {
		if h == nil {
			return errors.New("client: the HTTP client is nil")
		}
		c.http = *h
		return nil
	}
}

// WithRootCAs sets whose certificates the server may have. Default: those that
// the machine trusts. It is not for use with WithHTTPClient, which brings a
// transport of its own.
func WithRootCAs(pool *x509.CertPool) Option {
	return func(c *caller) error {
		if pool == nil {
			return errors.New("client: there are no certificates of authorities")
		}
		c.roots = pool
		return nil
	}
}

// WithRetries sets how often a call that failed is tried again. Default 3;
// 0 turns retries off.
func WithRetries(n int) Option {
	return func(c *caller) error {
		if n < 0 || n > 20 {
			return errors.New("client: the number of retries must be from 0 to 20")
		}
		c.retries = n
		return nil
	}
}

// WithMaxResponse sets how many bytes of an answer are read. A longer one is
// an error. Default 32 MiB.
func WithMaxResponse(bytes int64) Option {
	return func(c *caller) error {
		if bytes < 1 {
			return errors.New("client: the bound on answers must be positive")
		}
		c.maxResponse = bytes
		return nil
	}
}

// New returns a client for the server at baseURL, such as
// "https://vault.example".
func New(baseURL string, options ...Option) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("client: the base URL must be http or https, with a host, and without a user, query or fragment")
	}
	transport := newTransport()
	c := &caller{
		base:        u.Scheme + "://" + u.Host + strings.TrimRight(u.EscapedPath(), "/"),
		prefix:      api.DefaultPrefix,
		http:        http.Client{Transport: transport, Timeout: 2 * time.Minute},
		retries:     3,
		maxResponse: 32 << 20,
		sleep:       sleep,
		now:         time.Now,
	}
	for _, o := range options {
		if err := o(c); err != nil {
			return nil, err
		}
	}
	if c.roots != nil {
		if c.http.Transport != transport {
			return nil, errors.New("client: certificates of authorities and an HTTP client do not go together")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: c.roots, MinVersion: tls.VersionTLS12}
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{
		Tenant: Tenant{c}, Applications: Applications{c}, Keys: Keys{c}, Permissions: Permissions{c},
		Tokens: Tokens{c}, Logs: Logs{c}, Sessions: Sessions{c}, Access: Access{c}, Reactors: Reactors{c}, Proxies: Proxies{c}, Members: Members{c}, Roles: Roles{c}, caller: c,
	}, nil
}

// newTransport makes the transport of a client that was given none. It is not
// http.DefaultTransport, which others may have replaced.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// isVisible reports whether a text can stand in a header as it is.
func isVisible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}
