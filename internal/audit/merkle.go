package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
)

// Hash is a SHA-256 hash; as text it is hexadecimal.
type Hash [sha256.Size]byte

// String returns the hexadecimal text.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h[:])), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hash) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(h)) {
		return errors.New("audit: a hash has 64 hexadecimal digits")
	}
	if _, err := hex.Decode(h[:], text); err != nil {
		return errors.New("audit: a hash has 64 hexadecimal digits")
	}
	return nil
}

// The trees are those of RFC 6962, section 2.1. The first byte keeps a leaf
// from being taken for an inner node.
const (
	leafPrefix = 0x00
	nodePrefix = 0x01
)

func hashLeaf(input []byte) Hash {
	return sha256.Sum256(append([]byte{leafPrefix}, input...))
}

func hashNode(left, right Hash) Hash {
	var b [1 + 2*sha256.Size]byte
	b[0] = nodePrefix
	copy(b[1:], left[:])
	copy(b[1+sha256.Size:], right[:])
	return sha256.Sum256(b[:])
}

// merkle returns the root over the leaves' hashes, of which there is at least
// one. Unless paths is nil, it appends to each leaf's path the hashes that
// lead from the leaf to the root.
func merkle(leaves []Hash, paths [][]Hash) Hash {
	if len(leaves) == 1 {
		return leaves[0]
	}
	k := 1 // the largest power of two below the number of leaves
	for 2*k < len(leaves) {
		k *= 2
	}
	if paths == nil {
		return hashNode(merkle(leaves[:k], nil), merkle(leaves[k:], nil))
	}
	left, right := merkle(leaves[:k], paths[:k]), merkle(leaves[k:], paths[k:])
	for i := range paths {
		sibling := right
		if i >= k {
			sibling = left
		}
		paths[i] = append(paths[i], sibling)
	}
	return hashNode(left, right)
}

// included reports whether the leaf is the one with this index among count
// leaves under the root. The steps are those of RFC 9162, section 2.1.3.2.
func included(root, leaf Hash, index, count int, path []Hash) bool {
	if index < 0 || index >= count {
		return false
	}
	at, last, hash := index, count-1, leaf
	for _, sibling := range path {
		if last == 0 {
			return false
		}
		if at%2 == 1 || at == last {
			hash = hashNode(sibling, hash)
			for at%2 == 0 && at != 0 {
				at, last = at/2, last/2
			}
		} else {
			hash = hashNode(hash, sibling)
		}
		at, last = at/2, last/2
	}
	return last == 0 && hash == root
}
