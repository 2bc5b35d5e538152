package failover_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// clients is how many clients call at once.
const clients = 6

// world is two servers over one database, and clients who call them.
type world struct {
	t               *testing.T
	kek             string
	nodes           []*keeptest.Server
	tenant          string
	private, public string // keys
	http            *http.Client
	clients         []*client
	stop            func()

	mu       sync.Mutex     // guards what follows
	requests []*request     // what was asked for, in the end with success
	good     map[string]int // by client, how many requests
	errors   map[string]int // by what was answered in their stead
	last     time.Time      // when the last of those came
}

// request is something that a client wants once, however often it must ask.
type request struct {
	what    string // method and path
	changes bool
	traces  []string // of each try; the last one succeeded
}

func newWorld(t *testing.T, storeURL string, settings map[string]string) *world {
	t.Helper()
	w := &world{t: t, kek: filepath.Join(t.TempDir(), "kek.json"), good: map[string]int{}, errors: map[string]int{}}
	if _, err := localkms.Generate(w.kek); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		w.nodes = append(w.nodes, w.node(storeURL, settings))
	}
	w.tenant = w.nodes[0].Tenant(t).Tenant.ID
	w.public = w.nodes[0].Application(t, w.tenant, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}}).Key
	w.private = w.nodes[0].Application(t, w.tenant, api.CreateApplication{Type: "private", Permissions: []string{"token:use"}, Rules: []api.Rule{
		{Container: "/", Transform: "reveal", Permissions: []string{"token:create", "token:read", "token:update", "token:delete"}},
	}}).Key
	transport := &http.Transport{MaxIdleConnsPerHost: 4 * clients}
	t.Cleanup(transport.CloseIdleConnections)
	w.http = &http.Client{Transport: transport}
	return w
}

func (w *world) node(storeURL string, settings map[string]string) *keeptest.Server {
	all := map[string]string{"kek.file": w.kek, "log.level": "info"}
	for name, value := range settings {
		all[name] = value
	}
	return keeptest.Start(w.t, keeptest.Options{StoreURL: storeURL, Settings: all})
}

// begin lets clients call until the function that stop holds is called.
func (w *world) begin() {
	var wg sync.WaitGroup
	stopped := make(chan struct{})
	for n := range clients {
		c := &client{world: w, name: fmt.Sprint("client-", n), home: n, values: map[string]*value{}}
		w.clients = append(w.clients, c)
		wg.Go(func() {
			for {
				select {
				case <-stopped:
					return
				default:
					if !c.act() {
						return
					}
				}
			}
		})
	}
	w.stop = sync.OnceFunc(func() { close(stopped); wg.Wait() })
	w.t.Cleanup(w.stop)
}

// wait waits until a condition holds, and returns how long that took.
func (w *world) wait(what string, holds func() bool) time.Duration {
	w.t.Helper()
	start := time.Now()
	waittest.Until(w.t, what, holds)
	return time.Since(start)
}

// served waits until every client has had some of its requests done.
func (w *world) served(what string) time.Duration {
	w.t.Helper()
	w.mu.Lock()
	before := map[string]int{}
	for name, n := range w.good {
		before[name] = n
	}
	w.mu.Unlock()
	return w.wait("clients that are served "+what, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for n := range clients {
			name := fmt.Sprint("client-", n)
			if w.good[name] < before[name]+5 {
				return false
			}
		}
		return true
	})
}

// told returns what clients were told in the stead of success.
func (w *world) told() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := map[string]int{}
	for what, n := range w.errors {
		told[what] = n
	}
	return told
}

// done returns how many requests succeeded.
func (w *world) done() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.requests)
}

func (w *world) failed(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errors[what]++
	w.last = time.Now()
}

// quiet waits until no error comes while every client is served, and returns
// how long after an instant the last one came. When all rounds are run, that must
// be soon, as this machine goes at this moment.
func (w *world) quiet(what string, since time.Time) time.Duration {
	w.t.Helper()
	errors := func() (n int) {
		for _, count := range w.told() {
			n += count
		}
		return n
	}
	var took time.Duration
	for before, quiet := 0, false; !quiet; quiet = errors() == before {
		before = errors()
		took = w.served("without errors after " + what)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.last.Sub(since)
	if limit := soon + slack*took; every() && last > limit {
		w.t.Errorf("%s: an error came %v later, want at most %v, where every client is served in %v", what, last, limit, took)
	}
	return max(last, 0).Round(time.Millisecond)
}

// client works on tokens that no other client changes, one request at a time,
// so that it knows what each of them must be.
type client struct {
	*world
	name     string
	home     int // the server that it asks first
	n        int
	values   map[string]*value // by token
	sessions []string          // keys, of those that were authorized
}

// value is what a token may be: what was last told, and what a request under
// way would make of it. No token is the empty text.
type value struct{ told, wanted string }

// act does one thing. It returns false when nothing more makes sense.
func (c *client) act() bool {
	if c.t.Failed() {
		return false
	}
	c.n++
	id, v := c.some()
	switch {
	case v == nil || c.n%5 == 1:
		return c.create()
	case c.n%40 == 7:
		return c.authorize()
	case c.n%11 == 3:
		_, ok := c.change(http.MethodDelete, id, v, "", "", "", http.StatusNoContent)
		return ok
	case c.n%3 == 0:
		return c.update(id, v)
	case c.n%3 == 1:
		return c.detokenize(id, v)
	default:
		return c.read(id, v)
	}
}

// some returns one of the client's live tokens.
func (c *client) some() (string, *value) {
	for id, v := range c.values {
		if v.told != "" {
			return id, v
		}
	}
	return "", nil
}

func (c *client) create() bool {
	id, text := fmt.Sprintf("%s-token-%d", c.name, c.n), fmt.Sprintf("value %d of %s", c.n, c.name)
	body := fmt.Sprintf(`{"id":%q,"type":"token","data":%q}`, id, text)
	if c.n%2 == 0 {
		text = "4242424242424242"
		body = fmt.Sprintf(`{"id":%q,"type":"card","data":{"number":%q,"cvc":"123"}}`, id, text)
	}
	v := &value{}
	c.values[id] = v
	_, ok := c.change(http.MethodPost, id, v, text, body, c.fresh(), http.StatusCreated)
	return ok
}

func (c *client) update(id string, v *value) bool {
	if v.told == "4242424242424242" {
		return c.read(id, v)
	}
	text := fmt.Sprintf("value %d of %s", c.n, c.name)
	_, ok := c.change(http.MethodPatch, id, v, text, fmt.Sprintf(`{"data":%q}`, text), c.fresh(), http.StatusOK)
	return ok
}

// fresh returns a new idempotency key.
func (c *client) fresh() string { return fmt.Sprint("once-", c.name, "-", c.n) }

// change changes a token, and reads it now and then while it does not know
// whether it has.
func (c *client) change(method, id string, v *value, wanted, body, idempotencyKey string, status int) (keeptest.Answer, bool) {
	path := "/tokens/" + id
	if method == http.MethodPost {
		path = "/tokens"
	}
	v.wanted = wanted
	between := func() bool {
		if method == http.MethodPost || rand.IntN(4) > 0 {
			return true
		}
		return c.look(id, v, c.try(&request{what: "GET /tokens/{id}"}, http.MethodGet, "/tokens/"+id, c.private, "", ""))
	}
	a, ok := c.ask(method, path, c.private, body, idempotencyKey, status, between)
	if ok {
		v.told = wanted
	}
	return a, ok
}

func (c *client) read(id string, v *value) bool {
	a, ok := c.ask(http.MethodGet, "/tokens/"+id, c.private, "", "", http.StatusOK, nil)
	return ok && c.look(id, v, a)
}

// look compares what a token is with what it may be.
func (c *client) look(id string, v *value, a keeptest.Answer) bool {
	var got string
	switch a.Status {
	case http.StatusOK:
		var token struct{ Data any }
		if err := json.Unmarshal([]byte(a.Body), &token); err != nil {
			c.t.Errorf("%s = %s: %v", id, a, err)
			return false
		}
		got, _ = token.Data.(string)
		if card, ok := token.Data.(map[string]any); ok {
			got, _ = card["number"].(string)
			// Its key may be gone with the database that had it.
			if cvc, there := card["cvc"]; there && cvc != "123" {
				c.t.Errorf("%s = %s: the security code is wrong", id, a)
			}
		}
	case http.StatusNotFound:
	default:
		return true // an error, which was judged where it came
	}
	if got != v.told && got != v.wanted {
		c.t.Errorf("%s is %q; %q was told, and %q asked for", id, got, v.told, v.wanted)
		return false
	}
	v.told = got // and never again what was before
	return true
}

func (c *client) detokenize(id string, v *value) bool {
	if v.told == "4242424242424242" {
		return c.read(id, v)
	}
	a, ok := c.ask(http.MethodPost, "/detokenize", c.private, fmt.Sprintf(`{"is":"{{ %s }}"}`, id), "", http.StatusOK, nil)
	if want := fmt.Sprintf(`{"is":%q}`, v.told); ok && strings.TrimSpace(a.Body) != want {
		c.t.Errorf("detokenized %s, want %s", a, want)
		return false
	}
	return ok
}

// authorize makes a session that may read.
func (c *client) authorize() bool {
	a, ok := c.ask(http.MethodPost, "/sessions", c.public, "", c.fresh(), http.StatusCreated, nil)
	if !ok {
		return false
	}
	var made api.CreatedSession
	if err := json.Unmarshal([]byte(a.Body), &made); err != nil {
		c.t.Errorf("a session is %s: %v", a, err)
		return false
	}
	body := fmt.Sprintf(`{"nonce":%q,"permissions":["token:read"],"expires_at":%q}`, made.Nonce, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	if _, ok := c.ask(http.MethodPost, "/sessions/authorize", c.private, body, c.fresh()+"-authorized", http.StatusOK, nil); !ok {
		return false
	}
	c.sessions = append(c.sessions, made.SessionKey)
	return true
}

// ask sends a request until it succeeds. Whatever else may come in between
// must ask to come again; a deletion that was done says so the second time.
func (c *client) ask(method, path, key, body, idempotencyKey string, status int, between func() bool) (keeptest.Answer, bool) {
	r := &request{what: method + " " + path, changes: method != http.MethodGet && path != "/detokenize"}
	var a keeptest.Answer
	succeeded := false
	waittest.Until(c.t, "the success of "+r.what, func() bool {
		a = c.try(r, method, path, key, body, idempotencyKey)
		switch {
		case a.Status == status, method == http.MethodDelete && a.Status == http.StatusNotFound && len(r.traces) > 1:
			c.mu.Lock()
			c.requests = append(c.requests, r)
			c.good[c.name]++
			c.mu.Unlock()
			succeeded = true
			return true
		case a.Status != 0 && a.Status != http.StatusServiceUnavailable && a.Status != http.StatusConflict:
			c.t.Errorf("%s = %s, want %d", r.what, a, status)
			return true
		}
		return between != nil && !between()
	})
	return a, succeeded
}

// try sends a request once. A connection that breaks is status 0.
func (c *client) try(r *request, method, path, key, body, idempotencyKey string) keeptest.Answer {
	trace := fmt.Sprintf("%s-%d-%d-%d", c.name, c.n, len(r.traces), rand.Uint32())
	r.traces = append(r.traces, trace)
	node := c.nodes[(c.home+len(r.traces))%len(c.nodes)] // the next one when it must try again
	out, err := http.NewRequest(method, node.URL+path, strings.NewReader(body))
	if err != nil {
		c.t.Error(err)
		return keeptest.Answer{}
	}
	for name, value := range map[string]string{api.APIKey: key, api.IdempotencyKey: idempotencyKey, api.TraceID: trace} {
		if value != "" {
			out.Header.Set(api.Header(api.DefaultPrefix, name), value)
		}
	}
	out.Header.Set("Content-Type", api.MediaJSON)
	if method == http.MethodPatch {
		out.Header.Set("Content-Type", api.MediaMergePatch)
	}
	response, err := c.http.Do(out)
	if err != nil {
		// The servers are well: none of them hangs up or keeps a client waiting.
		c.t.Errorf("%s %s: %v", method, path, err)
		return keeptest.Answer{}
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Errorf("%s %s: %v", method, path, err)
		return keeptest.Answer{}
	}
	a := keeptest.Answer{Status: response.StatusCode, Header: response.Header, Body: string(text)}
	switch again := a.Header.Get("Retry-After") != ""; {
	case a.Status < 300, a.Status == http.StatusNotFound && (method == http.MethodGet || len(r.traces) > 1):
	case again && (a.Status == http.StatusServiceUnavailable || a.Status == http.StatusConflict && idempotencyKey != ""):
		c.failed(fmt.Sprint(a.Status))
	default:
		c.t.Errorf("%s %s = %s, try %d", method, path, a, len(r.traces))
	}
	return a
}

// verify looks whether all that was told is so, on a server that has seen
// nothing of it, and whether the log tells of all of it.
func (w *world) verify(storeURL string, query func(statement string) string) {
	w.t.Helper()
	w.stop()
	if w.t.Failed() {
		return
	}
	fresh := w.node(storeURL, nil)
	live := 0
	for _, c := range w.clients {
		for id, v := range c.values {
			a := fresh.Call(w.t, http.MethodGet, "/tokens/"+id, w.private, "")
			v.wanted = v.told
			if a.Status != http.StatusOK && a.Status != http.StatusNotFound || !c.look(id, v, a) {
				w.t.Errorf("%s = %s, and %q was told", id, a, v.told)
			}
			if v.told != "" {
				live++
			}
		}
		for _, key := range c.sessions {
			if a := fresh.Call(w.t, http.MethodGet, "/tokens?size=1", key, ""); a.Status != http.StatusOK {
				w.t.Errorf("a session that was authorized = %s", a)
			}
		}
	}
	if got := query("SELECT count(*) FROM tokenkeep.tokens"); got != fmt.Sprint(live) {
		w.t.Errorf("there are %s tokens, and %d were told of", got, live)
	}
	w.verifyLog(query)
	for path, in := range map[string]any{"/store/check": nil, "/tenants/" + w.tenant + "/audit/verify": admin.VerifyLog{}} {
		last, err := fresh.Operator().Follow(w.t.Context(), http.MethodPost, path, in, func(admin.Progress) error { return nil })
		if err != nil || len(last.Found) > 0 || strings.Contains(string(last.Data), `"found":1`) {
			w.t.Errorf("%s = %+v, %v", path, last, err)
		}
	}
}

// verifyLog looks for the entry of every request that succeeded: of the try
// that was answered, or of one before it whose answer got lost. What changes
// something has one entry, however often it was tried; a replay of its answer,
// which is a read, has one of its own.
func (w *world) verifyLog(query func(statement string) string) {
	w.t.Helper()
	entries := map[string]int{}
	for trace := range strings.Lines(query("SELECT trace_id FROM tokenkeep.log WHERE outcome = 'allowed' AND message NOT LIKE '% result replayed'")) {
		entries[strings.TrimSpace(trace)]++
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.requests {
		n := 0
		for _, trace := range r.traces {
			n += entries[trace]
		}
		last := entries[r.traces[len(r.traces)-1]]
		if r.changes && n != 1 || !r.changes && last == 0 {
			w.t.Errorf("%s was answered at try %d, and the log has %d entries of it", r.what, len(r.traces), n)
		}
	}
}
