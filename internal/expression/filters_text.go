package expression

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

// Texts are counted and cut in characters, that is in Unicode code points.
var textFilters = []filter{
	{
		name: "append", doc: "Puts a text after.", params: []param{needs("text")},
		examples: []Example{example("data | append: '.com'", `"example"`, `"example.com"`)},
		apply:    func(c *call) jsonvalue.Value { return c.string(c.inputString() + c.argString(0, "")) },
	},
	{
		name: "prepend", doc: "Puts a text before.", params: []param{needs("text")},
		examples: []Example{example("data | prepend: 'tok_'", `"a"`, `"tok_a"`)},
		apply:    func(c *call) jsonvalue.Value { return c.string(c.argString(0, "") + c.inputString()) },
	},
	replacing("remove", "Takes out every occurrence of a text.", all, example("data | remove: '-'", `"123-45-6789"`, `"123456789"`)),
	replacing("remove_first", "Takes out the first occurrence of a text.", first, example("data | remove_first: '-'", `"123-45-6789"`, `"12345-6789"`)),
	replacing("remove_last", "Takes out the last occurrence of a text.", last, example("data | remove_last: '-'", `"123-45-6789"`, `"123-456789"`)),
	replacing("replace", "Puts another text in place of every occurrence of one. An empty text occurs before each character and at the end.", all,
		example("data | replace: '-', ' '", `"123-45-6789"`, `"123 45 6789"`), example("data | replace: '', '.'", `"ab"`, `".a.b."`)),
	replacing("replace_first", "Puts another text in place of the first occurrence of one.", first, example("data | replace_first: 'a', 'b'", `"aa"`, `"ba"`)),
	replacing("replace_last", "Puts another text in place of the last occurrence of one.", last, example("data | replace_last: 'a', 'b'", `"aa"`, `"ab"`)),
	changing("upcase", "In capitals.", strings.ToUpper, example("data | upcase", `"jane é"`, `"JANE É"`)),
	changing("downcase", "In small letters.", strings.ToLower, example("data | downcase", `"ABC"`, `"abc"`)),
	changing("capitalize", "The first character in capitals, the rest small.", func(s string) string {
		r, size := utf8.DecodeRuneInString(s)
		if size == 0 {
			return s
		}
		return string(unicode.ToTitle(r)) + strings.ToLower(s[size:])
	}, example("data | capitalize", `"jane DOE"`, `"Jane doe"`)),
	changing("strip", "Without white space at either end.", strings.TrimSpace, example("data | strip", `" a b "`, `"a b"`)),
	changing("lstrip", "Without white space in front.", func(s string) string { return strings.TrimLeftFunc(s, unicode.IsSpace) }, example("data | lstrip", `" a "`, `"a "`)),
	changing("rstrip", "Without white space behind.", func(s string) string { return strings.TrimRightFunc(s, unicode.IsSpace) }, example("data | rstrip", `" a "`, `" a"`)),
	changing("squish", "Without white space at either end, and with one space for each run of white space inside.", squish, example("data | squish", `" a \n b "`, `"a b"`)),
	changing("strip_newlines", "Without line breaks.", strings.NewReplacer("\r", "", "\n", "").Replace, example("data | strip_newlines", `"a\nb"`, `"ab"`)),
	{
		name: "slice", doc: "So many characters, or items of a list, from a position; a negative one counts from the end.",
		params: []param{needs("start"), takes("length", "1")},
		examples: []Example{
			example("data | slice: 0", `"Liquid"`, `"L"`), example("data | slice: -3, 2", `"Liquid"`, `"ui"`), example("data | slice: 1, 2", `[1,2,3]`, `[2,3]`),
		},
		apply: func(c *call) jsonvalue.Value {
			start, length := c.argPosition(0, 0), c.argPosition(1, 1)
			if c.in.Kind() == jsonvalue.Array {
				return c.list(cut(c.items(), start, length))
			}
			return c.string(cutText(c.inputString(), start, length))
		},
	},
	{
		name: "truncate", doc: "At most n characters, of which the last are the ellipsis where something was cut.",
		params:   []param{takes("n", "50"), takes("ellipsis", "'...'")},
		examples: []Example{example("data | truncate: 8", `"Ground control"`, `"Groun..."`), example("data | truncate: 6, ''", `"Ground control"`, `"Ground"`)},
		apply: func(c *call) jsonvalue.Value {
			s, n, ellipsis := c.inputString(), c.argPosition(0, 50), c.argString(1, "...")
			if utf8.RuneCountInString(s) <= n {
				return c.string(s)
			}
			return c.string(cutText(s, 0, max(0, n-utf8.RuneCountInString(ellipsis))) + ellipsis)
		},
	},
	{
		name: "truncatewords", doc: "At most n words, but at least one, followed by the ellipsis where something was cut.",
		params:   []param{takes("n", "15"), takes("ellipsis", "'...'")},
		examples: []Example{example("data | truncatewords: 2", `"Ground control to"`, `"Ground control..."`)},
		apply: func(c *call) jsonvalue.Value {
			n := max(1, c.argPosition(0, 15))
			s := c.inputString()
			if !c.spend(8*len(s)) || !c.allocate(8*len(s)) {
				return jsonvalue.Value{}
			}
			words := strings.Fields(s)
			if len(words) <= n {
				return c.string(strings.Join(words, " "))
			}
			return c.string(strings.Join(words[:n], " ") + c.argString(1, "..."))
		},
	},
	padding("pad_left", "Puts a character in front until there are n; a longer text stays as it is.",
		func(s, pad string) string { return pad + s }, example("data | pad_left: 6, '0'", `"1234"`, `"001234"`), example("data | pad_left: 2, '0'", `1234`, `"1234"`)),
	padding("pad_right", "Puts a character behind until there are n; a longer text stays as it is.",
		func(s, pad string) string { return s + pad }, example("data | pad_right: 6, '0'", `"1234"`, `"123400"`)),
}

func squish(s string) string {
	var out strings.Builder
	for word := range strings.FieldsSeq(s) {
		if out.Len() > 0 {
			out.WriteByte(' ')
		}
		out.WriteString(word)
	}
	return out.String()
}

func changing(name, doc string, change func(string) string, examples ...Example) filter {
	return filter{
		name: name, doc: doc, examples: examples,
		apply: func(c *call) jsonvalue.Value {
			s := c.inputString()
			if !c.room(len(s)) {
				return jsonvalue.Value{}
			}
			return c.string(change(s))
		},
	}
}

func padding(name, doc string, pad func(s, pad string) string, examples ...Example) filter {
	return filter{
		name: name, doc: doc, params: []param{needs("n"), takes("char", "' '")}, examples: examples,
		apply: func(c *call) jsonvalue.Value {
			s, n, char := c.text(), c.argInt(0, 0, 0, most), c.argChar(1, " ")
			short := max(0, n-utf8.RuneCountInString(s))
			if !c.room(len(s) + short*len(char)) {
				return jsonvalue.Value{}
			}
			return c.string(pad(s, strings.Repeat(char, short)))
		},
	}
}

// which occurrences of a text are replaced.
type which int

const (
	all which = iota
	first
	last
)

func replacing(name, doc string, occurrences which, examples ...Example) filter {
	params := []param{needs("text")}
	if strings.HasPrefix(name, "replace") {
		params = []param{needs("text"), takes("by", "''")}
	}
	return filter{
		name: name, doc: doc, params: params, examples: examples,
		apply: func(c *call) jsonvalue.Value {
			s, old, by := c.inputString(), c.argString(0, ""), c.argString(1, "")
			if !c.spend(2 * len(s)) {
				return jsonvalue.Value{}
			}
			n := 1
			if occurrences == all {
				n = strings.Count(s, old) // an empty text occurs before each character, and at the end
			}
			if !c.room(len(s) + n*len(by)) {
				return jsonvalue.Value{}
			}
			at := strings.LastIndex(s, old)
			if occurrences == last && at >= 0 {
				return c.string(s[:at] + by + s[at+len(old):])
			}
			return c.string(strings.Replace(s, old, by, n))
		},
	}
}

// cutText is cut for the characters of a text, which it does not copy.
func cutText(s string, start, length int) string {
	n := utf8.RuneCountInString(s)
	if start < 0 {
		start += n
	}
	if start < 0 || start >= n || length < 0 {
		return ""
	}
	from := characters(s, start)
	return s[from : from+characters(s[from:], length)]
}

// characters is how many bytes the first n characters of a text have.
func characters(s string, n int) int {
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}

// cut is what a slice of so many from start has; a negative start counts from
// the end, and one before the beginning gives nothing, as a negative length
// does.
func cut[T any](s []T, start, length int) []T {
	if start < 0 {
		start += len(s)
	}
	if start < 0 || start >= len(s) || length < 0 {
		return nil
	}
	return s[start:min(len(s), start+length)]
}
