package expression

import (
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

// Numbers are calculated exactly, however long they are. What is not a number
// counts as call.decimal says.
var numberFilters = []filter{
	arithmetic("plus", "Adds.", decimal.plus, example("data | plus: 1", `9007199254740993`, `9007199254740994`), example("data | plus: 0.1", `"0.20"`, `0.30`),
		example("data | plus: 'text'", `1`, `1`)),
	arithmetic("minus", "Subtracts.", decimal.minus, example("data | minus: 1.5", `1`, `-0.5`)),
	arithmetic("times", "Multiplies.", decimal.times, example("data | times: 3", `12345678901234567890`, `37037036703703703670`)),
	dividing("divided_by", "Divides: two integers rounded down, others to at most 20 places.", decimal.dividedBy,
		example("data | divided_by: 3", `20`, `6`), example("data | divided_by: 8.0", `20`, `2.5`)),
	dividing("modulo", "The rest of a division, with the sign of the divisor.", decimal.modulo, example("data | modulo: 12", `-1`, `11`)),
	arithmetic("at_least", "The larger of two numbers.", func(d, e decimal) decimal {
		if d.compare(e) < 0 {
			return e
		}
		return d
	}, example("data | at_least: 5", `4`, `5`)),
	arithmetic("at_most", "The smaller of two numbers.", func(d, e decimal) decimal {
		if d.compare(e) > 0 {
			return e
		}
		return d
	}, example("data | at_most: 5", `4`, `4`)),
	rounding("abs", "A number without its sign.", func(d decimal) decimal {
		if d.coefficient.Sign() < 0 {
			return d.negated()
		}
		return d
	}, example("data | abs", `-17`, `17`), example("data | abs", `"text"`, `0`)),
	rounding("floor", "The next integer below.", decimal.floor, example("data | floor", `-1.2`, `-2`)),
	rounding("ceil", "The next integer above.", func(d decimal) decimal { return d.negated().floor().negated() }, example("data | ceil", `1.2`, `2`)),
	{
		name:     "round",
		doc:      "Rounds to so many places, halves away from zero; a negative count rounds to tens, hundreds and so on.",
		params:   []param{takes("places", "0")},
		examples: []Example{example("data | round", `2.5`, `3`), example("data | round: 2", `"183.357"`, `183.36`), example("data | round: -1", `183.357`, `180`)},
		apply: func(c *call) jsonvalue.Value {
			places := 0
			if c.given(0) {
				places = c.decimal(c.args[0]).clamped(2 * maxDigits)
			}
			return c.number(c.decimal(c.in).rounded(places))
		},
	},
}

func arithmetic(name, doc string, calculate func(d, e decimal) decimal, examples ...Example) filter {
	return filter{
		name: name, doc: doc, params: []param{needs("n")}, examples: examples,
		apply: func(c *call) jsonvalue.Value { return c.number(calculate(c.decimal(c.in), c.decimal(c.args[0]))) },
	}
}

func dividing(name, doc string, calculate func(d, e decimal) decimal, examples ...Example) filter {
	return arithmetic(name, doc, calculate, examples...).guarded(func(c *call, apply func(*call) jsonvalue.Value) jsonvalue.Value {
		if c.decimal(c.args[0]).coefficient.Sign() == 0 {
			return c.fail(errZero)
		}
		return apply(c)
	})
}

func rounding(name, doc string, calculate func(d decimal) decimal, examples ...Example) filter {
	return filter{
		name: name, doc: doc, examples: examples,
		apply: func(c *call) jsonvalue.Value { return c.number(calculate(c.decimal(c.in))) },
	}
}

// guarded puts a check before a filter.
func (f filter) guarded(check func(c *call, apply func(*call) jsonvalue.Value) jsonvalue.Value) filter {
	apply := f.apply
	f.apply = func(c *call) jsonvalue.Value { return check(c, apply) }
	return f
}

// decimal reads a number as Liquid does: a text counts as the number that it
// is or begins with, and everything else as 0. It fails only for numbers with
// too many digits; after a failure it is 0.
func (c *call) decimal(v jsonvalue.Value) decimal {
	zero, _ := parseDecimal("0")
	counts := v.Kind() == jsonvalue.Number || v.Kind() == jsonvalue.String
	if !c.spend(256+len(v.Reveal())) || !counts {
		return zero
	}
	text := strings.TrimSpace(v.Reveal())
	if n, err := numberOf(text); err == nil {
		text = n.Reveal()
	} else {
		text = leadingInteger(text)
	}
	d, err := parseDecimal(text)
	if err != nil {
		c.fail(err)
		return zero
	}
	// Large numbers cost by their size, in what is done with them too.
	if !c.spend(4*d.cost()) || !c.allocate(d.size()) {
		return zero
	}
	return d
}

// leadingInteger is the integer that a text begins with, 0 when there is none.
// An underscore may stand between two digits.
func leadingInteger(s string) string {
	sign := ""
	if s != "" && (s[0] == '-' || s[0] == '+') {
		sign, s = strings.TrimPrefix(s[:1], "+"), s[1:]
	}
	isDigit := func(i int) bool { return i < len(s) && s[i] >= '0' && s[i] <= '9' }
	end := 0
	for isDigit(end) || end > 0 && end < len(s) && s[end] == '_' && isDigit(end-1) && isDigit(end+1) {
		end++
	}
	if end == 0 {
		return "0"
	}
	return sign + strings.ReplaceAll(s[:end], "_", "")
}

func (c *call) number(d decimal) jsonvalue.Value {
	if c.err != nil {
		return jsonvalue.Value{}
	}
	if d.excessive() {
		return c.fail(errNumerous)
	}
	if !c.spend(d.cost()) || !c.allocate(valueSize+d.size()) {
		return jsonvalue.Value{}
	}
	v, err := jsonvalue.NewNumber(d.text())
	if err != nil {
		return c.fail(err)
	}
	return v
}
