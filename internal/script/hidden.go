package script

import (
	"index/suffixarray"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

// leastHidden is from how many characters on a protected value is hidden.
const leastHidden = 6

const hiddenText = "[protected]"

// hidden are the values that texts of code must not repeat.
type hidden struct {
	values iter.Seq[jsonvalue.Value] // nil for none
	all    bool                      // whatever the texts say
}

// hide returns the texts with every protected value replaced. Values may
// overlap, as a card number and its first digits do: whatever belongs to any of
// them goes. There may be very many, so the texts are indexed and not the values.
func (h hidden) hide(texts ...string) []string {
	out := make([]string, len(texts))
	switch {
	case h.all:
		for i := range out {
			out[i] = hiddenText
		}
		return out
	case h.values == nil:
		copy(out, texts)
		return out
	}
	joined := strings.Join(texts, "\x00")
	index := suffixarray.New([]byte(joined))
	edges := make([]int, len(joined)+1) // values that begin here, less those that end here
	seen := make(map[string]bool)
	for v := range h.values {
		s := v.Reveal()
		if len(s) > len(joined) || utf8.RuneCountInString(s) < leastHidden || seen[s] {
			continue
		}
		seen[s] = true
		for _, at := range index.Lookup([]byte(s), -1) {
			edges[at]++
			edges[at+len(s)]--
		}
	}
	at, covering := 0, 0
	for i, text := range texts {
		var b strings.Builder
		for j := range len(text) {
			before := covering
			if covering += edges[at+j]; covering == 0 {
				_ = b.WriteByte(text[j])
			} else if before == 0 || j == 0 {
				_, _ = b.WriteString(hiddenText)
			}
		}
		out[i] = b.String()
		if at += len(text); at < len(joined) {
			covering += edges[at] // of the byte between two texts
			at++
		}
	}
	return out
}
