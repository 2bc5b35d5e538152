package crash_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

// What the token that all actors use holds.
const card = "4242424242424242"

// world is a farm with one tenant, a token, a reactor and a proxy that stay as
// they are, and actors with what they change.
type world struct {
	t      *testing.T
	farm   *keeptest.Farm
	client *http.Client

	tenant                      string
	management, private, public string // keys
	token, reactor              string // ids
	proxy                       api.Proxy

	since   time.Time   // when the last round began
	killing atomic.Bool // a request may stay without an answer
	stop    atomic.Bool // whoever has an answer asks nothing more
	shared  bool        // the store is a database, which outlives its servers
	actors  []*actor

	mu      sync.Mutex      // guards arrived
	arrived map[string]bool // trace ids of what came to the destination of the proxy
}

func newWorld(t *testing.T, servers int, storeURL string, code bool) *world {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	w := &world{t: t, client: &http.Client{Transport: transport}, shared: storeURL != "", arrived: make(map[string]bool)}
	destination := httptest.NewServer(http.HandlerFunc(w.receive))
	t.Cleanup(destination.Close)
	settings := map[string]string{"sandbox.level": "off"}
	if code {
		settings = map[string]string{"sandbox.level": "reduced", "sandbox.runtime": runtimetest.Find(t).Folder, "sandbox.blank": "1"}
	}
	w.farm = keeptest.NewFarm(t, servers, storeURL, settings)
	var made api.CreatedTenant
	w.operator(http.MethodPost, "/tenants", api.CreateTenant{Name: "Tenant"}, &made)
	w.tenant, w.management = made.Tenant.ID, made.Application.Key
	var private, public api.Application
	w.operator(http.MethodPost, "/tenants/"+w.tenant+"/applications", api.CreateApplication{
		Name: "server", Type: "private", Permissions: []string{"token:create", "token:update", "token:delete", "token:use"},
		Rules: []api.Rule{{Container: "/", Transform: "reveal", Permissions: []string{"token:read", "token:search"}}},
	}, &private)
	w.operator(http.MethodPost, "/tenants/"+w.tenant+"/applications", api.CreateApplication{
		Name: "browser", Type: "public", Permissions: []string{"token:create"},
	}, &public)
	w.private, w.public = private.Key, public.Key

	setUp := &actor{w: w, name: "set-up"}
	w.token = setUp.must("POST", "/tokens", w.private, `{"type":"token","data":"`+card+`"}`, 201).member("id")
	if code {
		w.reactor = setUp.must("POST", "/reactors", w.management,
			`{"name":"fixed","configuration":{},"code":"module.exports = async (req) => ({ raw: req.args })"}`, 201).member("id")
	}
	e := setUp.must("POST", "/proxies", w.management, `{"name":"fixed","destination_url":"`+destination.URL+`"}`, 201)
	if err := json.Unmarshal([]byte(e.answer), &w.proxy); err != nil {
		t.Fatal(err)
	}
	for _, role := range roles {
		if code || !role.code {
			w.actors = append(w.actors, &actor{w: w, name: role.name, act: role.act, random: storetest.Randomly(t), runs: make(map[string]string)})
		}
	}
	return w
}

// receive is the destination of the proxy: it sends back what it got.
func (w *world) receive(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.arrived[r.Header.Get(api.Header(api.DefaultPrefix, api.TraceID))] = true
	w.mu.Unlock()
	_, _ = io.Copy(out, r.Body)
}

func (w *world) operator(method, path string, in, out any) {
	w.t.Helper()
	if err := w.farm.Operator().Call(w.t.Context(), method, path, in, out); err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
}

// verifyLog fails when the log is not what was sealed.
func (w *world) verifyLog() {
	w.t.Helper()
	last, err := w.farm.Operator().Follow(w.t.Context(), http.MethodPost, "/tenants/"+w.tenant+"/audit/verify", admin.VerifyLog{}, func(admin.Progress) error { return nil })
	if err != nil {
		w.t.Fatalf("verify the log: %v", err)
	}
	var found audit.Verification
	if err := json.Unmarshal(last.Data, &found); err != nil || found.Found != 0 {
		w.t.Errorf("the log does not verify: %v %+v", err, found.Findings)
	}
}

// checkStore fails when the store is not whole.
func (w *world) checkStore() {
	w.t.Helper()
	last, err := w.farm.Operator().Follow(w.t.Context(), http.MethodPost, "/store/check", nil, func(admin.Progress) error { return nil })
	if err != nil || len(last.Found) > 0 {
		w.t.Errorf("check the store: %v, %v", err, last.Found)
	}
}

// agree checks what is there against the log. A database may still commit what
// a server that is dead had asked it for: then both are looked at until it has.
func (w *world) agree(log map[string][]api.LogEntry, check func(map[string][]api.LogEntry) error) {
	w.t.Helper()
	err := check(log)
	switch {
	case err != nil && w.shared:
		waittest.Succeeds(w.t, "what agrees with the log", func() error { return check(w.log(w.since)) })
	case err != nil:
		w.t.Error(err)
	}
}

// log returns the entries since an instant, by trace id.
func (w *world) log(since time.Time) map[string][]api.LogEntry {
	w.t.Helper()
	entries := make(map[string][]api.LogEntry)
	reader := &actor{w: w, name: fmt.Sprint("log-", since.UnixNano())}
	for _, of := range []string{"", "&entity_type=log"} { // a list leaves out reads of the log unless it is about them
		for page, last := 1, false; !last; page++ {
			var list api.List[api.LogEntry]
			e := reader.must("GET", fmt.Sprintf("/logs?size=100&page=%d&start_date=%s%s", page, since.UTC().Format("2006-01-02T15:04:05.000000Z"), of), w.management, "", 200)
			if err := json.Unmarshal([]byte(e.answer), &list); err != nil {
				w.t.Fatal(err)
			}
			for _, entry := range list.Data {
				entries[entry.TraceID] = append(entries[entry.TraceID], entry)
			}
			last = len(list.Data) < 100
		}
	}
	return entries
}
