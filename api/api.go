// Package api holds what travels between a client and the service: header
// names and the shapes of bodies.
//
// It promises to stay free of behaviour, so that clients may depend on it. It
// imports nothing of ours and never decides anything.
package api

// DefaultPrefix is the header prefix of a server that sets no other.
const DefaultPrefix = "SVC"

// The headers of the service, without the prefix that a server sets.
const (
	APIKey                 = "API-KEY"
	PublicKey              = "PUBLIC-KEY"
	IdempotencyKey         = "IDEMPOTENCY-KEY"
	IdempotentReplayed     = "IDEMPOTENT-REPLAYED"
	ProxyKey               = "PROXY-KEY"
	ProxyURL               = "PROXY-URL"
	ProxyKeepAlive         = "PROXY-KEEP-ALIVE"
	ProxyConnection        = "PROXY-CONNECTION"
	ProxyDestinationStatus = "PROXY-DESTINATION-STATUS"
	TraceID                = "TRACE-ID"
	ReactorID              = "REACTOR-ID"
	RequestID              = "REQUEST-ID"
	RunID                  = "RUN-ID"
)

// HeaderNames lists all of them.
var HeaderNames = []string{
	APIKey, PublicKey, IdempotencyKey, IdempotentReplayed, ProxyKey, ProxyURL, ProxyKeepAlive, ProxyConnection,
	ProxyDestinationStatus, TraceID, ReactorID, RequestID, RunID,
}

// Header returns the full name of a header under a prefix.
func Header(prefix, name string) string { return prefix + "-" + name }

// Media types of request bodies.
const (
	MediaJSON       = "application/json"
	MediaMergePatch = "application/merge-patch+json"
	MediaNDJSON     = "application/x-ndjson"     // a JSON value on each line
	MediaAge        = "application/octet-stream" // a file that age has encrypted
)

// ValidationTitle is the title of a problem that has errors.
const ValidationTitle = "One or more validation errors occurred."

// Problem is the body of every error.
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Code is a stable word for programs.
	Code string `json:"code,omitempty"`
	// TraceID identifies the request in the operator's logs.
	TraceID string `json:"trace_id,omitempty"`
	// Errors has messages by the dotted path of the member at fault.
	Errors map[string][]string `json:"errors,omitempty"`
}

// Pagination says which page of how many a list is.
type Pagination struct {
	TotalItems int64 `json:"total_items"`
	PageNumber int   `json:"page_number"`
	PageSize   int   `json:"page_size"`
	TotalPages int64 `json:"total_pages"`
}

// List is one page of a list. Data is never null.
type List[T any] struct {
	Pagination Pagination `json:"pagination"`
	Data       []T        `json:"data"`
}

// Health is the body of a health check that passed.
type Health struct {
	Status string `json:"status"`
}
