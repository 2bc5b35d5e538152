package expression_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/expression"
)

var update = flag.Bool("update", false, "write the table of filters into docs/expressions.md")

const (
	docsFile   = "../../docs/expressions.md"
	tableBegin = "<!-- filters: written by go test ./internal/expression -run TestDocs -update -->\n"
	tableEnd   = "<!-- end of filters -->\n"
)

// filterTable is the table as the page has it.
func filterTable() string {
	var b strings.Builder
	code := func(s string) string { return "`" + strings.ReplaceAll(s, "|", `\|`) + "`" }
	b.WriteString("\n| filter | arguments | what it gives | examples |\n|---|---|---|---|\n")
	for _, f := range expression.Filters() {
		params := ""
		if f.Params != "" {
			params = code(f.Params)
		}
		var examples []string
		for _, e := range f.Examples {
			examples = append(examples, code(e.Expression)+" over "+code(e.Data)+" → "+code(e.Want))
		}
		b.WriteString("| `" + f.Name + "` | " + params + " | " + f.Doc + " | " + strings.Join(examples, "<br>") + " |\n")
	}
	return b.String() + "\n"
}

func TestDocsHaveEveryFilterAsItIs(t *testing.T) {
	page, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), tableBegin)
	table, after, closed := strings.Cut(rest, tableEnd)
	if !ok || !closed {
		t.Fatalf("%s has no place for the table", docsFile)
	}
	want := filterTable()
	if *update {
		if err := os.WriteFile(docsFile, []byte(before+tableBegin+want+tableEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != want {
		t.Errorf("the table of filters in %s is not that of the rows; run go test ./internal/expression -run TestDocs -update", docsFile)
	}
}

// The other examples on the page stand in lines of the form
//
//	`expression` over `data` → `value`
//
// and are run as well.
func TestDocsExamplesComeOutAsPrinted(t *testing.T) {
	page, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(page)) {
		line, ok := strings.CutPrefix(strings.TrimSpace(line), "- `")
		if !ok || !strings.Contains(line, "` over `") {
			continue
		}
		expr, rest, _ := strings.Cut(line, "` over `")
		data, rest, _ := strings.Cut(rest, "` → `")
		want, _, _ := strings.Cut(rest, "`")
		got, err := evaluate(expr, parseJSON(t, data))
		if err != nil || got != want {
			t.Errorf("%s over %s = %s, %v, want %s", expr, data, got, err, want)
		}
		n++
	}
	if n < 8 {
		t.Errorf("only %d examples were found on the page", n)
	}
}
