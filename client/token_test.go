package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

const testCard = "4242424242424242"

func TestCallsOfTokensCarryWhatIsDue(t *testing.T) {
	const list = `{"pagination":{},"data":[]}`
	ctx := t.Context()
	filter := client.TokenFilter{IDs: []string{"a&b", "c"}, Types: []string{"card"}, Metadata: map[string]string{"tier.x": "g o"}, Container: "/pci/*", Fingerprint: "f"}
	cases := map[string]struct {
		answer string
		call   func(c *client.Client) error
		target string
		body   string
		media  string
		idem   bool
	}{
		"create": {`{}`, func(c *client.Client) error {
			_, err := c.Tokens.Create(ctx, api.CreateToken{Type: "token", Data: json.RawMessage(`{"n": 1.50e1}`), Metadata: map[string]string{"k": "v"}})
			return err
		}, "POST /tokens", `{"type":"token","data":{"n":1.50e1},"metadata":{"k":"v"}}`, "application/json", true},
		"get": {`{}`, func(c *client.Client) error { _, err := c.Tokens.Get(ctx, "a b/c"); return err }, "GET /tokens/a%20b%2Fc", "", "", false},
		"update": {`{}`, func(c *client.Client) error {
			_, err := c.Tokens.Update(ctx, "a", map[string]any{"metadata": map[string]any{"k": nil}, "expires_at": nil})
			return err
		}, "PATCH /tokens/a", `{"expires_at":null,"metadata":{"k":null}}`, "application/merge-patch+json", true},
		"delete": {``, func(c *client.Client) error { return c.Tokens.Delete(ctx, "a") }, "DELETE /tokens/a", "", "", false},
		"page": {list, func(c *client.Client) error { _, err := c.Tokens.Page(ctx, filter, 2, 50); return err },
			"GET /tokens?container=%2Fpci%2F%2A&fingerprint=f&id=a%26b&id=c&metadata.tier.x=g+o&page=2&size=50&type=card", "", "", false},
		"page from": {list, func(c *client.Client) error { _, err := c.Tokens.PageFrom(ctx, filter, "x=", 0); return err },
			"GET /v2/tokens?container=%2Fpci%2F%2A&fingerprint=f&id=a%26b&id=c&metadata.tier.x=g+o&start=x%3D&type=card", "", "", false},
		"search": {list, func(c *client.Client) error { _, err := c.Tokens.SearchPage(ctx, "type:card", 2, 0); return err },
			"POST /tokens/search", `{"query":"type:card","page":2}`, "application/json", false},
		"search from": {list, func(c *client.Client) error { _, err := c.Tokens.SearchPageFrom(ctx, "type:card", "x", 7); return err },
			"POST /v2/tokens/search", `{"query":"type:card","start":"x","size":7}`, "application/json", false},
		"tokenize": {`[]`, func(c *client.Client) error {
			_, err := c.Tokenize(ctx, []any{"Jane", json.Number("1.50")})
			return err
		},
			"POST /tokenize", `["Jane",1.50]`, "application/json", true},
		"tokenize null":  {`null`, func(c *client.Client) error { _, err := c.Tokenize(ctx, nil); return err }, "POST /tokenize", `null`, "application/json", true},
		"detokenize":     {`"x"`, func(c *client.Client) error { _, err := c.Detokenize(ctx, "{{ a }}"); return err }, "POST /detokenize", `"{{ a }}"`, "application/json", false},
		"an empty patch": {`{}`, func(c *client.Client) error { _, err := c.Tokens.Update(ctx, "a", nil); return err }, "PATCH /tokens/a", "null", "application/merge-patch+json", true},
	}
	for name, want := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, answer{status: 200, body: want.answer})
			if err := want.call(f.client(t)); err != nil {
				t.Fatal(err)
			}
			r := f.requests()[0]
			if got := r.Method + " " + r.URL.RequestURI(); got != want.target || f.bodies[0] != want.body || r.Header.Get("Content-Type") != want.media {
				t.Errorf("sent %s %s as %q, want %s %s as %q", got, f.bodies[0], r.Header.Get("Content-Type"), want.target, want.body, want.media)
			}
			if got := len(r.Header.Get("SVC-IDEMPOTENCY-KEY")) == 36; got != want.idem {
				t.Errorf("with an idempotency key %t, want %t", got, want.idem)
			}
		})
	}
}

// TestCallsThatChangeAreRepeatedUnderOneKey: a token made twice is one too many.
func TestCallsThatChangeAreRepeatedUnderOneKey(t *testing.T) {
	ctx := t.Context()
	cases := map[string]struct {
		call  func(c *client.Client) error
		keyed bool
	}{
		"detokenize": {func(c *client.Client) error { _, err := c.Detokenize(ctx, "x"); return err }, false},
		"search":     {func(c *client.Client) error { _, err := c.Tokens.SearchPage(ctx, "id:x", 1, 1); return err }, false},
		"explain":    {func(c *client.Client) error { _, err := c.Access.Explain(ctx, api.ExplainAccess{}); return err }, false},
		"tokenize":   {func(c *client.Client) error { _, err := c.Tokenize(ctx, "x"); return err }, true},
		"create":     {func(c *client.Client) error { _, err := c.Tokens.Create(ctx, api.CreateToken{}); return err }, true},
		"update":     {func(c *client.Client) error { _, err := c.Tokens.Update(ctx, "x", nil); return err }, true},
		"session":    {func(c *client.Client) error { _, err := c.Sessions.Create(ctx); return err }, true},
		"authorize":  {func(c *client.Client) error { return c.Sessions.Authorize(ctx, api.AuthorizeSession{}) }, true},
	}
	for name, want := range cases {
		for _, first := range []answer{broken, status(500)} {
			f := newFake(t, first, answer{status: 200, body: `{"pagination":{},"data":[]}`})
			if err := want.call(f.client(t)); err != nil || len(f.requests()) != 2 {
				t.Errorf("%s after %+v: %d tries, %v, want 2", name, first, len(f.requests()), err)
				continue
			}
			one, two := f.requests()[0].Header.Get("SVC-IDEMPOTENCY-KEY"), f.requests()[1].Header.Get("SVC-IDEMPOTENCY-KEY")
			if one != two || (one != "") != want.keyed {
				t.Errorf("%s went out under the keys %q and %q", name, one, two)
			}
		}
	}
}

func TestListsFromPlaceToPlaceEnd(t *testing.T) {
	part := func(next string, ids ...string) answer {
		b, _ := json.Marshal(map[string]any{"pagination": map[string]any{"page_size": 100, "next": next}, "data": tokensOf(ids)})
		return answer{status: 200, body: string(b)}
	}
	cases := map[string]struct {
		answers []answer
		want    []string
		fails   bool
		starts  []string
	}{
		"none":                  {[]answer{part("")}, nil, false, []string{""}},
		"three parts":           {[]answer{part("x", "a"), part("y", "b"), part("", "c")}, []string{"a", "b", "c"}, false, []string{"", "x", "y"}},
		"a server that is lost": {[]answer{part("x", "a"), part("x", "b")}, []string{"a", "b"}, false, []string{"", "x"}},
		"an empty part":         {[]answer{part("x", "a"), part("y")}, []string{"a"}, false, []string{"", "x"}},
		"an error":              {[]answer{part("x", "a"), status(403)}, []string{"a"}, true, []string{"", "x"}},
	}
	for name, want := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, want.answers...)
			got, err := idsOf(f.client(t).Tokens.ListFrom(t.Context(), client.TokenFilter{}))
			var starts []string
			for _, r := range f.requests() {
				starts = append(starts, r.URL.Query().Get("start"))
			}
			if !slices.Equal(got, want.want) || errors.Is(err, client.ErrForbidden) != want.fails || !slices.Equal(starts, want.starts) {
				t.Errorf("ListFrom = %q, %v from %q, want %q, failing %t, from %q", got, err, starts, want.want, want.fails, want.starts)
			}
		})
	}
}

func tokensOf(ids []string) []map[string]string {
	list := []map[string]string{}
	for _, id := range ids {
		list = append(list, map[string]string{"id": id})
	}
	return list
}

func idsOf(list iter.Seq2[api.Token, error]) (ids []string, failed error) {
	for token, err := range list {
		if err != nil {
			failed = err
			continue // there must be nothing more
		}
		ids = append(ids, token.ID)
	}
	return ids, failed
}

// keep starts a server and returns clients of the demo tenant.
func keep(t *testing.T) (private, public *client.Client) {
	t.Helper()
	k := keeptest.Start(t, keeptest.Options{})
	keys, _, err := k.Demo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	with := func(key string) *client.Client {
		c, err := client.New(k.URL, client.WithKey(key), client.WithHTTPClient(k.Client))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	return with(keys.PrivateKey), with(keys.PublicKey)
}

func TestDataKeepsItsText(t *testing.T) {
	private, _ := keep(t)
	const data = `{"amount":100000000000000000001.50,"small":1e-400,"text":"ü \" <&>","list":[1.0,null,true]}`
	made, err := private.Tokens.Create(t.Context(), api.CreateToken{Type: "token", Data: json.RawMessage(data)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := private.Tokens.Get(t.Context(), made.ID)
	if err != nil || string(got.Data) != data {
		t.Errorf("Get = %s, %v, want %s", got.Data, err, data)
	}
	whole, err := private.Detokenize(t.Context(), map[string]string{"a": "{{ " + made.ID + " | json: '$.amount' }}"})
	if want := `{"a":100000000000000000001.50}`; err != nil || string(whole) != want {
		t.Errorf("Detokenize = %s, %v, want %s", whole, err, want)
	}
}

func TestTokensFromCreationToDeletion(t *testing.T) {
	private, public := keep(t)
	ctx := t.Context()
	made, err := public.Tokens.Create(ctx, api.CreateToken{
		ID: "my-card", Type: "card", Data: map[string]any{"number": testCard, "expiration_month": 12, "expiration_year": 2030},
		Metadata: map[string]string{"tier": "Gold"},
	})
	if err != nil || made.ID != "my-card" || made.Card == nil || made.Card.Brand != "visa" || strings.Contains(string(made.Data), testCard) {
		t.Fatalf("Create = %s %s, %v", made.ID, made.Data, err)
	}
	if _, err := public.Tokens.Get(ctx, "my-card"); !errors.Is(err, client.ErrForbidden) {
		t.Errorf("Get with a public key = %v, want ErrForbidden", err)
	}
	if got, err := private.Tokens.Get(ctx, "my-card"); err != nil || !strings.Contains(string(got.Data), testCard) {
		t.Errorf("Get with a private key: %v, want the number revealed", err)
	}
	_, err = private.Tokens.Create(ctx, api.CreateToken{ID: "my-card", Type: "token", Data: 1})
	if !errors.Is(err, client.ErrConflict) {
		t.Errorf("Create under a taken id = %v, want ErrConflict", err)
	}
	got, err := private.Tokens.Update(ctx, "my-card", map[string]any{"metadata": map[string]any{"tier": nil, "shop": "7"}})
	if err != nil || fmt.Sprint(got.Metadata) != "map[shop:7]" {
		t.Errorf("Update = %v, %v, want the metadata shop:7 alone", got.Metadata, err)
	}
	whole, err := private.Tokenize(ctx, []any{"Jane", nil, map[string]any{"type": "card", "data": map[string]any{"number": testCard}}})
	var parts []json.RawMessage
	if err != nil || json.Unmarshal(whole, &parts) != nil || len(parts) != 3 || strings.Contains(string(whole), testCard) || strings.Contains(string(whole), "Jane") {
		t.Errorf("Tokenize = %s, %v", whole, err)
	}
	if err := private.Tokens.Delete(ctx, "my-card"); err != nil {
		t.Errorf("Delete = %v", err)
	}
	if _, err := private.Tokens.Get(ctx, "my-card"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("Get after the deletion = %v, want ErrNotFound", err)
	}
}

func TestListsAndSearchesFindTheSame(t *testing.T) {
	private, _ := keep(t)
	ctx := t.Context()
	values := make([]string, 230)
	for i := range values {
		values[i] = fmt.Sprintf("value-%d", i)
	}
	if _, err := private.Tokenize(ctx, values); err != nil {
		t.Fatal(err)
	}
	one, err := private.Tokens.Create(ctx, api.CreateToken{Type: "card_number", Data: testCard, Metadata: map[string]string{"Tier": "Gold"}})
	if err != nil {
		t.Fatal(err)
	}
	all, err := idsOf(private.Tokens.List(ctx, client.TokenFilter{}))
	if err != nil || len(all) != 231 || all[0] != one.ID {
		t.Fatalf("List = %d, %v, want 231 and the newest first", len(all), err)
	}
	for name, c := range map[string]struct {
		list iter.Seq2[api.Token, error]
		want []string
	}{
		"by cursor":           {private.Tokens.ListFrom(ctx, client.TokenFilter{}), all},
		"a search":            {private.Tokens.Search(ctx, "type:token OR type:card_number"), all},
		"a search by cursor":  {private.Tokens.SearchFrom(ctx, "type:token OR type:card_number"), all},
		"of a type":           {private.Tokens.List(ctx, client.TokenFilter{Types: []string{"card_number"}}), all[:1]},
		"by metadata":         {private.Tokens.ListFrom(ctx, client.TokenFilter{Metadata: map[string]string{"Tier": "gold"}}), all[:1]},
		"by ids, in order":    {private.Tokens.List(ctx, client.TokenFilter{IDs: []string{all[9], all[3]}}), []string{all[9], all[3]}},
		"a search for a tier": {private.Tokens.Search(ctx, "metadata.Tier:GOLD"), all[:1]},
	} {
		if got, err := idsOf(c.list); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s = %d tokens, %v, want %d", name, len(got), err, len(c.want))
		}
	}
	if _, err := idsOf(private.Tokens.Search(ctx, "nonsense")); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a search for nonsense = %v, want ErrInvalid", err)
	}
}

// TestErrorsHoldNoProtectedValues, whatever refuses the call: the server, the
// encoder, or a peer that sends back what it was sent.
func TestErrorsHoldNoProtectedValues(t *testing.T) {
	private, _ := keep(t)
	ctx := t.Context()
	echoes := func(line string) *client.Client {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = fmt.Fprintf(conn, line, testCard)
			_ = conn.Close()
		}))
		t.Cleanup(s.Close)
		c, err := client.New(s.URL, client.WithKey(fakeKey), client.WithRetries(0))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	create := func(c *client.Client, in api.CreateToken) error { _, err := c.Tokens.Create(ctx, in); return err }
	for name, err := range map[string]error{
		"a bad card":             create(private, api.CreateToken{Type: "card", Data: map[string]any{"number": testCard + "1", "cvc": testCard}}),
		"a card as a type":       create(private, api.CreateToken{Type: testCard, Data: 1}),
		"a card as an id":        create(private, api.CreateToken{ID: testCard, Type: "card_number", Data: testCard}),
		"a card as an expiry":    create(private, api.CreateToken{Type: "token", Data: 1, ExpiresAt: testCard}),
		"a card as metadata":     create(private, api.CreateToken{Type: "token", Data: 1, Metadata: map[string]string{testCard + "!": testCard}}),
		"JSON that is none":      create(private, api.CreateToken{Type: "token", Data: json.RawMessage(`{"n":"` + testCard)}),
		"no JSON at all":         create(private, api.CreateToken{Type: "token", Data: map[string]any{testCard: func() {}}}),
		"a search":               func() error { _, err := private.Tokens.SearchPage(ctx, "data:"+testCard+" AND", 1, 1); return err }(),
		"no such token":          func() error { _, err := private.Tokens.Get(ctx, testCard); return err }(),
		"nothing to detokenize":  func() error { _, err := private.Detokenize(ctx, "{{ "+testCard+" }}"); return err }(),
		"a bad expression":       func() error { _, err := private.Detokenize(ctx, "{{ "+testCard+" | nope }}"); return err }(),
		"a patch":                func() error { _, err := private.Tokens.Update(ctx, testCard, []string{testCard}); return err }(),
		"no place":               func() error { _, err := private.Tokens.PageFrom(ctx, client.TokenFilter{}, testCard, 1); return err }(),
		"an answer that is none": create(echoes("HTTP/1.1 %s\r\n\r\n"), api.CreateToken{Type: "card_number", Data: testCard}),
		"a header that is none":  create(echoes("HTTP/1.1 200 OK\r\n%s\r\n\r\n"), api.CreateToken{Type: "card_number", Data: testCard}),
		"a length that is none":  create(echoes("HTTP/1.1 200 OK\r\nContent-Length: x%s\r\n\r\n"), api.CreateToken{Type: "card_number", Data: testCard}),
		"a body that is none":    create(echoes("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{%s"), api.CreateToken{Type: "card_number", Data: testCard}),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			text := fmt.Sprintf(verb, err)
			for _, form := range []string{testCard, fmt.Sprintf("%x", testCard), strings.Trim(fmt.Sprint([]byte(testCard)), "[]")} {
				if strings.Contains(text, form) {
					t.Errorf("%s: %s prints the card: %s", name, verb, text)
				}
			}
		}
	}
}
