package expression

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

const (
	// MaxTokens is how many different tokens one text or document may name.
	MaxTokens = 100
	// MaxOperations is how many detokenization expressions, with their filters
	// and arguments, one text or document may hold: parsed, they take far more
	// memory than their text.
	MaxOperations = 50_000
)

var (
	errTokenID    = fault.New(fault.Invalid, "a detokenization expression does not begin with the id of a token")
	errTokenName  = fault.New(fault.Invalid, "a filter in a detokenization expression takes literal arguments only")
	errTokenAlias = fault.New(fault.Invalid, "alias filters cannot be used in detokenization expressions")
	errOperations = fault.New(fault.Invalid, "too many detokenization expressions stand in one request")
	errXML        = fault.New(fault.Invalid, "a token holds a character that XML cannot hold")
	errTokens     = fault.New(fault.Invalid, "too many tokens are named in one request")
)

// Reference names a token that an expression needs: its data, or all of the
// token where the expression says token: before the id.
type Reference struct {
	ID    string
	Token bool
}

// Lookup gives what a reference stands for. It is asked once for every
// expression, so it should answer from what was gathered before.
type Lookup func(Reference) (jsonvalue.Value, error)

// Withheld is the error of a Lookup for a token of which nothing may be shown.
// ResolveMasked then puts the placeholder in the place of the whole expression,
// whatever its filters are: none of them is evaluated.
type Withheld struct{ Placeholder string }

func (Withheld) Error() string { return "the value of a token is withheld" }

// ValidID reports whether a text can be the id of a token: 3 to 400
// characters, none of which means something in a path, a query or an
// expression.
func ValidID(id string) bool {
	n := 0
	for _, r := range id {
		if n++; n > 400 || strings.ContainsRune(`#/\+?[]|&=%<>{}^`, r) || unicode.IsControl(r) {
			return false
		}
	}
	return n >= 3 && utf8.ValidString(id)
}

// reference reads the head of a detokenization expression, which ends at the
// first filter or at the end of the expression.
func (p *parser) reference() (operand, error) {
	end := strings.IndexAny(p.text[p.at:], "|{}")
	if end < 0 {
		return operand{}, errUnclosed
	}
	head, after := p.text[p.at:p.at+end], p.text[p.at+end:]
	closed := strings.HasPrefix(after, "}}")
	if !closed && after[0] != '|' {
		return operand{}, errTokenID
	}
	// Ids may end in a dash, so that of -}} counts only after a space.
	if rest, dash := strings.CutSuffix(head, "-"); dash && closed && strings.TrimRightFunc(rest, unicode.IsSpace) != rest {
		head, end = rest, end-1
	}
	head = strings.TrimRightFunc(head, unicode.IsSpace)
	p.at += end
	id, whole := strings.CutPrefix(head, "token:")
	id = strings.TrimSpace(id)
	if !ValidID(id) {
		return operand{}, errTokenID
	}
	return operand{from: fromToken, token: Reference{ID: id, Token: whole}}, nil
}

// Detokenization is a text with detokenization expressions. The text is
// somebody's request, so it stands where printers do not reach.
type Detokenization struct{ open func() *detokenization }

type detokenization struct {
	parts      []part
	operations int
	references []Reference
}

// ParseDetokenization reads a text in which {{ id }} stands for the data of a
// token and {{ token: id }} for the whole of it, with or without filters.
//
// It costs the request; a nil budget is for texts that belong to no request.
func ParseDetokenization(b *Budget, text string) (*Detokenization, error) {
	defer b.End()
	if err := b.Begin(); err != nil {
		return nil, err
	}
	if err := b.parsing(text); err != nil {
		return nil, err
	}
	p := parser{text: text, detokenizing: true}
	parts, err := p.parts()
	if err != nil {
		return nil, err
	}
	if p.alias {
		return nil, errTokenAlias
	}
	if err := b.parsed(p.total); err != nil {
		return nil, err
	}
	d := &detokenization{parts: parts, operations: p.total}
	var seen references
	for _, part := range parts {
		if part.expr == nil {
			continue
		}
		if err := seen.add(part.expr.head.token); err != nil {
			return nil, err
		}
	}
	d.references = seen.list
	return &Detokenization{open: func() *detokenization { return d }}, nil
}

// Texts reads several texts of one request under the bounds of one.
type Texts struct {
	Budget     *Budget // that of the request
	seen       references
	operations int
}

// Parse is ParseDetokenization for one more of the texts.
func (t *Texts) Parse(text string) (*Detokenization, error) {
	d, err := ParseDetokenization(t.Budget, text)
	if err != nil {
		return nil, err
	}
	if t.operations += d.open().operations; t.operations > MaxOperations {
		return nil, errOperations
	}
	for _, ref := range d.open().references {
		if err := t.seen.add(ref); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// IDs lists the tokens that the texts need, in the order of their first use.
func (t *Texts) IDs() []Reference { return slices.Clone(t.seen.list) }

// IDs lists the tokens that the text needs, in the order of their first use.
func (d *Detokenization) IDs() []Reference { return slices.Clone(d.open().references) }

// references gathers what is needed, once each.
type references struct {
	list []Reference
	seen map[Reference]bool
	ids  map[string]bool
}

func (r *references) add(ref Reference) error {
	if r.seen[ref] {
		return nil
	}
	if r.seen == nil {
		r.seen, r.ids = map[Reference]bool{}, map[string]bool{}
	}
	r.list, r.seen[ref], r.ids[ref.ID] = append(r.list, ref), true, true
	if len(r.ids) > MaxTokens {
		return errTokens
	}
	return nil
}

// Form says what a text is part of, and so how values are put into it.
type Form uint8

const (
	// JSONString: the text of a JSON string. An expression that is the whole
	// of it keeps the JSON type of its value.
	JSONString Form = iota
	// PlainText: values go in as they are.
	PlainText
	// XMLText: values are escaped, the text around them is not. A value with
	// a character that XML cannot hold is refused.
	XMLText
	// FormText: the decoded text of a form field. Values and the text around
	// them are percent-encoded.
	FormText
)

// Expansion is a text or document whose values are known and which is small
// enough to be built.
type Expansion struct {
	size  int
	build func() jsonvalue.Value
}

// Size is exactly how large the expansion is: the bytes of its JSON, or of
// its text where it is not JSON.
func (x *Expansion) Size() int { return x.size }

// Value builds the expansion: any JSON value for JSON, else a string. What
// came in by an expression is not looked at again.
func (x *Expansion) Value() jsonvalue.Value { return x.build() }

// Resolve evaluates the expressions and measures what they expand to, before
// anything of it is built. What does not fit the budget is a TooLarge fault.
func (d *Detokenization) Resolve(lookup Lookup, form Form, b *Budget) (*Expansion, error) {
	return d.resolve(lookup, form, b, false)
}

// ResolveMasked is Resolve where the lookup gives masks in place of values, or
// withholds them. A filter that finds nothing in a mask, or cannot work on one,
// would have had the value: what it makes of that is hidden, and no error of the
// request.
func (d *Detokenization) ResolveMasked(lookup Lookup, form Form, b *Budget) (*Expansion, error) {
	return d.resolve(lookup, form, b, true)
}

func (d *Detokenization) resolve(lookup Lookup, form Form, b *Budget, masked bool) (*Expansion, error) {
	defer b.End()
	if err := b.Begin(); err != nil {
		return nil, err
	}
	if err := b.Err(); err != nil {
		return nil, err
	}
	parts := d.open().parts
	values := make([]jsonvalue.Value, len(parts))
	e := evaluator{lookup: lookup, budget: b}
	before := b.output
	whole := form == JSONString && len(parts) == 1 && parts[0].expr != nil
	if form == JSONString && !whole {
		if err := b.produce(len(`""`)); err != nil {
			return nil, err
		}
	}
	measure := &boundedWriter{w: io.Discard, budget: b}
	for i, p := range parts {
		var err error
		switch {
		case p.expr == nil:
			_, err = io.WriteString(form.around(measure), p.text)
		default:
			if err = b.spend(0); err == nil {
				values[i], err = e.expression(p.expr)
			}
			var withheld Withheld
			if masked && errors.As(err, &withheld) {
				values[i], err = jsonvalue.NewString(withheld.Placeholder), nil
			}
			if masked && b.ended == nil && (err == nil && values[i].IsNull() || errors.Is(err, fault.Invalid)) {
				values[i], err = jsonvalue.NewString(Hidden), nil
			}
			if err == nil && whole {
				err = values[i].WriteJSON(measure)
			} else if err == nil {
				err = values[i].Stringify(form.inside(measure))
			}
		}
		if err != nil {
			return nil, err
		}
	}
	x := &Expansion{size: before - b.output}
	if whole {
		x.build = func() jsonvalue.Value { return values[0] }
		return x, nil
	}
	x.build = func() jsonvalue.Value {
		var text strings.Builder
		text.Grow(x.size)
		out := form.building(&text)
		for i, p := range parts {
			if p.expr == nil {
				_, _ = io.WriteString(form.writing(&text), p.text)
				continue
			}
			_ = values[i].Stringify(out) // a strings.Builder does not fail
		}
		return jsonvalue.NewString(text.String())
	}
	return x, nil
}

// around measures the text between expressions.
func (f Form) around(w io.Writer) io.Writer {
	if f == JSONString {
		return quoter{w}
	}
	return f.writing(w)
}

// inside measures the values in a text.
func (f Form) inside(w io.Writer) io.Writer {
	if f == JSONString {
		return quoter{w}
	}
	return f.building(w)
}

// writing writes the text between expressions into the text itself.
func (f Form) writing(w io.Writer) io.Writer {
	if f == FormText {
		return percent{w}
	}
	return w
}

// building writes values into the text itself, which JSON does not escape
// before it is encoded.
func (f Form) building(w io.Writer) io.Writer {
	if f == XMLText {
		return escaper{w}
	}
	return f.writing(w)
}

// quoter writes what text becomes inside a JSON string. It is written to in
// pieces of whole characters, and goes on in such.
type quoter struct{ w io.Writer }

func (q quoter) Write(p []byte) (int, error) {
	var quoted []byte
	for rest := p; len(rest) > 0; {
		cut := min(len(rest), 4096)
		for cut < len(rest) && !utf8.RuneStart(rest[cut]) {
			cut++
		}
		quoted, _ = jsontext.AppendQuote(quoted[:0], rest[:cut]) // fails on invalid UTF-8 only, and no Value holds that
		if _, err := q.w.Write(quoted[1 : len(quoted)-1]); err != nil {
			return 0, err
		}
		rest = rest[cut:]
	}
	return len(p), nil
}

// escaper escapes for XML. What XML cannot hold at all, the standard library
// would replace: a value must arrive as it is or not at all.
type escaper struct{ w io.Writer }

func (x escaper) Write(p []byte) (int, error) {
	if bytes.ContainsFunc(p, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xfffe || r == 0xffff
	}) {
		return 0, errXML
	}
	return len(p), xml.EscapeText(x.w, p)
}

// percent encodes for a form.
type percent struct{ w io.Writer }

func (x percent) Write(p []byte) (int, error) {
	const hex = "0123456789ABCDEF"
	var out [3 * 1024]byte
	for rest := p; len(rest) > 0; {
		piece := rest[:min(len(rest), len(out)/3)]
		n := 0
		for _, c := range piece {
			switch {
			case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~':
				out[n], n = c, n+1
			case c == ' ':
				out[n], n = '+', n+1
			default:
				n += copy(out[n:], []byte{'%', hex[c>>4], hex[c&15]})
			}
		}
		if _, err := x.w.Write(out[:n]); err != nil {
			return 0, err
		}
		rest = rest[len(piece):]
	}
	return len(p), nil
}
