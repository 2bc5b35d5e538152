package expression

import (
	"cmp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

var (
	errPath = fault.New(fault.Invalid, "a JSONPath is not valid")
	errOne  = fault.New(fault.Invalid, "a JSONPath does not find exactly one value")
)

// The JSONPath of the json filter: $ for the value, then any number of
//
//	.name  ['name']  [2]  [-1]  [1:3]  .*  [*]  ..name  ..[…]
//	[?(@.price < 10)]
//
// with == != < <= > >= between a path and a literal or another path, a path
// alone for being there, and && || ! and parentheses.

// findOne gives the one value that path finds in v.
func findOne(v jsonvalue.Value, path string, b *Budget) (jsonvalue.Value, error) {
	p := pathParser{text: path}
	if !p.take("$") {
		return jsonvalue.Value{}, errPath
	}
	segments, err := p.segments()
	if err != nil {
		return jsonvalue.Value{}, err
	}
	if p.space(); p.text != "" {
		return jsonvalue.Value{}, errPath
	}
	found, err := (&search{root: v, budget: b}).run([]jsonvalue.Value{v}, segments)
	if err != nil {
		return jsonvalue.Value{}, err
	}
	if len(found) != 1 {
		return jsonvalue.Value{}, errOne
	}
	return found[0], nil
}

// segment selects among the children of each value found so far, or of all
// values inside it when it descends.
type segment struct {
	descends bool
	selector func(s *search, v jsonvalue.Value, found []jsonvalue.Value) ([]jsonvalue.Value, error)
}

// nodeSteps is what looking at one value costs; paths that descend look at
// many, and more than once.
const nodeSteps = 256

type search struct {
	root   jsonvalue.Value
	budget *Budget
}

func (s *search) run(values []jsonvalue.Value, segments []segment) ([]jsonvalue.Value, error) {
	for _, seg := range segments {
		var found []jsonvalue.Value
		for _, v := range values {
			var err error
			if found, err = s.apply(seg, v, found); err != nil {
				return nil, err
			}
		}
		values = found
	}
	return values, nil
}

func (s *search) apply(seg segment, v jsonvalue.Value, found []jsonvalue.Value) ([]jsonvalue.Value, error) {
	if err := s.budget.spend(nodeSteps + nodeSteps/4*v.Len()); err != nil {
		return nil, err
	}
	found, err := seg.selector(s, v, found)
	if err != nil || !seg.descends {
		return found, err
	}
	for child := range children(v) {
		if found, err = s.apply(seg, child, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func children(v jsonvalue.Value) func(yield func(jsonvalue.Value) bool) {
	return func(yield func(jsonvalue.Value) bool) {
		for _, item := range v.Items() {
			if !yield(item) {
				return
			}
		}
		for _, item := range v.Members() {
			if !yield(item) {
				return
			}
		}
	}
}

func selectName(name string) segment {
	return segment{selector: func(_ *search, v jsonvalue.Value, found []jsonvalue.Value) ([]jsonvalue.Value, error) {
		if got, ok := v.Get(name); ok {
			found = append(found, got)
		}
		return found, nil
	}}
}

func selectIndex(i int) segment {
	return segment{selector: func(_ *search, v jsonvalue.Value, found []jsonvalue.Value) ([]jsonvalue.Value, error) {
		at := i
		if at < 0 {
			at += v.Len()
		}
		if got, ok := v.At(at); ok {
			found = append(found, got)
		}
		return found, nil
	}}
}

func selectSlice(from, to *int) segment {
	return segment{selector: func(_ *search, v jsonvalue.Value, found []jsonvalue.Value) ([]jsonvalue.Value, error) {
		bound := func(i *int, standing int) int {
			switch {
			case i == nil:
				return standing
			case *i < 0:
				return max(0, *i+v.Len())
			}
			return min(*i, v.Len())
		}
		for at := bound(from, 0); at < bound(to, v.Len()); at++ {
			if got, ok := v.At(at); ok {
				found = append(found, got)
			}
		}
		return found, nil
	}}
}

// selectWhere keeps the children for which the condition holds.
func selectWhere(holds condition) segment {
	return segment{selector: func(s *search, v jsonvalue.Value, found []jsonvalue.Value) ([]jsonvalue.Value, error) {
		for child := range children(v) {
			ok, err := holds(s, child)
			if err != nil {
				return nil, err
			}
			if ok {
				found = append(found, child)
			}
		}
		return found, nil
	}}
}

// condition is what stands in [?( )], asked of one child.
type condition func(s *search, v jsonvalue.Value) (bool, error)

func always(*search, jsonvalue.Value) (bool, error) { return true, nil }

// pathParser reads a path; text is what is left of it.
type pathParser struct {
	text  string
	depth int
}

func (p *pathParser) take(prefix string) bool {
	rest, ok := strings.CutPrefix(p.text, prefix)
	p.text = rest
	return ok
}

func (p *pathParser) space() { p.text = strings.TrimLeft(p.text, " \t") }

func (p *pathParser) segments() ([]segment, error) {
	var segments []segment
	for {
		var seg segment
		var err error
		switch {
		case p.take(".."):
			if strings.HasPrefix(p.text, "[") {
				p.take("[")
				seg, err = p.bracket()
			} else {
				seg, err = p.dotted()
			}
			seg.descends = true
		case p.take("."):
			seg, err = p.dotted()
		case p.take("["):
			seg, err = p.bracket()
		default:
			return segments, nil
		}
		if err != nil {
			return nil, err
		}
		if segments = append(segments, seg); len(segments) > 64 {
			return nil, errPath
		}
	}
}

func (p *pathParser) dotted() (segment, error) {
	if p.take("*") {
		return selectWhere(always), nil
	}
	n := 0
	for n < len(p.text) {
		r, size := utf8.DecodeRuneInString(p.text[n:])
		if !isName(r) {
			break
		}
		n += size
	}
	name := p.text[:n]
	p.text = p.text[n:]
	if name == "" {
		return segment{}, errPath
	}
	return selectName(name), nil
}

// bracket reads what follows a [.
func (p *pathParser) bracket() (segment, error) {
	p.space()
	var seg segment
	switch {
	case p.take("*"):
		seg = selectWhere(always)
	case p.take("?"):
		holds, err := p.or()
		if err != nil {
			return segment{}, err
		}
		seg = selectWhere(holds)
	default:
		if name, ok := p.quoted(); ok {
			seg = selectName(name)
			break
		}
		from := p.integer()
		p.space()
		if p.take(":") {
			p.space()
			seg = selectSlice(from, p.integer())
		} else if from != nil {
			seg = selectIndex(*from)
		} else {
			return segment{}, errPath
		}
	}
	if p.space(); !p.take("]") {
		return segment{}, errPath
	}
	return seg, nil
}

// quoted reads a string in either quotes, with a backslash before a quote or a
// backslash that belongs to it.
func (p *pathParser) quoted() (string, bool) {
	if p.text == "" || p.text[0] != '\'' && p.text[0] != '"' {
		return "", false
	}
	var s strings.Builder
	for i := 1; i < len(p.text); i++ {
		switch c := p.text[i]; {
		case c == p.text[0]:
			p.text = p.text[i+1:]
			return s.String(), true
		case c == '\\' && i+1 < len(p.text):
			i++
			s.WriteByte(p.text[i])
		default:
			s.WriteByte(c)
		}
	}
	return "", false
}

func (p *pathParser) integer() *int {
	n := 0
	for n < len(p.text) && (p.text[n] >= '0' && p.text[n] <= '9' || n == 0 && p.text[n] == '-') {
		n++
	}
	i, err := strconv.Atoi(p.text[:n])
	if err != nil {
		return nil
	}
	p.text = p.text[n:]
	return &i
}

func (p *pathParser) or() (condition, error) { return p.joined("||", p.and, true) }

func (p *pathParser) and() (condition, error) { return p.joined("&&", p.unary, false) }

// joined reads conditions with an operator between them; the first that is
// decisive decides.
func (p *pathParser) joined(operator string, next func() (condition, error), decisive bool) (condition, error) {
	var all []condition
	for {
		c, err := next()
		if err != nil {
			return nil, err
		}
		all = append(all, c)
		if p.space(); !p.take(operator) {
			break
		}
	}
	return func(s *search, v jsonvalue.Value) (bool, error) {
		for _, c := range all {
			if ok, err := c(s, v); err != nil || ok == decisive {
				return ok, err
			}
		}
		return !decisive, nil
	}, nil
}

func (p *pathParser) unary() (condition, error) {
	if p.depth++; p.depth > 16 {
		return nil, errPath
	}
	defer func() { p.depth-- }()
	p.space()
	switch {
	case p.take("!"):
		c, err := p.unary()
		return func(s *search, v jsonvalue.Value) (bool, error) {
			ok, err := c(s, v)
			return !ok, err
		}, err
	case p.take("("):
		c, err := p.or()
		if p.space(); err == nil && !p.take(")") {
			err = errPath
		}
		return c, err
	}
	return p.comparison()
}

// term gives the value of one side of a comparison, false when there is none.
type term func(s *search, v jsonvalue.Value) (jsonvalue.Value, bool, error)

func (p *pathParser) comparison() (condition, error) {
	left, err := p.term()
	if err != nil {
		return nil, err
	}
	p.space()
	for _, op := range []string{"==", "!=", "<=", ">=", "<", ">"} {
		if !p.take(op) {
			continue
		}
		p.space()
		right, err := p.term()
		if err != nil {
			return nil, err
		}
		return func(s *search, v jsonvalue.Value) (bool, error) {
			a, inA, err := left(s, v)
			if err != nil {
				return false, err
			}
			b, inB, err := right(s, v)
			if err != nil {
				return false, err
			}
			if err := s.budget.spend(weight(a) + weight(b) + maxDigits); err != nil {
				return false, err
			}
			if !inA || !inB {
				return (op == "!=") != (inA == inB), nil
			}
			return compares(a, op, b), nil
		}, nil
	}
	return func(s *search, v jsonvalue.Value) (bool, error) {
		_, ok, err := left(s, v)
		return ok, err
	}, nil
}

func compares(a jsonvalue.Value, op string, b jsonvalue.Value) bool {
	order, ordered := 0, a.Kind() == b.Kind()
	switch {
	case ordered && a.Kind() == jsonvalue.Number:
		d, errA := parseDecimal(a.Reveal())
		e, errB := parseDecimal(b.Reveal())
		if ordered = errA == nil && errB == nil; ordered {
			order = d.compare(e)
		}
	case ordered && a.Kind() == jsonvalue.String:
		order = cmp.Compare(a.Reveal(), b.Reveal())
	default:
		ordered = false
	}
	equal := ordered && order == 0 || !ordered && a.Equal(b)
	switch op {
	case "==":
		return equal
	case "!=":
		return !equal
	case "<=":
		return ordered && order <= 0
	case ">=":
		return ordered && order >= 0
	case "<":
		return ordered && order < 0
	}
	return ordered && order > 0
}

// term reads a literal, or a path from the child (@) or from the value ($).
func (p *pathParser) term() (term, error) {
	fromRoot := strings.HasPrefix(p.text, "$")
	if p.take("@") || p.take("$") {
		segments, err := p.segments()
		if err != nil {
			return nil, err
		}
		return func(s *search, v jsonvalue.Value) (jsonvalue.Value, bool, error) {
			if fromRoot {
				v = s.root
			}
			found, err := s.run([]jsonvalue.Value{v}, segments)
			if err != nil || len(found) == 0 {
				return jsonvalue.Value{}, false, err
			}
			return found[0], true, nil
		}, nil
	}
	literal, ok := p.literal()
	if !ok {
		return nil, errPath
	}
	return func(*search, jsonvalue.Value) (jsonvalue.Value, bool, error) { return literal, true, nil }, nil
}

func (p *pathParser) literal() (jsonvalue.Value, bool) {
	if s, ok := p.quoted(); ok {
		return jsonvalue.NewString(s), true
	}
	for word, v := range map[string]jsonvalue.Value{"true": jsonvalue.NewBool(true), "false": jsonvalue.NewBool(false), "null": {}} {
		if p.take(word) {
			return v, true
		}
	}
	n := 0
	for n < len(p.text) && strings.IndexByte("0123456789+-.eE", p.text[n]) >= 0 {
		n++
	}
	v, err := jsonvalue.NewNumber(p.text[:n])
	if err != nil {
		return jsonvalue.Value{}, false
	}
	p.text = p.text[n:]
	return v, true
}
