package proxy

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/definition"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/script"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// transformTimeout is how long one transform may take.
const transformTimeout = 10 * time.Second

// The names of the two pieces of code of a proxy.
const (
	entryRequest  = "request"
	entryResponse = "response"
)

var (
	errResult     = fault.New(fault.Unprocessable, "a transform must return an object with body, headers or both")
	errHeaders    = fault.New(fault.Unprocessable, "a transform must return headers as an object of valid texts")
	errResultSize = fault.New(fault.Unprocessable, "a transform returned a body that is too large")
	errEncoding   = fault.New(fault.Unprocessable, "the destination answered in an encoding that a transform cannot read")
	errTokenize   = fault.New(fault.Unprocessable, "a reactor that is a transform must tokenize with req.bt, and return body and headers")
	errChanged    = fault.New(fault.Unavailable, "the proxy was changed meanwhile").RetryAfter(time.Second)
	errAnswerSize = fault.New(fault.Unprocessable, "the destination's answer is too large for a transform")
)

// message is what a transform sees and changes.
type message struct {
	header http.Header
	body   []byte
}

// shaping is what runs on the messages of one proxy.
type shaping struct {
	request, response *script.Deployed // nil for none
	reactors          []string         // that they are
}

// shapingOf finds the code of a proxy: its own, or that of the reactors which it
// names, as they are now.
func (s *Service) shapingOf(ctx context.Context, p Proxy) (out shaping, err error) {
	own := script.Program{
		Tenant: p.TenantID, ID: p.ID, Version: p.Version, Application: p.ApplicationID,
		Sources: map[string]string{entryRequest: RequestTransform(p), entryResponse: ResponseTransform(p)},
	}
	find := func(entry, reactor string) (*script.Deployed, error) {
		switch {
		case reactor == "" && own.Sources[entry] == "":
			return nil, nil
		case reactor == "":
			return &script.Deployed{Program: own, Entry: entry, Configuration: Configuration(p)}, nil
		}
		d, err := s.options.Reactor(ctx, p.TenantID, reactor)
		if errors.Is(err, fault.NotFound) {
			return nil, errChanged // a reactor that a proxy names is not deleted: the proxy names it no more
		}
		out.reactors = append(out.reactors, reactor)
		return &d, err
	}
	if out.request, err = find(entryRequest, RequestReactor(p)); err != nil {
		return out, err
	}
	out.response, err = find(entryResponse, ResponseReactor(p))
	out.reactors = slices.Compact(out.reactors)
	return out, err
}

// transform runs code on a message. args are the arguments beside its body and
// headers.
func (s *Service) transform(ctx context.Context, t *target, code *script.Deployed, m message, args jsonvalue.Value, used *token.Used) (message, error) {
	if err := t.caller.ChargeMemory(jsonvalue.Weight(m.body)); err != nil {
		return m, err
	}
	body, text, err := bodyArgument(m, code == t.code.request)
	if err != nil {
		return m, err
	}
	args = args.With("body", body).With("headers", headersArgument(m.header))
	ran, err := s.scripts.Run(ctx, code.Program, script.Call{
		Entry: code.Entry, Args: args, Configuration: code.Configuration, Headers: true, Timeout: transformTimeout,
		Origin: t.caller.Origin(), Protected: used.Leaves(),
	})
	if err != nil {
		return m, err
	}
	if tokenize, _ := ran.Value.Get("tokenize"); code.Program.ID != t.id && !tokenize.IsNull() {
		return m, errTokenize
	}
	return s.result(ran.Value, m, text)
}

// bodyArgument is the body for the code: what its JSON says for JSON, else its
// text. The empty body of a request is an empty object where it would be JSON. An
// answer that is no JSON although it says so is a text.
func bodyArgument(m message, request bool) (v jsonvalue.Value, text string, err error) {
	if isJSON(m.header.Get("Content-Type")) {
		if len(m.body) == 0 && request {
			return definition.EmptyObject, "", nil
		}
		if len(m.body) == 0 {
			return jsonvalue.Value{}, "", nil
		}
		if v, err = jsonvalue.Parse(m.body); err == nil {
			return v, "", nil
		}
		if request {
			return v, "", errJSON
		}
	}
	text = strings.ToValidUTF8(string(m.body), "\uFFFD")
	return jsonvalue.NewString(text), text, nil
}

func headersArgument(h http.Header) jsonvalue.Value {
	var b jsonvalue.Builder
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if name != "Set-Cookie" { // whose values cannot be joined
			b.Add(name, jsonvalue.NewString(strings.Join(h[name], ", ")))
			continue
		}
		lines := make([]jsonvalue.Value, len(h[name]))
		for i, line := range h[name] {
			lines[i] = jsonvalue.NewString(line)
		}
		b.Add(name, jsonvalue.NewArray(lines))
	}
	return b.Value()
}

// result reads what a transform returned. A part that it left out stays as it
// was; text is the body as the code saw it when that was a text.
func (s *Service) result(v jsonvalue.Value, m message, text string) (message, error) {
	if raw, ok := v.Get("raw"); ok && raw.Kind() == jsonvalue.Object {
		v = raw
	}
	body, hasBody := v.Get("body")
	headers, hasHeaders := v.Get("headers")
	if !hasBody && !hasHeaders {
		return m, errResult
	}
	if hasHeaders && !headers.IsNull() {
		given, err := s.headersOf(headers)
		if err != nil {
			return m, err
		}
		m.header = given
	}
	switch {
	case !hasBody:
	case body.IsNull():
		m.body = nil
	case body.Kind() == jsonvalue.String:
		// What was no UTF-8 comes back whole when the code left it alone.
		if body.Reveal() != text {
			m.body = []byte(body.Reveal())
		}
	default:
		m.body = body.AppendJSON(nil)
		if m.header.Get("Content-Type") == "" {
			m.header.Set("Content-Type", "application/json")
		}
	}
	if len(m.body) > maxTransform {
		return m, errResultSize
	}
	return m, nil
}

// headersOf reads the headers that code returned: texts, numbers and booleans,
// or lists of them. What is not the code's to set is left out.
func (s *Service) headersOf(v jsonvalue.Value) (http.Header, error) {
	if v.Kind() != jsonvalue.Object {
		return nil, errHeaders
	}
	h := make(http.Header)
	for name, member := range v.Members() {
		if !s.passable(name) || plainName(name) == "content-encoding" {
			continue
		}
		items := []jsonvalue.Value{member}
		if member.Kind() == jsonvalue.Array {
			items = items[:0]
			for _, item := range member.Items() {
				items = append(items, item)
			}
		}
		// Code spreads the headers that it got and adds its own in another case:
		// what comes later counts.
		h.Del(name)
		for _, item := range items {
			switch item.Kind() {
			case jsonvalue.Null:
			case jsonvalue.String, jsonvalue.Number, jsonvalue.Bool:
				if !isValue(item.Reveal()) {
					return nil, errHeaders
				}
				h.Add(name, item.Reveal())
			default:
				return nil, errHeaders
			}
		}
	}
	return h, nil
}
