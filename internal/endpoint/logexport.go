package endpoint

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

var errLogFormat = fault.Field("format", "must be csv or ndjson")

// entryWriter writes entries in one format.
type entryWriter interface {
	begin() error
	put(e api.LogEntry) error
	flush() error
}

// exportLogs sends all entries of a filter as they are read.
func (s Services) exportLogs(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	q, err := httpapi.Query(r)
	if err != nil {
		return nil, err
	}
	filter, match, err := logFilterOf(q)
	if err != nil {
		return nil, err
	}
	format := q.Get("format")
	if format != "" && format != "ndjson" && format != "csv" {
		return nil, errLogFormat
	}
	if err := c.Require(access.LogRead); err != nil {
		return nil, err
	}
	return &response.Response{Stream: func(w http.ResponseWriter) error {
		control := http.NewResponseController(w)
		var out entryWriter = &ndjsonWriter{json.NewEncoder(w)}
		contentType, name := "application/x-ndjson", "log.ndjson"
		if format == "csv" {
			out, contentType, name = &csvWriter{csv.NewWriter(w)}, "text/csv; charset=utf-8", "log.csv"
		}
		begun := false
		begin := func() error {
			if begun {
				return nil
			}
			begun = true
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
			return out.begin()
		}
		err := s.Audit.Download(r.Context(), c, filter, match, func(piece []store.LogEntry) error {
			if err := begin(); err != nil {
				return err
			}
			_ = control.SetWriteDeadline(time.Now().Add(patience))
			for _, e := range piece {
				if err := out.put(logEntryOf(c, e)); err != nil {
					return err
				}
			}
			return out.flush()
		})
		if err != nil {
			return err // half an export must not look like a whole one
		}
		if err := begin(); err != nil {
			return err
		}
		return out.flush()
	}}, nil
}

type ndjsonWriter struct{ *json.Encoder }

func (n *ndjsonWriter) begin() error { return nil }
func (n *ndjsonWriter) flush() error { return nil }
func (n *ndjsonWriter) put(e api.LogEntry) error {
	if n.Encode(e) != nil {
		return errors.New("endpoint: write an entry")
	}
	return nil
}

// csvColumns are the fields of an entry, in the order of the columns.
var csvColumns = []struct {
	name  string
	value func(e api.LogEntry) string
}{
	{"created_at", func(e api.LogEntry) string { return e.CreatedAt.UTC().Format(time.RFC3339Nano) }},
	{"id", func(e api.LogEntry) string { return e.ID }},
	{"actor_type", func(e api.LogEntry) string { return e.ActorType }},
	{"actor_id", func(e api.LogEntry) string { return e.ActorID }},
	{"actor_name", func(e api.LogEntry) string { return e.ActorName }},
	{"session_id", func(e api.LogEntry) string { return e.SessionID }},
	{"operation", func(e api.LogEntry) string { return e.Operation }},
	{"outcome", func(e api.LogEntry) string { return e.Outcome }},
	{"entity_type", func(e api.LogEntry) string { return e.EntityType }},
	{"entity_id", func(e api.LogEntry) string { return e.EntityID }},
	{"transform", func(e api.LogEntry) string { return e.Transform }},
	{"reason", func(e api.LogEntry) string { return e.Reason }},
	{"message", func(e api.LogEntry) string { return e.Message }},
	{"trace_id", func(e api.LogEntry) string { return e.TraceID }},
	{"client_address", func(e api.LogEntry) string { return e.ClientAddress }},
}

type csvWriter struct{ *csv.Writer }

func (c *csvWriter) begin() error {
	var names []string
	for _, column := range csvColumns {
		names = append(names, column.name)
	}
	return c.Write(names)
}

func (c *csvWriter) put(e api.LogEntry) error {
	record := make([]string, len(csvColumns))
	for i, column := range csvColumns {
		record[i] = plainCell(column.value(e))
	}
	return c.Write(record)
}

func (c *csvWriter) flush() error {
	c.Flush()
	return c.Error()
}

// plainCell returns a text that no spreadsheet takes for a formula: ids, names,
// reasons and trace ids are chosen by callers.
func plainCell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r\n|%'", rune(text[0])) {
		return "'" + text
	}
	return text
}
