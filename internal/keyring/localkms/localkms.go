// Package localkms is a KMS for one machine: its key-encryption keys come from
// a file or from a text that the operator keeps.
//
// It promises that a key file is used only when nobody but its owner can read
// it, that a file is replaced as a whole or not at all, and that no two
// processes change it at the same time. It never shows a key, it never destroys
// one that is the primary, and it never forgets one because the file was
// replaced: a process may hold the last copy.
//
// The file is a Tink keyset in JSON, as Tink's own tools read it, of one or
// more XAES-256-GCM keys: the primary wraps, all unwrap. The id of a key is
// "local-" and Tink's id of it in eight hexadecimal digits. The keys live in
// ordinary memory of the process: it is neither locked nor overwritten, so
// swap and core dumps are the operator's to forbid.
package localkms

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// What can be wrong with keys.
var (
	// ErrFormat says that a file or a text is not a keyset of this package.
	ErrFormat = errors.New("localkms: not a keyset of key-encryption keys")
	// ErrNoFile says that keys which came from a text cannot be changed here.
	ErrNoFile = errors.New("localkms: the keys do not come from a file")
	// ErrOther says that a file does not have the key that wraps now, so it is
	// not a later form of the one that was read.
	ErrOther = errors.New("localkms: the key file does not have the key that is in use: it is another one's")
)

// KMS wraps with keys in memory. It is a keyring.KMS.
type KMS struct {
	path string // empty when the keys came from a text
	now  func() time.Time

	mu   sync.RWMutex // guards what follows
	keys *keys
	// gone has the keys that the file had once, by their ids. They unwrap.
	gone map[string]*keys
	seen os.FileInfo // of the file, when it was last read; nil when it was changed by us

	reading sync.Mutex // guards missed, and lets one at a time look for a key in the file
	missed  time.Time  // when a key was last looked for in vain
}

// lookAgain is how long nobody looks into the file after a key was not in it:
// every request of every tenant may be asking for it.
const lookAgain = time.Second

var _ interface {
	keyring.KMS
	keyring.Lister
	keyring.Reloader
	keyring.Rotator
	keyring.Dropper
} = (*KMS)(nil)

// keys are the keys of one reading of a file.
type keys struct {
	handle  *keyset.Handle
	aead    tink.AEAD
	primary string
	ids     []string // in the order of the file
}

// FromText returns a KMS of keys in the format of a key file.
func FromText(text secret.Text) (*KMS, error) {
	keys, err := parse([]byte(text.Reveal()))
	if err != nil {
		return nil, err
	}
	return &KMS{keys: keys, now: time.Now}, nil
}

// Primary returns the id of the key that wraps.
func (k *KMS) Primary() string { return k.current().primary }

// Owns reports whether the key of that id is in the file, or was when this
// process read it.
func (k *KMS) Owns(id string) bool { return k.find(id) != nil }

// IDs returns the ids of all keys, oldest first.
func (k *KMS) IDs() []string { return slices.Clone(k.current().ids) }

// Wrap encrypts with the primary key: that of the file as it is now, so that
// nothing new is wrapped with a key that all other processes have left behind.
// Without a file that can be used it goes on with the keys that it has.
func (k *KMS) Wrap(ctx context.Context, plaintext, associated []byte) ([]byte, string, error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	if k.changed() {
		_ = k.Reload() // what is wrong with it is told to whoever rotates or restarts
	}
	keys := k.current()
	wrapped, err := keys.aead.Encrypt(plaintext, associated)
	return wrapped, keys.primary, err
}

// Unwrap decrypts with the key of that id. One that it does not know may have
// been added to the file by another process, or by the operator, so it looks
// there again, now and then.
func (k *KMS) Unwrap(ctx context.Context, id string, wrapped, associated []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	keys := k.find(id)
	if keys == nil {
		var err error
		if keys, err = k.lookFor(id); err != nil {
			return nil, err
		}
	}
	// Tink takes the key that the bytes name; it must be the one asked for.
	if len(wrapped) < prefix || idOf(binary.BigEndian.Uint32(wrapped[1:])) != id {
		return nil, keyring.ErrUnwrap
	}
	plaintext, err := keys.aead.Decrypt(wrapped, associated)
	if err != nil {
		return nil, keyring.ErrUnwrap
	}
	return plaintext, nil
}

// prefix is what Tink puts in front of what it encrypts: a byte and the id of
// the key.
const prefix = 1 + 4

// idOf returns our id of a key.
func idOf(tinkID uint32) string { return fmt.Sprintf("local-%08x", tinkID) }

func (k *KMS) current() *keys {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.keys
}

// find returns the keys with that id among them, nil when there are none.
func (k *KMS) find(id string) *keys {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if slices.Contains(k.keys.ids, id) {
		return k.keys
	}
	return k.gone[id]
}

// lookFor reads the file again for a key that is not known, unless one was not
// in it a moment ago.
func (k *KMS) lookFor(id string) (*keys, error) {
	k.reading.Lock()
	defer k.reading.Unlock()
	if keys := k.find(id); keys != nil {
		return keys, nil // another was faster
	}
	missing := fmt.Errorf("%w: there is no key %q", keyring.ErrNoKEK, id)
	if since := k.now().Sub(k.missed); since >= 0 && since < lookAgain {
		return nil, missing
	}
	err := missing
	if k.path != "" {
		err = k.reread(func(next *keys) error {
			if slices.Contains(next.ids, id) {
				return nil
			}
			return missing
		})
	}
	if err == nil {
		return k.find(id), nil
	}
	if errors.Is(err, missing) {
		k.missed = k.now()
	}
	return nil, err
}

// use replaces the keys. Those that are not among the new ones still unwrap.
func (k *KMS) use(next *keys, seen os.FileInfo) {
	k.mu.Lock()
	defer k.mu.Unlock()
	gone := map[string]*keys{}
	maps.Copy(gone, k.gone)
	if k.keys != nil {
		for _, id := range k.keys.ids {
			gone[id] = k.keys
		}
	}
	for _, id := range next.ids {
		delete(gone, id)
	}
	k.keys, k.gone, k.seen = next, gone, seen
}

// changed reports whether the file is another one than was read last.
func (k *KMS) changed() bool {
	if k.path == "" {
		return false
	}
	info, err := os.Stat(k.path)
	if err != nil {
		return false
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.seen == nil || !os.SameFile(info, k.seen) || !info.ModTime().Equal(k.seen.ModTime()) || info.Size() != k.seen.Size()
}

// parse reads a key file and clears its text.
func parse(text []byte) (*keys, error) {
	defer clear(text)
	handle, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(text)))
	if err != nil {
		return nil, ErrFormat // Tink's words could repeat what it read
	}
	return newKeys(handle)
}

// newKeys accepts what Generate and Rotate make and nothing else.
func newKeys(handle *keyset.Handle) (*keys, error) {
	a, err := aead.New(handle)
	if err != nil {
		return nil, ErrFormat
	}
	k := &keys{handle: handle, aead: a}
	info, kind := handle.KeysetInfo(), template()
	for _, key := range info.GetKeyInfo() {
		if key.GetTypeUrl() != kind.GetTypeUrl() || key.GetOutputPrefixType() != kind.GetOutputPrefixType() ||
			key.GetStatus() != tinkpb.KeyStatusType_ENABLED {
			return nil, ErrFormat
		}
		k.ids = append(k.ids, idOf(key.GetKeyId()))
	}
	k.primary = idOf(info.GetPrimaryKeyId())
	return k, nil
}

// template is the kind of all keys here. It is that of keyring's data keys,
// for the same reason: no count of its uses is needed.
func template() *tinkpb.KeyTemplate { return aead.XAES256GCM192BitNonceKeyTemplate() }
