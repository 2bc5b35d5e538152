package expression

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

var otherFilters = []filter{
	{
		name: "default", doc: "Another value in place of nothing, false, or an empty text, list or object.", params: []param{takes("value", "''")},
		examples:     []Example{example("data.name | default: 'none'", `{}`, `"none"`), example("data | default: 1", `0`, `0`)},
		takesNothing: true,
		apply: func(c *call) jsonvalue.Value {
			empty := false
			switch c.in.Kind() {
			case jsonvalue.Null:
				empty = true
			case jsonvalue.Bool:
				empty = !c.in.IsTrue()
			case jsonvalue.String:
				empty = c.in.Reveal() == ""
			case jsonvalue.Array, jsonvalue.Object:
				empty = c.in.Len() == 0
			}
			switch {
			case empty && len(c.args) == 0:
				return jsonvalue.NewString("")
			case empty:
				return c.args[0]
			}
			return c.in
		},
	},
	{
		name: "size", doc: "How many characters a text has, or items a list, or members an object.",
		examples: []Example{example("data | size", `"é😀"`, `2`), example("data | size", `[1,2,3]`, `3`)},
		apply: func(c *call) jsonvalue.Value {
			if k := c.in.Kind(); k == jsonvalue.Array || k == jsonvalue.Object {
				return jsonvalue.NewInt(int64(c.in.Len()))
			}
			return jsonvalue.NewInt(int64(utf8.RuneCountInString(c.text())))
		},
	},
	{
		name: "date", doc: "A date in a strftime format. It takes RFC 3339, `2030-12-31`, `2030-12-31 23:59:59`, `31 December 2030`, `December 31, 2030`, the dates of HTTP and e-mail, and seconds since 1970. What is not a date stays as it is. `now` and `today` are errors: expressions have no clock.",
		params: []param{needs("format")},
		examples: []Example{
			example("data | date: '%d.%m.%y'", `"2030-12-31T23:59:59Z"`, `"31.12.30"`), example("data | date: '%Y'", `"1970-02-03"`, `"1970"`),
			example("data | date: '%Y'", `"soon"`, `"soon"`),
		},
		apply: func(c *call) jsonvalue.Value {
			format := c.argString(0, "")
			if k := c.in.Kind(); format == "" || k != jsonvalue.String && k != jsonvalue.Number {
				return c.in
			}
			text := strings.TrimSpace(c.in.Reveal())
			if strings.EqualFold(text, "now") || strings.EqualFold(text, "today") {
				return c.fail(errInput)
			}
			if !c.spend(dateSteps + 64*len(format)) {
				return jsonvalue.Value{}
			}
			t, ok := dateOf(text)
			if !ok {
				return c.in
			}
			return c.string(strftime(t, format, min(c.budget.max, c.budget.memory)))
		},
	},
}

// dateSteps is what trying all layouts costs.
const dateSteps = 1000

var dateLayouts = []string{
	time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05 UTC", "2006-01-02 15:04:05", "2006-01-02 15:04",
	"2006-01-02", "2006/01/02", "2 January 2006", "2 Jan 2006", "January 2, 2006", "Jan 2, 2006",
	"Mon, 2 Jan 2006 15:04:05 GMT", time.RFC1123Z, time.ANSIC, "Mon Jan _2 15:04:05 UTC 2006",
}

func dateOf(s string) (time.Time, bool) {
	if len(s) > 64 {
		return time.Time{}, false
	}
	if seconds, err := strconv.ParseInt(s, 10, 64); err == nil {
		t := time.Unix(seconds, 0).UTC()
		return t, t.Year() >= 0 && t.Year() <= 9999
	}
	for _, layout := range dateLayouts {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// strftime formats a time, and stops soon after limit bytes. A directive that
// is not known stands for itself.
func strftime(t time.Time, format string, limit int) string {
	var out strings.Builder
	for out.Len() <= limit {
		at := strings.IndexByte(format, '%')
		if at < 0 {
			break
		}
		out.WriteString(format[:at])
		format = format[at:]
		d, length := parseDirective(format)
		s, ok := d.format(t)
		if !ok {
			s, length = format[:1], 1
		}
		out.WriteString(s)
		format = format[length:]
	}
	out.WriteString(format)
	return out.String()
}

// directive is one piece of a strftime format: %, flags, a width and a letter.
type directive struct {
	flags  string
	width  int
	letter byte // 0 when the format ends before it
}

const maxDirectiveWidth = 99

// parseDirective reads the directive that a format begins with, and its length.
func parseDirective(format string) (directive, int) {
	rest := strings.TrimLeft(format[1:], "-_0^#:")
	d := directive{flags: format[1 : len(format)-len(rest)]}
	for rest != "" && rest[0] >= '0' && rest[0] <= '9' && d.width <= maxDirectiveWidth {
		d.width, rest = 10*d.width+int(rest[0]-'0'), rest[1:]
	}
	if rest == "" || d.width > maxDirectiveWidth || len(d.flags) > 8 {
		return directive{}, 0
	}
	d.letter = rest[0]
	return d, len(format) - len(rest) + 1
}

func (d directive) format(t time.Time) (string, bool) {
	if d.letter == 'N' || d.letter == 'L' { // digits of the fraction, from the left
		n := d.width
		if n == 0 {
			n = map[byte]int{'N': 9, 'L': 3}[d.letter]
		}
		return fmt.Sprintf("%09d%s", t.Nanosecond(), strings.Repeat("0", max(0, n-9)))[:n], true
	}
	if strings.Contains(d.flags, ":") && d.letter != 'z' {
		return "", false
	}
	s, numeric := d.number(t)
	if !numeric {
		var ok bool
		if s, ok = d.text(t); !ok {
			return "", false
		}
	}
	pad := " "
	if numeric && !strings.ContainsRune("ekl", rune(d.letter)) {
		pad = "0"
	}
	for _, flag := range d.flags {
		switch {
		case flag == '-':
			d.width, pad = 0, ""
		case flag == '_':
			pad = " "
		case flag == '0':
			pad = "0"
		case flag == '^' || flag == '#' && d.letter != 'p' && d.letter != 'Z':
			s = strings.ToUpper(s)
		case flag == '#':
			s = strings.ToLower(s)
		}
	}
	width := max(d.width, len(s))
	if numeric {
		if s = strings.TrimLeft(s, "0 "); s == "" {
			s = "0"
		}
	}
	if pad == "" {
		return s, true
	}
	return strings.Repeat(pad, max(0, width-len(s))) + s, true
}

// number is the text of a directive for a number, padded as it is by default.
func (d directive) number(t time.Time) (string, bool) {
	isoYear, isoWeek := t.ISOWeek()
	weekday := int(t.Weekday())
	hour := (t.Hour()+11)%12 + 1
	switch d.letter {
	case 'Y':
		return fmt.Sprintf("%04d", t.Year()), true
	case 'C':
		return fmt.Sprintf("%02d", t.Year()/100), true
	case 'y':
		return fmt.Sprintf("%02d", t.Year()%100), true
	case 'm':
		return fmt.Sprintf("%02d", t.Month()), true
	case 'd':
		return fmt.Sprintf("%02d", t.Day()), true
	case 'e':
		return fmt.Sprintf("%2d", t.Day()), true
	case 'j':
		return fmt.Sprintf("%03d", t.YearDay()), true
	case 'H':
		return fmt.Sprintf("%02d", t.Hour()), true
	case 'k':
		return fmt.Sprintf("%2d", t.Hour()), true
	case 'I':
		return fmt.Sprintf("%02d", hour), true
	case 'l':
		return fmt.Sprintf("%2d", hour), true
	case 'M':
		return fmt.Sprintf("%02d", t.Minute()), true
	case 'S':
		return fmt.Sprintf("%02d", t.Second()), true
	case 'G':
		return fmt.Sprintf("%04d", isoYear), true
	case 'g':
		return fmt.Sprintf("%02d", isoYear%100), true
	case 'V':
		return fmt.Sprintf("%02d", isoWeek), true
	case 'U': // weeks begin on Sunday
		return fmt.Sprintf("%02d", (t.YearDay()+6-weekday)/7), true
	case 'W': // weeks begin on Monday
		return fmt.Sprintf("%02d", (t.YearDay()+6-(weekday+6)%7)/7), true
	case 'u':
		return strconv.Itoa((weekday+6)%7 + 1), true
	case 'w':
		return strconv.Itoa(weekday), true
	}
	return "", false
}

var textLayouts = map[byte]string{
	'p': "PM", 'P': "pm", 'A': "Monday", 'a': "Mon", 'B': "January", 'b': "Jan", 'h': "Jan", 'z': "-0700", 'Z': "MST",
	'F': "2006-01-02", 'T': "15:04:05", 'X': "15:04:05", 'R': "15:04", 'r': "03:04:05 PM", 'D': "01/02/06", 'x': "01/02/06",
	'c': "Mon Jan _2 15:04:05 2006", '+': "Mon Jan _2 15:04:05 MST 2006",
}

// text is that of a directive for text; false when the directive is unknown.
func (d directive) text(t time.Time) (string, bool) {
	switch colons := strings.Count(d.flags, ":"); {
	case colons > 2:
		return "", false
	case colons == 1:
		return t.Format("-07:00"), true
	case colons == 2:
		return t.Format("-07:00:00"), true
	}
	switch d.letter {
	case '%':
		return "%", true
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	case 's':
		return strconv.FormatInt(t.Unix(), 10), true
	case 'v':
		return strings.ToUpper(t.Format("_2-Jan-2006")), true
	}
	layout, ok := textLayouts[d.letter]
	return t.Format(layout), ok
}
