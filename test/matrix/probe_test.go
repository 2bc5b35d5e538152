package matrix_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// tenantOfEverything has one of everything, and its callers hold all that
// there is to hold.
type tenantOfEverything struct {
	id                        string
	public, private, managing string            // keys
	names                     map[string]string // of what it has, by what it is
	address                   string            // where its proxy leads
}

// everything makes a tenant. Its own idempotency key has been used.
func everything(t *testing.T, k *keeptest.Server, destination string) *tenantOfEverything {
	t.Helper()
	made := k.Tenant(t)
	e := &tenantOfEverything{id: made.Tenant.ID, names: map[string]string{"tenant": made.Tenant.ID}, address: destination}
	holder := func(kind access.ApplicationType) api.Application {
		var all []string
		for _, p := range kind.Permissions() {
			all = append(all, p.String())
		}
		return k.Application(t, e.id, api.CreateApplication{Type: string(kind), Permissions: all})
	}
	private := holder(access.Private)
	e.public, e.private, e.managing = holder(access.Public).Key, private.Key, holder(access.Management).Key
	e.names["application"], e.names["key"] = private.ID, private.Keys[0].ID

	used := access.NewID()
	e.names["idempotency key"] = used
	var token api.Token
	k.Call(t, "POST", "/tokens", e.private, `{"type":"token","data":"theirs alone","metadata":{"of":"theirs alone"}}`,
		api.Header(api.DefaultPrefix, api.IdempotencyKey), used).Into(t, 201, &token)
	e.names["token"] = token.ID
	var card api.Token
	k.Call(t, "POST", "/tokens", e.private, `{"type":"card","data":{"number":"4242424242424242","expiration_month":12,"expiration_year":2099}}`).Into(t, 201, &card)
	e.names["card"], e.names["fingerprint"] = card.ID, card.Fingerprint

	var page struct {
		Pagination struct {
			Next string `json:"next"`
		} `json:"pagination"`
	}
	k.Call(t, "GET", "/v2/tokens?size=1", e.private, "").Into(t, 200, &page)
	e.names["cursor"] = page.Pagination.Next

	var session api.CreatedSession
	k.Call(t, "POST", "/sessions", e.public, "").Into(t, 201, &session)
	e.names["nonce"] = session.Nonce
	var sessions api.List[api.Session]
	k.Call(t, "GET", "/sessions", e.managing, "").Into(t, 200, &sessions)
	e.names["session"] = sessions.Data[0].ID

	var reactor api.Reactor
	k.Call(t, "POST", "/reactors", e.managing, `{"name":"theirs alone","code":"1","configuration":{}}`).Into(t, 201, &reactor)
	e.names["reactor"] = reactor.ID
	var run api.AsyncReactor
	k.Call(t, "POST", "/reactors/"+reactor.ID+"/react-async", e.private, `{}`).Into(t, 202, &run)
	e.names["request"] = run.AsyncReactorRequestID

	var proxy api.Proxy
	k.Call(t, "POST", "/proxies", e.managing, `{"name":"theirs alone","destination_url":"`+destination+`"}`).Into(t, 201, &proxy)
	e.names["proxy"], e.names["proxy key"] = proxy.ID, proxy.Key

	var logs api.List[struct {
		ID string `json:"id"`
	}]
	k.Call(t, "GET", "/logs", e.managing, "").Into(t, 200, &logs)
	e.names["log entry"] = ""
	for _, entry := range logs.Data {
		if access.FitForID(entry.ID) { // an id with a card number in it is not named
			e.names["log entry"] = entry.ID
		}
	}
	for what, name := range e.names {
		if name == "" {
			t.Fatalf("the tenant has no %s", what)
		}
	}
	return e
}

// twin is a name of the same form that names nothing.
func twin(t *testing.T, what, name string) string {
	t.Helper()
	switch what {
	case "nonce", "proxy key":
		// Another ending is another secret of the same tenant.
		last := byte('1')
		if strings.HasSuffix(name, "1") {
			last = '2'
		}
		return name[:len(name)-1] + string(last)
	case "cursor":
		return "B" + name[1:]
	case "fingerprint":
		return strings.Repeat("1", len(name))
	}
	return access.NewID() // which never looks like a card number, and is named
}

// probe is a place where a name can be put, as <x>.
type probe struct {
	method, path, body string
	headers            []string
}

// probes are all places of the API: what stands in paths and bodies by the
// table of rows, and beside them queries, headers and expressions.
func probes(k *keeptest.Server, e *tenantOfEverything) (list []probe) {
	fill := strings.NewReplacer("{id}", "<x>", "<id>", "<x>", "{key_id}", "<x>", "{request_id}", "<x>", "{rest...}", "<x>", "{n}", "1")
	for _, route := range k.Routes() {
		method, path, _ := strings.Cut(route.Pattern, " ")
		row, known := table[route.Pattern]
		// The head of the log moves between any two calls.
		moves := route.Pattern == "GET /logs/integrity" || route.Pattern == "POST /logs/verify"
		if !known || moves || route.Pattern == "DELETE /tenants/self" {
			continue
		}
		body := row.body
		if p := (probe{method, fill.Replace(path + row.query), fill.Replace(body), nil}); strings.Contains(p.path+p.body, "<x>") {
			list = append(list, p)
		}
		if strings.Contains(path, "{id}") && (strings.Contains(path, "{key_id}") || strings.Contains(path, "{request_id}")) {
			// One's own, with another's below it.
			mine := e.names["application"]
			if strings.Contains(path, "/reactors") {
				mine = e.names["reactor"]
			}
			list = append(list, probe{method, fill.Replace(strings.Replace(path, "{id}", mine, 1)), body, nil})
		}
		if method == http.MethodGet {
			queries := []string{"id", "start", "application_id", "fingerprint", "container", "metadata.of", "page", "name"}
			if strings.HasPrefix(path, "/logs") {
				queries = []string{"entity_id"} // without a filter it shows the calls before it, which differ
			}
			if route.Pattern == "GET /v2/logs/stream" { // which would go on until its client leaves
				queries = []string{"follow=false&entity_id"}
			}
			for _, query := range queries {
				list = append(list, probe{method, strings.ReplaceAll(path, "{id}", nothing) + "?" + query + "=<x>", "", nil})
			}
		}
		if method != http.MethodGet {
			list = append(list, probe{method, strings.NewReplacer("{id}", nothing, "{key_id}", nothing, "{request_id}", nothing, "{n}", "1").Replace(path + row.query),
				strings.ReplaceAll(body, "<id>", nothing), []string{api.Header(api.DefaultPrefix, api.IdempotencyKey), "<x>"}})
		}
	}
	own := e.names["reactor"]
	return append(list,
		probe{"POST", "/tokens", `{"type":"token","data":"{{ <x> }} and some words"}`, nil},
		probe{"POST", "/tokens", `{"type":"token","data":1,"containers":["/<x>/"]}`, nil},
		probe{"POST", "/tokenize", `["{{ <x> }}","<x>"]`, nil},
		probe{"POST", "/detokenize", `{"a":"{{ <x> | json: '$.number' }}","b":["before {{ <x> }} behind"]}`, nil},
		probe{"POST", "/tokens/search", `{"query":"fingerprint:<x>"}`, nil},
		probe{"POST", "/tokens/search", `{"query":"metadata.of:<x>"}`, nil},
		probe{"POST", "/v2/tokens/search", `{"query":"type:card","start":"<x>"}`, nil},
		probe{"POST", "/reactors", `{"name":"x","code":"1","configuration":{},"application":{"id":"<x>"}}`, nil},
		probe{"POST", "/proxies", `{"name":"x","destination_url":"https://psp.example.com","application":{"id":"<x>"}}`, nil},
		probe{"POST", "/reactors", `{"name":"x","code":"1","configuration":{},"application_id":"<x>"}`, nil},
		probe{"POST", "/proxies", `{"name":"x","destination_url":"https://psp.example.com","application_id":"<x>"}`, nil},
		probe{"POST", "/reactors/" + own + "/react", `{"args":{"a":"{{ <x> }}"}}`, nil},
		probe{"POST", "/reactors/" + own + "/react-async", `{"args":{"a":"{{ <x> }}"}}`, nil},
		probe{"POST", "/proxies/" + e.names["proxy"] + "/preview", `{"body":{"a":"{{ <x> }}"}}`, nil},
		probe{"POST", "/proxy/a", `{"a":"{{ <x> }}"}`, []string{api.Header(api.DefaultPrefix, api.ProxyKey), e.names["proxy key"]}},
		probe{"POST", "/proxy/a", `{}`, []string{api.Header(api.DefaultPrefix, api.ProxyKey), "<x>"}},
		probe{"GET", "/proxy/a?" + strings.ToLower(strings.ReplaceAll(api.Header(api.DefaultPrefix, api.ProxyKey), "-", "_")) + "=<x>", "", nil},
		probe{"GET", "/proxy/<x>", "", []string{api.Header(api.DefaultPrefix, api.ProxyKey), e.names["proxy key"], "X-Value", "{{ <x> }}"}},
		// From here on the names name something of its own.
		probe{"POST", "/tokens", `{"id":"<x>","type":"token","data":1}`, nil},
	)
}

// madeFresh is what differs between two things that were made alike.
var madeFresh = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[0-9:.]+(Z|\+00:00)|"(key|fingerprint|previous_secret|nonce|session_key|prefix|next|value|secret)":"[^"]*"|"total_(items|pages)":\d+`)

// put calls a place with a name, and returns what came back without what
// differs between any two answers.
func (p probe) put(t *testing.T, k *keeptest.Server, key, name string) string {
	t.Helper()
	quoted, _ := json.Marshal(name)
	body := strings.ReplaceAll(p.body, "<x>", strings.Trim(string(quoted), `"`))
	var headers []string
	for _, h := range p.headers {
		headers = append(headers, strings.ReplaceAll(h, "<x>", name))
	}
	if p.method == http.MethodPatch {
		headers = append(headers, "Content-Type", api.MediaMergePatch)
	}
	got := k.Call(t, p.method, strings.ReplaceAll(p.path, "<x>", name), key, body, headers...)
	h := got.Header.Clone()
	for _, different := range []string{"Date", "Content-Length", api.Header(api.DefaultPrefix, api.TraceID), "Location"} {
		h.Del(different)
	}
	all := fmt.Sprint(got.Status, " ", got.Body, " ", h)
	all = strings.NewReplacer(name, "<x>", strings.ToLower(name), "<x>").Replace(all) // containers are in lower case
	return madeFresh.ReplaceAllString(all, "<fresh>")
}

// TestNoNameOfOneTenantIsWorthAnythingToAnother puts every id, key, nonce and
// cursor of one tenant into every place of the API, as another: what comes back
// is what comes back for a name of nothing.
func TestNoNameOfOneTenantIsWorthAnythingToAnother(t *testing.T) {
	storetest.Long(t)
	reached := 0
	destination := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached++
		_, _ = fmt.Fprint(w, "reached")
	}))
	defer destination.Close()
	k := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"allow_http": "true", "allow_networks": "127.0.0.0/8,::1/128"}})
	first, second := everything(t, k, destination.URL+"/first"), everything(t, k, destination.URL+"/second")
	witness := func() (all string) {
		for _, path := range []string{"/applications", "/sessions", "/reactors", "/proxies", "/tenants/self"} {
			all += k.Call(t, "GET", path+"?size=100", first.managing, "").Body
		}
		return all + k.Call(t, "GET", "/tokens?size=100", first.private, "").Body
	}
	before := witness()
	calls, differ := 0, 0
	for _, p := range probes(k, second) {
		for what, name := range first.names {
			nothingLikeIt := twin(t, what, name)
			keys := []string{second.managing, second.private, second.public}
			if !storetest.All() || os.Getenv("KEEPTEST_STORE") != "" { // in turn
				keys = keys[calls%3 : calls%3+1]
			}
			for _, key := range keys {
				theirs, absent := p.put(t, k, key, name), p.put(t, k, key, nothingLikeIt)
				calls++
				if theirs != absent {
					t.Errorf("%s %s with the %s of another tenant:\n%s, and with one of nothing:\n%s", p.method, p.path, what, theirs, absent)
				}
			}
		}
	}
	if after := witness(); after != before {
		t.Errorf("the first tenant is not what it was:\n%s\nwas\n%s", after, before)
	}
	// What the probes can see, they see for whom the names belong to.
	for _, p := range probes(k, first) {
		if p.method != http.MethodGet && !strings.Contains(p.path, "detokenize") && !strings.Contains(p.path, "search") {
			continue
		}
		for what, name := range first.names {
			for _, key := range []string{first.managing, first.private} {
				if p.put(t, k, key, name) != p.put(t, k, key, twin(t, what, name)) {
					differ++
				}
			}
		}
	}
	if differ < 20 {
		t.Errorf("its own names made a difference in %d places, want at least 20: the probes see nothing", differ)
	}
	t.Logf("%d pairs of calls; its own names made a difference in %d; the destination was reached %d times", calls, differ, reached)
}
