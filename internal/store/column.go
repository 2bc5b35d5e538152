package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// How backends write into one column what is not one value. That these forms
// are the same everywhere lets rows move from one backend to another.

// GroupKey names a TokenGroup. It is computed from what the group is, so no two
// writers ever have to agree on a number.
type GroupKey [16]byte

// GroupOf returns the key of a group, and its containers as EncodeStrings
// writes them.
func GroupOf(kind string, containers []string) (GroupKey, string) {
	list := EncodeStrings(containers)
	sum := sha256.Sum256([]byte(kind + "\x00" + list))
	return GroupKey(sum[:16]), list
}

// ParseGroup reads what String wrote; ErrNotFound when it is nothing of that kind.
func ParseGroup(id string) (GroupKey, error) {
	b, err := hex.DecodeString(id)
	if err != nil || len(b) != len(GroupKey{}) {
		return GroupKey{}, fmt.Errorf("store: read group id: %w", ErrNotFound)
	}
	return GroupKey(b), nil
}

// String returns the key as TokenGroup.ID has it.
func (k GroupKey) String() string { return hex.EncodeToString(k[:]) }

// EncodeTerms writes a token's terms as one value, each behind a byte with its
// length, so that a change of the token finds its index rows.
func EncodeTerms(terms [][]byte) ([]byte, error) {
	var out []byte
	for i, term := range terms {
		if slices.ContainsFunc(terms[:i], func(other []byte) bool { return bytes.Equal(other, term) }) {
			return nil, errors.New("store: a search term must not be repeated")
		}
		if len(term) == 0 || len(term) > 64 {
			return nil, errors.New("store: a search term must have 1 to 64 bytes")
		}
		out = append(append(out, byte(len(term))), term...)
	}
	return out, nil
}

// DecodeTerms reads what EncodeTerms wrote; ErrDamaged when that did not.
func DecodeTerms(b []byte) ([][]byte, error) {
	var terms [][]byte
	for len(b) > 0 {
		n := int(b[0])
		if n == 0 || len(b) < 1+n {
			return nil, fmt.Errorf("store: read search terms: %w", ErrDamaged)
		}
		terms = append(terms, b[1:1+n:1+n])
		b = b[1+n:]
	}
	return terms, nil
}

// DerivedAt is the value of the column derived_at: the version at which the
// token's derived values were last written in today's form, 0 for never. An
// older release does not know the column. What it inserts has 0 there, and what
// it changes has a higher version; both read as not derived.
func (t Token) DerivedAt() int64 {
	if t.Derived {
		return t.Version
	}
	return 0
}

// EncodeStrings writes a list as one value.
func EncodeStrings(list []string) string {
	if len(list) == 0 {
		return "[]"
	}
	b, _ := json.Marshal(list) // strings always marshal
	return string(b)
}

// DecodeStrings reads what EncodeStrings wrote; ErrDamaged when that did not.
func DecodeStrings(s string) ([]string, error) {
	if list, ok := plainStrings(s); ok {
		return list, nil
	}
	var list []string
	if err := json.Unmarshal([]byte(s), &list); err != nil {
		return nil, fmt.Errorf("store: read list: %w", ErrDamaged)
	}
	if len(list) == 0 {
		return nil, nil
	}
	return list, nil
}

// plainStrings is DecodeStrings for lists of printable ASCII in which nothing is
// escaped, as those of containers are. Views read them by the thousand.
func plainStrings(s string) ([]string, bool) {
	inner, begins := strings.CutPrefix(s, `["`)
	inner, ends := strings.CutSuffix(inner, `"]`)
	if !begins || !ends {
		return nil, false
	}
	for _, c := range []byte(inner) {
		if c < ' ' || c > '~' || c == '\\' {
			return nil, false
		}
	}
	list := strings.Split(inner, `","`)
	for _, text := range list {
		if strings.Contains(text, `"`) {
			return nil, false
		}
	}
	return list, true
}
