package proxy_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// raw is an attempt over a bare socket. <K> stands for the headers that
// authorize a call, <SMUGGLED> for a request that nobody authorized.
type raw struct {
	name string
	send string
	// target is what the destination may be asked for, once; "" when the
	// attempt must not reach it at all, "?" when it may be refused as well.
	target string
	body   string
	// dropped are header names that must not arrive, in any spelling.
	dropped []string
	// has are lines that must arrive.
	has []string
}

const smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"

// corpus gathers the attempts.
func corpus() []raw {
	var list []raw
	add := func(r raw) { list = append(list, r) }
	post := func(headers, body string) string {
		return "POST /proxy/a HTTP/1.1\r\nHost: h\r\n<K>" + headers + "\r\n" + body
	}
	// Two lengths, or a length that is none.
	for i, lengths := range []string{
		"Content-Length: 1\r\nContent-Length: 2\r\n", "Content-Length: 5, 6\r\n", "Content-Length: +5\r\n", "Content-Length: -1\r\n", "Content-Length: 0x5\r\n",
		"Content-Length: 5 5\r\n", "Content-Length: 5;a\r\n", "Content-Length: \r\n", "Content-Length: 99999999999999999999\r\n", "Content-Length: 1e1\r\n",
		"Content-Length: 5\x00\r\n", "Content-Length: 5\x0b\r\n", "Content-Length: ٥\r\n", "Content-Length: 1_0\r\n", "Content-Length: 5.0\r\n",
	} {
		add(raw{name: "lengths " + strconv.Itoa(i), send: post(lengths, "hello"+smuggled)})
	}
	add(raw{name: "the same length twice", send: post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"), target: "?/base/a", body: "hello"})
	add(raw{name: "a length after blanks", send: post("Content-Length:   5  \r\n", "hello"+smuggled), target: "/base/a", body: "hello"})
	add(raw{name: "a length that is short", send: post("Content-Length: 2\r\n", "he"+smuggled), target: "/base/a", body: "he"})
	add(raw{name: "a length that is zero", send: post("Content-Length: 0\r\n", smuggled), target: "/base/a"})
	add(raw{name: "no length", send: post("", smuggled), target: "/base/a"})
	// A length and an encoding.
	for i, te := range []string{
		"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: CHUNKED\r\nContent-Length: 0\r\n",
	} {
		add(raw{name: "both " + strconv.Itoa(i), send: post(te, "5\r\nhello\r\n0\r\n\r\n"+smuggled), target: "?/base/a", body: "hello"})
	}
	// Encodings in disguise: understood as one of ours, or refused.
	for i, te := range []string{
		"Transfer-Encoding: xchunked\r\n", "Transfer-Encoding : chunked\r\n", "Transfer-Encoding: chunked, identity\r\n", "Transfer-Encoding: identity\r\n",
		"Transfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", "Transfer-Encoding:\x0bchunked\r\n", "Transfer-Encoding: chunked\x00\r\n",
		"Transfer-Encoding: \"chunked\"\r\n", "Transfer-Encoding: chunked;q=1\r\n", "\x00Transfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked, chunked\r\n",
		"Transfer Encoding: chunked\r\n", "Transfer-Encoding\r\n : chunked\r\n", "Transfer-Encoding: ch\r\n unked\r\n",
	} {
		add(raw{name: "encoding in disguise " + strconv.Itoa(i), send: post(te+"Content-Length: 5\r\n", "5\r\nhello\r\n0\r\n\r\n"+smuggled)})
	}
	for i, te := range []string{"Transfer_Encoding: chunked\r\n", "Transfer-encodinG_: chunked\r\n", "X: a\r\nTransfer_encoding: chunked\r\n", "TRANSFER_ENCODING: chunked\r\n"} {
		add(raw{name: "encoding by underscore " + strconv.Itoa(i), send: post(te+"Content-Length: 5\r\n", "hello"+smuggled), target: "/base/a", body: "hello", dropped: []string{"Transfer_Encoding"}})
	}
	add(raw{name: "a length by underscore", send: post("Content_Length: 1\r\nContent-Length: 5\r\n", "hello"), target: "/base/a", body: "hello", dropped: []string{"Content_Length"}})
	// Chunks.
	for i, chunks := range []string{
		"5;" + strings.Repeat("x", 20_000) + "\r\nhello\r\n0\r\n\r\n", "5\r\nhelloX\r\n0\r\n\r\n", "-5\r\nhello\r\n0\r\n\r\n", "0x5\r\nhello\r\n0\r\n\r\n",
		"5\r\nhello0\r\n\r\n", "FFFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n", "g\r\nhello\r\n0\r\n\r\n", "\r\nhello\r\n0\r\n\r\n", "5 5\r\nhello\r\n0\r\n\r\n",
	} {
		add(raw{name: "chunks " + strconv.Itoa(i), send: post("Transfer-Encoding: chunked\r\nContent-Type: text/plain\r\n", chunks+smuggled)})
	}
	for i, chunks := range []string{
		"5\r\nhello\r\n0\r\n\r\n", "005\r\nhello\r\n0\r\n\r\n", "5;a=b\r\nhello\r\n0\r\n\r\n", "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\nSVC-API-KEY: k\r\nX-Trailer: t\r\n\r\n",
		"5\r\nhello\r\n0\r\nContent-Length: 99\r\n\r\n",
	} {
		add(raw{name: "good chunks " + strconv.Itoa(i), send: post("Transfer-Encoding: chunked\r\nTrailer: X-Trailer\r\n", chunks+smuggled), target: "?/base/a", body: "hello", dropped: []string{"X-Trailer", "Trailer", "SVC-API-KEY"}})
	}
	// Line ends and folds.
	for i, h := range []string{
		"X: a\rY: b\r\n", "X: a\r\r\n", "X: a\x00b\r\n", "X\x00: a\r\n", "X : a\r\n", ": a\r\n", "X\r\n", " X: a\r\n: b\r\n", "X(: a\r\n", "X\x7f: a\r\n", "Xé: a\r\n", "\"X\": a\r\n", "X/Y: a\r\n",
		"X: a\x01\r\n", "X: a\x08b\r\n", "X: a\x7f\r\n", "X@: a\r\n", "[X]: a\r\n", "X{: a\r\n",
	} {
		add(raw{name: "a broken header " + strconv.Itoa(i), send: post(h+"Content-Length: 0\r\n", smuggled)})
	}
	add(raw{name: "a fold", send: post("X: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "hello"+smuggled), target: "?/base/a", body: "hello", dropped: []string{"Transfer-Encoding"}})
	add(raw{name: "a fold with a tab", send: post("X: a\r\n\tSVC-API-KEY: b\r\nContent-Length: 5\r\n", "hello"), target: "?/base/a", body: "hello", dropped: []string{"SVC-API-KEY"}})
	add(raw{name: "a bare line feed", send: post("X: a\nY: b\r\nContent-Length: 5\r\n", "hello"+smuggled), target: "?/base/a", body: "hello"})
	add(raw{name: "bare line feeds alone", send: strings.ReplaceAll(post("Content-Length: 5\r\n", ""), "\r\n", "\n") + "hello", target: "?/base/a", body: "hello"})
	for i, name := range []string{"X.Y", "X~Y", "X!Y", "X#Y", "X$Y", "X%Y", "X&Y", "X'Y", "X*Y", "X+Y", "X^Y", "X`Y", "X|Y"} {
		add(raw{name: "an odd name " + strconv.Itoa(i), send: post(name+": a\r\nContent-Length: 5\r\n", "hello"), target: "?/base/a", body: "hello", dropped: []string{name}})
	}
	// What belongs to one connection, or to the service.
	for _, h := range []string{
		"Connection: X-Secret\r\nX-Secret: a", "Connection: close, X-Secret\r\nX-Secret: a", "Proxy-Connection: keep-alive", "Keep-Alive: timeout=5", "TE: trailers", "Upgrade: websocket\r\nConnection: upgrade",
		"Proxy-Authorization: Basic x", "Proxy-Authenticate: x", "Trailer: X", "Expect: 100-continue", "HTTP2-Settings: AAMAAABkAAQAAP__\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c", "Forwarded: for=1.1.1.1",
		"X-Forwarded-For: 1.1.1.1", "X-Forwarded-Host: evil", "X_Forwarded_Proto: http", "x-forwarded_for: 1", "SVC-API-KEY_: x", "SVC_API_KEY: x", "svc-anything: x", "Svc_Proxy-Key: x", "SVC-IDEMPOTENCY-KEY: 0123",
		"SVC-PROXY-DESTINATION-STATUS: 200", "SVC_TRACE_ID: x", "Connection_: x", "Keep_Alive: x", "Te_: x", "Cookie: tokenkeep_session=x; __Host-tokenkeep=y",
	} {
		name, _, _ := strings.Cut(h, ":")
		dropped := []string{name, "X-Secret"}
		if strings.HasSuffix(name, "_") && !strings.HasPrefix(name, "SVC") {
			dropped = nil // another name, whoever reads it
		}
		add(raw{name: "the header " + name, send: post(h+"\r\nContent-Length: 5\r\n", "hello"), target: "/base/a", body: "hello", dropped: dropped})
	}
	add(raw{name: "names that differ by underscores", send: post("X-A: right\r\nX_A: wrong\r\nContent-Length: 0\r\n", ""), target: "/base/a", dropped: []string{"X_A"}, has: []string{"X-A: right"}})
	add(raw{name: "names that nobody can tell apart", send: post("X_A-B: 1\r\nX-A_B: 2\r\nContent-Length: 0\r\n", ""), target: "/base/a", dropped: []string{"X_A-B", "X-A_B"}})
	add(raw{name: "an underscore alone", send: post("X_A: 1\r\nAuthorization: Bearer t\r\nContent-Length: 0\r\n", ""), target: "/base/a", has: []string{"X_a: 1", "Authorization: Bearer t"}})
	add(raw{name: "cookies of others", send: post("Cookie: a=1; tokenkeep=x; b=2\r\nContent-Length: 0\r\n", ""), target: "/base/a", has: []string{"Cookie: a=1; b=2"}})
	add(raw{name: "a connection of one's own", send: post("SVC-PROXY-CONNECTION: close\r\nSVC-PROXY-KEEP-ALIVE: timeout=7\r\nContent-Length: 0\r\n", ""), target: "/base/a", has: []string{"Connection: close", "Keep-Alive: timeout=7"}})
	add(raw{name: "a connection that names headers", send: post("SVC-PROXY-CONNECTION: close, X-Admin\r\nContent-Length: 0\r\n", "")})
	add(raw{name: "two content types", send: post("Content-Type: text/plain\r\nContent-Type: application/json\r\nContent-Length: 5\r\n", "hello")})
	add(raw{name: "two hosts", send: "GET /proxy/a HTTP/1.1\r\nHost: a\r\nHost: b\r\n<K>\r\n" + smuggled})
	add(raw{name: "another host", send: "GET /proxy/a HTTP/1.1\r\nHost: evil.example\r\n<K>\r\n", target: "/base/a"})
	add(raw{name: "two API keys", send: "GET /proxy/a HTTP/1.1\r\nHost: a\r\n<K>SVC-API-KEY: x\r\n\r\n"})
	add(raw{name: "two proxy keys", send: "GET /proxy/a HTTP/1.1\r\nHost: a\r\n<K>SVC-PROXY-KEY: x\r\n\r\n"})
	// Paths and targets.
	for path, target := range map[string]string{
		"/proxy": "/base", "/proxy/": "/base/", "/proxy//": "/base//", "/proxy//evil.example/x": "/base//evil.example/x", "/proxy/a%2Fb/%2e/c": "/base/a%2Fb/%2e/c",
		"/proxy/a%2fb%41": "/base/a%2fb%41", "/proxy/%00": "/base/%00", "/proxy/%0d%0aX:%20y": "/base/%0d%0aX:%20y", "/proxy/a;b=c/d": "/base/a;b=c/d", "/proxy/a?b=c&&d=%zz": "/base/a?b=c&&d=%zz",
		"/proxy/a?": "/base/a?", "/proxy?a=1&svc-proxy-key=": "/base?a=1", "/proxy/a?x=../..": "/base/a?x=../..", "/proxy/...": "/base/...", "/proxy/..a": "/base/..a", "/proxy/a..": "/base/a..", "/proxy/%252e%252e/": "/base/%252e%252e/",
		"/proxy/http://evil.example/": "/base/http://evil.example/", "/proxy/@evil.example": "/base/@evil.example", "/proxy/a?http://evil.example": "/base/a?http://evil.example", "http://evil.example/proxy/a": "/base/a", "http://evil.example:99999/proxy/a": "/base/a",
		"/%70roxy/a": "/base/a", "/proxy/[a]": "/base/[a]", "/proxy/a'b(c)*!$": "/base/a'b(c)*!$",
	} {
		add(raw{name: "the target " + path, send: "GET " + path + " HTTP/1.1\r\nHost: h\r\n<K>\r\n", target: target})
	}
	for _, path := range []string{
		"/proxy/..", "/proxy/../x", "/proxy/a/../../x", "/proxy/%2e%2e/x", "/proxy/.%2E/x", "/proxy/a%2f..%2fx", "/proxy/a%5c..%5cx", "/proxy/..;/x", "/proxy/..;a=b/x", "/proxy/%2e%2e%3b/x", "/proxy/a\\..\\x",
		"/proxy/{{x}}", "/proxy/a|b", "/proxy/a\"b", "/proxy/a<b>", "/proxy/a^b", "/proxy/a`b", "/proxy/é", "/proxy/a#b", "/proxy/%zz", "/proxy/%", "/proxy/a?b#c", "/proxy/a?é", "/proxy/a b", "/proxy/a\tb", "/proxy/a\x00b", "proxy/a", "*", "evil.example:443", "//proxy/a",
		"/proxies/../proxy/a", "/proxyx/a", "/Proxy/a",
	} {
		add(raw{name: "the refused target " + path, send: "GET " + path + " HTTP/1.1\r\nHost: h\r\n<K>\r\n"})
	}
	for _, line := range []string{
		"CONNECT /proxy/a HTTP/1.1", "CONNECT evil.example:443 HTTP/1.1", "GET /proxy/a HTTP/1.1 HTTP/1.1", "GET  /proxy/a HTTP/1.1", "GET /proxy/a", "GET /proxy/a HTTP/9.9", "GE(T /proxy/a HTTP/1.1", "GET\t/proxy/a\tHTTP/1.1", " GET /proxy/a HTTP/1.1",
	} {
		add(raw{name: "the line " + line, send: line + "\r\nHost: h\r\n<K>\r\n" + smuggled})
	}
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "BREW", "TRACE", "get"} {
		add(raw{name: "the method " + method, send: method + " /proxy/a HTTP/1.1\r\nHost: h\r\n<K>Content-Length: 0\r\n\r\n", target: "/base/a"})
	}
	return list
}

func TestADestinationReceivesExactlyWhatWasAuthorized(t *testing.T) {
	w := start(t, nil, nil)
	list := corpus()
	if len(list) < 150 {
		t.Errorf("the corpus has %d inputs, want 150", len(list))
	}
	keys := "SVC-API-KEY: " + w.private + "\r\nSVC-PROXY-KEY: " + w.proxy.Key + "\r\n"
	for _, c := range list {
		t.Run(c.name, func(t *testing.T) {
			answer := w.bare(t, strings.ReplaceAll(c.send, "<K>", keys))
			c.check(t, w, w.to.take(), answer)
		})
	}
}

// bare sends bytes, and a last request that ends the connection, and reads to
// the end of what comes back. Whoever closes half a connection is taken for
// gone, so it stays open.
func (w *world) bare(t testing.TB, bytes string) string {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, bytes+"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	answer, _ := io.ReadAll(conn)
	return string(answer)
}

func (c raw) check(t *testing.T, w *world, seen []received, answer string) {
	t.Helper()
	target, optional := strings.CutPrefix(c.target, "?")
	if len(seen) == 0 {
		if c.target != "" && !optional {
			t.Errorf("the destination got nothing, want %s; the answer is %.300q", target, answer)
		}
		return
	}
	if c.target == "" || len(seen) > 1 {
		t.Fatalf("the destination got %d requests, want %q: %q", len(seen), c.target, seen[len(seen)-1].raw)
	}
	r := seen[0]
	if r.target != target || r.body != c.body || !strings.Contains(c.send, r.method+" ") {
		t.Errorf("the destination got %s %q with %q, want %q with %q", r.method, r.target, r.body, target, c.body)
	}
	head, _, _ := strings.Cut(r.raw, "\r\n\r\n")
	names := make(map[string]bool)
	for i, line := range strings.Split(head, "\r\n") {
		if strings.ContainsAny(line, "\r\n\x00") {
			t.Errorf("the destination got the line %q", line)
		}
		if i == 0 {
			if line != r.method+" "+target+" HTTP/1.1" {
				t.Errorf("the destination got the line %q", line)
			}
			continue
		}
		name, _, _ := strings.Cut(line, ":")
		plain := strings.ReplaceAll(strings.ToLower(name), "_", "-")
		if names[plain] {
			t.Errorf("the destination got %s twice", name)
		}
		names[plain] = true
		if strings.Trim(plain, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.HasPrefix(plain, "svc-") && plain != "svc-trace-id" {
			t.Errorf("the destination got the header %q", name)
		}
		for _, dropped := range c.dropped {
			if strings.EqualFold(name, dropped) {
				t.Errorf("the destination got the line %q", line)
			}
		}
	}
	if names["content-length"] && names["transfer-encoding"] {
		t.Error("the destination got a length and an encoding")
	}
	if host := "Host: " + strings.TrimPrefix(w.to.URL, "http://"); !strings.Contains(head, host) {
		t.Errorf("the destination got another host than its own: %q", head)
	}
	if strings.Contains(r.raw, w.private) || strings.Contains(r.raw, w.proxy.Key) || strings.Contains(r.raw, "smuggled") {
		t.Errorf("the destination got what it must not: %q", r.raw)
	}
	for _, line := range c.has {
		if !strings.Contains(head, "\r\n"+line) {
			t.Errorf("the destination did not get %q: %q", line, head)
		}
	}
	// And the caller is told of this one request.
	if !strings.Contains(answer, "\r\nSvc-Proxy-Destination-Status: 200\r\n") {
		t.Errorf("the answer is %.300q", answer)
	}
}

// answers are what a destination must not be able to do to an answer of ours.
func TestAnAnswerOfADestinationStaysInItsPlace(t *testing.T) {
	lines := []string{
		"Connection: X-Local", "X-Local: a", "Keep-Alive: timeout=5", "Transfer-Encoding: chunked", "Trailer: X-Late", "Upgrade: h2c", "Proxy-Authenticate: Basic", "Set-Cookie: a=b", "Set-Cookie2: a=b", "Clear-Site-Data: \"*\"",
		"SVC-API-KEY: x", "SVC-PROXY-DESTINATION-STATUS: 999", "SVC-TRACE-ID: theirs", "Svc_Trace_Id: theirs", "SVC-ANYTHING: x", "Access-Control-Allow-Origin: https://evil.example", "Access-Control-Allow-Credentials: true", "Access-Control-Expose-Headers: x",
		"Strict-Transport-Security: max-age=1", "Content-Security-Policy: default-src *", "X-Content-Type-Options: sniff", "Alt-Svc: h2=\":443\"", "Service-Worker-Allowed: /", "X.Dot: a", "Date: Thu, 01 Jan 1970 00:00:00 GMT",
		"X-Kept: kept", "Location: https://elsewhere.example/", "ETag: \"e\"", "Content-Type: text/html", "Www-Authenticate: Basic realm=x",
	}
	w := start(t, nil, answering("HTTP/1.1 302 Found\r\n"+strings.Join(lines, "\r\n")+"\r\n\r\n5\r\nhello\r\n0\r\nX-Late: x\r\nSVC-LATE: x\r\n\r\n"))
	w.Client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	got := w.send(t, "GET", "/", "", "", "Origin", "https://shop.example")
	if got.Status != 302 || got.Body != "hello" {
		t.Fatalf("the answer is %s", got)
	}
	want := map[string]string{
		"X-Kept": "kept", "Location": "https://elsewhere.example/", "Etag": `"e"`, "Content-Type": "text/html", "Www-Authenticate": "Basic realm=x",
		"Svc-Proxy-Destination-Status": "302", "Access-Control-Allow-Origin": "*", "Content-Security-Policy": "sandbox", "X-Content-Type-Options": "nosniff",
	}
	for name, value := range want {
		if v := got.Header.Values(name); len(v) != 1 || v[0] != value {
			t.Errorf("%s is %q, want %q", name, v, value)
		}
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		if name = http.CanonicalHeaderKey(name); want[name] == "" && fmt.Sprint(got.Header.Values(name)) == "["+value+"]" {
			t.Errorf("%s came through", line)
		}
	}
	if len(got.Header.Values("Svc-Anything")) > 0 || len(got.Header.Values("Svc-Late")) > 0 {
		t.Errorf("the answer has %v", got.Header)
	}
}
