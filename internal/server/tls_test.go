package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/server"
)

// pair is a certificate with its key, in files.
type pair struct {
	cert, key string
	pool      *x509.CertPool // trusts every certificate that was issued
}

func newPair(t *testing.T) *pair {
	t.Helper()
	dir := t.TempDir()
	p := &pair{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), x509.NewCertPool()}
	p.issue(t, 1)
	return p
}

// issue writes a new certificate with the serial number, and its key.
func (p *pair) issue(t *testing.T, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, p.cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	mustWrite(t, p.key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	p.pool.AddCert(leaf)
}

func (p *pair) settings() map[string]string {
	return map[string]string{"tls.cert_file": p.cert, "tls.key_file": p.key}
}

// handshake makes a new connection and tells which certificate was served.
func (p *pair) handshake(t *testing.T, url string, c *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	if c == nil {
		c = &tls.Config{}
	}
	c.RootCAs = p.pool
	conn, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), c)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState(), nil
}

func (p *pair) serial(t *testing.T, url string) int64 {
	t.Helper()
	state, err := p.handshake(t, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return state.PeerCertificates[0].SerialNumber.Int64()
}

func TestTheCertificateIsExchangedWhileServing(t *testing.T) {
	p := newPair(t)
	k := keeptest.Start(t, keeptest.Options{Settings: p.settings()})
	if got := p.serial(t, k.URL); got != 1 {
		t.Fatalf("the first certificate has serial %d, want 1", got)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.pool}}}
	defer client.CloseIdleConnections()
	ask := func() {
		t.Helper()
		response, err := client.Get(k.URL + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if got := response.TLS.PeerCertificates[0].SerialNumber.Int64(); got != 1 {
			t.Errorf("the open connection has serial %d, want the one it began with", got)
		}
	}
	ask()
	p.issue(t, 2)
	if got := p.serial(t, k.URL); got != 1 {
		t.Errorf("before Reload: serial %d, want 1", got)
	}
	if err := k.Reload(); err != nil {
		t.Fatalf("Reload = %v", err)
	}
	if got := p.serial(t, k.URL); got != 2 {
		t.Errorf("after Reload: serial %d, want 2", got)
	}
	ask()

	whole := map[string]string{}
	for _, path := range []string{p.cert, p.key} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		whole[path] = string(b)
	}
	other := newPair(t)
	for name, spoil := range map[string]func() error{
		"not PEM":            func() error { return os.WriteFile(p.cert, []byte(planted), 0o600) },
		"an empty key":       func() error { return os.WriteFile(p.key, nil, 0o600) },
		"a key that is gone": func() error { return os.Remove(p.key) },
		"half a certificate": func() error { return os.WriteFile(p.cert, []byte(whole[p.cert][:100]), 0o600) },
		"the key of another": func() error { return copyFile(other.key, p.key) },
		"the two exchanged": func() error {
			return errors.Join(os.WriteFile(p.cert, []byte(whole[p.key]), 0o600), os.WriteFile(p.key, []byte(whole[p.cert]), 0o600))
		},
		"a folder in its place": func() error { return errors.Join(os.Remove(p.cert), os.Mkdir(p.cert, 0o700)) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		err := k.Reload()
		if !errors.As(err, new(*server.CertificateError)) {
			t.Errorf("%s: Reload = %v, want a *server.CertificateError", name, err)
		} else if strings.Contains(err.Error(), planted) || strings.Contains(err.Error(), filepath.Dir(p.key)) {
			t.Errorf("%s: Reload repeats what the files hold or where they are: %v", name, err)
		}
		if got := p.serial(t, k.URL); got != 2 {
			t.Errorf("%s: serial %d, want the old one to stay", name, got)
		}
		for path, text := range whole {
			_ = os.Remove(path)
			mustWrite(t, path, text)
		}
	}
	if err := k.Reload(); err != nil {
		t.Errorf("Reload of the mended files = %v", err)
	}
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o600)
}

func TestReloadWithoutTLSDoesNothing(t *testing.T) {
	if err := keeptest.Start(t, keeptest.Options{}).Reload(); err != nil {
		t.Errorf("Reload = %v, want nil", err)
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	p := newPair(t)
	k := keeptest.Start(t, keeptest.Options{Settings: p.settings()})
	for _, version := range []uint16{tls.VersionTLS10, tls.VersionTLS11, tls.VersionTLS12, tls.VersionTLS13} {
		_, err := p.handshake(t, k.URL, &tls.Config{MinVersion: version, MaxVersion: version})
		if ok := err == nil; ok != (version >= tls.VersionTLS12) {
			t.Errorf("%s: handshake = %v", tls.VersionName(version), err)
		}
	}
	if !strings.Contains(k.Log.String(), "a TLS handshake failed") {
		t.Error("the log does not tell that handshakes failed")
	}
}

func TestHTTP2IsServedAndDrained(t *testing.T) {
	p := newPair(t)
	g := newGate()
	k := keeptest.Start(t, keeptest.Options{Settings: p.settings(), Routes: append(restartRows, g.row())})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.pool}, ForceAttemptHTTP2: true}}
	response, err := client.Get(k.URL + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.ProtoMajor != 2 || response.StatusCode != http.StatusOK {
		t.Errorf("GET /readyz = %s %d, want HTTP/2.0 200", response.Proto, response.StatusCode)
	}
	for _, x := range exchanges() {
		if err := x.try(client, k.URL); err != nil {
			t.Error(err)
		}
	}
	answered := make(chan error, 1)
	go func() { answered <- exchange{"GET", "/gate", nil, tail}.try(client, k.URL) }()
	<-g.entered
	stopped := make(chan error, 1)
	go func() { stopped <- k.Stop() }()
	untilClosed(t, k)
	close(g.open)
	if err := <-answered; err != nil {
		t.Errorf("the request under way: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Stop = %v", err)
	}
}

func TestPlainHTTPOnATLSDoorIsToldSo(t *testing.T) {
	p := newPair(t)
	k := keeptest.Start(t, keeptest.Options{Settings: p.settings()})
	if !strings.HasPrefix(k.URL, "https://") {
		t.Errorf("BaseURL = %s, want https", k.URL)
	}
	c := dial(t, k.URL)
	_, _ = io.WriteString(c, "GET /"+planted+" HTTP/1.1\r\nHost: a\r\nSVC-API-KEY: "+planted+"\r\n\r\n")
	answer, _ := io.ReadAll(c)
	if !strings.HasPrefix(string(answer), "HTTP/1.0 400 ") {
		t.Errorf("plain HTTP = %q, want a 400", answer)
	}
	if strings.Contains(string(answer)+k.Log.String(), planted) {
		t.Error("the answer or the log repeats the request")
	}
}
