package endpoint

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/proxy"
	"github.com/tokenkeep/tokenkeep/internal/response"
)

func (s Services) previewProxy(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	var in api.PreviewProxy
	if err := httpapi.Decode(r, &in); err != nil {
		return nil, err
	}
	p, err := s.Proxies.Preview(r.Context(), c, r.PathValue("id"), draftOf(in))
	if err != nil {
		return nil, err
	}
	out := api.ProxyPreview{
		Method: p.Method, URL: p.URL, Headers: make(map[string]string, len(p.Header)), Body: p.Body, Anonymous: p.Anonymous, Allowed: p.Allowed,
		Tokens: make([]api.PreviewedToken, len(p.Tokens)), RequestTransform: notRun(p.RequestTransform), ResponseTransform: notRun(p.ResponseTransform),
	}
	for name, values := range p.Header {
		if text := strings.Join(values, ", "); text != "" { // an empty one stands for none
			out.Headers[name] = text
		}
	}
	for i, t := range p.Tokens {
		out.Tokens[i] = api.PreviewedToken{
			ID: t.ID, Type: t.Type, Containers: t.Containers, Allowed: t.Transform != access.Nothing, Transform: t.Transform.String(), Shown: api.ShownPlaceholder,
			DecidedBy: stepOf(t.By), Steps: make([]api.AccessStep, len(t.Steps)),
		}
		if t.Masked {
			out.Tokens[i].Shown = api.ShownMask
		}
		for j, step := range t.Steps {
			out.Tokens[i].Steps[j] = stepOf(step)
		}
	}
	return respond(http.StatusOK, out)
}

func notRun(code bool) string {
	if code {
		return api.NotRun
	}
	return ""
}

// draftOf fills in what a person leaves out.
func draftOf(in api.PreviewProxy) proxy.Draft {
	d := proxy.Draft{
		Application: in.ApplicationID, Method: in.Method, Path: in.Path, Query: in.Query, Header: make(map[string]string, len(in.Headers)+1),
	}
	typed := false
	for name, value := range in.Headers {
		d.Header[name] = value
		typed = typed || strings.EqualFold(name, "Content-Type")
	}
	if len(in.Body) > 0 && string(in.Body) != "null" && json.Unmarshal(in.Body, &d.Body) != nil { // no text
		d.Body = string(in.Body)
		if !typed {
			d.Header["Content-Type"] = api.MediaJSON
		}
	}
	if d.Method == "" {
		d.Method = http.MethodGet
		if d.Body != "" {
			d.Method = http.MethodPost
		}
	}
	return d
}
