package expression

import (
	"strings"

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
	if err := b.spend(16 * len(path)); err != nil {
		return jsonvalue.Value{}, err
	}
	if err := b.allocate(memoryPerByte * len(path)); err != nil {
		return jsonvalue.Value{}, err
	}
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
	before := len(found)
	found, err := seg.selector(s, v, found)
	if err == nil && len(found) > before {
		err = s.budget.allocate(16 * (len(found) - before))
	}
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

// comparisonCost is what reading a number and writing it out at another scale
// costs. A short text may stand for many digits.
func comparisonCost(text string) int {
	n := min(len(text), maxDigits)
	if strings.ContainsAny(text, "eE") {
		n = 2 * maxDigits
	}
	return 256 + 2*n + n*n/512
}

// comparing takes what comparing two values costs, all of what is in them.
func comparing(b *Budget, x, y jsonvalue.Value) error {
	if x.Kind() != y.Kind() {
		return b.spend(0)
	}
	var walk func(v jsonvalue.Value) error
	walk = func(v jsonvalue.Value) error {
		if err := b.spend(weight(v)); err != nil {
			return err
		}
		for child := range children(v) {
			if err := walk(child); err != nil {
				return err
			}
		}
		return nil
	}
	if x.Len() != y.Len() {
		return b.spend(0)
	}
	if x.Kind() == jsonvalue.Number {
		if err := b.spend(comparisonCost(x.Reveal()) + comparisonCost(y.Reveal())); err != nil {
			return err
		}
	}
	if weight(x) < weight(y) {
		return walk(x)
	}
	return walk(y)
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
		order = strings.Compare(a.Reveal(), b.Reveal())
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
