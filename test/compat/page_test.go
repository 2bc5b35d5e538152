package compat_test

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of checks into docs/migrating.md")

const (
	pageFile   = "../../docs/migrating.md"
	tableBegin = "<!-- checks: written by go test ./test/compat -update -->\n"
	tableEnd   = "<!-- end of checks -->\n"
)

// checkPage compares the table of the page with the checks that ran.
func checkPage(t *testing.T, results []result) {
	t.Helper()
	page, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), tableBegin)
	table, after, closed := strings.Cut(rest, tableEnd)
	if !ok || !closed {
		t.Fatalf("%s has no place for the table", pageFile)
	}
	want := tableOf(results)
	switch {
	case *update:
		if err := os.WriteFile(pageFile, []byte(before+tableBegin+want+tableEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
	case table != want:
		t.Errorf("the table in %s is not that of the checks: run go test ./test/compat -update", pageFile)
	}
}

func tableOf(results []result) string {
	by := make(map[string][]string) // the clients of each check
	var names []string
	for _, r := range results {
		client, name, _ := strings.Cut(r.Name, "/")
		if by[name] == nil {
			names = append(names, name)
		}
		by[name] = append(by[name], client)
	}
	slices.Sort(names)
	var b strings.Builder
	b.WriteString("\n| check | " + strings.Join(clients, " | ") + " |\n|---" + strings.Repeat("|---", len(clients)) + "|\n")
	for _, name := range names {
		b.WriteString("| " + name + " |")
		for _, client := range clients {
			mark := " "
			if slices.Contains(by[name], client) {
				mark = " ✓ "
			}
			b.WriteString(mark + "|")
		}
		b.WriteString("\n")
	}
	return b.String() + "\n"
}
