package endpoint_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/endpoint"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

// listedForCode returns the calls that docs/reactors.md lists, with the
// permission of each.
func listedForCode(t *testing.T) (list []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/reactors.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, begins := strings.Cut(string(page), "<!-- calls that code may make -->")
	table, _, ends := strings.Cut(after, "<!-- end of calls -->")
	if !begins || !ends {
		t.Fatal("docs/reactors.md does not list the calls that code may make")
	}
	for _, row := range regexp.MustCompile("(?m)^\\| (\\S+) \\| `(\\S+)` \\| `(\\S+)` \\|").FindAllStringSubmatch(table, -1) {
		list = append(list, strings.Replace(row[1], "any", "*", 1)+" "+row[2]+" "+row[3])
	}
	return list
}

// TestTheCallsThatCodeMayMakeAreThoseOfThePage calls every row as code does.
// The page lists exactly those that the server lets through.
func TestTheCallsThatCodeMayMakeAreThoseOfThePage(t *testing.T) {
	rows := endpoint.Routes(endpoint.Services{})
	for i := range rows {
		rows[i].Handle = func(w http.ResponseWriter, _ *http.Request, _ access.Caller) error {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
	}
	h := httpapi.New(httpapi.Options{}, rows)
	code := h.As(accesstest.Caller(t, "tenant", "application", access.TokenRead))
	var let []string
	for _, row := range h.Routes() {
		method, path, _ := strings.Cut(row.Pattern, " ")
		pattern := method + " " + strings.Replace(path, "/{rest...}", "", 1)
		if method == "*" {
			method = http.MethodPost
		}
		path = strings.Replace(path, "/{rest...}", "", 1)
		path = regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, "x")
		w := httptest.NewRecorder()
		code.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		switch w.Code {
		case http.StatusNoContent:
			let = append(let, pattern+" "+row.Permission.String())
		case http.StatusNotFound:
		default:
			t.Errorf("%s from code = %d %s, want that it is served or not there", row.Pattern, w.Code, w.Body)
		}
	}
	listed := listedForCode(t)
	slices.Sort(let)
	slices.Sort(listed)
	if !slices.Equal(let, listed) {
		t.Errorf("the server lets code call\n%s\nand docs/reactors.md lists\n%s", strings.Join(let, "\n"), strings.Join(listed, "\n"))
	}
	if len(let) == 0 || len(let) == len(h.Routes()) {
		t.Errorf("%d of %d rows are for code", len(let), len(h.Routes()))
	}
}
