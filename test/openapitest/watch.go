package openapitest

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
)

// Watch is a transport that checks everything that passes through it.
type Watch struct {
	t    testing.TB
	doc  *Document
	next http.RoundTripper

	mu     sync.Mutex // guards what follows
	seen   map[string][]int
	except string // the pattern of the operation that is not looked at
}

// NewWatch returns a transport in front of next.
func NewWatch(t testing.TB, d *Document, next http.RoundTripper) *Watch {
	return &Watch{t: t, doc: d, next: next, seen: make(map[string][]int)}
}

// RoundTrip sends a request and fails the test when it or its answer is not as
// the document has it. What a proxy forwards streams through unread; the body
// of a request that can be read but once is not looked at.
func (w *Watch) RoundTrip(r *http.Request) (*http.Response, error) {
	sent, known := bodyOf(r)
	resp, err := w.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	pattern := w.doc.Pattern(r)
	w.mu.Lock()
	w.seen[pattern] = append(w.seen[pattern], resp.StatusCode)
	look := w.except == "" || pattern != w.except
	w.mu.Unlock()
	var received []byte
	if pattern != proxied || !isForeign(resp) {
		var broken error
		received, broken = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(received), &failing{broken}))
		look = look && broken == nil // the caller will see that it broke off
	}
	if look {
		w.complain(r, resp, w.doc.CheckAnswer(r, resp, received))
	}
	if look && known && pattern != proxied {
		w.complain(r, resp, w.doc.CheckRequest(r, sent, resp))
	}
	return resp, nil
}

func (w *Watch) complain(r *http.Request, resp *http.Response, err error) {
	if err != nil {
		w.t.Errorf("%s %s → %d is not as api/openapi.yaml has it: %v", r.Method, r.URL.Path, resp.StatusCode, err)
	}
}

// Except leaves an operation alone from now on, where a test does what the
// document has only words for.
func (w *Watch) Except(pattern string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.except = pattern
}

// CloseIdleConnections lets a client that ends close what it kept open.
func (w *Watch) CloseIdleConnections() {
	if c, ok := w.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// bodyOf returns the body of a request and leaves the request as it is.
func bodyOf(r *http.Request) (body []byte, known bool) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, true
	}
	if r.GetBody == nil {
		return nil, false
	}
	again, err := r.GetBody()
	if err != nil {
		return nil, false
	}
	defer func() { _ = again.Close() }()
	body, err = io.ReadAll(again)
	return body, err == nil
}

// failing ends a body as it ended on the wire.
type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

// Seen returns the statuses of the answers to an operation so far.
func (w *Watch) Seen(pattern string) []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen[pattern])
}
