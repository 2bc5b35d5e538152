package compat_test

import (
	"cmp"
	"encoding/json"
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

	productsBegin = "<!-- products: written by go test ./test/compat -update -->\n"
	productsEnd   = "<!-- end of products -->\n"
)

// uses says what each client is used for. One that is installed and not in here
// has no row in the page, and the test says so.
var uses = map[string]string{
	"node-sdk-5":        "servers, Node.js",
	"node-sdk-2":        "servers, Node.js; an older major version",
	"basis-theory-js-4": "browsers and servers; the older library",
	"standardwebhooks":  "receivers of callbacks, to check their signatures",
}

// TestThePageNamesTheProductsThatAreRun: docs/migrating.md lists the published
// packages that the tests install and run, in the versions of their lock files.
func TestThePageNamesTheProductsThatAreRun(t *testing.T) {
	var b strings.Builder
	b.WriteString("\n| product | version | for | run by |\n|---|---|---|---|\n")
	rows := 0
	for _, folder := range []string{"test/compat", "test/webhooks"} {
		for _, p := range installed(t, "../../"+folder) {
			if uses[p.name] == "" {
				t.Errorf("%s installs %s, and nothing says what for", folder, p.name)
			}
			if folder == "test/compat" && !slices.Contains(clients, p.name) {
				t.Errorf("%s installs %s, and no check runs with it", folder, p.name)
			}
			b.WriteString("| `" + p.product + "` | " + p.version + " | " + uses[p.name] + " | `" + folder + "` |\n")
			rows++
		}
	}
	if rows != len(uses) {
		t.Errorf("%d products are installed, want %d", rows, len(uses))
	}
	replaceTable(t, productsBegin, productsEnd, b.String()+"\n")
}

// product is a published package that tests install.
type product struct{ name, product, version string }

// installed returns what the lock file of a folder installs by name.
func installed(t *testing.T, folder string) (list []product) {
	t.Helper()
	text, err := os.ReadFile(folder + "/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct {
			Name, Version   string
			DevDependencies map[string]string
		}
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		t.Fatal(err)
	}
	for name := range lock.Packages[""].DevDependencies {
		p := lock.Packages["node_modules/"+name]
		list = append(list, product{name, cmp.Or(p.Name, name), p.Version})
	}
	slices.SortFunc(list, func(a, b product) int {
		return cmp.Or(-cmp.Compare(a.product, b.product), -cmp.Compare(len(a.version), len(b.version)), -cmp.Compare(a.version, b.version))
	})
	return list
}

// checkPage compares the table of the page with the checks that ran.
func checkPage(t *testing.T, results []result) {
	t.Helper()
	replaceTable(t, tableBegin, tableEnd, tableOf(results))
}

// replaceTable compares a table of the page with what it should be, or writes it.
func replaceTable(t *testing.T, begin, end, want string) {
	t.Helper()
	page, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), begin)
	table, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the table", pageFile)
	}
	switch {
	case *update:
		if err := os.WriteFile(pageFile, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	case table != want:
		t.Errorf("a table in %s is not that of the tests: run go test ./test/compat -update", pageFile)
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
