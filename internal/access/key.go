package access

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/base58"
	"github.com/tokenkeep/tokenkeep/internal/luhn"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// Keys look like key_<env>_<kind>_<tenant><secret>, nonces like
// nonce_<env>_<tenant><secret>. The tenant is in clear, so that a look-up goes
// straight to that tenant's rows; of the whole text only a keyed hash is kept.
const (
	tenantBytes, tenantWidth = 16, 22
	// 160 random bits, of which people are shown four characters, at most 24
	// bits, and more than 128 stay hidden.
	secretBytes, secretWidth = 20, 28
	secretShown              = 4

	maxEnvironment = 16 // so that a key has at most 77 characters
)

// KeyKind says what a key opens.
type KeyKind uint8

// The kinds. An API key is one of the first four.
const (
	PublicKey KeyKind = iota + 1
	PrivateKey
	ManagementKey
	SessionKey
	ProxyKey
	Nonce     // authorizes a session, once
	SignInKey // a member's session, in a cookie
	LinkCode  // signs a member in, once
)

// keyForms has the text around the environment for each kind.
var keyForms = [...]struct{ before, after string }{
	PublicKey:     {"key_", "_pub_"},
	PrivateKey:    {"key_", "_pvt_"},
	ManagementKey: {"key_", "_mgt_"},
	SessionKey:    {"key_", "_sess_"},
	ProxyKey:      {"key_", "_proxy_"},
	Nonce:         {"nonce_", "_"},
	SignInKey:     {"signin_", "_"},
	LinkCode:      {"link_", "_"},
}

// KeyKind returns the kind of this type's keys; 0 for a type that is none of ours.
func (t ApplicationType) KeyKind() KeyKind {
	switch t {
	case Public:
		return PublicKey
	case Private:
		return PrivateKey
	case Management:
		return ManagementKey
	}
	return 0
}

// Key is a key or a nonce that is well formed; whether it opens anything is
// for its hash to tell.
type Key struct {
	kind   KeyKind
	tenant string
	text   secret.Text
	prefix string
}

var errKeyForm = errors.New("access: a key takes a known kind, an environment of 1 to 16 lower-case letters and digits, and a tenant's id")

// NewKey makes a key with randomness from random.
func NewKey(random io.Reader, environment string, kind KeyKind, tenant string) (Key, error) {
	id, err := uuid.Parse(tenant)
	if err != nil || id.String() != tenant || !isEnvironment(environment) || kind == 0 || int(kind) >= len(keyForms) {
		return Key{}, errKeyForm
	}
	var hidden [secretBytes]byte
	if _, err := io.ReadFull(random, hidden[:]); err != nil {
		return Key{}, fmt.Errorf("make a key: %w", err)
	}
	form := keyForms[kind]
	text := form.before + environment + form.after + base58.EncodeFixed(id[:], tenantWidth) + base58.EncodeFixed(hidden[:], secretWidth)
	return Key{kind: kind, tenant: tenant, text: secret.NewText(text), prefix: prefixOf(text)}, nil
}

// ParseKey reads a key of one of the allowed kinds, and reports whether the
// text is one. It asks nobody, so that junk costs little.
func ParseKey(text secret.Text, allowed ...KeyKind) (Key, bool) {
	s := text.Reveal()
	head, body, ok := cutEnd(s, tenantWidth+secretWidth)
	if !ok {
		return Key{}, false
	}
	kind := kindOf(head)
	if kind == 0 || !slices.Contains(allowed, kind) {
		return Key{}, false
	}
	var tenant uuid.UUID
	var hidden [secretBytes]byte
	if !base58.DecodeFixed(tenant[:], body[:tenantWidth]) || !base58.DecodeFixed(hidden[:], body[tenantWidth:]) {
		return Key{}, false
	}
	return Key{kind: kind, tenant: tenant.String(), text: text, prefix: prefixOf(s)}, true
}

// Kind returns what the key opens.
func (k Key) Kind() KeyKind { return k.kind }

// Tenant returns the id of the tenant that the key names.
func (k Key) Tenant() string { return k.tenant }

// Text returns the whole key, to be hashed or to be shown once.
func (k Key) Text() secret.Text { return k.text }

// Prefix returns the first characters, by which people tell keys apart.
func (k Key) Prefix() string { return k.prefix }

// NewID returns a fresh id for a resource or a trace, a UUID of version 4.
func NewID() string {
	for {
		if id := uuid.NewString(); FitForID(id) {
			return id
		}
	}
}

// FitForID reports whether the digits of a UUID make no card number, with the
// dashes or without, which they do once in 80: ids are written where card
// numbers are searched for and left out. Whoever makes one draws until it fits.
func FitForID(id string) bool { return !luhn.HasCard(strings.ReplaceAll(id, "-", "")) }

func prefixOf(text string) string { return text[:len(text)-secretWidth+secretShown] }

func cutEnd(s string, n int) (head, end string, ok bool) {
	if len(s) < n {
		return "", "", false
	}
	return s[:len(s)-n], s[len(s)-n:], true
}

// kindOf finds the kind by the text before the tenant; 0 when there is none.
func kindOf(head string) KeyKind {
	for kind := PublicKey; kind <= LinkCode; kind++ {
		form := keyForms[kind]
		rest, before := strings.CutPrefix(head, form.before)
		environment, after := strings.CutSuffix(rest, form.after)
		if before && after && isEnvironment(environment) {
			return kind
		}
	}
	return 0
}

func isEnvironment(s string) bool {
	if s == "" || len(s) > maxEnvironment {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}
