package expression

import (
	"strconv"

	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

// UsesData reports whether an expression of the template names data, as its
// value or as the argument of a filter.
func (t *Template) UsesData() bool { return t.open().data }

// Canonical returns the template in the one form that all of its spellings
// share: white space between the parts of an expression does not count, and
// everything else does. Fingerprints are computed over this form, so it never
// changes; golden tests hold it.
//
// Texts have their length before them, so no two templates share a form.
func (t *Template) Canonical() []byte {
	var b []byte
	for _, p := range t.open().parts {
		if p.expr == nil {
			b = appendText(append(b, 'T'), p.text)
			continue
		}
		b = p.expr.head.appendCanonical(append(b, 'E'))
		for _, f := range p.expr.filters {
			b = appendText(append(b, 'F'), f.filter.name)
			for _, arg := range f.args {
				b = arg.appendCanonical(append(b, 'A'))
			}
		}
		if p.expr.tolerated {
			b = append(b, '?')
		}
		b = append(b, ';')
	}
	return b
}

func (o operand) appendCanonical(b []byte) []byte {
	switch o.from {
	case fromData:
		return appendPath(append(b, 'D'), o.path)
	case fromMetadata:
		return appendPath(append(b, 'M'), o.path)
	}
	switch o.literal.Kind() {
	case jsonvalue.String:
		return appendText(append(b, 'S'), o.literal.Reveal())
	case jsonvalue.Number, jsonvalue.Bool:
		return appendText(append(b, 'N'), o.literal.Reveal())
	}
	return append(b, '0')
}

func appendPath(b []byte, path []member) []byte {
	for _, m := range path {
		if m.indexed {
			b = appendText(append(b, 'I'), strconv.Itoa(m.index))
		} else {
			b = appendText(append(b, 'P'), m.name)
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	b = strconv.AppendInt(b, int64(len(s)), 10)
	return append(append(b, ':'), s...)
}
