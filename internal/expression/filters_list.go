package expression

import (
	"slices"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

var listFilters = []filter{
	{
		name: "split", doc: "The pieces of a text between separators; an empty separator splits into characters, a space at any white space.",
		params:   []param{needs("separator")},
		examples: []Example{example("data | split: ' ' | last | upcase", `"Jane Doe"`, `"DOE"`), example("data | split: ','", `"a,b,,"`, `["a","b"]`)},
		apply:    split,
	},
	{
		name: "join", doc: "The items of a list as one text.", params: []param{takes("separator", "' '")},
		examples: []Example{example("data | join: '-'", `["a",1,true]`, `"a-1-true"`)},
		apply: func(c *call) jsonvalue.Value {
			separator, pieces, total := c.argText(0, " "), []string(nil), 0
			for _, item := range c.items() {
				pieces = append(pieces, c.stringified(item))
				if total += len(pieces[len(pieces)-1]) + len(separator); total > c.budget.max+len(separator) {
					return c.fail(c.budget.over)
				}
			}
			return c.string(strings.Join(pieces, separator))
		},
	},
	{
		name: "first", doc: "The first item of a list, or character of a text.",
		examples: []Example{example("data | first", `[3,4]`, `3`)},
		apply:    func(c *call) jsonvalue.Value { return c.end(0) },
	},
	{
		name: "last", doc: "The last item of a list, or character of a text.",
		examples: []Example{example("data | last", `[3,4]`, `4`), example("data | last", `"abc"`, `"c"`)},
		apply:    func(c *call) jsonvalue.Value { return c.end(-1) },
	},
	{
		name: "reverse", doc: "A list from its end.",
		examples: []Example{example("data | reverse", `[1,2,3]`, `[3,2,1]`)},
		apply: func(c *call) jsonvalue.Value {
			items := c.items()
			slices.Reverse(items)
			return c.list(items)
		},
	},
	sorting("sort", "A list in order, of texts or of numbers, or of objects by a member; what lacks the member comes last.", strings.Compare,
		example("data | sort", `[10,9,1.5]`, `[1.5,9,10]`), example("data | sort: 'a'", `[{"a":2},{"a":1}]`, `[{"a":1},{"a":2}]`)),
	sorting("sort_natural", "As sort, without minding capitals.", func(a, b string) int {
		return strings.Compare(strings.ToLower(a), strings.ToLower(b))
	}, example("data | sort_natural", `["b","A","C"]`, `["A","b","C"]`)),
	{
		name: "uniq", doc: "A list without repetitions, or without objects that repeat a member.", params: []param{takes("member", "")},
		examples: []Example{example("data | uniq", `[1,"1",1]`, `[1,"1"]`)},
		apply: func(c *call) jsonvalue.Value {
			seen := map[string]bool{}
			return c.keep(func(item jsonvalue.Value) bool {
				item = c.memberOf(item, 0)
				key := string(rune('0'+item.Kind())) + c.stringified(item)
				repeated := seen[key]
				seen[key] = true
				return !repeated
			})
		},
	},
	{
		name: "compact", doc: "A list without nulls, or without objects that lack a member.", params: []param{takes("member", "")},
		examples: []Example{example("data | compact", `[1,null,2]`, `[1,2]`)},
		apply: func(c *call) jsonvalue.Value {
			return c.keep(func(item jsonvalue.Value) bool { return !c.memberOf(item, 0).IsNull() })
		},
	},
	{
		name: "where", doc: "The objects of a list whose member has a value, or has any that is not false.", params: []param{needs("member"), takes("value", "")},
		examples: []Example{example("data | where: 'type', 'home' | first | json: '$.no'", `[{"type":"work","no":1},{"type":"home","no":2}]`, `2`)},
		apply: func(c *call) jsonvalue.Value {
			return c.keep(func(item jsonvalue.Value) bool {
				member := c.memberOf(item, 0)
				if c.given(1) {
					return c.budget.spend(weight(member)) == nil && member.Equal(c.args[1])
				}
				return !member.IsNull() && !member.Equal(jsonvalue.NewBool(false))
			})
		},
	},
	{
		name: "map", doc: "A member of each object in a list.", params: []param{needs("member")},
		examples: []Example{example("data | map: 'a'", `[{"a":1},{"a":"x"},{}]`, `[1,"x",null]`)},
		apply: func(c *call) jsonvalue.Value {
			items := c.items()
			for i := range items {
				items[i] = c.memberOf(items[i], 0)
			}
			return c.list(items)
		},
	},
	{
		name: "concat", doc: "A list followed by another.", params: []param{needs("list")},
		examples: []Example{example("data.a | concat: data.b", `{"a":[1],"b":[2]}`, `[1,2]`)},
		apply: func(c *call) jsonvalue.Value {
			if c.args[0].Kind() != jsonvalue.Array {
				return c.fail(errArgument)
			}
			items := c.items()
			for _, item := range c.args[0].Items() {
				items = append(items, item)
			}
			return c.list(items)
		},
	},
	{
		name: "sum", doc: "The sum of a list of numbers, or of a member of its objects.", params: []param{takes("member", "")},
		examples: []Example{example("data | sum", `[1,"2.50"]`, `3.50`)},
		apply: func(c *call) jsonvalue.Value {
			total, _ := parseDecimal("0")
			for _, item := range c.items() {
				if total = total.plus(c.decimal(c.memberOf(item, 0))); c.err != nil {
					break
				}
			}
			return c.number(total)
		},
	},
}

func split(c *call) jsonvalue.Value {
	s, separator := c.text(), c.argText(0, "")
	n := 0
	switch separator {
	case " ":
		n = len(s) / 2
	default:
		n = strings.Count(s, separator)
	}
	if !c.room(n) || c.budget.spend(64*n) != nil {
		return c.fail(errWork)
	}
	var pieces []string
	if separator == " " {
		pieces = strings.Fields(s)
	} else {
		pieces = strings.Split(s, separator)
	}
	for len(pieces) > 0 && pieces[len(pieces)-1] == "" {
		pieces = pieces[:len(pieces)-1]
	}
	items := make([]jsonvalue.Value, len(pieces))
	for i, piece := range pieces {
		items[i] = jsonvalue.NewString(piece)
	}
	return c.list(items)
}

// end is the item or character at 0 or, counted from the end, at -1.
func (c *call) end(at int) jsonvalue.Value {
	if c.in.Kind() == jsonvalue.Array {
		return member{index: at, indexed: true}.of(c.in)
	}
	s := c.text()
	if s == "" {
		return jsonvalue.Value{}
	}
	if at < 0 {
		return c.string(tail(s, 1))
	}
	return c.string(string([]rune(s[:min(len(s), 4)])[:1]))
}

// memberOf is the member that an argument names, or the item itself when it
// names none.
func (c *call) memberOf(item jsonvalue.Value, arg int) jsonvalue.Value {
	if !c.given(arg) {
		return item
	}
	if c.budget.spend(item.Len()) != nil {
		c.fail(errWork)
	}
	got, _ := item.Get(c.argText(arg, ""))
	return got
}

// keep is the list of the items that are wanted.
func (c *call) keep(wanted func(jsonvalue.Value) bool) jsonvalue.Value {
	var kept []jsonvalue.Value
	for _, item := range c.items() {
		if c.err != nil {
			break
		}
		if wanted(item) {
			kept = append(kept, item)
		}
	}
	return c.list(kept)
}

func sorting(name, doc string, compare func(a, b string) int, examples ...Example) filter {
	return filter{
		name: name, doc: doc, params: []param{takes("member", "")}, examples: examples,
		apply: func(c *call) jsonvalue.Value {
			type keyed struct {
				item jsonvalue.Value
				key  jsonvalue.Value
				n    decimal
			}
			var list []keyed
			for _, item := range c.items() {
				k := keyed{item: item, key: c.memberOf(item, 0)}
				switch k.key.Kind() {
				case jsonvalue.Number:
					k.n = c.decimal(k.key)
				case jsonvalue.String, jsonvalue.Null:
				default:
					c.fail(errInput)
				}
				if c.budget.spend(32*len(k.key.Reveal())) != nil {
					c.fail(errWork)
				}
				if c.err != nil {
					return jsonvalue.Value{}
				}
				list = append(list, k)
			}
			slices.SortStableFunc(list, func(a, b keyed) int {
				switch ka, kb := a.key.Kind(), b.key.Kind(); {
				case ka == kb && ka == jsonvalue.Number:
					return a.n.compare(b.n)
				case ka == kb:
					return compare(a.key.Reveal(), b.key.Reveal())
				case ka == jsonvalue.Null:
					return 1
				case kb == jsonvalue.Null:
					return -1
				}
				c.fail(errInput) // texts among numbers
				return 0
			})
			items := make([]jsonvalue.Value, len(list))
			for i := range list {
				items[i] = list[i].item
			}
			return c.list(items)
		},
	}
}
