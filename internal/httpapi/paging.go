package httpapi

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// maxQuery bounds the parameters of one query: room for the ids of a list and
// for every metadata filter.
const maxQuery = 1000

var (
	errQueryCount = fault.New(fault.Invalid, "the query has too many parameters")
	errQuery      = fault.New(fault.Invalid, "the query is not valid")
)

// Query parses the query of a request. Arrays are repeated keys.
func Query(r *http.Request) (url.Values, error) {
	raw := r.URL.RawQuery
	if strings.Count(raw, "&") >= maxQuery {
		return nil, errQueryCount
	}
	q, err := url.ParseQuery(raw)
	if err != nil {
		return nil, errQuery
	}
	for name, values := range q {
		for _, s := range append(values, name) {
			if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
				return nil, errQuery
			}
		}
	}
	return q, nil
}

// Page is what a caller asked of a list.
type Page struct {
	Number int // from 1
	Size   int // 1 to 100
}

// Offset returns how many items come before the page.
func (p Page) Offset() int64 { return int64(p.Number-1) * int64(p.Size) }

// maxPage has fewer digits than a card number, because responses repeat the
// number of the page.
const maxPage = 99_999_999_999

// PageOf reads page and size from a query.
func PageOf(q url.Values) (Page, error) {
	var bad fault.Fields
	number := func(name string, value, most int, message string) int {
		if q.Has(name) {
			n, err := strconv.Atoi(q.Get(name))
			if err != nil || n < 1 || n > most {
				bad.Add(name, message)
			}
			value = n
		}
		return value
	}
	p := Page{
		Number: number("page", 1, maxPage, "must be a whole number from 1"),
		Size:   number("size", 20, 100, "must be a whole number from 1 to 100"),
	}
	return p, bad.Err()
}

// ListOf is one page of a list that has total items, as it is written.
func ListOf[T any](p Page, total int64, items []T) api.List[T] {
	if items == nil {
		items = []T{}
	}
	return api.List[T]{
		Pagination: api.Pagination{
			TotalItems: total,
			PageNumber: p.Number,
			PageSize:   p.Size,
			TotalPages: (total + int64(p.Size) - 1) / int64(p.Size),
		},
		Data: items,
	}
}
