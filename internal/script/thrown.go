package script

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"

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
	// maxThrown bounds what is looked through, in bytes. The runtime keeps to
	// less; what it runs may not.
	maxThrown = 256 << 10
)

const tooLong = "the message is too long to be shown"

// thrown turns what code threw into an error of ours. An error is one of a
// class when both its name and its status say so: many libraries have an
// AuthenticationError of their own, and their failure is not our caller's 401.
func thrown(t sandbox.Thrown, protected hidden) error {
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
	if c, ok := classes[t.Name]; ok && t.Status == c.status {
		return &Thrown{api.Problem{Title: http.StatusText(c.status), Status: c.status, Detail: c.detail, Errors: messages(t.Errors, protected)}}
	}
	detail := "the code threw an error without a message"
	switch {
	case len(t.Message) > maxThrown:
		detail = tooLong
	case t.Message != "":
		detail = bounded(protected.hide(t.Message)[0])
	}
	return &Thrown{api.Problem{
		Title: http.StatusText(http.StatusUnprocessableEntity), Status: http.StatusUnprocessableEntity, Detail: detail,
	}}
}

// messages reads the errors of a class: a list of texts by name.
func messages(raw json.RawMessage, protected hidden) map[string][]string {
	if len(raw) > maxThrown {
		return map[string][]string{"error": {tooLong}}
	}
	var given map[string][]string
	if len(raw) == 0 || json.Unmarshal(raw, &given) != nil || len(given) == 0 {
		return nil
	}
	var texts []string // a name, then its messages
	names := slices.Sorted(maps.Keys(given))
	names = names[:min(len(names), maxMessages)]
	for _, name := range names {
		given[name] = given[name][:min(len(given[name]), maxMessages)]
		texts = append(append(texts, name), given[name]...)
	}
	texts = protected.hide(texts...)
	kept := make(map[string][]string, len(names))
	for _, name := range names {
		n := len(given[name])
		list := make([]string, n)
		for i := range list {
			list[i] = bounded(texts[1+i])
		}
		kept[bounded(texts[0])] = list
		texts = texts[1+n:]
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
