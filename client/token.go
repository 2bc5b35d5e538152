package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"

	"github.com/tokenkeep/tokenkeep/api"
)

var (
	tokenize   = row{method: "POST", path: "/tokenize", keyed: true}
	detokenize = row{method: "POST", path: "/detokenize", reads: true}

	createToken = row{method: "POST", path: "/tokens", keyed: true}
	listTokens  = row{method: "GET", path: "/tokens"}
	getToken    = row{method: "GET", path: "/tokens/{id}"}
	updateToken = row{method: "PATCH", path: "/tokens/{id}", media: api.MediaMergePatch, keyed: true}
	revealToken = row{method: "POST", path: "/tokens/{id}/reveal", reads: true}
	deleteToken = row{method: "DELETE", path: "/tokens/{id}"}

	searchTokens     = row{method: "POST", path: "/tokens/search", reads: true}
	listTokensFrom   = row{method: "GET", path: "/v2/tokens"}
	searchTokensFrom = row{method: "POST", path: "/v2/tokens/search", reads: true}
)

// Tokenize puts tokens in place of what a JSON value holds, and returns the
// same structure: an object with type and data becomes a token, any other
// value the id of one. It takes token:create.
//
// What is sent is anything that encoding/json writes. Numbers that must keep
// their text are sent as json.RawMessage or json.Number.
func (c *Client) Tokenize(ctx context.Context, in any, options ...CallOption) (json.RawMessage, error) {
	return get[json.RawMessage](ctx, c.caller, request{row: tokenize, in: document{in}}, options...)
}

// Detokenize puts the values of tokens in place of the expressions in a JSON
// value, such as "{{ id }}", as far as the key's access goes. What comes back
// may be plaintext: keep it no longer than the call at hand. It takes
// token:read.
func (c *Client) Detokenize(ctx context.Context, in any) (json.RawMessage, error) {
	return get[json.RawMessage](ctx, c.caller, request{row: detokenize, in: document{in}})
}

// document makes of nil a body of null: without it there would be none.
type document struct{ value any }

func (d document) MarshalJSON() ([]byte, error) { return json.Marshal(d.value) }

// Tokens are the protected values of a tenant. How much of their data a call
// shows is for the access of the client's key to say.
type Tokens struct{ caller *caller }

// TokenFilter chooses tokens. The zero value takes all.
type TokenFilter struct {
	IDs      []string // these alone, and in this order
	Types    []string
	Metadata map[string]string // all of these, the case of values aside
	// Container is one that a token has; with "*" behind it, or one under it.
	Container   string
	Fingerprint string
}

func (f TokenFilter) query() url.Values {
	q := url.Values{}
	for _, id := range f.IDs {
		q.Add("id", id)
	}
	for _, t := range f.Types {
		q.Add("type", t)
	}
	if f.Container != "" {
		q.Set("container", f.Container)
	}
	if f.Fingerprint != "" {
		q.Set("fingerprint", f.Fingerprint)
	}
	for key, value := range f.Metadata {
		q.Set("metadata."+key, value)
	}
	return q
}

// Create makes a token. The answer shows its data masked. It takes token:create.
func (t Tokens) Create(ctx context.Context, in api.CreateToken, options ...CallOption) (api.Token, error) {
	return get[api.Token](ctx, t.caller, request{row: createToken, in: in}, options...)
}

// Get returns a token. It takes token:read. With AtMost, it and the lists and
// searches show less than the rules allow.
func (t Tokens) Get(ctx context.Context, id string, options ...CallOption) (api.Token, error) {
	return get[api.Token](ctx, t.caller, request{row: getToken, ids: []string{id}}, options...)
}

// Update changes a token by a merge patch after RFC 7386: a JSON object, as a
// map, a struct or json.RawMessage. In data, mask and metadata null removes a
// member; the other attributes are replaced. It takes token:update.
func (t Tokens) Update(ctx context.Context, id string, patch any, options ...CallOption) (api.Token, error) {
	return get[api.Token](ctx, t.caller, request{row: updateToken, ids: []string{id}, in: document{patch}}, options...)
}

// Reveal returns a token with its plaintext, for a reason that the log keeps. It
// takes token:read with reveal on every container of the token.
func (t Tokens) Reveal(ctx context.Context, id, reason string) (api.Token, error) {
	return get[api.Token](ctx, t.caller, request{row: revealToken, ids: []string{id}, in: api.RevealToken{Reason: reason}})
}

// Delete removes a token. It takes token:delete. When an answer was lost on
// the way, a retry finds nothing: then ErrNotFound means that the token is gone.
func (t Tokens) Delete(ctx context.Context, id string) error {
	return t.caller.call(ctx, request{row: deleteToken, ids: []string{id}}, nil, nil)
}

// List goes through all tokens that the filter takes, newest first or in the
// order of the filter's ids, and asks for pages as it goes. An error comes
// last. It takes token:read. For lists of many thousands ListFrom is faster.
func (t Tokens) List(ctx context.Context, f TokenFilter, options ...CallOption) iter.Seq2[api.Token, error] {
	return each(func(number int) (api.List[api.Token], error) {
		return t.Page(ctx, f, number, pageSize, options...)
	}, idOfToken)
}

// Page returns one page of them, from 1. A size of 0 is the server's default.
func (t Tokens) Page(ctx context.Context, f TokenFilter, number, size int, options ...CallOption) (api.List[api.Token], error) {
	return get[api.List[api.Token]](ctx, t.caller, request{row: listTokens, query: withPage(f.query(), number, size)}, options...)
}

// ListFrom is List by way of cursors: no page costs more than the first, and
// tokens that come or go meanwhile do not shift the others.
func (t Tokens) ListFrom(ctx context.Context, f TokenFilter, options ...CallOption) iter.Seq2[api.Token, error] {
	return eachFrom(func(start string) (api.ListFrom[api.Token], error) {
		return t.PageFrom(ctx, f, start, pageSize, options...)
	})
}

// PageFrom returns what follows a place: "" for the beginning, then what the
// page before named as next. A size of 0 is the server's default.
func (t Tokens) PageFrom(ctx context.Context, f TokenFilter, start string, size int, options ...CallOption) (api.ListFrom[api.Token], error) {
	q := withPage(f.query(), 0, size)
	if start != "" {
		q.Set("start", start)
	}
	return get[api.ListFrom[api.Token]](ctx, t.caller, request{row: listTokensFrom, query: q}, options...)
}

// Search goes through all tokens that a query finds, newest first, such as
// type:card AND metadata.tier:gold. An error comes last. It takes token:search.
func (t Tokens) Search(ctx context.Context, query string, options ...CallOption) iter.Seq2[api.Token, error] {
	return each(func(number int) (api.List[api.Token], error) {
		return t.SearchPage(ctx, query, number, pageSize, options...)
	}, idOfToken)
}

// SearchPage returns one page of them, from 1. A size of 0 is the server's default.
func (t Tokens) SearchPage(ctx context.Context, query string, number, size int, options ...CallOption) (api.List[api.Token], error) {
	in := api.SearchTokens{Query: query, Page: unlessZero(number), Size: unlessZero(size)}
	return get[api.List[api.Token]](ctx, t.caller, request{row: searchTokens, in: in}, options...)
}

// SearchFrom is Search by way of cursors, as ListFrom is List.
func (t Tokens) SearchFrom(ctx context.Context, query string, options ...CallOption) iter.Seq2[api.Token, error] {
	return eachFrom(func(start string) (api.ListFrom[api.Token], error) {
		return t.SearchPageFrom(ctx, query, start, pageSize, options...)
	})
}

// SearchPageFrom returns what follows a place, as PageFrom does.
func (t Tokens) SearchPageFrom(ctx context.Context, query, start string, size int, options ...CallOption) (api.ListFrom[api.Token], error) {
	in := api.SearchTokensFrom{Query: query, Start: start, Size: unlessZero(size)}
	return get[api.ListFrom[api.Token]](ctx, t.caller, request{row: searchTokensFrom, in: in}, options...)
}

func idOfToken(t api.Token) string { return t.ID }

func unlessZero(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}
