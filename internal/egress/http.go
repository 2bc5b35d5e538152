package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxResponseHeader bounds what a destination may send before its body.
const maxResponseHeader = 64 << 10

// Transport sends the requests of one tenant. firstByte is how long a
// destination may take to answer; 0 means FirstByteTimeout. The time that the
// request's own body takes to arrive here does not count.
//
// Use RoundTrip itself: answers are then as the destination gave them, with
// redirects not followed and bodies not decompressed. Its errors are those of
// this package, or the cause for which the request's context ended. The Host
// header is always the destination's. As net/http has it, a request is sent
// again when a reused connection turns out closed and the destination cannot
// have seen it, or its method or an Idempotency-Key says that twice is once;
// that takes a GetBody.
func (e *Egress) Transport(tenant string, firstByte time.Duration) http.RoundTripper {
	if firstByte <= 0 {
		firstByte = FirstByteTimeout
	}
	return transport{e, tenant, firstByte}
}

type transport struct {
	egress    *Egress
	tenant    string
	firstByte time.Duration
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	e := t.egress
	u := *r.URL
	err := e.policy.destination(&u)
	if err == nil && !isPath(&u) {
		err = errURL
	}
	if err == nil && t.tenant == "" {
		err = errNoTenant
	}
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper owns the body, whatever happens
		}
		return nil, e.refused(err)
	}
	caller := r.Context()
	ctx, cancel := context.WithCancelCause(caller)
	patience := newPatience(t.firstByte, func() { cancel(ErrTimeout) })
	r = r.WithContext(ctx)
	r.URL, r.Host = &u, ""
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = sentBody{r.Body, patience}
	}
	answer, err := e.pools.of(t.tenant, e.newTransport).RoundTrip(r)
	patience.end()
	if err != nil {
		err = plain(ctx, err)
		cancel(nil)
		return nil, err
	}
	answer.Body = &receivedBody{answer.Body, ctx, cancel}
	return answer, nil
}

// isPath refuses the forms in which a URL could bring a second host, or bytes
// that end the request line. A caller may set Opaque to a path that is to
// leave byte for byte.
func isPath(u *url.URL) bool {
	if u.Opaque == "" {
		return u.Path == "" || u.Path[0] == '/'
	}
	for i := range len(u.Opaque) {
		if c := u.Opaque[i]; c <= ' ' || c >= 0x7f || c == '#' || c == '?' {
			return false
		}
	}
	return u.Opaque[0] == '/' && !strings.HasPrefix(u.Opaque, "//")
}

// newTransport makes the pool of one tenant.
func (e *Egress) newTransport() *http.Transport {
	return &http.Transport{
		Proxy: nil, // not from the environment: a proxy would do the dialling for us, unchecked
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			host, port, err := splitAddress(address)
			if err != nil {
				return nil, err
			}
			return e.dial(ctx, host, port)
		},
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: e.roots},
		TLSHandshakeTimeout:    TLSTimeout,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second}, // notices a connection that died silently
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxResponseHeader,
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    128, // as many calls at once need no new connections
		IdleConnTimeout:        time.Minute,
		ExpectContinueTimeout:  time.Second,
	}
}

// sentBody stops the clock while the request's body is waited for: a slow
// caller is not a slow destination.
type sentBody struct {
	io.ReadCloser
	patience *patience
}

func (b sentBody) Read(p []byte) (int, error) {
	b.patience.pause()
	defer b.patience.resume()
	return b.ReadCloser.Read(p)
}

// receivedBody ends the request's context with the body, and keeps addresses
// out of its errors.
type receivedBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func (b *receivedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		if err = context.Cause(b.ctx); err == nil {
			err = ErrBroken
		}
	}
	return n, err
}

func (b *receivedBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel(nil)
	if err != nil {
		return ErrBroken
	}
	return nil
}
