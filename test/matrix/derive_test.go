package matrix_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

// The kinds of callers. A lesser session was granted everything, and the
// application that authorized it has lost what the transform lacks since.
const (
	byPublic     = "public application"
	byPrivate    = "private application"
	bySession    = "session"
	byLesser     = "session of a lesser authorizer"
	byManagement = "management application"
	byNobody     = "anonymous caller of a proxy"
)

// transforms are those of a caller's rule on the container of the token, in the
// order of the cells. Without one, the caller holds the permission elsewhere.
var transforms = [4]string{"none", "redact", "mask", "reveal"}

// cells are what comes back under each of the transforms: the status, and how
// much of the token is shown to the one who receives it.
//
//	403             nothing is done, and nothing is shown
//	200 absent      the response does not tell of the token
//	200 nothing     the token, without anything that the caller did not send
//	200 redact      with its metadata, without data
//	200 mask        with masked data
//	200 reveal      with plaintext
//	201 new mask    another token than the one that exists
//	201 same mask   the token that exists
//	x|y             x or y: the rules leave it open
//
// "+f" says that the fingerprint is shown too; it never is otherwise.
type cells [4]string

// same is one cell for all transforms: the caller cannot hold the permission.
func same(cell string) cells { return cells{cell, cell, cell, cell} }

// operation is a way to derive something from the data of a token.
type operation struct {
	name string
	// permission is what the transform is about.
	permission string
	// also are permissions that the caller holds plainly.
	also []string
	run  func(c *derivation) response
	want map[string]cells
}

// response is what an operation came to.
type response struct {
	keeptest.Answer
	received string // by whom the values are for, when that is not the caller
	// allowed are further statuses that are as good as the wanted one, when
	// nothing is shown.
	allowed []int
}

// everyone has the same cells for all callers that can hold token:read.
func everyone(public string, c cells, more ...any) map[string]cells {
	m := map[string]cells{byPublic: same(public), byPrivate: c, bySession: c, byLesser: c, byManagement: same("403")}
	for i := 0; i < len(more); i += 2 {
		m[more[i].(string)] = more[i+1].(cells)
	}
	return m
}

// Every change of mask, expression or indexes, and every move, takes token:read
// with reveal. A response to a change never reveals.
var derivesByChange = everyone("403", cells{"403", "403", "403", "200 mask+f"})

var operations = []operation{
	{"get", "token:read", nil, func(c *derivation) response { return c.call("GET", "/tokens/"+c.id, "") },
		everyone("403", cells{"403", "200 redact", "200 mask", "200 reveal+f"})},
	{"reveal", "token:read", nil, func(c *derivation) response { return c.call("POST", "/tokens/"+c.id+"/reveal", `{"reason":"a test"}`) },
		everyone("403", cells{"403", "403", "403", "200 reveal+f"})},
	{"list", "token:read", nil, func(c *derivation) response { return c.call("GET", "/tokens", "") },
		everyone("403", cells{"200 absent", "200 redact", "200 mask", "200 reveal+f"})},
	{"list from a cursor", "token:read", nil, func(c *derivation) response { return c.call("GET", "/v2/tokens", "") },
		everyone("403", cells{"200 absent", "200 redact", "200 mask", "200 reveal+f"})},
	{"detokenize", "token:read", nil, func(c *derivation) response {
		return c.call("POST", "/detokenize", `{"id":"`+c.id+`","token":"{{ token: `+c.id+` }}"}`)
	}, everyone("403", cells{"403", "200 redact", "200 mask", "200 reveal+f"})},
	{"fingerprint filter", "token:read", nil, func(c *derivation) response { return c.call("GET", "/tokens?fingerprint="+c.fingerprint, "") },
		everyone("403", cells{"200 absent", "200 absent", "200 absent", "200 reveal+f"})},
	{"fingerprint filter from a cursor", "token:read", nil, func(c *derivation) response { return c.call("GET", "/v2/tokens?fingerprint="+c.fingerprint, "") },
		everyone("403", cells{"200 absent", "200 absent", "200 absent", "200 reveal+f"})},
	{"fingerprint search", "token:read", []string{"token:search"}, func(c *derivation) response {
		return c.call("POST", "/tokens/search", `{"query":"fingerprint:`+c.fingerprint+`"}`)
	}, everyone("403", cells{"200 absent", "200 absent", "200 absent", "200 mask+f"})},
	{"fingerprint search by what is not", "token:read", []string{"token:search"}, func(c *derivation) response {
		other := c.call("POST", "/tokens/search", `{"query":"type:card AND NOT fingerprint:11111111111111111111111111111111111111111111"}`)
		own := c.call("POST", "/tokens/search", `{"query":"type:card AND NOT fingerprint:`+c.fingerprint+`"}`)
		if own.Status == 200 && c.shown(own.Body) == c.shown(other.Body) {
			other.Body = "no difference"
		}
		return other
	}, everyone("403", cells{"200 absent", "200 absent", "200 absent", "200 mask+f"})},
	{"data search", "token:search", nil, func(c *derivation) response {
		return c.call("POST", "/tokens/search", `{"query":"data:`+deriveNumber[12:]+`"}`)
	}, everyone("403", cells{"200 absent", "200 absent", "200 mask", "200 reveal"})}, // a match shows data, and redact shows none

	// Asking for less lowers all that is shown, and all that tokens are found by.
	{"get, asking for what the rules allow", "token:read", nil, func(c *derivation) response { return c.call("GET", "/tokens/"+c.id+"?transform=reveal", "") },
		everyone("403", cells{"403", "200 redact", "200 mask", "200 reveal+f"})},
	{"get, asking for a mask", "token:read", nil, func(c *derivation) response { return c.call("GET", "/tokens/"+c.id+"?transform=mask", "") },
		everyone("403", cells{"403", "200 redact", "200 mask", "200 mask"})},
	{"get, asking for redaction", "token:read", nil, func(c *derivation) response { return c.call("GET", "/tokens/"+c.id+"?transform=redact", "") },
		everyone("403", cells{"403", "200 redact", "200 redact", "200 redact"})},
	{"list, asking for a mask", "token:read", nil, func(c *derivation) response { return c.call("GET", "/tokens?transform=mask", "") },
		everyone("403", cells{"200 absent", "200 redact", "200 mask", "200 mask"})},
	{"list from a cursor, asking for redaction", "token:read", nil, func(c *derivation) response { return c.call("GET", "/v2/tokens?transform=redact", "") },
		everyone("403", cells{"200 absent", "200 redact", "200 redact", "200 redact"})},
	{"fingerprint filter, asking for a mask", "token:read", nil, func(c *derivation) response {
		return c.call("GET", "/tokens?transform=mask&fingerprint="+c.fingerprint, "")
	}, everyone("403", same("200 absent"))},
	{"fingerprint filter from a cursor, asking for a mask", "token:read", nil, func(c *derivation) response {
		return c.call("GET", "/v2/tokens?transform=mask&fingerprint="+c.fingerprint, "")
	}, everyone("403", same("200 absent"))},
	{"fingerprint search, asking for a mask", "token:read", []string{"token:search"}, func(c *derivation) response {
		return c.call("POST", "/tokens/search?transform=mask", `{"query":"fingerprint:`+c.fingerprint+`"}`)
	}, everyone("403", same("200 absent"))},
	{"data search, asking for a mask", "token:search", nil, func(c *derivation) response {
		return c.call("POST", "/tokens/search?transform=mask", `{"query":"data:`+deriveNumber[12:]+`"}`)
	}, everyone("403", cells{"200 absent", "200 absent", "200 mask", "200 mask"})},
	{"data search from a cursor, asking for redaction", "token:search", nil, func(c *derivation) response {
		return c.call("POST", "/v2/tokens/search?transform=redact", `{"query":"data:`+deriveNumber[12:]+`"}`)
	}, everyone("403", same("200 absent"))},
	{"search, asking for redaction", "token:search", nil, func(c *derivation) response {
		return c.call("POST", "/tokens/search?transform=redact", `{"query":"type:card"}`)
	}, everyone("403", cells{"200 absent", "200 redact", "200 redact", "200 redact"})},

	{"mask change", "token:read", []string{"token:update"}, func(c *derivation) response {
		return c.call("PATCH", "/tokens/"+c.id, `{"mask":{"number":"{{ data.number | reveal_last: 4 }}","x":"{{ data.number }}"}}`)
	}, everyone("403", cells{"403", "403", "403", "200 reveal+f"})}, // by a mask of one's own
	{"mask removed", "token:read", []string{"token:update"}, func(c *derivation) response {
		return c.call("PATCH", "/tokens/"+c.id, `{"mask":null}`)
	}, derivesByChange},
	{"fingerprint_expression change", "token:read", []string{"token:update"}, func(c *derivation) response {
		return c.call("PATCH", "/tokens/"+c.id, `{"fingerprint_expression":"{{ data.number | slice: 8 }}"}`)
	}, derivesByChange},
	{"search_indexes change", "token:read", []string{"token:update"}, func(c *derivation) response {
		return c.call("PATCH", "/tokens/"+c.id, `{"search_indexes":["{{ data.number }}"]}`)
	}, derivesByChange},
	{"mask change with part of the data", "token:read", []string{"token:update"}, func(c *derivation) response {
		return c.call("PATCH", "/tokens/"+c.id, `{"data":{"expiration_month":11},"mask":null}`)
	}, derivesByChange},
	{"mask change with all of the data", "token:read", []string{"token:update"}, func(c *derivation) response {
		return c.call("PATCH", "/tokens/"+c.id, `{"data":{"number":"`+deriveNumber+`","expiration_month":12,"expiration_year":2040},"mask":null}`)
	}, everyone("403", cells{"200 mask|200 nothing", "200 mask|200 redact", "200 mask", "200 mask+f"})},
	{"container move", "token:read", []string{"token:update"}, func(c *derivation) response {
		return c.call("PATCH", "/tokens/"+c.id, `{"containers":["/other/"]}`)
	}, derivesByChange},
	{"container add", "token:read", []string{"token:update"}, func(c *derivation) response {
		return c.call("PATCH", "/tokens/"+c.id, `{"containers":["/pci/high/","/added/"]}`)
	}, everyone("403", cells{"200 nothing", "200 redact", "200 mask", "200 mask+f"})},
	{"update response", "token:read", []string{"token:update"}, func(c *derivation) response {
		return c.call("PATCH", "/tokens/"+c.id, `{"metadata":{"mine":"1"}}`)
	}, everyone("200 nothing", cells{"200 nothing", "200 redact", "200 mask", "200 mask+f"})},
	{"update response under a rule on updates", "token:update", nil, func(c *derivation) response {
		return c.call("PATCH", "/tokens/"+c.id, `{"metadata":{"mine":"1"}}`)
	}, func() map[string]cells {
		c := cells{"403", "200 nothing", "200 nothing", "200 nothing"}
		return map[string]cells{byPublic: c, byPrivate: c, bySession: c, byLesser: c, byManagement: same("403")}
	}()},
	{"update response to an equal number", "token:read", []string{"token:update"}, func(c *derivation) response {
		c.shop("POST", "/tokens", `{"type":"card","data":{"number":"`+otherNumber+`"},"containers":["/unseen/"]}`)
		return c.call("PATCH", "/tokens/"+c.id, `{"data":{"number":"`+otherNumber+`"}}`)
	}, everyone("200 nothing", cells{"200 nothing", "200 redact", "200 mask", "200 mask+f"})},

	{"deduplicating create", "token:read", []string{"token:create"}, func(c *derivation) response {
		return c.call("POST", "/tokens", derivedCard(`"deduplicate_token":true`))
	}, everyone("201 new mask", cells{"201 new mask", "201 new mask|201 new redact", "201 new mask", "201 same mask+f"})},
	{"deduplicating create under a rule on creates", "token:create", nil, func(c *derivation) response {
		return c.call("POST", "/tokens", derivedCard(`"deduplicate_token":true`))
	}, func() map[string]cells {
		c := cells{"403", "201 new redact", "201 new mask", "201 new mask"}
		return map[string]cells{byPublic: c, byPrivate: c, bySession: c, byLesser: c, byManagement: same("403")}
	}()},
	{"deduplicating create of what a public application made", "token:read", []string{"token:create"}, func(c *derivation) response {
		c.plant()
		return c.call("POST", "/tokens", derivedCard(`"deduplicate_token":true`))
	}, everyone("201 new mask", cells{"201 new mask", "201 new mask|201 new redact", "201 new mask", "201 new mask+f"})},
	{"deduplicating tokenize", "token:read", []string{"token:create"}, func(c *derivation) response {
		return c.call("POST", "/tokenize", derivedCard(`"deduplicate_token":true`))
	}, everyone("200 new mask", cells{"200 new mask", "200 new mask|200 new redact", "200 new mask", "200 same mask+f"})},

	{"idempotent replay", "token:read", []string{"token:update"}, func(c *derivation) response {
		const body, key = `{"metadata":{"mine":"1"}}`, "replay-1"
		header := []string{api.Header(api.DefaultPrefix, api.IdempotencyKey), key}
		c.grant("reveal")
		if first := c.call("PATCH", "/tokens/"+c.id, body, header...); first.Status != 200 && c.kind != byManagement {
			c.t.Fatalf("the first of two requests = %s", first)
		}
		c.grant(c.transform)
		return c.call("PATCH", "/tokens/"+c.id, body, header...)
	}, map[string]cells{
		byPublic: same("200 nothing"), byPrivate: {"403", "403", "403", "200 mask+f"}, byLesser: {"403", "403", "403", "200 mask+f"}, byManagement: same("403"),
	}},

	{"explain", "token:read", nil, func(c *derivation) response {
		return c.call("POST", "/access/explain", `{"application_id":"`+c.named+`","permission":"token:read","token_id":"`+c.id+`"}`)
	}, map[string]cells{byPublic: same("403"), byPrivate: same("403"), bySession: same("403"), byManagement: same("200 absent")}},
	{"preview", "token:use", nil, func(c *derivation) response {
		proxy := c.proxy(`"require_auth":true`)
		r := c.call("POST", "/proxies/"+proxy.ID+"/preview", `{"application_id":"`+c.named+`","body":{"id":"`+c.id+`","token":"{{ token: `+c.id+` }}","n":"{{ `+c.id+` }}"}}`)
		r.Body = strings.ReplaceAll(r.Body, `\"`, `"`)
		r.allowed = []int{403} // whatever would end the call may end its preview
		return r
	}, map[string]cells{byPublic: same("403"), byPrivate: same("403"), bySession: same("403"), byManagement: same("200 nothing")}},
	{"proxy call", "token:use", nil, func(c *derivation) response {
		proxy := c.proxy(`"require_auth":true`)
		return c.forwarded(proxy)
	}, everyone("403", cells{"403", "403", "200 mask", "200 reveal+f"})},
	{"anonymous proxy call", "token:use", nil, func(c *derivation) response {
		proxy := c.proxy(`"require_auth":false,"application":{"id":"` + c.named + `"}`)
		return c.forwarded(proxy)
	}, map[string]cells{byNobody: {"403", "403", "200 mask", "200 reveal+f"}}},
	{"anonymous proxy call, the proxy written back as it was read", "token:use", nil, func(c *derivation) response {
		proxy := c.proxy(`"require_auth":false,"application":{"id":"` + c.named + `"}`)
		read := c.k.Call(c.t, "GET", "/proxies/"+proxy.ID, c.manager, "")
		if got := c.k.Call(c.t, "PUT", "/proxies/"+proxy.ID, c.manager, read.Body); got.Status != 200 {
			c.t.Fatalf("a proxy written back = %s", got)
		}
		return c.forwarded(proxy)
	}, map[string]cells{byNobody: {"403", "403", "200 mask", "200 reveal+f"}}},
}

const (
	deriveNumber = "4242424242424242"
	deriveMasked = "XXXXXXXXXXXX4242"
	otherNumber  = "4000000000000002"
	otherMasked  = "XXXXXXXXXXXX0002"
	deriveOrder  = "order-of-the-shop"
)

func derivedCard(more string) string {
	return `{"type":"card","data":{"number":"` + deriveNumber + `","expiration_month":12,"expiration_year":2040},` + derivedMembers + `,` + more + `}`
}

// derivedMembers give the token a mask and an index of its own.
const derivedMembers = `"mask":{"number":"{{ data.number | reveal_last: 4 }}"},"search_indexes":["{{ data.number | last4 }}"]`

// derivation is one cell: a tenant with a token of the shop's and a caller.
type derivation struct {
	t         *testing.T
	k         *keeptest.Server
	to        *arrivals
	operation operation
	kind      string
	transform string

	tenant   string
	manager  string
	shopKey  string
	id       string
	before   string // the token as the shop sees it
	key      string // of the caller
	named    string // the application that holds the transform
	lesserOf string // the authorizer of a lesser session

	fingerprint string
}

// arrivals is a destination that keeps the last body that it received.
type arrivals struct {
	url string

	mu   sync.Mutex // guards last
	last string
}

func newArrivals(t *testing.T) *arrivals {
	a := &arrivals{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.last = string(body)
		_, _ = io.WriteString(w, "received")
	}))
	t.Cleanup(s.Close)
	a.url = s.URL
	return a
}

func (a *arrivals) take() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.last
	a.last = ""
	return last
}

func (c *derivation) call(method, path, body string, headers ...string) response {
	c.t.Helper()
	return response{Answer: c.k.Call(c.t, method, path, c.key, body, headers...)}
}

func (c *derivation) shop(method, path, body string) keeptest.Answer {
	c.t.Helper()
	got := c.k.Call(c.t, method, path, c.shopKey, body)
	if got.Status >= 300 {
		c.t.Fatalf("%s %s of the shop = %s", method, path, got)
	}
	return got
}

func (c *derivation) proxy(more string) (p api.Proxy) {
	c.t.Helper()
	c.k.Call(c.t, "POST", "/proxies", c.manager, `{"name":"p","destination_url":"`+c.to.url+`",`+more+`}`).Into(c.t, 201, &p)
	return p
}

func (c *derivation) forwarded(p api.Proxy) response {
	c.t.Helper()
	c.to.take()
	r := c.call("POST", "/proxy", `{"id":"`+c.id+`","token":"{{ token: `+c.id+` }}","n":"{{ `+c.id+` }}"}`, api.Header(api.DefaultPrefix, api.ProxyKey), p.Key)
	r.received = c.to.take()
	return r
}

// plant replaces the token by an equal one that a public application made.
func (c *derivation) plant() {
	c.t.Helper()
	c.shop("DELETE", "/tokens/"+c.id, "")
	maker := c.k.Application(c.t, c.tenant, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}})
	var made api.Token
	c.k.Call(c.t, "POST", "/tokens", maker.Key, derivedCard(`"metadata":{"order":"`+deriveOrder+`"}`)).Into(c.t, 201, &made)
	c.id = made.ID
	c.before = c.shop("GET", "/tokens/"+c.id, "").Body
}

// rules are those of a caller under a transform.
func (c *derivation) rules(transform string) []api.Rule {
	if transform == "none" {
		return []api.Rule{{Container: "/elsewhere/", Transform: "reveal", Permissions: []string{c.operation.permission}}}
	}
	return []api.Rule{{Container: "/", Transform: transform, Permissions: []string{c.operation.permission}}}
}

// grant gives the application that holds the transform another one.
func (c *derivation) grant(transform string) {
	c.t.Helper()
	if c.kind == byManagement || c.kind == byPublic {
		return
	}
	id := c.named
	if c.kind == byLesser {
		id = c.lesserOf
	}
	body, err := json.Marshal(api.ReplaceApplication{Name: "caller", Permissions: c.operation.also, Rules: c.rules(transform)})
	if err != nil {
		c.t.Fatal(err)
	}
	if got := c.k.Call(c.t, "PUT", "/applications/"+id, c.manager, string(body)); got.Status != 200 {
		c.t.Fatalf("PUT /applications/{id} = %s", got)
	}
}

var tokenPermissions = []string{"token:create", "token:read", "token:update", "token:delete", "token:search", "token:use"}

// begin makes the tenant, the token and the caller.
func (c *derivation) begin() {
	c.t.Helper()
	made := c.k.Tenant(c.t)
	c.tenant, c.manager = made.Tenant.ID, made.Application.Key
	c.shopKey = c.k.Application(c.t, c.tenant, api.CreateApplication{Type: "private", Permissions: []string{"token:create", "token:update", "token:delete"},
		Rules: []api.Rule{{Container: "/", Transform: "reveal", Permissions: []string{"token:read"}}}}).Key
	var token api.Token
	c.k.Call(c.t, "POST", "/tokens", c.shopKey, derivedCard(`"metadata":{"order":"`+deriveOrder+`"}`)).Into(c.t, 201, &token)
	c.id = token.ID
	read := c.shop("GET", "/tokens/"+c.id, "")
	c.before = read.Body
	read.Into(c.t, 200, &token)
	if c.fingerprint = token.Fingerprint; c.fingerprint == "" {
		c.t.Fatal("the shop does not see the fingerprint")
	}
	holder := api.CreateApplication{Type: "private", Permissions: c.operation.also, Rules: c.rules(c.transform)}
	switch c.kind {
	case byPrivate:
		a := c.k.Application(c.t, c.tenant, holder)
		c.key, c.named = a.Key, a.ID
	case byPublic:
		in := api.CreateApplication{Type: "public", Permissions: []string{"token:create", "token:update"}}
		if p := c.operation.permission; p == "token:create" || p == "token:update" {
			in = api.CreateApplication{Type: "public", Rules: c.rules(c.transform)}
		}
		a := c.k.Application(c.t, c.tenant, in)
		c.key, c.named = a.Key, a.ID
	case byManagement, byNobody:
		if c.operation.permission == "token:create" || c.operation.permission == "token:update" {
			holder.Permissions, holder.Rules = tokenPermissions, nil
		}
		c.named = c.k.Application(c.t, c.tenant, holder).ID
		if c.kind == byManagement {
			c.key = c.k.Application(c.t, c.tenant, api.CreateApplication{Type: "management", Permissions: []string{"application:read", "proxy:read", "log:read"}}).Key
		}
	case bySession, byLesser:
		c.session(holder)
	}
}

// session makes a session that holds the transform, or one that holds
// everything and whose authorizer then loses what the transform lacks.
func (c *derivation) session(holder api.CreateApplication) {
	c.t.Helper()
	maker := c.k.Application(c.t, c.tenant, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}})
	all := api.CreateApplication{Type: "private", Permissions: tokenPermissions,
		Rules: []api.Rule{{Container: "/", Transform: "reveal", Permissions: []string{"token:read", "token:search", "token:use"}}}}
	authorizer := c.k.Application(c.t, c.tenant, all)
	c.named = authorizer.ID
	var session api.CreatedSession
	c.k.Call(c.t, "POST", "/sessions", maker.Key, "").Into(c.t, 201, &session)
	in := api.AuthorizeSession{Nonce: session.Nonce, Permissions: holder.Permissions, Rules: holder.Rules}
	if c.kind == byLesser {
		in.Permissions, in.Rules = all.Permissions, all.Rules
	}
	body, err := json.Marshal(in)
	if err != nil {
		c.t.Fatal(err)
	}
	if got := c.k.Call(c.t, "POST", "/sessions/authorize", authorizer.Key, string(body)); got.Status != 200 {
		c.t.Fatalf("the authorization = %s", got)
	}
	c.key = session.SessionKey
	if c.kind == byLesser {
		c.lesserOf = authorizer.ID
		c.grant(c.transform)
	}
}

// shown says how much of the token a text shows, in the words of the cells.
func (c *derivation) shown(text string) (words string) {
	switch {
	case strings.Contains(text, deriveNumber) || strings.Contains(text, otherNumber):
		words = "reveal"
	case strings.Contains(text, deriveMasked) || strings.Contains(text, otherMasked):
		words = "mask"
	case strings.Contains(text, deriveOrder) || strings.Contains(text, "reveal_last"):
		words = "redact"
	case strings.Contains(text, `"id"`):
		words = "nothing"
	default:
		words = "absent"
	}
	return words
}

// blind says that the caller may not read the token at all.
func (c *derivation) blind() bool {
	reads := c.operation.permission == "token:read" || c.operation.permission == "token:search" || c.operation.permission == "token:use"
	return c.kind == byPublic || c.kind == byManagement || !reads || c.transform == "none" && !slices.Contains(c.operation.also, "token:search")
}

// check runs the operation and compares it with its cell.
func (c *derivation) check(want string) {
	c.t.Helper()
	got := c.operation.run(c)
	text := got.Body
	if got.received != "" {
		text = got.received
	}
	said := fmt.Sprint(got.Status)
	if got.Status < 300 {
		words := c.shown(text)
		if strings.Contains(c.operation.name, "deduplicating") {
			which := "new "
			if strings.Contains(text, c.id) {
				which = "same "
			}
			if words == "redact" && strings.Contains(want, "mask") || words == "nothing" {
				words = "redact" // its own request has no metadata
			}
			words = which + words
		}
		if strings.Contains(text, `"fingerprint":"`) {
			words += "+f"
		}
		said += " " + words
	}
	for _, status := range got.allowed {
		if got.Status == status && strings.HasSuffix(want, "nothing") {
			return
		}
	}
	if !slices.Contains(strings.Split(want, "|"), said) {
		c.t.Errorf("%s by a %s under %s = %s, want %s\n%s %s", c.operation.name, c.kind, c.transform, said, want, got, got.received)
	}
	if c.blind() && strings.Contains(text, deriveOrder) {
		c.t.Errorf("%s by a %s under %s shows the metadata of the token: %s", c.operation.name, c.kind, c.transform, text)
	}
	if got.Status >= 300 {
		if after := c.k.Call(c.t, "GET", "/tokens/"+c.id, c.shopKey, ""); after.Status == 200 && after.Body != c.before && !strings.Contains(c.operation.name, "replay") {
			c.t.Errorf("%s by a %s under %s was refused and changed the token:\n%s, was\n%s", c.operation.name, c.kind, c.transform, after.Body, c.before)
		}
	}
}

// unwatched is a test whose server's responses are not compared with
// api/openapi.yaml: that would take most of the time, and others do it.
type unwatched struct{ testing.TB }

// TestOnlyCallersWhoMayReadDerive has a row for every operation that makes something
// visible out of stored data, for every kind of caller and every transform.
func TestOnlyCallersWhoMayReadDerive(t *testing.T) {
	k, to := keeptest.Start(unwatched{t}, keeptest.Options{}), newArrivals(t)
	for _, o := range operations {
		t.Run(o.name, func(t *testing.T) {
			for kind, row := range o.want {
				for i, transform := range transforms {
					t.Run(kind+" under "+transform, func(t *testing.T) {
						if kind == byLesser || kind == byManagement {
							storetest.Long(t)
						}
						c := &derivation{t: t, k: k, to: to, operation: o, kind: kind, transform: transform}
						c.begin()
						c.check(row[i])
					})
				}
			}
		})
	}
}

// TestADerivingChangeIsNamedInTheLog: the entry says what was changed.
func TestADerivingChangeIsNamedInTheLog(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{})
	for body, want := range map[string]string{
		`{"mask":null}`: "Token mask changed", `{"containers":["/other/"]}`: "Token moved to other containers",
	} {
		c := &derivation{t: t, k: k, operation: operation{permission: "token:read", also: []string{"token:update"}}, kind: byPrivate, transform: "reveal"}
		c.begin()
		if got := c.call("PATCH", "/tokens/"+c.id, body); got.Status != 200 {
			t.Fatalf("PATCH %s = %s", body, got)
		}
		var log api.List[api.LogEntry]
		k.Call(t, "GET", "/logs?entity_id="+c.id, c.manager, "").Into(t, 200, &log)
		var messages []string
		for _, e := range log.Data {
			messages = append(messages, e.Message)
		}
		if !strings.Contains(strings.Join(messages, "\n"), want) {
			t.Errorf("the log of the token has %q after PATCH %s, want %q", messages, body, want)
		}
	}
}

// TestAResultOfAReactorShowsWhatItsCallerMayUse has the rows of the operation
// that takes code to run.
func TestAResultOfAReactorShowsWhatItsCallerMayUse(t *testing.T) {
	folder := runtimetest.Find(t).Folder
	k := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"sandbox.level": "full", "sandbox.runtime": folder, "sandbox.blank": "1"}})
	row := cells{"403", "403", "200 mask", "200 reveal"}
	o := operation{name: "reactor result", permission: "token:use", run: func(c *derivation) response {
		var reactor api.Reactor
		c.k.Call(c.t, "POST", "/reactors", c.manager,
			`{"name":"echo","code":"module.exports = async (req) => ({ raw: { id: 1, n: req.args.n } })","configuration":{}}`).Into(c.t, 201, &reactor)
		started := c.call("POST", "/reactors/"+reactor.ID+"/react-async", `{"args":{"n":"{{ `+c.id+` }}"}}`)
		if started.Status != 202 {
			return started
		}
		var run api.AsyncReactor
		started.Into(c.t, 202, &run)
		path := "/reactors/" + reactor.ID + "/results/" + run.AsyncReactorRequestID
		var got response
		waittest.Until(c.t, "the result is there", func() bool {
			got = c.call("GET", path, "")
			return got.Status != 404
		})
		other := c.k.Application(c.t, c.tenant, api.CreateApplication{Type: "private", Permissions: []string{"token:use"}})
		if theirs := c.k.Call(c.t, "GET", path, other.Key, ""); theirs.Status != 404 {
			c.t.Errorf("the result for another application = %s, want 404", theirs)
		}
		var log api.List[api.LogEntry]
		c.k.Call(c.t, "GET", "/logs?size=100", c.manager, "").Into(c.t, 200, &log)
		trace := got.Header.Get(api.Header(api.DefaultPrefix, api.TraceID))
		named := false
		for _, e := range log.Data {
			named = named || e.TraceID == trace
		}
		if !named {
			c.t.Error("the log has no entry of the read of a result")
		}
		return got
	}, want: map[string]cells{byPublic: same("403"), byPrivate: row, bySession: row, byLesser: row, byManagement: same("403")}}
	for kind, row := range o.want {
		for i, transform := range transforms {
			t.Run(kind+" under "+transform, func(t *testing.T) {
				c := &derivation{t: t, k: k, operation: o, kind: kind, transform: transform}
				c.begin()
				c.check(row[i])
			})
		}
	}
}
