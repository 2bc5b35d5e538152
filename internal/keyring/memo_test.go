package keyring_test

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// TestHashesOfKeysAreTheSameHoweverOftenTheyAreComputed: those that are remembered,
// those that were forgotten for others, and those that a caller has overwritten.
func TestHashesOfKeysAreTheSameHoweverOftenTheyAreComputed(t *testing.T) {
	w := newWorld(t)
	one, two := w.keys(w.tenant()), w.keys(w.tenant())
	key := secret.NewText("key")
	hash, holder := one.HashKey(key), one.KeyHolder(key, "application")
	for i := range 1000 { // more than are remembered
		overwritten := one.HashKey(key)
		if !bytes.Equal(overwritten, hash) || !bytes.Equal(one.KeyHolder(key, "application"), holder) {
			t.Fatalf("after %d other keys the hashes have changed", i)
		}
		clear(overwritten)
		other := one.HashKey(secret.NewText("key " + strconv.Itoa(i)))
		if bytes.Equal(other, hash) || bytes.Equal(two.HashKey(key), hash) || bytes.Equal(one.KeyHolder(key, strconv.Itoa(i)), holder) {
			t.Fatalf("key %d has the hash of another", i)
		}
	}
}
