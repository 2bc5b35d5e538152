package keyring

import (
	"context"

	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/prf"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/tokenkeep/tokenkeep/internal/store"
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

// Reseal seals a row of one value anew.
func Reseal(k *Keys, sealed []byte) error {
	return resealRow(k, sealedRow{values: []sealedValue{{"f", &sealed}}}, new(Rotation))
}

// WrapOtherKind wraps as an epoch key what is none.
func WrapOtherKind(k *Keys, epoch int64) []byte {
	return wrapEpoch(k, epochID{k.tenant, epoch}, must(keyset.NewHandle(prf.HMACSHA256PRFKeyTemplate())))
}

// WrapSet wraps keys of any kind as a tenant's keyset.
func WrapSet(ctx context.Context, r *Ring, tenant, purpose string, kind *tinkpb.KeyTemplate) (store.Keyset, error) {
	set := store.Keyset{Purpose: purpose}
	err := r.wrapSet(ctx, tenant, must(keyset.NewHandle(kind)), &set)
	return set, err
}

// SetBinding is the associated data of a tenant's keyset.
func SetBinding(tenant, purpose string) []byte { return bind(setLabel, tenant, purpose) }
