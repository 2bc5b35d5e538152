package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/url"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
)

var (
	errJSON     = fault.New(fault.Invalid, "the body is not valid JSON")
	errForm     = fault.New(fault.Invalid, "the body is not a valid form")
	errParts    = fault.New(fault.Invalid, "the body is not valid multipart")
	errBoundary = fault.New(fault.Invalid, "a token holds the boundary of the multipart body")
	errExpanded = fault.New(fault.TooLarge, "the request is too large once its tokens are in it")
)

// template is a body cut at its expressions: pieces that stay byte for byte,
// and texts that are evaluated.
type template struct {
	pieces []piece
	texts  expression.Texts
	// boundary begins the parts of a multipart body; nil for others.
	boundary []byte
	parts    int
}

type piece struct {
	literal []byte
	text    *expression.Detokenization // nil for a literal
	form    expression.Form
	cdata   bool // the text is all of a CDATA section
}

// parse cuts a body; nil means that it holds no expressions. The budget is that
// of the call, for fill too.
func parse(b *expression.Budget, kind media, params map[string]string, body []byte) (*template, error) {
	if !newScanner(kind, params).found(body) || kind == untypedMedia && !isText(body) {
		return nil, nil
	}
	t := &template{texts: expression.Texts{Budget: b}}
	b.Grow(len(body))
	if err := t.cut(kind, params, body); err != nil {
		return nil, err
	}
	for _, p := range t.pieces {
		if p.text != nil {
			return t, nil
		}
	}
	return nil, nil
}

func (t *template) cut(kind media, params map[string]string, body []byte) error {
	if !isUTF8(params) {
		return errCharset
	}
	switch kind {
	case jsonMedia:
		return t.json(body)
	case formMedia:
		return t.fields(body)
	case xmlMedia:
		return t.xml(body)
	case multipartMedia:
		return t.multipart(params["boundary"], body)
	default:
		return t.evaluate(string(body), expression.PlainText)
	}
}

// keep adds bytes that stay, which follow those that were kept last unless an
// expression stands between them: a body in a million fields is no more pieces
// than it has expressions.
func (t *template) keep(b []byte) {
	if len(b) == 0 {
		return
	}
	if n := len(t.pieces); n > 0 && t.pieces[n-1].text == nil {
		last := &t.pieces[n-1].literal
		*last = (*last)[:len(*last)+len(b)] // of one and the same body
		return
	}
	t.pieces = append(t.pieces, piece{literal: b})
}

func (t *template) evaluate(text string, form expression.Form) error {
	d, err := t.texts.Parse(text)
	if err != nil {
		return err
	}
	t.pieces = append(t.pieces, piece{text: d, form: form})
	return nil
}

// json cuts out the strings that hold expressions. Names of members are none.
func (t *template) json(body []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	done := 0
	for {
		if d.PeekKind() != jsontext.KindString {
			if _, err := d.ReadToken(); errors.Is(err, io.EOF) && d.StackDepth() == 0 {
				t.keep(body[done:])
				return nil
			} else if err != nil {
				return errJSON
			}
			continue
		}
		inside, members := d.StackIndex(d.StackDepth())
		raw, err := d.ReadValue()
		if err != nil {
			return errJSON
		}
		if inside == jsontext.KindBeginObject && members%2 == 0 || !bytes.ContainsAny(raw, `{\`) {
			continue
		}
		text, err := jsontext.AppendUnquote(nil, raw)
		if !expression.Contains(string(text)) {
			continue
		}
		if err != nil || !utf8.Valid(raw) {
			return errJSON // no text: a half of a character cannot be written again
		}
		end := int(d.InputOffset())
		t.keep(body[done : end-len(raw)])
		if err := t.evaluate(string(text), expression.JSONString); err != nil {
			return err
		}
		done = end
	}
}

// fields cuts out the values of form fields that hold expressions, or a field
// that is nothing but its value.
func (t *template) fields(body []byte) error {
	for len(body) > 0 {
		pair := body
		if at := bytes.IndexByte(body, '&'); at >= 0 {
			pair = body[:at]
		}
		value := pair[bytes.IndexByte(pair, '=')+1:]
		t.keep(pair[:len(pair)-len(value)])
		if (&braces{escape: '%'}).found(value) {
			text, err := url.QueryUnescape(string(value))
			if err != nil {
				return errForm
			}
			if err := t.evaluate(text, expression.FormText); err != nil {
				return err
			}
		} else {
			t.keep(value)
		}
		t.keep(body[len(pair):min(len(pair)+1, len(body))])
		body = body[min(len(pair)+1, len(body)):]
	}
	return nil
}

// multipart cuts the parts that are texts as their own types say.
func (t *template) multipart(boundary string, body []byte) error {
	t.boundary = []byte("\n--" + boundary)
	t.parts = t.countParts(body)
	at := bytes.Index(body, t.boundary[1:])
	if at != 0 { // there is a preamble
		if at = bytes.Index(body, t.boundary) + 1; at == 0 {
			return errParts
		}
	}
	t.keep(body[:at])
	rest := body[at:]
	for {
		after := rest[len(t.boundary)-1:]
		if bytes.HasPrefix(after, []byte("--")) { // the last, with whatever follows
			t.keep(rest)
			return nil
		}
		end, size := headerEnd(after)
		if end < 0 {
			return errParts
		}
		content := len(t.boundary) - 1 + end + size
		// The line end before a delimiter belongs to it, and to no part.
		next := bytes.Index(rest[content-1:], t.boundary)
		if next < 0 {
			return errParts
		}
		next += content - 1
		stop := max(next, content)
		if stop > content && rest[stop-1] == '\r' {
			stop--
		}
		kind, params := partMedia(after[:end])
		t.keep(rest[:content])
		if text := rest[content:stop]; kind == binaryMedia || !newScanner(kind, params).found(text) {
			t.keep(text)
		} else if err := t.cut(kind, params, text); err != nil {
			return err
		}
		t.keep(rest[stop : next+1])
		rest = rest[next+1:]
	}
}

func (t *template) countParts(body []byte) int {
	n := bytes.Count(body, t.boundary)
	if bytes.HasPrefix(body, t.boundary[1:]) {
		n++
	}
	return n
}

// fill builds the body with the values of tokens in it. Its size is known
// before anything is built. masked says that the lookup gives masks
// or withholds values.
func (t *template) fill(lookup expression.Lookup, limit int, masked bool) ([]byte, error) {
	size := 0
	for _, p := range t.pieces {
		size += len(p.literal)
	}
	if size > limit {
		return nil, errExpanded
	}
	budget := t.texts.Budget
	if err := budget.Reserve(size); err != nil {
		return nil, err
	}
	values := make([]*expression.Expansion, len(t.pieces))
	for i, p := range t.pieces {
		if p.text == nil {
			continue
		}
		resolve := p.text.Resolve
		if masked {
			resolve = p.text.ResolveMasked
		}
		x, err := resolve(lookup, p.form, budget)
		if err != nil {
			return nil, err
		}
		values[i] = x
		length := x.Size()
		if p.cdata {
			if length, err = cdataSize(x.Value().Reveal()); err != nil {
				return nil, err
			}
		}
		if size += length; size > limit {
			return nil, errExpanded
		}
	}
	body := make([]byte, 0, size)
	for i, p := range t.pieces {
		switch {
		case p.text == nil:
			body = append(body, p.literal...)
		case p.form == expression.JSONString:
			body = values[i].Value().AppendJSON(body)
		case p.cdata:
			body = append(body, splitCDATA(values[i].Value().Reveal())...)
		default:
			body = append(body, values[i].Value().Reveal()...)
		}
	}
	if t.boundary != nil && t.countParts(body) != t.parts {
		return nil, errBoundary
	}
	return body, nil
}
