// Package base58 writes bytes as text in the Bitcoin alphabet, which has no
// two characters that look alike and none that needs quoting.
//
// It promises that equal bytes give equal text and that DecodeID accepts
// exactly what EncodeID writes, so that an id has one spelling. It never
// checks what the bytes are: keys, fingerprints and ids are its callers'
// business.
package base58

import (
	"errors"
	"slices"
)

const alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

// IDLength is the length of an id of 16 bytes as text.
const IDLength = 22

// ErrID says that a text is not what EncodeID writes.
var ErrID = errors.New("base58: not an id")

// values holds one more than the value of each character, 0 where there is none.
var values = func() (v [256]byte) {
	for i := range len(alphabet) {
		v[alphabet[i]] = byte(i) + 1
	}
	return v
}()

// Encode writes b, with one leading '1' for each leading zero byte. Its cost
// grows with the square of the length: it is made for keys and fingerprints.
func Encode(b []byte) string {
	zeros := 0
	for zeros < len(b) && b[zeros] == 0 {
		zeros++
	}
	digits := digits(b[zeros:])
	for range zeros {
		digits = append(digits, 0)
	}
	return spell(digits)
}

// EncodeID writes 16 bytes, such as those of a UUID, as exactly IDLength characters.
func EncodeID(id [16]byte) string {
	digits := digits(id[:])
	for len(digits) < IDLength {
		digits = append(digits, 0)
	}
	return spell(digits)
}

// DecodeID reads what EncodeID wrote, and returns ErrID for anything else.
func DecodeID(text string) (id [16]byte, err error) {
	if len(text) != IDLength {
		return id, ErrID
	}
	for i := range len(text) {
		value := values[text[i]]
		if value == 0 {
			return [16]byte{}, ErrID
		}
		carry := int(value - 1)
		for j := len(id) - 1; j >= 0; j-- {
			carry += int(id[j]) * 58
			id[j] = byte(carry)
			carry >>= 8
		}
		if carry != 0 { // more than 16 bytes hold
			return [16]byte{}, ErrID
		}
	}
	return id, nil
}

// digits returns the number b in base 58, lowest digit first, without leading zeros.
func digits(b []byte) []byte {
	out := make([]byte, 0, len(b)*138/100+1)
	for _, c := range b {
		carry := int(c)
		for i := range out {
			carry += int(out[i]) << 8
			out[i] = byte(carry % 58)
			carry /= 58
		}
		for carry > 0 {
			out = append(out, byte(carry%58))
			carry /= 58
		}
	}
	return out
}

// spell turns digits, lowest first, into text, highest first.
func spell(digits []byte) string {
	slices.Reverse(digits)
	for i, d := range digits {
		digits[i] = alphabet[d]
	}
	return string(digits)
}
