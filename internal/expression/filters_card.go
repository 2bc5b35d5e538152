package expression

import (
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

var errCard = fault.New(fault.Invalid, "a filter for card numbers was given something else")

var cardFilters = []filter{
	{
		name:   "card_bin",
		doc:    "The BIN of a card number: its first 6 digits below 16 digits, else 8. Spaces, dashes and the characters in separator do not count.",
		params: []param{takes("separator", "")},
		examples: []Example{
			example("data.number | card_bin", `{"number":"4242424242424242"}`, `"42424242"`),
			example("data | card_bin", `"3782-822463-10005"`, `"378282"`),
			example("data | card_bin: '.'", `"4242.4242.4242.4242"`, `"42424242"`),
		},
		apply: func(c *call) jsonvalue.Value {
			number, separators := c.text(), c.argText(0, "")
			if !c.spend(min(len(number), maxCardText) * len(separators)) {
				return jsonvalue.Value{}
			}
			digits, ok := cardDigits(number, separators)
			if !ok {
				return c.fail(errCard)
			}
			return c.string(digits[:binLength(len(digits))])
		},
	},
	{
		name:   "card_exp",
		doc:    "The expiry of card data in a format made of MM, M, YYYY and YY and of characters that are not letters. Nothing when the card has no expiry.",
		params: []param{takes("format", "'MM/YY'")},
		examples: []Example{
			example("data | card_exp: 'MM/YY'", `{"number":"4242424242424242","expiration_month":9,"expiration_year":2030}`, `"09/30"`),
			example("data | card_exp: 'YYYY-MM'", `{"number":"4242424242424242","expiration_month":9,"expiration_year":2030}`, `"2030-09"`),
		},
		apply: cardExpiry,
	},
}

// cardDigits takes the separators out of a card number; false when what is
// left is not 12 to 19 digits.
func cardDigits(s, separators string) (string, bool) {
	if len(s) > maxCardText {
		return "", false
	}
	digits := strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' || strings.ContainsRune(separators, r) {
			return -1
		}
		return r
	}, s)
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return "", false
		}
	}
	return digits, len(digits) >= 12 && len(digits) <= 19
}

// maxCardText is longer than any card number with separators in it.
const maxCardText = 64

func cardExpiry(c *call) jsonvalue.Value {
	if c.in.Kind() != jsonvalue.Object {
		return c.fail(errInput)
	}
	month, _ := c.in.Get("expiration_month")
	year, _ := c.in.Get("expiration_year")
	if month.IsNull() || year.IsNull() {
		return jsonvalue.Value{}
	}
	mm, yyyy := c.scalar(month, errInput), c.scalar(year, errInput)
	if len(mm) == 1 {
		mm = "0" + mm
	}
	if len(mm) != 2 || len(yyyy) != 4 || strings.Trim(mm+yyyy, "0123456789") != "" {
		return c.fail(errInput)
	}
	format, out := c.argText(0, "MM/YY"), strings.Builder{}
	if !c.room(2 * len(format)) {
		return jsonvalue.Value{}
	}
	fields := []struct{ name, value string }{
		{"MM", mm}, {"M", strings.TrimPrefix(mm, "0")}, {"YYYY", yyyy}, {"yyyy", yyyy}, {"YY", yyyy[2:]}, {"yy", yyyy[2:]},
	}
next:
	for format != "" {
		for _, f := range fields {
			if rest, ok := strings.CutPrefix(format, f.name); ok {
				out.WriteString(f.value)
				format = rest
				continue next
			}
		}
		if b := format[0] | 0x20; b >= 'a' && b <= 'z' {
			return c.fail(errArgument)
		}
		out.WriteByte(format[0])
		format = format[1:]
	}
	return c.string(out.String())
}
