package proxy_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"mime/multipart"
	"net/url"
	"strings"
	"testing"
)

const card = "4242424242424242"

func zipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, s)
	_ = z.Close()
	return b.String()
}

// TestABodyIsSentWithTheValuesOfItsTokensAndOtherwiseAsItCame: <id> stands for
// a token that holds a card number, <obj> for one that holds {"a":[1.50,"x"]}.
func TestABodyIsSentWithTheValuesOfItsTokensAndOtherwiseAsItCame(t *testing.T) {
	w := start(t, nil, nil)
	id, obj := w.token(t, card), w.token(t, json.RawMessage(`{"a":[1.50,"x"]}`))
	multi := func(parts ...string) string {
		return "pre\r\n--B\r\n" + strings.Join(parts, "\r\n--B\r\n") + "\r\n--B--\r\nepilogue {{<id>}}"
	}
	for name, c := range map[string]struct{ media, body, want string }{
		"JSON keeps its spelling":                 {"application/json", "{ \"n\" : \"{{<id>}}\",\t\"x\":1.50e+1, \"u\":\"\\u00e9\\/\"}\n", "{ \"n\" : \"4242424242424242\",\t\"x\":1.50e+1, \"u\":\"\\u00e9\\/\"}\n"},
		"JSON keeps the type of a value":          {"application/json", `["{{<obj>}}","a{{<obj>}}"]`, `[{"a":[1.50,"x"]},"a{\"a\":[1.50,\"x\"]}"]`},
		"JSON hides braces as escapes":            {"application/json", `{"n":"\u007b\u007B <id> \u007d}"}`, `{"n":"4242424242424242"}`},
		"JSON of one string":                      {"application/json", `"{{<id>}}"`, `"4242424242424242"`},
		"JSON with a filter":                      {"application/json", `"{{ <id> | last4 }}"`, `"4242"`},
		"JSON with the whole token":               {"application/json", `"{{ token: <id> | json: '$.data' }}"`, `"4242424242424242"`},
		"JSON names stay":                         {"application/json", `{"{{<id>}}":"{{<id>}}"}`, `{"{{<id>}}":"4242424242424242"}`},
		"JSON names alone":                        {"application/json", `{"{{<id>}}":1}`, `{"{{<id>}}":1}`},
		"JSON with a name twice":                  {"application/json", `{"a":1,"a":"{{<id>}}"}`, `{"a":1,"a":"4242424242424242"}`},
		"JSON that is none, without any":          {"application/json", `{"a":`, `{"a":`},
		"JSON with an escaped backslash":          {"application/json", `{"a":"\\u007b\\u007b<id>}}"}`, `{"a":"\\u007b\\u007b<id>}}"}`},
		"a suffix of JSON":                        {"application/vnd.api+json; charset=UTF-8", `["{{<id>}}"]`, `["4242424242424242"]`},
		"lines of JSON":                           {"application/x-ndjson", "{\"a\":\"{{<id>}}\"}\n{\"b\":2}\n", "{\"a\":\"4242424242424242\"}\n{\"b\":2}\n"},
		"a type in capitals":                      {"Application/JSON", `["{{<id>}}"]`, `["4242424242424242"]`},
		"a form":                                  {"application/x-www-form-urlencoded", `a=1&n={{<id>}}&b=%7B+x&c`, `a=1&n=4242424242424242&b=%7B+x&c`},
		"a form that hides braces":                {"application/x-www-form-urlencoded", `n=%7B%7b+<id>+%7D}&m={%7B<id>}}`, `n=4242424242424242&m=4242424242424242`},
		"a form that encodes what it holds":       {"application/x-www-form-urlencoded", `n=a+%26{{<obj>}}&x=%41`, `n=a+%26%7B%22a%22%3A%5B1.50%2C%22x%22%5D%7D&x=%41`},
		"a form of one value":                     {"application/x-www-form-urlencoded", `{{<id>}}`, card},
		"XML":                                     {"application/soap+xml", `<?xml version="1.0"?><a b="{{<obj>}}">{{<id>}} &amp;</a>`, `<?xml version="1.0"?><a b="{&#34;a&#34;:[1.50,&#34;x&#34;]}">4242424242424242 &amp;</a>`},
		"XML keeps values in CDATA as they are":   {"text/xml", `<a>{{<obj>}}<![CDATA[ <{{<obj>}}> ]]>&amp;{{<obj>}}</a>`, `<a>{&#34;a&#34;:[1.50,&#34;x&#34;]}<![CDATA[ <{"a":[1.50,"x"]}> ]]>&amp;{&#34;a&#34;:[1.50,&#34;x&#34;]}</a>`},
		"XML with references in an expression":    {"text/xml", `<a b="{{ <obj> | json: &quot;$.a[1]&quot; }}">{{ <obj> | json: &#39;$.a[1]&#x27; }} &quot;</a>`, `<a b="x">x &quot;</a>`},
		"XML with references in CDATA":            {"text/xml", `<a><![CDATA[&quot;{{ <obj> | json: "$.a[1]" }}&quot;]]></a>`, `<a><![CDATA[&quot;x&quot;]]></a>`},
		"XML with CDATA and no expression in it":  {"text/xml", `<a><![CDATA[<&]]>{{<id>}}<![CDATA[]]></a>`, `<a><![CDATA[<&]]>4242424242424242<![CDATA[]]></a>`},
		"XML with a brace written as a reference": {"text/xml", `<a>&#123;&#123;<id>}}</a>`, `<a>&#123;&#123;<id>}}</a>`},
		"text":             {"text/plain", "a {{<id>}}\r\n{{<id>}} {% b %}", "a 4242424242424242\r\n4242424242424242 {% b %}"},
		"a query language": {"application/graphql", "{ pay(n: \"{{<id>}}\") }", "{ pay(n: \"4242424242424242\") }"},
		"multipart": {"multipart/form-data; boundary=B", multi(
			"Content-Disposition: form-data; name=\"n\"\r\n\r\n{{<id>}}",
			"Content-Disposition: form-data; name=\"j\"\r\nContent-Type: application/json\r\n\r\n{\"n\":\"{{<obj>}}\"}",
			"Content-Disposition: form-data; name=\"f\"; filename=\"f.txt\"\r\nContent-Type: text/plain\r\n\r\n{{<id>}}",
			"Content-Disposition: form-data; name=\"o\"\r\nContent-Type: application/octet-stream\r\n\r\n{{<id>}}",
			"Content-Disposition: form-data; name=\"e\"\r\n\r\n",
		), multi(
			"Content-Disposition: form-data; name=\"n\"\r\n\r\n4242424242424242",
			"Content-Disposition: form-data; name=\"j\"\r\nContent-Type: application/json\r\n\r\n{\"n\":{\"a\":[1.50,\"x\"]}}",
			"Content-Disposition: form-data; name=\"f\"; filename=\"f.txt\"\r\nContent-Type: text/plain\r\n\r\n{{<id>}}",
			"Content-Disposition: form-data; name=\"o\"\r\nContent-Type: application/octet-stream\r\n\r\n{{<id>}}",
			"Content-Disposition: form-data; name=\"e\"\r\n\r\n",
		)},
		"multipart without any":                    {"multipart/form-data; boundary=B", "--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n{{\r\n--B--\r\n", "--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n{{\r\n--B--\r\n"},
		"a binary type is not scanned":             {"application/octet-stream", "{{<id>}}", "{{<id>}}"},
		"text without a type is one template":      {"", "a\t{{<id>}}\r\né {{<obj>}}\n", "a\t4242424242424242\r\né {\"a\":[1.50,\"x\"]}\n"},
		"text without a type or an expression":     {"", "a\r\n{ %7B%7B", "a\r\n{ %7B%7B"},
		"what is not UTF-8 and has no type":        {"", "{{<id>}}\xff", "{{<id>}}\xff"},
		"half a character and no type":             {"", "{{<id>}}\xe2\x82", "{{<id>}}\xe2\x82"},
		"a NUL and no type":                        {"", "{{<id>}}\x00", "{{<id>}}\x00"},
		"an escape character and no type":          {"", "\x1b[1m{{<id>}}", "\x1b[1m{{<id>}}"},
		"a control character of C1 and no type":    {"", "{{<id>}}\u0085", "{{<id>}}\u0085"},
		"a deletion and no type":                   {"", "{{<id>}}\x7f", "{{<id>}}\x7f"},
		"a type that cannot be parsed is not text": {";", "{{<id>}}", "{{<id>}}"},
		"an unknown type is not":                   {"image/png", "{{<id>}}", "{{<id>}}"},
	} {
		t.Run(name, func(t *testing.T) {
			fill := strings.NewReplacer("<id>", id, "<obj>", obj).Replace
			sentType := c.media
			if sentType == "" {
				sentType = " " // or the test's own client would set one
			}
			got := w.send(t, "POST", "/x", sentType, fill(c.body))
			if got.Status != 200 {
				t.Fatalf("the answer is %s", got)
			}
			if r := w.one(t); r.body != fill(c.want) {
				t.Errorf("the destination got\n%q\nwant\n%q", r.body, fill(c.want))
			} else if r.header.Get("Content-Length") != fmt.Sprint(len(r.body)) {
				t.Errorf("the destination got Content-Length %q for %d bytes", r.header.Get("Content-Length"), len(r.body))
			}
		})
	}
}

func TestGzipIsLookedInto(t *testing.T) {
	w := start(t, map[string]string{"max_body": "65536"}, nil)
	id := w.token(t, card)
	if got := w.send(t, "POST", "/", "application/json", zipped(`["{{`+id+`}}"]`), "Content-Encoding", "gzip"); got.Status != 200 {
		t.Fatalf("the answer is %s", got)
	}
	if r := w.one(t); r.body != `["`+card+`"]` || r.header.Get("Content-Encoding") != "" {
		t.Errorf("the destination got %q under %q, want it in clear", r.body, r.header.Get("Content-Encoding"))
	}
	plain := zipped(`["nothing"]`)
	if got := w.send(t, "POST", "/", "application/json", plain, "Content-Encoding", "gzip"); got.Status != 200 {
		t.Fatalf("the answer is %s", got)
	}
	if r := w.one(t); r.body != plain || r.header.Get("Content-Encoding") != "gzip" {
		t.Error("a compressed body without expressions did not arrive as it was sent")
	}
	proxyError(t, w.send(t, "POST", "/", "application/json", zipped(strings.Repeat(" ", 100<<20)), "Content-Encoding", "gzip"), 413, "decompressed")
	proxyError(t, w.send(t, "POST", "/", "application/json", "no gzip", "Content-Encoding", "gzip"), 400, "gzip")
	if got := w.to.take(); len(got) != 0 {
		t.Errorf("the destination got %d of the refused bodies", len(got))
	}
}

func TestABodyWithoutATypeIsScannedWhenItIsTextAndStreamedUntouchedWhenItIsNot(t *testing.T) {
	w := start(t, map[string]string{"max_body": "65536"}, nil)
	id := w.token(t, card)
	long := strings.Repeat("é", 50<<10)
	for name, c := range map[string]struct{ encoding, body, want string }{
		"text in gzip":                          {"gzip", zipped("{{" + id + "}}"), card},
		"text in gzip without any":              {"gzip", zipped("{ {"), zipped("{ {")},
		"binary in gzip":                        {"gzip", zipped("{{" + id + "}}\x00"), zipped("{{" + id + "}}\x00")},
		"binary in gzip, too large":             {"gzip", zipped("\x00{{" + id + "}}" + long), zipped("\x00{{" + id + "}}" + long)},
		"what is no gzip":                       {"gzip", "{{" + id + "}}", "{{" + id + "}}"},
		"text in another encoding":              {"br", "{{" + id + "}}", "{{" + id + "}}"},
		"long text without any":                 {"", long, long},
		"long, and binary at once":              {"", "\x00" + long + "{{" + id + "}}", "\x00" + long + "{{" + id + "}}"},
		"long, and binary before an expression": {"", long + "\x00{{" + id + "}}", long + "\x00{{" + id + "}}"},
	} {
		t.Run(name, func(t *testing.T) {
			headers := []string{"Content-Encoding", c.encoding}
			if c.encoding == "" {
				headers = nil
			}
			if got := w.send(t, "POST", "/", " ", c.body, headers...); got.Status != 200 {
				t.Fatalf("the answer is %s", got)
			}
			if r := w.one(t); r.body != c.want {
				t.Errorf("the destination got %.80q of %d bytes, want %.80q of %d", r.body, len(r.body), c.want, len(c.want))
			}
		})
	}
	for name, c := range map[string]struct {
		body    string
		headers []string
		status  int
	}{
		"an expression in long text":         {"{{" + id + "}}" + long, nil, 413},
		"an expression found late":           {long + long + "{{" + id + "}}", nil, 413},
		"text in gzip, too large":            {zipped(long + "{{" + id + "}}"), []string{"Content-Encoding", "gzip"}, 413},
		"a token that is not there":          {"{{ nothing-there }}", nil, 400},
		"an expression that has not its end": {"{{" + id, nil, 400},
	} {
		t.Run(name, func(t *testing.T) { proxyError(t, w.send(t, "POST", "/", " ", c.body, c.headers...), c.status, "") })
	}
	for _, r := range w.to.take() {
		if strings.Contains(r.raw, card) || strings.Contains(r.raw, id) {
			t.Errorf("the destination got %.300q", r.raw)
		}
	}
}

func TestBodiesThatCannotBeFilledAreRefusedAndNothingIsSent(t *testing.T) {
	w := start(t, map[string]string{"max_body": "65536"}, nil)
	id, long, bell := w.token(t, card), w.token(t, strings.Repeat("x", 1000)), w.token(t, "a\x07b")
	boundary := w.token(t, "a\r\n--B\r\nContent-Disposition: form-data; name=\"admin\"\r\n\r\n1")
	other := w.Application(t, w.Tenant(t).Tenant.ID, apiPrivate()).Key
	var foreign struct{ ID string }
	w.Call(t, "POST", "/tokens", other, `{"type":"token","data":"theirs"}`).Into(t, 201, &foreign)
	var many strings.Builder
	for i := range 101 {
		fmt.Fprintf(&many, "{{token-%d}} ", i)
	}
	for name, c := range map[string]struct {
		media, body string
		status      int
		detail      string
	}{
		"a token that is not there":     {"application/json", `["{{nothing-there}}"]`, 400, "Failed to detokenize some tokens: nothing-there"},
		"a card number as an id":        {"text/plain", `{{ 4111111111111111 }}`, 400, "Failed to detokenize some tokens"},
		"another tenant's token":        {"text/plain", `{{ ` + foreign.ID + ` }}`, 400, "Failed to detokenize some tokens"},
		"an expression that is not one": {"text/plain", `{{ }}`, 400, "does not begin"},
		"an expression without an end":  {"text/plain", `{{` + id, 400, "not closed"},
		"an unknown filter":             {"text/plain", `{{` + id + ` | nope}}`, 400, "filter"},
		"JSON that is none":             {"application/json", `{'a':'{{` + id + `}}'}`, 400, "JSON"},
		"JSON with half a character":    {"application/json", `{"a":"\ud800{{` + id + `}}"}`, 400, "JSON"},
		"JSON that is not UTF-8":        {"application/json", "[\"\xff{{" + id + "}}\"]", 400, "JSON"},
		"text that is not UTF-8":        {"text/plain", "\xff{{" + id + "}}", 400, "UTF-8"},
		"text in another alphabet":      {"text/plain; charset=latin1", "{{" + id + "}}", 400, "UTF-8"},
		"a form that is none":           {"application/x-www-form-urlencoded", "a=%zz{{" + id + "}}", 400, "form"},
		"multipart without its end":     {"multipart/form-data; boundary=B", "--B\r\n\r\n{{" + id + "}}", 400, "multipart"},
		"multipart that a value splits": {"multipart/form-data; boundary=B", "--B\r\nContent-Disposition: form-data; name=\"n\"\r\n\r\n{{" + boundary + "}}\r\n--B--\r\n", 400, "boundary"},
		"a character XML has not":       {"application/xml", "<a>{{" + bell + "}}</a>", 400, "XML"},
		"too many tokens":               {"text/plain", many.String(), 400, "too many tokens"},
		"too large once filled":         {"application/json", `["` + strings.Repeat("{{"+long+"}}", 70) + `"]`, 413, "too large"},
		"a form, encoded":               {"application/x-www-form-urlencoded", "a=" + strings.Repeat("{{"+w.token(t, strings.Repeat("\x01", 1000))+"}}", 25), 413, "too large"},
		"too large to hold any":         {"text/plain", "{{" + id + "}}" + strings.Repeat(" ", 70<<10), 413, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			proxyError(t, w.send(t, "POST", "/", c.media, c.body), c.status, c.detail)
			if got := w.to.take(); len(got) != 0 {
				t.Errorf("the destination got %.300q", got[0].raw)
			}
		})
	}
}

// TestAnExpressionFoundLateEndsTheCall, when the destination already has the
// beginning of the body. No value ever follows.
func TestAnExpressionFoundLateEndsTheCall(t *testing.T) {
	w := start(t, map[string]string{"max_body": "65536"}, nil)
	id := w.token(t, card)
	for name, c := range map[string]struct{ media, body string }{
		"an expression found late":   {"text/plain", strings.Repeat(" ", 200<<10) + "{{" + id + "}}"},
		"one hidden and found late":  {"application/json", `["` + strings.Repeat(" ", 200<<10) + `{\u007B` + id + `}}"]`},
		"one encoded and found late": {"application/x-www-form-urlencoded", "a=" + strings.Repeat("x", 200<<10) + `%7B%7b` + id + `}}`},
		"one in a late part":         {"multipart/form-data; boundary=B", "--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n" + strings.Repeat("{{", 100<<10) + "\r\n--B\r\nContent-Disposition: form-data; name=\"n\"\r\n\r\n{{" + id + "}}\r\n--B--\r\n"},
	} {
		t.Run(name, func(t *testing.T) { proxyError(t, w.send(t, "POST", "/", c.media, c.body), 413, "too large") })
	}
	for _, r := range w.to.take() {
		if strings.Contains(r.raw, card) || strings.Contains(r.raw, id) {
			t.Errorf("the destination got %.300q", r.raw)
		}
	}
}

// hard are values that some encoding trips over.
var hard = []string{
	`"`, `\`, `\u007b`, `{{`, `{{x}}`, `}}`, `{{ token: abc }}`, `<&>`, `]]>`, `'"&;=+%25`, "a\r\nb: c", "\r\n\r\nGET / HTTP/1.1\r\n", "é漢字𝄞", "\u2028\ufeff",
	" leading and trailing ", "\t", "&amp;", "a&b=c", "%7B%7B", "</a><b>", "${x} #{y} {% z %}", "\x00\x01\x1f\x7f",
}

func TestHardValuesArriveIntactInEveryKindOfBody(t *testing.T) {
	w := start(t, nil, nil)
	for _, value := range hard {
		t.Run(fmt.Sprintf("%q", value), func(t *testing.T) { checkArrival(t, w, value) })
	}
}

// checkArrival sends a value in every kind of body and reads it back as the
// destination would.
func checkArrival(t *testing.T, w *world, value string) {
	t.Helper()
	id := w.token(t, value)
	take := func(media, body string) string {
		t.Helper()
		if got := w.send(t, "POST", "/", media, body); got.Status != 200 {
			t.Fatalf("%s: the answer is %s", media, got)
		}
		return w.one(t).body
	}
	want := "<" + value + ">" + value
	var asJSON struct{ A, B string }
	if got := take("application/json", `{"a":"<{{`+id+`}}>{{`+id+`}}","b":"{{`+id+`}}"}`); json.Unmarshal([]byte(got), &asJSON) != nil || asJSON.A != want || asJSON.B != value {
		t.Errorf("JSON arrived as %q", got)
	}
	got := take("application/x-www-form-urlencoded", "a=1&b=%3C{{"+id+"}}%3E{{"+id+"}}&c=2")
	if form, err := url.ParseQuery(got); err != nil || len(form) != 3 || form.Get("b") != want {
		t.Errorf("a form arrived as %q: %v", got, err)
	}
	if got := take("text/plain", "<{{"+id+"}}>{{"+id+"}}"); got != want {
		t.Errorf("text arrived as %q", got)
	}
	got = take("multipart/form-data; boundary=B", "--B\r\nContent-Disposition: form-data; name=\"b\"\r\n\r\n<{{"+id+"}}>{{"+id+"}}\r\n--B--\r\n")
	form, err := multipart.NewReader(strings.NewReader(got), "B").ReadForm(1 << 20)
	if err != nil || len(form.Value) != 1 || form.Value["b"][0] != want {
		t.Errorf("multipart arrived as %q: %v", got, err)
	}
	if strings.ContainsAny(value, "\x00\x01\x07\x1f") {
		return // XML cannot hold these, and says so
	}
	var asXML struct {
		Attr string `xml:"a,attr"`
		Text string `xml:",chardata"`
	}
	got = take("application/xml", `<r a="{{`+id+`}}">{{`+id+`}}</r>`)
	if err := xml.Unmarshal([]byte(got), &asXML); err != nil || asXML.Attr != value || asXML.Text != value {
		t.Errorf("XML arrived as %q: %v", got, err)
	}
}
