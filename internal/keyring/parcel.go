package keyring

import (
	"context"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// SealParcel puts sealed contents into a parcel: under the data key, or under
// epoch where they were made from what must not outlive that key.
func (k *Keys) SealParcel(p *store.Parcel, epoch *EpochKey, plaintext []byte) (err error) {
	if epoch == nil {
		p.Epoch = 0
		p.Contents, err = k.Seal(p.Record(), FieldParcel, plaintext)
		return err
	}
	p.Epoch = epoch.Epoch()
	p.Contents, err = epoch.Seal(p.Record(), FieldParcel, plaintext)
	return err
}

// OpenParcel returns what SealParcel sealed; ErrGone when it was under an epoch
// that is over. Call it before a transaction, never in one.
func (r *Ring) OpenParcel(ctx context.Context, keys *Keys, p store.Parcel) ([]byte, error) {
	if p.Epoch == 0 {
		return keys.Open(p.Record(), FieldParcel, p.Contents)
	}
	return r.OpenShortLived(ctx, keys.Tenant(), 0, p.Record(), FieldParcel, p.Contents)
}
