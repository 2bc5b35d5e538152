package rules_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var testName = regexp.MustCompile(`\bTest[A-Z]\w+`)

// TestTheThreatModelNamesTestsThatExist keeps claims and their proofs together.
func TestTheThreatModelNamesTestsThatExist(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "threat-model.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := testName.FindAllString(string(text), -1)
	if len(named) < 5 {
		t.Fatalf("the threat model names %d tests: the search is wrong", len(named))
	}
	var code strings.Builder
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, "_test.go") {
			return err
		}
		b, err := os.ReadFile(p)
		code.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range named {
		if !strings.Contains(code.String(), "func "+name+"(t *testing.T)") {
			t.Errorf("the threat model names %s, and there is no such test", name)
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
