package api

import "encoding/json"

// Proxy is a destination of a tenant, to which requests are forwarded with the
// values of tokens in place of expressions.
type Proxy struct {
	ID                string          `json:"id"`
	TenantID          string          `json:"tenant_id"`
	Name              string          `json:"name"`
	Key               string          `json:"key"`
	DestinationURL    string          `json:"destination_url"`
	RequireAuth       bool            `json:"require_auth"`
	RequestTransform  *ProxyTransform `json:"request_transform,omitempty"`
	ResponseTransform *ProxyTransform `json:"response_transform,omitempty"`
	// RequestReactorID and ResponseReactorID name reactors whose code, configuration
	// and application are the transform.
	RequestReactorID  string            `json:"request_reactor_id,omitempty"`
	ResponseReactorID string            `json:"response_reactor_id,omitempty"`
	ApplicationID     string            `json:"application_id,omitempty"`
	Configuration     map[string]string `json:"configuration,omitempty"`
	Made
}

// ProxyTransform is code that shapes what passes through a proxy.
type ProxyTransform struct {
	Code string `json:"code"`
}

// Write returns the body of a PUT that leaves the proxy as it was read.
func (p Proxy) Write() WriteProxy {
	return WriteProxy{
		Name: p.Name, DestinationURL: p.DestinationURL, RequireAuth: &p.RequireAuth, RequestTransform: p.RequestTransform,
		ResponseTransform: p.ResponseTransform, RequestReactorID: p.RequestReactorID, ResponseReactorID: p.ResponseReactorID, ApplicationID: p.ApplicationID, Configuration: p.Configuration,
	}
}

// WriteProxy is the body of POST /proxies and PUT /proxies/{id}. RequireAuth is
// true when it is nil.
//
// The application is named by Application or by ApplicationID; one is enough. A
// PUT that leaves both out removes the application only where RequireAuth is
// true. To remove that of a proxy without it, set Application to
// &ApplicationRef{}, which is sent as null.
type WriteProxy struct {
	Name              string            `json:"name"`
	DestinationURL    string            `json:"destination_url"`
	RequireAuth       *bool             `json:"require_auth,omitempty"`
	RequestTransform  *ProxyTransform   `json:"request_transform,omitempty"`
	ResponseTransform *ProxyTransform   `json:"response_transform,omitempty"`
	RequestReactorID  string            `json:"request_reactor_id,omitempty"`
	ResponseReactorID string            `json:"response_reactor_id,omitempty"`
	Application       *ApplicationRef   `json:"application,omitzero"`
	ApplicationID     string            `json:"application_id,omitempty"`
	Configuration     map[string]string `json:"configuration,omitempty"`
}

// PreviewProxy is the body of POST /proxies/{id}/preview: a call to the proxy
// that nobody has made.
type PreviewProxy struct {
	// ApplicationID is the application whose key the call would bring. It is
	// left out for a proxy that asks for no key.
	ApplicationID string            `json:"application_id,omitempty"`
	Method        string            `json:"method,omitempty"` // default POST with a body, else GET
	Path          string            `json:"path,omitempty"`   // what would follow /proxy
	Query         string            `json:"query,omitempty"`
	Headers       map[string]string `json:"headers,omitempty"`
	// Body is a text, which is sent as it is, or any other JSON value, which is
	// sent as JSON with a type of its own unless the headers have one.
	Body json.RawMessage `json:"body,omitempty"`
}

// ProxyPreview is the request that a call would have sent, with masks and
// placeholders in place of the values of tokens. Nothing was sent.
type ProxyPreview struct {
	Method    string            `json:"method"`
	URL       string            `json:"url"`
	Headers   map[string]string `json:"headers"`
	Body      string            `json:"body,omitempty"`
	Anonymous bool              `json:"anonymous"` // the call would bring no key
	// Allowed is false when the call may not use one of the tokens. It would be
	// refused then.
	Allowed bool             `json:"allowed"`
	Tokens  []PreviewedToken `json:"tokens"`
	// NotRun when the proxy has such code: what is shown is the request before.
	RequestTransform  string `json:"request_transform,omitempty"`
	ResponseTransform string `json:"response_transform,omitempty"`
}

// NotRun is what a preview says of a transform that a call would run.
const NotRun = "not run"

// How a preview shows a token.
const (
	ShownMask        = "mask"        // its mask: the caller of the preview may read the token
	ShownPlaceholder = "placeholder" // [type], whatever the expression: nothing of its data
)

// PreviewedToken is a token that a call would use, whether it may, and why.
type PreviewedToken struct {
	ID         string       `json:"id,omitempty"` // absent when it could be a card number
	Type       string       `json:"type"`
	Containers []string     `json:"containers"`
	Allowed    bool         `json:"allowed"`             // whether the call may use it
	Transform  string       `json:"transform,omitempty"` // what the destination would get: mask or reveal
	Shown      string       `json:"shown"`               // ShownMask or ShownPlaceholder
	DecidedBy  AccessStep   `json:"decided_by"`
	Steps      []AccessStep `json:"steps"`
}

// ProxyError is the body of an error that a proxy made itself; what the
// destination answered is passed on as it is.
type ProxyError struct {
	ProxyError ProxyProblem `json:"proxy_error"`
}

// ProxyProblem is a Problem whose errors are always there.
type ProxyProblem struct {
	Errors map[string][]string `json:"errors"`
	Title  string              `json:"title"`
	Status int                 `json:"status"`
	Detail string              `json:"detail"`
}
