package readme_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

var goProgram = regexp.MustCompile("(?s)```go\n(package main\n.*?)```\n\n```text\n(.*?)```\n")

// TestTheGoProgramOfThePageWorks runs the quick start in Go beside a
// developer's server.
func TestTheGoProgramOfThePageWorks(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "clients.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := goProgram.FindSubmatch(page)
	if found == nil {
		t.Fatal("the page has no program")
	}
	s := keeptest.Start(t, keeptest.Options{})
	keys, _, err := s.Demo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(program, found[1], 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "run", program)
	cmd.Dir = filepath.Join("..", "..") // for the module
	cmd.Env = append(os.Environ(), "TOKENKEEP_URL="+s.URL, "TOKENKEEP_API_KEY="+keys.PrivateKey)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !looksLike(string(out), string(found[2])) {
		t.Errorf("the program printed\n%s\nand the page shows\n%s", out, found[2])
	}
}
