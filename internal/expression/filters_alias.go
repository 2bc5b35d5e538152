package expression

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

var (
	errNothingToAlias = fault.New(fault.Invalid, "an alias filter has nothing to replace in the value")
	errDraw           = errors.New("expression: the source of randomness gives nothing that can be used")
)

// drawSteps is what drawing one character costs: the source of randomness is
// slower than everything else here.
const drawSteps = 64

const (
	digits       = "0123456789"
	lower        = "abcdefghijklmnopqrstuvwxyz"
	upper        = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	alphanumeric = lower + digits
)

// Aliases are drawn from what Options.Random gives. An alias is never its
// input, and its digits never pass the Luhn check that card numbers pass: so
// it cannot be anybody's card number, and is not taken for one.
var aliasFilters = []filter{
	{
		name:   "alias_card",
		doc:    "A random number in the form of a card number, spaces and dashes kept; the BIN and the last four digits stay where asked. It never passes the Luhn check, so it is nobody's card. Ids only.",
		params: []param{takes("reveal_bin", "false"), takes("reveal_last4", "false")},
		examples: []Example{
			example("data.number | alias_card", `{"number":"4242424242424242"}`, `"7566948261588997"`),
			example("data.number | alias_card: false, true", `{"number":"4242424242424242"}`, `"7566948261584242"`),
			example("data | alias_card: true, true", `"5555-5555-5555-4444"`, `"5555-5555-7566-4444"`),
		},
		alias: true,
		apply: func(c *call) jsonvalue.Value {
			number, ok := cardDigits(c.text(), "")
			if !ok {
				return c.fail(errCard)
			}
			var shown span
			if c.argBool(0) {
				shown.first = binLength(len(number))
			}
			if c.argBool(1) {
				shown.last = 4
			}
			nth := -1 // of the digits: separators do not count
			return c.alias(func(_ int, r rune) string {
				if r == ' ' || r == '-' {
					return ""
				}
				if nth++; nth < shown.first || nth >= len(number)-shown.last {
					return ""
				}
				return digits
			})
		},
	},
	{
		name:   "alias_preserve_format",
		doc:    "Random digits for digits and random letters of the same case for letters; the rest stays, and so do the first and last characters where asked. Ids only.",
		params: []param{takes("first", "0"), takes("last", "0")},
		examples: []Example{
			example("data | alias_preserve_format", `"ABC-12345-def"`, `"JFW-69482-ahn"`),
			example("data | alias_preserve_format: 3, 3", `"123-45-6789"`, `"123-75-6789"`),
		},
		alias: true,
		apply: func(c *call) jsonvalue.Value {
			return c.aliasBetween(func(r rune) string {
				switch {
				case unicode.IsDigit(r):
					return digits
				case unicode.IsUpper(r):
					return upper
				case unicode.IsLetter(r) || unicode.IsMark(r):
					return lower
				}
				return ""
			})
		},
	},
	{
		name:   "alias_preserve_length",
		doc:    "As many random lower-case letters and digits; the first and last characters stay where asked. Ids only.",
		params: []param{takes("first", "0"), takes("last", "0")},
		examples: []Example{
			example("data | alias_preserve_length", `"ABC-12345"`, `"b1s0bs420"`),
			example("data | split: '@' | first | alias_preserve_length", `"johndoe@example.com"`, `"b1s0bs4"`),
		},
		alias: true,
		apply: func(c *call) jsonvalue.Value { return c.aliasBetween(func(rune) string { return alphanumeric }) },
	},
}

func (c *call) aliasBetween(alphabet func(r rune) string) jsonvalue.Value {
	n := len(c.runes())
	first, last := c.argInt(0, 0, 0, most), c.argInt(1, 0, 0, most)
	return c.alias(func(i int, r rune) string {
		if i < first || i >= n-last {
			return ""
		}
		return alphabet(r)
	})
}

// alias replaces each character by one of the alphabet it has, or keeps it
// when it has none. It draws until the whole is neither the input nor passes
// for a card number, which for a card number is nine times in ten at once.
func (c *call) alias(alphabet func(i int, r rune) string) jsonvalue.Value {
	runes := c.runes()
	if !c.room(len(runes)) || !c.allocate(16*len(runes)) {
		return jsonvalue.Value{}
	}
	alphabets, replaceable := make([]string, len(runes)), false
	for i, r := range runes {
		alphabets[i] = alphabet(i, r)
		replaceable = replaceable || alphabets[i] != ""
	}
	if !replaceable {
		return c.fail(errNothingToAlias)
	}
	in := string(runes)
	for range 100 {
		if !c.spend(drawSteps*len(runes)) || !c.allocate(8*len(runes)) {
			return jsonvalue.Value{}
		}
		out := make([]rune, len(runes))
		for i, r := range runes {
			if out[i] = r; alphabets[i] != "" {
				out[i] = rune(c.draw(alphabets[i]))
			}
		}
		if c.err != nil {
			return jsonvalue.Value{}
		}
		if s := string(out); s != in && !passesForCard(s) {
			return c.string(s)
		}
	}
	return c.fail(errNothingToAlias)
}

// draw takes one character, each as likely as the other.
func (c *call) draw(alphabet string) byte {
	var b [1]byte
	fair := 256 - 256%len(alphabet)
	for range 100 {
		if _, err := io.ReadFull(c.random, b[:]); err != nil {
			c.fail(fmt.Errorf("draw an alias: %w", err))
			return 0
		}
		if int(b[0]) < fair {
			return alphabet[int(b[0])%len(alphabet)]
		}
	}
	c.fail(errDraw)
	return 0
}

// passesForCard reports whether the digits of s, spaces and dashes aside, are
// or contain a run of 12 to 19 that passes the Luhn check.
func passesForCard(s string) bool {
	var run []byte
	for _, field := range strings.FieldsFunc(s, func(r rune) bool { return r != ' ' && r != '-' && (r < '0' || r > '9') }) {
		run = run[:0]
		for i := range len(field) {
			if field[i] >= '0' && field[i] <= '9' {
				run = append(run, field[i])
			}
		}
		if len(run) >= 12 && len(run) <= 19 && luhn(run) {
			return true
		}
	}
	return false
}

func luhn(number []byte) bool {
	sum := 0
	for i := range number {
		d := int(number[len(number)-1-i] - '0')
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}
