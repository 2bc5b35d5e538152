package proxy_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/proxy"
	"github.com/tokenkeep/tokenkeep/internal/script"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

const card = "4242424242424242"

// scripts runs functions in place of code: the code of a transform is the name
// of one.
type scripts map[string]func(script.Call) (string, error)

func (s scripts) Run(ctx context.Context, p script.Program, c script.Call) (out script.Outcome, err error) {
	if err := ctx.Err(); err != nil {
		return out, err // code does not run for a call that is over
	}
	do, ok := s[p.Sources[c.Entry]]
	if !ok {
		return out, errors.New("no such code")
	}
	text, err := do(c)
	if err != nil {
		return out, err
	}
	out.Value = value(text)
	return out, nil
}

func (s scripts) Check(_ context.Context, f *fault.Fields, _, path, code string, _ int) error {
	if _, ok := s[code]; !ok {
		f.Add(path, "does not parse")
	}
	return nil
}

// value reads JSON that a test wrote.
func value(text string) jsonvalue.Value {
	v, err := jsonvalue.Parse([]byte(text))
	if err != nil {
		panic("the test wrote no JSON: " + text)
	}
	return v
}

// loopback is a way out that leads to the destination of a test.
type loopback struct{ send http.RoundTripper }

func (loopback) Check(raw string) (*url.URL, error) {
	if !strings.HasPrefix(raw, "https://") && !strings.HasPrefix(raw, "http://") {
		return nil, fault.New(fault.Invalid, "the destination is not allowed")
	}
	return url.Parse(raw)
}

func (l loopback) Transport(string, time.Duration) http.RoundTripper { return l.send }

// sent is what a destination got.
type sent struct {
	*http.Request
	body string
}

// world is a service on a store of its own.
type world struct {
	*proxy.Service
	t       testing.TB
	store   store.Store
	ring    *keyring.Ring
	tenant  string
	tokens  *token.Service
	manager access.Caller
	user    access.Caller
	scripts scripts
	got     []sent
	meter   access.Meter // of calls; nil for none
	answer  func(*http.Request) *http.Response
}

func newWorld(t testing.TB, change ...func(*world, *proxy.Options) proxy.Destinations) *world {
	t.Helper()
	dir := t.TempDir()
	kek := filepath.Join(dir, "kek.json")
	if _, err := localkms.Generate(kek); err != nil {
		t.Fatal(err)
	}
	kms, err := localkms.Open(kek)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	ring, err := keyring.Open(t.Context(), kms, s, keyring.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, store: s, ring: ring, tenant: uuid.NewString(), tokens: token.New(s, ring, token.Options{}), scripts: scripts{}}
	sets, err := ring.NewTenant(t.Context(), w.tenant)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Update(t.Context(), w.tenant, func(tx store.Tx) error {
		for _, set := range sets {
			if err := tx.PutKeyset(t.Context(), set); err != nil {
				return err
			}
		}
		return tx.InsertTenant(t.Context(), store.Tenant{ID: w.tenant, Name: "test"})
	})
	if err != nil {
		t.Fatal(err)
	}
	w.manager = accesstest.Caller(t, w.tenant, uuid.NewString(), access.ProxyCreate, access.ProxyRead, access.ProxyUpdate, access.ProxyDelete)
	w.user = accesstest.Caller(t, w.tenant, uuid.NewString(), access.TokenCreate, access.TokenUse)
	o := proxy.Options{HeaderPrefix: "svc", Environment: "test"}
	var out proxy.Destinations = loopback{w}
	for _, f := range change {
		if d := f(w, &o); d != nil {
			out = d
		}
	}
	w.Service = proxy.New(s, ring, w.tokens, w.scripts, out, o)
	return w
}

// RoundTrip keeps a request and answers it.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, errors.New("the request broke off")
		}
	}
	w.got = append(w.got, sent{r, string(body)})
	if w.answer != nil {
		return w.answer(r), nil
	}
	return respond(200, "", "ok"), nil
}

// respond makes the answer of a destination; headers are name, value, …
func respond(status int, contentType, body string, headers ...string) *http.Response {
	w := httptest.NewRecorder()
	if contentType != "" {
		w.Header().Set("Content-Type", contentType)
	}
	for i := 0; i < len(headers); i += 2 {
		w.Header().Add(headers[i], headers[i+1])
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
	return w.Result()
}

func (w *world) define(body string) proxy.Proxy {
	w.t.Helper()
	p, err := w.Create(w.t.Context(), w.manager, value(body))
	if err != nil {
		w.t.Fatalf("Create(%s): %v", body, err)
	}
	return p
}

// transformed defines a proxy with code.
func (w *world) transformed(request, response string) proxy.Proxy {
	body := `{"name":"p","destination_url":"https://psp.example/base","configuration":{"secret":"s3cret"}`
	if request != "" {
		body += `,"request_transform":{"code":"` + request + `"}`
	}
	if response != "" {
		body += `,"response_transform":{"code":"` + response + `"}`
	}
	return w.define(body + "}")
}

func (w *world) token(data string) string {
	w.t.Helper()
	var b jsonvalue.Builder
	b.Add("type", jsonvalue.NewString("token"))
	b.Add("data", jsonvalue.NewString(data))
	r, err := token.ParseRequest(b.Value())
	if err != nil {
		w.t.Fatal(err)
	}
	made, err := w.tokens.Create(w.t.Context(), w.user, r)
	if err != nil {
		w.t.Fatal(err)
	}
	return made.ID
}

// call calls a proxy; headers are name, value, …
func (w *world) call(p proxy.Proxy, method, path, contentType, body string, headers ...string) (*proxy.Answer, string, error) {
	h := http.Header{"Svc-Proxy-Key": {proxy.Key(p).Reveal()}, "Svc-Api-Key": {"k"}}
	if contentType != "" {
		h.Set("Content-Type", contentType)
	}
	for i := 0; i < len(headers); i += 2 {
		h.Add(headers[i], headers[i+1])
	}
	path, query, asked := strings.Cut(path, "?")
	w.got = nil
	origin := access.Origin{TraceID: "trace", Address: "192.0.2.1", Meter: w.meter}
	a, _, err := w.Invoke(w.t.Context(), proxy.Incoming{
		Method: method, Path: path, Query: query, ForceQuery: asked && query == "", Header: h, Body: strings.NewReader(body), Length: int64(len(body)),
		Origin: origin, Authenticate: func() (access.Caller, error) { return w.user.WithOrigin(origin), nil },
	})
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = a.Body.Close() }()
	got, err := io.ReadAll(a.Body)
	return a, string(got), err
}
