package openapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// walkTokens makes a token of every type, shows them in every way there is, and
// leaves them for the tenant's end.
func walkTokens(ctx context.Context, t *testing.T, c, manager *client.Client) {
	t.Helper()
	var ids []string
	for _, k := range token.Types() {
		made, err := c.Tokens.Create(ctx, api.CreateToken{Type: k.Name, Data: json.RawMessage(k.Example), Metadata: map[string]string{"Kind": k.Name}})
		if err != nil {
			t.Fatalf("Tokens.Create of a %s: %v", k.Name, err)
		}
		got, err := c.Tokens.Get(ctx, made.ID)
		if err != nil || string(got.Data) != k.Example || string(made.Data) == k.Example {
			t.Errorf("Tokens.Get of a %s = %s, %v, want %s; and masked when it was made: %s", k.Name, got.Data, err, k.Example, made.Data)
		}
		ids = append(ids, made.ID)
	}
	no := false
	full, err := c.Tokens.Create(ctx, api.CreateToken{
		ID: "of everything", Type: "token", Data: map[string]any{"a": []any{1, "two", nil}}, Mask: map[string]any{"a": "{{ data.a | size }}"},
		Containers: []string{"/General/", "/a/b/"}, Metadata: map[string]string{"k.1": ""}, SearchIndexes: []string{"{{ data.a[1] }}"},
		FingerprintExpression: "{{ data.a[0] }}", DeduplicateToken: &no, ExpiresAt: "8/26/2099 7:23:57 PM -07:00",
	})
	if err != nil || full.ExpiresAt != "2099-08-26T19:23:57.000000-07:00" {
		t.Fatalf("Tokens.Create of everything = %s, %v", full.ExpiresAt, err)
	}
	if _, err := c.Tokens.Create(ctx, api.CreateToken{ID: full.ID, Type: "token", Data: 1}); !errors.Is(err, client.ErrConflict) {
		t.Errorf("Tokens.Create under a taken id = %v, want ErrConflict", err)
	}
	patched, err := c.Tokens.Update(ctx, full.ID, json.RawMessage(`{"data":{"b":2.50},"mask":null,"metadata":{"k.1":null,"x":"y"},"containers":null,
		"search_indexes":null,"fingerprint_expression":null,"deduplicate_token":null,"expires_at":null}`))
	if err != nil || patched.ExpiresAt != "" || patched.ModifiedBy == "" || !slices.Equal(patched.Containers, []string{"/general/high/"}) {
		t.Errorf("Tokens.Update = %+v, %v", patched, err)
	}
	walkLists(ctx, t, c, append(ids, full.ID))
	walkDocuments(ctx, t, c, ids[0])
	walkImport(ctx, t, c, manager)
	if err := c.Tokens.Delete(ctx, full.ID); err != nil {
		t.Errorf("Tokens.Delete: %v", err)
	}
}

// walkImport imports two lines, of which one is rejected, and exports the other.
func walkImport(ctx context.Context, t *testing.T, c, manager *client.Client) {
	t.Helper()
	lines, err := client.LinesOf(api.CreateToken{Type: "token", Data: "a"}, api.CreateToken{Type: "nothing", Data: "b"})
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []client.Import{{DryRun: true}, {ID: "walked", FirstLine: 5}, {ID: "walked", FirstLine: 5}} {
		got, err := c.Tokens.Import(ctx, in, lines)
		if err != nil || len(got) != 3 || got[1].Status != api.ImportRejected || got[2].Status != api.ImportEnd {
			t.Errorf("Tokens.Import(%+v) = %+v, %v", in, got, err)
		}
	}
	request := api.CreateExport{Recipient: "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p", Filter: api.ExportFilter{Types: []string{"token"}}}
	export, err := c.Exports.Create(ctx, request)
	if err != nil || export.Status != api.ExportReady {
		t.Fatalf("Exports.Create = %+v, %v", export, err)
	}
	if got, err := c.Exports.Get(ctx, export.ID); err != nil || got.ID != export.ID {
		t.Errorf("Exports.Get = %+v, %v", got, err)
	}
	if got, err := manager.Exports.Approve(ctx, export.ID, request); err != nil || got.ApprovedBy == "" {
		t.Errorf("Exports.Approve = %+v, %v", got, err)
	}
	var file bytes.Buffer
	if err := c.Exports.Content(ctx, export.ID, &file); err != nil || !strings.HasPrefix(file.String(), "age-encryption.org/v1") {
		t.Errorf("Exports.Content = %d bytes, %v", file.Len(), err)
	}
	if got, err := c.Tokens.Import(ctx, client.Import{ID: "walked", FirstLine: 8}, lines); !errors.Is(err, client.ErrConflict) {
		t.Errorf("Tokens.Import after a gap = %+v, %v, want ErrConflict", got, err)
	}
}

// walkLists wants the tokens with these ids, oldest first.
func walkLists(ctx context.Context, t *testing.T, c *client.Client, ids []string) {
	t.Helper()
	slices.Reverse(ids)
	filter := client.TokenFilter{IDs: ids[:2], Types: []string{"token", "employer_id_number"}}
	if got, err := c.Tokens.Page(ctx, filter, 1, 1); err != nil || got.Pagination.TotalItems != 2 || got.Data[0].ID != ids[0] {
		t.Errorf("Tokens.Page by ids = %+v, %v, want 2 in all", got.Pagination, err)
	}
	if got, err := c.Tokens.Page(ctx, client.TokenFilter{Metadata: map[string]string{"Kind": "CARD"}}, 0, 0); err != nil || got.Pagination.TotalItems != 1 {
		t.Errorf("Tokens.Page by metadata = %+v, %v, want one", got.Pagination, err)
	}
	for name, fetch := range map[string]func(start string) (api.ListFrom[api.Token], error){
		"Tokens.PageFrom": func(start string) (api.ListFrom[api.Token], error) {
			return c.Tokens.PageFrom(ctx, client.TokenFilter{}, start, 4)
		},
		"Tokens.SearchPageFrom": func(start string) (api.ListFrom[api.Token], error) {
			return c.Tokens.SearchPageFrom(ctx, "created_at:[2000-01-01 TO *]", start, 4)
		},
	} {
		first, err := fetch("")
		if err != nil || len(first.Data) != 4 || first.Pagination.Next == "" {
			t.Fatalf("%s = %d tokens, %v, want 4 and a next part", name, len(first.Data), err)
		}
		if second, err := fetch(first.Pagination.Next); err != nil || len(second.Data) != 4 || second.Data[0].ID != ids[4] {
			t.Errorf("%s from there = %d tokens, %v, want 4", name, len(second.Data), err)
		}
	}
	if got, err := c.Tokens.SearchPage(ctx, `type:card AND NOT container:"/bank/*"`, 1, 10); err != nil || len(got.Data) != 1 || got.Data[0].Card.Last4 != "4242" {
		t.Errorf("Tokens.SearchPage = %d tokens, %v, want the card", len(got.Data), err)
	}
}

func walkDocuments(ctx context.Context, t *testing.T, c *client.Client, id string) {
	t.Helper()
	card := map[string]any{"type": "card", "data": map[string]any{"number": "4242424242424242"}}
	for name, in := range map[string]any{"a plain value": "Jane", "one card": card, "cards among others": []any{card, 1.5, map[string]any{"x": true, "y": nil}}, "nothing": []any{}} {
		if out, err := c.Tokenize(ctx, in); err != nil || strings.Contains(string(out), "4242424242424242") {
			t.Errorf("Tokenize of %s = %s, %v", name, out, err)
		}
	}
	if out, err := c.Detokenize(ctx, map[string]any{"a": "{{ " + id + " }}", "b": 1}); err != nil || string(out) != `{"a":{"name":"Jane"},"b":1}` {
		t.Errorf("Detokenize = %s, %v", out, err)
	}
}

// TestEverySpellingOfAMetadataFilterIsDescribed, and means the same.
func TestEverySpellingOfAMetadataFilterIsDescribed(t *testing.T) {
	v := start(t, nil)
	c := v.client(t, v.keys.PrivateKey)
	for _, tier := range []string{"Gold", "Silver"} {
		if _, err := c.Tokens.Create(t.Context(), api.CreateToken{Type: "token", Data: 1, Metadata: map[string]string{"tier": tier}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, query := range []string{"metadata.tier=gold", "metadata%5Btier%5D=gold", "metadata=" + url.QueryEscape(`{"tier":"gold"}`)} {
		for _, path := range []string{"/tokens?", "/v2/tokens?"} {
			var got api.List[api.Token]
			if status := v.sendInto(t, &got, "GET", path+query, "", "SVC-API-KEY", v.keys.PrivateKey); status != 200 || len(got.Data) != 1 || got.Data[0].Metadata["tier"] != "Gold" {
				t.Errorf("GET %s%s → %d, %d tokens, want the golden one", path, query, status, len(got.Data))
			}
		}
	}
}
