package httpapi_test

import (
	"bufio"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

// listen serves e on a port of its own and returns the address.
func listen(t *testing.T, e *edge, l httpapi.Limits) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := httpapi.NewServer(e.Handler, l)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return listener.Addr().String()
}

// talk sends raw bytes and returns all that comes back until the server
// closes. With half, the client closes its side after sending.
func talk(t *testing.T, addr, request string, half bool) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, request); err != nil && !half {
		t.Logf("write: %v", err) // the server may close while we still send
	}
	if half {
		_ = conn.(*net.TCPConn).CloseWrite()
	}
	answer, _ := io.ReadAll(conn) // what came before a reset
	return string(answer)
}

func TestBadConnectionsEndCleanly(t *testing.T) {
	e := jsonEdge(t, httpapi.Options{MaxBody: 1000})
	addr := listen(t, e, httpapi.Limits{MaxHeaderBytes: 8 << 10})
	// For requests that stop; on a busy machine another one may seem to.
	short := listen(t, e, httpapi.Limits{ReadHeaderTimeout: 2 * time.Second, ReadTimeout: 2 * time.Second, MaxHeaderBytes: 8 << 10})
	const head = "POST /documents HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
	for name, tt := range map[string]struct {
		request string
		half    bool
		want    string // how the answer begins; "" for a closed connection
	}{
		"a body that stops":                {head + "Content-Length: 100\r\n\r\n{\"name\":\"4242424242424242", false, "HTTP/1.1 408 "},
		"a body that never starts":         {head + "Content-Length: 100\r\n\r\n", false, "HTTP/1.1 408 "},
		"a chunked body that stops":        {head + "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":", false, "HTTP/1.1 408 "},
		"a body cut off":                   {head + "Content-Length: 100\r\n\r\n{\"name\":\"4242424242424242", true, "HTTP/1.1 400 "},
		"a chunked body cut off":           {head + "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":", true, "HTTP/1.1 400 "},
		"chunks that are none":             {head + "Transfer-Encoding: chunked\r\n\r\n4242424242424242zz\r\n", false, "HTTP/1.1 400 "},
		"headers that stop":                {"GET /4242424242424242 HTTP/1.1\r\nHost: a\r\n", false, ""},
		"headers cut off":                  {"GET /4242424242424242 HTTP/1.1\r\nHost: a\r\n", true, "HTTP/1.1 400 "},
		"huge headers":                     {"GET /x HTTP/1.1\r\nHost: a\r\nX-A: " + strings.Repeat(planted, 2000) + "\r\n\r\n", false, "HTTP/1.1 431 "},
		"a header without a colon":         {"GET /x HTTP/1.1\r\nHost: a\r\n4242424242424242\r\n\r\n", false, "HTTP/1.1 400 "},
		"a header with a space":            {"GET /x HTTP/1.1\r\nHost: a\r\n4242424242424242 : 1\r\n\r\n", false, "HTTP/1.1 400 "},
		"no host":                          {"GET /4242424242424242 HTTP/1.1\r\n\r\n", false, "HTTP/1.1 400 "},
		"a broken escape in the path":      {"GET /tokens/4242424242424242%zz HTTP/1.1\r\nHost: a\r\n\r\n", false, "HTTP/1.1 400 "},
		"another protocol":                 {"4242424242424242\r\n\r\n", false, "HTTP/1.1 400 "},
		"two lengths":                      {head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", false, "HTTP/1.1 400 "},
		"a length and chunks":              {head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\n{}\r\n0\r\n\r\n", false, "HTTP/1.1 200 "},
		"too large, announced":             {head + "Content-Length: 1000000000\r\n\r\n", false, "HTTP/1.1 413 "},
		"too large, in chunks":             {head + "Transfer-Encoding: chunked\r\n\r\n7d0\r\n" + strings.Repeat(" ", 2000) + "\r\n", false, "HTTP/1.1 413 "},
		"too large, asked for first":       {head + "Expect: 100-continue\r\nContent-Length: 1000000000\r\n\r\n", false, "HTTP/1.1 413 "},
		"options of the whole server":      {"OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false, "HTTP/1.1 404 "},
		"connect":                          {"CONNECT a:443 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false, "HTTP/1.1 404 "},
		"a whole request, then half close": {head + "Connection: close\r\nContent-Length: 2\r\n\r\n{}", true, "HTTP/1.1 200 "},
		"a slash too many":                 {"GET //documents HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false, "HTTP/1.1 404 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := addr
			if strings.HasPrefix(tt.want, "HTTP/1.1 408 ") || tt.want == "" || strings.HasPrefix(name, "too large, in") {
				to = short
			}
			got := talk(t, to, tt.request, tt.half)
			if !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("%.60q = %.200q, want %q", tt.request, got, tt.want)
			}
			if strings.Contains(got, "42424242") {
				t.Errorf("the answer repeats the request: %s", got)
			}
		})
	}
	t.Cleanup(func() { // after all of them
		if strings.Contains(e.log.String(), "42424242") {
			t.Errorf("the log repeats a request: %s", e.log)
		}
	})
}

func TestTheServerSaysInItsOwnWordsWhatWentWrong(t *testing.T) {
	e := newEdge(t, httpapi.Options{})
	var plain logBuffer
	lines := []string{
		"http: TLS handshake error from 203.0.113.9:1: tls: " + planted,
		"http: panic serving 203.0.113.9:1: " + planted,
		"http: Accept error: too many open files; retrying in 5ms",
		"http: invalid header " + planted,
	}
	for _, line := range lines {
		e.ErrorLog().Print(line)
		log.New(&plain, "", 0).Print(line)
	}
	if !strings.Contains(plain.String(), planted) {
		t.Fatal("a plain logger would not have shown the number: the test proves nothing")
	}
	var got []string
	for _, r := range e.records() {
		got = append(got, r["level"].(string)+" "+r["msg"].(string))
	}
	want := "INFO a TLS handshake failed|ERROR+4 a connection ended in a panic|ERROR a connection could not be accepted|INFO a connection failed"
	if strings.Join(got, "|") != want {
		t.Errorf("records %q, want %q", got, want)
	}
	if all := e.log.String() + e.exposition(); strings.Contains(all, planted) || strings.Contains(all, "203.0.113.9") {
		t.Error("what net/http said was passed on")
	}
	if !strings.Contains(e.exposition(), "tokenkeep_http_connection_errors_total 4") {
		t.Error("the errors were not counted")
	}
}

func TestAPanicOverTheWire(t *testing.T) {
	e := newEdge(t, httpapi.Options{},
		httpapi.Route{Pattern: "GET /boom", Auth: httpapi.Anonymous, Handle: func(http.ResponseWriter, *http.Request, access.Caller) error { panic(planted) }},
		httpapi.Route{Pattern: "GET /half", Auth: httpapi.Anonymous, Handle: func(w http.ResponseWriter, _ *http.Request, _ access.Caller) error {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("half"))
			_ = http.NewResponseController(w).Flush()
			return fault.New(fault.Conflict, "late")
		}})
	addr := listen(t, e, httpapi.Limits{})
	whole := talk(t, addr, "GET /boom HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false)
	if !strings.HasPrefix(whole, "HTTP/1.1 500 ") || !strings.Contains(whole, "trace id ") || strings.Contains(whole, planted) {
		t.Errorf("GET /boom = %q, want a problem", whole)
	}
	half := talk(t, addr, "GET /half HTTP/1.1\r\nHost: a\r\n\r\n", false)
	if !strings.HasSuffix(half, "half") || !strings.Contains(half, "Svc-Trace-Id: ") {
		t.Errorf("GET /half = %q, want half an answer and a closed connection", half)
	}
}

func TestAnAnswerStreamsAsItIsFlushed(t *testing.T) {
	read := make(chan struct{})
	e := newEdge(t, httpapi.Options{}, httpapi.Route{Pattern: "GET /events", Auth: httpapi.Anonymous, Handle: func(w http.ResponseWriter, _ *http.Request, _ access.Caller) error {
		c := http.NewResponseController(w)
		if err := c.SetWriteDeadline(time.Time{}); err != nil {
			t.Errorf("the deadline cannot be set: %v", err)
		}
		w.WriteHeader(http.StatusEarlyHints)
		if err := c.Flush(); err != nil {
			t.Errorf("flush before a byte: %v", err)
		}
		w.WriteHeader(http.StatusTeapot) // too late
		_, _ = io.WriteString(w, "one\n")
		if err := c.Flush(); err != nil {
			t.Errorf("flush: %v", err)
		}
		<-read
		_, _ = io.WriteString(w, "two\n")
		return nil
	}})
	response, err := http.Get("http://" + listen(t, e, httpapi.Limits{}) + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewReader(response.Body)
	first, err := lines.ReadString('\n') // arrives while the handler waits
	close(read)
	second, _ := lines.ReadString('\n')
	if first != "one\n" || second != "two\n" || err != nil || response.StatusCode != 200 || response.Header.Get("SVC-TRACE-ID") == "" {
		t.Errorf("read %d %q, %q, %v; want 200, one and two", response.StatusCode, first, second, err)
	}
}
