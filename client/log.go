package client

import (
	"context"
	"iter"
	"net/url"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
)

var (
	listLogs        = row{method: "GET", path: "/logs"}
	listLogsFrom    = row{method: "GET", path: "/v2/logs"}
	listNames       = row{method: "GET", path: "/names"}
	listEntityTypes = row{method: "GET", path: "/logs/entity-types"}
)

// Logs are the entries of a tenant's audit log.
type Logs struct{ caller *caller }

// LogFilter chooses entries. The zero value takes all.
type LogFilter struct {
	EntityType string
	EntityID   string
	From       time.Time // made then or later
	Before     time.Time // made before then

	// What follows has no index: the server reads a bounded number of entries
	// in one call, and parts of a list may be empty.
	ActorID   string
	Operation string
	Outcome   string // allowed or denied
	Transform string // how much of a token was shown: reveal, mask or redact
	TraceID   string
}

func (f LogFilter) query() url.Values {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	date := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339Nano)
	}
	set("entity_type", f.EntityType)
	set("entity_id", f.EntityID)
	set("start_date", date(f.From))
	set("end_date", date(f.Before))
	set("actor_id", f.ActorID)
	set("operation", f.Operation)
	set("outcome", f.Outcome)
	set("transform", f.Transform)
	set("trace_id", f.TraceID)
	return q
}

// List goes through all entries that the filter takes, newest first, and asks
// for pages as it goes. An error comes last. It takes log:read.
//
// Entries made after it began are left out. Those of reading the log itself are
// in it only when the filter names their type, log.
func (l Logs) List(ctx context.Context, f LogFilter) iter.Seq2[api.LogEntry, error] {
	return func(yield func(api.LogEntry, error) bool) {
		f := f // of this run alone
		each(func(number int) (api.List[api.LogEntry], error) {
			page, err := l.Page(ctx, f, number, pageSize)
			if number == 1 && len(page.Data) > 0 {
				f.Before = page.Data[0].CreatedAt.Add(time.Microsecond)
			}
			return page, err
		}, func(e api.LogEntry) string { return e.ID })(yield)
	}
}

// Page returns one page of them, from 1. A size of 0 is the server's default.
func (l Logs) Page(ctx context.Context, f LogFilter, number, size int) (api.List[api.LogEntry], error) {
	return l.page(ctx, f, number, size, "")
}

func (l Logs) page(ctx context.Context, f LogFilter, number, size int, trace string) (api.List[api.LogEntry], error) {
	return get[api.List[api.LogEntry]](ctx, l.caller, request{row: listLogs, query: withPage(f.query(), number, size), trace: trace})
}

// ListFrom is List by way of cursors: no page costs more than the first, and
// entries that are made meanwhile do not shift the others.
func (l Logs) ListFrom(ctx context.Context, f LogFilter) iter.Seq2[api.LogEntry, error] {
	return eachFrom(func(start string) (api.ListFrom[api.LogEntry], error) { return l.PageFrom(ctx, f, start, pageSize) })
}

// PageFrom returns what follows a cursor: "" for the beginning, then what the
// page before named as next. A size of 0 is the server's default.
func (l Logs) PageFrom(ctx context.Context, f LogFilter, start string, size int) (api.ListFrom[api.LogEntry], error) {
	q := withPage(f.query(), 0, size)
	if start != "" {
		q.Set("start", start)
	}
	return get[api.ListFrom[api.LogEntry]](ctx, l.caller, request{row: listLogsFrom, query: q})
}

// Names returns what ids belong to, at most 100, in their order. Those that
// nothing is known of are left out. It takes log:read, and for a name the
// permission to read the thing itself.
func (l Logs) Names(ctx context.Context, ids ...string) ([]api.Named, error) {
	return get[[]api.Named](ctx, l.caller, request{row: listNames, query: named(ids, "")})
}

// EntityTypes returns what entries may be about. It takes log:read.
func (l Logs) EntityTypes(ctx context.Context) ([]api.EntityType, error) {
	return get[[]api.EntityType](ctx, l.caller, request{row: listEntityTypes})
}
