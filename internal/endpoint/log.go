package endpoint

import (
	"net/http"
	"net/url"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

func (s Services) listLogs(w http.ResponseWriter, r *http.Request, c access.Caller) error {
	return writeList(w, r, func(q url.Values, page store.Page) ([]store.LogEntry, int64, error) {
		filter, err := logFilterOf(q)
		if err != nil {
			return nil, 0, err
		}
		return s.Audit.List(r.Context(), c, filter, page)
	}, func(e store.LogEntry) api.LogEntry {
		return api.LogEntry{
			ID: e.ID, TenantID: c.Tenant(), ActorID: e.ActorID, ActorType: e.ActorType, SessionID: e.SessionID,
			EntityType: e.EntityType, EntityID: e.EntityID, Operation: e.Operation, Outcome: e.Outcome, Message: e.Message,
			TraceID: e.TraceID, ClientAddress: e.ClientAddress, CreatedAt: api.Time{Time: e.CreatedAt.Time()},
		}
	})
}

func logFilterOf(q url.Values) (store.LogFilter, error) {
	var bad fault.Fields
	f := store.LogFilter{EntityType: q.Get("entity_type"), EntityID: q.Get("entity_id")}
	f.From = dateOf(&bad, q, "start_date")
	f.Before = dateOf(&bad, q, "end_date")
	return f, bad.Err()
}

// dateForms are the ISO 8601 forms that a filter takes: an instant, an instant
// of UTC without saying so, and a day.
var dateForms = []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02T15:04", "2006-01-02"}

func dateOf(bad *fault.Fields, q url.Values, name string) store.Time {
	if q.Get(name) == "" {
		return 0
	}
	for _, form := range dateForms {
		if t, err := time.Parse(form, q.Get(name)); err == nil {
			return max(store.At(t), 1) // 0 is no bound, and no entry is that old
		}
	}
	bad.Add(name, "must be a date or a date-time of ISO 8601")
	return 0
}

func (s Services) listEntityTypes(w http.ResponseWriter, r *http.Request, c access.Caller) error {
	types, err := s.Audit.EntityTypes(r.Context(), c)
	if err != nil {
		return err
	}
	out := make([]api.EntityType, len(types))
	for i, t := range types {
		out[i] = api.EntityType{DisplayName: t.DisplayName, Value: t.Value}
	}
	return httpapi.WriteJSON(w, http.StatusOK, out)
}
