package expression

import (
	"strings"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

const most = 1 << 20 // more characters than any count needs

var revealFilters = []filter{
	{
		name: "last4",
		doc:  "Keeps the last four characters; a shorter value stays as it is.",
		examples: []Example{
			example("data | last4", `"4242424242424242"`, `"4242"`),
			example("data | last4", `"42"`, `"42"`),
		},
		apply: func(c *call) jsonvalue.Value { return c.string(tail(c.text(), 4)) },
	},
	{
		name:   "reveal_last",
		doc:    "Hides all but the last n characters, separators too. When that would hide nothing, it hides everything.",
		params: []param{needs("n"), takes("char", "'X'")},
		examples: []Example{
			example("data | reveal_last: 4", `"4242424242424242"`, `"XXXXXXXXXXXX4242"`),
			example("data | reveal_last: 5, '*'", `"DE-2024-00417"`, `"********00417"`),
			example("data | reveal_last: 4", `"4242"`, `"XXXX"`),
		},
		apply: func(c *call) jsonvalue.Value {
			return c.string(c.hide(c.runes(), span{last: c.argInt(0, 0, 0, most)}, c.argChar(1, "X"), ""))
		},
	},
	{
		name:   "reveal",
		doc:    "Hides all but the first and last characters and those in keep. When that would hide nothing, it hides everything.",
		params: []param{takes("first", "0"), takes("last", "0"), takes("char", "'X'"), takes("keep", "")},
		examples: []Example{
			example("data | reveal: 1", `"Jane"`, `"JXXX"`),
			example("data | reveal: 2, 4, '*', '- '", `"DE-2024 00417"`, `"DE-**** *0417"`),
			example("data | reveal: 2, 2", `"Jane"`, `"XXXX"`),
			example("data | reveal: 0, 4, 'X', '-'", `"123-45-6789"`, `"XXX-XX-6789"`),
		},
		apply: func(c *call) jsonvalue.Value {
			shown := span{first: c.argInt(0, 0, 0, most), last: c.argInt(1, 0, 0, most)}
			return c.string(c.hide(c.runes(), shown, c.argChar(2, "X"), c.argText(3, "")))
		},
	},
	{
		name:   "card_mask",
		doc:    "Hides a card number but, where asked, its BIN and its last four digits. Characters in keep stay and are not counted. When that would hide nothing, it hides everything.",
		params: []param{takes("reveal_bin", "false"), takes("reveal_last4", "false"), takes("char", "'X'"), takes("keep", "")},
		examples: []Example{
			example("data | card_mask", `"4242424242424242"`, `"XXXXXXXXXXXXXXXX"`),
			example("data | card_mask: true, true, '#'", `"4242424242424242"`, `"42424242####4242"`),
			example("data | card_mask: 'true', 'true', 'X', '-'", `"5555-5555-5555-4444"`, `"5555-5555-XXXX-4444"`),
			example("data | card_mask: true, true", `"378282246310005"`, `"378282XXXXX0005"`),
		},
		apply: func(c *call) jsonvalue.Value {
			runes, keep := c.runes(), c.argText(3, "")
			if !c.spend(len(runes)*(1+len(keep))) || !c.allocate(16*len(runes)) {
				return jsonvalue.Value{}
			}
			var counted []int
			for i, r := range runes {
				if !strings.ContainsRune(keep, r) {
					counted = append(counted, i)
				}
			}
			var shown span
			n := len(counted)
			if bin := binLength(n); c.argBool(0) && n > bin {
				shown.first = counted[bin]
			} else if c.argBool(0) {
				shown.first = len(runes)
			}
			if c.argBool(1) && n > 4 {
				shown.last = len(runes) - counted[n-4]
			} else if c.argBool(1) {
				shown.last = len(runes)
			}
			return c.string(c.hide(runes, shown, c.argChar(2, "X"), keep))
		},
	},
}

// span is how many characters stay at either end.
type span struct{ first, last int }

// hide replaces characters. Where the rest would show the whole, all of it is
// replaced, kept characters too: a mask must not depend on a value being long.
func (c *call) hide(runes []rune, shown span, char, keep string) string {
	mask, _ := utf8.DecodeRuneInString(char)
	if !c.spend(len(runes)*(1+len(keep))) || !c.room(len(runes)) || !c.allocate(4*len(runes)) {
		return ""
	}
	out := make([]rune, len(runes))
	hidden := 0
	for i, r := range runes {
		if i < shown.first || i >= len(runes)-shown.last || strings.ContainsRune(keep, r) {
			out[i] = r
			continue
		}
		out[i] = mask
		if r != mask {
			hidden++
		}
	}
	if hidden == 0 {
		for i := range out {
			out[i] = mask
		}
	}
	return string(out)
}

// tail is the last n characters.
func tail(s string, n int) string {
	at := len(s)
	for ; n > 0 && at > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(s[:at])
		at -= size
	}
	return s[at:]
}

// binLength is the length of the BIN in a card number of so many digits.
func binLength(digits int) int {
	if digits < 16 {
		return 6
	}
	return 8
}
