package keyring

import (
	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/prf"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// CheckBinding is the associated data of the check value.
var CheckBinding = bind(checkLabel)

// Pause is what a rotation waits with unless told otherwise.
var Pause = pause

// Bind is how parts become associated data.
var Bind = bind

// Must is for what cannot fail.
func Must(err error) { must(0, err) }

// SealWith seals with a primitive that is not a tenant's.
func SealWith(a tink.AEAD, plaintext []byte) ([]byte, error) {
	return seal(a, []byte{formatData}, plaintext, nil)
}

// WithAEAD returns keys whose data key is replaced.
func WithAEAD(k *Keys, a tink.AEAD) *Keys {
	sets := *k.current.Load()
	sets.aead = a
	out := &Keys{tenant: k.tenant}
	out.current.Store(&sets)
	return out
}

// WrapEpochWith wraps a new epoch key.
func WrapEpochWith(k *Keys) ([]byte, error) {
	return wrapEpoch(k, epochID{k.tenant, 1}, must(keyset.NewHandle(aead.XAES256GCM192BitNonceKeyTemplate())))
}

// WrapOtherKind wraps as an epoch key what is none.
func WrapOtherKind(k *Keys, epoch int64) ([]byte, error) {
	return wrapEpoch(k, epochID{k.tenant, epoch}, must(keyset.NewHandle(prf.HMACSHA256PRFKeyTemplate())))
}
