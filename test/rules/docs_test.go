package rules_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	testName = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`)
	quoted   = regexp.MustCompile("`([^`]+)`")
)

// testsIn returns the names of the tests in a package.
func testsIn(t *testing.T, folder string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunction.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	return names
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)\(\w+ \*testing\.[TF]\)`)

// TestClaimsNameTestsThatExist keeps claims and their proofs together. In a row
// of a table, tests stand behind the package that has them; a row of the threat
// model without a test is a claim without proof.
func TestClaimsNameTestsThatExist(t *testing.T) {
	for page, least := range map[string]int{"threat-model.md": 100, "audit.md": 5, "keys.md": 5, "pci.md": 20} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		named := 0
		heading := true
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "| ") {
				heading = !strings.HasPrefix(line, "|---")
				continue
			}
			folder, inRow := "", 0
			for _, m := range quoted.FindAllStringSubmatch(line, -1) {
				if info, err := os.Stat(filepath.Join("..", "..", m[1])); err == nil && info.IsDir() {
					folder = m[1]
				}
				if testName.FindString(m[1]) != m[1] {
					continue
				}
				inRow++
				if folder == "" || !slices.Contains(testsIn(t, folder), m[1]) {
					t.Errorf("docs/%s names %s in %q, and there is no such test", page, m[1], folder)
				}
			}
			if page == "threat-model.md" && !heading && inRow == 0 {
				t.Errorf("docs/%s has a row without a test: %s", page, line)
			}
			named += inRow
		}
		if named < least {
			t.Errorf("docs/%s names %d tests, want %d", page, named, least)
		}
	}
}

// TestPagesNameTestsThatExist is for tests that are named in other places.
func TestPagesNameTestsThatExist(t *testing.T) {
	var folders []string
	err := filepath.WalkDir(filepath.Join("..", ".."), func(p string, d fs.DirEntry, err error) error {
		if d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git") {
			return fs.SkipDir
		}
		if d.IsDir() {
			folders = append(folders, strings.TrimPrefix(p, filepath.Join("..", "..")))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, folder := range folders {
		all = append(all, testsIn(t, folder)...)
	}
	pages, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range quoted.FindAllStringSubmatch(string(text), -1) {
			if testName.FindString(m[1]) == m[1] && !slices.Contains(all, m[1]) {
				t.Errorf("%s names %s, and there is no such test", page, m[1])
			}
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)

// TestLinksInTheDocsLeadSomewhere follows every link to a file of ours.
func TestLinksInTheDocsLeadSomewhere(t *testing.T) {
	root := filepath.Join("..", "..")
	followed := 0
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(p, ".md") {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			followed++
			if _, err := os.Stat(filepath.Join(filepath.Dir(p), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", p, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if followed < 20 {
		t.Errorf("followed %d links: the search is wrong", followed)
	}
}
