package script

import (
	"encoding/json"
	"net/http"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/sandbox"
)

// Thrown is an error that code threw, in the common shape. Its words are the
// code's own: they go to the tenant's own callers, never to a log.
type Thrown struct{ problem api.Problem }

// Error says no more than that: the words belong to the caller.
func (t *Thrown) Error() string { return "the code threw an error" }

// Unwrap says whose fault it is.
func (t *Thrown) Unwrap() error { return fault.Unprocessable }

// Problem is the error as the caller is told.
func (t *Thrown) Problem() api.Problem { return t.problem }

// Custom is an answer that code gives in place of its own result.
type Custom struct {
	Status  int
	Headers map[string]string
	Body    json.RawMessage // nil for none; a JSON string is a text body
}

func (c *Custom) Error() string { return "the code answered by itself" }

// Unwrap says whose doing it is.
func (c *Custom) Unwrap() error { return fault.Unprocessable }

// class is a class of errors that code may throw.
type class struct {
	status int
	detail string
}

// classes are recognised by the name of the error, wherever it came from.
var classes = map[string]class{
	"BadRequestError":                  {http.StatusBadRequest, "Bad Request"},
	"InvalidReactorConfigurationError": {http.StatusBadRequest, "Invalid Reactor Configuration"},
	"AuthenticationError":              {http.StatusUnauthorized, "Authentication Failed"},
	"InvalidPaymentMethodError":        {http.StatusPaymentRequired, "Invalid Payment Method"},
	"AuthorizationError":               {http.StatusForbidden, "Forbidden"},
	"RateLimitError":                   {http.StatusTooManyRequests, "Rate Limit Exceeded"},
	"ReactorRuntimeError":              {http.StatusInternalServerError, "Reactor Runtime Error"},
	"ServiceUnavailableError":          {http.StatusServiceUnavailable, "Service Unavailable"},
}

const customName = "CustomHttpResponseError"

const (
	maxMessages = 100
	maxMessage  = 2000 // characters
)

// thrown turns what code threw into an error of ours. An error counts as one
// of a class when its name says so and its status does not say otherwise.
func thrown(t sandbox.Thrown, hide func(string) string) error {
	if t.Name == customName && t.Custom != nil {
		// 1xx cannot end an exchange.
		if t.Custom.Status < 200 || t.Custom.Status > 599 {
			return &Thrown{api.Problem{
				Title: http.StatusText(http.StatusUnprocessableEntity), Status: http.StatusUnprocessableEntity,
				Detail: "the code answered with a status that is not from 200 to 599",
			}}
		}
		return &Custom{Status: t.Custom.Status, Headers: t.Custom.Headers, Body: t.Custom.Body}
	}
	if c, ok := classes[t.Name]; ok && (t.Status == 0 || t.Status == c.status) {
		return &Thrown{api.Problem{Title: http.StatusText(c.status), Status: c.status, Detail: c.detail, Errors: messages(t.Errors, hide)}}
	}
	detail := bounded(hide(t.Message))
	if detail == "" {
		detail = "the code threw an error without a message"
	}
	return &Thrown{api.Problem{
		Title: http.StatusText(http.StatusUnprocessableEntity), Status: http.StatusUnprocessableEntity, Detail: detail,
	}}
}

// messages reads the errors of a class: a list of texts by name.
func messages(raw json.RawMessage, hide func(string) string) map[string][]string {
	var given map[string][]string
	if len(raw) == 0 || json.Unmarshal(raw, &given) != nil || len(given) == 0 {
		return nil
	}
	kept := make(map[string][]string)
	for name, list := range given {
		if len(kept) == maxMessages {
			break
		}
		texts := make([]string, 0, min(len(list), maxMessages))
		for _, s := range list[:min(len(list), maxMessages)] {
			texts = append(texts, bounded(hide(s)))
		}
		kept[bounded(hide(name))] = texts
	}
	return kept
}

func bounded(s string) string {
	if n := 0; len(s) > maxMessage {
		for i := range s {
			if n++; n > maxMessage {
				return s[:i] + "…"
			}
		}
	}
	return s
}
