package idempotency_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// town is an installation of one or two servers, with a tenant.
type town struct {
	nodes                       []*keeptest.Server
	clock                       *clocktest.Clock
	public, private, management string // keys
}

// onTowns runs a test on one server with the embedded store, and on two servers
// over one database.
func onTowns(t *testing.T, test func(t *testing.T, w town)) {
	t.Run("sqlite", func(t *testing.T) { test(t, newTown(t, 1, "")) })
	t.Run("postgres", func(t *testing.T) { test(t, newTown(t, 2, pgtest.Database(t))) })
}

func newTown(t *testing.T, servers int, storeURL string) (w town) {
	t.Helper()
	w.clock = clocktest.New(time.Date(2031, 5, 6, 7, 8, 0, 0, time.UTC))
	kek := filepath.Join(t.TempDir(), "kek.json")
	if _, err := localkms.Generate(kek); err != nil {
		t.Fatal(err)
	}
	for range servers {
		w.nodes = append(w.nodes, keeptest.Start(t, keeptest.Options{
			StoreURL: storeURL, Now: w.clock.Now, Settings: map[string]string{"kek.file": kek},
		}))
	}
	tenant := w.nodes[0].Tenant(t)
	id := tenant.Tenant.ID
	w.management = tenant.Application.Key
	w.public = w.nodes[0].Application(t, id, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}}).Key
	w.private = w.nodes[0].Application(t, id, api.CreateApplication{Type: "private", Permissions: []string{"token:create", "token:read", "token:use"}}).Key
	return w
}

// together sends n requests at the same moment, to one node after another.
func (w town) together(t *testing.T, n int, path, key string, body func(i int) string, headers ...string) []keeptest.Answer {
	t.Helper()
	answers := make([]keeptest.Answer, n)
	var begin, done sync.WaitGroup
	begin.Add(1)
	for i := range n {
		done.Go(func() {
			begin.Wait()
			answers[i] = w.nodes[i%len(w.nodes)].Call(t, "POST", path, key, body(i), headers...)
		})
	}
	begin.Done()
	done.Wait()
	return answers
}

func (w town) session(t *testing.T) (made api.CreatedSession) {
	t.Helper()
	w.nodes[0].Call(t, "POST", "/sessions", w.public, "").Into(t, 201, &made)
	return made
}

func authorization(nonce string) string {
	return fmt.Sprintf(`{"nonce":%q,"permissions":["token:read"]}`, nonce)
}

func idempotencyKey(value string) []string {
	return []string{api.Header(api.DefaultPrefix, api.IdempotencyKey), value}
}

func TestOneOfAHundredAuthorizationsOfANonceCounts(t *testing.T) {
	storetest.Long(t)
	onTowns(t, func(t *testing.T, w town) {
		made := w.session(t)
		statuses := map[int]int{}
		for _, a := range w.together(t, 100, "/sessions/authorize", w.private, func(int) string { return authorization(made.Nonce) }) {
			statuses[a.Status]++
			if a.Status == 409 && !strings.Contains(a.Body, "the nonce was used already") {
				t.Errorf("a refusal is %s", a)
			}
		}
		if statuses[200] != 1 || statuses[409] != 99 {
			t.Errorf("the statuses are %v, want one 200 and 99 times 409", statuses)
		}
		for i, n := range w.nodes {
			if a := n.Call(t, "GET", "/tokens", made.SessionKey, ""); a.Status != 200 {
				t.Errorf("node %d: the session = %s, want 200", i, a)
			}
		}
	})
}

// Requests with one key that meet get one answer, or are told to come back.
// Those whose effect is in the way of the others' are no exception.
func TestRequestsWithOneKeyThatMeetAreAnsweredAlike(t *testing.T) {
	onTowns(t, func(t *testing.T, w town) {
		const callers = 20
		rounds := int64(storetest.Rounds(5, 50))
		for round := range rounds {
			made := w.session(t)
			for name, r := range map[string]struct {
				path, key string
				status    int
				body      func(i int) string
			}{
				"a token": {"/tokens", w.private, 201, func(i int) string {
					return fmt.Sprintf(`{"type":"token","data":"%d"}`, i)
				}},
				"a token with an id": {"/tokens", w.private, 201, func(i int) string {
					return fmt.Sprintf(`{"id":"chosen-%d","type":"token","data":"%d","metadata":{"note":"<&>"}}`, round, i)
				}},
				"many tokens":      {"/tokenize", w.private, 200, func(i int) string { return fmt.Sprintf(`["%d","b"]`, i) }},
				"a session":        {"/sessions", w.public, 201, func(int) string { return "" }},
				"an authorization": {"/sessions/authorize", w.private, 200, func(int) string { return authorization(made.Nonce) }},
				"an application": {"/applications", w.management, 201, func(i int) string {
					return fmt.Sprintf(`{"name":"%d","type":"public","permissions":["token:create"]}`, i)
				}},
				"a callback secret": {"/tenants/self/callback-secret", w.management, 200, func(int) string { return "" }},
			} {
				key := idempotencyKey(fmt.Sprint(name, " under a key that is long enough ", round))
				answers := w.together(t, callers, r.path, r.key, r.body, key...)
				// Once more, when all is over.
				for _, n := range w.nodes {
					answers = append(answers, n.Call(t, "POST", r.path, r.key, r.body(callers), key...))
				}
				first, last := 0, answers[len(answers)-1]
				for i, a := range answers {
					switch replayed := a.Header.Get(api.Header(api.DefaultPrefix, api.IdempotentReplayed)) == "true"; {
					case a.Status == 409 && a.Header.Get("Retry-After") == "1" && i < callers:
					case a.Status != r.status || a.Body != last.Body || a.Header.Get("Location") != last.Header.Get("Location"):
						t.Errorf("%s: caller %d got %s, the last one %s", name, i, a, last)
					case !replayed:
						first++
					}
				}
				if first != 1 {
					t.Errorf("%s: %d callers were told that they were first, want 1", name, first)
				}
			}
		}
		// What the losers were about to do is nowhere.
		var list api.List[json.RawMessage]
		w.nodes[0].Call(t, "GET", "/tokens", w.private, "").Into(t, 200, &list)
		if list.Pagination.TotalItems != rounds*(1+1+2) {
			t.Errorf("there are %d tokens, want %d", list.Pagination.TotalItems, rounds*(1+1+2))
		}
		w.nodes[0].Call(t, "GET", "/applications", w.management, "").Into(t, 200, &list)
		if list.Pagination.TotalItems != 3+rounds {
			t.Errorf("there are %d applications, want %d", list.Pagination.TotalItems, 3+rounds)
		}
		w.nodes[0].Call(t, "GET", "/sessions", w.management, "").Into(t, 200, &list)
		if list.Pagination.TotalItems != rounds+rounds {
			t.Errorf("there are %d sessions, want %d", list.Pagination.TotalItems, rounds+rounds)
		}
		for operation, want := range map[string]int64{"create": rounds + rounds, "update": rounds} {
			if got := entriesOf(t, w, "session", operation); got != want {
				t.Errorf("the log has %d entries of sessions with %s, want %d", got, operation, want)
			}
		}
	})
}

func entriesOf(t *testing.T, w town, entity, operation string) (n int64) {
	t.Helper()
	for page := 1; ; page++ {
		var list api.List[api.LogEntry]
		w.nodes[0].Call(t, "GET", fmt.Sprintf("/logs?entity_type=%s&size=100&page=%d", entity, page), w.management, "").Into(t, 200, &list)
		for _, e := range list.Data {
			if e.Operation == operation && e.EntityID != "*" && e.Outcome == "allowed" {
				n++
			}
		}
		if len(list.Data) < 100 {
			return n
		}
	}
}

func TestASessionIsDeadASecondLaterOnEveryNode(t *testing.T) {
	onTowns(t, func(t *testing.T, w town) {
		status := func(key string) (list []int) {
			for _, n := range w.nodes {
				for range 2 { // the second time with all that a node remembers
					list = append(list, n.Call(t, "GET", "/tokens", key, "").Status)
				}
			}
			return list
		}
		all := func(name string, key string, want int) {
			t.Helper()
			for _, got := range status(key) {
				if got != want {
					t.Errorf("%s: a request with the session's key = %d, want %d", name, got, want)
				}
			}
		}
		live := func() (api.CreatedSession, string) {
			made := w.session(t)
			if a := w.nodes[0].Call(t, "POST", "/sessions/authorize", w.private, authorization(made.Nonce)); a.Status != 200 {
				t.Fatalf("authorize = %s", a)
			}
			all("authorized", made.SessionKey, 200)
			var list api.List[api.Session]
			w.nodes[0].Call(t, "GET", "/sessions", w.management, "").Into(t, 200, &list)
			for _, s := range list.Data {
				if strings.HasPrefix(made.SessionKey, strings.TrimRight(s.Prefix, ".…")) && s.AuthorizedBy != "" {
					return made, s.ID
				}
			}
			t.Fatal("the session is not in the list")
			return made, ""
		}
		expiring, _ := live()
		w.clock.Advance(3*time.Minute - time.Millisecond)
		all("just before it expires", expiring.SessionKey, 200)
		w.clock.Advance(time.Millisecond)
		all("when it expires", expiring.SessionKey, 401)

		deleted, id := live()
		last := w.nodes[len(w.nodes)-1]
		if a := last.Call(t, "DELETE", "/sessions/"+id, w.management, ""); a.Status != 204 {
			t.Fatalf("delete = %s", a)
		}
		all("deleted", deleted.SessionKey, 401)
		if a := w.nodes[0].Call(t, "POST", "/sessions/authorize", w.private, authorization(deleted.Nonce)); a.Status != 404 {
			t.Errorf("authorize a deleted session = %s, want 404", a)
		}
	})
}
