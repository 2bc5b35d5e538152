// Package proxy_test calls a whole server through its proxies, in front of a
// destination that keeps every byte it is sent.
package proxy_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

// received is one request as a destination saw it.
type received struct {
	raw    string
	method string
	target string
	proto  string
	header http.Header
	body   string
}

// destination is a server that keeps what it is sent, byte for byte.
type destination struct {
	URL string
	// reply writes the answer to a request; nil is a short 200. It returns
	// whether the connection stays open.
	reply func(c net.Conn, r received) bool

	mu   sync.Mutex // guards seen
	seen []received
}

func newDestination(t testing.TB, reply func(net.Conn, received) bool) *destination {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &destination{URL: "http://" + l.Addr().String(), reply: reply}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go d.serve(c)
		}
	}()
	return d
}

func (d *destination) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	var raw bytes.Buffer
	from := bufio.NewReader(io.TeeReader(c, &raw))
	for {
		r, err := http.ReadRequest(from)
		if err != nil {
			if left := raw.Len(); left > 0 { // bytes that are no request are evidence too
				d.keep(received{raw: raw.String()})
			}
			return
		}
		body, _ := io.ReadAll(r.Body)
		whole := raw.Len() - from.Buffered()
		got := received{raw: string(raw.Next(whole)), method: r.Method, target: r.RequestURI, proto: r.Proto, header: r.Header, body: string(body)}
		d.keep(got)
		if d.reply != nil {
			if !d.reply(c, got) {
				return
			}
			continue
		}
		answer := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
		if r.Method != http.MethodHead {
			answer += "ok"
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

func (d *destination) keep(r received) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen = append(d.seen, r)
}

// take returns what came since the last time.
func (d *destination) take() []received {
	d.mu.Lock()
	defer d.mu.Unlock()
	seen := d.seen
	d.seen = nil
	return seen
}

// answering replies with these bytes and closes the connection.
func answering(raw string) func(net.Conn, received) bool {
	return func(c net.Conn, _ received) bool {
		_, _ = io.WriteString(c, raw)
		return false
	}
}

// world is a server with a tenant, a caller who may use tokens, and a proxy in
// front of a destination.
type world struct {
	*keeptest.Server
	t          testing.TB
	prefix     string // of headers; "" is the usual one
	tenant     string
	management string
	private    string
	to         *destination
	proxy      api.Proxy
}

func start(t testing.TB, settings map[string]string, reply func(net.Conn, received) bool) *world {
	t.Helper()
	k := keeptest.Start(t, keeptest.Options{Settings: settings})
	made := k.Tenant(t)
	w := &world{Server: k, t: t, prefix: strings.ToUpper(settings["header_prefix"]), tenant: made.Tenant.ID, management: made.Application.Key, to: newDestination(t, reply)}
	w.private = k.Application(t, w.tenant, api.CreateApplication{
		Type: "private", Permissions: []string{"token:create", "token:use", "token:delete"},
	}).Key
	w.proxy = w.define(t, `{"name":"p","destination_url":"`+w.to.URL+`/base"}`)
	return w
}

func (w *world) define(t testing.TB, body string) (p api.Proxy) {
	t.Helper()
	var key []string
	if w.prefix != "" {
		key = []string{w.prefix + "-API-KEY", w.management}
	}
	w.Call(t, "POST", "/proxies", w.management, body, key...).Into(t, 201, &p)
	return p
}

// lead puts another destination behind the proxy.
func (w *world) lead(t testing.TB, reply func(net.Conn, received) bool) {
	t.Helper()
	w.to = newDestination(t, reply)
	w.proxy = w.define(t, `{"name":"p","destination_url":"`+w.to.URL+`/base"}`)
}

// token keeps a value and returns the id of its token.
func (w *world) token(t testing.TB, data any) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"type": "token", "data": data})
	if err != nil {
		t.Fatal(err)
	}
	var made struct{ ID string }
	w.Call(t, "POST", "/tokens", w.private, string(text)).Into(t, 201, &made)
	return made.ID
}

// send calls the proxy with a body of a type.
func (w *world) send(t testing.TB, method, path, contentType, body string, headers ...string) keeptest.Answer {
	t.Helper()
	all := append([]string{"SVC-PROXY-KEY", w.proxy.Key}, headers...)
	if contentType != "" {
		all = append(all, "Content-Type", contentType)
	}
	return w.Call(t, method, "/proxy"+path, w.private, body, all...)
}

// one returns the one request that the destination got.
func (w *world) one(t testing.TB) received {
	t.Helper()
	seen := w.to.take()
	if len(seen) != 1 {
		t.Fatalf("the destination got %d requests, want 1", len(seen))
	}
	return seen[0]
}

// proxyError checks that an answer is an error of the proxy's own.
func proxyError(t testing.TB, a keeptest.Answer, status int, detail string) {
	t.Helper()
	var e map[string]api.ProxyProblem
	if err := json.Unmarshal([]byte(a.Body), &e); err != nil || len(e) != 1 {
		t.Errorf("the answer is %s, want a proxy_error", a)
		return
	}
	p := e["proxy_error"]
	titles := map[int]string{400: "Invalid proxy request", 401: "Unauthorized proxy request", 403: "Forbidden proxy request"}
	title := titles[status]
	if title == "" {
		title = http.StatusText(status)
	}
	if a.Status != status || p.Status != status || p.Title != title || p.Errors == nil || !strings.Contains(p.Detail, detail) || p.Detail == "" {
		t.Errorf("the answer is %s, want %d %s, errors, and a detail with %q", a, status, title, detail)
	}
	if got := a.Header.Get("SVC-PROXY-DESTINATION-STATUS"); got != "" {
		t.Errorf("an error of the proxy says that the destination answered %s", got)
	}
}

func apiPrivate() api.CreateApplication {
	return api.CreateApplication{Type: "private", Permissions: []string{"token:create", "token:use"}}
}
