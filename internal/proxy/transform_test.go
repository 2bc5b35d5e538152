package proxy_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/script"
)

func TestARequestTransformSeesTheWholeCallAndNoKey(t *testing.T) {
	w := newWorld(t)
	id := w.token(card)
	var args, configuration string
	w.scripts["see"] = func(c script.Call) (string, error) {
		args, configuration = string(c.Args.AppendJSON(nil)), string(c.Configuration.AppendJSON(nil))
		if !c.Headers || c.Entry != "request" || c.Origin.TraceID != "trace" {
			t.Errorf("the call is %+v", c)
		}
		return `{"body":{"n":"{{` + id + `}}"},"headers":{"X-New":"a","Content-Type":"application/json"}}`, nil
	}
	p := w.transformed("see", "")
	if _, _, err := w.call(p, "POST", "/a%2Fb/?x=1&svc-proxy-key="+"&y", "application/json", `{"n":"{{`+id+`}}"}`, "X-Old", "1", "X-Old", "2", "Connection", "X-Gone", "X-Gone", "g"); err != nil {
		t.Fatal(err)
	}
	want := `{"method":"POST","path":"/a%2Fb/","query":"?x=1&y","body":{"n":"4242424242424242"},"headers":{"Content-Type":"application/json","X-Old":"1, 2"}}`
	if args != want {
		t.Errorf("the code got %s, want %s", args, want)
	}
	if configuration != `{"secret":"s3cret"}` {
		t.Errorf("the code got the configuration %s", configuration)
	}
	r := w.got[0]
	if r.body != `{"n":"{{`+id+`}}"}` || r.Header.Get("X-New") != "a" || r.Header.Get("X-Old") != "" || r.Header.Get("Svc-Trace-Id") != "trace" {
		t.Errorf("the destination got %q with %v: what code returns is not evaluated again, and its headers replace the caller's", r.body, r.Header)
	}
}

func TestWhatARequestTransformReturns(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		returned string
		kind     fault.Kind // 0 when it is sent
		body     string
		headers  map[string]string
	}{
		"body and headers":       {`{"body":"text","headers":{"a":"b"}}`, 0, "text", map[string]string{"A": "b", "X-Was": ""}},
		"under raw":              {`{"raw":{"body":{"a":1.50},"headers":{"a":"b"}}}`, 0, `{"a":1.50}`, map[string]string{"A": "b", "Content-Type": "application/json"}},
		"the body alone":         {`{"body":[1]}`, 0, `[1]`, map[string]string{"X-Was": "there"}},
		"the headers alone":      {`{"headers":{"a":1,"b":true,"c":["d","e"],"f":null}}`, 0, "was", map[string]string{"A": "1", "B": "true", "C": "d", "F": ""}},
		"no body":                {`{"body":null,"headers":{}}`, 0, "", map[string]string{"X-Was": ""}},
		"headers that are ours":  {`{"body":"x","headers":{"Host":"evil","content-length":"99","Transfer-Encoding":"chunked","SVC-API-KEY":"k","svc_x":"y","Connection":"x","Content-Encoding":"gzip","a.b":"c"}}`, 0, "x", map[string]string{"Host": "", "Svc-Api-Key": "", "Svc_x": "", "Connection": "", "Content-Encoding": "", "A.b": ""}},
		"a shadow of its header": {`{"body":"x","headers":{"X-Key":"right","X_Key":"wrong"}}`, 0, "x", map[string]string{"X-Key": "right", "X_key": ""}},
		"a name in another case": {`{"headers":{"Authorization":"theirs","X-A":"1","authorization":"ours"}}`, 0, "was", map[string]string{"Authorization": "ours", "X-A": "1"}},
		"a line in a header":     {`{"headers":{"a":"b\r\nX: y"}}`, fault.Unprocessable, "", nil},
		"an object in a header":  {`{"headers":{"a":{}}}`, fault.Unprocessable, "", nil},
		"a list of headers":      {`{"headers":[]}`, fault.Unprocessable, "", nil},
		"nothing":                {`null`, fault.Unprocessable, "", nil},
		"nothing that is known":  {`{"bodi":1}`, fault.Unprocessable, "", nil},
		"a text":                 {`"x"`, fault.Unprocessable, "", nil},
		"too much":               {`{"body":"` + strings.Repeat("x", 5<<20+1) + `"}`, fault.Unprocessable, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w.scripts["do"] = func(script.Call) (string, error) { return c.returned, nil }
			_, _, err := w.call(w.transformed("do", ""), "POST", "/", "", "was", "X-Was", "there")
			if c.kind != 0 {
				if !errors.Is(err, c.kind) || len(w.got) != 0 {
					t.Errorf("Invoke = %v with %d requests, want %v and none", err, len(w.got), c.kind)
				}
				return
			}
			if err != nil || len(w.got) != 1 {
				t.Fatalf("Invoke = %v with %d requests", err, len(w.got))
			}
			if w.got[0].body != c.body || w.got[0].ContentLength != int64(len(c.body)) {
				t.Errorf("the destination got %q of length %d, want %q", w.got[0].body, w.got[0].ContentLength, c.body)
			}
			for name, value := range c.headers {
				if got := w.got[0].Header.Get(name); got != value {
					t.Errorf("the destination got %s %q, want %q", name, got, value)
				}
			}
		})
	}
}

func TestAResponseTransformShapesEveryAnswer(t *testing.T) {
	w := newWorld(t)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(`{"pan":"` + card + `"}`))
	_ = z.Close()
	for name, c := range map[string]struct {
		method   string
		answer   *http.Response
		args     string
		returned string
		body     string
		kind     fault.Kind
	}{
		"JSON":                   {"GET", respond(200, "application/json", `{"a":1}`), `{"status":200,"body":{"a":1},"headers":{"Content-Type":"application/json"}}`, `{"body":{"b":2},"headers":{}}`, `{"b":2}`, 0},
		"compressed":             {"GET", respond(201, "application/json", packed.String(), "Content-Encoding", "gzip"), `{"status":201,"body":{"pan":"4242424242424242"},"headers":{"Content-Type":"application/json"}}`, `{"body":{"t":"x"}}`, `{"t":"x"}`, 0},
		"an error":               {"POST", respond(500, "text/plain", "oops"), `{"status":500,"body":"oops","headers":{"Content-Type":"text/plain"}}`, `{"body":"sorry"}`, "sorry", 0},
		"JSON that is none":      {"GET", respond(200, "application/json", `{`), `{"status":200,"body":"{","headers":{"Content-Type":"application/json"}}`, `{"body":"x"}`, "x", 0},
		"nothing":                {"GET", respond(204, "", ""), `{"status":204,"body":"","headers":{}}`, `{"body":"x"}`, "", 0},
		"the head":               {"HEAD", respond(200, "", ""), `{"status":200,"body":"","headers":{}}`, `{"body":"x"}`, "", 0},
		"cookies":                {"GET", respond(200, "", "", "Set-Cookie", "a=b", "Set-Cookie", "c=d, e"), `{"status":200,"body":"","headers":{"Set-Cookie":["a=b","c=d, e"]}}`, `{"body":"x"}`, "x", 0},
		"bytes that stay":        {"GET", respond(200, "image/png", "\xff\xfe"), `{"status":200,"body":"` + "\uFFFD" + `","headers":{"Content-Type":"image/png"}}`, `{"body":"` + "\uFFFD" + `"}`, "\xff\xfe", 0},
		"too large":              {"GET", respond(200, "", strings.Repeat("x", 5<<20+1)), "", ``, "", fault.Unprocessable},
		"an encoding of its own": {"GET", respond(200, "", "x", "Content-Encoding", "br"), "", ``, "", fault.Unprocessable},
	} {
		t.Run(name, func(t *testing.T) {
			args := ""
			w.scripts["do"] = func(call script.Call) (string, error) {
				args = string(call.Args.AppendJSON(nil))
				return c.returned, nil
			}
			w.answer = func(*http.Request) *http.Response { return c.answer }
			a, body, err := w.call(w.transformed("", "do"), c.method, "/", "", "", "Accept-Encoding", "br")
			if c.kind != 0 {
				if !errors.Is(err, c.kind) {
					t.Errorf("Invoke = %v, want %v", err, c.kind)
				}
				return
			}
			if err != nil {
				t.Fatalf("Invoke = %v", err)
			}
			if args != c.args {
				t.Errorf("the code got %s, want %s", args, c.args)
			}
			if body != c.body || a.Length != int64(len(c.body)) || a.Status != c.answer.StatusCode || a.Header.Get("Content-Encoding") != "" {
				t.Errorf("the answer is %d %q of length %d, want %d %q", a.Status, body, a.Length, c.answer.StatusCode, c.body)
			}
			if got := w.got[0].Header.Get("Accept-Encoding"); got != "gzip" {
				t.Errorf("the destination was asked for %q, want what code can be shown", got)
			}
		})
	}
}

func TestWhatTransformsThrowReachesTheCaller(t *testing.T) {
	w := newWorld(t)
	custom := &script.Custom{Status: 418}
	w.scripts["throw"] = func(script.Call) (string, error) { return "", custom }
	for name, p := range map[string][2]string{"on the way there": {"throw", ""}, "on the way back": {"", "throw"}} {
		t.Run(name, func(t *testing.T) {
			_, _, err := w.call(w.transformed(p[0], p[1]), "GET", "/", "", "")
			if got := (*script.Custom)(nil); !errors.As(err, &got) || got != custom {
				t.Errorf("Invoke = %v, want what was thrown", err)
			}
			if sent := len(w.got); sent != 0 && p[0] != "" || sent != 1 && p[1] != "" {
				t.Errorf("the destination got %d requests", sent)
			}
		})
	}
}

func TestErrorsOfCodeDoNotRepeatValues(t *testing.T) {
	w := newWorld(t)
	id := w.token(card)
	w.scripts["see"] = func(c script.Call) (string, error) {
		var leaves []string
		for leaf := range c.Protected {
			leaves = append(leaves, leaf.Reveal())
		}
		if strings.Join(leaves, ",") != card {
			t.Errorf("protected are %q", leaves)
		}
		return `{"headers":{}}`, nil
	}
	if _, _, err := w.call(w.transformed("see", "see"), "POST", "/", "text/plain", "{{"+id+"}}"); err != nil {
		t.Fatal(err)
	}
}

func TestBodiesBeyondTheBoundOfATransformAreRefused(t *testing.T) {
	w := newWorld(t)
	w.scripts["do"] = func(script.Call) (string, error) { return `{"headers":{}}`, nil }
	for _, media := range []string{"application/octet-stream", "text/plain", ""} {
		if _, _, err := w.call(w.transformed("do", ""), "POST", "/", media, strings.Repeat("x", 5<<20+1)); !errors.Is(err, fault.TooLarge) || len(w.got) != 0 {
			t.Errorf("Invoke of %q = %v, want too large", media, err)
		}
	}
	if _, _, err := w.call(w.transformed("do", ""), "POST", "/", "application/octet-stream", "\xff"+strings.Repeat("x", 100)); err != nil || w.got[0].body != "\xff"+strings.Repeat("x", 100) {
		t.Errorf("Invoke = %v: bytes that the code left alone did not arrive", err)
	}
	if _, _, err := w.call(w.transformed("do", ""), "POST", "/", "text/plain", "x", "Content-Encoding", "br"); !errors.Is(err, fault.MediaType) {
		t.Errorf("Invoke of an encoding that nobody reads = %v, want a media type", err)
	}
	if _, _, err := w.call(w.transformed("do", ""), "POST", "/", "application/json", "{"); !errors.Is(err, fault.Invalid) {
		t.Errorf("Invoke of half an object = %v, want invalid", err)
	}
}

func TestCodeIsCheckedWhenItIsDefined(t *testing.T) {
	w := newWorld(t)
	_, err := w.Create(t.Context(), w.manager, value(`{"name":"p","destination_url":"https://a.example","request_transform":{"code":"nope"}}`))
	if got := fault.Of(err).Fields()["request_transform.code"]; len(got) == 0 {
		t.Errorf("Create = %v, want errors under request_transform.code", err)
	}
	p := w.define(`{"name":"p","destination_url":"https://a.example"}`)
	_, err = w.Patch(t.Context(), w.manager, p.ID, value(`{"response_transform":{"code":"nope"}}`))
	if got := fault.Of(err).Fields()["response_transform.code"]; len(got) == 0 {
		t.Errorf("Patch = %v, want errors under response_transform.code", err)
	}
}

func TestWhatWouldNotBeDoneIsRefused(t *testing.T) {
	w := newWorld(t)
	p := w.define(`{"name":"p","destination_url":"https://a.example"}`)
	for member, given := range map[string]string{
		"request_transforms":      `"request_transforms":[{"code":"x"}]`,
		"response_transforms":     `"response_transforms":[{"type":"mask"}]`,
		"disable_detokenization":  `"disable_detokenization":true`,
		"request_transform.type":  `"request_transform":{"type":"tokenize"}`,
		"response_transform.type": `"response_transform":{"type":"mask","expression":"x"}`,
	} {
		_, err := w.Create(t.Context(), w.manager, value(`{"name":"p","destination_url":"https://a.example",`+given+`}`))
		if got := fault.Of(err).Fields(); len(got) != 1 || len(got[member]) == 0 {
			t.Errorf("Create with %s = %v, want an error under %s alone", given, err, member)
		}
		_, err = w.Patch(t.Context(), w.manager, p.ID, value(`{`+given+`}`))
		if got := fault.Of(err).Fields(); len(got) != 1 || len(got[member]) == 0 {
			t.Errorf("Patch with %s = %v, want an error under %s alone", given, err, member)
		}
	}
	w.define(`{"name":"p","destination_url":"https://a.example","request_transforms":[],"response_transforms":null,"request_reactor_id":"","disable_detokenization":false,"unknown":true}`)
}

func TestAnEmptyBodyOfJSONIsAnEmptyObjectForARequestTransform(t *testing.T) {
	w := newWorld(t)
	var body string
	returned := `{"headers":{}}`
	w.scripts["see"] = func(c script.Call) (string, error) {
		v, _ := c.Args.Get("body")
		body = string(v.AppendJSON(nil))
		return returned, nil
	}
	p := w.transformed("see", "")
	for media, want := range map[string]string{
		"application/json": "{}", "application/json; charset=utf-8": "{}", "application/vnd.api+json": "{}", "text/plain": `""`, "": `""`,
	} {
		if _, _, err := w.call(p, "POST", "/", media, ""); err != nil || body != want || w.got[0].body != "" {
			t.Errorf("%q: the code got %s and Invoke = %v, want %s and an empty body sent", media, body, err, want)
		}
	}
	returned = `{"body":{},"headers":{}}`
	if _, _, err := w.call(p, "POST", "/", "application/json", ""); err != nil || w.got[0].body != "{}" {
		t.Errorf("Invoke = %v, want the object that the code returned", err)
	}
	p = w.transformed("", "see")
	w.answer = func(*http.Request) *http.Response { return respond(200, "application/json", "") }
	if _, _, err := w.call(p, "POST", "/", "", ""); err != nil || body != "null" {
		t.Errorf("the code got %s of an empty response and %v, want null", body, err)
	}
}

func TestTheQueryOfARequestTransformKeepsItsQuestionMark(t *testing.T) {
	w := newWorld(t)
	var query string
	w.scripts["see"] = func(c script.Call) (string, error) {
		v, _ := c.Args.Get("query")
		query = v.Reveal()
		return `{"headers":{}}`, nil
	}
	p := w.transformed("see", "")
	for path, want := range map[string]string{"/q": "", "/q?": "?", "/q?a": "?a", "/q?svc-proxy-key=": ""} {
		if _, _, err := w.call(p, "POST", path, "", ""); err != nil || query != want {
			t.Errorf("%s: the code got %q and Invoke = %v, want %q", path, query, err, want)
		}
	}
}
