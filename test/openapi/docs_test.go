package openapi_test

import (
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/fault"
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
		permission := "`" + r.Permission.String() + "`"
		switch {
		case r.Pattern == "* /proxy/{rest...}":
			method, permission = "any", "a proxy's key; `token:use` where the proxy asks for it"
		case r.Auth == httpapi.Anonymous:
			permission = "none, and no key"
		case r.Auth == httpapi.PublicKey:
			permission = "the key of a public application"
		case r.Auth == httpapi.PrivateKey:
			permission = "the key of a private application"
		case r.Permission == 0:
			permission = "any key"
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

// TestDocsHaveEveryErrorAsItIs compares docs/errors.md with the kinds of faults and
// with the statuses of the document.
func TestDocsHaveEveryErrorAsItIs(t *testing.T) {
	page, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	statuses := map[int]bool{http.StatusPaymentRequired: true} // of code, as the page says below the table
	for kind := fault.Internal; !strings.HasPrefix(kind.Error(), "fault kind"); kind++ {
		p := httpapi.ProblemOf(fault.New(kind, "words"), "trace")
		statuses[p.Status] = true
		if row := fmt.Sprintf("\n| %d | %s | %s | ", p.Status, p.Title, kind.Error()); !strings.Contains(string(page), row) {
			t.Errorf("docs/errors.md has no row %q", row)
		}
	}
	described := regexp.MustCompile(`(?m)^ +'([45]\d\d)':`).FindAllSubmatch(api.OpenAPI, -1)
	if len(described) < 100 {
		t.Errorf("the document has %d answers that are errors: the search is wrong", len(described))
	}
	for _, m := range described {
		if status, err := strconv.Atoi(string(m[1])); err != nil || !statuses[status] {
			t.Errorf("the document has the status %s, and docs/errors.md does not", m[1])
		}
	}
}

// TestWordsInTheDocsAreSaid looks the words that docs/errors.md explains up in the source.
func TestWordsInTheDocsAreSaid(t *testing.T) {
	page, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "| `detail` | what it means |")
	words := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(table, -1)
	if !ok || len(words) < 10 {
		t.Fatalf("docs/errors.md explains %d words: the search is wrong", len(words))
	}
	var code strings.Builder
	err = filepath.WalkDir("../../internal", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return err
		}
		text, err := os.ReadFile(p)
		code.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range words {
		if !strings.Contains(code.String(), `"`+m[1]+`"`) {
			t.Errorf("docs/errors.md explains %q, which is never said", m[1])
		}
	}
}
