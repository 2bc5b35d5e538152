// Package luhn knows the checksum of card numbers.
//
// It promises to find a card number inside any text of ASCII digits. It never
// keeps what it was given, and it says nothing about issuers or lengths.
package luhn

import (
	"strings"
	"unicode"
)

// The lengths of card numbers.
const (
	minLen = 12
	maxLen = 19
)

// doubled holds the sum of the digits of 2*d.
var doubled = [10]int{0, 2, 4, 6, 8, 1, 3, 5, 7, 9}

// Valid reports whether s is a run of digits with a right check digit.
func Valid(s string) bool {
	sum := 0
	for i := range len(s) {
		c := s[len(s)-1-i]
		if c < '0' || c > '9' {
			return false
		}
		if i%2 == 0 {
			sum += int(c - '0')
		} else {
			sum += doubled[c-'0']
		}
	}
	return s != "" && sum%10 == 0
}

// HasCard reports whether some 12 to 19 digits that stand together in s are a
// Luhn-valid number, even inside a longer run. It reads s once and allocates
// nothing, so it may be asked about text of any size.
func HasCard(s string) bool {
	// sums[p][n%len] is the sum of the first n digits of the current run, with
	// every digit at a position of parity p left plain and the others doubled.
	// A window that ends at position e has plain digits at the parity of e, so
	// its checksum is a difference of two of these.
	var sums [2][maxLen + 1]int
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			n = 0
			continue
		}
		d, parity := int(s[i]-'0'), n%2
		from, to := n%(maxLen+1), (n+1)%(maxLen+1)
		if n == 0 {
			sums[0][from], sums[1][from] = 0, 0
		}
		sums[parity][to] = sums[parity][from] + d
		sums[1-parity][to] = sums[1-parity][from] + doubled[d]
		n++
		for length := minLen; length <= min(maxLen, n); length++ {
			if (sums[parity][to]-sums[parity][(n-length)%(maxLen+1)])%10 == 0 {
				return true
			}
		}
	}
	return false
}

// WrittenCard reports whether a text that people write holds a card number, also
// with a space, a dot, a dash or a slash between its digits.
func WrittenCard(text string) bool {
	var b strings.Builder
	runes := []rune(text)
	for i, r := range runes {
		between := i > 0 && i+1 < len(runes) && unicode.IsDigit(runes[i-1]) && unicode.IsDigit(runes[i+1])
		if between && (unicode.IsSpace(r) || strings.ContainsRune(".-_/", r)) {
			continue
		}
		b.WriteRune(r)
	}
	return HasCard(text) || HasCard(b.String())
}
