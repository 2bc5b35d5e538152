// Package secret holds values that cannot be shown by accident.
//
// It promises that no way of printing, logging or marshalling a value, alone
// or inside any other type, exported field or not, shows the protected bytes.
// It never copies a value anywhere by itself: the one way out is Reveal, and
// a test lists by name every file that calls it.
package secret

import (
	"crypto/subtle"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// shown stands wherever a protected value would have been printed.
const shown = "[secret]"

var errMarshal = errors.New("secret: a protected value cannot be marshalled")

// Text is a protected string. The zero value is the empty text.
//
// The string lives inside a function value because printers that follow
// unexported fields and pointers by reflection stop there: a Text in an
// unexported field, whose methods fmt may not call, prints as a code address.
type Text struct{ reveal func() string }

// NewText protects s.
func NewText(s string) Text {
	if s == "" {
		return Text{}
	}
	return Text{reveal: func() string { return s }}
}

// Reveal returns the protected text. Keep it no longer than the call at hand.
func (t Text) Reveal() string {
	if t.reveal == nil {
		return ""
	}
	return t.reveal()
}

// IsZero reports whether the text is empty.
func (t Text) IsZero() bool { return t.reveal == nil }

// Equal compares two texts in time that depends only on their lengths.
func (t Text) Equal(u Text) bool {
	return subtle.ConstantTimeCompare([]byte(t.Reveal()), []byte(u.Reveal())) == 1
}

// Bytes is a protected byte slice with an owner that may destroy it. The zero
// value is empty.
type Bytes struct{ reveal func() []byte }

// NewBytes protects b and takes ownership of it: the caller keeps no copy.
func NewBytes(b []byte) Bytes {
	if len(b) == 0 {
		return Bytes{}
	}
	return Bytes{reveal: func() []byte { return b }}
}

// Reveal returns the protected bytes themselves, not a copy. Keep them no
// longer than the call at hand.
func (b Bytes) Reveal() []byte {
	if b.reveal == nil {
		return nil
	}
	return b.reveal()
}

// IsZero reports whether there are no bytes.
func (b Bytes) IsZero() bool { return b.reveal == nil }

// Destroy overwrites the protected bytes with zeros, for every holder.
func (b Bytes) Destroy() { clear(b.Reveal()) }

// Equal compares two values in time that depends only on their lengths.
func (b Bytes) Equal(c Bytes) bool {
	return subtle.ConstantTimeCompare(b.Reveal(), c.Reveal()) == 1
}

// The methods below exist so that printing is tidy and marshalling is loud;
// that nothing leaks does not rest on them.

func (Text) String() string                                   { return shown }
func (Text) GoString() string                                 { return shown }
func (Text) Format(f fmt.State, _ rune)                       { _, _ = io.WriteString(f, shown) }
func (Text) LogValue() slog.Value                             { return slog.StringValue(shown) }
func (Text) MarshalJSON() ([]byte, error)                     { return nil, errMarshal }
func (Text) MarshalText() ([]byte, error)                     { return nil, errMarshal }
func (Text) MarshalBinary() ([]byte, error)                   { return nil, errMarshal }
func (Text) MarshalYAML() (any, error)                        { return nil, errMarshal }
func (Text) MarshalXML(*xml.Encoder, xml.StartElement) error  { return errMarshal }
func (Text) MarshalXMLAttr(xml.Name) (xml.Attr, error)        { return xml.Attr{}, errMarshal }
func (Text) GobEncode() ([]byte, error)                       { return nil, errMarshal }
func (Bytes) String() string                                  { return shown }
func (Bytes) GoString() string                                { return shown }
func (Bytes) Format(f fmt.State, _ rune)                      { _, _ = io.WriteString(f, shown) }
func (Bytes) LogValue() slog.Value                            { return slog.StringValue(shown) }
func (Bytes) MarshalJSON() ([]byte, error)                    { return nil, errMarshal }
func (Bytes) MarshalText() ([]byte, error)                    { return nil, errMarshal }
func (Bytes) MarshalBinary() ([]byte, error)                  { return nil, errMarshal }
func (Bytes) MarshalYAML() (any, error)                       { return nil, errMarshal }
func (Bytes) MarshalXML(*xml.Encoder, xml.StartElement) error { return errMarshal }
func (Bytes) MarshalXMLAttr(xml.Name) (xml.Attr, error)       { return xml.Attr{}, errMarshal }
func (Bytes) GobEncode() ([]byte, error)                      { return nil, errMarshal }
