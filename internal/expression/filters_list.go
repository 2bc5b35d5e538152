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
			separator, pieces, total := c.argString(0, " "), []string(nil), 0
			for _, item := range c.items() {
				if !c.spend(len(item.Reveal())) || !c.allocate(16) {
					return jsonvalue.Value{}
				}
				pieces = append(pieces, c.stringified(item))
				if total += len(pieces[len(pieces)-1]) + len(separator); total > c.budget.max+len(separator) {
					return c.fail(c.budget.over)
				}
			}
			c.paid = 0 // for the pieces
			if !c.room(total) {
				return jsonvalue.Value{}
			}
			return c.string(strings.Join(pieces, separator))
		},
	},
	{
		name: "first", doc: "The first item of a list, character of a text, or field of an object, as a list of its name and value.",
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
	sorting("sort", "A list in order, of texts or of numbers, or of objects by a field; what lacks the field comes last.", false,
		example("data | sort", `[10,9,1.5]`, `[1.5,9,10]`), example("data | sort: 'a'", `[{"a":2},{"a":1}]`, `[{"a":1},{"a":2}]`)),
	sorting("sort_natural", "As sort, without regard to case; values of several kinds are sorted by their string forms.", true,
		example("data | sort_natural", `["b","A","C"]`, `["A","b","C"]`), example("data | sort_natural", `["b",10,true]`, `[10,"b",true]`)),
	{
		name: "uniq", doc: "A list without repetitions, or without objects that repeat a member.", params: []param{takes("member", "")},
		examples: []Example{example("data | uniq", `[1,"1",1]`, `[1,"1"]`)},
		apply: func(c *call) jsonvalue.Value {
			seen := map[string]bool{}
			return c.keep(func(item jsonvalue.Value) bool {
				item = c.memberOf(item, 0)
				if !c.spend(len(item.Reveal())) || !c.allocate(len(item.Reveal())+valueSize) {
					return false
				}
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
		name: "where", doc: "The items of a list that match: objects with a field of that value or, without a value, with a field that is neither null nor false; texts that contain the name.",
		params:   []param{needs("field"), takes("value", "")},
		examples: []Example{example("data | where: 'type', 'home' | first | json: '$.no'", `[{"type":"work","no":1},{"type":"home","no":2}]`, `2`)},
		apply:    func(c *call) jsonvalue.Value { return c.keep(c.matches) },
	},
	{
		name: "reject", doc: "The items of a list that do not match, by the rules of where.", params: []param{needs("field"), takes("value", "")},
		examples: []Example{example("data | reject: 'type', 'work'", `[{"type":"work","no":1},{"type":"home","no":2}]`, `[{"type":"home","no":2}]`)},
		apply: func(c *call) jsonvalue.Value {
			return c.keep(func(item jsonvalue.Value) bool { return !c.matches(item) })
		},
	},
	{
		name: "find", doc: "The first item of a list that matches, by the rules of where; null when none does.", params: []param{needs("field"), takes("value", "")},
		examples: []Example{example("data | find: 'type', 'home'", `[{"type":"work","no":1},{"type":"home","no":2}]`, `{"type":"home","no":2}`)},
		apply: func(c *call) jsonvalue.Value {
			item, _ := c.firstMatch()
			return item
		},
	},
	{
		name: "find_index", doc: "The position of the first item of a list that matches, by the rules of where, counted from 0; null when none does.", params: []param{needs("field"), takes("value", "")},
		examples: []Example{example("data | find_index: 'type', 'home'", `[{"type":"work"},{"type":"home"}]`, `1`)},
		apply: func(c *call) jsonvalue.Value {
			_, at := c.firstMatch()
			if at < 0 {
				return jsonvalue.Value{}
			}
			return jsonvalue.NewInt(int64(at))
		},
	},
	{
		name: "has", doc: "Whether an item of a list matches, by the rules of where.", params: []param{needs("field"), takes("value", "")},
		examples: []Example{example("data | has: 'type', 'home'", `[{"type":"work"},{"type":"home"}]`, `true`), example("data | has: 'type', 'holiday'", `[{"type":"work"}]`, `false`)},
		apply: func(c *call) jsonvalue.Value {
			_, at := c.firstMatch()
			return jsonvalue.NewBool(at >= 0)
		},
	},
	{
		name: "map", doc: "A member of each object in a list.", params: []param{needs("member")},
		examples: []Example{example("data | map: 'a'", `[{"a":1},{"a":"x"},{}]`, `[1,"x",null]`)},
		apply: func(c *call) jsonvalue.Value {
			items := c.items()
			for i := range items {
				if items[i] = c.memberOf(items[i], 0); c.err != nil {
					return jsonvalue.Value{}
				}
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
			if !c.allocate(8 * c.args[0].Len()) {
				return jsonvalue.Value{}
			}
			for _, item := range c.args[0].Items() {
				items = append(items, item)
			}
			return c.list(items)
		},
	},
	{
		name: "sum", doc: "The sum of a list of numbers, or of a field of its objects. Lists in it are summed too; what is not a number counts as 0.", params: []param{takes("field", "")},
		examples: []Example{example("data | sum", `[1,"2.50"]`, `3.50`), example("data | sum: 'price'", `[{"price":3},{"price":4},{}]`, `7`)},
		apply: func(c *call) jsonvalue.Value {
			total, _ := parseDecimal("0")
			var add func(v jsonvalue.Value, field bool)
			add = func(v jsonvalue.Value, field bool) {
				switch {
				case c.err != nil:
				case v.Kind() == jsonvalue.Array:
					c.spend(weight(v))
					for _, item := range v.Items() {
						add(item, field)
					}
				case field && c.given(0):
					add(c.memberOf(v, 0), false)
				default:
					n := c.decimal(v)
					if c.spend(total.cost()) {
						total = total.plus(n)
					}
				}
			}
			add(c.in, true)
			return c.number(total)
		},
	},
}

// pieceSize is how many bytes a piece takes in a list, beside its text, which
// is not copied.
const pieceSize = 136

func split(c *call) jsonvalue.Value {
	s, separator := c.inputString(), c.argString(0, "")
	n := 0
	switch separator {
	case " ":
		for range strings.FieldsSeq(s) {
			n++
		}
	default:
		n = strings.Count(s, separator) + 1
	}
	if c.err == nil && 16*n > c.budget.max {
		return c.fail(c.budget.over)
	}
	if !c.spend(2*len(s)+64*n) || !c.allocate(pieceSize*n) {
		return jsonvalue.Value{}
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

// end is the item or character at 0 or, counted from the end, at -1. As in
// Ruby, an object has a first field, as a list of its name and value, and no
// last one.
func (c *call) end(at int) jsonvalue.Value {
	if c.in.Kind() == jsonvalue.Array {
		return member{index: at, indexed: true}.of(c.in)
	}
	if c.in.Kind() == jsonvalue.Object {
		for name, v := range c.in.Members() {
			if at == 0 {
				return c.list([]jsonvalue.Value{jsonvalue.NewString(name), v})
			}
		}
		return jsonvalue.Value{}
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
	name := c.argString(arg, "")
	if !c.spend(lookupCost(item, name)) {
		return jsonvalue.Value{}
	}
	got, _ := item.Get(name)
	return got
}

// matches reports whether an item has the field that the first argument names,
// with the value of the second or, when there is none, with any value but null
// and false. A text has the fields that it contains, as in Ruby.
func (c *call) matches(item jsonvalue.Value) bool {
	if c.err != nil || !c.given(0) {
		return false
	}
	var field jsonvalue.Value
	if item.Kind() == jsonvalue.String {
		name := c.argString(0, "")
		if !c.spend(weight(item) + len(name)) {
			return false
		}
		if strings.Contains(item.Reveal(), name) {
			field = jsonvalue.NewString(name)
		}
	} else {
		field = c.memberOf(item, 0)
	}
	if !c.given(1) {
		return !field.IsNull() && !field.Equal(jsonvalue.NewBool(false))
	}
	if err := comparing(c.budget, field, c.args[1]); err != nil {
		c.fail(err)
		return false
	}
	return field.Equal(c.args[1])
}

// firstMatch is the first item that matches, and its position; -1 when no item
// does.
func (c *call) firstMatch() (jsonvalue.Value, int) {
	for i, item := range c.items() {
		if c.matches(item) {
			return item, i
		}
		if c.err != nil {
			break
		}
	}
	return jsonvalue.Value{}, -1
}

// keep is the list of the items that are wanted.
func (c *call) keep(wanted func(jsonvalue.Value) bool) jsonvalue.Value {
	var kept []jsonvalue.Value
	for _, item := range c.items() {
		if !c.spend(0) {
			break
		}
		if wanted(item) {
			kept = append(kept, item)
		}
	}
	return c.list(kept)
}

func sorting(name, doc string, natural bool, examples ...Example) filter {
	type keyed struct {
		item jsonvalue.Value
		kind jsonvalue.Kind // of the key
		text string
		n    decimal
	}
	return filter{
		name: name, doc: doc, params: []param{takes("field", "")}, examples: examples,
		apply: func(c *call) jsonvalue.Value {
			var list []keyed
			numbers, texts := 0, 0
			for _, item := range c.items() {
				key := c.memberOf(item, 0)
				k := keyed{item: item, kind: key.Kind(), text: c.stringified(key)}
				switch k.kind {
				case jsonvalue.Number:
					numbers, k.n = numbers+1, c.decimal(key)
				case jsonvalue.String:
					texts++
				case jsonvalue.Null:
				default:
					texts++
					if !natural {
						c.fail(errInput)
					}
				}
				if natural {
					k.text = strings.ToLower(k.text)
				}
				if !c.spend(len(k.text)) || !c.allocate(len(k.text)+pieceSize) {
					return jsonvalue.Value{}
				}
				list = append(list, k)
			}
			if !natural && numbers > 0 && texts > 0 {
				return c.fail(errInput) // texts and numbers have no order
			}
			slices.SortStableFunc(list, func(a, b keyed) int {
				if !c.spend(a.n.cost() + b.n.cost() + min(len(a.text), len(b.text))) {
					return 0
				}
				switch {
				case a.kind == jsonvalue.Null && b.kind == jsonvalue.Null:
					return 0
				case a.kind == jsonvalue.Null:
					return 1
				case b.kind == jsonvalue.Null:
					return -1
				case texts == 0:
					return a.n.compare(b.n)
				}
				return strings.Compare(a.text, b.text)
			})
			if c.err != nil {
				return jsonvalue.Value{}
			}
			items := make([]jsonvalue.Value, len(list))
			for i := range list {
				items[i] = list[i].item
			}
			return c.list(items)
		},
	}
}
