package proxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"encoding/pem"

	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// TestDestinationsThatFail: what the destination does is one thing, what the
// caller is told another.
func TestDestinationsThatFail(t *testing.T) {
	w := start(t, nil, nil)
	reset := func(c net.Conn, _ received) bool {
		_ = c.(*net.TCPConn).SetLinger(0)
		return false
	}
	for name, c := range map[string]struct {
		reply  func(net.Conn, received) bool
		status int
	}{
		"it closes":                    {func(net.Conn, received) bool { return false }, 502},
		"it resets":                    {reset, 502},
		"it answers garbage":           {answering("garbage\r\n\r\n"), 502},
		"it answers another protocol":  {answering("SSH-2.0-OpenSSH_9.0\r\n"), 502},
		"it answers half a line":       {answering("HTTP/1.1 20"), 502},
		"it answers half its headers":  {answering("HTTP/1.1 200 OK\r\nX: y\r\n"), 502},
		"it has no status":             {answering("HTTP/1.1 OK\r\n\r\n"), 502},
		"it has two lengths":           {answering("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"), 502},
		"it has endless headers":       {answering("HTTP/1.1 200 OK\r\n" + strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 100) + "\r\n"), 502},
		"it switches protocols":        {answering("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), 502},
		"it says continue and no more": {answering("HTTP/1.1 100 Continue\r\n\r\n"), 502},
	} {
		t.Run(name, func(t *testing.T) {
			w.lead(t, c.reply)
			proxyError(t, w.send(t, "POST", "/", "application/json", "[1]"), c.status, "destination")
			if got := w.to.take(); len(got) != 1 {
				t.Errorf("the destination got %d requests, want 1: a charge is not sent twice", len(got))
			}
		})
	}
	t.Run("it is down", func(t *testing.T) {
		// Its port is taken at another address, so that nobody else gets it.
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		address := strings.Replace(l.Addr().String(), "127.0.0.1", "127.0.0.77", 1)
		w.proxy = w.define(t, `{"name":"down","destination_url":"http://`+address+`"}`)
		proxyError(t, w.send(t, "GET", "/", "", ""), 502, "cannot be reached")
	})
}

// TestDestinationsThatAnswer in every way that HTTP has.
func TestDestinationsThatAnswer(t *testing.T) {
	w := start(t, nil, nil)
	for name, c := range map[string]struct {
		raw    string
		method string
		status int
		body   string
	}{
		"an error":                     {"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops", "GET", 500, "oops"},
		"a refusal":                    {"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", "GET", 401, ""},
		"too slow, by its own account": {"HTTP/1.1 408 Slow\r\nContent-Length: 0\r\n\r\n", "POST", 408, ""},
		"a status of its own":          {"HTTP/1.1 799 Odd\r\nContent-Length: 1\r\n\r\nx", "GET", 799, "x"},
		"nothing":                      {"HTTP/1.1 204 No Content\r\n\r\n", "DELETE", 204, ""},
		"unchanged":                    {"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", "GET", 304, ""},
		"until it closes":              {"HTTP/1.0 200 OK\r\n\r\nuntil the end", "GET", 200, "until the end"},
		"in chunks, with trailers":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n", "GET", 200, "abc"},
		"after a continue":             {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", "POST", 200, "x"},
		"after hints":                  {"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\nx", "POST", 201, "x"},
		"compressed":                   {"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 3\r\n\r\n\x01\x02\x03", "GET", 200, "\x01\x02\x03"},
		"the head alone":               {"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n", "HEAD", 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w.lead(t, answering(c.raw))
			got := w.send(t, c.method, "/", "", "")
			if got.Status != c.status || got.Body != c.body || got.Header.Get("SVC-PROXY-DESTINATION-STATUS") != fmt.Sprint(c.status) {
				t.Errorf("the answer is %s %v", got, got.Header)
			}
			if c.method == "HEAD" && got.Header.Get("Content-Length") != "12345" {
				t.Errorf("the length of the head is %q", got.Header.Get("Content-Length"))
			}
		})
	}
}

// TestAnAnswerThatBreaksOffDoesNotLookWhole: the status had been sent.
func TestAnAnswerThatBreaksOffDoesNotLookWhole(t *testing.T) {
	for name, raw := range map[string]string{
		"a length":  "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
		"in chunks": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, nil, answering(raw))
			r, _ := http.NewRequestWithContext(t.Context(), "GET", w.URL+"/proxy/", nil)
			r.Header.Set("SVC-PROXY-KEY", w.proxy.Key)
			r.Header.Set("SVC-API-KEY", w.private)
			resp, err := w.Client.Do(r)
			if err != nil {
				return // it broke off before anything was seen
			}
			defer func() { _ = resp.Body.Close() }()
			if body, err := io.ReadAll(resp.Body); err == nil {
				t.Errorf("the answer came to an end: %q", body)
			}
		})
	}
}

// TestEventsArriveOneByOne, and the destination learns when nobody listens.
func TestEventsArriveOneByOne(t *testing.T) {
	next, gone := make(chan string), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case event := <-next:
				_, _ = io.WriteString(w, event)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				close(gone)
				return
			}
		}
	}))
	defer s.Close()
	w := start(t, nil, nil)
	w.proxy = w.define(t, `{"name":"events","destination_url":"`+s.URL+`"}`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, "GET", w.URL+"/proxy/", nil)
	r.Header.Set("SVC-PROXY-KEY", w.proxy.Key)
	r.Header.Set("SVC-API-KEY", w.private)
	resp, err := w.Client.Do(r) // returns with the headers, before any event
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(resp.Body)
	for i := range 3 {
		next <- fmt.Sprintf("data: %d\n", i)
		if line, err := lines.ReadString('\n'); line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("event %d came as %q, %v", i, line, err)
		}
	}
	cancel()
	_ = resp.Body.Close()
	waittest.Receive(t, "the destination is told that the caller has gone", gone)
}

func TestADestinationMaySpeakHTTP2(t *testing.T) {
	protocols := make(chan string, 1)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		protocols <- r.Proto
		w.Header().Set("Trailer", "X-Trailer")
		_, _ = w.Write(body)
		w.Header().Set("X-Trailer", "t")
	}))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	s.StartTLS()
	defer s.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	w := start(t, map[string]string{"extra_ca_file": ca}, nil)
	w.proxy = w.define(t, `{"name":"h2","destination_url":"`+s.URL+`"}`)
	id := w.token(t, card)
	got := w.send(t, "POST", "/", "application/json", `["{{`+id+`}}"]`, "SVC-PROXY-CONNECTION", "close", "SVC-PROXY-KEEP-ALIVE", "timeout=5")
	if got.Status != 200 || got.Body != `["`+card+`"]` {
		t.Errorf("the answer is %s", got)
	}
	if p := <-protocols; p != "HTTP/2.0" {
		t.Errorf("the destination spoke %s", p)
	}
}

// TestAPathIsForwardedWithItsQuestionMark, through the whole server.
func TestAPathIsForwardedWithItsQuestionMark(t *testing.T) {
	w := start(t, nil, nil)
	for path, want := range map[string]string{"/q": "/base/q", "/q?": "/base/q?", "/q?a=": "/base/q?a=", "/q?svc-proxy-key=" + w.proxy.Key: "/base/q"} {
		if got := w.send(t, "GET", path, "", ""); got.Status != 200 {
			t.Fatalf("%s: the answer is %s", path, got)
		}
		if r := w.one(t); r.target != want {
			t.Errorf("%s: the destination got %q, want %q", path, r.target, want)
		}
	}
}

// TestADestinationsOwnHeadersForBrowsersAndOursAreReplacedByOurs, also on an
// error and for a caller without an origin.
func TestADestinationsOwnHeadersForBrowsersAndOursAreReplacedByOurs(t *testing.T) {
	theirs := []string{
		"Access-Control-Allow-Origin: https://evil.example", "access-control-allow-credentials: true", "Access-Control-Allow-Headers: x", "Access-Control-Allow-Methods: TRACE",
		"Access-Control-Expose-Headers: x-theirs", "Access-Control-Max-Age: 1", "Access-Control-Allow-Private-Network: true",
		"SVC-TRACE-ID: theirs", "svc-request-id: theirs", "Svc_Trace_Id: theirs", "SVC-PROXY-DESTINATION-STATUS: 999", "SVC-ANYTHING: theirs",
	}
	for _, status := range []string{"200 OK", "500 Oops"} {
		w := start(t, nil, answering("HTTP/1.1 "+status+"\r\n"+strings.Join(theirs, "\r\n")+"\r\nContent-Length: 2\r\n\r\nok"))
		for _, origin := range []string{"", "https://shop.example"} {
			got := w.send(t, "GET", "/", "", "", "Origin", origin)
			if got.Body != "ok" || got.Header.Get("SVC-PROXY-DESTINATION-STATUS") != status[:3] {
				t.Fatalf("the answer is %s", got)
			}
			for _, line := range theirs {
				name, value, _ := strings.Cut(line, ": ")
				if name = http.CanonicalHeaderKey(name); strings.Contains(strings.Join(got.Header[name], ","), value) {
					t.Errorf("%s came through", line)
				}
			}
			if origin != "" && (len(got.Header.Values("Access-Control-Allow-Origin")) != 1 || got.Header.Get("Access-Control-Allow-Origin") != "*" ||
				!strings.Contains(got.Header.Get("Access-Control-Expose-Headers"), "SVC-TRACE-ID")) {
				t.Errorf("the headers for browsers are %v, want ours", got.Header)
			}
		}
	}
}
