package httpapi_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

// document has a member of every kind that requests have.
type document struct {
	Name     string            `json:"name"`
	Count    int               `json:"count"`
	Share    float64           `json:"share"`
	On       bool              `json:"on"`
	Data     jsontext.Value    `json:"data,omitempty"`
	Metadata map[string]string `json:"metadata"`
	Rules    []rule            `json:"rules"`
	Owner    *owner            `json:"owner"`
	Any      any               `json:"any"`
	When     time.Time         `json:"when,omitzero"`
	Extra
}

type rule struct {
	Container   string   `json:"container"`
	Permissions []string `json:"permissions"`
}

type owner struct {
	ID string `json:"id"`
}

type Extra struct {
	Note string `json:"note"`
}

// echoRow decodes a document and answers with it. Only a test may do so.
func echoRow(pattern string, body httpapi.Body) httpapi.Route {
	return httpapi.Route{Pattern: pattern, Auth: httpapi.Anonymous, Body: body, Handle: func(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
		var d document
		if err := httpapi.Decode(r, &d); err != nil {
			return err
		}
		return httpapi.WriteJSON(w, http.StatusOK, d)
	}}
}

func valueRow(pattern string) httpapi.Route {
	return httpapi.Route{Pattern: pattern, Auth: httpapi.Anonymous, Body: httpapi.JSON, Handle: func(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
		var v jsontext.Value
		if err := httpapi.Decode(r, &v); err != nil {
			return err
		}
		return httpapi.WriteJSON(w, http.StatusOK, v)
	}}
}

func jsonEdge(t *testing.T, o httpapi.Options) *edge {
	return newEdge(t, o, echoRow("POST /documents", httpapi.JSON), echoRow("PATCH /documents", httpapi.MergePatch), valueRow("POST /values"),
		httpapi.Route{Pattern: "POST /strings", Auth: httpapi.Anonymous, Body: httpapi.JSON, Handle: func(_ http.ResponseWriter, r *http.Request, _ access.Caller) error {
			var v []string
			return httpapi.Decode(r, &v)
		}})
}

// planted stands in every malformed body; no answer may hold it.
const planted = "4242424242424242"

func TestMalformedBodiesAreRefusedWithoutRepeatingThem(t *testing.T) {
	e := jsonEdge(t, httpapi.Options{})
	for name, tt := range map[string]struct {
		body   string
		detail string
	}{
		"not JSON":                      {"number=4242424242424242", "the body is not valid JSON"},
		"nothing":                       {"", "a body is required"},
		"only space":                    {" \n\t ", "a body is required"},
		"an open object":                {`{"name":"4242424242424242"`, "the body is not valid JSON"},
		"an open string":                {`{"name":"4242424242424242`, "the body is not valid JSON"},
		"a missing colon":               {`{"name" "4242424242424242"}`, "the body is not valid JSON"},
		"a trailing comma":              {`{"name":"4242424242424242",}`, "the body is not valid JSON"},
		"a comma too many":              {`["4242424242424242",,1]`, "the body is not valid JSON"},
		"a bracket of another kind":     {`{"a":["4242424242424242"}}`, "the body is not valid JSON"},
		"single quotes":                 {`{'name':'4242424242424242'}`, "the body is not valid JSON"},
		"a name without quotes":         {`{4242424242424242:1}`, "the body is not valid JSON"},
		"a comment":                     {`{/*4242424242424242*/}`, "the body is not valid JSON"},
		"NaN":                           {`{"4242424242424242":NaN}`, "the body is not valid JSON"},
		"infinity":                      {`{"4242424242424242":-Infinity}`, "the body is not valid JSON"},
		"a leading zero":                {`{"4242424242424242":01}`, "the body is not valid JSON"},
		"a leading plus":                {`{"4242424242424242":+1}`, "the body is not valid JSON"},
		"a bare point":                  {`{"4242424242424242":1.}`, "the body is not valid JSON"},
		"hexadecimal":                   {`{"4242424242424242":0x10}`, "the body is not valid JSON"},
		"True":                          {`{"4242424242424242":True}`, "the body is not valid JSON"},
		"half a literal":                {`{"4242424242424242":tru`, "the body is not valid JSON"},
		"a control character":           {"{\"4242424242424242\":\"a\x01\"}", "the body is not valid JSON"},
		"a raw newline in a string":     {"{\"4242424242424242\":\"a\n\"}", "the body is not valid JSON"},
		"an unknown escape":             {`{"4242424242424242":"\x41"}`, "the body is not valid JSON"},
		"half an escape":                {`{"4242424242424242":"\u12"}`, "the body is not valid JSON"},
		"half a surrogate pair":         {`{"4242424242424242":"\ud800"}`, "the body is not valid JSON"},
		"a surrogate pair reversed":     {`{"4242424242424242":"\udc00\ud800"}`, "the body is not valid JSON"},
		"bytes that are not UTF-8":      {"{\"4242424242424242\":\"\xff\"}", "the body is not valid UTF-8"},
		"an overlong encoding":          {"{\"4242424242424242\":\"\xc0\xaf\"}", "the body is not valid UTF-8"},
		"a name that is not UTF-8":      {"{\"4242424242424242\xff\":1}", "the body is not valid UTF-8"},
		"a byte order mark":             {"\xef\xbb\xbf{\"name\":\"4242424242424242\"}", "the body is not valid JSON"},
		"a second value":                {`{"name":"a"}{"name":"4242424242424242"}`, "something follows the JSON value of the body"},
		"trailing text":                 {`{"name":"a"} 4242424242424242`, "something follows the JSON value of the body"},
		"a trailing NUL":                {"{\"name\":\"4242424242424242\"}\x00", "something follows the JSON value of the body"},
		"a trailing bracket":            {`{"name":"4242424242424242"}]`, "something follows the JSON value of the body"},
		"a name twice":                  {`{"4242424242424242":1,"4242424242424242":2}`, "the body gives a member twice in one object"},
		"a known name twice":            {`{"name":"a","name":"4242424242424242"}`, "the body gives a member twice in one object"},
		"a name twice, once escaped":    {`{"name":"a","n\u0061me":"4242424242424242"}`, "the body gives a member twice in one object"},
		"a name twice deep in raw data": {`{"data":[{"a":{"4242424242424242":1,"4242424242424242":1}}]}`, "the body gives a member twice in one object"},
		"a name twice in what we skip":  {`{"unknown":{"4242424242424242":1,"4242424242424242":1}}`, "the body gives a member twice in one object"},
		"too deep":                      {`{"data":` + strings.Repeat("[", 64) + planted + strings.Repeat("]", 64) + "}", "the body is nested too deeply"},
		"ten thousand levels":           {strings.Repeat("[", 10_000) + planted + strings.Repeat("]", 10_000), "the body is nested too deeply"},
		"ten thousand open objects":     {strings.Repeat(`{"4242424242424242":`, 10_000), "the body is nested too deeply"},
		"a million open brackets":       {strings.Repeat("[", 1_000_000), "the body is nested too deeply"},
		"null":                          {" null", "the body must be a JSON object"},
		"a number":                      {planted, "the body must be a JSON object"},
		"a string":                      {`"4242424242424242"`, "the body must be a JSON object"},
		"an array":                      {`["4242424242424242"]`, "the body must be a JSON object"},
		"true":                          {`true`, "the body must be a JSON object"},
	} {
		t.Run(name, func(t *testing.T) {
			w := e.do("POST", "/documents", strings.NewReader(tt.body), "Content-Type", "application/json")
			p := problem(t, w)
			if w.Code != 400 || p.Detail != tt.detail || p.Title != "Bad Request" || p.Errors != nil {
				t.Errorf("POST %.60q = %d %+v, want 400 %q", tt.body, w.Code, p, tt.detail)
			}
			if strings.Contains(w.Body.String(), planted) {
				t.Errorf("POST %.60q repeats the body: %s", tt.body, w.Body)
			}
		})
	}
	if strings.Contains(e.log.String(), planted) {
		t.Error("the log repeats a body")
	}
}

func TestMembersOfTheWrongTypeAreNamedAsFarAsWeKnowThem(t *testing.T) {
	e := jsonEdge(t, httpapi.Options{})
	for name, tt := range map[string]struct {
		body string
		want map[string][]string
	}{
		"a number for a string":   {`{"name":4242424242424242}`, map[string][]string{"name": {"must be a string"}}},
		"a string for a number":   {`{"count":"4242424242424242"}`, map[string][]string{"count": {"must be a whole number in range"}}},
		"a fraction":              {`{"count":1.5}`, map[string][]string{"count": {"must be a whole number in range"}}},
		"a number too large":      {`{"count":42424242424242424242}`, map[string][]string{"count": {"must be a whole number in range"}}},
		"a float out of range":    {`{"share":1e400}`, map[string][]string{"share": {"must be a number in range"}}},
		"a string for a boolean":  {`{"on":"4242424242424242"}`, map[string][]string{"on": {"must be true or false"}}},
		"an object for a list":    {`{"rules":{"4242424242424242":1}}`, map[string][]string{"rules": {"must be an array"}}},
		"a string for an object":  {`{"owner":"4242424242424242"}`, map[string][]string{"owner": {"must be an object"}}},
		"inside an object":        {`{"owner":{"id":4242424242424242}}`, map[string][]string{"owner.id": {"must be a string"}}},
		"inside a list":           {`{"rules":[{},{"container":4242424242424242}]}`, map[string][]string{"rules.1.container": {"must be a string"}}},
		"a list inside a list":    {`{"rules":[{"permissions":["a",4242424242424242]}]}`, map[string][]string{"rules.0.permissions.1": {"must be a string"}}},
		"an element of a list":    {`{"rules":["4242424242424242"]}`, map[string][]string{"rules.0": {"must be an object"}}},
		"under a caller's name":   {`{"metadata":{"4242424242424242":1}}`, map[string][]string{"metadata": {"holds a value of the wrong type"}}},
		"a string of its own":     {`{"when":"4242424242424242"}`, map[string][]string{"when": {"is not valid"}}},
		"an embedded member":      {`{"note":4242424242424242}`, map[string][]string{"note": {"must be a string"}}},
		"a list for a map":        {`{"metadata":["4242424242424242"]}`, map[string][]string{"metadata": {"must be an object"}}},
		"a path with odd letters": {`{"metadata":{"a/b~c.4242424242424242":[]}}`, map[string][]string{"metadata": {"holds a value of the wrong type"}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := e.do("POST", "/documents", strings.NewReader(tt.body), "Content-Type", "application/json")
			p := problem(t, w)
			if diff := cmp.Diff(tt.want, p.Errors); diff != "" || w.Code != 400 || p.Title != "One or more validation errors occurred." {
				t.Errorf("POST %s = %d %q (-want +got)\n%s", tt.body, w.Code, p.Title, diff)
			}
			if strings.Contains(w.Body.String(), "42424242") {
				t.Errorf("POST %s repeats the body: %s", tt.body, w.Body)
			}
		})
	}
	w := e.do("POST", "/strings", strings.NewReader(`{"4242424242424242":1}`), "Content-Type", "application/json")
	if p := problem(t, w); w.Code != 400 || p.Detail != "the body must be a JSON array" {
		t.Errorf("an object for a list = %d %+v, want 400", w.Code, p)
	}
}

func TestBodiesAreReadExactly(t *testing.T) {
	e := jsonEdge(t, httpapi.Options{})
	for name, tt := range map[string]struct{ target, in, want string }{
		"numbers keep their digits": {"/values", `[1.10,1e400,12345678901234567890,-0,0.1e-7,1E+2]`, `[1.10,1e400,12345678901234567890,-0,0.1e-7,1E+2]`},
		"so do members":             {"/values", `{"b":1.0,"a":{"x":9007199254740993}}`, `{"b":1.0,"a":{"x":9007199254740993}}`},
		"nothing is escaped":        {"/values", `"<a href=\"x\">&\u2028</a>"`, `"<a href=\"x\">&` + "\u2028" + `</a>"`},
		"a primitive":               {"/values", ` 12 `, `12`},
		"null":                      {"/values", `null`, `null`},
		"sixty-four levels":         {"/values", strings.Repeat("[", 64) + strings.Repeat("]", 64), strings.Repeat("[", 64) + strings.Repeat("]", 64)},
		"a NUL in a string":         {"/values", `"a\u0000b"`, `"a\u0000b"`},
		"a surrogate pair":          {"/values", `"\ud83d\ude00"`, `"😀"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := e.do("POST", tt.target, strings.NewReader(tt.in), "Content-Type", "application/json")
			if w.Code != 200 || w.Body.String() != tt.want {
				t.Errorf("POST %s %s = %d %s, want %s", tt.target, tt.in, w.Code, w.Body, tt.want)
			}
			if got := w.Header().Get("Content-Length"); got == "" || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("headers %v lack a length or no-store", w.Header())
			}
		})
	}
}

func TestUnknownMembersAreIgnoredAndNamesAreComparedAsWritten(t *testing.T) {
	for name, tt := range map[string]struct {
		in   string
		want document
	}{
		"unknown members":      {`{"name":"a","else":{"deep":[1]}}`, document{Name: "a"}},
		"another case":         {`{"NAME":"a","Name":"b"}`, document{}},
		"null is absent":       {`{"name":null,"rules":null,"owner":null}`, document{}},
		"null in a raw member": {`{"data":null}`, document{Data: jsontext.Value("null")}},
		"a raw member":         {`{"data":{"n":1.10}}`, document{Data: jsontext.Value(`{"n":1.10}`)}},
		"space around":         {"\r\n\t {\"count\" : 7 } \n", document{Count: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			var got document
			e := newEdge(t, httpapi.Options{}, httpapi.Route{Pattern: "POST /documents", Auth: httpapi.Anonymous, Body: httpapi.JSON,
				Handle: func(_ http.ResponseWriter, r *http.Request, _ access.Caller) error { return httpapi.Decode(r, &got) }})
			w := e.do("POST", "/documents", strings.NewReader(tt.in), "Content-Type", "application/json")
			if diff := cmp.Diff(tt.want, got); diff != "" || w.Code != 200 {
				t.Errorf("Decode(%s) = %d (-want +got)\n%s", tt.in, w.Code, diff)
			}
		})
	}
}

func TestTheContentTypeOfABodyMatters(t *testing.T) {
	e := jsonEdge(t, httpapi.Options{})
	for name, tt := range map[string]struct {
		method, contentType, body string
		want                      int
	}{
		"json":                          {"POST", "application/json", `{}`, 200},
		"json with a charset":           {"POST", "application/json; charset=utf-8", `{}`, 200},
		"json in upper case":            {"POST", "Application/JSON", `{}`, 200},
		"a kind of json":                {"POST", "application/vnd.example+json", `{}`, 200},
		"a patch where json is due":     {"POST", "application/merge-patch+json", `{}`, 415},
		"text":                          {"POST", "text/plain", `{}`, 415},
		"a form":                        {"POST", "application/x-www-form-urlencoded", `a=b`, 415},
		"no type":                       {"POST", "", `{}`, 415},
		"a broken parameter":            {"POST", "application/json; ;=", `{}`, 200},
		"a broken type":                 {"POST", "application json", `{}`, 415},
		"something like json":           {"POST", "application/jsonx", `{}`, 415},
		"malformed and of another type": {"POST", "text/plain", `{`, 415},
		"no body, so any type":          {"POST", "application/x-www-form-urlencoded", ``, 400},
		"a patch":                       {"PATCH", "application/merge-patch+json", `{}`, 200},
		"a patch with a charset":        {"PATCH", "application/merge-patch+json;charset=UTF-8", `{}`, 200},
		"json where a patch is due":     {"PATCH", "application/json", `{}`, 415},
		"no type where a patch is due":  {"PATCH", "", `{}`, 415},
		"a wrong type and no body where a patch is due": {"PATCH", "text/html", ``, 415},
		"json and no body where a patch is due":         {"PATCH", "application/json", ``, 415},
		"a patch without a body":                        {"PATCH", "application/merge-patch+json", ``, 400},
		"neither type nor body where a patch is due":    {"PATCH", "", ``, 400},
	} {
		t.Run(name, func(t *testing.T) {
			var headers []string
			if tt.contentType != "" {
				headers = []string{"Content-Type", tt.contentType}
			}
			if w := e.do(tt.method, "/documents", strings.NewReader(tt.body), headers...); w.Code != tt.want {
				t.Errorf("%s as %q = %d %s, want %d", tt.method, tt.contentType, w.Code, w.Body, tt.want)
			}
			// The same without a length in advance.
			chunked := struct{ io.Reader }{strings.NewReader(tt.body)}
			if w := e.do(tt.method, "/documents", chunked, headers...); w.Code != tt.want {
				t.Errorf("%s as %q, chunked = %d %s, want %d", tt.method, tt.contentType, w.Code, w.Body, tt.want)
			}
		})
	}
	if w := e.do("POST", "/documents", strings.NewReader("{}"), "Content-Type", "application/json", "Content-Type", "text/plain"); w.Code != 415 {
		t.Errorf("two content types = %d, want 415", w.Code)
	}
}

// endless is a body that never stops, and counts what was taken from it.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	copy(b, bytes.Repeat([]byte(" "), len(b)))
	e.read += len(b)
	return len(b), nil
}

func TestOversizedBodiesAreRefusedWithoutReadingThem(t *testing.T) {
	const most = 100_000
	e := jsonEdge(t, httpapi.Options{MaxBody: most})
	exact := `"` + strings.Repeat("a", most-2) + `"`
	for name, tt := range map[string]struct {
		body string
		want int
	}{
		"at the bound":     {exact, 200},
		"one byte above":   {exact + " ", 413},
		"twice the bound":  {exact + exact, 413},
		"malformed at all": {strings.Repeat("{", most+1), 413},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, body := range map[string]io.Reader{
				"with a length": strings.NewReader(tt.body), "chunked": struct{ io.Reader }{strings.NewReader(tt.body)},
			} {
				w := e.do("POST", "/values", body, "Content-Type", "application/json")
				if w.Code != tt.want {
					t.Errorf("%d bytes %s = %d, want %d", len(tt.body), kind, w.Code, tt.want)
				}
				if w.Code == 413 {
					problem(t, w)
				}
			}
		})
	}
	stream := &endless{}
	if w := e.do("POST", "/values", stream, "Content-Type", "application/json"); w.Code != 413 || stream.read > 4*most || w.Header().Get("Connection") != "close" {
		t.Errorf("an endless body = %d %v after %d bytes, want 413 and a close after little more than %d", w.Code, w.Header(), stream.read, most)
	}
}

func TestARowWithoutABodyReadsNone(t *testing.T) {
	stream := &endless{}
	e := newEdge(t, httpapi.Options{}, httpapi.Route{Pattern: "POST /sessions", Auth: httpapi.Anonymous, Handle: func(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
		b, err := io.ReadAll(r.Body)
		if len(b) > 0 || err != nil {
			t.Errorf("the handler read %d bytes, %v; want none", len(b), err)
		}
		w.WriteHeader(http.StatusCreated)
		return nil
	}})
	if w := e.do("POST", "/sessions", stream, "Content-Type", "application/x-www-form-urlencoded"); w.Code != 201 || stream.read > 0 {
		t.Errorf("POST /sessions = %d after %d bytes, want 201 after none", w.Code, stream.read)
	}
}

func TestDecodeServesOnlyRowsWithABound(t *testing.T) {
	for name, body := range map[string]httpapi.Body{"no body": httpapi.NoBody, "a raw body": httpapi.Raw} {
		t.Run(name, func(t *testing.T) {
			stream := &endless{}
			e := newEdge(t, httpapi.Options{}, echoRow("POST /documents", body))
			w := e.do("POST", "/documents", stream, "Content-Type", "application/json")
			if w.Code != 500 || stream.read > 0 {
				t.Errorf("POST /documents = %d after %d bytes, want 500 after none", w.Code, stream.read)
			}
		})
	}
}

func TestAnAnswerThatCannotBeEncodedIsOurFailure(t *testing.T) {
	e := newEdge(t, httpapi.Options{}, httpapi.Route{Pattern: "GET /broken", Auth: httpapi.Anonymous, Handle: func(w http.ResponseWriter, _ *http.Request, _ access.Caller) error {
		w.Header().Set("Location", "/elsewhere")
		return httpapi.WriteJSON(w, 200, map[string]any{planted: "\xff"})
	}})
	w := e.do("GET", "/broken", nil)
	if p := problem(t, w); w.Code != 500 || w.Header().Get("Location") != "" {
		t.Errorf("GET /broken = %d %+v %v, want 500 without a location", w.Code, p, w.Header())
	}
	if log := e.log.String(); strings.Contains(log, planted) || !strings.Contains(log, "encode an answer") {
		t.Errorf("the log should say what failed, without the member's name: %s", log)
	}
}

// peekRow reads the body ahead and answers with what was sent and what is
// decoded after that. Only a test may do so.
func peekRow(pattern string, body httpapi.Body) httpapi.Route {
	return httpapi.Route{Pattern: pattern, Auth: httpapi.Anonymous, Body: body, Handle: func(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
		sent, err := httpapi.PeekBody(r)
		if err != nil {
			return err
		}
		var decoded jsontext.Value
		if body != httpapi.NoBody {
			if err := httpapi.Decode(r, &decoded); err != nil {
				return err
			}
		}
		return httpapi.WriteJSON(w, http.StatusOK, []string{string(sent), string(decoded)})
	}}
}

func TestABodyIsReadAheadAsItWasSent(t *testing.T) {
	e := newEdge(t, httpapi.Options{MaxBody: 100}, peekRow("POST /values", httpapi.JSON), peekRow("PATCH /values", httpapi.MergePatch), peekRow("POST /empty", httpapi.NoBody))
	const media, patch = "application/json", "application/merge-patch+json"
	for name, tt := range map[string]struct {
		method, target, media, body string
		status                      int
		want                        string // of the body, where it is no problem
	}{
		"byte for byte":            {"POST", "/values", media, ` {"a" : 1.50} `, 200, `[" {\"a\" : 1.50} ","{\"a\" : 1.50}"]`},
		"a merge patch":            {"PATCH", "/values", patch, `{}`, 200, `["{}","{}"]`},
		"nothing":                  {"POST", "/values", media, ``, 400, ""},
		"a row that reads nothing": {"POST", "/empty", media, `{}`, 200, `["",""]`},
		"malformed":                {"POST", "/values", media, `{`, 400, ""},
		"another type":             {"POST", "/values", "text/plain", `{}`, 415, ""},
		"too large":                {"POST", "/values", media, `"` + strings.Repeat("x", 100) + `"`, 413, ""},
	} {
		w := e.do(tt.method, tt.target, strings.NewReader(tt.body), "Content-Type", tt.media)
		if w.Code != tt.status || tt.want != "" && strings.TrimSpace(w.Body.String()) != tt.want {
			t.Errorf("%s: %d %s, want %d %s", name, w.Code, w.Body, tt.status, tt.want)
		}
	}
	r, err := http.NewRequest("POST", "/values", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if body, err := httpapi.PeekBody(r); err == nil {
		t.Errorf("outside a request of a handler: %q, want an error", body)
	}
}
