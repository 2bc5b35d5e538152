package contract_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
)

const visa = "4242424242424242"

// tokenWalk is a walk with applications for tokens: server sees everything,
// masked and redacted see less, browser may create, and stranger is another
// tenant's server.
func tokenWalk(t *testing.T) *walk {
	t.Helper()
	w := newWalk(t)
	every := []string{"token:create", "token:read", "token:update", "token:delete", "token:search"}
	add := func(name, tenant string, in api.CreateApplication) {
		a := w.server.Application(t, tenant, in)
		w.names[name], w.names[name+"_id"] = a.Key, a.ID
	}
	for name, transform := range map[string]string{"server": "reveal", "masked": "mask", "redacted": "redact"} {
		add(name, w.tenant, api.CreateApplication{Type: "private", Rules: []api.Rule{{Container: "/", Transform: transform, Permissions: every}}})
	}
	add("browser", w.tenant, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}})
	other := w.server.Tenant(t)
	add("stranger", other.Tenant.ID, api.CreateApplication{Type: "private", Rules: []api.Rule{{Container: "/", Transform: "reveal", Permissions: every}}})
	return w
}

const (
	cardMask = `{"number":"{{ data.number | reveal_last: 4 }}","expiration_month":"{{ data.expiration_month }}","expiration_year":"{{ data.expiration_year }}"}`
	cardSide = `{"bin":"42424242","last4":"4242","brand":"visa","expiration_month":12,"expiration_year":2030}`
	hidden   = `{"number":"XXXXXXXXXXXX4242","expiration_month":12,"expiration_year":2030}`
	inClear  = `{"number":"` + visa + `","expiration_month":12,"expiration_year":2030,"cvc":"123"}`
)

// cardToken is the answer for a card, with its data, side object and mask.
func cardToken(id string, members ...string) string {
	out := `{"id":"` + id + `","tenant_id":"{tenant}","type":"card","fingerprint":"<text>","fingerprint_expression":"{{ data.number }}",` +
		`"containers":["/pci/high/"],"created_by":"{server_id}","created_at":"<time>"`
	for _, m := range members {
		out += "," + m
	}
	return out + "}"
}

// withoutFingerprint is a token as callers see it who may not reveal it.
func withoutFingerprint(token string) string {
	return strings.Replace(token, `"fingerprint":"<text>",`, "", 1)
}

func TestTokens(t *testing.T) {
	w := tokenWalk(t)
	w.walk(
		step{name: "creating answers masked", key: "server", call: "POST /tokens", status: 201, location: "/tokens/card%201",
			body: `{"id":"card 1","type":"card","data":{"number":"` + visa + `","expiration_month":"12","expiration_year":2030,"cvc":123},"unknown":1}`,
			want: cardToken("card 1", `"data":`+hidden, `"card":`+cardSide, `"mask":`+cardMask)},
		step{name: "reading reveals where a rule does", key: "server", call: "GET /tokens/card%201", status: 200,
			want: cardToken("card 1", `"data":`+inClear, `"card":`+cardSide, `"mask":`+cardMask)},
		step{name: "the path may end with a slash", key: "server", call: "GET /tokens/card%201/", status: 200,
			want: cardToken("card 1", `"data":`+inClear, `"card":`+cardSide, `"mask":`+cardMask)},
		step{name: "or masks", key: "masked", call: "GET /tokens/card%201", status: 200,
			want: withoutFingerprint(cardToken("card 1", `"data":`+hidden, `"card":`+cardSide, `"mask":`+cardMask))},
		step{name: "or redacts", key: "redacted", call: "GET /tokens/card%201", status: 200, want: withoutFingerprint(cardToken("card 1", `"mask":`+cardMask))},
		step{name: "or refuses", key: "browser", call: "GET /tokens/card%201", status: 403,
			want: problem(403, "missing permission token:read")},
		step{name: "another tenant does not know it", key: "stranger", call: "GET /tokens/card%201", status: 404, want: problem(404, "no such token")},
		step{name: "a taken id", key: "server", call: "POST /tokens", status: 409, body: `{"id":"card 1","type":"token","data":1}`,
			want: problem(409, "a token with this id exists already")},
		step{name: "a wrong number", key: "server", call: "POST /tokens", status: 400, body: `{"type":"card","data":{"number":"4242424242424241"}}`,
			want: refused("data.number", "the card number is not valid: check it for a mistyped digit")},
		step{name: "a patch merges", key: "server", call: "PATCH /tokens/card%201", status: 200,
			body: `{"data":{"expiration_month":null},"metadata":{"tier":"Gold"},"expires_at":"5/6/2031 10:08:09 PM +02:00"}`,
			want: cardToken("card 1", `"data":{"number":"XXXXXXXXXXXX4242","expiration_year":2030}`,
				`"card":{"bin":"42424242","last4":"4242","brand":"visa","expiration_year":2030}`, `"mask":`+cardMask, `"metadata":{"tier":"Gold"}`,
				`"expires_at":"2031-05-06T22:08:09.000000+02:00"`, `"modified_by":"{server_id}","modified_at":"<time>"`)},
		step{name: "and the cvc is still there", key: "server", call: "GET /tokens/card%201", status: 200,
			want: cardToken("card 1", `"data":{"number":"`+visa+`","expiration_year":2030,"cvc":"123"}`,
				`"card":{"bin":"42424242","last4":"4242","brand":"visa","expiration_year":2030}`, `"mask":`+cardMask, `"metadata":{"tier":"Gold"}`,
				`"expires_at":"2031-05-06T22:08:09.000000+02:00"`, `"modified_by":"{server_id}","modified_at":"<time>"`)},
		step{name: "its type is for ever", key: "server", call: "PATCH /tokens/card%201", status: 400, body: `{"type":"token"}`, want: refused("type", "cannot be changed")},
		step{name: "another tenant cannot patch it", key: "stranger", call: "PATCH /tokens/card%201", status: 404, body: `{}`, want: problem(404, "no such token")},
		step{name: "nor delete it", key: "stranger", call: "DELETE /tokens/card%201", status: 404, want: problem(404, "no such token")},
		step{name: "without the permission", key: "browser", call: "DELETE /tokens/card%201", status: 403,
			want: problem(403, "missing permission token:delete")},
		step{name: "deleting", key: "server", call: "DELETE /tokens/card%201", status: 204},
		step{name: "it is gone", key: "server", call: "GET /tokens/card%201", status: 404, want: problem(404, "no such token")},
		step{name: "for whoever deletes it again", key: "server", call: "DELETE /tokens/card%201", status: 404, want: problem(404, "no such token")},
	)
	logs := w.server.Call(t, "GET", "/logs?entity_type=card&size=100", w.names["manager_key"], "")
	for _, message := range []string{"Token created", "Token retrieved", "Token updated", "Token deleted"} {
		if !strings.Contains(logs.Body, `"message":"`+message+`"`) {
			t.Errorf("the log does not say %s: %s", message, logs)
		}
	}
	if strings.Count(logs.Body, `"entity_id":"card 1","operation":"read","outcome":"denied","message":"Token read denied"`) != 1 ||
		strings.Count(logs.Body, `"entity_id":"card 1","operation":"delete","outcome":"denied","message":"Token delete denied"`) != 1 {
		t.Errorf("the log of what was refused is %s", logs)
	}
}

func TestPatchesMustSayThatTheyAre(t *testing.T) {
	w := tokenWalk(t)
	w.step(step{key: "server", call: "POST /tokens", status: 201, location: "/tokens/tok", body: `{"id":"tok","type":"token","data":"secret"}`,
		want: `{"id":"tok","tenant_id":"{tenant}","type":"token","data":"XXXret","fingerprint":"<text>","fingerprint_expression":"{{ data | stringify }}",` +
			`"containers":["/general/high/"],"created_by":"{server_id}","created_at":"<time>"}`})
	for contentType, want := range map[string]int{
		"application/json": 415, "text/plain": 415, "": 415, "application/merge-patch+json": 200, "application/merge-patch+json; charset=utf-8": 200,
	} {
		if got := w.server.Call(t, "PATCH", "/tokens/tok", w.names["server"], `{}`, "Content-Type", contentType); got.Status != want {
			t.Errorf("PATCH of the type %q = %s, want %d", contentType, got, want)
		}
	}
	if got := w.server.Call(t, "POST", "/tokens", w.names["server"], `{"type":"token","data":1}`, "Content-Type", "text/plain"); got.Status != 415 {
		t.Errorf("POST of plain text = %s, want 415", got)
	}
	if got := w.server.Call(t, "PUT", "/tokens/tok", w.names["server"], `{}`); got.Status != 405 || !strings.Contains(got.Header.Get("Allow"), "PATCH") {
		t.Errorf("PUT = %s, Allow %q, want 405", got, got.Header.Get("Allow"))
	}
}

// TestEveryAnswerIsOfTheWireType reads answers into the types that clients use
// and lets them have nothing more.
func TestEveryAnswerIsOfTheWireType(t *testing.T) {
	w := tokenWalk(t)
	made := w.server.Call(t, "POST", "/tokens", w.names["server"], `{"type":"card","data":`+inClear+`,"metadata":{"a":"b"},"search_indexes":["{{ data.number }}"],
		"expires_at":"1/1/2040","fingerprint_expression":"{{ data.number }}","containers":["/a/","/b/"]}`)
	strict := func(body string, v any) {
		t.Helper()
		d := json.NewDecoder(bytes.NewReader([]byte(body)))
		d.DisallowUnknownFields()
		if err := d.Decode(v); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
	var card, again api.Token
	strict(made.Body, &card)
	strict(w.server.Call(t, "PATCH", "/tokens/"+card.ID, w.names["server"], `{"metadata":{"c":"d"}}`).Body, &again)
	if card.Card == nil || card.Card.ExpirationYear != 2030 || again.Metadata["c"] != "d" || again.ModifiedBy == "" || card.ExpiresAt == "" || len(card.Containers) != 2 {
		t.Errorf("read as %+v and %+v", card, again)
	}
	var bank api.Token
	strict(w.server.Call(t, "POST", "/tokens", w.names["server"], `{"type":"bank","data":{"routing_number":"021000021","account_number":"00001234"}}`).Body, &bank)
	if bank.Bank == nil || bank.Bank.AccountNumberLast4 != "1234" {
		t.Errorf("read as %+v", bank)
	}
	var page api.List[api.Token]
	strict(w.server.Call(t, "GET", "/tokens", w.names["server"], "").Body, &page)
	var from api.ListFrom[api.Token]
	strict(w.server.Call(t, "GET", "/v2/tokens?size=1", w.names["server"], "").Body, &from)
	if len(page.Data) != 2 || len(from.Data) != 1 || from.Pagination.Next == "" || from.Pagination.PageSize != 1 {
		t.Errorf("read as %+v and %+v", page, from)
	}
	var sent bytes.Buffer
	yes := true
	if err := json.NewEncoder(&sent).Encode(api.CreateToken{Type: "token", Data: map[string]any{"x": 1}, DeduplicateToken: &yes}); err != nil {
		t.Fatal(err)
	}
	if got := w.server.Call(t, "POST", "/tokens", w.names["server"], sent.String()); got.Status != 201 {
		t.Errorf("%s = %s", sent.String(), got)
	}
}

func TestListingTokens(t *testing.T) {
	w := tokenWalk(t)
	for i, body := range []string{
		`"type":"card_number","data":"` + visa + `","metadata":{"tier":"gold","n":"0"}`,
		`"type":"token","data":"one","metadata":{"tier":"Gold","n":"1"},"search_indexes":["{{ data }}"]`,
		`"type":"token","data":"two"`,
	} {
		w.clock.Advance(time.Second)
		if got := w.server.Call(t, "POST", "/tokens", w.names["server"], fmt.Sprintf(`{"id":"t-%d",%s}`, i, body)); got.Status != 201 {
			t.Fatal(got)
		}
	}
	for query, want := range map[string]string{
		"": "t-2 t-1 t-0 of 3", "?size=2": "t-2 t-1 of 3", "?size=2&page=2": "t-0 of 3", "?page=9": " of 3",
		"?id=t-0&id=t-2&id=none": "t-0 t-2 of 2", "?type=token": "t-2 t-1 of 2", "?type=token&type=card_number": "t-2 t-1 t-0 of 3", "?type=nonsense": " of 0",
		"?metadata.tier=GOLD": "t-1 t-0 of 2", "?metadata.tier=gold&metadata.n=1": "t-1 of 1", "?metadata.n=1&metadata.n=0": "t-1 of 1",
		"?metadata[tier]=gold": "t-1 t-0 of 2", "?metadata%5Btier%5D=gold&metadata%5Bn%5D=0": "t-0 of 1", "?metadata.Tier=gold": " of 0",
		"?metadata=" + url.QueryEscape(`{"tier":"GOLD","n":"1"}`): "t-1 of 1", "?metadata.tier=gold&type=token": "t-1 of 1", "?unknown=1": "t-2 t-1 t-0 of 3",
		"?container=/pci/high/": "t-0 of 1", "?container=/PCI/*": "t-0 of 1", "?container=/pci/": " of 0", "?container=/general/*&metadata.tier=gold": "t-1 of 1", "?fingerprint=none": " of 0",
	} {
		var page api.List[api.Token]
		w.server.Call(t, "GET", "/tokens"+query, w.names["server"], "").Into(t, 200, &page)
		if got := idsOf(page.Data) + fmt.Sprintf(" of %d", page.Pagination.TotalItems); got != want {
			t.Errorf("GET /tokens%s = %s, want %s", query, got, want)
		}
	}
	for query, path := range map[string]string{"?size=0": "size", "?size=101": "size", "?page=0": "page", "?page=x": "page", "?metadata=x": "metadata", "?metadata=" + url.QueryEscape(`{"a":1}`): "metadata"} {
		got := w.server.Call(t, "GET", "/tokens"+query, w.names["server"], "")
		if got.Status != 400 || !strings.Contains(got.Body, `"errors":{"`+path+`"`) {
			t.Errorf("GET /tokens%s = %s, want 400 at %s", query, got, path)
		}
	}
	for _, key := range []string{"browser", "manager_key"} {
		if got := w.server.Call(t, "GET", "/tokens", w.names[key], ""); got.Status != 403 {
			t.Errorf("GET /tokens by %s = %s, want 403", key, got)
		}
	}
	var none api.List[api.Token]
	w.server.Call(t, "GET", "/tokens", w.names["stranger"], "").Into(t, 200, &none)
	if len(none.Data) != 0 || none.Pagination.TotalItems != 0 || none.Pagination.TotalPages != 0 {
		t.Errorf("another tenant lists %+v", none)
	}

	var seen []api.Token
	for start, i := "", 0; i < 5; i++ {
		var from api.ListFrom[api.Token]
		w.server.Call(t, "GET", "/v2/tokens?size=1&start="+start, w.names["server"], "").Into(t, 200, &from)
		seen = append(seen, from.Data...)
		if start = from.Pagination.Next; start == "" {
			break
		}
		if got := w.server.Call(t, "GET", "/v2/tokens?start="+start, w.names["stranger"], ""); got.Status != 400 {
			t.Errorf("another tenant's place = %s, want 400", got)
		}
	}
	if idsOf(seen) != "t-2 t-1 t-0" {
		t.Errorf("from place to place: %s", idsOf(seen))
	}

	for body, want := range map[string]string{
		`{"query":"data:ONE"}`: "t-1 of 1", `{"query":"metadata.tier:gold","size":1,"page":2}`: "t-0 of 2", `{"query":"NOT type:token","page":null}`: "t-0 of 1",
	} {
		var page api.List[api.Token]
		w.server.Call(t, "POST", "/tokens/search", w.names["server"], body).Into(t, 200, &page)
		if got := idsOf(page.Data) + fmt.Sprintf(" of %d", page.Pagination.TotalItems); got != want {
			t.Errorf("search %s = %s, want %s", body, got, want)
		}
	}
	var first, second api.ListFrom[api.Token]
	w.server.Call(t, "POST", "/v2/tokens/search", w.names["server"], `{"query":"type:token","size":1}`).Into(t, 200, &first)
	w.server.Call(t, "POST", "/v2/tokens/search", w.names["server"], `{"query":"type:token","size":1,"start":"`+first.Pagination.Next+`"}`).Into(t, 200, &second)
	if idsOf(first.Data)+idsOf(second.Data) != "t-2t-1" || second.Pagination.Next != "" {
		t.Errorf("search from place to place: %+v, %+v", first, second)
	}
	for body, want := range map[string]string{
		`{"query":"type:token AND"}`: refused("query", "is not understood at character 15"), `{}`: refused("query", "is not understood at character 1"),
		`{"query":5}`: refused("query", "must be a string"), `{"query":"id:a","size":101}`: refused("size", "must be a whole number from 1 to 100"),
	} {
		w.step(step{key: "server", call: "POST /tokens/search", body: body, status: 400, want: want})
	}
	w.step(step{key: "browser", call: "POST /tokens/search", body: `{"query":"id:a"}`, status: 403,
		want: problem(403, "missing permission token:search")})
}

func idsOf(list []api.Token) string {
	var ids []string
	for _, t := range list {
		ids = append(ids, t.ID)
	}
	return strings.Join(ids, " ")
}

func TestTokenizing(t *testing.T) {
	w := tokenWalk(t)
	w.walk(
		step{name: "a single card", key: "server", call: "POST /tokenize", status: 200, body: `{"type":"card","data":` + inClear + `,"metadata":{"a":"b"}}`,
			want: cardToken("<uuid>", `"data":`+hidden, `"mask":`+hidden, `"card":`+cardSide, `"metadata":{"a":"b"}`)},
		step{name: "mixed at any depth", key: "server", call: "POST /tokenize", status: 200,
			body: `{"first_name":"Jane","cards":[{"type":"card","data":` + inClear + `}],"n":[1.50,null],"empty":{}}`,
			want: `{"first_name":"<uuid>","cards":[` + cardToken("<uuid>", `"data":`+hidden, `"card":`+cardSide) + `],"n":["<uuid>",null],"empty":{}}`,
			keep: map[string]string{"first_name": "name", "n.0": "number"}},
		step{name: "a plain value", key: "browser", call: "POST /tokenize", status: 200, body: `"x"`, want: `"<uuid>"`},
		step{name: "an unknown type", key: "server", call: "POST /tokenize", status: 400, body: `[{"type":"x","data":1}]`, want: refused("0.type", unknownType("x"))},
		step{name: "errors say where", key: "server", call: "POST /tokenize", status: 400, body: `{"items":[1,2,3,{"type":"card","data":{"number":"1"}}]}`,
			want: refused("items.3.data.number", "a card number has 12 to 19 digits")},
		step{name: "errors say where, below a name that may be a value", key: "server", call: "POST /tokenize", status: 400, body: `{"` + visa + `":[{"type":"x","data":1}]}`,
			want: refused("*.0.type", unknownType("x"))},
		step{name: "without the permission", key: "manager_key", call: "POST /tokenize", status: 403, body: `"x"`,
			want: problem(403, "missing permission token:create")},
		step{name: "and back", key: "server", call: "POST /detokenize", status: 200, body: `{"hello":"Hello {{ {name} }}","n":"{{ {number} }}"}`, want: `{"hello":"Hello Jane","n":1.50}`},
		step{name: "as a mask has it", key: "masked", call: "POST /detokenize", status: 200, body: `["{{ {name} }}"]`, want: `["XXne"]`},
		step{name: "a missing token", key: "server", call: "POST /detokenize", status: 400, body: `["{{ none }}","{{ ` + visa + ` }}"]`,
			want: problem(400, "Failed to detokenize some tokens: none")},
		step{name: "another tenant's", key: "stranger", call: "POST /detokenize", status: 400, body: `"{{ {name} }}"`,
			want: problem(400, "Failed to detokenize some tokens: {name}")},
		step{name: "by who may not read", key: "browser", call: "POST /detokenize", status: 403, body: `"{{ {name} }}"`,
			want: problem(403, "missing permission token:read")},
	)
}

// TestNothingOfATokenIsLeftBehind looks for what was protected in everything
// that the server wrote.
func TestNothingOfATokenIsLeftBehind(t *testing.T) {
	w := tokenWalk(t)
	const canary = "5555555555554444"
	for _, call := range [][2]string{
		{"POST /tokens", `{"type":"card","id":"kept","data":{"number":"` + canary + `","cvc":"973"},"metadata":{"note":"canary-note"},"search_indexes":["{{ data.number }}"]}`},
		{"POST /tokens", `{"type":"card","id":"` + canary + `","data":{"number":"` + canary + `"}}`},
		{"POST /tokens", `{"type":"card","data":{"number":"` + canary + `1"}}`},
		{"POST /tokens", `{"type":"` + canary + `","data":1}`},
		{"POST /tokens", `{"type":"card","data":{"` + canary + `":1}}`},
		{"POST /tokens", `{"type":"card","data":{"number":"` + canary},
		{"POST /tokenize", `{"` + canary + `":{"type":"card","data":{"number":"` + canary + `","x":1}}}`},
		{"POST /detokenize", `"{{ ` + canary + ` }}"`},
		{"POST /tokens/search", `{"query":"` + canary + `"}`},
		{"POST /tokens/search", `{"query":"data:` + canary + `"}`},
		{"GET /tokens/" + canary, ""},
		{"GET /tokens/kept", ""},
		{"PATCH /tokens/kept", `{"data":{"number":"` + canary + `1"}}`},
		{"GET /tokens?id=" + canary + "&metadata.x=" + canary, ""},
	} {
		method, path, _ := strings.Cut(call[0], " ")
		got := w.server.Call(t, method, path, w.names["server"], call[1])
		if got.Status >= 400 && (strings.Contains(got.Body, canary) || strings.Contains(fmt.Sprint(got.Header), canary)) {
			t.Errorf("%s %s repeats what was sent: %s", method, path[:7], got)
		}
	}
	if log := w.server.Log.String(); strings.Contains(log, canary) || strings.Contains(log, "canary-note") || strings.Contains(log, `"973"`) {
		t.Error("the server's log holds what was protected")
	}
	if strings.Contains(w.server.Metrics(t), canary) {
		t.Error("the metrics hold what was protected")
	}
	if err := w.server.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, plain := range []string{canary, "canary-note"} {
		if file := holding(t, w.server.Data, plain); file != "" {
			t.Errorf("%s holds what was protected", file)
		}
	}
}

// holding returns the name of a file under a folder that holds a text.
func holding(t *testing.T, folder, plain string) string {
	t.Helper()
	found := ""
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(plain)) {
			found = d.Name()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestExpiredTokensAreSwept(t *testing.T) {
	w := tokenWalk(t)
	at := start.Add(time.Minute).Format(time.RFC3339)
	if got := w.server.Call(t, "POST", "/tokens", w.names["server"], `{"id":"soon","type":"token","data":1,"expires_at":"`+at+`"}`); got.Status != 201 {
		t.Fatal(got)
	}
	w.clock.Advance(2 * time.Minute)
	w.step(step{key: "server", call: "GET /tokens/soon", status: 404, want: problem(404, "no such token")})
	var swept struct{ Tokens int }
	if err := w.server.Operator().Call(t.Context(), "POST", "/sweep", nil, &swept); err != nil || swept.Tokens != 1 {
		t.Errorf("sweep = %+v, %v, want one token", swept, err)
	}
	if !strings.Contains(w.server.Metrics(t), "tokenkeep_tokens_expired_total 1") {
		t.Error("the metrics do not count the token")
	}
	if logs := w.server.Call(t, "GET", "/logs?entity_id=soon", w.names["manager_key"], ""); !strings.Contains(logs.Body, `"actor_type":"system"`) || !strings.Contains(logs.Body, "Token expired") {
		t.Errorf("the log says %s", logs)
	}
}
