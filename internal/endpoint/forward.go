package endpoint

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/proxy"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/script"
)

var errRawPath = fault.New(fault.Invalid, "the path holds something that must be percent-encoded")

// How long a body may take: bodies of any length pass, so what counts is that
// they keep coming.
const (
	// patience is how long a caller may take to begin, or to take a piece of
	// an answer.
	patience = time.Minute
	// pace is what a request's body must keep up with, in bytes a second.
	pace = 1 << 10
)

// proxyTitles are the titles that clients of proxies know.
var proxyTitles = map[int]string{
	http.StatusBadRequest: "Invalid proxy request", http.StatusUnauthorized: "Unauthorized proxy request", http.StatusForbidden: "Forbidden proxy request",
}

// proxyProblem is the shape of the errors that a proxy makes itself.
func (s Services) proxyProblem(p api.Problem) any {
	out := api.ProxyProblem{Errors: p.Errors, Title: p.Title, Status: p.Status, Detail: p.Detail}
	if out.Errors == nil {
		out.Errors = map[string][]string{}
	}
	if title, ok := proxyTitles[p.Status]; ok {
		out.Title = title
	}
	if p.Detail == proxy.ErrNoAPIKey.Detail() {
		out.Detail = "The " + api.Header(s.Proxies.HeaderPrefix(), api.APIKey) + " header is required"
	}
	return api.ProxyError{ProxyError: out}
}

// forward invokes a proxy. Bodies of any length pass in both directions, so it
// has the connection to itself.
func (s Services) forward(r *http.Request, _ access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	return &response.Response{Stream: func(w http.ResponseWriter) error { return s.pass(w, r) }}, nil
}

func (s Services) pass(w http.ResponseWriter, r *http.Request) error {
	// Where these differ the path would be written in another way than it came.
	if r.URL.RawPath != "" && r.URL.RawPath != r.URL.EscapedPath() {
		return errRawPath
	}
	control := http.NewResponseController(w)
	body := &unhurried{body: r.Body, control: control, since: time.Now()}
	defer body.stop()
	if r.ContentLength == 0 {
		_ = control.SetReadDeadline(time.Time{})
	}
	answer, caller, err := s.Proxies.Invoke(r.Context(), proxy.Incoming{
		Method: r.Method, Path: r.PathValue("rest"), Query: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery, Header: r.Header, Body: body, Length: r.ContentLength,
		Origin:       httpapi.OriginOf(r.Context()),
		Authenticate: func() (access.Caller, error) { return httpapi.Authenticate(r) },
	})
	_ = control.SetWriteDeadline(time.Now().Add(patience)) // however long the request took
	if body.midway() {
		// What is left of the body must never be taken for a request.
		httpapi.Close(r)
	}
	var custom *script.Custom
	if errors.As(err, &custom) {
		return httpapi.Write(w, customResponse(custom))
	}
	if err != nil {
		// The row does not know its caller, so the entry is made here.
		s.Audit.Refused(r.Context(), caller, err, audit.Attempt{})
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if body.midway() {
		// The destination answers before it has read everything: both go on.
		_ = control.EnableFullDuplex() // HTTP/2 always does
	}
	return pour(w, r, control, answer)
}

// pour writes an answer as it comes.
func pour(w http.ResponseWriter, r *http.Request, control *http.ResponseController, a *proxy.Answer) error {
	status := httpapi.HeaderName(r.Context(), api.ProxyDestinationStatus)
	prefix := strings.TrimSuffix(status, "-"+api.ProxyDestinationStatus)
	h := w.Header()
	for name, values := range a.Header {
		if httpapi.IsForeign(prefix, name) {
			h[name] = values
		}
	}
	httpapi.GuardForeign(h)
	h.Set("Referrer-Policy", "no-referrer") // the address may hold the proxy's key
	h.Set(status, strconv.Itoa(a.Status))
	bodiless := r.Method == http.MethodHead || a.Status == http.StatusNoContent || a.Status == http.StatusNotModified
	if a.Length >= 0 && a.Status != http.StatusNoContent && (a.Length > 0 || !bodiless) {
		h.Set("Content-Length", strconv.FormatInt(a.Length, 10))
	}
	if _, typed := h["Content-Type"]; !typed {
		h["Content-Type"] = nil // nobody guesses
	}
	w.WriteHeader(a.Status)
	live := a.Length < 0 && !bodiless
	if live {
		_ = control.Flush() // whoever waits for events sees that it is connected
	}
	buffer := make([]byte, 32<<10)
	for {
		n, err := a.Body.Read(buffer)
		if n > 0 {
			_ = control.SetWriteDeadline(time.Now().Add(patience))
			if _, err := w.Write(buffer[:n]); err != nil {
				return nil //nolint:nilerr // the caller has gone
			}
			if live {
				_ = control.Flush()
			}
		}
		if errors.Is(err, io.EOF) {
			_ = control.SetWriteDeadline(time.Now().Add(patience))
			return nil
		}
		if err != nil {
			return err // half an answer must not look like a whole one
		}
	}
}

// unhurried is a request body that may come for as long as it keeps coming.
type unhurried struct {
	body    io.Reader
	control *http.ResponseController
	since   time.Time

	mu      sync.Mutex // guards all below
	read    int64
	begun   bool
	over    bool
	stopped bool // the connection belongs to the next request
}

func (u *unhurried) Read(p []byte) (int, error) {
	u.note(0, nil)
	n, err := u.body.Read(p)
	u.note(n, err)
	return n, err
}

func (u *unhurried) note(n int, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.begun = true
	u.read += int64(n)
	u.over = u.over || errors.Is(err, io.EOF)
	deadline := u.since.Add(patience + time.Duration(u.read/pace)*time.Second)
	if u.over {
		deadline = time.Time{} // from here on the server only listens for the caller going away
	}
	if !u.stopped {
		_ = u.control.SetReadDeadline(deadline) // not every connection has one
	}
}

// midway reports whether a part of the body was read, and not all of it.
func (u *unhurried) midway() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.begun && !u.over
}

func (u *unhurried) stop() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stopped = true
}
