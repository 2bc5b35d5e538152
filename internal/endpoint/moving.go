package endpoint

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/importing"
	"github.com/tokenkeep/tokenkeep/internal/response"
)

var (
	errFirstLine = fault.Field("first_line", "must be a whole number from 1 to 1000000000000")
	errFormat    = fault.Field("format", "must be tokens or export")
	errDryRun    = fault.Field("dry_run", "must be true or false")
)

// importTokens makes tokens of the lines of a body. Both the body and the
// response may be of any length, so it has the connection to itself.
func (s Services) importTokens(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	if err := c.RequireSomewhere(access.TokenCreate); err != nil {
		return nil, err
	}
	q, err := httpapi.Query(r)
	if err != nil {
		return nil, err
	}
	in, err := importOf(q)
	if err != nil {
		return nil, err
	}
	return &response.Response{Stream: func(w http.ResponseWriter) error { return s.runImport(w, r, c, in) }}, nil
}

func importOf(q url.Values) (in importing.Import, err error) {
	in = importing.Import{ID: q.Get("id"), FirstLine: 1}
	if q.Has("first_line") {
		if in.FirstLine, err = strconv.ParseInt(q.Get("first_line"), 10, 64); err != nil {
			return in, errFirstLine
		}
	}
	switch q.Get("format") {
	case "", "tokens":
	case "export":
		in.Export = true
	default:
		return in, errFormat
	}
	switch q.Get("dry_run") {
	case "", "false":
	case "true":
		in.DryRun = true
	default:
		return in, errDryRun
	}
	return in, nil
}

func (s Services) runImport(w http.ResponseWriter, r *http.Request, c access.Caller, in importing.Import) error {
	control := http.NewResponseController(w)
	body := &unhurried{body: r.Body, control: control, since: time.Now()}
	defer body.stop()
	out := &lineWriter{w: w, control: control, next: in.FirstLine}
	first := true
	err := s.Imports.Run(r.Context(), in, body, importing.Observer{
		Caller: func() (access.Caller, error) {
			if first {
				first = false
				return c, nil
			}
			return httpapi.Authenticate(r)
		},
		Denied: func(c access.Caller, err error) { s.Audit.Refused(r.Context(), c, err, audit.Attempt{}) },
		Results: func(list []importing.Result) error {
			for _, result := range list {
				if err := out.write(importResult(result)); err != nil {
					return err
				}
			}
			return out.flush()
		},
	})
	if body.midway() {
		// What is left of the body must never be taken for a request.
		httpapi.Close(r)
	}
	switch {
	case err == nil:
		return out.end(api.ImportResult{Line: out.next, Status: api.ImportEnd})
	case !out.begun || fault.Of(err).Kind() == fault.Internal:
		return err // an internal error breaks the response off
	}
	s.Audit.Refused(r.Context(), c, err, audit.Attempt{})
	problem := httpapi.ProblemOf(err, httpapi.TraceID(r.Context()))
	return out.end(api.ImportResult{Line: out.next, Status: api.ImportStopped, Problem: &problem})
}

func importResult(r importing.Result) api.ImportResult {
	out := api.ImportResult{Line: r.Line, Status: r.Status, ID: r.ID}
	if r.Refusal != nil {
		out.Detail, out.Code, out.Errors = r.Refusal.Detail, r.Refusal.Code, r.Refusal.Fields
	}
	return out
}

// lineWriter writes a response line by line. It begins when the first line is
// written: an error before that has a response of its own.
type lineWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
	next    int64 // the line of the request that follows those with a result
}

func (l *lineWriter) write(result api.ImportResult) error {
	if !l.begun {
		l.begun = true
		_ = l.control.EnableFullDuplex() // HTTP/2 always does
		l.w.Header().Set("Content-Type", api.MediaNDJSON)
		l.w.WriteHeader(http.StatusOK)
	}
	line, err := httpapi.Encode(result)
	if err != nil {
		return err
	}
	_ = l.control.SetWriteDeadline(time.Now().Add(patience))
	if _, err := l.w.Write(append(line, '\n')); err != nil {
		return errReaderGone
	}
	if result.Status != api.ImportStopped && result.Status != api.ImportEnd {
		l.next = result.Line + 1
	}
	return nil
}

func (l *lineWriter) flush() error {
	if l.begun && l.control.Flush() != nil {
		return errReaderGone
	}
	return nil
}

// end writes the last line.
func (l *lineWriter) end(result api.ImportResult) error {
	if err := l.write(result); err != nil {
		return err
	}
	return l.flush()
}

// errReaderGone ends what is done for a caller who no longer reads.
var errReaderGone = fault.New(fault.Invalid, "the response was not read to its end")
