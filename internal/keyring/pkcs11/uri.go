package pkcs11

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/pkcs11/wire"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

var errURI = errors.New("must look like pkcs11:token=LABEL;object=KEY?module-path=/usr/lib/module.so&pin-source=file:/etc/tokenkeep/pin")

// location is what a URI says.
type location struct {
	target    wire.Target
	pinSource string // path of a file; empty when the PIN comes from elsewhere
}

// parse reads a URI as RFC 7512 defines it. Of its attributes it takes those that
// name one AES key, and refuses the rest: ignoring one could name another key.
func parse(uri string) (l location, err error) {
	rest, found := strings.CutPrefix(uri, "pkcs11:")
	if !found {
		return l, errURI
	}
	path, query, _ := strings.Cut(rest, "?")
	err = attributes(path, ";", func(name, value string) error {
		switch name {
		case "token":
			l.target.Token = value
		case "serial":
			l.target.Serial = value
		case "object":
			l.target.Object = value
		case "id":
			l.target.ID = []byte(value)
		case "type":
			if value != "secret-key" {
				return errors.New("type must be secret-key")
			}
		default:
			return errors.New("unknown attribute; it takes token, serial, object, id and type")
		}
		return nil
	})
	if err != nil {
		return l, err
	}
	err = attributes(query, "&", func(name, value string) error {
		switch name {
		case "module-path":
			l.target.Module = value
		case "pin-source":
			l.pinSource = strings.TrimPrefix(strings.TrimPrefix(value, "file:"), "//")
			if !filepath.IsAbs(l.pinSource) {
				return errors.New("pin-source must be an absolute path, such as file:/etc/tokenkeep/pin")
			}
		case "pin-value":
			return errors.New("pin-value would show the PIN: put it into a file and name that in pin-source, or into the environment variable TOKENKEEP_KEK_PIN")
		default:
			return errors.New("unknown attribute in the query; it takes module-path and pin-source")
		}
		return nil
	})
	switch {
	case err != nil:
		return l, err
	case l.target.Token == "" || l.target.Object == "":
		return l, errURI
	case !filepath.IsAbs(l.target.Module):
		return l, errors.New("module-path must be the absolute path of the PKCS#11 module")
	}
	if _, err := l.target.Encode(); err != nil || len(l.id()) > 255 {
		return l, errors.New("token, object and id are too long")
	}
	return l, nil
}

// attributes calls each with the names and values of a list, each name once.
func attributes(list, separator string, each func(name, value string) error) error {
	seen := map[string]bool{}
	for attribute := range strings.SplitSeq(list, separator) {
		if attribute == "" {
			continue
		}
		name, value, found := strings.Cut(attribute, "=")
		value, err := url.PathUnescape(value)
		if err != nil || !found || seen[name] {
			return errURI
		}
		seen[name] = true
		if err := each(name, value); err != nil {
			return err
		}
	}
	return nil
}

// id returns the id of the key: without module and serial number, so that the
// token may move.
func (l location) id() string {
	id := "pkcs11:token=" + escape(l.target.Token) + ";object=" + escape(l.target.Object)
	if len(l.target.ID) > 0 {
		id += ";id=" + escape(string(l.target.ID))
	}
	return id
}

// escape writes a value of an attribute the one way that RFC 7512 allows for all
// characters.
func escape(value string) string {
	var b strings.Builder
	for _, c := range []byte(value) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// pin reads the PIN: again whenever the program starts, so that a new one needs no
// restart of the server.
func (l location) pin(given secret.Text) (secret.Text, error) {
	if l.pinSource == "" {
		return given, nil
	}
	info, err := os.Stat(l.pinSource)
	if err != nil {
		return secret.Text{}, fmt.Errorf("pkcs11: the file that pin-source names cannot be read: %w", keyring.ErrKEKRefused)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return secret.Text{}, fmt.Errorf("pkcs11: others may use the file that pin-source names: make it mode 0600: %w", keyring.ErrKEKRefused)
	}
	b, err := os.ReadFile(l.pinSource)
	if err != nil {
		return secret.Text{}, fmt.Errorf("pkcs11: the file that pin-source names cannot be read: %w", keyring.ErrKEKRefused)
	}
	defer clear(b)
	return secret.NewText(strings.TrimRight(string(b), "\r\n")), nil
}
