// Package base58 writes bytes as text in the Bitcoin alphabet, which has no
// two characters that look alike and none that needs quoting.
//
// It promises that equal bytes give equal text and that what DecodeFixed reads
// has one spelling. It never checks what the bytes are: keys, fingerprints and
// ids are its callers' business.
package base58

import "slices"

const alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

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

// EncodeFixed writes b in exactly width characters, leading zeros included, so
// that equal sizes give equal widths. The width must suffice: 22 for 16 bytes,
// 28 for 20.
func EncodeFixed(b []byte, width int) string {
	digits := digits(b)
	for len(digits) < width {
		digits = append(digits, 0)
	}
	return spell(digits)
}

// DecodeFixed reads what EncodeFixed wrote into b, and reports whether the text
// is of the alphabet and the number fits. The caller knows the width.
func DecodeFixed(b []byte, text string) bool {
	clear(b)
	for i := range len(text) {
		value := values[text[i]]
		if value == 0 {
			return false
		}
		carry := int(value - 1)
		for j := len(b) - 1; j >= 0; j-- {
			carry += int(b[j]) * 58
			b[j] = byte(carry)
			carry >>= 8
		}
		if carry != 0 {
			return false
		}
	}
	return true
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
