package expression

import (
	"io"
	"strings"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

// evaluator evaluates expressions in one scope and on one budget.
type evaluator struct {
	data     jsonvalue.Value
	metadata jsonvalue.Value
	lookup   Lookup
	random   io.Reader
	budget   *Budget
	masking  bool // a tolerated expression is hidden whole
}

func (e *evaluator) template(t *template) (jsonvalue.Value, error) {
	if len(t.parts) == 1 && t.parts[0].expr != nil {
		v, err := e.expression(t.parts[0].expr)
		if err != nil {
			return jsonvalue.Value{}, err
		}
		if v.Kind() != jsonvalue.Array && v.Kind() != jsonvalue.Object {
			return v, e.budget.produce(len(v.Reveal()))
		}
		return v, v.WriteJSON(&boundedWriter{w: io.Discard, budget: e.budget})
	}
	var text strings.Builder
	out := &boundedWriter{w: &text, budget: e.budget, gathers: true}
	for _, p := range t.parts {
		if p.expr == nil {
			if _, err := io.WriteString(out, p.text); err != nil {
				return jsonvalue.Value{}, err
			}
			continue
		}
		v, err := e.expression(p.expr)
		if err == nil {
			err = v.Stringify(out)
		}
		if err != nil {
			return jsonvalue.Value{}, err
		}
	}
	return jsonvalue.NewString(text.String()), nil
}

func (e *evaluator) expression(x *expression) (jsonvalue.Value, error) {
	v, err := e.operand(&x.head)
	if err != nil {
		return jsonvalue.Value{}, err
	}
	var raw []byte
	for i := range x.filters {
		use := &x.filters[i]
		if v.IsNull() && !use.filter.takesNothing {
			continue // nothing in, nothing out
		}
		c := call{in: v, raw: raw, random: e.random, budget: e.budget}
		cost := weight(v)
		for j := range use.args {
			arg, err := e.operand(&use.args[j])
			if err != nil {
				return jsonvalue.Value{}, err
			}
			c.args = append(c.args, arg)
			cost += weight(arg)
		}
		if err := e.budget.spend(cost); err != nil {
			return jsonvalue.Value{}, err
		}
		if v = use.filter.apply(&c); c.err != nil {
			return jsonvalue.Value{}, c.err
		}
		raw = c.made
	}
	if e.masking && x.tolerated {
		return hideWhole(v), nil
	}
	return v, nil
}

// weight is what looking once at a value costs, not counting what is inside
// its items.
func weight(v jsonvalue.Value) int { return len(v.Reveal()) + 16*v.Len() }

func (e *evaluator) operand(o *operand) (jsonvalue.Value, error) {
	var v jsonvalue.Value
	switch o.from {
	case fromLiteral:
		return o.literal, nil
	case fromData:
		v = e.data
	case fromMetadata:
		v = e.metadata
	case fromToken:
		return e.lookup(o.token)
	}
	for _, m := range o.path {
		if err := e.budget.spend(m.cost(v)); err != nil {
			return jsonvalue.Value{}, err
		}
		v = m.of(v)
	}
	return v, nil
}

// cost is what taking the step costs: each name is compared.
func (m member) cost(v jsonvalue.Value) int { return lookupCost(v, m.name) + len(v.Reveal()) }

func lookupCost(v jsonvalue.Value, name string) int { return v.Len() * (1 + len(name)/16) }

// of takes one step; what is not there is null. size, first and last are
// members of arrays, and size of what has no member of that name.
func (m member) of(v jsonvalue.Value) jsonvalue.Value {
	if m.indexed {
		i := m.index
		if i < 0 {
			i += v.Len()
		}
		item, _ := v.At(i)
		return item
	}
	if got, ok := v.Get(m.name); ok {
		return got
	}
	switch {
	case m.name == "size" && v.Kind() == jsonvalue.String:
		return jsonvalue.NewInt(int64(utf8.RuneCountInString(v.Reveal())))
	case m.name == "size" && (v.Kind() == jsonvalue.Array || v.Kind() == jsonvalue.Object):
		return jsonvalue.NewInt(int64(v.Len()))
	case m.name == "first":
		item, _ := v.At(0)
		return item
	case m.name == "last":
		item, _ := v.At(v.Len() - 1)
		return item
	}
	return jsonvalue.Value{}
}
