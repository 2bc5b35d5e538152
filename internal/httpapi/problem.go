package httpapi

import (
	"errors"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// statusClientGone is what logs say of a request whose client went away. Only
// a client that closed half of its connection will ever see it.
const statusClientGone = 499

var errClientGone = fault.New(fault.Invalid, "the request was cancelled")

// statuses maps the kinds of faults to the statuses of answers.
var statuses = map[fault.Kind]int{
	fault.Internal:         http.StatusInternalServerError,
	fault.Invalid:          http.StatusBadRequest,
	fault.Unauthenticated:  http.StatusUnauthorized,
	fault.Forbidden:        http.StatusForbidden,
	fault.NotFound:         http.StatusNotFound,
	fault.MethodNotAllowed: http.StatusMethodNotAllowed,
	fault.Timeout:          http.StatusRequestTimeout,
	fault.Conflict:         http.StatusConflict,
	fault.Gone:             http.StatusGone,
	fault.TooLarge:         http.StatusRequestEntityTooLarge,
	fault.MediaType:        http.StatusUnsupportedMediaType,
	fault.Unprocessable:    http.StatusUnprocessableEntity,
	fault.TooMany:          http.StatusTooManyRequests,
	fault.BadGateway:       http.StatusBadGateway,
	fault.Unavailable:      http.StatusServiceUnavailable,
}

// thrownCode is the code of an error that code of a tenant throws.
const thrownCode = "thrown_by_code"

// ProblemOf says what a caller is told of an error. An error without a fault,
// and a fault of a kind that is not in the table, is our failure: it shows the
// trace id and nothing else.
func ProblemOf(err error, traceID string) api.Problem {
	// What a tenant's code threw has words of its own.
	var own interface{ Problem() api.Problem }
	if errors.As(err, &own) {
		p := own.Problem()
		p.Code, p.TraceID = thrownCode, traceID
		return p
	}
	f := fault.Of(err)
	status, ok := statuses[f.Kind()]
	if !ok || status == http.StatusInternalServerError {
		return api.Problem{
			Title:  http.StatusText(http.StatusInternalServerError),
			Status: http.StatusInternalServerError,
			Detail: "internal error; trace id " + traceID, Code: f.Code(), TraceID: traceID,
		}
	}
	p := api.Problem{Title: http.StatusText(status), Status: status, Detail: f.Detail(), Code: f.Code(), TraceID: traceID, Errors: f.Fields()}
	if f == errClientGone {
		p.Title, p.Status = "Client Closed Request", statusClientGone
	}
	if len(p.Errors) > 0 && status == http.StatusBadRequest {
		p.Title = api.ValidationTitle
	}
	if p.Detail == "" {
		p.Detail = p.Title
	}
	return p
}

// writeProblem answers with an error. Whatever headers the handler had set
// are gone: they were of the answer that it did not give.
func (x *exchange) writeProblem(err error) {
	header := x.Header()
	clear(header)
	maps.Copy(header, x.before)
	x.setDefaults()
	if x.allow != "" {
		header.Set("Allow", x.allow)
	}
	p := ProblemOf(err, x.trace)
	wait := fault.Of(err).Wait()
	inTheWay := p.Status == http.StatusConflict && wait > 0 // of another request, and not of a state
	if inTheWay || p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		header.Set("Retry-After", strconv.Itoa(max(1, ceilSeconds(wait))))
	}
	var body any = p
	if x.row != nil && x.row.Problem != nil {
		body = x.row.Problem(p)
	}
	if err := WriteJSON(x, p.Status, body); err != nil {
		// Only a row's own shape can fail to encode; the status still stands.
		x.cause = err
		x.WriteHeader(p.Status)
	}
}

// ceilSeconds rounds up, so that nobody comes back too early.
func ceilSeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
