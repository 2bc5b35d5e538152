package egress_test

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/egress"
	"github.com/tokenkeep/tokenkeep/internal/egress/egresstest"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// TestMain names a proxy in the environment at which nobody listens: every
// answer in these tests came without it. net/http reads the variables once in
// a process, so a single test could not tell.
func TestMain(m *testing.M) {
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"} {
		if err := os.Setenv(name, "http://127.0.0.1:1"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// newDestination starts a TLS server at example.com on 127.0.0.1, which
// the settings open and whose authority they trust.
func newDestination(t *testing.T, s egress.Settings, h http.HandlerFunc, change ...func(*httptest.Server)) (world, string) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // broken handshakes are what some tests want
	for _, f := range change {
		f(server)
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	if s.CAFile == "" {
		s.CAFile = filepath.Join(t.TempDir(), "ca.pem")
		block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		if err := os.WriteFile(s.CAFile, block, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.AllowNetworks = append(s.AllowNetworks, netip.MustParsePrefix("127.0.0.1/32"))
	w := newWorld(t, s)
	w.names.Set("example.com", egresstest.Answer{Addresses: []string{"127.0.0.1"}}) // the name in the certificate
	w.names.Set("other.example", egresstest.Answer{Addresses: []string{"127.0.0.1"}})
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return w, "https://example.com:" + u.Port() + "/"
}

func TestConnectionsAreReusedForOneTenantAndNeverForAnother(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(name, func(t *testing.T) {
			w, target := newDestination(t, egress.Settings{}, func(rw http.ResponseWriter, r *http.Request) {
				_, _ = fmt.Fprint(rw, r.RemoteAddr, " ", r.Proto)
			}, func(s *httptest.Server) { s.EnableHTTP2 = http2 })
			read := func(tenant string) string {
				answer, err := w.get(t, tenant, target)
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(answer.Body)
				if err != nil {
					t.Fatal(err)
				}
				_ = answer.Body.Close()
				return string(b)
			}
			first, again, other := read("t1"), read("t1"), read("t2")
			if first != again {
				t.Errorf("the second call of a tenant came from %s, want the connection of the first, %s", again, first)
			}
			if other == first {
				t.Errorf("a call of another tenant came over the same connection, %s", other)
			}
			if !strings.HasSuffix(first, name) {
				t.Errorf("the call was %s, want %s", first, name)
			}
		})
	}
}

func TestTenantsThatHaveNotCalledLatelyLoseTheirConnections(t *testing.T) {
	closed := make(chan struct{}, 1)
	w, target := newDestination(t, egress.Settings{}, func(http.ResponseWriter, *http.Request) {}, func(s *httptest.Server) {
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				select {
				case closed <- struct{}{}:
				default:
				}
			}
		}
	})
	if _, err := w.get(t, "first", target); err != nil {
		t.Fatal(err)
	}
	for i := range egress.MaxPools {
		// Refused before a connection is made: the pool is what counts.
		_, _ = w.get(t, fmt.Sprint("tenant ", i), "https://nowhere.example/")
	}
	waittest.Receive(t, "the connection of the tenant that called longest ago is closed", closed)
}

func TestAnAnswerIsPassedOnAsItCame(t *testing.T) {
	w, target := newDestination(t, egress.Settings{}, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Encoding", "gzip")
		rw.Header().Set("Saw-Encoding", r.Header.Get("Accept-Encoding"))
		rw.Header().Set("Saw-Host", r.Host)
		rw.Header().Set("Saw-URI", r.RequestURI)
		z := gzip.NewWriter(rw)
		_, _ = z.Write([]byte("packed"))
		_ = z.Close()
	}, func(s *httptest.Server) { s.EnableHTTP2 = false })
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "elsewhere.example"
	r.URL.Opaque, r.URL.RawQuery = "/a%2Fb/c;d", "x=1"
	answer, err := w.Transport("t1", 0).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	b, err := io.ReadAll(answer.Body)
	if err != nil || !strings.HasPrefix(string(b), "\x1f\x8b") {
		t.Errorf("the body came as %q (%v), want it as it was packed", b, err)
	}
	for header, want := range map[string]string{"Saw-Encoding": "", "Saw-Host": r.URL.Host, "Saw-URI": "/a%2Fb/c;d?x=1"} {
		if got := answer.Header.Get(header); got != want {
			t.Errorf("%s = %q, want %q", header, got, want)
		}
	}
}

func TestARequestThatCouldNameASecondHostIsRefused(t *testing.T) {
	w, target := newDestination(t, egress.Settings{}, func(http.ResponseWriter, *http.Request) {})
	for name, change := range map[string]func(*url.URL){
		"a host in the path":        func(u *url.URL) { u.Opaque = "//127.0.0.1/" },
		"an absolute request line":  func(u *url.URL) { u.Opaque = "http://127.0.0.1/" },
		"a space":                   func(u *url.URL) { u.Opaque = "/ HTTP/1.1" },
		"a newline":                 func(u *url.URL) { u.Opaque = "/\r\nHost: x" },
		"a path without its slash":  func(u *url.URL) { u.Path = "x" },
		"a user":                    func(u *url.URL) { u.User = url.User("x") },
		"no host":                   func(u *url.URL) { u.Host = "" },
		"another scheme":            func(u *url.URL) { u.Scheme = "http" },
		"a scheme of another world": func(u *url.URL) { u.Scheme = "file" },
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			body := &closing{Reader: strings.NewReader("x")}
			r.Body = body
			change(r.URL)
			if _, err := w.Transport("t1", 0).RoundTrip(r); !errors.Is(err, egress.ErrForbidden) {
				t.Errorf("RoundTrip = %v, want a refusal", err)
			}
			if !body.closed {
				t.Error("the body of the request was left open")
			}
		})
	}
	if n := w.witness.Connections(); n != 0 {
		t.Errorf("%d connections were made, want none", n)
	}
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestWhatGoesWrongHasANameAndNoAddress(t *testing.T) {
	for name, test := range map[string]struct {
		handle   http.HandlerFunc
		change   func(*httptest.Server)
		settings egress.Settings
		host     string // in place of the destination's
		want     error
		kind     fault.Kind
	}{
		"slow":                      {handle: func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() }, want: egress.ErrTimeout, kind: fault.Timeout},
		"a header too large":        {handle: func(rw http.ResponseWriter, _ *http.Request) { rw.Header().Set("X", strings.Repeat("x", 80<<10)) }, want: egress.ErrUnreachable, kind: fault.BadGateway},
		"no such name":              {host: "nowhere.example", want: egress.ErrNoSuchHost, kind: fault.BadGateway},
		"a name that is not proven": {host: "other.example", want: egress.ErrCertificate, kind: fault.BadGateway},
		"an unknown authority":      {settings: egress.Settings{CAFile: otherAuthority(t)}, want: egress.ErrCertificate, kind: fault.BadGateway},
		"an old version of TLS": {change: func(s *httptest.Server) {
			s.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
		},
			want: egress.ErrUnreachable, kind: fault.BadGateway},
		"a broken connection": {handle: func(rw http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, want: egress.ErrUnreachable, kind: fault.BadGateway},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %v", name, http2), func(t *testing.T) {
				if test.handle == nil {
					test.handle = func(http.ResponseWriter, *http.Request) {}
				}
				w, target := newDestination(t, test.settings, test.handle, func(s *httptest.Server) {
					s.EnableHTTP2 = http2
					if test.change != nil {
						test.change(s)
					}
				})
				if test.host != "" {
					target = strings.Replace(target, "example.com", test.host, 1)
				}
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader("x"))
				if err != nil {
					t.Fatal(err)
				}
				span := time.Duration(0)
				if errors.Is(test.want, egress.ErrTimeout) {
					span = 50 * time.Millisecond
				}
				_, err = w.Transport("t1", span).RoundTrip(r)
				if !errors.Is(err, test.want) || fault.Of(err).Kind() != test.kind {
					t.Errorf("RoundTrip = %v, want %v", err, test.want)
				}
				if err != nil && (strings.Contains(err.Error(), "127.0.0") || strings.Contains(err.Error(), "example")) {
					t.Errorf("RoundTrip repeats the destination: %v", err)
				}
			})
		}
	}
}

const unrelatedCertificate = `-----BEGIN CERTIFICATE-----
MIIBSjCB8aADAgECAgEBMAoGCCqGSM49BAMCMBQxEjAQBgNVBAMTCXVucmVsYXRl
ZDAgFw03MDAxMDEwMDAwMDBaGA8yMTI2MDEwMTAwMDAwMFowFDESMBAGA1UEAxMJ
dW5yZWxhdGVkMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEIWjGkFY9TAlJc5lD
Vy8Pit93N4dhRoienlnolCu2lo4xGusBYUzv4icGu/xtgioApJ4CUGXE1BirDFYU
oYaD/KMyMDAwDwYDVR0TAQH/BAUwAwEB/zAdBgNVHQ4EFgQUVW9cH8njGsYc7wju
O2Kz1AGyxf8wCgYIKoZIzj0EAwIDSAAwRQIgLeP3+5odnyf/Ozyn9ZWcOvm3GU0K
BkvaFX+OScBGxhoCIQDwnnAKUXY3EvSbxWIQjQQ99IWhB8efOyNwDN4IzGVILw==
-----END CERTIFICATE-----
`

// otherAuthority writes a certificate that signed nothing of ours.
func otherAuthority(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, []byte(unrelatedCertificate), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheWaitForACallersOwnBodyIsNotTheDestinationsDelay(t *testing.T) {
	w, target := newDestination(t, egress.Settings{}, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(rw, r.Body)
	})
	call := func(span time.Duration) error {
		reader, writer := io.Pipe()
		go func() {
			time.Sleep(span + span/4) // longer than the destination may take: the event is that nothing happens
			_, _ = writer.Write([]byte("late"))
			_ = writer.Close()
		}()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, reader)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := w.Transport("t1", span).RoundTrip(r)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		if b, err := io.ReadAll(answer.Body); string(b) != "late" || err != nil {
			t.Errorf("read %q, %v; want the body", b, err)
		}
		return nil
	}
	// A destination on a busy machine may need more time once it has the body; the
	// body is late by more than the destination has, however much that is.
	var err error
	for span := 250 * time.Millisecond; span < time.Minute; span *= 2 {
		if err = call(span); err == nil || !errors.Is(err, egress.ErrTimeout) {
			break
		}
	}
	if err != nil {
		t.Errorf("RoundTrip = %v, want the answer", err)
	}
}

func TestAnAnswerThatBreaksOffSaysSo(t *testing.T) {
	w, target := newDestination(t, egress.Settings{}, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Length", "100")
		_, _ = rw.Write([]byte("begin"))
		rw.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	answer, err := w.get(t, "t1", target)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(answer.Body); !errors.Is(err, egress.ErrBroken) {
		t.Errorf("reading the body = %v, want ErrBroken", err)
	}
}

func TestACallerThatGivesUpGetsItsOwnCause(t *testing.T) {
	arrived := make(chan struct{})
	w, target := newDestination(t, egress.Settings{}, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})
	gone := errors.New("the caller went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-arrived
		cancel(gone)
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Transport("t1", 0).RoundTrip(r); !errors.Is(err, gone) {
		t.Errorf("RoundTrip = %v, want the cause", err)
	}
}

func TestWithoutATenantNothingGoesOut(t *testing.T) {
	w, target := newDestination(t, egress.Settings{}, func(http.ResponseWriter, *http.Request) {})
	if _, err := w.get(t, "", target); err == nil {
		t.Error("RoundTrip without a tenant went through")
	}
	if _, err := w.Dial(t.Context(), "", "127.0.0.1", w.witness.Port()); err == nil {
		t.Error("Dial without a tenant went through")
	}
	if n := w.witness.Connections(); n != 0 {
		t.Errorf("%d connections were made, want none", n)
	}
}
