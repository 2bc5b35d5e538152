package jsonvalue

import (
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// MaxDepth is how deep arrays and objects may be nested in what Parse takes.
const MaxDepth = 64

var (
	errMalformed = fault.New(fault.Invalid, "not valid JSON")
	errDuplicate = fault.New(fault.Invalid, "a member name stands twice in the same JSON object")
	errTooDeep   = fault.New(fault.Invalid, "the JSON is nested too deeply")
)

// Parse reads one JSON value that fills b. It refuses duplicate names,
// invalid UTF-8, lone surrogates, trailing bytes and nesting beyond MaxDepth.
// The bytes may be reused afterwards.
func Parse(b []byte) (Value, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(b))
	v, err := parse(dec)
	if err != nil {
		return Value{}, parseFault(err)
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return Value{}, errMalformed
	}
	return v, nil
}

// parseFault drops the decoder's own words, which repeat pieces of the input.
func parseFault(err error) error {
	switch {
	case errors.Is(err, errTooDeep):
		return errTooDeep
	case errors.Is(err, jsontext.ErrDuplicateName):
		return errDuplicate
	}
	return errMalformed
}

func parse(dec *jsontext.Decoder) (Value, error) {
	tok, err := dec.ReadToken()
	if err != nil {
		return Value{}, err
	}
	if dec.StackDepth() > MaxDepth {
		return Value{}, errTooDeep
	}
	switch tok.Kind() {
	case 't', 'f':
		return NewBool(tok.Bool()), nil
	case '"':
		return seal(&node{kind: String, text: tok.String()}), nil
	case '0':
		return seal(&node{kind: Number, text: tok.String()}), nil
	case '[':
		n := &node{kind: Array}
		for dec.PeekKind() != ']' {
			item, err := parse(dec)
			if err != nil {
				return Value{}, err
			}
			n.items = append(n.items, item)
		}
		_, err := dec.ReadToken()
		return seal(n), err
	case '{':
		n := &node{kind: Object}
		for dec.PeekKind() != '}' {
			name, err := dec.ReadToken()
			if err != nil {
				return Value{}, err
			}
			text := name.String() // before the next read, which may overwrite the token
			item, err := parse(dec)
			if err != nil {
				return Value{}, err
			}
			n.names = append(n.names, text)
			n.items = append(n.items, item)
		}
		_, err := dec.ReadToken()
		return seal(n), err
	}
	return Value{}, nil
}

// valueWeight is about what a parsed value takes beside its text, in bytes.
const valueWeight = 128

// Weight estimates on the high side how many bytes of memory the value takes
// that Parse makes of b. It counts separators, also those inside texts.
func Weight(b []byte) int64 {
	values := 1
	for _, c := range b {
		switch c {
		case ',', ':', '[', '{':
			values++
		}
	}
	return int64(len(b)) + valueWeight*int64(values)
}
