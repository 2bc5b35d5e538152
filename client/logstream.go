package client

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
)

var (
	streamLogs = row{method: "GET", path: "/v2/logs/stream"}
	exportLogs = row{method: "GET", path: "/logs/export"}
	integrity  = row{method: "GET", path: "/logs/integrity"}
	verifyLog  = row{method: "POST", path: "/logs/verify"}
	getVerify  = row{method: "GET", path: "/logs/verify/{id}"}
)

// Streaming says how Logs.Stream works. The zero value will do.
type Streaming struct {
	// Past is how many of the newest entries it begins with, at most 100. It
	// counts for nothing when the filter has a From.
	Past int
	// LastEventID continues a stream after the event of this id.
	LastEventID string
	// Pause is how long it waits before it connects again; default 1 second.
	Pause time.Duration
	// Trouble, unless it is nil, is called with errors that may pass, before
	// Stream connects again.
	Trouble func(error)
}

// LogEvent is an entry of a stream, and where a stream continues after it.
type LogEvent struct {
	ID    string
	Entry api.LogEntry
}

// Stream goes through the entries that the filter takes as they are sealed, a
// few seconds after they are made, each one once, until ctx ends. With a From it
// begins with the entries of that time. When the connection ends it connects
// again and continues where it was; whatever else goes wrong ends it, and that
// error comes last. It takes log:read.
func (l Logs) Stream(ctx context.Context, f LogFilter, o Streaming) iter.Seq2[LogEvent, error] {
	return func(yield func(LogEvent, error) bool) {
		if !f.Before.IsZero() {
			yield(LogEvent{}, errFollowsOn)
			return
		}
		s := &logStream{logs: l, filter: f, options: o, last: o.LastEventID, seen: make(map[string]bool)}
		for tried := 0; ; {
			before := s.last
			stopped, err := s.once(ctx, yield)
			if stopped || ctx.Err() != nil {
				return
			}
			if err != nil && !passes(err) {
				yield(LogEvent{}, err)
				return
			}
			pause := cmp.Or(o.Pause, time.Second)
			if err != nil && o.Trouble != nil {
				o.Trouble(err)
			}
			var refusal *Error
			if errors.As(err, &refusal) {
				pause = max(pause, refusal.RetryAfter)
			}
			if tried++; err == nil || s.last != before {
				tried = 0
			}
			pause = max(pause, min(pause<<min(tried, 10), longestPause))
			if l.caller.sleep(ctx, pause) != nil {
				return
			}
		}
	}
}

// logStream is one run of Stream.
type logStream struct {
	logs    Logs
	filter  LogFilter
	options Streaming
	last    string // the id of the last event
	// seen has the entries of the past that the server sent before they were
	// sealed: when a stream is cut off they may come again.
	seen map[string]bool
}

// once reads one connection to its end. stopped says that nobody wants more.
func (s *logStream) once(ctx context.Context, yield func(LogEvent, error) bool) (stopped bool, err error) {
	q := s.filter.query()
	if s.last == "" && s.options.Past > 0 && s.filter.From.IsZero() {
		q.Set("past", strconv.Itoa(min(s.options.Past, pageSize)))
	}
	header := http.Header{"Accept": {"text/event-stream"}}
	if s.last != "" {
		header.Set("Last-Event-ID", s.last)
	}
	body, err := s.logs.caller.open(ctx, request{row: streamLogs, query: q}, header)
	if err != nil {
		return false, err
	}
	defer func() { _ = body.Close() }()
	for e, err := range events(body) {
		if err != nil {
			return false, s.logs.caller.broken(ctx, streamLogs, err)
		}
		var entry api.LogEntry
		if json.Unmarshal([]byte(e.data), &entry) != nil {
			return false, fmt.Errorf("client: %s: the answer is not understood", streamLogs)
		}
		if s.last = e.id; s.options.Past > 0 && s.filter.From.IsZero() {
			s.filter.From = entry.CreatedAt.Time // what is older was not asked for
		}
		if s.seen[entry.ID] {
			delete(s.seen, entry.ID)
			continue
		}
		if len(s.seen) < s.options.Past {
			s.seen[entry.ID] = true
		}
		if !yield(LogEvent{e.id, entry}, nil) {
			return true, nil
		}
	}
	return false, nil
}

// event is one server-sent event.
type event struct{ id, data string }

// maxEvent bounds a line of a stream.
const maxEvent = 1 << 20

// events reads server-sent events. The end of the stream is no error.
func events(r io.Reader) iter.Seq2[event, error] {
	return func(yield func(event, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxEvent)
		var e event
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), ":")
			value = strings.TrimPrefix(value, " ")
			switch {
			case lines.Text() == "" && e.data != "":
				if !yield(e, nil) {
					return
				}
				e = event{}
			case name == "id":
				e.id = value
			case name == "data":
				e.data += value
			}
		}
		if err := lines.Err(); err != nil {
			yield(event{}, err)
		}
	}
}

// open sends a request once and returns the body of its answer, to be read as it
// comes and closed.
func (c *caller) open(ctx context.Context, r request, header http.Header) (io.ReadCloser, error) {
	address, err := c.address(r)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, r.method, address, nil)
	if err != nil {
		return nil, fmt.Errorf("client: %s: the request cannot be made", r)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("User-Agent", "tokenkeep-go")
	if c.key != nil {
		req.Header.Set(api.Header(c.prefix, api.APIKey), c.key())
	}
	unhurried := c.http
	unhurried.Timeout = 0 // it ends with ctx
	resp, err := unhurried.Do(req)
	if err != nil {
		return nil, c.broken(ctx, r.row, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, c.maxResponse))
	if err != nil {
		return nil, c.broken(ctx, r.row, err)
	}
	return nil, c.refused(r.row, received{resp.StatusCode, resp.Header, text})
}

// Export writes all entries that the filter takes to w, newest first, as
// "ndjson" or "csv". After an error w holds a part. It takes log:read.
func (l Logs) Export(ctx context.Context, f LogFilter, format string, w io.Writer) error {
	q := f.query()
	q.Set("format", format)
	body, err := l.caller.open(ctx, request{row: exportLogs, query: q}, http.Header{"Accept": {"application/x-ndjson, text/csv"}})
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	if _, err := io.Copy(w, body); err != nil {
		var written *url.Error
		if errors.As(err, &written) || ctx.Err() != nil {
			return l.caller.broken(ctx, exportLogs, err)
		}
		return fmt.Errorf("client: %s: %w", exportLogs, err)
	}
	return nil
}

// Integrity returns the signed head of the log, what is not sealed yet, and when
// the log was last verified and by whom. It takes log:read.
func (l Logs) Integrity(ctx context.Context) (api.LogIntegrity, error) {
	return get[api.LogIntegrity](ctx, l.caller, request{row: integrity})
}

// Verify starts a verification of the log, or returns the one that is under way.
// It takes log:read.
func (l Logs) Verify(ctx context.Context) (api.LogVerification, error) {
	return get[api.LogVerification](ctx, l.caller, request{row: verifyLog})
}

// Verification returns how far a verification has come, and what it found. It
// takes log:read.
func (l Logs) Verification(ctx context.Context, id string) (api.LogVerification, error) {
	return get[api.LogVerification](ctx, l.caller, request{row: getVerify, ids: []string{id}})
}
