package httpapi_test

import (
	"errors"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

func TestPagesAreParsedAndWritten(t *testing.T) {
	const pageWords, sizeWords = "must be a whole number from 1", "must be a whole number from 1 to 100"
	for name, tt := range map[string]struct {
		query string
		want  httpapi.Page
		bad   map[string][]string
	}{
		"defaults":          {"", httpapi.Page{Number: 1, Size: 20}, nil},
		"both":              {"page=3&size=100", httpapi.Page{Number: 3, Size: 100}, nil},
		"the first counts":  {"page=3&page=x", httpapi.Page{Number: 3, Size: 20}, nil},
		"far away":          {"page=9999999999&size=100", httpapi.Page{Number: 9999999999, Size: 100}, nil},
		"the last":          {"page=99999999999&size=100", httpapi.Page{Number: 99_999_999_999, Size: 100}, nil},
		"after the last":    {"page=9007199254740992", httpapi.Page{}, map[string][]string{"page": {pageWords}}},
		"page zero":         {"page=0", httpapi.Page{}, map[string][]string{"page": {pageWords}}},
		"size zero":         {"size=0", httpapi.Page{}, map[string][]string{"size": {sizeWords}}},
		"size too large":    {"size=101", httpapi.Page{}, map[string][]string{"size": {sizeWords}}},
		"both wrong":        {"page=-1&size=abc", httpapi.Page{}, map[string][]string{"page": {pageWords}, "size": {sizeWords}}},
		"empty":             {"page=", httpapi.Page{}, map[string][]string{"page": {pageWords}}},
		"a fraction":        {"page=1.5", httpapi.Page{}, map[string][]string{"page": {pageWords}}},
		"beyond all bounds": {"page=99999999999999999999", httpapi.Page{}, map[string][]string{"page": {pageWords}}},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := url.ParseQuery(tt.query)
			if err != nil {
				t.Fatal(err)
			}
			got, err := httpapi.PageOf(q)
			if diff := cmp.Diff(tt.bad, fault.Of(err).Fields()); diff != "" {
				t.Errorf("PageOf(%q) errors (-want +got)\n%s", tt.query, diff)
			}
			if tt.bad == nil && got != tt.want {
				t.Errorf("PageOf(%q) = %+v, want %+v", tt.query, got, tt.want)
			}
		})
	}
	for name, tt := range map[string]struct {
		page  httpapi.Page
		total int64
		items []int
		want  string
	}{
		"nothing":      {httpapi.Page{Number: 1, Size: 20}, 0, nil, `{"pagination":{"total_items":0,"page_number":1,"page_size":20,"total_pages":0},"data":[]}`},
		"one too many": {httpapi.Page{Number: 2, Size: 2}, 3, []int{3}, `{"pagination":{"total_items":3,"page_number":2,"page_size":2,"total_pages":2},"data":[3]}`},
		"past the end": {httpapi.Page{Number: 9, Size: 2}, 2, nil, `{"pagination":{"total_items":2,"page_number":9,"page_size":2,"total_pages":1},"data":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := httpapi.Encode(httpapi.ListOf(tt.page, tt.total, tt.items))
			if err != nil || string(got) != tt.want {
				t.Errorf("ListOf = %s, %v; want %s", got, err, tt.want)
			}
		})
	}
	if got := (httpapi.Page{Number: 99_999_999_999, Size: 100}).Offset(); got != 9_999_999_999_800 {
		t.Errorf("Offset of the last page = %d", got)
	}
}

func TestQueriesAreBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		query string
		ok    bool
	}{
		"repeated keys":       {"id=a&id=b", true},
		"as many as may be":   {strings.Repeat("id=a&", 999), true},
		"too many":            {strings.Repeat("id=a&", 1000), false},
		"a broken escape":     {"id=%zz", false},
		"a semicolon":         {"a=1;b=2", false},
		"a NUL":               {"id=%00", false},
		"not UTF-8":           {"id=%ff", false},
		"a name not of UTF-8": {"%ff=1", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/tokens", nil)
			r.URL.RawQuery = tt.query
			q, err := httpapi.Query(r)
			if tt.ok != (err == nil) || !tt.ok && !errors.Is(err, fault.Invalid) {
				t.Errorf("Query(%.40q) = %d parameters, %v", tt.query, len(q), err)
			}
		})
	}
}
