package secret_test

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tokenkeep/tokenkeep/internal/secret"
)

const planted = "4242424242424242"

// The ways in which a value gets into something that is printed.
type (
	exported   struct{ Text, Bytes any }
	unexported struct {
		text  secret.Text
		bytes secret.Bytes
	}
	pointed  struct{ inner *unexported }
	embedded struct {
		secret.Text
	}
	control struct{ plain string } // shows that the search would find a leak
)

func holders(s string) map[string]any {
	text, b := secret.NewText(s), secret.NewBytes([]byte(s))
	hidden := unexported{text: text, bytes: b}
	return map[string]any{
		"text":                  text,
		"bytes":                 b,
		"pointer to text":       &text,
		"pointer to bytes":      &b,
		"exported fields":       exported{Text: text, Bytes: b},
		"unexported fields":     hidden,
		"pointer to unexported": &hidden,
		"behind a pointer":      pointed{inner: &hidden},
		"embedded":              embedded{text},
		"slice":                 []secret.Text{text, text},
		"slice of unexported":   []unexported{hidden},
		"map":                   map[string]secret.Text{"k": text},
		"map of unexported":     map[string]unexported{"k": hidden},
		"interface":             []any{text, b, hidden, &hidden},
		"channel of any":        [1]any{hidden},
	}
}

// prints are the ways to show a value. Some fail on some holders: then they
// have shown nothing.
var prints = map[string]func(v any) string{
	"%v": sprintf("%v"), "%+v": sprintf("%+v"), "%#v": sprintf("%#v"), "%s": sprintf("%s"), "%q": sprintf("%q"),
	"%x": sprintf("%x"), "%X": sprintf("%X"), "%d": sprintf("%d"), "%T": sprintf("%T"), "%p": sprintf("%p"), "%c": sprintf("%c"), "%U": sprintf("%U"),
	"print":   func(v any) string { return fmt.Sprint(v) },
	"println": func(v any) string { return fmt.Sprintln(v) },
	"wrapped error": func(v any) string {
		return errors.Join(fmt.Errorf("reading %v: %w", v, errors.New("cause"))).Error()
	},
	"json": func(v any) string { b, err := json.Marshal(v); return fmt.Sprint(string(b), err) },
	"xml":  func(v any) string { b, err := xml.Marshal(v); return fmt.Sprint(string(b), err) },
	"yaml": func(v any) string {
		defer func() { _ = recover() }() // yaml panics on function values
		b, err := yaml.Marshal(v)
		return fmt.Sprint(string(b), err)
	},
	"gob": func(v any) string {
		var b bytes.Buffer
		err := gob.NewEncoder(&b).Encode(v)
		return fmt.Sprint(b.String(), err)
	},
	"slog text": func(v any) string {
		var b bytes.Buffer
		slog.New(slog.NewTextHandler(&b, nil)).Info("m", "v", v, slog.Group("g", slog.Any("v", v)))
		return b.String()
	},
	"slog json": func(v any) string {
		var b bytes.Buffer
		slog.New(slog.NewJSONHandler(&b, nil)).Info("m", "v", v, slog.Group("g", slog.Any("v", v)))
		return b.String()
	},
	"panic": func(v any) (out string) {
		defer func() { out = fmt.Sprint(recover()) }()
		panic(v)
	},
}

func sprintf(format string) func(any) string {
	return func(v any) string { return fmt.Sprintf(format, v) }
}

// shows tells whether a text holds the planted value in one of the spellings
// that the verbs of fmt give to bytes.
func shows(out string) bool {
	hex := fmt.Sprintf("%x", planted)
	list := strings.Trim(fmt.Sprint([]byte(planted)), "[]")
	for _, spelling := range []string{planted, hex, strings.ToUpper(hex), list, fmt.Sprintf("%#v", []byte(planted)[:8])[7:20]} {
		if strings.Contains(out, spelling) {
			return true
		}
	}
	return false
}

func TestASecretCannotBePrinted(t *testing.T) {
	for way, print := range prints {
		for name, v := range holders(planted) {
			if out := print(v); shows(out) {
				t.Errorf("%s of %s shows the value: %s", way, name, out)
			}
		}
	}
}

func TestTheSearchWouldFindALeak(t *testing.T) {
	for _, way := range []string{"%v", "%+v", "%#v", "%x", "slog text"} {
		if out := prints[way](control{planted}); !shows(out) {
			t.Errorf("%s of a plain string in an unexported field: the search does not find it in %s", way, out)
		}
	}
	if out := prints["%v"](struct{ b []byte }{[]byte(planted)}); !shows(out) {
		t.Errorf("%%v of plain bytes: the search does not find them in %s", out)
	}
}

func TestMarshallingIsLoud(t *testing.T) {
	for name, v := range map[string]any{"text": secret.NewText(planted), "bytes": secret.NewBytes([]byte(planted))} {
		if _, err := json.Marshal(v); err == nil {
			t.Errorf("json.Marshal of %s = nil, want an error", name)
		}
		if _, err := xml.Marshal(v); err == nil {
			t.Errorf("xml.Marshal of %s = nil, want an error", name)
		}
		if err := gob.NewEncoder(&bytes.Buffer{}).Encode(v); err == nil {
			t.Errorf("gob encoding of %s = nil, want an error", name)
		}
		if _, err := yaml.Marshal(v); err == nil {
			t.Errorf("yaml.Marshal of %s = nil, want an error", name)
		}
		if _, err := v.(interface{ MarshalText() ([]byte, error) }).MarshalText(); err == nil {
			t.Errorf("MarshalText of %s = nil, want an error", name)
		}
		if _, err := v.(interface{ MarshalBinary() ([]byte, error) }).MarshalBinary(); err == nil {
			t.Errorf("MarshalBinary of %s = nil, want an error", name)
		}
		if _, err := v.(xml.MarshalerAttr).MarshalXMLAttr(xml.Name{Local: "a"}); err == nil {
			t.Errorf("MarshalXMLAttr of %s = nil, want an error", name)
		}
		if got := v.(fmt.Stringer).String() + v.(fmt.GoStringer).GoString(); got != "[secret][secret]" {
			t.Errorf("String and GoString of %s = %s", name, got)
		}
	}
}

func TestTheWayOutIsReveal(t *testing.T) {
	text := secret.NewText(planted)
	if got := text.Reveal(); got != planted {
		t.Errorf("Text.Reveal = %q, want %q", got, planted)
	}
	b := secret.NewBytes([]byte(planted))
	if got := string(b.Reveal()); got != planted {
		t.Errorf("Bytes.Reveal = %q, want %q", got, planted)
	}
	b.Destroy()
	if got := b.Reveal(); !bytes.Equal(got, make([]byte, len(planted))) {
		t.Errorf("Bytes.Reveal after Destroy = %q, want zeros", got)
	}
}

func TestTheZeroValueIsEmpty(t *testing.T) {
	var text secret.Text
	var b secret.Bytes
	if !text.IsZero() || text.Reveal() != "" || !secret.NewText("").IsZero() {
		t.Error("the zero Text is not the empty text")
	}
	if !b.IsZero() || b.Reveal() != nil || !secret.NewBytes(nil).IsZero() {
		t.Error("the zero Bytes is not empty")
	}
	b.Destroy() // must not panic
	if secret.NewText("a").IsZero() || secret.NewBytes([]byte("a")).IsZero() {
		t.Error("a value counts as empty")
	}
}

func TestEqual(t *testing.T) {
	for name, test := range map[string]struct {
		a, b string
		want bool
	}{
		"the same":          {"abc", "abc", true},
		"both empty":        {"", "", true},
		"one character off": {"abc", "abd", false},
		"a prefix":          {"abc", "ab", false},
		"one empty":         {"abc", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := secret.NewText(test.a).Equal(secret.NewText(test.b)); got != test.want {
				t.Errorf("Text.Equal(%q, %q) = %t, want %t", test.a, test.b, got, test.want)
			}
			if got := secret.NewBytes([]byte(test.a)).Equal(secret.NewBytes([]byte(test.b))); got != test.want {
				t.Errorf("Bytes.Equal(%q, %q) = %t, want %t", test.a, test.b, got, test.want)
			}
		})
	}
}
