package endpoint

import (
	"net/http"
	"net/url"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/date"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

func (s Services) listLogs(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	return listed(r, func(q url.Values, page store.Page) ([]store.LogEntry, int64, error) {
		filter, err := logFilterOf(q)
		if err != nil {
			return nil, 0, err
		}
		return s.Audit.List(r.Context(), c, filter, page)
	}, func(e store.LogEntry) api.LogEntry { return logEntryOf(c, e) })
}

func (s Services) listLogsFrom(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	return listedFrom(r, func(q url.Values, size int) ([]store.LogEntry, string, error) {
		filter, err := logFilterOf(q)
		if err != nil {
			return nil, "", err
		}
		return s.Audit.ListFrom(r.Context(), c, filter, q.Get("start"), size)
	}, func(e store.LogEntry) api.LogEntry { return logEntryOf(c, e) })
}

func logEntryOf(c access.Caller, e store.LogEntry) api.LogEntry {
	return api.LogEntry{
		ID: e.ID, TenantID: c.Tenant(), ActorID: e.ActorID, ActorType: e.ActorType, SessionID: e.SessionID,
		EntityType: e.EntityType, EntityID: e.EntityID, Operation: e.Operation, Outcome: e.Outcome, Message: e.Message,
		TraceID: e.TraceID, ClientAddress: e.ClientAddress, ActorName: e.ActorName, Reason: e.Reason, CreatedAt: api.Time{Time: e.CreatedAt.Time()},
	}
}

func logFilterOf(q url.Values) (store.LogFilter, error) {
	var bad fault.Fields
	f := store.LogFilter{EntityType: q.Get("entity_type"), EntityID: q.Get("entity_id")}
	f.From = dateOf(&bad, q, "start_date")
	f.Before = dateOf(&bad, q, "end_date")
	return f, bad.Err()
}

func dateOf(bad *fault.Fields, q url.Values, name string) store.Time {
	if q.Get(name) == "" {
		return 0
	}
	d, ok := date.ParseParameter(q.Get(name))
	if !ok {
		bad.Add(name, date.Wanted)
		return 0
	}
	return max(store.At(d.Time), 1) // 0 is no bound, and no entry is that old
}

func (s Services) listNames(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	q, err := httpapi.Query(r)
	if err != nil {
		return nil, err
	}
	list, err := s.Audit.Names(r.Context(), c, q["id"])
	if err != nil {
		return nil, err
	}
	out := make([]api.Named, len(list))
	for i, n := range list {
		out[i] = api.Named{ID: n.ID, Kind: n.Kind, Name: n.Name, Deleted: n.Deleted}
	}
	return respond(http.StatusOK, out)
}

func (s Services) listEntityTypes(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	types, err := s.Audit.EntityTypes(r.Context(), c)
	if err != nil {
		return nil, err
	}
	out := make([]api.EntityType, len(types))
	for i, t := range types {
		out[i] = api.EntityType{DisplayName: t.DisplayName, Value: t.Value}
	}
	return respond(http.StatusOK, out)
}
