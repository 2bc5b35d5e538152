package endpoint

import (
	"net/http"
	"net/url"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/report"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

var errBy = fault.Field("by", "must be application or nothing")

func (s Services) getActivity(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	q, err := httpapi.Query(r)
	if err != nil {
		return nil, err
	}
	var bad fault.Fields
	ask := audit.ActivityQuery{Bucket: q.Get("bucket"), Application: lowerUUID(q.Get("application_id")), Together: q.Get("by") == "nothing"}
	ask.From, ask.Before = dateOf(&bad, q, "start_date"), dateOf(&bad, q, "end_date")
	if err := bad.Err(); err != nil {
		return nil, err
	}
	if by := q.Get("by"); by != "" && by != "application" && by != "nothing" {
		return nil, errBy
	}
	a, err := s.Audit.Activity(r.Context(), c, ask)
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, api.ActivityReport{
		Bucket: a.Bucket, Start: api.Time{Time: a.From}, End: api.Time{Time: a.Before}, Total: countsOf(a.Total),
		Data: each(a.Buckets, func(b audit.Activity) api.Activity {
			return api.Activity{At: api.Time{Time: b.At}, ApplicationID: b.Application, ActivityCounts: countsOf(b)}
		}),
	})
}

func countsOf(a audit.Activity) api.ActivityCounts {
	return api.ActivityCounts{
		Reads: api.ActivityReads{Revealed: a.Revealed, Masked: a.Masked, Redacted: a.Redacted, Other: a.OtherReads},
		Uses:  a.Uses, Changes: a.Changes, Refusals: a.Refusals,
	}
}

func (s Services) listKeyReport(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	return listed(r, func(_ url.Values, page store.Page) ([]directory.KeyReport, int64, error) {
		all, err := s.Directory.KeyInventory(r.Context(), c)
		return part(all, page), int64(len(all)), err
	}, func(k directory.KeyReport) api.KeyReport {
		return api.KeyReport{
			ID: k.ID, Prefix: k.Prefix, ApplicationID: k.Application, ApplicationName: k.ApplicationName, ApplicationType: string(k.ApplicationType),
			CreatedAt: api.Time{Time: k.CreatedAt}, AgeDays: k.AgeDays, LastUsedOn: k.LastUsed, TrackedSince: k.TrackedSince, ExpiresAt: api.Time{Time: k.ExpiresAt},
		}
	})
}

// part is a page of a list that is read as a whole.
func part[T any](all []T, page store.Page) []T {
	from := min(page.Offset, len(all))
	return all[from:min(from+page.Limit, len(all))]
}

func (s Services) listAccessReport(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	return listed(r, func(q url.Values, page store.Page) ([]directory.AccessReport, int64, error) {
		var bad fault.Fields
		since := dateOf(&bad, q, "changed_since")
		if err := bad.Err(); err != nil {
			return nil, 0, err
		}
		all, err := s.Directory.AccessReview(r.Context(), c, since.Time())
		return part(all, page), int64(len(all)), err
	}, func(a directory.AccessReport) api.AccessReport {
		return api.AccessReport{
			AccessHolder: holderOf(a.Holder), Permission: a.Permission.String(), Changed: a.Changed, ChangedAt: api.Time{Time: a.ChangedAt}, ChangedBy: a.ChangedBy,
		}
	})
}

func (s Services) getAttention(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	list, err := s.Reports.Attention(r.Context(), c)
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, each(list, func(i report.Item) api.AttentionItem {
		return api.AttentionItem{Kind: i.Kind, Severity: string(i.Severity), EntityType: i.EntityType, EntityID: i.EntityID, Name: i.Name, Detail: i.Detail}
	}))
}
