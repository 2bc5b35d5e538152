package readme_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/config"
)

const root = "../.."

// block is a fenced block of a page.
type block struct {
	line, end int    // of the fences, from 1
	language  string // the first word behind the fence
	info      string // the other ones
	text      string
	apart     bool // behind an empty line
}

var (
	fence = regexp.MustCompile("^( *)```([a-z]*) *(.*)$")
	// notRun is the first line of a block that no test runs. It stands inside the
	// block, so that whoever reads the page sees it too.
	notRun = regexp.MustCompile(`^(?:#|//|--) not run: \S`)
)

// blocksOf returns the blocks of a page, and an error for every block that is
// set in instead of fenced: such a block cannot say what it is.
func blocksOf(page string) (list []block, err error) {
	var open *block
	indent, before := "", ""
	number := 0
	for line := range strings.Lines(page) {
		number++
		line = strings.TrimRight(line, "\n")
		m := fence.FindStringSubmatch(line)
		switch {
		case open != nil && m != nil && m[2] == "":
			open.end = number
			list = append(list, *open)
			open = nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		case m != nil:
			indent = m[1]
			open = &block{line: number, language: m[2], info: m[3], apart: before == ""}
		case before == "" && strings.HasPrefix(line, "    ") && strings.TrimSpace(line) != "":
			err = errors.Join(err, fmt.Errorf("line %d: a block is fenced and names its language", number))
		}
		before = line
	}
	if open != nil {
		err = errors.Join(err, fmt.Errorf("line %d: the block does not end", open.line))
	}
	return list, err
}

// example is what is typed, and what the page shows behind it. One that is
// marked as "sh code" takes the runtime for code of tenants.
type example struct {
	typed, shown string
	code         bool
}

// isShown tells whether a block shows what the block before it prints.
func isShown(b, before block) bool {
	return before.language == "sh" && !notRun.MatchString(before.text) && b.apart && b.line == before.end+2 && (b.language == "json" || b.language == "text")
}

func examplesOf(t *testing.T, page string) (list []example) {
	t.Helper()
	blocks, err := blocksOf(page)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range blocks {
		switch {
		case b.language == "sh" && !notRun.MatchString(b.text):
			list = append(list, example{typed: b.text, code: b.info == "code"})
		case i > 0 && isShown(b, blocks[i-1]):
			list[len(list)-1].shown = b.text
		}
	}
	return list
}

// runBy names the tests that run blocks of pages which this package does not
// paste one after the other: page, language and the words behind it; package
// and test.
var runBy = map[string]string{
	"README.md console":                "test/readme TestTheSessionInTheReadmeWorks",
	"README.md sh":                     "test/readme TestANewcomerGetsToAProxiedCall",
	"docs/quickstart.md sh":            "test/readme TestANewcomerGetsToAProxiedCall",
	"docs/quickstart.md sh code":       "test/readme TestANewcomerGetsToAProxiedCall",
	"any page mermaid":                 "test/pictures TestThePicturesCanBeDrawn",
	"docs/operations.md sh first":      "cmd/tokenkeep TestTheFirstServerOfThePageStarts",
	"docs/operations.md sh backup":     "cmd/tokenkeep TestTheCommandsOfThePageBackUpAndRestore",
	"docs/quickstart-typescript.md ts": "test/tsclient TestTheProgramOfThePageWorks",
	"docs/quickstart-go.md go":         "client TestTheQuickStartIsWhatRuns",
	"docs/browser.md js server.mjs":    "test/tsclient TestTheShopOfThePageTakesACard",
	"docs/browser.md html page.html":   "test/tsclient TestTheShopOfThePageTakesACard",
	"docs/browser.md js page.js":       "test/tsclient TestTheShopOfThePageTakesACard",
	"docs/elements.md html page.html":  "test/packages TestTheShopsOfThePageAuthorizeSessions",
	"docs/elements.md js page.js":      "test/packages TestTheShopsOfThePageAuthorizeSessions",
	"docs/elements.md js shop.mjs":     "test/packages TestTheShopsOfThePageAuthorizeSessions",
	"docs/elements.md go shop.go":      "test/packages TestTheShopsOfThePageAuthorizeSessions",
	"client/typescript/README.md ts":   "test/tsclient TestTheExampleOfThePackageCompiles",
	"docs/operations.md sql":           "test/operations TestADumpOfTheOwnerOpensEveryToken",
	"docs/operations.md sh move":       "cmd/tokenkeep TestTheCommandsOfThePageMoveTheStore",
	"docs/operations.md sh dump":       "test/operations TestADumpOfTheOwnerOpensEveryToken",
}

// What is done with a block.
const (
	isRun     = "run"
	isCompare = "compared with what is printed"
	isParsed  = "parsed"
	isDrawn   = "drawn"
	isText    = "plain text"
	isNotRun  = "not run"
)

// judge says what is done with a block, or what is wrong with it.
func judge(t *testing.T, page string, b, before block) (string, error) {
	t.Helper()
	if notRun.MatchString(b.text) {
		return isNotRun, nil
	}
	if isShown(b, before) {
		return isCompare, nil
	}
	if _, ok := runBy[strings.TrimSpace(page+" "+b.language+" "+b.info)]; ok {
		return isRun, nil
	}
	switch _, pasted := pages[strings.TrimPrefix(page, "docs/")]; {
	case b.language == "sh" && pasted:
		return isRun, nil
	case b.language == "json":
		if !json.Valid([]byte(b.text)) {
			return "", errors.New("it is not JSON")
		}
		return isParsed, nil
	case b.language == "yaml":
		file := filepath.Join(t.TempDir(), "tokenkeep.yaml")
		if err := os.WriteFile(file, []byte(b.text), 0o600); err != nil {
			return "", err
		}
		_, err := config.Load(file, nil, nil)
		return isParsed, err
	case b.language == "js":
		return isParsed, parseJavaScript(t, b.text)
	case b.language == "mermaid": // by the test that runBy names
		return isDrawn, nil
	case b.language == "text":
		return isText, nil
	}
	return "", fmt.Errorf("no test runs this block of %q, and it does not begin with a comment '# not run: why'", b.language)
}

func parseJavaScript(t *testing.T, text string) error {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Log("node is not installed: JavaScript is not parsed")
		return nil
	}
	file := filepath.Join(t.TempDir(), "block.mjs")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	if out, err := exec.Command(node, "--check", file).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// TestEveryBlockOfThePagesIsRunOrSaysNot counts; 'make docs' prints what it says.
func TestEveryBlockOfThePagesIsRunOrSaysNot(t *testing.T) {
	counts := map[string]int{}
	var untried []string
	for _, page := range allPages(t) {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		blocks, err := blocksOf(string(text))
		if err != nil {
			t.Errorf("%s: %v", page, err)
		}
		inPage := 0
		var before block
		for _, b := range blocks {
			kind, err := judge(t, page, b, before)
			if err != nil {
				t.Errorf("%s:%d: %v", page, b.line, err)
			}
			counts[kind]++
			if kind == isNotRun {
				inPage++
			}
			before = b
		}
		if inPage > 0 {
			untried = append(untried, fmt.Sprintf("%s %d", page, inPage))
		}
	}
	if counts[isRun] < 40 || counts[isCompare] < 20 {
		t.Errorf("%d blocks are run and %d compared: the search is wrong", counts[isRun], counts[isCompare])
	}
	t.Logf("blocks of the pages: %d run, %d compared with what is printed, %d parsed, %d drawn, %d plain text, %d NOT RUN",
		counts[isRun], counts[isCompare], counts[isParsed], counts[isDrawn], counts[isText], counts[isNotRun])
	t.Logf("not run, by page: %s", strings.Join(untried, ", "))
}

func allPages(t *testing.T) (list []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != root && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"bin", "data", "node_modules"}, d.Name())) {
			return fs.SkipDir
		}
		if strings.HasSuffix(p, ".md") {
			name, err := filepath.Rel(root, p)
			list = append(list, name)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestTheTestsThatRunBlocksExist(t *testing.T) {
	for blocks, named := range runBy {
		folder, test, _ := strings.Cut(named, " ")
		files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, name := range files {
			code, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(code), "func "+test+"(t *testing.T)")
		}
		if !found {
			t.Errorf("%s are said to be run by %s, which is not there", blocks, named)
		}
	}
}

func TestBlocksAreJudged(t *testing.T) {
	for page, want := range map[string]string{
		"```sh\na\n```\n": "",
		"```sh\n# not run: it takes root\na\n```\n": isNotRun,
		"```sh\n# not run\na\n```\n":                "",
		"```sql\n-- not run: a sketch\na\n```\n":    isNotRun,
		"```\na\n```\n":                             "",
		"```json\n{\"a\": 1}\n```\n":                isParsed,
		"```json\n{\"a\": …}\n```\n":                "",
		"```yaml\naddr: 127.0.0.1:1\n```\n":         isParsed,
		"```yaml\nadress: 127.0.0.1:1\n```\n":       "",
		"```text\na\n```\n":                         isText,
		"```rust\na\n```\n":                         "",
	} {
		blocks, err := blocksOf(page)
		if err != nil || len(blocks) != 1 {
			t.Fatalf("blocksOf(%q) = %v, %v", page, blocks, err)
		}
		got, err := judge(t, "docs/none.md", blocks[0], block{})
		if err != nil {
			got = ""
		}
		if got != want {
			t.Errorf("judge(%q) = %q, want %q", page, got, want)
		}
	}
	for _, page := range []string{"a\n\n    b\n", "```sh\na\n"} {
		if blocks, err := blocksOf(page); err == nil {
			t.Errorf("blocksOf(%q) = %v, want an error", page, blocks)
		}
	}
	got := examplesOf(t, "```sh\na\n```\n\n```json\nb\n```\n\n1. c\n\n   ```sh code\n   d\n   ```\ne\n```json\nf\n```\n")
	if !slices.Equal(got, []example{{"a\n", "b\n", false}, {"d\n", "", true}}) {
		t.Errorf("examplesOf = %+v", got)
	}
}
