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
		name: "default", doc: "Another value in place of nothing, false, or an empty text, list or object.", params: []param{needs("value")},
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
			if empty {
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
		name: "date", doc: "A date in a strftime format. It takes RFC 3339, `2030-12-31`, `2030-12-31 23:59:59`, `31 December 2030`, `December 31, 2030` and seconds since 1970, but not `now`.",
		params:   []param{needs("format")},
		examples: []Example{example("data | date: '%d.%m.%y'", `"2030-12-31T23:59:59Z"`, `"31.12.30"`), example("data | date: '%Y'", `"1970-02-03"`, `"1970"`)},
		apply: func(c *call) jsonvalue.Value {
			t, ok := dateOf(strings.TrimSpace(c.text()))
			if !ok {
				return c.fail(errInput)
			}
			s, ok := strftime(t, c.argText(0, ""))
			if !ok {
				return c.fail(errArgument)
			}
			return c.string(s)
		},
	},
}

var dateLayouts = []string{
	time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02", "2006/01/02",
	"2 January 2006", "2 Jan 2006", "January 2, 2006", "Jan 2, 2006",
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

// strftime formats a time; false when the format has a directive that is not
// known. A dash after the percent sign drops the padding of numbers.
func strftime(t time.Time, format string) (string, bool) {
	var out strings.Builder
	for {
		at := strings.IndexByte(format, '%')
		if at < 0 || at == len(format)-1 {
			out.WriteString(format)
			return out.String(), at < 0
		}
		out.WriteString(format[:at])
		directive, width := format[at+1:], 0
		if rest, ok := strings.CutPrefix(directive, "-"); ok && rest != "" {
			directive, width = rest, -1
		}
		s, ok := strftimeDirective(t, directive[0])
		if !ok {
			return "", false
		}
		if width < 0 {
			if s = strings.TrimLeft(s, "0 "); s == "" {
				s = "0"
			}
		}
		out.WriteString(s)
		format = directive[1:]
	}
}

func strftimeDirective(t time.Time, directive byte) (string, bool) {
	if layout, ok := map[byte]string{
		'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'P': "pm",
		'A': "Monday", 'a': "Mon", 'B': "January", 'b': "Jan", 'h': "Jan", 'j': "002", 'z': "-0700", 'Z': "MST", 'L': "000",
		'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06", 'x': "01/02/06", 'X': "15:04:05", 'c': "Mon Jan _2 15:04:05 2006",
	}[directive]; ok {
		if directive == 'L' {
			return fmt.Sprintf("%03d", t.Nanosecond()/1e6), true
		}
		return t.Format(layout), true
	}
	switch directive {
	case '%':
		return "%", true
	case 's':
		return strconv.FormatInt(t.Unix(), 10), true
	case 'u':
		return strconv.Itoa((int(t.Weekday())+6)%7 + 1), true
	case 'w':
		return strconv.Itoa(int(t.Weekday())), true
	}
	return "", false
}
