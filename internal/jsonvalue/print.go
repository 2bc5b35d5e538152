package jsonvalue

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// shown stands wherever a value would have been printed.
const shown = "[json]"

var errMarshal = errors.New("jsonvalue: a value cannot be marshalled; use AppendJSON")

// The methods below exist so that printing is tidy and marshalling is loud;
// that nothing leaks does not rest on them.

func (Value) String() string                                    { return shown }
func (Value) GoString() string                                  { return shown }
func (Value) Format(f fmt.State, _ rune)                        { _, _ = io.WriteString(f, shown) }
func (Value) LogValue() slog.Value                              { return slog.StringValue(shown) }
func (Value) MarshalJSON() ([]byte, error)                      { return nil, errMarshal }
func (Value) MarshalText() ([]byte, error)                      { return nil, errMarshal }
func (Value) MarshalBinary() ([]byte, error)                    { return nil, errMarshal }
func (Value) MarshalYAML() (any, error)                         { return nil, errMarshal }
func (Value) MarshalXML(*xml.Encoder, xml.StartElement) error   { return errMarshal }
func (Value) MarshalXMLAttr(xml.Name) (xml.Attr, error)         { return xml.Attr{}, errMarshal }
func (Value) GobEncode() ([]byte, error)                        { return nil, errMarshal }
func (Builder) String() string                                  { return shown }
func (Builder) GoString() string                                { return shown }
func (Builder) Format(f fmt.State, _ rune)                      { _, _ = io.WriteString(f, shown) }
func (Builder) LogValue() slog.Value                            { return slog.StringValue(shown) }
func (Builder) MarshalJSON() ([]byte, error)                    { return nil, errMarshal }
func (Builder) MarshalText() ([]byte, error)                    { return nil, errMarshal }
func (Builder) MarshalBinary() ([]byte, error)                  { return nil, errMarshal }
func (Builder) MarshalYAML() (any, error)                       { return nil, errMarshal }
func (Builder) MarshalXML(*xml.Encoder, xml.StartElement) error { return errMarshal }
func (Builder) MarshalXMLAttr(xml.Name) (xml.Attr, error)       { return xml.Attr{}, errMarshal }
func (Builder) GobEncode() ([]byte, error)                      { return nil, errMarshal }
