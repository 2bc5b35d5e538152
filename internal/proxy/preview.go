package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// Draft is a call that nobody has made.
type Draft struct {
	// Application is the one whose key the call would bring; "" for a call
	// without a key.
	Application string
	Method      string
	Path        string // what would follow /proxy
	Query       string
	Header      map[string]string
	Body        string
}

// Preview is the request that a call would have sent, with masks and
// placeholders in place of the values of tokens.
type Preview struct {
	Method    string
	URL       string
	Header    http.Header
	Body      string
	Anonymous bool
	// Allowed reports whether the call may use each of the tokens. Otherwise
	// nothing would have been sent.
	Allowed bool
	Tokens  []token.Previewed
	// Whether code would run on the request and on the answer. None has run.
	RequestTransform, ResponseTransform bool
}

// Preview shows what a call would send. It takes proxy:read and goes the way of
// a call, so whatever would end the call ends the preview, except what only
// values can tell, and except a token that the call may not use: that is in the
// preview. It sends nothing and runs no code. Of a token it shows no more than
// its mask, and that only to a viewer that may read the token. The read of the
// proxy is in the log, and so is one of each token.
func (s *Service) Preview(ctx context.Context, c access.Caller, id string, d Draft) (out Preview, err error) {
	p, err := s.definitions.Get(ctx, c, id)
	if err != nil {
		return out, err
	}
	in, err := s.drafted(ctx, c, p, d)
	if err != nil {
		return out, err
	}
	t := target{viewer: &c}
	t.query, _ = s.cutKeys(in)
	sent, err := s.drawn(ctx, in, &t, p)
	var denial *access.Denial
	if errors.As(err, &denial) {
		return out, fault.Of(err) // the words only: it is not c that was refused
	}
	if err != nil {
		return out, err
	}
	body := sent.body.bytes
	if sent.body.stream != nil {
		if body, err = io.ReadAll(sent.body.stream); err != nil {
			return out, readFault(err)
		}
	}
	allowed := true
	for _, p := range t.previewed {
		allowed = allowed && p.Transform != access.Nothing
	}
	return Preview{
		Method: sent.method, URL: sent.url.String(), Header: sent.header, Body: string(body), Anonymous: t.anonymous, Allowed: allowed, Tokens: t.previewed,
		RequestTransform: ShapesRequests(p), ResponseTransform: ShapesResponses(p),
	}, nil
}

// drafted is a draft as the request that a proxy would get.
func (s *Service) drafted(ctx context.Context, c access.Caller, p Proxy, d Draft) (in Incoming, err error) {
	var f fault.Fields
	if RequireAuth(p) && d.Application == "" {
		f.Add("application_id", "is required: the proxy asks for an API key")
	}
	if !RequireAuth(p) && d.Application != "" {
		f.Add("application_id", "cannot be given: the proxy asks for no API key")
	}
	if d.Path != "" && d.Path[0] != '/' {
		f.Add("path", "must begin with a slash")
	}
	header := make(http.Header, len(d.Header))
	for name, value := range d.Header {
		if !isValue(value) {
			f.Add("headers", "must have values without control characters")
		}
		header.Add(name, value)
	}
	if err := f.Err(); err != nil {
		return in, err
	}
	if _, err := http.NewRequest(d.Method, "/", nil); err != nil {
		return in, errMethod
	}
	if d.Method == http.MethodConnect {
		return in, errConnect
	}
	return Incoming{
		Method: d.Method, Path: d.Path, Query: strings.TrimPrefix(d.Query, "?"), ForceQuery: d.Query == "?", Header: header,
		Body: strings.NewReader(d.Body), Length: int64(len(d.Body)), Origin: c.Origin(),
		Authenticate: func() (access.Caller, error) { return s.acting(ctx, c.Tenant(), d.Application) },
	}, nil
}

// acting is the caller that a key of an application would be.
func (s *Service) acting(ctx context.Context, tenant, application string) (access.Caller, error) {
	as, err := s.options.Acting(ctx, tenant, application)
	switch kind := fault.Of(err).Kind(); {
	case err == nil:
		return as, nil
	case kind == fault.NotFound:
		return as, fault.Field("application_id", "must be an application of the tenant")
	case kind == fault.Unauthenticated:
		return as, fault.Field("application_id", "must be an application that has not expired")
	}
	return as, fmt.Errorf("find an application: %w", err)
}

// drawn goes the way of a call as far as sending.
func (s *Service) drawn(ctx context.Context, in Incoming, t *target, p Proxy) (out outgoing, err error) {
	if *t, err = s.enter(ctx, in, *t, p); err != nil {
		return out, err
	}
	return s.prepare(ctx, in, t)
}
