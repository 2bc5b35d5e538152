package rules_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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
	known := map[string][]string{} // by package
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
				if known[folder] == nil && folder != "" {
					known[folder] = testsIn(t, folder)
				}
				if !slices.Contains(known[folder], m[1]) {
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

var (
	limitRow  = regexp.MustCompile("(?m)^\\| [^|]+ \\| ([0-9,]+)( [KM]iB)? \\| [^|]+ \\| `([a-z/]+)\\.(\\w+)` \\|$")
	constLine = `(?m)^(?:const)?\s+%s\s*=\s*([0-9][0-9_<+ ]*)`
)

// TestTheLimitsAreThoseOfTheSource reads the constants that docs/limits.md names.
func TestTheLimitsAreThoseOfTheSource(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "limits.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := limitRow.FindAllStringSubmatch(string(text), -1)
	if len(rows) < 20 {
		t.Fatalf("docs/limits.md names %d constants: the search is wrong", len(rows))
	}
	for _, row := range rows {
		want, err := strconv.ParseInt(strings.ReplaceAll(row[1], ",", ""), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		want <<= map[string]int{"": 0, " KiB": 10, " MiB": 20}[row[2]]
		files, err := filepath.Glob(filepath.Join("..", "..", row[3], "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, name := range files {
			code, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if m := regexp.MustCompile(fmt.Sprintf(constLine, row[4])).FindSubmatch(code); m != nil && !strings.HasSuffix(name, "_test.go") {
				found = append(found, string(m[1]))
			}
		}
		if len(found) != 1 {
			t.Errorf("%s.%s is %v, want one constant", row[3], row[4], found)
			continue
		}
		got, err := types.Eval(token.NewFileSet(), nil, token.NoPos, found[0])
		if err != nil || got.Value.ExactString() != strconv.FormatInt(want, 10) {
			t.Errorf("%s.%s is %s, and docs/limits.md says %s%s (%v)", row[3], row[4], found[0], row[1], row[2], err)
		}
	}
}

var (
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#{1,6} (.*)$`)
	fences    = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	linkText  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	notInSlug = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// slugs returns the anchors that forges make of the headings of a page.
func slugs(page string) (list []string) {
	for _, m := range heading.FindAllStringSubmatch(fences.ReplaceAllString(page, ""), -1) {
		text := notInSlug.ReplaceAllString(strings.ToLower(linkText.ReplaceAllString(m[1], "$1")), "")
		list = append(list, strings.ReplaceAll(text, " ", "-"))
	}
	return list
}

// TestTheIndexHasEveryPage keeps docs/README.md whole.
func TestTheIndexHasEveryPage(t *testing.T) {
	folder := filepath.Join("..", "..", "docs")
	index, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(folder, "*.md"))
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	for _, page := range pages {
		if name := filepath.Base(page); name != "README.md" && !strings.Contains(string(index), "("+name+")") {
			t.Errorf("docs/README.md has no line for %s", name)
		}
	}
}

func TestSlugs(t *testing.T) {
	got := slugs("# A [b](c.md) `d`\n\n```sh\n# not a heading\n```\n\n## 1. What, now?\n")
	if want := []string{"a-b-d", "1-what-now"}; !slices.Equal(got, want) {
		t.Errorf("slugs = %v, want %v", got, want)
	}
}

// TestLinksInTheDocsLeadSomewhere follows every link to a file of ours, and to a
// heading in it.
func TestLinksInTheDocsLeadSomewhere(t *testing.T) {
	root := filepath.Join("..", "..")
	followed, anchored := 0, 0
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "data" || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(p, ".md") {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(fences.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			name, anchor, _ := strings.Cut(m[1], "#")
			target := p
			if name != "" {
				target = filepath.Join(filepath.Dir(p), name)
			}
			followed++
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", p, m[1])
				continue
			}
			if anchor == "" {
				continue
			}
			anchored++
			page, err := os.ReadFile(target)
			if err != nil {
				return err
			}
			if !slices.Contains(slugs(string(page)), anchor) {
				t.Errorf("%s links to %s, and there is no such heading", p, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if followed < 100 || anchored < 20 {
		t.Errorf("followed %d links, %d of them to headings: the search is wrong", followed, anchored)
	}
}

// codeTables are the variables and constants whose literals are codes.
var codeTables = map[string]bool{"kindCodes": true, "cardNumberFaults": true, "thrownCode": true, "validationCode": true}

// codesIn adds the literals of a table that have the form of a code.
func codesIn(table ast.Node, used map[string]bool) {
	ast.Inspect(table, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && regexp.MustCompile("^\"[a-z]+(_[a-z0-9]+)*\"$").MatchString(lit.Value) {
			used[strings.Trim(lit.Value, `"`)] = true
		}
		return true
	})
}

// TestEveryCodeIsInTheListOfErrors: the codes are literals of the source, and
// docs/errors.md says of each what to do.
func TestEveryCodeIsInTheListOfErrors(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## Codes\n")
	table, _, _ = strings.Cut(table, "\n## ")
	listed := make(map[string]bool)
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 1 {
			for _, m := range regexp.MustCompile("`([a-z0-9_]+)`").FindAllStringSubmatch(cells[1], -1) {
				listed[m[1]] = true
			}
		}
	}
	_, files := sources(t)
	used := make(map[string]bool)
	constants := make(map[string]string)
	for _, f := range files {
		ast.Inspect(f.file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Names) == 1 && len(spec.Values) == 1 {
				if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
					constants[spec.Names[0].Name] = lit.Value
				}
				if codeTables[spec.Names[0].Name] {
					codesIn(spec, used)
				}
			}
			return true
		})
	}
	for _, f := range files {
		ast.Inspect(f.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			s, ok := call.Fun.(*ast.SelectorExpr)
			at, coded := map[string]int{"WithCode": 0, "AddCode": 1, "FieldCode": 1, "AddUnknown": 1, "Unknown": 1}[fieldName(s, ok)]
			if !coded || len(call.Args) <= at {
				return true
			}
			text := ""
			switch arg := call.Args[at].(type) {
			case *ast.BasicLit:
				text = arg.Value
			case *ast.Ident:
				text = constants[arg.Name]
			case *ast.SelectorExpr:
				text = constants[arg.Sel.Name]
			}
			if code := strings.Trim(text, `"`); code != "" {
				used[code] = true
			}
			return true
		})
	}
	for code := range used {
		if !listed[code] {
			t.Errorf("the code %s is not in the list of docs/errors.md", code)
		}
	}
	for code := range listed {
		if !used[code] {
			t.Errorf("docs/errors.md lists the code %s, which no error has", code)
		}
	}
	if len(used) == 0 {
		t.Error("no code was found: the rule looks in the wrong place")
	}
}

func fieldName(s *ast.SelectorExpr, ok bool) string {
	if !ok {
		return ""
	}
	return s.Sel.Name
}
