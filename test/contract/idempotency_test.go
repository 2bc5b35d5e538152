package contract_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"path"
	"slices"
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
	return w.keyedFrom("", idem, key, call, body, status, replayed)
}

// keyedFrom is keyed for a client at an address, on a server that believes what
// proxies say of it.
func (w *walk) keyedFrom(address, idem, key, call, body string, status int, replayed bool) keeptest.Answer {
	w.t.Helper()
	method, path, _ := strings.Cut(w.fill(call), " ")
	headers := []string{keyHeader, idem}
	if address != "" {
		headers = append(headers, "X-Forwarded-For", address)
	}
	got := w.server.Call(w.t, method, path, w.names[key], w.fill(body), headers...)
	if is := got.Header.Get(replayHeader) == "true"; got.Status != status || is != replayed {
		w.t.Errorf("%s as %s under the key %q = %s, replayed %t, want %d, %t", call, key, idem, got, is, status, replayed)
	}
	return got
}

// log returns the whole log. Reading it moves its pages, so an entry may come twice.
func (w *walk) log() map[string]api.LogEntry {
	w.t.Helper()
	all := make(map[string]api.LogEntry)
	for page := 1; ; page++ {
		var log api.List[api.LogEntry]
		w.server.Call(w.t, "GET", fmt.Sprint("/logs?size=100&page=", page), w.names["manager_key"], "").Into(w.t, 200, &log)
		for _, e := range log.Data {
			all[e.ID] = e
		}
		if len(log.Data) < 100 {
			return all
		}
	}
}

// changes is how many changes the log has.
func (w *walk) changes() (n int) {
	w.t.Helper()
	for _, e := range w.log() {
		if e.Operation != "read" && e.Outcome == "allowed" {
			n++
		}
	}
	return n
}

// logged returns the entries that a call makes of replays and refusals, each as
// "outcome operation type id message", in order.
func (w *walk) logged(call func()) string {
	w.t.Helper()
	before := w.log()
	call()
	var list []string
	for id, e := range w.log() {
		if _, known := before[id]; !known && (e.Outcome == "denied" || strings.HasSuffix(e.Message, "replayed")) {
			list = append(list, strings.Join([]string{e.Outcome, e.Operation, e.EntityType, e.EntityID, e.Message}, " "))
		}
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}

// wantLogged compares what logged returned with a pattern. In it * is any text:
// what a refusal of the permission itself is logged for is not our subject.
func (w *walk) wantLogged(call, got, pattern string) {
	w.t.Helper()
	if fits, err := path.Match(pattern, got); err != nil || !fits {
		w.t.Errorf("%s: the log has %q, want %q, %v", call, got, pattern, err)
	}
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
	again  int    // the status of the same call without a key, after that
	about  string // the types of the entities that a replay is logged for
}{
	"PUT /tenants/self":                        {"manager_key", "PUT /tenants/self", `{"name":"n"}`, 200, 200, "tenant"},
	"POST /tenants/self/callback-secret":       {"manager_key", "POST /tenants/self/callback-secret", "", 200, 200, "tenant"},
	"POST /applications":                       {"manager_key", "POST /applications", `{"name":"n","type":"private","permissions":["token:use"]}`, 201, 201, "application"},
	"PUT /applications/{id}":                   {"manager_key", "PUT /applications/{filler}", `{"name":"n","permissions":["token:use"]}`, 200, 200, "application"},
	"POST /applications/{id}/regenerate":       {"manager_key", "POST /applications/{filler}/regenerate", "", 200, 200, "application"},
	"POST /applications/{id}/keys":             {"manager_key", "POST /applications/{bare}/keys", "", 201, 201, "key"},
	"POST /sessions":                           {"web_key", "POST /sessions", "", 201, 201, "session"},
	"POST /sessions/authorize":                 {"server_key", "POST /sessions/authorize", `{"nonce":"{s_nonce}","permissions":["token:create"]}`, 200, 409, "session"},
	"POST /tokenize":                           {"server_key", "POST /tokenize", `["a",{"type":"token","data":{"<&>":1.50}}]`, 200, 200, "token token"},
	"POST /tokens":                             {"server_key", "POST /tokens", `{"type":"card","data":{"number":"4242424242424242","cvc":"123"}}`, 201, 201, "card"},
	"POST /reactors":                           {"manager_key", "POST /reactors", `{"name":"n","code":"1","configuration":{"a":"<b>"}}`, 201, 201, "reactor"},
	"PUT /reactors/{id}":                       {"manager_key", "PUT /reactors/{reactor}", `{"name":"n","code":"1","configuration":{}}`, 200, 200, "reactor"},
	"PATCH /reactors/{id}":                     {"manager_key", "PATCH /reactors/{reactor}", `{"name":"n"}`, 204, 204, "reactor"},
	"POST /reactors/{id}/react-async":          {"server_key", "POST /reactors/{reactor}/react-async", `{}`, 202, 202, "reactor"},
	"POST /proxies":                            {"manager_key", "POST /proxies", `{"name":"n","destination_url":"https://psp.example.com"}`, 201, 201, "proxy"},
	"PUT /proxies/{id}":                        {"manager_key", "PUT /proxies/{proxy}", `{"name":"n","destination_url":"https://psp.example.com"}`, 200, 200, "proxy"},
	"PATCH /proxies/{id}":                      {"manager_key", "PATCH /proxies/{proxy}", `{"name":"n"}`, 204, 204, "proxy"},
	"POST /reactors/{id}/versions/{n}/restore": {"manager_key", "POST /reactors/{reactor}/versions/1/restore", "", 200, 200, "reactor"},
	"POST /proxies/{id}/versions/{n}/restore":  {"manager_key", "POST /proxies/{proxy}/versions/1/restore", "", 200, 200, "proxy"},
	"POST /proxies/{id}/rotate-key":            {"manager_key", "POST /proxies/{proxy}/rotate-key", "", 200, 200, "proxy"},
	"POST /webhooks":                           {"manager_key", "POST /webhooks", `{"name":"n","url":"https://shop.example.com","events":["webhook.test"]}`, 201, 201, "webhook"},
	"PUT /webhooks/{id}":                       {"manager_key", "PUT /webhooks/{webhook}", `{"name":"n","url":"https://shop.example.com","events":["webhook.test"]}`, 200, 200, "webhook"},
	"POST /webhooks/{id}/secret/rotate":        {"manager_key", "POST /webhooks/{webhook}/secret/rotate", "", 200, 200, "webhook"},
	"PATCH /tokens/{id}":                       {"server_key", "PATCH /tokens/card-1", `{"metadata":{"a":"<b> &amp; \u2028"}}`, 200, 200, "card"},
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
	var webhook api.Webhook
	w.server.Call(w.t, "POST", "/webhooks", w.names["manager_key"], `{"name":"n","url":"https://shop.example.com","events":["webhook.test"]}`).Into(w.t, 201, &webhook)
	w.names["webhook"] = webhook.ID
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
			const key = "2f1b7a52-5f0e-4c53-9b0c-key-1" // long, as /sessions ignores others
			before := w.changes()
			first := w.keyed(key, row.key, row.call, row.body, row.status, false)
			once := w.changes()
			if once == before {
				t.Error("the first request made no change")
			}
			w.clock.Advance(time.Second) // the second answer would have another time
			var second keeptest.Answer
			entries := w.logged(func() { second = w.keyed(key, row.key, row.call, row.body, row.status, true) })
			for _, about := range strings.Fields(row.about) {
				entry, rest, _ := strings.Cut(entries, "\n")
				entries = rest
				if !strings.HasPrefix(entry, "allowed read "+about+" ") || strings.Contains(entry, " * ") {
					t.Errorf("the replay is logged as %q, want an entry of a %s", entry, about)
				}
			}
			if entries != "" {
				t.Errorf("the replay is also logged as %q", entries)
			}
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
			w.keyed(key, "twin of "+row.key, row.call, row.body, row.again, false)
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

const (
	shortKey = "1001"
	longKey  = "7d3c9a52-5f0e-4c53-9b0c-2f1f6a1c9e11"
	reused   = `{"title":"Unprocessable Entity","status":422,"detail":"this idempotency key was used with another body","code":"idempotency_key_reused"}`
)

// behindProxy is a walk on a server that takes the address of a client from
// X-Forwarded-For.
func behindProxy(t *testing.T) *walk {
	t.Helper()
	return newIdempotentWith(t, keeptest.Options{Settings: map[string]string{"trusted_proxies": "127.0.0.0/8"}})
}

// Everybody has the key of a public application: two who use the same
// idempotency key with it know nothing of each other.
func TestTwoBrowsersWithOnePublicKey(t *testing.T) {
	w := behindProxy(t)
	const one, other, name, card = "192.0.2.1", "198.51.100.7", `{"type":"token","data":"Jane Doe"}`, `{"type":"card","data":{"number":"4242424242424242"}}`
	answers := make(map[string]string) // by name of the request that got them first
	ask := func(is, address, idem, call, body string, status int, again bool) {
		t.Helper()
		got := w.keyedFrom(address, idem, "web_key", call, body, status, again)
		switch first, asked := answers[is]; {
		case again && (!asked || got.Body != first):
			t.Errorf("%s from %s = %s, want the answer of %q", call, address, got, is)
		case !again && asked:
			t.Errorf("%s from %s: %q is asked twice", call, address, is)
		case !again:
			for name, body := range answers {
				if got.Body == body {
					t.Errorf("%s from %s: %q got the answer of %q", call, address, is, name)
				}
			}
			answers[is] = got.Body
		}
	}
	// A short key does not count for sessions, and otherwise for one address and one body.
	ask("a session", one, shortKey, "POST /sessions", "", 201, false)
	ask("a session of the other", other, shortKey, "POST /sessions", "", 201, false)
	ask("another session", one, shortKey, "POST /sessions", "", 201, false)
	for call, status := range map[string]int{"POST /tokens": 201, "POST /tokenize": 200} {
		ask(call, one, shortKey, call, name, status, false)
		ask(call+" of the other", other, shortKey, call, name, status, false)
		ask(call+" of a card", one, shortKey, call, card, status, false)
		ask(call+" with a space", one, shortKey, call, name+" ", status, false)
		ask(call, one, shortKey, call, name, status, true)
		ask(call+" of the other", other, shortKey, call, name, status, true)
		ask(call+" of a card", one, shortKey, call, card, status, true)
		ask(call+" over IPv6", "2001:db8::1", shortKey, call, name, status, false)
		ask(call+" over IPv6", "2001:db8::2:3", shortKey, call, name, status, true)
		ask(call+" of a neighbour", "2001:db8:0:1::1", shortKey, call, name, status, false)
	}
	// A long one is nobody else's, and bound to its body.
	ask("a session under a long key", one, longKey, "POST /sessions", "", 201, false)
	ask("a session under a long key", other, longKey, "POST /sessions", "", 201, true)
	for call, status := range map[string]int{"POST /tokens": 201, "POST /tokenize": 200} {
		is := call + " under a long key"
		ask(is, one, longKey, call, name, status, false)
		ask(is, one, longKey, call, name, status, true)
		ask(is, other, longKey, call, name, status, true)
		for _, body := range []string{card, name + " ", `{`, ""} {
			for _, address := range []string{one, other} {
				got := w.keyedFrom(address, longKey, "web_key", call, body, 422, false)
				got.CheckProblem(t)
				if !isProblem(t, got.Body, reused) {
					t.Errorf("%s with %q = %s, want %s", call, body, got, reused)
				}
			}
		}
		ask(is, one, longKey, call, name, status, true)
	}
	// After a failure a long key is free, whatever the next body is.
	w.keyedFrom(one, longKey+"1", "web_key", "POST /tokens", `{"type":"none"}`, 400, false)
	ask("after a failure", one, longKey+"1", "POST /tokens", name, 201, false)
	ask("after a failure", one, longKey+"1", "POST /tokens", name, 201, true)
}

func TestAnUpdateWithAPublicKeyIsBoundToItsBody(t *testing.T) {
	w := behindProxy(t)
	w.application("editor", "public", "token:update")
	const one, other, a, b = "192.0.2.1", "198.51.100.7", `{"metadata":{"a":"1"}}`, `{"metadata":{"a":"2"}}`
	w.keyedFrom(one, longKey, "editor_key", "PATCH /tokens/card-1", a, 200, false)
	w.keyedFrom(other, longKey, "editor_key", "PATCH /tokens/card-1", a, 200, true)
	w.keyedFrom(other, longKey, "editor_key", "PATCH /tokens/card-1", b, 422, false)
	w.keyedFrom(one, shortKey, "editor_key", "PATCH /tokens/card-1", a, 200, false)
	w.keyedFrom(other, shortKey, "editor_key", "PATCH /tokens/card-1", a, 200, false)
	w.keyedFrom(one, shortKey, "editor_key", "PATCH /tokens/card-1", b, 200, false)
	w.keyedFrom(one, shortKey, "editor_key", "PATCH /tokens/card-1", a, 200, true)
}

// A session's key is one browser's: there another body gets the first answer,
// as with private keys.
func TestAnotherBodyOfASessionGetsTheFirstAnswer(t *testing.T) {
	w := behindProxy(t)
	w.session("browser", `"permissions":["token:create"]`)
	for _, idem := range []string{shortKey, longKey} {
		first := w.keyedFrom("192.0.2.1", idem, "browser_key", "POST /tokens", `{"type":"token","data":1}`, 201, false)
		if got := w.keyedFrom("198.51.100.7", idem, "browser_key", "POST /tokens", `{"type":"token","data":2}`, 201, true); got.Body != first.Body {
			t.Errorf("another body under %s = %s, want %s", idem, got, first)
		}
	}
}

// grant replaces what the application server may do.
func (w *walk) grant(permissions, rules string) {
	w.t.Helper()
	w.call("manager_key", "PUT /applications/{server}", `{"name":"x","permissions":[`+permissions+`],"rules":[`+rules+`]}`, 200)
}

// on is a rule.
func on(container, transform, permissions string) string {
	return `{"container":"` + container + `","transform":"` + transform + `","permissions":[` + permissions + `]}`
}

// What a request was answered with is given out again only to a caller that
// could get as much now, and each time is in the log.
func TestAReplayTakesTheAccessOfThen(t *testing.T) {
	const (
		create, update, read = `"token:create"`, `"token:update"`, `"token:read"`
		lost                 = "missing permission token:create"
		less                 = `{"title":"Forbidden","status":403,"detail":"the caller may now see less of a token than the stored result shows","code":"access_reduced"}`
	)
	replayed := func(kind, id string) string { return "allowed read " + kind + " " + id + " Token result replayed" }
	for name, test := range map[string]struct {
		permissions, rules string // at first
		call, body         string
		status             int
		between            func(w *walk)
		refused            string // the body of the 403; "" when it is replayed
		logged             string
	}{
		"nothing changed": {create, "", "POST /tokens", `{"id":"one","type":"token","data":1}`, 201, func(*walk) {}, "", replayed("token", "one")},
		"token:create was lost": {create, "", "POST /tokens", `{"id":"one","type":"token","data":1}`, 201, func(w *walk) { w.grant(read, "") },
			problem(403, lost), "denied create * create denied"},
		"token:create was lost here": {create, "", "POST /tokens", `{"id":"one","type":"card_number","data":"4242424242424242"}`, 201,
			func(w *walk) { w.grant("", on("/general/", "mask", create)) }, problem(403, lost), "denied create card_number one Token create denied"},
		"mask became redact": {"", on("/", "mask", create), "POST /tokens", `{"id":"one","type":"card_number","data":"4242424242424242"}`, 201,
			func(w *walk) { w.grant("", on("/", "redact", create)) }, less, "denied create card_number one Token create denied"},
		"redact became mask": {"", on("/", "redact", create), "POST /tokens", `{"id":"one","type":"token","data":1}`, 201,
			func(w *walk) { w.grant("", on("/", "mask", create)) }, "", replayed("token", "one")},
		"the token is deleted": {"", on("/", "mask", create), "POST /tokens", `{"id":"one","type":"token","data":1}`, 201, func(w *walk) {
			w.call("twin of server_key", "DELETE /tokens/one", "", 204)
			w.grant("", on("/", "redact", create))
		}, "", replayed("token", `\*`)},
		"the token has expired": {"", on("/", "mask", create), "POST /tokens", `{"id":"one","type":"token","data":1,"expires_at":"2031-05-06T07:30:00Z"}`, 201, func(w *walk) {
			w.clock.Advance(time.Hour)
			w.grant("", on("/", "redact", create))
		}, "", replayed("token", `\*`)},
		"the token was moved away": {"", on("/a/", "mask", create), "POST /tokens", `{"id":"one","type":"token","data":1,"containers":["/a/"]}`, 201, func(w *walk) {
			w.call("mover_key", "PATCH /tokens/one", `{"containers":["/b/"]}`, 200)
		}, problem(403, lost), "denied create token one Token create denied"},
		"one of several tokens is out of reach": {create, "", "POST /tokenize", `[{"id":"one","type":"token","data":1},{"id":"two","type":"card_number","data":"4242424242424242"}]`, 200,
			func(w *walk) { w.grant("", on("/general/", "mask", create)) }, problem(403, lost), "denied create card_number two Token create denied"},
		"several tokens": {create, "", "POST /tokenize", `[{"id":"one","type":"token","data":1},{"id":"two","type":"card_number","data":"4242424242424242"}]`, 200,
			func(*walk) {}, "", replayed("card_number", "two") + "\n" + replayed("token", "one")},
		"token:update was lost": {update, "", "PATCH /tokens/card-1", `{"metadata":{"a":"b"}}`, 200, func(w *walk) { w.grant(create, "") },
			problem(403, "missing permission token:update"), "denied update * update denied"},
		"an update is redacted now": {update, "", "PATCH /tokens/card-1", `{"metadata":{"a":"b"}}`, 200, func(w *walk) { w.grant("", on("/", "redact", update)) },
			less, "denied update card card-1 Token update denied"},
		"a repeated create is of the token that was there": {create, on("/", "reveal", read), "POST /tokens", `{"type":"card","data":{"number":"4242424242424242"},"deduplicate_token":true}`, 201,
			func(w *walk) { w.grant(create, on("/", "mask", read)) }, less, "denied read card {first card} Token read denied"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newIdempotent(t)
			mover := w.server.Application(t, w.tenant, api.CreateApplication{Type: "private", Rules: []api.Rule{
				{Container: "/", Transform: "reveal", Permissions: []string{"token:read", "token:update", "token:create"}}}})
			w.names["mover_key"] = mover.Key
			w.grant(test.permissions, test.rules)
			first := w.keyed("k", "server_key", test.call, test.body, test.status, false)
			if strings.Contains(test.logged, "{first card}") {
				w.names["first card"] = fmt.Sprint(member(decode(t, first.Body), "id"))
			}
			test.between(w)
			for range 2 { // the second time as the first
				var got keeptest.Answer
				entries := w.logged(func() {
					if test.refused != "" {
						got = w.keyed("k", "server_key", test.call, test.body, 403, false)
					} else {
						got = w.keyed("k", "server_key", test.call, test.body, test.status, true)
					}
				})
				want := first.Body
				if test.refused != "" {
					want = test.refused
				}
				if test.refused == "" && got.Body != want || test.refused != "" && !isProblem(t, got.Body, want) {
					t.Errorf("the second request = %s, want %s", got, want)
				}
				w.wantLogged("the second request", entries, w.fill(test.logged))
			}
			// With the access of then the answer is there again.
			w.grant(test.permissions, test.rules)
			if name != "the token was moved away" {
				w.keyed("k", "server_key", test.call, test.body, test.status, true)
			}
		})
	}
}

func TestAReplayTakesThePermissionOfItsRow(t *testing.T) {
	w := newIdempotent(t)
	w.application("clerk", "management", "application:update application:create")
	for call, body := range map[string]string{
		"PUT /applications/{filler}": `{"name":"n","permissions":["token:use"]}`, "POST /applications/{filler}/regenerate": "", "POST /applications/{bare}/keys": "",
	} {
		status := 200
		if strings.HasSuffix(call, "keys") {
			status = 201
		}
		w.call("manager_key", "PUT /applications/{clerk}", `{"name":"x","permissions":["application:update"]}`, 200)
		first := w.keyed("k", "clerk_key", call, body, status, false)
		w.call("manager_key", "PUT /applications/{clerk}", `{"name":"x","permissions":["application:create","application:read"]}`, 200)
		var got keeptest.Answer
		entries := w.logged(func() { got = w.keyed("k", "clerk_key", call, body, 403, false) })
		if want := problem(403, "missing permission application:update"); !isProblem(t, got.Body, want) {
			t.Errorf("%s = %s, want %s", call, got, want)
		}
		w.wantLogged(call, entries, "denied update application * Application update denied")
		w.call("manager_key", "PUT /applications/{clerk}", `{"name":"x","permissions":["application:update"]}`, 200)
		if got := w.keyed("k", "clerk_key", call, body, status, true); got.Body != first.Body {
			t.Errorf("%s with the permission = %s, want %s", call, got, first)
		}
	}
}

// replayedRuns: what code answered is given out again while the caller may use
// the tokens that it got, and made the tokens that it made.
func replayedRuns(t *testing.T, w *coder) {
	w.application("runner", private("token:use", "token:create"))
	w.token(`{"id":"replayed-card","type":"card_number","data":"` + card + `"}`)
	id := w.reactor(`module.exports = async ({ args }) => ({ raw: args.card, tokenize: args.tokenize && { type: 'token', data: 'x', id: args.tokenize } })`)
	w.names["run"] = id
	set := func(permissions, rules string) {
		t.Helper()
		w.call("manager_key", "PUT /applications/{runner}", `{"name":"x","permissions":[`+permissions+`],"rules":[`+rules+`]}`, 200)
	}
	const use, create = `"token:use"`, `"token:create"`
	call, react := "POST /reactors/{run}/react", func(made string) string {
		return `{"args":{"card":"{{replayed-card}}","tokenize":"` + made + `"}}`
	}
	replayed := func(made string) string {
		return "allowed read card_number replayed-card Token result replayed\nallowed read token " + made + " Token result replayed"
	}
	for i, test := range []struct {
		name, permissions, rules string
		detail                   string // of the 403; "" when it is replayed
		logged                   func(made string) string
	}{
		{"nothing changed", use + "," + create, "", "", replayed},
		{"token:use was lost", create, "", "missing permission token:use", func(string) string { return "denied use * use denied" }},
		{"token:use was lost on the card", create, on("/general/", "reveal", use), "missing permission token:use",
			func(string) string { return "denied use card_number replayed-card Token use denied" }},
		{"the card is masked now", create, on("/pci/", "mask", use), "the caller may now see less of a token than the stored result shows",
			func(string) string { return "denied use card_number replayed-card Token use denied" }},
		{"token:create was lost on what was made", use, on("/pci/", "mask", create), "missing permission token:create",
			func(made string) string { return "denied create token " + made + " Token create denied" }},
	} {
		made := fmt.Sprint("made-", i)
		set(use+","+create, "")
		first := w.keyed(made, "runner_key", call, react(made), 200, false)
		set(test.permissions, test.rules)
		entries := w.logged(func() {
			if test.detail == "" {
				if got := w.keyed(made, "runner_key", call, react(made), 200, true); got.Body != first.Body {
					t.Errorf("%s: the second request = %s, want %s", test.name, got, first)
				}
			} else if got := w.keyed(made, "runner_key", call, react(made), 403, false); fmt.Sprint(member(decode(t, got.Body), "detail")) != test.detail {
				t.Errorf("%s: the second request = %s, want %s", test.name, got, test.detail)
			}
		})
		w.wantLogged(test.name, entries, test.logged(made))
	}
	// A run that gets and makes no token is logged as the reactor's.
	set(use, "")
	for _, call := range []string{"POST /reactors/{run}/react", "POST /reactors/{run}/react-async"} {
		status := 200
		if strings.HasSuffix(call, "async") {
			status = 202
		}
		w.keyed("no token", "runner_key", call, `{"args":{}}`, status, false)
		entries := w.logged(func() { w.keyed("no token", "runner_key", call, `{"args":{}}`, status, true) })
		if want := "allowed read reactor " + id + " Reactor result replayed"; entries != want {
			t.Errorf("%s: the log has %s, want %s", call, entries, want)
		}
	}
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
		if response.StatusCode != 400 || !isProblem(t, string(body), problem(400, detail)) {
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
			w.keyed(idem, "manager_key", "POST /proxies/{proxy}/preview", `{"application_id":"{twin of server}","body":"x"}`, 200, false)
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
			if want := problem(409, "a request with this idempotency key is being processed"); !isProblem(t, got.Body, want) || got.Header.Get("Retry-After") != "1" {
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
