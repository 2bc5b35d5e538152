package client_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tokenkeep/tokenkeep/client"
)

func page(number, pages int, ids ...string) answer {
	body := fmt.Sprintf(`{"pagination":{"total_items":9,"page_number":%d,"page_size":100,"total_pages":%d},"data":[`, number, pages)
	for i, id := range ids {
		if i > 0 {
			body += ","
		}
		body += fmt.Sprintf(`{"id":%q,"created_at":"2030-01-02T03:04:05.00000%d+00:00"}`, id, 9-i)
	}
	return answer{status: 200, body: body + "]}"}
}

func TestListsGoThroughAllPages(t *testing.T) {
	cases := map[string]struct {
		answers []answer
		want    []string
		fails   bool
		calls   int
	}{
		"none":                   {[]answer{page(1, 0)}, nil, false, 1},
		"one page":               {[]answer{page(1, 1, "a", "b")}, []string{"a", "b"}, false, 1},
		"three pages":            {[]answer{page(1, 3, "a", "b"), page(2, 3, "c"), page(3, 3, "d")}, []string{"a", "b", "c", "d"}, false, 3},
		"a new one in front":     {[]answer{page(1, 2, "a", "b"), page(2, 2, "b", "c")}, []string{"a", "b", "c"}, false, 2},
		"fewer than there were":  {[]answer{page(1, 3, "a"), page(2, 1)}, []string{"a"}, false, 2},
		"pages that are empty":   {[]answer{page(1, 1<<30, "a"), page(2, 1<<30)}, []string{"a"}, false, 2},
		"an error at once":       {[]answer{status(403)}, nil, true, 1},
		"an error on the second": {[]answer{page(1, 3, "a"), status(403)}, []string{"a"}, true, 2},
	}
	for name, want := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, want.answers...)
			var got []string
			var failed error
			for a, err := range f.client(t).Applications.List(t.Context(), client.ApplicationFilter{}) {
				if err != nil {
					failed = err
					continue // there must be nothing more
				}
				got = append(got, a.ID)
			}
			if !slices.Equal(got, want.want) || errors.Is(failed, client.ErrForbidden) != want.fails || len(f.requests()) != want.calls {
				t.Errorf("List = %q, %v in %d calls, want %q, failing %t, in %d", got, failed, len(f.requests()), want.want, want.fails, want.calls)
			}
			for i, r := range f.requests() {
				if got, want := r.URL.RawQuery, fmt.Sprintf("page=%d&size=100", i+1); got != want {
					t.Errorf("call %d asked for %s, want %s", i+1, got, want)
				}
			}
		})
	}
}

func TestListsAskForNoMoreThanIsTaken(t *testing.T) {
	f := newFake(t, page(1, 5, "a", "b"))
	for range f.client(t).Applications.List(t.Context(), client.ApplicationFilter{}) {
		break
	}
	if n := len(f.requests()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

// TestListsOfLogsLeaveOutWhatCameLater, and begin anew when they are read again.
func TestListsOfLogsLeaveOutWhatCameLater(t *testing.T) {
	f := newFake(t, page(1, 2, "a", "b"), page(2, 2, "c"), page(1, 1, "z"))
	list := f.client(t).Logs.List(t.Context(), client.LogFilter{EntityType: "card"})
	var got []string
	for range 2 {
		for e, err := range list {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e.ID)
		}
	}
	var queries []string
	for _, r := range f.requests() {
		queries = append(queries, r.URL.RawQuery)
	}
	wantQueries := []string{
		"entity_type=card&page=1&size=100",
		"end_date=2030-01-02T03%3A04%3A05.00001Z&entity_type=card&page=2&size=100",
		"entity_type=card&page=1&size=100",
	}
	if want := []string{"a", "b", "c", "z"}; !slices.Equal(got, want) || !slices.Equal(queries, wantQueries) {
		t.Errorf("List = %q by %q, want %q by %q", got, queries, want, wantQueries)
	}
}
