package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// certificate is the server's certificate, which can be exchanged while it
// serves: connections that are open keep the one they began with.
type certificate struct {
	certFile, keyFile string
	current           atomic.Pointer[tls.Certificate]
}

// CertificateError says that the TLS files could not be used.
type CertificateError struct{ cause error }

func (e *CertificateError) Error() string {
	// The library's message never holds parts of a key, but may name a file.
	if pe := (*os.PathError)(nil); errors.As(e.cause, &pe) {
		return fmt.Sprintf("tls.cert_file or tls.key_file cannot be read: %v", pe.Err)
	}
	return "tls.cert_file and tls.key_file do not hold a certificate and its key: " + e.cause.Error()
}

func (e *CertificateError) Unwrap() error { return e.cause }

func loadCertificate(certFile, keyFile string) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile}
	return c, c.reload()
}

func (c *certificate) reload() error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return &CertificateError{err}
	}
	c.current.Store(&pair)
	return nil
}

func (c *certificate) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.current.Load(), nil
		},
	}
}
