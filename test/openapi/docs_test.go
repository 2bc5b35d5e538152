package openapi_test

import (
	"flag"
	"os"
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
