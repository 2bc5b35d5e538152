package proxy_test

import (
	"encoding/json"
	"encoding/xml"
	"mime/multipart"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/proxy"
)

var medias = []string{
	"application/json", "application/x-www-form-urlencoded", "application/xml", "text/plain", "multipart/form-data; boundary=B", "application/octet-stream", "",
}

// FuzzValues holds that a value arrives as it is in every kind of body, read
// back as a destination reads it.
func FuzzValues(f *testing.F) {
	for _, s := range []string{card, `"\{{x}}<&>]]>`, "a\r\n--B\r\n", "é漢\x00\x01", "%7B%7B+&=;", "\u2028{{ token: x }}", "]]>", "]]", "]>", ">", "]]]]><![CDATA[>", "<!--", "\xf0\x9d\x84\x9e"} {
		f.Add(s)
	}
	w := newWorld(f)
	p := w.define(`{"name":"p","destination_url":"https://psp.example"}`)
	f.Fuzz(func(t *testing.T, value string) {
		if value == "" || !utf8.ValidString(value) || len(value) > 1000 {
			return
		}
		w.t = t
		id := w.token(value)
		take := func(media, body string) (string, bool) {
			_, _, err := w.call(p, "POST", "/", media, body)
			if err != nil {
				return err.Error(), false
			}
			return w.got[0].body, true
		}
		var list []string
		if got, ok := take(medias[0], `["{{`+id+`}}","-{{`+id+`}}-"]`); !ok || json.Unmarshal([]byte(got), &list) != nil || len(list) != 2 || list[0] != value || list[1] != "-"+value+"-" {
			t.Errorf("JSON arrived as %q", got)
		}
		got, ok := take(medias[1], "a={{"+id+"}}&b=%2B{{"+id+"}}")
		if form, err := url.ParseQuery(got); !ok || err != nil || len(form) != 2 || form.Get("a") != value || form.Get("b") != "+"+value {
			t.Errorf("a form arrived as %q: %v", got, err)
		}
		if got, ok := take(medias[3], "-{{"+id+"}}-"); !ok || got != "-"+value+"-" {
			t.Errorf("text arrived as %q", got)
		}
		got, ok = take(medias[2], `<a b="{{`+id+`}}">{{`+id+`}}</a>`)
		var element struct {
			B    string `xml:"b,attr"`
			Text string `xml:",chardata"`
		}
		if err := xml.Unmarshal([]byte(got), &element); ok && (err != nil || element.B != value || element.Text != value) {
			t.Errorf("XML arrived as %q: %v", got, err)
		} else if !ok && !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r >= 0xfffe }) {
			t.Errorf("XML did not arrive: %s", got)
		}
		got, ok = take(medias[2], "<a><!--{{"+id+"}}--><![CDATA[]{{"+id+"}}>]]><![CDATA[{{"+id+"}}{{"+id+"}}]]></a>")
		var text struct {
			Text string `xml:",chardata"`
		}
		lines := strings.NewReplacer("\r\n", "\n", "\r", "\n") // as XML reads them
		want := lines.Replace("]"+value+">") + lines.Replace(value+value)
		if err := xml.Unmarshal([]byte(got), &text); ok && !strings.Contains(value, "-") && (err != nil || text.Text != want) {
			t.Errorf("CDATA arrived as %q: %v, want %q", got, err, want)
		} else if !ok && !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r >= 0xfffe }) {
			t.Errorf("CDATA did not arrive: %s", got)
		}
		got, ok = take(medias[4], "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{{"+id+"}}\r\n--B--\r\n")
		if !ok {
			if !strings.Contains(value, "--B") {
				t.Errorf("multipart did not arrive: %s", got)
			}
			return
		}
		form, err := multipart.NewReader(strings.NewReader(got), "B").ReadForm(1 << 20)
		if err != nil || len(form.Value) != 1 || len(form.File) != 0 || form.Value["a"][0] != value {
			t.Errorf("multipart arrived as %q: %v", got, err)
		}
	})
}

// FuzzBodies holds that a body leaves as it came unless an expression in it
// was evaluated, and that nothing is evaluated that a stream would not notice.
func FuzzBodies(f *testing.F) {
	for i := range medias {
		f.Add(i, `{"a":"{{<id>}}"}`, 3)
		f.Add(i, "a=%7B{<id>}}&b=\\u007b\\u007B<id>}}", 9)
		f.Add(i, "--B\r\n\r\n{{<id>}}\r\n--B\r\nContent-Disposition: form-data; filename=x\r\n\r\n{{\r\n--B--", 20)
	}
	f.Add(2, `<!DOCTYPE a [<!ENTITY b "<![CDATA[{{<id>}}]]>">]><a b='{{<id>}}'><!-- <![CDATA[{{<id>}}]]> --><?p <![CDATA[{{<id>}} ?><![CDATA[{{<id>}}]]></a>`, 30)
	f.Add(2, "<a><![CDATA[{{<id> | json: &quot;}}&quot; }}", 12)
	f.Add(6, "é漢\u0085{{<id>}}\xe2\x82", 1)
	f.Add(6, "{{<id>}}\xe2\x28\x00", 40)
	w := newWorld(f)
	id := w.token(card)
	p := w.define(`{"name":"p","destination_url":"https://psp.example"}`)
	f.Fuzz(func(t *testing.T, kind int, body string, cut int) {
		media := medias[uint(kind)%uint(len(medias))]
		body = strings.ReplaceAll(body, "<id>", id)
		if body == "" || len(body) > 10_000 {
			return
		}
		w.t = t
		at := int(uint(cut) % uint(len(body)))
		fills, err := proxy.Fills(media, []byte(body))
		whole := proxy.Finds(media, []byte(body))
		if pieces := proxy.Finds(media, []byte(body[:at]), []byte(body[at:])); pieces != whole {
			t.Errorf("Finds in two pieces = %t, in one %t", pieces, whole)
		}
		isText := utf8.ValidString(body) && !strings.ContainsFunc(body, func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\t\r\n", r) })
		if got, cut := proxy.Texts([]byte(body)), proxy.Texts([]byte(body[:at]), []byte(body[at:])); got != isText || cut != isText {
			t.Errorf("Texts = %t, in two pieces %t, want %t", got, cut, isText)
		}
		if (fills || err != nil) && !whole {
			t.Errorf("an expression is evaluated that a stream would not notice")
		}
		_, _, err = w.call(p, "POST", "/", media, body)
		switch {
		case err != nil && len(w.got) != 0:
			t.Errorf("Invoke = %v, and the destination got something", err)
		case err == nil && !fills && w.got[0].body != body:
			t.Errorf("the destination got %q, want it as it came", w.got[0].body)
		}
	})
}

// TestABodyInAMillionFieldsCostsLittle: what is cut grows with the expressions,
// and not with what stands between them.
func TestABodyInAMillionFieldsCostsLittle(t *testing.T) {
	w := newWorld(t)
	id := w.token(card)
	p := w.define(`{"name":"p","destination_url":"https://psp.example"}`)
	const size = 4 << 20
	for media, body := range map[string]string{
		medias[0]: `["{{` + id + `}}"` + strings.Repeat(",0", size/2) + "]",
		medias[1]: "a={{" + id + "}}" + strings.Repeat("&", size),
		medias[4]: "--B\n\n{{" + id + "}}\n" + strings.Repeat("--B\n\n\n", size/7) + "--B--",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := w.call(p, "POST", "/", media, body)
		runtime.ReadMemStats(&after)
		if want := strings.Replace(body, "{{"+id+"}}", card, 1); err != nil || w.got[0].body != want {
			t.Errorf("%s: Invoke = %v, and the body did not arrive as it should", media, err)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 100<<20 {
			t.Errorf("%s: %d MiB were allocated for %d", media, grown>>20, size>>20)
		}
	}
}
