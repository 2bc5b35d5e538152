package contract_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
)

// logWalk is a tenant with an application "server" and some entries about
// tokens named t-0, t-1 …, a second apart.
func logWalk(t *testing.T, tokens int) *walk {
	t.Helper()
	w := newWalk(t)
	w.names["server"] = w.server.Application(t, w.tenant, private("token:create", "token:read")).Key
	w.names["stranger"] = w.server.Tenant(t).Application.Key
	for i := range tokens {
		w.clock.Advance(time.Second)
		w.server.Call(t, "POST", "/tokens", w.names["server"], fmt.Sprintf(`{"id":"t-%d","type":"token","data":"x"}`, i)).Into(t, 201, new(api.Token))
	}
	return w
}

// TestPagesOfTheLogStandStill reads the log page by page, with the smallest
// pages: the reading itself must not move them.
func TestPagesOfTheLogStandStill(t *testing.T) {
	const tokens = 5
	w := logWalk(t, tokens)
	for _, filter := range []string{"", "&entity_type=token", "&start_date=2031-01-01", "&end_date=9999-12-31"} {
		seen, pages := map[string]bool{}, 0
		for number := 1; ; number++ {
			w.clock.Advance(time.Second)
			var page api.List[api.LogEntry]
			w.server.Call(t, "GET", fmt.Sprintf("/logs?size=1&page=%d%s", number, filter), w.manager.Key, "").Into(t, 200, &page)
			if pages == 0 {
				pages = int(page.Pagination.TotalPages)
			}
			if int(page.Pagination.TotalPages) != pages {
				t.Fatalf("page %d of /logs?%s is of %d, the first was of %d", number, filter, page.Pagination.TotalPages, pages)
			}
			if len(page.Data) == 0 {
				break
			}
			if e := page.Data[0]; seen[e.ID] || e.EntityType == "log" {
				t.Errorf("page %d of /logs?%s has %+v again, or an entry of reading the log", number, filter, e)
			} else {
				seen[e.ID] = true
			}
		}
		if len(seen) != pages || pages < tokens {
			t.Errorf("/logs?%s gave %d different entries in %d pages, want one each and at least %d", filter, len(seen), pages, tokens)
		}
	}
	var reads api.List[api.LogEntry]
	w.server.Call(t, "GET", "/logs?entity_type=log&size=100", w.manager.Key, "").Into(t, 200, &reads)
	if len(reads.Data) < tokens || reads.Data[0].Message != "Logs retrieved" || reads.Data[0].EntityID != "*" || reads.Pagination.TotalItems != int64(len(reads.Data)) {
		t.Errorf("entity_type=log gives %d entries of %d, first %+v; want one for each page read", len(reads.Data), reads.Pagination.TotalItems, reads.Data[0])
	}
}

// TestTheLogByCursorHasEachEntryOnce although entries are written between the
// parts, at its front and at the time of its last entry.
func TestTheLogByCursorHasEachEntryOnce(t *testing.T) {
	const tokens = 7
	w := logWalk(t, tokens)
	for filter, want := range map[string]int{"": tokens + 3, "&entity_type=token": tokens, "&entity_id=t-3": 1, "&entity_type=card": 0, "&end_date=2031-01-01": 0} {
		seen := map[string]bool{}
		var last time.Time
		for start, parts := "", 0; ; parts++ {
			var part api.ListFrom[api.LogEntry]
			w.server.Call(t, "GET", "/v2/logs?size=2&start="+start+filter, w.manager.Key, "").Into(t, 200, &part)
			for _, e := range part.Data {
				if seen[e.ID] || !last.IsZero() && e.CreatedAt.After(last) || e.EntityType == "log" {
					t.Errorf("/v2/logs?%s gives %+v twice, out of order, or an entry of reading the log", filter, e)
				}
				seen[e.ID], last = true, e.CreatedAt.Time
			}
			if part.Pagination.PageSize != 2 || parts > tokens+3 {
				t.Fatalf("part %d is %+v", parts, part.Pagination)
			}
			if start = part.Pagination.Next; start == "" {
				break
			}
			w.clock.Advance(time.Second)
			w.server.Call(t, "POST", "/tokens", w.names["server"], `{"type":"token","data":"y"}`).Into(t, 201, new(api.Token))
		}
		if got := len(seen); got < want || filter != "" && filter != "&entity_type=token" && got != want {
			t.Errorf("/v2/logs?%s gave %d entries, want %d", filter, got, want)
		}
	}
}

func TestTheLogByCursorIsRefused(t *testing.T) {
	w := logWalk(t, 3)
	var part api.ListFrom[api.LogEntry]
	w.server.Call(t, "GET", "/v2/logs?size=1", w.manager.Key, "").Into(t, 200, &part)
	var tokens api.ListFrom[api.Token]
	w.server.Call(t, "GET", "/v2/tokens?size=1", w.names["server"], "").Into(t, 200, &tokens)
	const words = "is not a cursor of this tenant's log"
	changed := []byte(part.Pagination.Next)
	changed[len(changed)/2] ^= 1
	for name, start := range map[string]string{"text": "x", "base64": "AAAA", "a cursor of tokens": tokens.Pagination.Next, "a changed cursor": string(changed), "a card number": "4242424242424242"} {
		w.step(step{name: name, call: "GET /v2/logs?start=" + url.QueryEscape(start), status: 400, want: refused("start", words)})
	}
	w.step(step{name: "another tenant's cursor", key: "stranger", call: "GET /v2/logs?start=" + part.Pagination.Next, status: 400, want: refused("start", words)})
	w.step(step{name: "a cursor of the log in a list of tokens", key: "server", call: "GET /v2/tokens?start=" + part.Pagination.Next, status: 400,
		want: refused("start", "is not a place in a list of this tenant")})
	w.step(step{name: "without log:read", key: "server", call: "GET /v2/logs", status: 403, want: problem(403, "missing permission log:read")})
	w.step(step{call: "GET /v2/logs?size=101", status: 400, want: refused("size", "must be a whole number from 1 to 100")})
	w.step(step{call: "GET /v2/logs?start_date=x", status: 400, want: `{"title":"One or more validation errors occurred.","status":400,"detail":"<text>","errors":{"start_date":["<text>"]}}`})
	var theirs api.ListFrom[api.LogEntry]
	w.server.Call(t, "GET", "/v2/logs?size=100", w.names["stranger"], "").Into(t, 200, &theirs)
	for _, e := range theirs.Data {
		if strings.HasPrefix(e.EntityID, "t-") || e.TenantID == w.tenant {
			t.Errorf("another tenant sees %+v", e)
		}
	}
}
