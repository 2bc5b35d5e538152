package openapi_test

import (
	"flag"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/test/openapitest"
)

var update = flag.Bool("update", false, "write the table of endpoints into docs/api.md")

const (
	docsFile   = "../../docs/api.md"
	tableBegin = "<!-- endpoints: written by go test ./test/openapi -run TestDocs -update -->\n"
	tableEnd   = "<!-- end of endpoints -->\n"
)

// endpointTable is the table as the page has it: the rows of the server, with
// the summaries of the document.
func endpointTable(rows []httpapi.Route, operations []openapitest.Operation) string {
	summaries := make(map[string]string)
	for _, o := range operations {
		summaries[o.Pattern] = o.Summary
	}
	var b strings.Builder
	b.WriteString("\n| method | path | permission | what it does |\n|---|---|---|---|\n")
	for _, r := range rows {
		method, path, _ := strings.Cut(r.Pattern, " ")
		permission := "`" + r.Permission + "`"
		switch {
		case r.Pattern == "* /proxy/{rest...}":
			method, permission = "any", "a proxy's key; `token:use` where the proxy asks for it"
		case r.Who == httpapi.Open:
			permission = "none, and no key"
		case r.Permission == "":
			permission = "any key"
		case strings.HasPrefix(r.Permission, "("):
			permission = "the key of a " + strings.TrimSuffix(strings.TrimPrefix(r.Permission, "("), " key)")
		}
		b.WriteString("| " + method + " | `" + path + "` | " + permission + " | " + summaries[described(r.Pattern)] + " |\n")
	}
	return b.String() + "\n"
}

func TestDocsHaveEveryEndpointAsItIs(t *testing.T) {
	page, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), tableBegin)
	table, after, closed := strings.Cut(rest, tableEnd)
	if !ok || !closed {
		t.Fatalf("%s has no place for the table", docsFile)
	}
	want := endpointTable(start(t, nil).Routes(), openapitest.Load(t).Operations())
	if *update {
		if err := os.WriteFile(docsFile, []byte(before+tableBegin+want+tableEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != want {
		t.Errorf("the table of endpoints in %s is not that of the rows; run go test ./test/openapi -run TestDocs -update", docsFile)
	}
}

var curl = regexp.MustCompile(`(?m)^curl -s (?:-X ([A-Z]+) )?"?http://127\.0\.0\.1:8420([^" ]*)"? `)

func TestDocsCallOperationsThatExist(t *testing.T) {
	page, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	d := openapitest.Load(t)
	found := curl.FindAllStringSubmatch(string(page), -1)
	for _, m := range found {
		method, target := m[1], strings.ReplaceAll(m[2], "$", "")
		if method == "" {
			method = "GET"
		}
		if d.Pattern(httptest.NewRequest(method, target, nil)) == "" {
			t.Errorf("an example calls %s %s, which does not exist", method, m[2])
		}
	}
	if n := strings.Count(string(page), "\ncurl "); len(found) != n || n < 5 {
		t.Errorf("read %d of %d examples", len(found), n)
	}
}
