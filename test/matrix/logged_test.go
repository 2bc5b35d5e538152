package matrix_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// unlogged are the rows of the table that make no entry, with the reason. The
// open rows make none either: they know no tenant.
var unlogged = map[string]string{
	"GET /permissions":       "the list is the same for every tenant",
	"GET /members/self":      "it shows the caller to itself",
	"GET /logs/entity-types": "the list is the same for every tenant",
}

// resultRow shows what a run came to, to the caller that asked for it.
const resultRow = "GET /reactors/{id}/results/{request_id}"

// entriesOf returns the entries of one call, as "outcome entity_type entity_id
// operation message".
func entriesOf(t *testing.T, s store.Store, tenant string, a keeptest.Answer) (list []string) {
	t.Helper()
	for _, e := range logOf(t, s, tenant) {
		if e.TraceID == a.Header.Get(api.Header(api.DefaultPrefix, api.TraceID)) {
			list = append(list, strings.Join([]string{e.Outcome, e.EntityType, e.EntityID, e.Operation, e.Message}, " "))
		}
	}
	return list
}

// TestEveryServedCallIsInTheLog walks the table: whatever is read, used or
// changed is in the log when the answer is there.
func TestEveryServedCallIsInTheLog(t *testing.T) {
	c := clocktest.New(time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC))
	k, opened := startWithStore(t, keeptest.Options{Now: c.Now})
	walked := 0
	for _, route := range k.Routes() {
		r, known := table[route.Pattern]
		if !known || unlogged[route.Pattern] != "" {
			continue
		}
		walked++
		t.Run(route.Pattern, func(t *testing.T) {
			s := &square{t: t, k: k, store: opened, clock: c, route: route, row: r, first: k.Tenant(t)}
			tenant, kind := s.first.Tenant.ID, access.Private
			if r.holders != nil {
				kind = r.holders[len(r.holders)-1]
			}
			caller := s.holder(tenant, kind, s.grant(kind))
			target, id := s.target(tenant)
			got := s.call(caller.Key, target, id)
			if route.Pattern == resultRow {
				got = s.finished(caller.Key, target)
			} else if got.Status != r.served {
				t.Fatalf("the answer is %s, want %d", got, r.served)
			}
			entries := entriesOf(t, opened, tenant, got)
			if len(entries) == 0 {
				t.Fatalf("the answer is %s, and nothing is in the log", got)
			}
			named := target
			switch {
			case strings.Contains(route.Pattern, "{key_id}"):
				named = id
			case !s.named() || strings.HasSuffix(route.Pattern, "/keys"), route.Pattern == "POST /sessions/authorize", route.Pattern == "GET /names":
				named = "" // the caller named no one entity, or did so by a secret; a list of names is one entry
			}
			if all := strings.Join(entries, "\n"); !strings.HasPrefix(all, "allowed ") || !strings.Contains(all, " "+named) {
				t.Errorf("the log has\n%s\nwant what was done to %q", all, named)
			}
		})
	}
	if walked < 50 {
		t.Errorf("only %d rows were walked", walked)
	}
}

// finished asks for a run of a reactor and waits for what it comes to: an
// error, as no code runs here.
func (s *square) finished(key, reactor string) keeptest.Answer {
	s.t.Helper()
	s.k.Client.Transport.(interface{ Except(string) }).Except(resultRow) // its status is that of the run
	var run api.AsyncReactor
	s.k.Call(s.t, http.MethodPost, "/reactors/"+reactor+"/react-async", key, `{}`).Into(s.t, http.StatusAccepted, &run)
	var got keeptest.Answer
	waittest.Until(s.t, "the result is there", func() bool {
		got = s.call(key, reactor, run.AsyncReactorRequestID)
		if got.Status != http.StatusNotFound {
			return true
		}
		if entries := entriesOf(s.t, s.store, s.first.Tenant.ID, got); len(entries) > 0 {
			s.t.Errorf("a result that is not there yet is logged: %v", entries)
		}
		return false
	})
	return got
}

// TestALookThatFindsNoTokensIsInTheLog: that nothing is found, and how much
// there is, can be what somebody wants to know.
func TestALookThatFindsNoTokensIsInTheLog(t *testing.T) {
	k, opened := startWithStore(t, keeptest.Options{})
	made := k.Tenant(t)
	a := k.Application(t, made.Tenant.ID, api.CreateApplication{Type: "private", Permissions: []string{"token:create", "token:read", "token:search"}})
	for i := range 3 {
		k.Call(t, "POST", "/tokens", a.Key, fmt.Sprintf(`{"id":"tok-%d","type":"token","data":1}`, i)).Into(t, 201, &api.Token{})
	}
	const nothing = "allowed token * read Token retrieved"
	for name, test := range map[string]struct {
		method, path, body string
		want               string
	}{
		"a list":                      {"GET", "/tokens?id=none", "", nothing},
		"a list from a place":         {"GET", "/v2/tokens?type=card", "", nothing},
		"a page behind the last":      {"GET", "/tokens?page=7", "", nothing},
		"a search":                    {"POST", "/tokens/search", `{"query":"data:4242"}`, nothing},
		"a search from a place":       {"POST", "/v2/tokens/search", `{"query":"data:4242"}`, nothing},
		"a list that finds something": {"GET", "/tokens?id=tok-1", "", "allowed token tok-1 read Token retrieved"},
	} {
		got := k.Call(t, test.method, test.path, a.Key, test.body)
		if entries := entriesOf(t, opened, made.Tenant.ID, got); got.Status != 200 || len(entries) != 1 || entries[0] != test.want {
			t.Errorf("%s: the answer is %s, and the log has %q, want %q", name, got, entries, test.want)
		}
	}
}
