package endpoint

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// bodyOf reads a body as a JSON value that keeps its numbers and does not print.
func bodyOf(r *http.Request) (jsonvalue.Value, error) {
	var raw jsontext.Value
	if err := httpapi.Decode(r, &raw); err != nil {
		return jsonvalue.Value{}, err
	}
	defer clear(raw)
	return jsonvalue.Parse(raw)
}

func raw(v jsonvalue.Value) jsontext.Value { return v.AppendJSON(nil) }

func rawToken(t token.Token) jsontext.Value { return raw(t.Object()) }

func (s Services) createToken(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	body, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	in, err := token.ParseRequest(body)
	if err != nil {
		return nil, err
	}
	return effect(r.Context(), a, func(t token.Token) (*response.Response, error) {
		return aboutTokens(t.Shown(), http.StatusCreated, "/tokens/"+url.PathEscape(t.ID), raw(t.Object()))
	}, func(last ...store.Step[token.Token]) (token.Token, error) {
		return s.Tokens.Create(r.Context(), c, in, last...)
	})
}

var errTransform = fault.Field("transform", "must be redact, mask or reveal")

// atMostOf reads how much of each token a request asks to be shown at most.
// reveal asks for all that the rules allow, and so does no parameter.
func atMostOf(q url.Values) (access.Transform, error) {
	if !q.Has("transform") {
		return access.Reveal, nil
	}
	t, ok := access.ParseTransform(q.Get("transform"))
	if !ok {
		return access.Nothing, errTransform
	}
	return t, nil
}

// atMostIn is atMostOf for a request whose query holds nothing else.
func atMostIn(r *http.Request) (access.Transform, error) {
	q, err := httpapi.Query(r)
	if err != nil {
		return access.Nothing, err
	}
	return atMostOf(q)
}

func (s Services) getToken(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	most, err := atMostIn(r)
	if err != nil {
		return nil, err
	}
	t, err := s.Tokens.Get(r.Context(), c, r.PathValue("id"), most)
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, raw(t.Object()))
}

func (s Services) updateToken(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	patch, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	return effect(r.Context(), a, func(t token.Token) (*response.Response, error) {
		return aboutTokens(t.Shown(), http.StatusOK, "", raw(t.Object()))
	}, func(last ...store.Step[token.Token]) (token.Token, error) {
		return s.Tokens.Update(r.Context(), c, r.PathValue("id"), patch, last...)
	})
}

func (s Services) deleteToken(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	if err := s.Tokens.Delete(r.Context(), c, r.PathValue("id")); err != nil {
		return nil, err
	}
	return &response.Response{Status: http.StatusNoContent}, nil
}

func (s Services) tokenize(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	body, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	return effect(r.Context(), a, func(out token.Tokenized) (*response.Response, error) {
		return aboutTokens(out.Shown, http.StatusOK, "", raw(out.Value))
	}, func(last ...store.Step[token.Tokenized]) (token.Tokenized, error) {
		return s.Tokens.Tokenize(r.Context(), c, body, last...)
	})
}

func (s Services) detokenize(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	body, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	out, err := s.Tokens.Detokenize(r.Context(), c, body)
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, raw(out))
}

func (s Services) listTokens(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	return listed(r, func(q url.Values, page store.Page) ([]token.Token, int64, error) {
		filter, err := tokenFilterOf(q)
		if err != nil {
			return nil, 0, err
		}
		most, err := atMostOf(q)
		if err != nil {
			return nil, 0, err
		}
		return s.Tokens.List(r.Context(), c, filter, page, most)
	}, rawToken)
}

func (s Services) listTokensFrom(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	return listedFrom(r, func(q url.Values, size int) ([]token.Token, string, error) {
		filter, err := tokenFilterOf(q)
		if err != nil {
			return nil, "", err
		}
		most, err := atMostOf(q)
		if err != nil {
			return nil, "", err
		}
		return s.Tokens.ListFrom(r.Context(), c, filter, q.Get("start"), size, most)
	}, rawToken)
}

var errMetadataFilter = fault.Field("metadata", "must be an object of strings")

// tokenFilterOf reads the filters of a list. Metadata is asked for in one of
// three spellings; of a key that stands in several the first counts.
func tokenFilterOf(q url.Values) (token.Filter, error) {
	f := token.Filter{
		IDs: q["id"], Types: q["type"], Metadata: map[string]string{}, Container: q.Get("container"), Fingerprint: q.Get("fingerprint"),
	}
	ask := func(key, value string) {
		if _, asked := f.Metadata[key]; !asked {
			f.Metadata[key] = value
		}
	}
	for name, values := range q {
		if key, ok := strings.CutPrefix(name, "metadata."); ok {
			ask(key, values[0])
		}
	}
	for name, values := range q {
		if rest, ok := strings.CutPrefix(name, "metadata["); ok {
			if key, ok := strings.CutSuffix(rest, "]"); ok {
				ask(key, values[0])
			}
		}
	}
	if q.Get("metadata") == "" {
		return f, nil
	}
	object, err := jsonvalue.Parse([]byte(q.Get("metadata")))
	if err != nil || object.Kind() != jsonvalue.Object {
		return f, errMetadataFilter
	}
	for key, value := range object.Members() {
		if value.Kind() != jsonvalue.String {
			return f, errMetadataFilter
		}
		ask(key, value.PublicText())
	}
	return f, nil
}

// pageIn reads page and size where a body has them.
func pageIn(page, size *int) (httpapi.Page, store.Page, error) {
	q := url.Values{}
	if page != nil {
		q.Set("page", strconv.Itoa(*page))
	}
	if size != nil {
		q.Set("size", strconv.Itoa(*size))
	}
	return pageOf(q)
}

func (s Services) searchTokens(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	var in api.SearchTokens
	if err := httpapi.Decode(r, &in); err != nil {
		return nil, err
	}
	page, rows, err := pageIn(in.Page, in.Size)
	if err != nil {
		return nil, err
	}
	most, err := atMostIn(r)
	if err != nil {
		return nil, err
	}
	list, total, err := s.Tokens.Search(r.Context(), c, in.Query, rows, most)
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, httpapi.ListOf(page, total, each(list, rawToken)))
}

func (s Services) searchTokensFrom(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	var in api.SearchTokensFrom
	if err := httpapi.Decode(r, &in); err != nil {
		return nil, err
	}
	page, _, err := pageIn(nil, in.Size)
	if err != nil {
		return nil, err
	}
	most, err := atMostIn(r)
	if err != nil {
		return nil, err
	}
	list, next, err := s.Tokens.SearchFrom(r.Context(), c, in.Query, in.Start, page.Size, most)
	if err != nil {
		return nil, err
	}
	return from(page.Size, next, each(list, rawToken))
}
