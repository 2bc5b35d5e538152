// Package counting_test checks that counting costs a server the same whatever
// the number of a tenant's containers, with one tenant that has very many beside
// one that has few.
package counting_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

func TestMain(m *testing.M) { os.Exit(keeptest.Run(m)) }

// counter counts what a store is asked for and the rows that it returns.
type counter struct {
	store.Store
	mu     sync.Mutex // guards all below
	groups int        // rows of TokenGroups
	rows   int        // of tokens
	counts int        // calls that count
	locked int        // those of them that hold the writer
	writes int        // updates of requests
}

func (c *counter) View(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	return c.Store.View(ctx, tenant, func(tx store.Tx) error { return fn(counted{tx, c, false}) })
}

func (c *counter) Read(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	return c.Store.Read(ctx, tenant, func(tx store.Tx) error { return fn(counted{tx, c, false}) })
}

func (c *counter) Update(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	if ctx.Value(http.LocalAddrContextKey) != nil { // a request has the context of a connection
		c.mu.Lock()
		c.writes++
		c.mu.Unlock()
	}
	return c.Store.Update(ctx, tenant, func(tx store.Tx) error { return fn(counted{tx, c, true}) })
}

func (c *counter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.groups, c.rows, c.counts, c.locked = 0, 0, 0, 0
}

func (c *counter) read() (groups, rows, counts, locked int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.groups, c.rows, c.counts, c.locked
}

type counted struct {
	store.Tx
	c      *counter
	writes bool
}

func (t counted) note(groups, rows, counts int) {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	t.c.groups, t.c.rows, t.c.counts = t.c.groups+groups, t.c.rows+rows, t.c.counts+counts
	if t.writes {
		t.c.locked += groups + counts
	}
}

func (t counted) TokenGroups(ctx context.Context) ([]store.TokenGroup, error) {
	list, err := t.Tx.TokenGroups(ctx)
	t.note(len(list), 0, 1)
	return list, err
}

func (t counted) Tokens(ctx context.Context, f store.TokenFilter, p store.Page) ([]store.Token, error) {
	list, err := t.Tx.Tokens(ctx, f, p)
	t.note(0, len(list), 0)
	return list, err
}

func (t counted) CountTokens(ctx context.Context, f store.TokenFilter) (int64, error) {
	t.note(f.Groups.Len(), 0, 1)
	return t.Tx.CountTokens(ctx, f)
}

func (t counted) CountTypes(ctx context.Context, now store.Time) (map[string]int64, error) {
	t.note(0, 0, 1)
	return t.Tx.CountTypes(ctx, now)
}

// tenant is a tenant with callers.
type tenant struct {
	server          *keeptest.Server
	id, key, report string
}

func newTenant(t *testing.T, s *keeptest.Server) tenant {
	t.Helper()
	id := s.Tenant(t).Tenant.ID
	return tenant{
		s, id,
		s.Application(t, id, api.CreateApplication{Name: "tokens", Type: "private", Permissions: []string{"token:create", "token:read", "token:search", "token:delete", "token:update"}}).Key,
		s.Application(t, id, api.CreateApplication{Name: "reports", Type: "management", Permissions: []string{"report:read"}}).Key,
	}
}

// fill creates one token in each of these containers.
func (n tenant) fill(t *testing.T, from, to int) keeptest.Answer {
	t.Helper()
	var items []string
	for i := from; i < to; i++ {
		items = append(items, fmt.Sprintf(`{"type":"token","data":"value %d","containers":["/c/%d/"]}`, i, i))
	}
	return n.server.Call(t, "POST", "/tokenize", n.key, "["+strings.Join(items, ",")+"]")
}

func TestCountingCostsTheSameHoweverManyContainersThereAre(t *testing.T) {
	c := &counter{}
	s := keeptest.Start(t, keeptest.Options{Store: func(s store.Store) store.Store { c.Store = s; return c }, Alone: true})
	few, many := newTenant(t, s), newTenant(t, s)
	const containers = 1000
	for n, to := range map[tenant]int{few: 25, many: containers} {
		for from := 0; from < to; from += 500 {
			if a := n.fill(t, from, min(to, from+500)); a.Status != 200 {
				t.Fatalf("tokenize: %s", a)
			}
		}
	}
	for _, call := range []struct{ name, method, path, body string }{
		{"the usage report", "GET", "/tenants/self/reports/usage", ""},
		{"a list", "GET", "/tokens?size=20", ""},
		{"a list that goes on from a place", "GET", "/v2/tokens?size=20", ""},
		{"a search", "POST", "/tokens/search", `{"query":"metadata.a:b"}`},
		{"a search for data", "POST", "/tokens/search", `{"query":"data:b"}`},
	} {
		t.Run(call.name, func(t *testing.T) {
			var cost [2]string
			for i, n := range []tenant{few, many} {
				key := n.key
				if strings.Contains(call.path, "usage") {
					key = n.report
				}
				c.reset()
				if a := s.Call(t, call.method, call.path, key, call.body); a.Status != 200 {
					t.Fatalf("%s %s: %s", call.method, call.path, a)
				}
				groups, rows, counts, locked := c.read()
				cost[i] = fmt.Sprintf("%d groups, %d tokens, %d counts", groups, rows, counts)
				if groups != 0 || locked != 0 {
					t.Errorf("%d groups were read, and %d counts held the writer; want none", groups, locked)
				}
			}
			if cost[0] != cost[1] {
				t.Errorf("with 25 containers it costs %s, with %d %s", cost[0], containers, cost[1])
			}
		})
	}
}

// TestReadsTakeNoUpdate: what only reads never waits for those who write.
func TestReadsTakeNoUpdate(t *testing.T) {
	c := &counter{}
	s := keeptest.Start(t, keeptest.Options{Store: func(s store.Store) store.Store { c.Store = s; return c }, Alone: true})
	n := newTenant(t, s)
	id := n.id
	manager := s.Application(t, id, api.CreateApplication{Name: "managers", Type: "management", Permissions: []string{
		"application:read", "tenant:read", "log:read", "reactor:read", "proxy:read", "session:read", "report:read",
	}})
	if a := s.Call(t, "POST", "/tokens", n.key, `{"id":"one","type":"token","data":"value"}`); a.Status != 201 {
		t.Fatalf("create: %s", a)
	}
	for _, call := range []struct {
		method, path, key, body string
		status                  int
	}{
		{"GET", "/tokens/one", n.key, "", 200},
		{"GET", "/tokens/two", n.key, "", 404},
		{"GET", "/tokens", n.key, "", 200},
		{"GET", "/v2/tokens", n.key, "", 200},
		{"POST", "/tokens/search", n.key, `{"query":"metadata.a:b"}`, 200},
		{"POST", "/detokenize", n.key, `{"a":"{{one}}"}`, 200},
		{"GET", "/tenants/self", manager.Key, "", 200},
		{"GET", "/tenants/self/reports/usage", n.report, "", 200},
		{"GET", "/applications", manager.Key, "", 200},
		{"GET", "/applications/" + manager.ID, manager.Key, "", 200},
		{"GET", "/applications/" + manager.ID + "/keys", manager.Key, "", 200},
		{"GET", "/sessions", manager.Key, "", 200},
		{"GET", "/reactors", manager.Key, "", 200},
		{"GET", "/proxies", manager.Key, "", 200},
		{"GET", "/logs", manager.Key, "", 200},
		{"GET", "/tokens/one", manager.Key, "", 403}, // which is logged too
	} {
		before := c.updates()
		if a := s.Call(t, call.method, call.path, call.key, call.body); a.Status != call.status {
			t.Errorf("%s %s: %s, want %d", call.method, call.path, a, call.status)
		}
		if n := c.updates() - before; n != 0 {
			t.Errorf("%s %s took %d updates, want none", call.method, call.path, n)
		}
	}
}

func (c *counter) updates() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}

func TestATenantHasABoundedNumberOfContainers(t *testing.T) {
	s := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"limits.containers": "5"}})
	attacker, other := newTenant(t, s), newTenant(t, s)
	if a := attacker.fill(t, 0, 5); a.Status != 200 {
		t.Fatalf("tokenize: %s", a)
	}
	refused := func(doing string, a keeptest.Answer) {
		t.Helper()
		a.CheckProblem(t)
		if a.Status != 409 || !strings.Contains(a.Body, `"code":"too_many_containers"`) {
			t.Errorf("%s: %s, want 409 too_many_containers", doing, a)
		}
	}
	create := func(n tenant, id, container string) keeptest.Answer {
		t.Helper()
		return n.server.Call(t, "POST", "/tokens", n.key, fmt.Sprintf(`{"id":%q,"type":"token","data":"x","containers":[%q]}`, id, container))
	}
	refused("a create", create(attacker, "more", "/more/"))
	refused("a tokenize", attacker.fill(t, 4, 6))
	if a := create(attacker, "one", "/c/0/"); a.Status != 201 {
		t.Errorf("a create in a container that has tokens: %s", a)
	}
	refused("a change", s.Call(t, "PATCH", "/tokens/one", attacker.key, `{"containers":["/c/0/","/more/"]}`, "Content-Type", "application/merge-patch+json"))

	// The other tenant has a bound of its own, and nothing of it is refused.
	for i := range 5 {
		if a := create(other, fmt.Sprint("token-", i), fmt.Sprintf("/other/%d/", i)); a.Status != 201 {
			t.Errorf("a create of the other tenant: %s", a)
		}
	}
	refused("a create of the other tenant beyond its own bound", create(other, "more", "/more/"))

	// The last token of a container takes it along.
	if a := s.Call(t, "DELETE", "/tokens/token-0", other.key, ""); a.Status != 204 {
		t.Errorf("delete: %s", a)
	}
	if a := create(other, "more", "/more/"); a.Status != 201 {
		t.Errorf("a create in the place of a container that went: %s", a)
	}
	var usage api.Usage
	s.Call(t, "GET", "/tenants/self/reports/usage", other.report, "").Into(t, 200, &usage)
	if usage.TotalTokens != 5 {
		t.Errorf("the other tenant has %d tokens, want 5", usage.TotalTokens)
	}
	if metrics := s.Metrics(t); !strings.Contains(metrics, `tokenkeep_limit_reached_total{limit="containers"}`) || strings.Contains(metrics, `tokenkeep_limit_reached_total{limit="containers"} 0`+"\n") && s.Nodes() == 1 {
		t.Error("the limit was reached, and is not counted")
	}
}
