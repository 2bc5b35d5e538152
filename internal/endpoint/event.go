package endpoint

import (
	"net/http"
	"strconv"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/event"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

func (s Services) listEvents(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	q, err := httpapi.Query(r)
	if err != nil {
		return nil, err
	}
	page, err := httpapi.PageOf(q)
	if err != nil {
		return nil, err
	}
	var bad fault.Fields
	query := event.Query{Types: q["type"], EntityID: q.Get("entity_id"), Start: q.Get("start"), Size: page.Size, Wait: waitOf(&bad, q.Get("wait"))}
	if since := dateOf(&bad, q, "since"); !since.IsZero() {
		query.Since = since.Time()
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	found, err := s.Events.List(r.Context(), c, query)
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, api.EventList{
		Pagination: api.EventCursor{PageSize: page.Size, Next: found.Next, More: found.More},
		Data:       each(found.Events, func(e store.Event) api.Event { return event.Wire(c.Tenant(), e) }),
	})
}

// waitOf reads how many seconds a caller waits for an event.
func waitOf(bad *fault.Fields, text string) time.Duration {
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > int(event.MaxWait/time.Second) {
		bad.Add("wait", "must be a whole number of seconds from 0 to 20")
		return 0
	}
	return time.Duration(n) * time.Second
}
