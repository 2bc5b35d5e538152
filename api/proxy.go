package api

// Proxy is a destination of a tenant, to which requests are forwarded with the
// values of tokens in place of expressions.
type Proxy struct {
	ID                string            `json:"id"`
	TenantID          string            `json:"tenant_id"`
	Name              string            `json:"name"`
	Key               string            `json:"key"`
	DestinationURL    string            `json:"destination_url"`
	RequireAuth       bool              `json:"require_auth"`
	RequestTransform  *ProxyTransform   `json:"request_transform,omitempty"`
	ResponseTransform *ProxyTransform   `json:"response_transform,omitempty"`
	ApplicationID     string            `json:"application_id,omitempty"`
	Configuration     map[string]string `json:"configuration,omitempty"`
	Made
}

// ProxyTransform is code that shapes what passes through a proxy.
type ProxyTransform struct {
	Code string `json:"code"`
}

// WriteProxy is the body of POST /proxies and PUT /proxies/{id}. RequireAuth is
// true when it is nil.
type WriteProxy struct {
	Name              string            `json:"name"`
	DestinationURL    string            `json:"destination_url"`
	RequireAuth       *bool             `json:"require_auth,omitempty"`
	RequestTransform  *ProxyTransform   `json:"request_transform,omitempty"`
	ResponseTransform *ProxyTransform   `json:"response_transform,omitempty"`
	Application       *ApplicationRef   `json:"application,omitempty"`
	Configuration     map[string]string `json:"configuration,omitempty"`
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
