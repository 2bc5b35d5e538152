package endpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/limit"
	"github.com/tokenkeep/tokenkeep/internal/response"
)

const (
	// streamEvery is how often a stream looks for what was sealed.
	streamEvery = time.Second
	// streamHeartbeat is how often a stream that has nothing to send sends a
	// comment, and how often it looks whether its caller may still read the log.
	streamHeartbeat = 15 * time.Second
)

var (
	errPast   = fault.Field("past", "must be a number from 0 to 100")
	errFollow = fault.Field("follow", "must be true or false")
)

// streamLogs sends the log as server-sent events until the caller hangs up, may
// no longer read the log, or the server stops.
func (s Services) streamLogs(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	q, err := httpapi.Query(r)
	if err != nil {
		return nil, err
	}
	filter, match, err := logFilterOf(q)
	if err != nil {
		return nil, err
	}
	o := audit.StreamOptions{LastEventID: r.Header.Get("Last-Event-ID")}
	if q.Has("past") {
		if o.Past, err = strconv.Atoi(q.Get("past")); err != nil {
			return nil, errPast
		}
	}
	follow := q.Get("follow") != "false"
	if q.Has("follow") && q.Get("follow") != "true" && follow {
		return nil, errFollow
	}
	stream, err := s.Audit.OpenStream(r.Context(), c, filter, match, o)
	if errors.Is(err, audit.ErrStreams) {
		s.Limits.Reached(limit.LogStreams)
	}
	if err != nil {
		return nil, err
	}
	return &response.Response{Stream: func(w http.ResponseWriter) error {
		defer stream.Close()
		return pourLog(w, r, c, stream, follow)
	}}, nil
}

// pourLog writes the events of a stream as they come. An end that is not an
// error looks like any other: the client opens the stream again from the last
// event on.
func pourLog(w http.ResponseWriter, r *http.Request, c access.Caller, stream *audit.Stream, follow bool) error {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // proxies pass events on as they come
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // not every connection has one
	look, heartbeat := time.NewTicker(streamEvery), time.NewTicker(streamHeartbeat)
	defer look.Stop()
	defer heartbeat.Stop()
	send := func(text []byte) bool {
		_ = control.SetWriteDeadline(time.Now().Add(patience))
		_, err := w.Write(text)
		return err == nil && control.Flush() == nil
	}
	if !send([]byte(": open\n\n")) {
		return nil
	}
	for {
		events, more, err := stream.Next(r.Context())
		if err != nil {
			return err
		}
		for _, e := range events {
			data, err := json.Marshal(logEntryOf(c, e.Entry))
			if err != nil {
				return errors.New("endpoint: encode an event")
			}
			if !send(fmt.Appendf(nil, "id: %s\nevent: entry\ndata: %s\n\n", e.ID, data)) {
				return nil
			}
		}
		if more {
			continue
		}
		if !follow {
			return nil
		}
		select {
		case <-r.Context().Done():
			return nil
		case <-httpapi.Draining(r.Context()):
			return nil
		case <-look.C:
		case <-heartbeat.C:
			if again, err := httpapi.Authenticate(r); err != nil || again.Require(access.LogRead) != nil || !send([]byte(": \n\n")) {
				return nil // the caller may no longer read the log: the next request tells it why
			}
		}
	}
}
