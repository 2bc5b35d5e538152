package token

import (
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/luhn"
)

// networks are the numbers that are refused where names go: those of the large
// card networks, by their first digits and their length.
var networks = []struct {
	first, last string
	length      int
}{
	{"4", "4", 16},           // Visa
	{"51", "55", 16},         // Mastercard
	{"2221", "2720", 16},     // Mastercard
	{"34", "34", 15},         // American Express
	{"37", "37", 15},         // American Express
	{"6011", "6011", 16},     // Discover
	{"622126", "622925", 16}, // Discover
	{"644", "649", 16},       // Discover
	{"65", "65", 16},         // Discover
	{"300", "305", 14},       // Diners Club
	{"309", "309", 14},       // Diners Club
	{"36", "36", 14},         // Diners Club
	{"38", "39", 14},         // Diners Club
	{"3528", "3589", 16},     // JCB
}

// isNetworkNumber reports whether digits are a valid number of a large card
// network.
func isNetworkNumber(digits string) bool {
	for _, n := range networks {
		if len(digits) == n.length && digits[:len(n.first)] >= n.first && digits[:len(n.last)] <= n.last {
			return luhn.Valid(digits)
		}
	}
	return false
}

// looksLikeCardNumber reports whether a whole run of digits in a name is a card
// number. One space, dash, dot or underscore between two digits does not end a
// run.
func looksLikeCardNumber(name string) bool {
	var run []byte
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= '0' && c <= '9':
			run = append(run, c)
			continue
		case strings.IndexByte(" -._", c) >= 0 && i > 0 && !notDigit(rune(name[i-1])) && i+1 < len(name) && !notDigit(rune(name[i+1])):
			continue
		}
		if isNetworkNumber(string(run)) {
			return true
		}
		run = run[:0]
	}
	return isNetworkNumber(string(run))
}
