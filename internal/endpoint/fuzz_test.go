package endpoint_test

import (
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/endpoint"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

// FuzzParameters: the query of a list is read, dates and filters of metadata
// included, or is the caller's fault.
func FuzzParameters(f *testing.F) {
	for _, s := range []string{
		"page=2&size=100", "size=0&page=99999999999999999999", "start_date=2031-05-06T07:08:09.123456%2B02:00&end_date=2031-05-06", "start_date=0001-01-01&end_date=9999-12-31T23:59:59",
		"metadata.a=b&metadata%5Bc%5D=d&metadata=%7B%22e%22%3A%22f%22%7D", "metadata=%7B%22a%22%3A1%7D", "id=a&id=b&type=card", "%zz", "a;b", "metadata[", "page=1&page=2",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.URL = &url.URL{Path: "/", RawQuery: query}
		q, err := httpapi.Query(r)
		if err != nil {
			if fault.Of(err).Kind() != fault.Invalid {
				t.Errorf("%q fails with %v", query, err)
			}
			return
		}
		page, rows, errPage := endpoint.PageOf(q)
		if errPage == nil && (page.Size < 1 || page.Size > 100 || rows.Offset < 0 || rows.Limit != page.Size) {
			t.Errorf("%q is the page %+v, the rows %+v", query, page, rows)
		}
		log, _, errLog := endpoint.LogFilterOf(q)
		if errLog == nil && (log.From < 0 || log.Before < 0) {
			t.Errorf("%q is the filter %+v", query, log)
		}
		_, errTokens := endpoint.TokenFilterOf(q)
		for _, err := range []error{errPage, errLog, errTokens} {
			if err != nil && fault.Of(err).Kind() != fault.Invalid {
				t.Errorf("%q fails with %v", query, err)
			}
		}
	})
}
