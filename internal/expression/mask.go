package expression

import (
	"strings"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

// MaskOptions say how a mask is evaluated.
type MaskOptions struct {
	// Hidden lists dotted paths under data ("cvc") that no mask may yield.
	Hidden []string
	// Cache keeps the parsed expressions of the mask; nil parses them again.
	Cache *Cache
	// MaxOutput bounds the whole in bytes; 0 means the default.
	MaxOutput int
	// Budget is that of the request, of which one mask may use a part; nil is
	// one of its own, of default size.
	Budget *Budget
	// DataSize is how many bytes the data has as JSON.
	DataSize int
}

// EvaluateMask gives what a mask of any shape shows of the data. The strings
// in it are templates over data; everything else stands for itself. Members
// that come to nothing are left out, items of arrays that do are null. An
// expression with something after its value that is not part of the language
// hides that value whole: nobody knows what was meant. The result is null when
// the mask comes to nothing.
func EvaluateMask(mask, data jsonvalue.Value, o MaskOptions) (jsonvalue.Value, error) {
	defer o.Budget.End()
	if err := o.Budget.Begin(); err != nil {
		return jsonvalue.Value{}, err
	}
	bound := MaxOutput
	if o.MaxOutput > 0 {
		bound = o.MaxOutput
	}
	m := masker{cache: o.Cache, evaluator: evaluator{
		data: Scope{Data: data, Hidden: o.Hidden}.data(), budget: o.Budget.orDefault().forMask(o.DataSize, bound), masking: true,
	}}
	if err := m.evaluator.budget.Err(); err != nil {
		return jsonvalue.Value{}, err
	}
	return m.value(mask)
}

type masker struct {
	cache     *Cache
	evaluator evaluator
}

func (m *masker) value(mask jsonvalue.Value) (jsonvalue.Value, error) {
	switch mask.Kind() {
	case jsonvalue.String:
		return m.text(mask)
	case jsonvalue.Array:
		items := make([]jsonvalue.Value, 0, mask.Len())
		for _, item := range mask.Items() {
			v, err := m.value(item)
			if err != nil {
				return jsonvalue.Value{}, err
			}
			items = append(items, v)
		}
		return jsonvalue.NewArray(items), m.evaluator.budget.produce(2 + len(items))
	case jsonvalue.Object:
		var b jsonvalue.Builder
		for name, member := range mask.Members() {
			v, err := m.value(member)
			if err != nil {
				return jsonvalue.Value{}, err
			}
			if v.IsNull() {
				continue
			}
			b.Add(name, v)
			if err := m.evaluator.budget.produce(len(name) + 4); err != nil {
				return jsonvalue.Value{}, err
			}
		}
		return b.Value(), m.evaluator.budget.produce(2)
	}
	return mask, m.evaluator.budget.produce(len(mask.Reveal()))
}

func (m *masker) text(mask jsonvalue.Value) (jsonvalue.Value, error) {
	text := mask.Reveal()
	if !Contains(text) && !strings.Contains(text, "{%") {
		return mask, m.evaluator.budget.produce(len(text))
	}
	t, err := m.cache.Parse(m.evaluator.budget, text)
	switch {
	case err != nil:
		return jsonvalue.Value{}, err
	case t.UsesAlias():
		return jsonvalue.Value{}, errAlias
	case t.UsesMetadata():
		return jsonvalue.Value{}, errMetadata
	}
	return m.evaluator.template(t.open())
}

// hiding is what stands in place of a hidden character.
const hiding = "X"

// Hidden is what stands in place of a value whose length would give it away,
// such as a boolean.
const Hidden = "XXXX"

// DefaultMask is the mask of data that has none of its own. On every leaf the
// trailing characters stay, four of them but never more than half; numbers are
// taken by their text, booleans are hidden, and null stays. Names and shape
// are kept.
func DefaultMask(data jsonvalue.Value) jsonvalue.Value {
	return maskLeaves(data, func(n int) int { return min(4, n/2) })
}

// hideWhole is DefaultMask with nothing left to see.
func hideWhole(v jsonvalue.Value) jsonvalue.Value {
	return maskLeaves(v, func(int) int { return 0 })
}

// maskLeaves keeps so many trailing characters of each leaf as stay says for
// its length.
func maskLeaves(v jsonvalue.Value, stay func(n int) int) jsonvalue.Value {
	masked, _ := v.MapLeaves(func(leaf jsonvalue.Value) (jsonvalue.Value, error) { // it never fails
		switch leaf.Kind() {
		case jsonvalue.Bool:
			return jsonvalue.NewString(Hidden), nil
		case jsonvalue.String, jsonvalue.Number:
			text := leaf.Reveal()
			n := utf8.RuneCountInString(text)
			kept := stay(n)
			return jsonvalue.NewString(strings.Repeat(hiding, n-kept) + tail(text, kept)), nil
		}
		return leaf, nil
	})
	return masked
}
