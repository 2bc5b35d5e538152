package token

import (
	"unicode"

	"golang.org/x/text/cases"
)

// fold makes texts equal that differ only in case, as Unicode defines it in
// full: "STRASSE" is "straße". The texts themselves are not normalized.
//
// Stored search terms depend on every result. Of each set of letters that are
// equal the least is taken, which is what releases that folded letter by letter
// wrote: only letters that become several, such as ß, have other terms today.
func fold(s string) string {
	out := make([]rune, 0, len(s))
	for _, r := range fullFold(s) {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		out = append(out, least)
	}
	return string(out)
}

// fullFold replaces letters that become several in another case. ASCII has none.
func fullFold(s string) string {
	for i := range len(s) {
		if s[i] > unicode.MaxASCII {
			return cases.Fold().String(s)
		}
	}
	return s
}
