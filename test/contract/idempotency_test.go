package contract_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

const (
	keyHeader    = "SVC-IDEMPOTENCY-KEY"
	replayHeader = "SVC-IDEMPOTENT-REPLAYED"
)

// keyed calls with an idempotency key and wants a status, and either an answer
// of its own or a kept one.
func (w *walk) keyed(idem, key, call, body string, status int, replayed bool) keeptest.Answer {
	w.t.Helper()
	method, path, _ := strings.Cut(w.fill(call), " ")
	got := w.server.Call(w.t, method, path, w.names[key], w.fill(body), keyHeader, idem)
	if is := got.Header.Get(replayHeader) == "true"; got.Status != status || is != replayed {
		w.t.Errorf("%s as %s under the key %q = %s, replayed %t, want %d, %t", call, key, idem, got, is, status, replayed)
	}
	return got
}

// changes is how many changes the log has.
func (w *walk) changes() (n int) {
	w.t.Helper()
	var log api.List[api.LogEntry]
	w.server.Call(w.t, "GET", "/logs?size=100", w.names["manager_key"], "").Into(w.t, 200, &log)
	if log.Pagination.TotalItems > 100 {
		w.t.Fatal("the log has more than a page: the count is of nothing")
	}
	for _, e := range log.Data {
		if e.Operation != "read" && e.Outcome == "allowed" {
			n++
		}
	}
	return n
}

// needsCode is a row that has no success where no code runs; TestReact sends it again.
const needsCode = "POST /reactors/{id}/react"

// idempotent has a call for every other row that takes an idempotency key; a row
// that is not here fails the test.
var idempotent = map[string]struct {
	key    string // and "twin of " it is another application's
	call   string
	body   string
	status int
	again  int // the status of the same call without a key, after that
}{
	"PUT /tenants/self":                  {"manager_key", "PUT /tenants/self", `{"name":"n"}`, 200, 200},
	"POST /tenants/self/callback-secret": {"manager_key", "POST /tenants/self/callback-secret", "", 200, 200},
	"POST /applications":                 {"manager_key", "POST /applications", `{"name":"n","type":"private","permissions":["token:use"]}`, 201, 201},
	"PUT /applications/{id}":             {"manager_key", "PUT /applications/{filler}", `{"name":"n","permissions":["token:use"]}`, 200, 200},
	"POST /applications/{id}/regenerate": {"manager_key", "POST /applications/{filler}/regenerate", "", 200, 200},
	"POST /applications/{id}/keys":       {"manager_key", "POST /applications/{bare}/keys", "", 201, 201},
	"POST /sessions":                     {"web_key", "POST /sessions", "", 201, 201},
	"POST /sessions/authorize":           {"server_key", "POST /sessions/authorize", `{"nonce":"{s_nonce}","permissions":["token:create"]}`, 200, 409},
	"POST /tokenize":                     {"server_key", "POST /tokenize", `["a",{"type":"token","data":{"<&>":1.50}}]`, 200, 200},
	"POST /tokens":                       {"server_key", "POST /tokens", `{"type":"card","data":{"number":"4242424242424242","cvc":"123"}}`, 201, 201},
	"POST /reactors":                     {"manager_key", "POST /reactors", `{"name":"n","code":"1","configuration":{"a":"<b>"}}`, 201, 201},
	"PUT /reactors/{id}":                 {"manager_key", "PUT /reactors/{reactor}", `{"name":"n","code":"1","configuration":{}}`, 200, 200},
	"PATCH /reactors/{id}":               {"manager_key", "PATCH /reactors/{reactor}", `{"name":"n"}`, 204, 204},
	"POST /reactors/{id}/react-async":    {"server_key", "POST /reactors/{reactor}/react-async", `{}`, 202, 202},
	"POST /proxies":                      {"manager_key", "POST /proxies", `{"name":"n","destination_url":"https://psp.example.com"}`, 201, 201},
	"PUT /proxies/{id}":                  {"manager_key", "PUT /proxies/{proxy}", `{"name":"n","destination_url":"https://psp.example.com"}`, 200, 200},
	"PATCH /proxies/{id}":                {"manager_key", "PATCH /proxies/{proxy}", `{"name":"n"}`, 204, 204},
	"POST /proxies/{id}/rotate-key":      {"manager_key", "POST /proxies/{proxy}/rotate-key", "", 200, 200},
	"PATCH /tokens/{id}":                 {"server_key", "PATCH /tokens/card-1", `{"metadata":{"a":"<b> &amp; \u2028"}}`, 200, 200},
}

func newIdempotent(t *testing.T) *walk {
	t.Helper()
	return newIdempotentWith(t, keeptest.Options{})
}

func newIdempotentWith(t *testing.T, o keeptest.Options) *walk {
	t.Helper()
	w := newWalkWith(t, o)
	w.furnishTwins()
	return w
}

// furnishTwins makes the applications that the rows are called with, each with
// another that may do the same.
func (w *walk) furnishTwins() {
	w.t.Helper()
	w.furnish(everything)
	w.application("twin of web", "public", "token:create")
	w.application("twin of server", "private", everything)
	w.application("twin of manager", "management", strings.NewReplacer("[", "", "]", "", `"`, "", ",", " ").Replace(everyManagement))
	bare := w.server.Application(w.t, w.tenant, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}, CreateKey: new(bool)})
	w.names["bare"] = bare.ID
	var reactor api.Reactor
	w.server.Call(w.t, "POST", "/reactors", w.names["manager_key"], `{"name":"n","code":"1","configuration":{}}`).Into(w.t, 201, &reactor)
	w.names["reactor"] = reactor.ID
	var proxy api.Proxy
	w.server.Call(w.t, "POST", "/proxies", w.names["manager_key"], `{"name":"n","destination_url":"https://psp.example.com"}`).Into(w.t, 201, &proxy)
	w.names["proxy"] = proxy.ID
	w.wait("s")
}

func TestEveryIdempotentRow(t *testing.T) {
	found := 0
	shared := newWalk(t)
	for _, route := range shared.server.Routes() {
		row, known := idempotent[route.Pattern]
		if known != route.Idempotent && route.Pattern != needsCode {
			t.Errorf("%s takes an idempotency key: %t; it is in the table: %t", route.Pattern, route.Idempotent, known)
		}
		if !known {
			continue
		}
		found++
		t.Run(route.Pattern, func(t *testing.T) {
			w := walkOn(t, shared.server, shared.clock)
			w.furnishTwins()
			w.clock.Advance(time.Second)
			w.keyed(strings.Repeat("x", 201), row.key, row.call, row.body, 400, false)
			before := w.changes()
			first := w.keyed("key-1", row.key, row.call, row.body, row.status, false)
			once := w.changes()
			if once == before {
				t.Error("the first request made no change")
			}
			w.clock.Advance(time.Second) // the second answer would have another time
			second := w.keyed("key-1", row.key, row.call, row.body, row.status, true)
			for _, name := range []string{"Location", "Content-Type", "Content-Length"} {
				if got, want := second.Header.Get(name), first.Header.Get(name); got != want {
					t.Errorf("the second answer has %s %q, the first %q", name, got, want)
				}
			}
			if second.Body != first.Body {
				t.Errorf("the second answer is %s, the first %s", second, first)
			}
			if trace := api.Header("SVC", api.TraceID); second.Header.Get(trace) == first.Header.Get(trace) {
				t.Error("both have one trace id")
			}
			if got := w.changes(); got != once {
				t.Errorf("the second request made %d changes", got-once)
			}
			w.keyed("key-1", "twin of "+row.key, row.call, row.body, row.again, false)
			w.call(row.key, row.call, row.body, row.again)
			if log := w.server.Log.String(); strings.Contains(log, "key-1") {
				t.Error("the key is in the server's log")
			}
		})
	}
	if found != len(idempotent) {
		t.Errorf("the API has %d of the %d rows in the table", found, len(idempotent))
	}
}

func TestAnotherBodyGetsTheFirstAnswer(t *testing.T) {
	w := newIdempotent(t)
	first := w.keyed("k", "server_key", "POST /tokens", `{"id":"first","type":"token","data":1}`, 201, false)
	for _, body := range []string{`{"id":"second","type":"token","data":2}`, `{"id":"first","type":"token","data":1}`, `{"type":"none"}`, `{`, ""} {
		if got := w.keyed("k", "server_key", "POST /tokens", body, 201, true); got.Body != first.Body {
			t.Errorf("the answer to %s is %s, want the first", body, got)
		}
	}
	w.call("server_key", "GET /tokens/second", "", 404)
	w.call("server_key", "DELETE /tokens/first", "", 204)
	if got := w.keyed("k", "server_key", "POST /tokens", `{"id":"first","type":"token","data":1}`, 201, true); got.Body != first.Body {
		t.Errorf("the answer after the deletion is %s, want the first", got)
	}
	w.call("server_key", "GET /tokens/first", "", 404)
}

func TestAnswersOfFailuresAreNotKept(t *testing.T) {
	w := newIdempotent(t)
	for _, test := range []struct {
		name, key, body string
		status          int
	}{
		{"not valid", "server_key", `{"type":"none"}`, 400}, {"malformed", "server_key", `{`, 400}, {"a taken id", "server_key", `{"id":"card-1","type":"token","data":1}`, 409},
		{"not allowed", "server_key", `{"type":"token","data":1,"containers":["/no/"]}`, 403},
	} {
		if test.status == 403 {
			w.call("manager_key", "PUT /applications/{server}", `{"name":"x","rules":[{"container":"/general/","transform":"mask","permissions":["token:create"]}]}`, 200)
		}
		for range 2 {
			w.keyed(test.name, test.key, "POST /tokens", test.body, test.status, false).CheckProblem(t)
		}
		w.keyed(test.name, test.key, "POST /tokens", `{"type":"token","data":1}`, 201, false)
		w.keyed(test.name, test.key, "POST /tokens", test.body, 201, true)
	}
	w.keyed("k", "manager_key", "POST /applications/{nothing}/keys", "", 404, false)
	w.keyed("k", "manager_key", "POST /applications/{nothing}/keys", "", 404, false)
}

func TestWhatIsAnIdempotencyKey(t *testing.T) {
	w := newIdempotent(t)
	const detail = "the idempotency key must be 1 to 200 printable characters"
	for name, values := range map[string][]string{
		"empty": {""}, "too long": {strings.Repeat("x", 201)}, "a tab": {"a\tb"}, "two": {"a", "b"}, "the same twice": {"a", "a"}, "not UTF-8": {"a\xff"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", w.server.URL+"/tokens", strings.NewReader(`{"type":"token","data":1}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Svc-Api-Key": {w.names["server_key"]}, "Content-Type": {api.MediaJSON}, http.CanonicalHeaderKey(keyHeader): values}
		response, err := w.server.Client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != 400 || string(body) != problem(400, detail) {
			t.Errorf("%s: the answer is %d %s, want 400 %s", name, response.StatusCode, body, problem(400, detail))
		}
	}
	for _, good := range []string{"x", strings.Repeat("x", 200), strings.Repeat("é", 200), "4f6c 9a/+=?"} {
		w.keyed(good, "server_key", "POST /tokens", `{"type":"token","data":1}`, 201, false)
		w.keyed(good, "server_key", "POST /tokens", `{"type":"token","data":1}`, 201, true)
	}
}

// TestAKeyIsOneCallersForOneMethodAndPath: each of these requests is another.
func TestAKeyIsOneCallersForOneMethodAndPath(t *testing.T) {
	w := newIdempotent(t)
	w.session("browser", `"permissions":["token:create"]`)
	w.session("second browser", `"permissions":["token:create"]`)
	stranger := w.server.Application(t, w.server.Tenant(t).Tenant.ID, api.CreateApplication{Type: "private", Permissions: []string{"token:create"}})
	w.names["stranger_key"] = stranger.Key
	const body = `{"type":"token","data":1}`
	for _, key := range []string{"server_key", "twin of server_key", "web_key", "browser_key", "second browser_key", "stranger_key"} {
		w.keyed("k", key, "POST /tokens", body, 201, false)
		w.keyed("k", key, "POST /tokenize", body, 200, false)
		w.keyed("k", key, "POST /tokens/", body, 201, true) // a slash makes no difference
		w.keyed("K", key, "POST /tokens", body, 201, false)
	}
	w.keyed("k", "server_key", "PATCH /tokens/card-1", `{"metadata":{}}`, 200, false)
	w.keyed("k", "server_key", "PATCH /tokens/card-2", `{"metadata":{}}`, 200, false)
	// A key of the application is as good as another of its keys.
	more := w.call("manager_key", "POST /applications/{server}/keys", "", 201)
	w.names["more_key"] = fmt.Sprint(member(decode(t, more), "key"))
	w.keyed("k", "more_key", "POST /tokens", body, 201, true)
}

func TestAKeyIsNewAfterADay(t *testing.T) {
	w := newIdempotent(t)
	const body = `{"type":"token","data":1}`
	first := w.keyed("k", "server_key", "POST /tokens", body, 201, false)
	w.clock.Advance(24*time.Hour - time.Microsecond)
	w.keyed("k", "server_key", "POST /tokens", body, 201, true)
	w.clock.Advance(time.Microsecond)
	second := w.keyed("k", "server_key", "POST /tokens", body, 201, false)
	if first.Body == second.Body {
		t.Error("after a day the answer is still the first")
	}
	if got := w.keyed("k", "server_key", "POST /tokens", body, 201, true); got.Body != second.Body {
		t.Errorf("the answer is %s, want the second", got)
	}
	w.clock.Advance(24 * time.Hour)
	if err := w.server.Operator().Call(t.Context(), "POST", "/sweep", nil, new(any)); err != nil {
		t.Fatal(err)
	}
	w.keyed("k", "server_key", "POST /tokens", body, 201, false)
}

func TestWhoIgnoresIdempotencyKeys(t *testing.T) {
	w := newIdempotent(t)
	w.call("manager_key", "PUT /applications/{server}", `{"name":"x","permissions":["token:create","token:delete","token:update","token:search"],`+
		`"rules":[{"container":"/","transform":"reveal","permissions":["token:read","token:search"]}]}`, 200)
	bad := strings.Repeat("x", 201) // which a row that takes a key refuses
	for round, data := range []string{"one", "two"} {
		w.call("server_key", "POST /tokens", `{"id":"again","type":"token","data":"`+data+`"}`, 201)
		for _, idem := range []string{"k", bad} {
			for _, call := range []string{"GET /tokens/again", "GET /v2/tokens", `POST /detokenize "{{ again }}"`, `POST /tokens/search {"query":"id:again"}`, `POST /v2/tokens/search {"query":"id:again"}`} {
				call, body, _ := strings.Cut(call, " {")
				if body != "" {
					body = "{" + body
				}
				if i := strings.Index(call, ` "`); i > 0 {
					call, body = call[:i], call[i+1:]
				}
				if got := w.keyed(idem, "server_key", call, body, 200, false); !strings.Contains(got.Body, data) {
					t.Errorf("round %d: %s shows %s, want %s", round, call, got, data)
				}
			}
			w.keyed(idem, "manager_key", "POST /access/explain", `{"application_id":"{server}","permission":"token:read","token_id":"again"}`, 200, false)
		}
		w.keyed("k", "server_key", "DELETE /tokens/again", "", 204, false)
		w.keyed("k", "server_key", "DELETE /tokens/again", "", 404, false)
	}
}

// TestARequestInFlight: the first one's body does not come to its end for a
// while. What another node answers meanwhile, test/nodes has.
func TestARequestInFlight(t *testing.T) {
	const body = `{"type":"token","data":1}`
	for name, test := range map[string]struct {
		body     string
		status   int
		replayed bool
	}{
		"that succeeds": {body, 201, true}, "that fails": {"{}", 400, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newIdempotentWith(t, keeptest.Options{Alone: true})
			read, write := io.Pipe()
			// The server asks for the body when it has let the request in.
			asked := make(chan struct{})
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(asked) }})
			r, err := http.NewRequestWithContext(ctx, "POST", w.server.URL+"/tokens", read)
			if err != nil {
				t.Fatal(err)
			}
			r.Header = http.Header{"Svc-Api-Key": {w.names["server_key"]}, "Content-Type": {api.MediaJSON}, http.CanonicalHeaderKey(keyHeader): {"k"}, "Expect": {"100-continue"}}
			transport := &http.Transport{ExpectContinueTimeout: time.Hour}
			defer transport.CloseIdleConnections()
			done := make(chan int, 1)
			go func() {
				response, err := transport.RoundTrip(r)
				if err != nil {
					done <- 0
					return
				}
				_ = response.Body.Close()
				done <- response.StatusCode
			}()
			select {
			case <-asked:
			case status := <-done:
				t.Fatalf("the first request = %d before its body was read", status)
			}
			got := w.keyed("k", "server_key", "POST /tokens", body, 409, false)
			if want := problem(409, "a request with this idempotency key is being processed"); got.Body != want || got.Header.Get("Retry-After") != "1" {
				t.Errorf("the second request = %s, Retry-After %q, want %s", got, got.Header.Get("Retry-After"), want)
			}
			w.keyed("another", "server_key", "POST /tokens", body, 201, false)
			w.keyed("k", "twin of server_key", "POST /tokens", body, 201, false)
			w.call("server_key", "POST /tokens", body, 201)
			if _, err := io.WriteString(write, test.body); err != nil {
				t.Fatal(err)
			}
			_ = write.Close()
			if status := <-done; status != test.status {
				t.Errorf("the first request = %d, want %d", status, test.status)
			}
			w.keyed("k", "server_key", "POST /tokens", body, 201, test.replayed)
		})
	}
}

func TestIdempotencyHeadersHaveTheServersPrefix(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"header_prefix": "BT"}})
	key := k.Application(t, k.Tenant(t).Tenant.ID, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}}).Key
	for _, replayed := range []string{"", "true"} {
		got := k.Call(t, "POST", "/tokens", "", `{"type":"token","data":1}`, "BT-API-KEY", key, "BT-IDEMPOTENCY-KEY", "k")
		if got.Status != 201 || got.Header.Get("BT-IDEMPOTENT-REPLAYED") != replayed {
			t.Errorf("the answer is %s, replayed %q, want 201, %q", got, got.Header.Get("BT-IDEMPOTENT-REPLAYED"), replayed)
		}
	}
}
