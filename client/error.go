package client

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/tokenkeep/tokenkeep/api"
)

// What went wrong, for errors.Is.
var (
	ErrInvalid         = errors.New("not valid")         // 400, 413, 415, or refused before it was sent
	ErrUnauthenticated = errors.New("not authenticated") // 401
	ErrForbidden       = errors.New("forbidden")         // 403
	ErrNotFound        = errors.New("not found")         // 404
	ErrConflict        = errors.New("conflict")          // 409
	ErrTooMany         = errors.New("too many requests") // 429
	ErrUnavailable     = errors.New("unavailable")       // 502, 503, 504, or no answer at all
)

var kinds = map[int]error{
	http.StatusBadRequest:            ErrInvalid,
	http.StatusRequestEntityTooLarge: ErrInvalid,
	http.StatusUnsupportedMediaType:  ErrInvalid,
	http.StatusUnauthorized:          ErrUnauthenticated,
	http.StatusForbidden:             ErrForbidden,
	http.StatusNotFound:              ErrNotFound,
	http.StatusConflict:              ErrConflict,
	http.StatusTooManyRequests:       ErrTooMany,
	http.StatusBadGateway:            ErrUnavailable,
	http.StatusServiceUnavailable:    ErrUnavailable,
	http.StatusGatewayTimeout:        ErrUnavailable,
}

// Error is an answer that says no.
type Error struct {
	// Operation is what was called, such as "GET /applications/{id}".
	Operation string
	Status    int
	// Problem is what the server said. When the answer was not in the server's
	// form, as from a load balancer in front of it, the title is the reason
	// phrase of the status and the rest is empty.
	Problem api.Problem
	// TraceID is how the server's operator finds the call; "" when the answer
	// had none.
	TraceID string
	// RetryAfter is how long the server asked to wait; 0 when it did not.
	RetryAfter time.Duration
}

// Error says what was called and what the server answered.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("client: " + e.Operation + ": " + strconv.Itoa(e.Status) + " " + printable(e.Problem.Title))
	if e.Problem.Detail != "" {
		b.WriteString(": " + printable(e.Problem.Detail))
	}
	for _, path := range slices.Sorted(maps.Keys(e.Problem.Errors)) {
		b.WriteString("; " + printable(path) + ": " + printable(strings.Join(e.Problem.Errors[path], ", ")))
	}
	if e.TraceID != "" {
		b.WriteString(" (trace id " + printable(e.TraceID) + ")")
	}
	return b.String()
}

// Is makes errors.Is(err, ErrNotFound) hold for a 404, and so on.
func (e *Error) Is(target error) bool {
	kind := kinds[e.Status]
	return kind != nil && target == kind
}

// printable makes a text of somebody else's fit for one line of a log.
func printable(s string) string {
	const longest = 300
	if r := []rune(s); len(r) > longest {
		s = string(r[:longest]) + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// refused makes the error for an answer that is no success. An answer that
// repeats the key is none of our server's, and is not shown.
func (c *caller) refused(r row, got received) error {
	e := &Error{Operation: r.String(), Status: got.status, RetryAfter: c.retryAfter(got.header)}
	if id := got.header.Get(api.Header(c.prefix, api.TraceID)); len(id) <= 128 && !c.holdsKey(id) {
		e.TraceID = id
	}
	if json.Unmarshal(got.text, &e.Problem) != nil || e.Problem.Status != got.status || c.holdsKey(string(got.text)) {
		e.Problem = api.Problem{Title: http.StatusText(got.status), Status: got.status}
		if got.status < 400 {
			e.Problem.Detail = "redirects are not followed"
		}
	}
	return e
}

// brokenError says that there was no whole answer.
type brokenError struct {
	row   row
	cause error
}

func (e *brokenError) Error() string {
	return "client: " + e.row.String() + ": " + printable(e.cause.Error())
}

func (e *brokenError) Unwrap() []error { return []error{ErrUnavailable, e.cause} }
