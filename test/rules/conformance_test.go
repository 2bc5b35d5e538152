package rules_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// contractSection is a section of the specification of the service API that
// states something: how many rows its table has, how many items its list, and
// how many statements of its text are listed at least.
type contractSection struct {
	number, title      string
	rows, items, prose int
}

// contractSections are all of them, in their order.
var contractSections = []contractSection{
	{"1", "What the service does", 0, 8, 2},
	{"2.1", "Token", 16, 0, 3},
	{"2.2", "Card data", 4, 0, 0},
	{"2.3", "Bank data", 2, 0, 0},
	{"2.4", "Token expiration", 0, 5, 0},
	{"2.5", "Log", 8, 0, 0},
	{"2.6", "Entity type", 2, 0, 0},
	{"2.7", "Session", 3, 0, 0},
	{"2.8", "Reactor", 10, 0, 1},
	{"2.9", "Proxy", 11, 0, 1},
	{"2.10", "Application (referenced only)", 0, 0, 1},
	{"2.11", "Pagination objects", 0, 0, 1},
	{"3", "States and transitions", 7, 0, 0},
	{"4", "Endpoints", 24, 0, 1},
	{"4.1", "Tokenize: POST /tokenize", 0, 6, 0},
	{"4.2", "Create Token: POST /tokens", 10, 0, 1},
	{"4.3", "List Tokens: GET /tokens", 5, 0, 1},
	{"4.4", "Get Token: GET /tokens/{id}", 0, 0, 1},
	{"4.5", "Update Token: PATCH /tokens/{id}", 8, 0, 3},
	{"4.6", "Delete Token: DELETE /tokens/{id}", 0, 0, 1},
	{"4.7", "Tokens referenced in requests", 0, 0, 1},
	{"4.8", "List Logs: GET /logs", 6, 0, 1},
	{"4.9", "List Entity Types: GET /logs/entity-types", 0, 0, 1},
	{"4.10", "Create Session: POST /sessions", 0, 0, 1},
	{"4.11", "Authorize Session: POST /sessions/authorize", 4, 0, 1},
	{"4.12", "Create Reactor: POST /reactors", 4, 0, 1},
	{"4.13", "List Reactors: GET /reactors", 0, 0, 1},
	{"4.14", "Get Reactor: GET /reactors/{id}", 0, 0, 1},
	{"4.15", "Update Reactor: PUT /reactors/{id}", 0, 0, 1},
	{"4.16", "Patch Reactor: PATCH /reactors/{id}", 0, 0, 1},
	{"4.17", "Delete Reactor: DELETE /reactors/{id}", 0, 0, 1},
	{"4.18", "Invoke Reactor: POST /reactors/{id}/react", 3, 4, 3},
	{"4.19", "Create Proxy: POST /proxies", 7, 0, 1},
	{"4.20", "List Proxies: GET /proxies", 0, 0, 1},
	{"4.21", "Get Proxy: GET /proxies/{id}", 0, 0, 1},
	{"4.22", "Update Proxy: PUT /proxies/{id}", 0, 0, 1},
	{"4.23", "Patch Proxy: PATCH /proxies/{id}", 0, 0, 1},
	{"4.24", "Delete Proxy: DELETE /proxies/{id}", 0, 0, 1},
	{"4.25", "Invoke Proxy: any method on /proxy", 2, 8, 1},
	{"4.26", "Common behaviors", 0, 8, 1},
	{"5", "Authentication", 0, 6, 0},
	{"6", "Events", 0, 0, 1},
	{"7", "Errors", 6, 0, 0},
	{"8", "Limits", 10, 0, 0},
	{"9", "Versioning", 0, 0, 1},
}

var (
	conformanceHeading = regexp.MustCompile(`^## (\d+(?:\.\d+)?) (.+)$`)
	conformanceRow     = regexp.MustCompile(`^\| (T?P?\d+) \| (.+?) \| (.+) \|$`)
	conformanceTests   = regexp.MustCompile("`([a-z/]+)`: ((?:`Test\\w+`(?:, )?)+)")
)

// TestThePageOnConformanceIsComplete holds docs/conformance.md against the
// sections, tables and lists of the specification: nothing is missing, nothing
// is more, and every test that is named exists.
func TestThePageOnConformanceIsComplete(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string][]string) // keys of the rows, by heading
	var order []string
	heading := ""
	tests := make(map[string][]string)
	for line := range strings.Lines(string(page)) {
		line = strings.TrimRight(line, "\n")
		if m := conformanceHeading.FindStringSubmatch(line); m != nil {
			heading = m[1] + " " + m[2]
			order = append(order, heading)
			continue
		}
		m := conformanceRow.FindStringSubmatch(line)
		if m == nil {
			if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| | statement") {
				t.Errorf("%s: the row is not read: %s", heading, line)
			}
			continue
		}
		got[heading] = append(got[heading], m[1])
		named := conformanceTests.FindAllStringSubmatch(m[3], -1)
		if len(named) == 0 {
			t.Errorf("%s, %s names no test", heading, m[1])
		}
		for _, n := range named {
			if tests[n[1]] == nil {
				tests[n[1]] = testsIn(t, n[1])
			}
			for _, name := range testName.FindAllString(n[2], -1) {
				if !slices.Contains(tests[n[1]], name) {
					t.Errorf("%s, %s: there is no test %s in %s", heading, m[1], name, n[1])
				}
			}
		}
	}
	var wantOrder []string
	for _, s := range contractSections {
		name := s.number + " " + s.title
		wantOrder = append(wantOrder, name)
		var want []string
		for _, part := range []struct {
			key string
			n   int
		}{{"T%d", s.rows}, {"%d", s.items}, {"P%d", s.prose}} {
			for i := range part.n {
				want = append(want, fmt.Sprintf(part.key, i+1))
			}
		}
		have := slices.Clone(got[name])
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) {
			t.Errorf("%s has %q, want %q", name, have, want)
		}
	}
	if !slices.Equal(order, wantOrder) {
		t.Errorf("the sections are %q, want %q", order, wantOrder)
	}
}
