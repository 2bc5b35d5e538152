package jsonvalue

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendJSON appends the value as compact JSON: numbers as they were written,
// members in their order, nothing escaped that need not be.
func (v Value) AppendJSON(dst []byte) []byte {
	e := emitter{buf: dst}
	e.value(v)
	return e.buf
}

// Sealed returns what with makes of the JSON of the value, which is overwritten
// before Sealed returns. It is for encryption.
func (v Value) Sealed(with func(plaintext []byte) ([]byte, error)) ([]byte, error) {
	plain := v.AppendJSON(nil)
	defer clear(plain)
	return with(plain)
}

// WriteJSON writes what AppendJSON appends, a piece at a time.
func (v Value) WriteJSON(w io.Writer) error {
	e := emitter{w: w}
	e.value(v)
	return e.flush()
}

// Stringify writes the canonical form: members sorted by the bytes of their
// names, no spaces, numbers as written, a bare string without quotes and null
// as nothing at all. It never holds more than a piece of it.
func (v Value) Stringify(w io.Writer) error {
	n := v.node()
	switch n.kind {
	case Null:
		return nil
	case Array, Object:
		e := emitter{w: w, sorted: true}
		e.value(v)
		return e.flush()
	}
	_, err := io.WriteString(w, n.text)
	return err
}

// JSONSize is the number of bytes that AppendJSON appends.
func (v Value) JSONSize() int {
	var c counter
	_ = v.WriteJSON(&c) // a counter does not fail
	return int(c)
}

type counter int

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// piece is how much an emitter gathers before it writes.
const piece = 4096

// emitter encodes values into buf; with a writer, it empties buf into it.
type emitter struct {
	w      io.Writer
	buf    []byte
	sorted bool
	err    error
}

func (e *emitter) flush() error {
	if e.err == nil && e.w != nil && len(e.buf) > 0 {
		_, e.err = e.w.Write(e.buf)
	}
	e.buf = e.buf[:0]
	return e.err
}

func (e *emitter) value(v Value) {
	if e.w != nil && (e.err != nil || len(e.buf) >= piece && e.flush() != nil) {
		return
	}
	n := v.node()
	switch n.kind {
	case Null:
		e.buf = append(e.buf, "null"...)
	case Bool:
		e.buf = append(e.buf, n.text...)
	case Number:
		e.long(n.text, false)
	case String:
		e.long(n.text, true)
	case Array:
		e.buf = append(e.buf, '[')
		for i, item := range n.items {
			if i > 0 {
				e.buf = append(e.buf, ',')
			}
			e.value(item)
		}
		e.buf = append(e.buf, ']')
	case Object:
		e.object(n)
	}
}

func (e *emitter) object(n *node) {
	var order []int
	if e.sorted {
		order = make([]int, len(n.names))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return strings.Compare(n.names[a], n.names[b]) })
	}
	e.buf = append(e.buf, '{')
	for i := range n.names {
		at := i
		if e.sorted {
			at = order[i]
		}
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		e.long(n.names[at], true)
		e.buf = append(e.buf, ':')
		e.value(n.items[at])
	}
	e.buf = append(e.buf, '}')
}

// long emits a text in pieces, cut between characters: what a character
// becomes in JSON does not depend on its neighbours.
func (e *emitter) long(s string, quoted bool) {
	if quoted && len(s) <= piece {
		e.buf, _ = jsontext.AppendQuote(e.buf, s) // fails on invalid UTF-8 only, and no Value holds that
		return
	}
	if quoted {
		e.buf = append(e.buf, '"')
	}
	for len(s) > 0 {
		cut := min(len(s), piece)
		for cut < len(s) && !utf8.RuneStart(s[cut]) {
			cut++
		}
		at := len(e.buf)
		if quoted {
			e.buf, _ = jsontext.AppendQuote(e.buf, s[:cut])
			e.buf = slices.Delete(e.buf, at, at+1)
			e.buf = e.buf[:len(e.buf)-1]
		} else {
			e.buf = append(e.buf, s[:cut]...)
		}
		s = s[cut:]
		if e.w != nil && len(e.buf) >= piece && e.flush() != nil {
			return
		}
	}
	if quoted {
		e.buf = append(e.buf, '"')
	}
}
