package keyring

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	stded25519 "crypto/ed25519"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/prf"
	"github.com/tink-crypto/tink-go/v2/signature"
	"github.com/tink-crypto/tink-go/v2/signature/ed25519"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// The lengths of what the PRFs give out. An index term needs no more than 16
// bytes: without the key nobody can look for two that are equal.
const (
	fingerprintSize = 32
	indexTermSize   = 16
	keyHashSize     = 32
	keyHolderSize   = 16
)

// Keys are the unwrapped keys of one tenant. They do no I/O, so they may be
// used inside a transaction, and they are safe for concurrent use. Get them
// anew for each request: what was rotated meanwhile is then known.
type Keys struct {
	tenant string
	// current is replaced as a whole when the ring learns of other keys, so
	// that a request under way knows a new key before anyone seals with it.
	current atomic.Pointer[keySets]
}

// keySets are the keys as they stood in the store at one moment.
type keySets struct {
	rows    []store.Keyset // what they were made from
	version int64          // of all rows together; rises with every change
	checked time.Time      // when the store last had exactly these
	// before are the keys that these replaced, until beforeEnds: a request
	// under way may have read rows that were sealed anew meanwhile, and the
	// old key destroyed. They open and never seal.
	before     *keySets
	beforeEnds time.Time

	data        *keyset.Handle
	primary     uint32
	aead        tink.AEAD
	fingerprint *prf.Set
	index       *prf.Set
	keyHash     *memo
	signer      tink.Signer
	verifier    *Verifier
}

// newKeySets turns unwrapped keysets, by purpose, into primitives.
func newKeySets(handles map[string]*keyset.Handle) (*keySets, error) {
	s := &keySets{data: handles[purposeData]}
	public, publicErr := handles[purposeAudit].Public()
	var errs [7]error
	s.aead, errs[0] = aead.New(s.data)
	s.fingerprint, errs[1] = prf.NewPRFSet(handles[purposeFingerprint])
	s.index, errs[2] = prf.NewPRFSet(handles[purposeIndex])
	keyHash, err := prf.NewPRFSet(handles[purposeKeyHash])
	s.keyHash, errs[3] = newMemo(keyHash), err
	s.signer, errs[4] = signature.NewSigner(handles[purposeAudit])
	s.verifier, errs[5] = newVerifier(public)
	errs[6] = publicErr
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("keyring: a tenant's keys are not of their kind: %w", err)
	}
	s.primary = must(s.data.Primary()).KeyID()
	return s, nil
}

// Tenant returns the tenant whose keys these are.
func (k *Keys) Tenant() string { return k.tenant }

// Primary returns the id of the data key that Seal uses.
func (k *Keys) Primary() uint32 { return k.current.Load().primary }

// Seal encrypts a value for one field of one record. The names of fields are
// in sources.go; no two kinds of rows share one.
func (k *Keys) Seal(record, field string, plaintext []byte) ([]byte, error) {
	return seal(k.current.Load().aead, []byte{formatData}, plaintext, bind(dataLabel, k.tenant, record, field))
}

// Open decrypts what Seal made for the same field of the same record. Anything
// else is an OpenError.
func (k *Keys) Open(record, field string, sealed []byte) ([]byte, error) {
	if len(sealed) == 0 || sealed[0] != formatData {
		return nil, &OpenError{Record: record, Field: field}
	}
	binding := bind(dataLabel, k.tenant, record, field)
	for sets := k.current.Load(); sets != nil; sets = sets.before {
		if plaintext, err := sets.aead.Decrypt(sealed[1:], binding); err == nil {
			return plaintext, nil
		}
	}
	return nil, &OpenError{Record: record, Field: field}
}

// Fingerprinted says what a fingerprint is taken of, beside the value.
type Fingerprinted struct {
	Type       string // of the token
	JSONType   string // of its data: "1" and 1 are different data
	Expression []byte // that gave the value, in its canonical form
}

// Fingerprint returns 32 bytes that are equal, within the tenant and for ever,
// when the same expression gave the same value for data of the same type. They
// tell nothing else to anyone without the key. write writes the value: a large
// one is never held whole.
func (k *Keys) Fingerprint(of Fingerprinted, write func(io.Writer) error) ([]byte, error) {
	value := sha256.New()
	if err := write(value); err != nil {
		return nil, err
	}
	expression := sha256.Sum256(of.Expression)
	input := bind(fingerprintLabel, k.tenant, of.Type, of.JSONType, string(expression[:]), string(value.Sum(nil)))
	return must(k.current.Load().fingerprint.ComputePrimaryPRF(input, fingerprintSize)), nil
}

// IndexTerm returns the 16 bytes under which a folded value of a field is found.
func (k *Keys) IndexTerm(field, folded string) []byte {
	input := bind(indexLabel, k.tenant, field, folded)
	return must(k.current.Load().index.ComputePrimaryPRF(input, indexTermSize))
}

// KeyHolder returns 16 bytes that bind a key to its holder: an application's
// id. Only who knows the key and the tenant's keys can compute them, so a row
// that was pointed at another holder is noticed.
func (k *Keys) KeyHolder(key secret.Text, holder string) []byte {
	input := bind(holderLabel, k.tenant, key.Reveal(), holder)
	defer clear(input)
	return k.current.Load().keyHash.compute(input, keyHolderSize)
}

// HashKey returns the 32 bytes under which an API key, a session key or a
// proxy key is stored and found.
func (k *Keys) HashKey(key secret.Text) []byte {
	input := bind(keyLabel, k.tenant, key.Reveal())
	defer clear(input)
	return k.current.Load().keyHash.compute(input, keyHashSize)
}

// Sign signs a message of the audit log: 64 bytes of plain Ed25519.
func (k *Keys) Sign(message []byte) ([]byte, error) { return k.current.Load().signer.Sign(message) }

// Verifier returns the public half of the signing key, which stays useful when
// the tenant's keys are destroyed.
func (k *Keys) Verifier() *Verifier { return k.current.Load().verifier }

// Verifier verifies the signatures of one tenant's audit log.
type Verifier struct {
	public   []byte // PEM
	verifier tink.Verifier
}

// ErrSignature says that a signature does not belong to the message and the key.
var ErrSignature = errors.New("keyring: the signature is not valid")

// pemType is what common tools call a public key.
const pemType = "PUBLIC KEY"

// PEM returns the public key in the form that common tools read, for example
// openssl pkeyutl -verify -pubin -rawin.
func (v *Verifier) PEM() []byte { return slices.Clone(v.public) }

// Verify returns nil when the signature is that of the message.
func (v *Verifier) Verify(signature, message []byte) error {
	if v.verifier.Verify(signature, message) != nil {
		return ErrSignature
	}
	return nil
}

// ParseVerifier reads what PEM wrote.
func ParseVerifier(public []byte) (*Verifier, error) {
	errPublic := errors.New("keyring: not an Ed25519 public key in PEM")
	block, rest := pem.Decode(public)
	if block == nil || block.Type != pemType || len(rest) > 0 {
		return nil, errPublic
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, errPublic
	}
	raw, ok := parsed.(stded25519.PublicKey)
	if !ok {
		return nil, errPublic
	}
	key := must(ed25519.NewPublicKey(raw, 0, must(ed25519.NewParameters(ed25519.VariantNoPrefix))))
	manager := keyset.NewManager()
	id := must(manager.AddKey(key))
	must(id, manager.SetPrimary(id))
	return newVerifier(must(manager.Handle()))
}

// newVerifier makes a verifier of a public keyset.
func newVerifier(public *keyset.Handle) (*Verifier, error) {
	verifier, err := signature.NewVerifier(public)
	if err != nil {
		return nil, err
	}
	key, ok := must(public.Primary()).Key().(*ed25519.PublicKey)
	if !ok {
		return nil, errors.New("keyring: not an Ed25519 key")
	}
	der := must(x509.MarshalPKIXPublicKey(stded25519.PublicKey(key.KeyBytes())))
	return &Verifier{public: pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der}), verifier: verifier}, nil
}
