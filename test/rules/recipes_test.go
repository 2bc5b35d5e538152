package rules_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// edit puts a text before another one that a file has once.
type edit struct{ file, text, before string }

// recipes are paragraphs of docs/extending.md, and edits that follow them.
var recipes = map[string]struct {
	edits    []edit
	pkg, run string // the test that shows that the addition works
}{
	"A type of tokens.": {
		[]edit{
			{"internal/token/types.go", `	{
		Name: "passport_number", Container: "/pii/high/", Fingerprint: "{{ data }}", Mask: maskLast4,
		Example: ` + "`\"X1234567\"`" + `, normalize: text(func(s string) bool { return len(s) == 8 }, "must be a string of eight characters"),
	},
`, "}\n\n// Types returns the rows, for the documentation."},
			{"internal/token/types_test.go", "\t\t\"passport_number\": {`\"X1234567\"`, `[\"/pii/high/\"]`, `{{ data }}`, `\"{{ data | reveal_last: 4 }}\"`, `\"XXXX4567\"`, \"\", \"\"},\n",
				"\t}\n\tif len(tests) != len(token.Types()) {"},
			{"internal/audit/entry.go", "\t{\"passport_number\", \"Passport Number\", \"Token\"},\n", "\t{Proxy, \"Proxy\", \"Proxy\"},"},
		},
		"./internal/token", "^TestEveryTypeHasItsDefaults$/^passport_number$",
	},
	"A filter of expressions.": {
		[]edit{{"internal/expression/filters_other.go", `	{
		name: "exclaim", doc: "A text with a mark.",
		examples: []Example{example("data | exclaim", ` + "`\"a\"`, `\"a!\"`" + `)},
		apply:    func(c *call) jsonvalue.Value { return c.string(c.text() + "!") },
	},
`, "\t{\n\t\tname: \"default\", doc:"}},
		"./internal/expression", "^TestExamplesOfFiltersComeOutAsPrinted$",
	},
	"A setting of tenants.": {
		[]edit{
			{"internal/directory/settings.go", "\tQuietTokens bool\n", "\tCVCRetention                   time.Duration\n"},
			{"internal/directory/settings.go", "\tchoice(\"quiet_tokens\", \"Whether tokens are quiet.\", \"true\", func(s *Settings) *bool { return &s.QuietTokens }),\n",
				"\t{\n\t\tName: \"cvc_retention\","},
			{"internal/directory/checks_test.go", "\t\t\"quiet_tokens\": \"true\",\n", "\t\t\"fingerprint_tokens\": \"true\", \"deduplicate_tokens\": \"false\", \"disable_ephemeral_proxy\": \"false\",\n"},
		},
		"./internal/directory", "^TestSettings$",
	},
}

// TestRecipesCanBeFollowed makes the edits on copies of the files, which an
// overlay puts in place of them, and runs the test that each brings along.
func TestRecipesCanBeFollowed(t *testing.T) {
	storetest.CheckOnly(t)
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	page := read(t, filepath.Join(root, "docs", "extending.md"))
	for name, r := range recipes {
		t.Run(name, func(t *testing.T) {
			_, rest, found := strings.Cut(page, "**"+name+"**")
			paragraph, _, _ := strings.Cut(rest, "\n\n")
			if !found {
				t.Fatalf("docs/extending.md has no recipe %q", name)
			}
			contents := make(map[string]string)
			for _, e := range r.edits {
				if !mentions(paragraph, e.file) {
					t.Errorf("the recipe does not name %s, which must be changed", e.file)
				}
				if contents[e.file] == "" {
					contents[e.file] = read(t, filepath.Join(root, e.file))
				}
				if n := strings.Count(contents[e.file], e.before); n != 1 {
					t.Fatalf("%s has %q %d times, want once: change the edit of this test", e.file, e.before, n)
				}
				contents[e.file] = strings.Replace(contents[e.file], e.before, e.text+e.before, 1)
			}
			dir, replace := t.TempDir(), make(map[string]string)
			for file, text := range contents {
				copied := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
				write(t, copied, []byte(text))
				replace[filepath.Join(root, file)] = copied
			}
			overlay, err := json.Marshal(map[string]any{"Replace": replace})
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "overlay.json"), overlay)
			run := exec.CommandContext(t.Context(), "go", "test", "-overlay", filepath.Join(dir, "overlay.json"), "-count=1", "-v", "-run", r.run, r.pkg)
			run.Dir = root
			if out, err := run.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
				t.Errorf("%v: %v\n%s", run.Args, err, out)
			}
		})
	}
}

// mentions reports whether a paragraph names a file, be it by its last element
// or by a pattern.
func mentions(paragraph, file string) bool {
	for word := range strings.FieldsSeq(paragraph) {
		word = strings.Trim(word, "`,.:;()")
		if matched, err := path.Match(path.Base(word), path.Base(file)); err == nil && matched { // most words are no pattern
			return true
		}
	}
	return false
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, file string, b []byte) {
	t.Helper()
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
