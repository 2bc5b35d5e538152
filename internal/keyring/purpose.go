package keyring

import (
	"context"
	"errors"
	"fmt"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/prf"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"
	"github.com/tink-crypto/tink-go/v2/signature"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// The purposes of a tenant's keysets, as they stand in store.Keyset.
const (
	purposeData        = "data"
	purposeFingerprint = "fingerprint"
	purposeIndex       = "index"
	purposeKeyHash     = "keyhash"
	purposeAudit       = "audit"
)

// purposes lists what every tenant has, and which kind of key serves it.
//
// Data keys are XAES-256-GCM: its random nonces have 192 bits, so a key may
// seal without a count of its uses. Plain AES-GCM would have to be rotated
// before 2^32 values, which a busy tenant reaches in days; AES-GCM-SIV would
// only soften that bound. Hashes by which rows are found must never change, so
// those keysets hold one key for ever. Audit signatures are plain Ed25519
// without a prefix: anyone can verify them with common tools.
var purposes = []struct {
	name     string
	template func() *tinkpb.KeyTemplate
}{
	{purposeData, aead.XAES256GCM192BitNonceKeyTemplate},
	{purposeFingerprint, prf.HMACSHA256PRFKeyTemplate},
	{purposeIndex, prf.HMACSHA256PRFKeyTemplate},
	{purposeKeyHash, prf.HMACSHA256PRFKeyTemplate},
	{purposeAudit, signature.ED25519KeyWithoutPrefixTemplate},
}

// NewTenant makes the keysets of a tenant, wrapped. The caller puts them, at
// once, in the transaction that inserts the tenant.
func (r *Ring) NewTenant(ctx context.Context, tenant string) ([]store.Keyset, error) {
	if tenant == "" {
		return nil, store.ErrNoTenant
	}
	if err := r.Prove(ctx); err != nil {
		return nil, err
	}
	now := store.At(r.now())
	sets := make([]store.Keyset, 0, len(purposes))
	for _, p := range purposes {
		set := store.Keyset{Purpose: p.name, Version: 1, CreatedAt: now, ModifiedAt: now}
		if err := r.wrapSet(ctx, tenant, must(keyset.NewHandle(p.template())), &set); err != nil {
			return nil, err
		}
		sets = append(sets, set)
	}
	return sets, nil
}

// wrapSet puts the keys, wrapped with the primary KEK, into the row.
func (r *Ring) wrapSet(ctx context.Context, tenant string, keys *keyset.Handle, row *store.Keyset) error {
	a := &kmsAEAD{kms: r.kms}
	var out wrappedKeys
	err := keys.WriteWithContext(ctx, &out, a, bind(setLabel, tenant, row.Purpose))
	if err != nil {
		return fmt.Errorf("keyring: wrap %s keys: %w", row.Purpose, a.cause(err))
	}
	row.Wrapped = append([]byte{formatSet}, out.bytes...)
	row.KEK = a.id
	return nil
}

// unwrapSet returns the keys of a row.
func (r *Ring) unwrapSet(ctx context.Context, tenant string, row store.Keyset) (*keyset.Handle, error) {
	if err := r.Prove(ctx); err != nil {
		return nil, err
	}
	keys, err := openSet(ctx, r.kms, tenant, row)
	if errors.Is(err, ErrNoKEK) {
		r.missing.tell(row.KEK, r.now())
	}
	return keys, err
}

// TryKeyset returns nil when the KMS opens a tenant's keyset.
func TryKeyset(ctx context.Context, kms KMS, tenant string, row store.Keyset) error {
	_, err := openSet(ctx, kms, tenant, row)
	return err
}

// openSet has the KMS open the keys of a row.
func openSet(ctx context.Context, kms KMS, tenant string, row store.Keyset) (*keyset.Handle, error) {
	if len(row.Wrapped) == 0 || row.Wrapped[0] != formatSet {
		return nil, fmt.Errorf("keyring: unwrap %s keys: %w", row.Purpose, ErrDamaged)
	}
	a := &kmsAEAD{kms: kms, id: row.KEK}
	keys, err := keyset.ReadWithContext(ctx, &wrappedKeys{bytes: row.Wrapped[1:]}, a, bind(setLabel, tenant, row.Purpose))
	clear(a.plaintext) // the serialized keys; Tink has made its own copies
	if err != nil {
		return nil, fmt.Errorf("keyring: unwrap %s keys: %w", row.Purpose, a.cause(err))
	}
	return keys, nil
}

// wrappedKeys gives Tink an encrypted keyset to read and to write, without the
// framing of a file: a byte more or less is then found out. It has no way to
// read or write keys in clear.
type wrappedKeys struct {
	keyset.Reader
	keyset.Writer
	bytes []byte
}

func (w *wrappedKeys) ReadEncrypted() (*tinkpb.EncryptedKeyset, error) {
	return &tinkpb.EncryptedKeyset{EncryptedKeyset: w.bytes}, nil
}

func (w *wrappedKeys) WriteEncrypted(k *tinkpb.EncryptedKeyset) error {
	w.bytes = k.GetEncryptedKeyset()
	return nil
}

// kmsAEAD lets Tink wrap one keyset with a KMS. It remembers which key was
// used, what went wrong (Tink keeps only the words of an error) and the
// plaintext that is to be cleared.
type kmsAEAD struct {
	kms       KMS
	id        string
	err       error
	plaintext []byte
}

// EncryptWithContext clears the plaintext: Tink has no further use for it.
func (a *kmsAEAD) EncryptWithContext(ctx context.Context, plaintext, associated []byte) ([]byte, error) {
	defer clear(plaintext)
	var wrapped []byte
	wrapped, a.id, a.err = a.kms.Wrap(ctx, plaintext, associated)
	return wrapped, a.err
}

func (a *kmsAEAD) DecryptWithContext(ctx context.Context, wrapped, associated []byte) ([]byte, error) {
	a.plaintext, a.err = a.kms.Unwrap(ctx, a.id, wrapped, associated)
	return a.plaintext, a.err
}

// cause returns the KMS's own error when there is one.
func (a *kmsAEAD) cause(err error) error {
	if a.err != nil {
		return a.err
	}
	return err
}

// must is for what fails only when the program itself is wrong: the templates
// and the output sizes that it uses are constants, and memory is at hand.
func must[T any](v T, err error) T {
	if err != nil {
		panic("keyring: " + err.Error())
	}
	return v
}
