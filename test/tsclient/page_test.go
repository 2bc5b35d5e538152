package tsclient_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

var typed = regexp.MustCompile("(?s)```ts\n(.*?)```\n(?:\n```text\n(.*?)```\n)?")

// TestTheProgramOfThePageWorks compiles the blocks of docs/quickstart-typescript.md as one
// program, runs it beside a developer's server, and compares what each of them
// prints with what the page shows.
func TestTheProgramOfThePageWorks(t *testing.T) {
	storetest.Long(t)
	in := install(t)
	page, err := os.ReadFile("../../docs/quickstart-typescript.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := typed.FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 7 {
		t.Fatalf("the page has %d blocks: the test looks in the wrong place", len(blocks))
	}
	var program strings.Builder
	for i, b := range blocks {
		fmt.Fprintf(&program, "%s\nconsole.log('\\n== %d');\n", b[1], i)
	}
	compile(t, in, "page", program.String())
	s := keeptest.Start(t, keeptest.Options{})
	keys, _, err := s.Demo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	destination := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "no body", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"path":%q,"authorization":%q,"body":%s}`, r.URL.Path, r.Header.Get("Authorization"), body)
	}))
	defer destination.Close()
	cmd := exec.Command("node", "page.js")
	cmd.Dir = in.folder
	cmd.Env = append(os.Environ(), "TOKENKEEP_URL="+s.URL, "TOKENKEEP_API_KEY="+keys.PrivateKey, "PSP="+destination.URL, "NO_COLOR=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rest := string(out)
	for i, b := range blocks {
		var printed string
		printed, rest, _ = strings.Cut(rest, fmt.Sprintf("\n== %d\n", i))
		if !looksLike(printed, b[2]) {
			t.Errorf("the block\n%sprinted\n%s\nand the page shows\n%s", b[1], printed, b[2])
		}
	}
}

func TestTheExampleOfThePackageCompiles(t *testing.T) {
	storetest.Long(t)
	in := install(t)
	page, err := os.ReadFile(filepath.Join(source, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := typed.FindStringSubmatch(string(page))
	if found == nil {
		t.Fatal("the page has no example")
	}
	compile(t, in, "example", found[1])
}

// compile makes name.js of a program.
func compile(t *testing.T, in installation, name, program string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(in.folder, name+".ts"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := in.tsc("typescript-7", "--module", "nodenext", "--target", "es2022", "--lib", "es2022", "--types", "node", "--strict", name+".ts"); err != nil {
		t.Fatal(err)
	}
}

// looksLike compares without spaces; … in what is shown stands for anything.
func looksLike(printed, shown string) bool {
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), "") }
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(squeeze(shown)), "…", ".*") + "$").MatchString(squeeze(printed))
}
