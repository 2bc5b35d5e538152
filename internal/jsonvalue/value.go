// Package jsonvalue holds JSON values the way they came in.
//
// It promises that a number keeps its exact text and an object the order of
// its members, that what it accepts is strict JSON, and that no way of
// printing, logging or marshalling a Value, alone or inside any other type,
// shows what is in it. It never changes a Value once it is made, so values
// may be shared freely.
//
// Reveal, AppendJSON, WriteJSON and Stringify are for places where a protected
// value leaves: a test lists by name every file that calls one of them. Where a
// value stays, Matches and Characters check it in place, and Sealed encrypts it.
// PublicText reads what is not protected, such as an id or a name.
package jsonvalue

import (
	"iter"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// Kind is what a value is in JSON.
type Kind uint8

// The kinds. The zero Kind is null, as the zero Value is.
const (
	Null Kind = iota
	Bool
	Number
	String
	Array
	Object
)

var kindNames = [...]string{"null", "boolean", "number", "string", "array", "object"}

// String names the kind as JSON does.
func (k Kind) String() string {
	if int(k) >= len(kindNames) {
		return ""
	}
	return kindNames[k]
}

// Value is one JSON value. The zero Value is null.
//
// The contents live behind a function value because printers that follow
// unexported fields and pointers by reflection stop there. It costs sixteen
// bytes and one allocation a value: little beside the value itself.
type Value struct{ open func() *node }

// node is the contents of a value. It is never changed once it can be reached
// from a Value.
type node struct {
	kind  Kind
	text  string   // of a string, a number or a boolean
	names []string // of an object's members, beside items
	items []Value  // of an array or an object
}

var null = &node{}

func seal(n *node) Value { return Value{open: func() *node { return n }} }

func (v Value) node() *node {
	if v.open == nil {
		return null
	}
	return v.open()
}

var errNumber = fault.New(fault.Invalid, "not a JSON number")

// Booleans have one value each, made once.
var (
	trueValue  = seal(&node{kind: Bool, text: "true"})
	falseValue = seal(&node{kind: Bool, text: "false"})
)

// NewBool makes a boolean.
func NewBool(b bool) Value {
	if b {
		return trueValue
	}
	return falseValue
}

// NewString makes a string. Bytes that are not UTF-8 become U+FFFD, so that
// a Value can always be written as JSON.
func NewString(s string) Value {
	return seal(&node{kind: String, text: validText(s)})
}

// validText puts U+FFFD in place of bytes that are not UTF-8. Most texts are
// valid, and to find that out is many times as fast.
func validText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// NewInt makes a number.
func NewInt(i int64) Value { return seal(&node{kind: Number, text: strconv.FormatInt(i, 10)}) }

// NewNumber makes a number that keeps the text it is given, which must be a
// number by the grammar of JSON.
func NewNumber(text string) (Value, error) {
	raw := jsontext.Value(text)
	if raw.Kind() != '0' || !raw.IsValid() || strings.ContainsAny(text, " \t\r\n") {
		return Value{}, errNumber
	}
	return seal(&node{kind: Number, text: text}), nil
}

// NewArray makes an array and takes ownership of items.
func NewArray(items []Value) Value { return seal(&node{kind: Array, items: items}) }

// Builder makes an object, member by member. The zero Builder is ready; it
// must not be copied once it is used, nor used again after Value.
type Builder struct{ open func() *node }

// Add appends a member. The caller sees to it that no name comes twice.
func (b *Builder) Add(name string, v Value) {
	if b.open == nil {
		n := &node{kind: Object}
		b.open = func() *node { return n }
	}
	n := b.open()
	n.names = append(n.names, validText(name))
	n.items = append(n.items, v)
}

// Value returns the object.
func (b *Builder) Value() Value {
	if b.open == nil {
		return seal(&node{kind: Object})
	}
	return Value{open: b.open}
}

// Kind says what the value is.
func (v Value) Kind() Kind { return v.node().kind }

// IsNull reports whether the value is null.
func (v Value) IsNull() bool { return v.node().kind == Null }

// IsTrue reports whether the value is the boolean true.
func (v Value) IsTrue() bool { n := v.node(); return n.kind == Bool && n.text == "true" }

// Reveal returns the text of a scalar: the characters of a string, the exact
// digits of a number, true or false. It is empty for null, arrays and
// objects. Keep it no longer than the call at hand. It is for protected values
// that leave; see the comment of the package for the others.
func (v Value) Reveal() string { return v.node().text }

// PublicText returns what Reveal does, of a value that is not protected: an
// attribute of a request, of a definition or of a job, such as an id, a name, a
// URL or an expression. It is never for the data of a token, for what an
// expression returned, or for a configuration.
func (v Value) PublicText() string { return v.node().text }

// Matches reports whether is holds for the text that Reveal returns. The
// function must not keep the text.
func (v Value) Matches(is func(text string) bool) bool { return is(v.node().text) }

// Characters counts those of the text that Reveal returns.
func (v Value) Characters() int { return utf8.RuneCountInString(v.node().text) }

// AsString returns a string with the text of a scalar.
func (v Value) AsString() Value { return seal(&node{kind: String, text: v.node().text}) }

// Len counts the items of an array or the members of an object.
func (v Value) Len() int { return len(v.node().items) }

// At returns the item of an array, false when there is none at i.
func (v Value) At(i int) (Value, bool) {
	n := v.node()
	if n.kind != Array || i < 0 || i >= len(n.items) {
		return Value{}, false
	}
	return n.items[i], true
}

// Get returns the member of an object, false when there is none of that name.
func (v Value) Get(name string) (Value, bool) {
	n := v.node()
	for i, m := range n.names {
		if m == name {
			return n.items[i], true
		}
	}
	return Value{}, false
}

// Items yields the items of an array with their positions.
func (v Value) Items() iter.Seq2[int, Value] {
	return func(yield func(int, Value) bool) {
		n := v.node()
		if n.kind != Array {
			return
		}
		for i, item := range n.items {
			if !yield(i, item) {
				return
			}
		}
	}
}

// Members yields the members of an object in their order. Names may be data:
// they are as protected as values are.
func (v Value) Members() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		n := v.node()
		for i, name := range n.names {
			if !yield(name, n.items[i]) {
				return
			}
		}
	}
}

// Equal reports whether two values are the same JSON: numbers by their text,
// members in any order.
func (v Value) Equal(w Value) bool {
	a, b := v.node(), w.node()
	if a == b {
		return true
	}
	if a.kind != b.kind || a.text != b.text || len(a.items) != len(b.items) {
		return false
	}
	if a.kind == Object {
		at := index(b.names)
		for i, name := range a.names {
			j := at(name)
			if j < 0 || !a.items[i].Equal(b.items[j]) {
				return false
			}
		}
		return true
	}
	for i := range a.items {
		if !a.items[i].Equal(b.items[i]) {
			return false
		}
	}
	return true
}

// index finds names: by looking at each where there are few, by a map where
// looking at each for each would be quadratic.
func index(names []string) func(string) int {
	if len(names) <= 16 {
		return func(name string) int {
			for i, n := range names {
				if n == name {
					return i
				}
			}
			return -1
		}
	}
	m := make(map[string]int, len(names))
	for i, n := range names {
		m[n] = i
	}
	return func(name string) int {
		if i, ok := m[name]; ok {
			return i
		}
		return -1
	}
}
