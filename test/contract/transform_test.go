package contract_test

import (
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
)

// transformWalk is a tenant with a card "card" and applications that read it
// with reveal, with mask and with redact.
func transformWalk(t *testing.T) *walk {
	t.Helper()
	w := newWalk(t)
	for _, transform := range []string{"reveal", "mask", "redact"} {
		w.names[transform] = w.server.Application(t, w.tenant, api.CreateApplication{Type: "private", Permissions: []string{"token:create"}, Rules: []api.Rule{
			{Container: "/", Transform: transform, Permissions: []string{"token:read", "token:search"}},
		}}).Key
	}
	w.names["stranger"] = w.server.Application(t, w.server.Tenant(t).Tenant.ID, private("token:read", "token:search")).Key
	w.server.Call(t, "POST", "/tokens", w.names["reveal"],
		`{"id":"card","type":"card","data":{"number":"`+visa+`","cvc":"123"},"metadata":{"order":"7"},"search_indexes":["{{ data.number }}"]}`).Into(t, 201, new(api.Token))
	return w
}

// TestAskingForLess asks in every way for every transform: what is shown is the
// lesser of what was asked for and what the rules allow.
func TestAskingForLess(t *testing.T) {
	w := transformWalk(t)
	shown := func(body string) string {
		switch {
		case !strings.Contains(body, `"id":"card"`):
			return "nothing"
		case strings.Contains(body, visa):
			return "reveal"
		case strings.Contains(body, "XXXXXXXXXXXX4242"):
			return "mask"
		}
		return "redact"
	}
	rank := map[string]int{"redact": 0, "mask": 1, "reveal": 2}
	for rule := range rank {
		for asked := range rank {
			want := rule
			if rank[asked] < rank[rule] {
				want = asked
			}
			for _, call := range []struct{ method, path, body string }{
				{"GET", "/tokens/card?transform=", ""}, {"GET", "/tokens?transform=", ""}, {"GET", "/v2/tokens?transform=", ""},
				{"POST", "/tokens/search?transform=", `{"query":"metadata.order:7"}`}, {"POST", "/v2/tokens/search?transform=", `{"query":"metadata.order:7"}`},
			} {
				got := w.server.Call(t, call.method, call.path+asked, w.names[rule], call.body)
				if got.Status != 200 || shown(got.Body) != want || strings.Contains(got.Body, `"fingerprint":`) != (want == "reveal") ||
					strings.Contains(got.Body, `"cvc":"123"`) != (want == "reveal") || strings.Contains(got.Body, `"card":{`) != (want != "redact") {
					t.Errorf("%s %s%s under a rule that allows %s = %s, want %s", call.method, call.path, asked, rule, got, want)
				}
			}
			found := "nothing"
			if want != "redact" {
				found = want // a match tells data
			}
			for _, path := range []string{"/tokens/search?transform=", "/v2/tokens/search?transform="} {
				if got := w.server.Call(t, "POST", path+asked, w.names[rule], `{"query":"data:`+visa+`"}`); got.Status != 200 || shown(got.Body) != found {
					t.Errorf("POST %s%s by data under a rule that allows %s = %s, want %s", path, asked, rule, got, found)
				}
			}
			if got := w.server.Call(t, "GET", "/tokens?transform="+asked, w.names["stranger"], ""); got.Status != 200 || shown(got.Body) != "nothing" {
				t.Errorf("another tenant lists %s", got)
			}
		}
	}
	if got := w.server.Call(t, "GET", "/tokens/card?transform=reveal", w.names["stranger"], ""); got.Status != 404 {
		t.Errorf("another tenant reads %s", got)
	}
}

// TestAskingForLessWithAFingerprint filters by a fingerprint that the rules
// show and the request does not ask for.
func TestAskingForLessWithAFingerprint(t *testing.T) {
	w := transformWalk(t)
	var card api.Token
	w.server.Call(t, "GET", "/tokens/card", w.names["reveal"], "").Into(t, 200, &card)
	count := func(asked string) int {
		var page api.List[api.Token]
		w.server.Call(t, "GET", "/tokens?fingerprint="+card.Fingerprint+"&transform="+asked, w.names["reveal"], "").Into(t, 200, &page)
		if int(page.Pagination.TotalItems) != len(page.Data) {
			t.Errorf("transform=%s counts %d and shows %d", asked, page.Pagination.TotalItems, len(page.Data))
		}
		return len(page.Data)
	}
	for asked, want := range map[string]int{"reveal": 1, "mask": 0, "redact": 0} {
		if got := count(asked); got != want {
			t.Errorf("by fingerprint with transform=%s there are %d, want %d", asked, got, want)
		}
	}
	w.server.Call(t, "PUT", "/tenants/self", w.manager.Key, `{"name":"x","settings":{"masked_fingerprints":"true","fingerprint_tokens":"true"}}`).Into(t, 200, new(api.Tenant))
	for asked, want := range map[string]int{"reveal": 1, "mask": 1, "redact": 0} {
		if got := count(asked); got != want {
			t.Errorf("by fingerprint with transform=%s and masked_fingerprints there are %d, want %d", asked, got, want)
		}
	}
}

func TestABadTransformIsRefused(t *testing.T) {
	w := transformWalk(t)
	for _, value := range []string{"", "Mask", "none", "nothing", visa} {
		for _, call := range []step{
			{call: "GET /tokens/card?transform="}, {call: "GET /tokens?transform="}, {call: "GET /v2/tokens?transform="},
			{call: "POST /tokens/search?transform=", body: `{"query":"id:card"}`}, {call: "POST /v2/tokens/search?transform=", body: `{"query":"id:card"}`},
		} {
			call.call, call.key, call.status, call.want = call.call+value, "reveal", 400, refused("transform", "must be redact, mask or reveal")
			w.step(call)
		}
	}
}
