package keyring

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// An epoch is a minute, counted from 1970. Its key is of no use to anyone
// Retention after the minute began.
const (
	epochLength = time.Minute
	// Retention is the longest that a short-lived value can be opened.
	Retention = 60 * time.Minute
	// skew is how far the clocks of two servers may be apart.
	skew = 5 * time.Minute
)

// epochID names the key of a tenant's epoch.
type epochID struct {
	tenant string
	number int64
}

// EpochKey seals and opens the short-lived values of one tenant and one
// minute. It does no I/O, so it may be used inside a transaction.
type EpochKey struct {
	id   epochID
	now  func() time.Time
	key  uint32
	aead tink.AEAD
}

// Epoch returns the key of the present minute, made on first use. Call it
// before a transaction, never in one.
func (r *Ring) Epoch(ctx context.Context, tenant string) (*EpochKey, error) {
	keys, err := r.For(ctx, tenant)
	if err != nil {
		return nil, err
	}
	id := epochID{tenant, epochAt(r.now())}
	if key, ok := r.epochs.get(id); ok {
		return key, nil
	}
	return r.makes.do(ctx, id, func(ctx context.Context) (*EpochKey, error) { return r.makeEpoch(ctx, keys, id) })
}

// makeEpoch adds a key to the store and returns the one that is there then:
// whoever comes second uses that of the first.
func (r *Ring) makeEpoch(ctx context.Context, keys *Keys, id epochID) (*EpochKey, error) {
	before := r.epochs.before()
	wrapped := wrapEpoch(keys, id, must(keyset.NewHandle(aead.XAES256GCM192BitNonceKeyTemplate())))
	wrapped, err := r.store.EpochKeys().AddEpochKey(ctx, id.tenant, id.number, wrapped)
	if err != nil {
		return nil, fmt.Errorf("keyring: add an epoch key: %w", err)
	}
	key, err := r.unwrapEpoch(keys, id, wrapped)
	if err != nil {
		return nil, err
	}
	return r.epochs.put(id, key, before), nil
}

// EpochOf returns the keys that open short-lived values of these epochs, as
// SealedEpoch names them. Values older than the retention count as gone; one
// above Retention, or 0, means Retention. Call it before a transaction, never
// in one. It is no error when a key is gone: opening the value says so.
func (r *Ring) EpochOf(ctx context.Context, tenant string, retention time.Duration, epochs ...int64) (*EpochSet, error) {
	keys, err := r.For(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if retention <= 0 || retention > Retention {
		retention = Retention
	}
	set := &EpochSet{keys: make(map[int64]*EpochKey, len(epochs)), retention: retention}
	for _, number := range epochs {
		key, err := r.readEpoch(ctx, keys, epochID{tenant, number})
		if err != nil && !errors.Is(err, ErrGone) {
			return nil, err
		}
		set.keys[number] = key // nil when it is gone
	}
	set.note(ctx)
	return set, nil
}

// EpochKeyOf returns the key of an epoch, to seal what must not outlive a value
// of that epoch; ErrGone when its time is over. Call it before a transaction,
// never in one.
func (r *Ring) EpochKeyOf(ctx context.Context, tenant string, epoch int64) (*EpochKey, error) {
	keys, err := r.For(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return r.readEpoch(ctx, keys, epochID{tenant, epoch})
}

// readEpoch returns the key of an epoch, or ErrGone.
func (r *Ring) readEpoch(ctx context.Context, keys *Keys, id epochID) (*EpochKey, error) {
	before := r.epochs.before()
	if key, ok := r.epochs.get(id); ok {
		return key, nil
	}
	wrapped, err := r.store.EpochKeys().EpochKey(ctx, id.tenant, id.number)
	if errors.Is(err, store.ErrNotFound) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("keyring: read an epoch key: %w", err)
	}
	key, err := r.unwrapEpoch(keys, id, wrapped)
	if err != nil {
		return nil, err
	}
	return r.epochs.put(id, key, before), nil
}

// DestroyDue destroys every epoch key whose minute began at least Retention
// ago, in the store and in memory, and returns how many it destroyed in the
// store. It also destroys those whose minute will begin more than Retention
// from now: the clock was set back since, and nobody knows how old they are. An installation may choose a shorter retention for all its tenants;
// one above Retention, or 0, means Retention. Run it every minute.
func (r *Ring) DestroyDue(ctx context.Context, retention time.Duration) (int, error) {
	if retention <= 0 || retention > Retention {
		retention = Retention
	}
	now := r.now()
	first, last := epochAt(now.Add(-retention))+1, epochAt(now.Add(Retention))
	r.epochs.drop(func(e epochID) bool { return e.number < first || e.number > last })
	n, err := r.store.EpochKeys().DestroyEpochKeys(ctx, first, last)
	if err != nil {
		return n, fmt.Errorf("keyring: destroy epoch keys: %w", err)
	}
	return n, nil
}

// SealShortLived is Epoch and Seal in one call, for work without a transaction.
func (r *Ring) SealShortLived(ctx context.Context, tenant, record, field string, plaintext []byte) ([]byte, error) {
	key, err := r.Epoch(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return key.Seal(record, field, plaintext)
}

// OpenShortLived is EpochOf and Open in one call, for work without a transaction.
func (r *Ring) OpenShortLived(ctx context.Context, tenant string, retention time.Duration, record, field string, sealed []byte) ([]byte, error) {
	number, err := SealedEpoch(sealed)
	if err != nil {
		return nil, &OpenError{Record: record, Field: field}
	}
	set, err := r.EpochOf(ctx, tenant, retention, number)
	if err != nil {
		return nil, err
	}
	return set.Open(record, field, sealed)
}

// Epoch returns the number of the minute.
func (k *EpochKey) Epoch() int64 { return k.id.number }

// Gone returns the instant from which nothing sealed with this key opens.
func (k *EpochKey) Gone() time.Time { return goneAt(k.id.number, Retention) }

// Seal encrypts a value for one field of one record; ErrGone when the key's
// time is over, be it that nobody has destroyed it yet.
func (k *EpochKey) Seal(record, field string, plaintext []byte) ([]byte, error) {
	if !k.now().Before(k.Gone()) {
		return nil, ErrGone
	}
	header := binary.BigEndian.AppendUint64([]byte{formatEpoch}, uint64(k.id.number))
	return seal(k.aead, header, plaintext, k.id.bind(record, field))
}

// EpochSet opens short-lived values of the epochs for which it was made. It
// does no I/O, so it may be used inside a transaction.
type EpochSet struct {
	keys      map[int64]*EpochKey // nil where the key is gone
	retention time.Duration
}

// Open decrypts what Seal made for the same field of the same record: ErrGone
// when its time is over, ErrOtherEpoch when the set was made for other epochs
// (the row changed meanwhile), and an OpenError for anything else.
func (s *EpochSet) Open(record, field string, sealed []byte) ([]byte, error) {
	number, err := SealedEpoch(sealed)
	if err != nil {
		return nil, &OpenError{Record: record, Field: field}
	}
	key, ok := s.keys[number]
	if !ok {
		return nil, ErrOtherEpoch
	}
	if key == nil {
		return nil, ErrGone
	}
	// A minute that has not come is one from before the clock was set back.
	if now := key.now(); !now.Before(goneAt(number, s.retention)) || goneAt(number, 0).After(now.Add(skew)) {
		return nil, ErrGone
	}
	// A key that was made anew for the same minute, after the clock was set
	// back or the store lost the first, is not the one that sealed this.
	if id, err := KeyID(sealed); err == nil && id != key.key {
		return nil, ErrGone
	}
	plaintext, err := key.aead.Decrypt(sealed[epochHeader:], key.id.bind(record, field))
	if err != nil {
		return nil, &OpenError{Record: record, Field: field}
	}
	return plaintext, nil
}

// bind is the associated data of a short-lived value.
func (e epochID) bind(record, field string) []byte {
	return bind(epochLabel, e.tenant, strconv.FormatInt(e.number, 10), record, field)
}

// bindKey is the associated data of a wrapped epoch key.
func (e epochID) bindKey() []byte {
	return bind(epochKeyLabel, e.tenant, strconv.FormatInt(e.number, 10))
}

// wrapEpoch wraps an epoch key with the tenant's data key: that takes no KMS,
// and what is destroyed is the wrapped key itself, of which there is no copy.
func wrapEpoch(keys *Keys, id epochID, key *keyset.Handle) []byte {
	out := new(wrappedKeys)
	must(out, key.WriteWithAssociatedData(out, keys.current.Load().aead, id.bindKey()))
	return append([]byte{formatKey}, out.bytes...)
}

// readWrapped returns the key inside a wrapped epoch key.
func readWrapped(keys *Keys, id epochID, wrapped []byte) (*keyset.Handle, error) {
	if len(wrapped) == 0 || wrapped[0] != formatKey {
		return nil, fmt.Errorf("keyring: unwrap an epoch key: %w", ErrDamaged)
	}
	handle, err := keyset.ReadWithAssociatedData(&wrappedKeys{bytes: wrapped[1:]}, keys.current.Load().aead, id.bindKey())
	if err != nil {
		return nil, fmt.Errorf("keyring: unwrap an epoch key: %w", ErrDamaged)
	}
	return handle, nil
}

// unwrapEpoch makes a wrapped key ready for use.
func (r *Ring) unwrapEpoch(keys *Keys, id epochID, wrapped []byte) (*EpochKey, error) {
	handle, err := readWrapped(keys, id, wrapped)
	if err != nil {
		return nil, err
	}
	a, err := aead.New(handle)
	if err != nil {
		return nil, fmt.Errorf("keyring: an epoch key is of no known kind: %w", ErrDamaged)
	}
	return &EpochKey{id: id, now: r.now, key: must(handle.Primary()).KeyID(), aead: a}, nil
}

// epochAt returns the number of the minute.
func epochAt(t time.Time) int64 { return t.Unix() / int64(epochLength/time.Second) }

// goneAt returns when values of an epoch stop being readable.
func goneAt(number int64, retention time.Duration) time.Time {
	return time.Unix(number*int64(epochLength/time.Second), 0).Add(retention)
}
