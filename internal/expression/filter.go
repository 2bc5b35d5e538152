package expression

import (
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

var (
	errInput    = fault.New(fault.Invalid, "a filter was given a value of a kind that it does not take")
	errArgument = fault.New(fault.Invalid, "a filter was given an argument that it does not take")
)

// filter is one row of the language. Nothing passes through a filter as
// nothing, without apply being called, unless the row takes it.
type filter struct {
	name         string
	doc          string
	params       []param
	examples     []Example
	alias        bool // allowed in ids only
	takesNothing bool
	apply        func(c *call) jsonvalue.Value
}

// param is a positional argument. One with a default, even an empty one, may
// be left out, and so may all that follow.
type param struct {
	name     string
	optional bool
	standing string // what stands in for it, as the docs show it
}

// Example is an expression over data, and its value; both are JSON.
type Example struct{ Expression, Data, Want string }

func (f *filter) required() int {
	n := 0
	for n < len(f.params) && !f.params[n].optional {
		n++
	}
	return n
}

func needs(name string) param           { return param{name: name} }
func takes(name, standing string) param { return param{name: name, optional: true, standing: standing} }

// filterNames lists the names of all rows, for messages.
func filterNames() fault.Names {
	names := make([]string, len(filters))
	for i := range filters {
		names[i] = filters[i].name
	}
	return fault.Names{What: "filter", Known: names, List: "docs/expressions.md lists them", Long: true}
}

func filterNamed(name string) *filter      { return filtersByName[name] }
func example(x, data, want string) Example { return Example{"{{ " + x + " }}", data, want} }

// filters are all rows, in the order of the docs.
var filters = slices.Concat(revealFilters, cardFilters, aliasFilters, convertFilters, textFilters, webFilters, numberFilters, listFilters, otherFilters)

var filtersByName = func() map[string]*filter {
	byName := make(map[string]*filter, len(filters))
	for i := range filters {
		byName[filters[i].name] = &filters[i]
	}
	return byName
}()

// FilterDoc describes a filter for readers.
type FilterDoc struct {
	Name, Params, Doc string
	Examples          []Example
}

// Filters describes every filter, in the order of the docs.
func Filters() []FilterDoc {
	docs := make([]FilterDoc, len(filters))
	for i, f := range filters {
		var params []string
		for _, p := range f.params {
			switch {
			case !p.optional:
				params = append(params, p.name)
			case p.standing == "":
				params = append(params, "["+p.name+"]")
			default:
				params = append(params, "["+p.name+" = "+p.standing+"]")
			}
		}
		docs[i] = FilterDoc{f.name, strings.Join(params, ", "), f.doc, f.examples}
	}
	return docs
}

// call is one application of a filter. The first failure stays in err; what a
// filter returns after that is dropped, so filters need not look at it unless
// what they go on to do depends on it.
type call struct {
	in     jsonvalue.Value
	args   []jsonvalue.Value
	raw    []byte // the bytes that the filter before made, when it made bytes
	made   []byte
	random io.Reader
	budget *Budget
	paid   int            // bytes that room was asked for and that are not made yet
	forms  map[int]string // string forms of arguments, made once
	err    error
}

// spend takes n steps, and reports whether the filter may go on.
func (c *call) spend(n int) bool {
	if c.err == nil {
		if err := c.budget.spend(n); err != nil {
			c.fail(err)
		}
	}
	return c.err == nil
}

// allocate takes n bytes that are about to be made, and reports whether they
// may be.
func (c *call) allocate(n int) bool {
	if c.err == nil {
		if err := c.budget.allocate(n); err != nil {
			c.fail(err)
		}
	}
	return c.err == nil
}

func (c *call) fail(err error) jsonvalue.Value {
	if c.err == nil {
		c.err = err
	}
	return jsonvalue.Value{}
}

// text is the input as text: a scalar in its string form.
func (c *call) text() string { return c.scalar(c.in, errInput) }

func (c *call) scalar(v jsonvalue.Value, otherwise error) string {
	if k := v.Kind(); k == jsonvalue.Array || k == jsonvalue.Object {
		c.fail(otherwise)
	}
	return v.Reveal()
}

func (c *call) runes() []rune { return c.runesOf(c.text()) }

func (c *call) runesOf(s string) []rune {
	if !c.spend(4*len(s)) || !c.allocate(4*len(s)) {
		return nil
	}
	return []rune(s)
}

// items is the input as a list; what is not a list is the only item of one.
func (c *call) items() []jsonvalue.Value {
	if c.in.Kind() != jsonvalue.Array {
		return []jsonvalue.Value{c.in}
	}
	if !c.allocate(8 * c.in.Len()) {
		return nil
	}
	items := make([]jsonvalue.Value, 0, c.in.Len())
	for _, item := range c.in.Items() {
		items = append(items, item)
	}
	return items
}

func (c *call) given(i int) bool { return i < len(c.args) && !c.args[i].IsNull() }

func (c *call) argText(i int, standing string) string {
	if !c.given(i) {
		return standing
	}
	return c.scalar(c.args[i], errArgument)
}

// inputString is the input in its string form, whatever its kind. Standard
// filters use it, as Liquid refuses no kind; filters that hide values use text.
func (c *call) inputString() string { return c.stringified(c.in) }

// argString is an argument in its string form, whatever its kind.
func (c *call) argString(i int, standing string) string {
	if !c.given(i) {
		return standing
	}
	if k := c.args[i].Kind(); k != jsonvalue.Array && k != jsonvalue.Object {
		return c.args[i].Reveal()
	}
	form, made := c.forms[i]
	if !made {
		form = c.stringified(c.args[i])
		if c.forms == nil {
			c.forms = make(map[int]string)
		}
		c.forms[i] = form
	}
	return form
}

// argChar is an argument of exactly one character.
func (c *call) argChar(i int, standing string) string {
	s := c.argText(i, standing)
	if utf8.RuneCountInString(s) != 1 {
		c.fail(errArgument)
	}
	return s
}

// argInt is an integer from low to high, as a number or as text.
func (c *call) argInt(i, standing, low, high int) int {
	if !c.given(i) {
		return standing
	}
	n, err := strconv.Atoi(strings.TrimSpace(c.scalar(c.args[i], errArgument)))
	if err != nil || n < low || n > high {
		c.fail(errArgument)
		return standing
	}
	return n
}

// argPosition is an integer of any size, as a number or as text. No text is as
// long as the largest that it returns.
func (c *call) argPosition(i, standing int) int {
	if !c.given(i) {
		return standing
	}
	const largest = 1 << 30
	n, err := strconv.Atoi(strings.TrimSpace(c.scalar(c.args[i], errArgument)))
	if err != nil && !errors.Is(err, strconv.ErrRange) { // out of range it is the nearest int
		c.fail(errArgument)
		return standing
	}
	return max(-largest, min(largest, n))
}

// argBool is a boolean, or its name as text: existing callers write 'true'.
func (c *call) argBool(i int) bool {
	if !c.given(i) {
		return false
	}
	b, ok := booleanOf(c.args[i])
	if !ok {
		c.fail(errArgument)
	}
	return b
}

// room charges for n bytes about to be made, and reports whether they may be.
func (c *call) room(n int) bool {
	if c.err == nil && n > c.budget.max {
		c.fail(c.budget.over)
	}
	c.paid += n
	return c.spend(n) && c.allocate(n)
}

// string is a text that the filter made. What room was asked for is paid.
func (c *call) string(s string) jsonvalue.Value {
	if c.err == nil && len(s) > c.budget.max {
		return c.fail(c.budget.over)
	}
	if missing := len(s) + valueSize - c.paid; missing > 0 && !(c.spend(missing) && c.allocate(missing)) {
		return jsonvalue.Value{}
	}
	c.paid = 0
	if c.err != nil {
		return jsonvalue.Value{}
	}
	return jsonvalue.NewString(s)
}

// valueSize is about how many bytes a value takes beside its text or items.
const valueSize = 64

func (c *call) list(items []jsonvalue.Value) jsonvalue.Value {
	c.paid = 0
	if !c.room(16 * len(items)) {
		return jsonvalue.Value{}
	}
	return jsonvalue.NewArray(items)
}

// stringified is the canonical string form of a value.
func (c *call) stringified(v jsonvalue.Value) string {
	if k := v.Kind(); k != jsonvalue.Array && k != jsonvalue.Object {
		return v.Reveal()
	}
	if c.err != nil {
		return ""
	}
	var b strings.Builder
	if err := v.Stringify(c.writer(&b)); err != nil {
		c.fail(err)
	}
	return b.String()
}

// writer bounds what a filter writes, and charges for it.
func (c *call) writer(w io.Writer) io.Writer { return &filterWriter{w: w, c: c} }

type filterWriter struct {
	w     io.Writer
	c     *call
	total int
}

func (f *filterWriter) Write(p []byte) (int, error) {
	if f.total += len(p); f.total > f.c.budget.max {
		return 0, f.c.budget.over
	}
	if err := f.c.budget.spend((1 + encodingSteps) * len(p)); err != nil {
		return 0, err
	}
	if err := f.c.budget.allocate(len(p)); err != nil {
		return 0, err
	}
	f.c.paid += len(p) // c.string does not charge again for what is written here
	return f.w.Write(p)
}
