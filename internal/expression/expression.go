// Package expression evaluates the expressions that shape tokens: ids, masks,
// fingerprints and search indexes over a token's data, and the detokenization
// expressions that callers put into what they send.
//
// It promises that every evaluation is bounded in steps and in output, that a
// value brought in by an expression is never evaluated again, and that a
// fault never repeats a piece of an expression or of a value. It does no I/O
// and knows no clock, and it waits only for the turn of its request (Work). The
// only chance in it is the reader that alias filters draw from. It has no tags:
// nothing loops, nothing is included.
package expression

import (
	"io"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

const (
	// MaxText is the longest text that Parse takes, in bytes.
	MaxText = 64 << 10
	// MaxOutput bounds what Evaluate and EvaluateMask make, in bytes, unless
	// they are told otherwise.
	MaxOutput = 64 << 10
	// MaxStream bounds what Stream writes, in bytes, unless it is told
	// otherwise.
	MaxStream = 64 << 20

	// maxOperations bounds the expressions, filters and arguments of one
	// template, or of one detokenization expression.
	maxOperations = 256
)

var (
	errTooLong  = fault.New(fault.Invalid, "the expression is too long")
	errNotText  = fault.New(fault.Invalid, "the expression is not valid UTF-8")
	errTag      = fault.New(fault.Invalid, "tags are not supported in expressions")
	errUnclosed = fault.New(fault.Invalid, "an expression is not closed")
	errNoValue  = fault.New(fault.Invalid, "an expression does not begin with a value")
	errName     = fault.New(fault.Invalid, "an expression names something other than data or metadata")
	errMissing  = fault.New(fault.Invalid, "a filter lacks an argument")
	errMany     = fault.New(fault.Invalid, "the expression has too many parts")
	errMetadata = fault.New(fault.Invalid, "metadata cannot be used in this expression")
	errAlias    = fault.New(fault.Invalid, "alias filters can be used in ids only")
)

// Template is a parsed text: literal pieces and expressions. It is safe for
// concurrent use. Its text may hold what a caller typed, so it stands where
// printers do not reach.
type Template struct{ open func() *template }

type template struct {
	parts      []part
	operations int
	alias      bool
	data       bool
	metadata   bool
	tolerated  bool
}

// part is a piece of literal text, or an expression.
type part struct {
	text string
	expr *expression
}

// Contains reports whether a text may hold an expression. It is quick, and
// false means that the text stands for itself.
func Contains(text string) bool { return strings.Contains(text, "{{") }

// Parse reads a text with expressions over data and metadata.
func Parse(text string) (*Template, error) {
	if len(text) > MaxText {
		return nil, errTooLong
	}
	p := parser{text: text}
	parts, err := p.parts()
	if err != nil {
		return nil, err
	}
	t := &template{parts: parts, operations: p.total, alias: p.alias, data: p.data, metadata: p.metadata, tolerated: p.tolerated}
	return &Template{open: func() *template { return t }}, nil
}

// ParseWithin is Parse at the cost of the request. A nil budget is for texts
// that belong to no request.
func ParseWithin(b *Budget, text string) (*Template, error) {
	defer b.End()
	if err := b.Begin(); err != nil {
		return nil, err
	}
	if err := b.parsing(text); err != nil {
		return nil, err
	}
	t, err := Parse(text)
	if err != nil {
		return nil, err
	}
	return t, b.parsed(t.open().operations)
}

// Tolerated reports whether an expression has something after its value that
// is not part of the language and was passed over.
func (t *Template) Tolerated() bool { return t.open().tolerated }

// UsesAlias reports whether the template has an alias filter, so that each
// evaluation gives something else.
func (t *Template) UsesAlias() bool { return t.open().alias }

// UsesMetadata reports whether the template names metadata.
func (t *Template) UsesMetadata() bool { return t.open().metadata }

// IsLiteral reports whether the template has no expressions and so stands for
// its own text.
func (t *Template) IsLiteral() bool {
	for _, p := range t.open().parts {
		if p.expr != nil {
			return false
		}
	}
	return true
}

// Scope is what the expressions of a template may see.
type Scope struct {
	// Data is the token's data.
	Data jsonvalue.Value
	// Metadata is an object where the template may name it; null refuses it.
	Metadata jsonvalue.Value
	// Hidden lists dotted paths under data ("cvc") that are taken out before
	// anything is evaluated, so that no expression can reach them.
	Hidden []string
}

func (s Scope) data() jsonvalue.Value {
	data := s.Data
	for _, path := range s.Hidden {
		data = data.Without(strings.Split(path, ".")...)
	}
	return data
}

// Options say how a template is evaluated. The zero Options refuse alias
// filters and bound the output at the default.
type Options struct {
	// Random is what alias filters draw from (crypto/rand in production);
	// nil refuses them.
	Random io.Reader
	// MaxOutput bounds the output in bytes; 0 means the default.
	MaxOutput int
	// Budget is that of the request; nil is one of its own, of default size.
	Budget *Budget
}

// Evaluate gives the template's value. A template that is one expression and
// nothing else keeps the JSON type of its value; any other is a string, in
// which each expression stands in its string form: a string as it is, a number
// as written, true or false, nothing for null, and the canonical JSON of
// arrays and objects.
func (t *Template) Evaluate(s Scope, o Options) (jsonvalue.Value, error) {
	defer o.Budget.End()
	if err := o.Budget.Begin(); err != nil {
		return jsonvalue.Value{}, err
	}
	e, err := t.evaluator(s, o, MaxOutput)
	if err != nil {
		return jsonvalue.Value{}, err
	}
	return e.template(t.open())
}

// Stream writes the template's value in its string form, whatever its size:
// canonical JSON passes through in pieces and is never held whole.
func (t *Template) Stream(w io.Writer, s Scope, o Options) error {
	defer o.Budget.End()
	if err := o.Budget.Begin(); err != nil {
		return err
	}
	e, err := t.evaluator(s, o, MaxStream)
	if err != nil {
		return err
	}
	out := &boundedWriter{w: w, budget: e.budget}
	for _, p := range t.open().parts {
		if p.expr == nil {
			if _, err := io.WriteString(out, p.text); err != nil {
				return err
			}
			continue
		}
		v, err := e.expression(p.expr.withoutStringify())
		if err != nil {
			return err
		}
		if err := v.Stringify(out); err != nil {
			return err
		}
	}
	return nil
}

func (t *Template) evaluator(s Scope, o Options, bound int) (*evaluator, error) {
	if t.open().metadata && s.Metadata.IsNull() {
		return nil, errMetadata
	}
	if t.open().alias && o.Random == nil {
		return nil, errAlias
	}
	if o.MaxOutput > 0 {
		bound = o.MaxOutput
	}
	b := o.Budget.orDefault().bounded(bound, errOutput)
	if err := b.Err(); err != nil {
		return nil, err
	}
	return &evaluator{data: s.data(), metadata: s.Metadata, random: o.Random, budget: b}, nil
}
