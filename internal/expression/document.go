package expression

import (
	"slices"

	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

// Document is a JSON value with detokenization expressions in its strings. It
// is somebody's request, so it stands where printers do not reach.
type Document struct{ open func() *document }

type document struct {
	value      jsonvalue.Value
	texts      []*Detokenization // one for each leaf that Contains expressions, in order
	references []Reference
}

// ParseDocument reads the strings of a JSON value as ParseDetokenization does.
// Names of members are not expressions.
func ParseDocument(b *Budget, v jsonvalue.Value) (*Document, error) {
	defer b.End()
	if err := b.Begin(); err != nil {
		return nil, err
	}
	d := &document{value: v}
	all := Texts{Budget: b}
	for leaf := range v.Leaves() {
		if !expressive(leaf) {
			continue
		}
		text, err := all.Parse(leaf.Reveal())
		if err != nil {
			return nil, err
		}
		d.texts = append(d.texts, text)
	}
	d.references = all.seen.list
	return &Document{open: func() *document { return d }}, nil
}

func expressive(leaf jsonvalue.Value) bool {
	return leaf.Kind() == jsonvalue.String && Contains(leaf.Reveal())
}

// IDs lists the tokens that the document needs, in the order of their first use.
func (d *Document) IDs() []Reference { return slices.Clone(d.open().references) }

// Resolve evaluates the expressions and measures the whole document with
// their values in it, before anything of it is built.
func (d *Document) Resolve(lookup Lookup, b *Budget) (*Expansion, error) {
	defer b.End()
	if err := b.Begin(); err != nil {
		return nil, err
	}
	doc := d.open()
	fixed := doc.value.JSONSize()
	for leaf := range doc.value.Leaves() {
		if expressive(leaf) {
			fixed -= leaf.JSONSize()
		}
	}
	before := b.output
	if err := b.produce(fixed); err != nil {
		return nil, err
	}
	expanded := make([]*Expansion, len(doc.texts))
	for i, text := range doc.texts {
		var err error
		if expanded[i], err = text.Resolve(lookup, JSONString, b); err != nil {
			return nil, err
		}
	}
	return &Expansion{size: before - b.output, build: func() jsonvalue.Value {
		next := 0
		v, _ := doc.value.MapLeaves(func(leaf jsonvalue.Value) (jsonvalue.Value, error) { // it never fails
			if !expressive(leaf) {
				return leaf, nil
			}
			next++
			return expanded[next-1].Value(), nil
		})
		return v
	}}, nil
}
