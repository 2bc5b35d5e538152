package readme_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

// pages are those whose shell blocks are run. A block of JSON or text right
// behind one is what it prints, with … for what differs from run to run; prints
// has more that must be among the output of the whole page.
var pages = map[string]struct {
	blocks, shown int // at least
	prints        []string
}{
	"tokens.md": {13, 4, []string{
		`"number":"XXXXXXXXXXXX4242"`, `"cvc":"123"`, `"expiration_year":2032`, `"name":"`, `"iban":"IBAN DE02120300000000202051"`, `"brand":"visa"`,
		`"total_items":2`, `"next":"`,
	}},
	"sessions.md":              {9, 6, nil},
	"people.md":                {7, 6, nil},
	"idempotency.md":           {6, 5, nil},
	"access.md":                {6, 5, nil},
	"api.md":                   {6, 4, nil},
	"applications.md":          {8, 6, nil},
	"audit.md":                 {7, 6, nil},
	"errors.md":                {6, 5, nil},
	"keys.md":                  {2, 2, nil},
	"test-data.md":             {1, 1, nil},
	"proxies.md":               {6, 5, nil},
	"reactors.md":              {6, 5, nil},
	"quickstart-typescript.md": {1, 0, nil},
	"browser.md":               {1, 0, nil},
	"cli.md":                   {9, 9, nil},
	"elements.md":              {1, 0, nil},
}

// TestTheExamplesOfThePagesWork pastes the shell blocks of each page, one after
// the other, into a shell beside a developer's server.
func TestTheExamplesOfThePagesWork(t *testing.T) {
	for _, tool := range []string{"bash", "curl", "sed"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	for name, want := range pages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page, err := os.ReadFile(filepath.Join(root, "docs", name))
			if err != nil {
				t.Fatal(err)
			}
			blocks, shown := examplesOf(t, string(page)), 0
			for _, b := range blocks {
				if b.shown != "" {
					shown++
				}
			}
			if len(blocks) < want.blocks || shown < want.shown {
				t.Fatalf("docs/%s has %d examples, and shows what %d of them print: the test looks in the wrong place", name, len(blocks), shown)
			}
			plain := slices.DeleteFunc(slices.Clone(blocks), func(b example) bool { return b.code })
			paste(t, plain, nil, want.prints)
			if len(plain) < len(blocks) {
				t.Run("with code", func(t *testing.T) {
					paste(t, blocks, map[string]string{"sandbox.level": "reduced", "sandbox.runtime": runtimetest.Find(t).Folder}, want.prints)
				})
			}
		})
	}
}

// paste runs blocks beside a server, and compares what they print.
func paste(t *testing.T, blocks []example, settings map[string]string, prints []string) {
	t.Helper()
	dir := t.TempDir()
	k := keeptest.Start(t, keeptest.Options{Data: filepath.Join(dir, "data"), Settings: settings})
	if _, _, err := k.Demo(t.Context()); err != nil {
		t.Fatal(err)
	}
	out := inShell(t, dir, blocks)
	for _, text := range prints {
		if !strings.Contains(out, text) {
			t.Errorf("the examples printed no %s:\n%s", text, out)
		}
	}
}

// inShell runs blocks in one shell, and compares what they print with what is shown.
func inShell(t *testing.T, dir string, blocks []example) string {
	t.Helper()
	script := "set -eu -o pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
	for i, b := range blocks {
		if b.shown == "" {
			b.typed = strings.ReplaceAll(b.typed, "curl -s ", "curl -sS --fail-with-body ")
		}
		script += fmt.Sprintf("echo; echo '== %d'\n%s", i, b.typed)
	}
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+programs(t)+string(os.PathListSeparator)+os.Getenv("PATH"), "PSP="+mirror(t), "XDG_CONFIG_HOME="+filepath.Join(dir, "config"))
	printed, err := cmd.CombinedOutput()
	out := string(printed)
	if err != nil {
		t.Fatalf("an example failed: %v\n%s", err, out)
	}
	for i, b := range blocks {
		_, printed, _ := strings.Cut(out, fmt.Sprintf("\n== %d\n", i))
		printed, _, _ = strings.Cut(printed, "\n== ")
		if !looksLike(printed, b.shown) {
			t.Errorf("the example\n%sprinted\n%s\nand the page shows\n%s", b.typed, printed, b.shown)
		}
	}
	return out
}

// mirror is a destination that answers with what it was sent.
func mirror(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "no body", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"path":%q,"authorization":%q,"body":%s}`, r.URL.Path, r.Header.Get("Authorization"), body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// looksLike compares without spaces; … in what is shown stands for anything.
func looksLike(printed, shown string) bool {
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), "") }
	pattern := strings.ReplaceAll(regexp.QuoteMeta(squeeze(shown)), "…", ".*")
	if pattern == "" {
		return true
	}
	return regexp.MustCompile("^" + pattern + "$").MatchString(squeeze(printed))
}

func TestWhatIsShownIsCompared(t *testing.T) {
	for _, test := range []struct {
		printed, shown string
		want           bool
	}{
		{`{"a":1}`, "{\"a\": 1}\n", true}, {`{"a":1}`, `{"a": 2}`, false}, {`{"a":1,"b":2}`, `{"a": 1, …}`, true},
		{`{"a":1,"b":2}`, `{"a": 1}`, false}, {`{"b":2}`, `{"a": 1, …}`, false}, {"a.b", "aXb", false}, {"aXb", "a.b", false}, {"x", "", true},
	} {
		if got := looksLike(test.printed, test.shown); got != test.want {
			t.Errorf("looksLike(%s, %s) = %t", test.printed, test.shown, got)
		}
	}
}
