package client

import (
	"context"
	"iter"
	"net/url"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
)

var (
	getActivity  = row{method: "GET", path: "/reports/activity"}
	listKeyUse   = row{method: "GET", path: "/reports/keys"}
	listAccess   = row{method: "GET", path: "/reports/access"}
	getAttention = row{method: "GET", path: "/reports/attention"}
)

// Reports are about the tenant that the key belongs to.
type Reports struct{ caller *caller }

// ActivityFilter says which activity is reported. The zero value is the last day
// by the hour.
type ActivityFilter struct {
	Bucket        string // minute, hour or day; default hour
	From          time.Time
	Before        time.Time
	ApplicationID string
	Together      bool // adds up all applications
}

// Activity returns what happened, by bucket and application. It takes
// report:read.
func (r Reports) Activity(ctx context.Context, f ActivityFilter) (api.ActivityReport, error) {
	q := LogFilter{From: f.From, Before: f.Before}.query()
	q.Set("bucket", "hour")
	if f.Bucket != "" {
		q.Set("bucket", f.Bucket)
	}
	if f.ApplicationID != "" {
		q.Set("application_id", f.ApplicationID)
	}
	if f.Together {
		q.Set("by", "nothing")
	}
	return get[api.ActivityReport](ctx, r.caller, request{row: getActivity, query: q})
}

// Keys goes through the API keys of the tenant, oldest first, with their age and
// the day of their last use. It takes application:read.
func (r Reports) Keys(ctx context.Context) iter.Seq2[api.KeyReport, error] {
	return each(func(number int) (api.List[api.KeyReport], error) { return r.KeysPage(ctx, number, pageSize) },
		func(k api.KeyReport) string { return k.ID })
}

// KeysPage returns one page of them, from 1. A size of 0 is the server's default.
func (r Reports) KeysPage(ctx context.Context, number, size int) (api.List[api.KeyReport], error) {
	return get[api.List[api.KeyReport]](ctx, r.caller, request{row: listKeyUse, query: withPage(url.Values{}, number, size)})
}

// Access goes through everybody who may see values, once for each permission and
// container where that begins. Since, unless it is zero, marks what changed at
// that time or later. It takes application:read.
func (r Reports) Access(ctx context.Context, since time.Time) iter.Seq2[api.AccessReport, error] {
	return each(func(number int) (api.List[api.AccessReport], error) {
		return r.AccessPage(ctx, since, number, pageSize)
	},
		func(a api.AccessReport) string { return a.Kind + "/" + a.ID + "/" + a.Permission + a.Container })
}

// AccessPage returns one page of them, from 1. A size of 0 is the server's default.
func (r Reports) AccessPage(ctx context.Context, since time.Time, number, size int) (api.List[api.AccessReport], error) {
	q := url.Values{}
	if !since.IsZero() {
		q.Set("changed_since", since.UTC().Format(time.RFC3339Nano))
	}
	return get[api.List[api.AccessReport]](ctx, r.caller, request{row: listAccess, query: withPage(q, number, size)})
}

// Attention returns what deserves attention, most urgent first. It takes
// report:read, and shows only things that the key may read.
func (r Reports) Attention(ctx context.Context) ([]api.AttentionItem, error) {
	return get[[]api.AttentionItem](ctx, r.caller, request{row: getAttention})
}
