package readme_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

// TestTheExamplesOfTokensWork pastes the shell blocks of docs/tokens.md, one
// after the other, into a shell beside a developer's server.
func TestTheExamplesOfTokensWork(t *testing.T) {
	for _, tool := range []string{"bash", "curl", "sed"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "tokens.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	k := keeptest.Start(t, keeptest.Options{Data: filepath.Join(dir, "data")})
	if _, _, err := k.Demo(t.Context()); err != nil {
		t.Fatal(err)
	}
	script := "set -eu -o pipefail\n"
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	for _, block := range blocks {
		script += strings.ReplaceAll(block[1], "curl -s ", "curl -sS --fail-with-body ") + "echo\n"
	}
	if len(blocks) < 10 {
		t.Fatalf("docs/tokens.md has %d examples: the test looks in the wrong place", len(blocks))
	}
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("an example failed: %v\n%s", err, out)
	}
	for _, want := range []string{
		`"number":"XXXXXXXXXXXX4242"`, `"cvc":"123"`, `"expiration_year":2032`, `"name":"`, `"iban":"IBAN DE02120300000000202051"`, `"brand":"visa"`,
		`"total_items":2`, `"next":"`,
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the examples printed no %s:\n%s", want, out)
		}
	}
}
