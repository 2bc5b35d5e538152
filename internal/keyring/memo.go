package keyring

import (
	"crypto/rand"
	"crypto/sha256"
	"slices"
	"sync"

	"github.com/tink-crypto/tink-go/v2/prf"
)

// maxRemembered bounds the outputs that a memo keeps. When there are more, all are
// forgotten: each is computed again when it is next needed.
const maxRemembered = 512

// memo remembers outputs of one PRF set for the inputs that come with every
// request: a key of an application has two of them. It dies with its keyset.
// Inputs hold keys, so it has only a salted hash of each.
type memo struct {
	set  *prf.Set
	salt [sha256.Size]byte

	mu    sync.RWMutex // guards known
	known map[[sha256.Size]byte][]byte
}

func newMemo(set *prf.Set) *memo {
	m := &memo{set: set, known: map[[sha256.Size]byte][]byte{}}
	_, _ = rand.Read(m.salt[:]) // it never fails
	return m
}

// compute returns the PRF of an input, of the size that its label has.
func (m *memo) compute(input []byte, size uint32) []byte {
	salted := append(m.salt[:len(m.salt):len(m.salt)], input...)
	id := sha256.Sum256(salted)
	clear(salted)
	m.mu.RLock()
	output, ok := m.known[id]
	m.mu.RUnlock()
	if !ok {
		output = must(m.set.ComputePrimaryPRF(input, size))
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.known) >= maxRemembered {
			clear(m.known)
		}
		m.known[id] = output
	}
	return slices.Clone(output) // what a caller does with it is its own business
}
