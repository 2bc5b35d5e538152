package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// issue writes a new certificate with the serial number, and its key.
func issue(t *testing.T, certFile, keyFile string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, certFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	mustWrite(t, keyFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
}

func TestSIGHUPTakesOverTheTLSFiles(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	issue(t, cert, key, 1)
	p := start(t, "serve", "--addr", "127.0.0.1:0", "--data", filepath.Join(dir, "data"), "--kek-file", keyFile(t),
		"--tls-cert-file", cert, "--tls-key-file", key, "--drain-delay", "0s")
	served := func() int64 {
		t.Helper()
		c, err := tls.Dial("tcp", strings.TrimPrefix(p.url, "https://"), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	if got := served(); got != 1 {
		t.Fatalf("serial %d, want 1", got)
	}
	issue(t, cert, key, 2)
	p.signal(syscall.SIGHUP)
	waittest.Until(t, "the new certificate is served", func() bool { return served() == 2 })

	mustWrite(t, cert, planted)
	p.signal(syscall.SIGHUP)
	waittest.Until(t, "the log tells of the broken file", func() bool { return strings.Contains(p.errOut.String(), "the TLS files were not taken over") })
	if got := served(); got != 2 {
		t.Errorf("with a broken file: serial %d, want the old one to stay", got)
	}
	if log := p.errOut.String(); strings.Contains(log, planted) || strings.Contains(log, dir) {
		t.Errorf("the log repeats the file or its path: %s", log)
	}
	if code := p.end(); code != 0 {
		t.Errorf("SIGTERM ended serve with %d: %s", code, p.errOut)
	}
}
