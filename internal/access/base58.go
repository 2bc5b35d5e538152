package access

// The alphabet of Bitcoin: no 0, O, I or l, so that people can read keys out.
const base58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

// base58Digits has each character's digit plus one; 0 for other bytes.
var base58Digits = func() (digits [256]byte) {
	for i := range len(base58) {
		digits[base58[i]] = byte(i + 1)
	}
	return digits
}()

// encode58 writes a number of any size in width characters, leading zeros
// included, so that equal sizes give equal widths. The width must suffice:
// 22 for 16 bytes, 28 for 20.
func encode58(number []byte, width int) string {
	text := make([]byte, width)
	for _, b := range number {
		carry := int(b)
		for i := width - 1; i >= 0; i-- {
			carry += int(text[i]) << 8
			text[i] = byte(carry % 58)
			carry /= 58
		}
	}
	for i, digit := range text {
		text[i] = base58[digit]
	}
	return string(text)
}

// decode58 reads what encode58 wrote into number, and reports whether the text
// is of that alphabet and the number fits.
func decode58(number []byte, text string) bool {
	clear(number)
	for i := range len(text) {
		digit := base58Digits[text[i]]
		if digit == 0 {
			return false
		}
		carry := int(digit) - 1
		for j := len(number) - 1; j >= 0; j-- {
			carry += int(number[j]) * 58
			number[j] = byte(carry)
			carry >>= 8
		}
		if carry != 0 {
			return false
		}
	}
	return true
}
