package client

import (
	"iter"
	"net/url"
	"strconv"

	"github.com/tokenkeep/tokenkeep/api"
)

// pageSize is what iterators ask for, the most that the server gives.
const pageSize = 100

// named chooses things that have names.
func named(ids []string, name string) url.Values {
	q := url.Values{}
	for _, id := range ids {
		q.Add("id", id)
	}
	if name != "" {
		q.Set("name", name)
	}
	return q
}

// withPage adds a page to a query. Zeros leave the choice to the server.
func withPage(q url.Values, number, size int) url.Values {
	if number != 0 {
		q.Set("page", strconv.Itoa(number))
	}
	if size != 0 {
		q.Set("size", strconv.Itoa(size))
	}
	return q
}

// each goes through the items of all pages. Items that come in front meanwhile
// push others to the next page: those that stood on the last page are passed
// over. After an error there is nothing more.
func each[T any](fetch func(number int) (api.List[T], error), id func(T) string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		last := map[string]bool{}
		for number := 1; ; number++ {
			page, err := fetch(number)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			seen := make(map[string]bool, len(page.Data))
			for _, item := range page.Data {
				seen[id(item)] = true
				if !last[id(item)] && !yield(item, nil) {
					return
				}
			}
			if len(page.Data) == 0 || int64(number) >= page.Pagination.TotalPages {
				return
			}
			last = seen
		}
	}
}

// eachFrom goes through a list from place to place. A server that does not
// move on ends it.
func eachFrom[T any](fetch func(start string) (api.ListFrom[T], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for start := ""; ; {
			page, err := fetch(start)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page.Data {
				if !yield(item, nil) {
					return
				}
			}
			next := page.Pagination.Next
			if len(page.Data) == 0 || next == "" || next == start {
				return
			}
			start = next
		}
	}
}
