// Package readme runs the terminal session of the README, line by line.
//
// It promises that what a newcomer copies works. It never uses a fixed port or
// the checkout's own folders: the session runs in a folder of its own.
package readme_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

// built is the folder with the program, which is built once for all tests.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "readme-")
	if err != nil {
		return "", err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", filepath.Join(dir, "tokenkeep"), "./cmd/tokenkeep")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return dir, nil
})

// remove removes what was built.
var remove = func() {}

func TestMain(m *testing.M) {
	code := keeptest.Run(m)
	remove()
	os.Exit(code)
}

func programs(t *testing.T) string {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// sections are fenced blocks of shell sessions; lines that begin with "$ " are typed.
var sections = regexp.MustCompile("(?s)```console\n(.*?)```")

func TestTheSessionInTheReadmeWorks(t *testing.T) {
	for _, tool := range []string{"bash", "curl", "sed"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := sections.FindSubmatch(text)
	if found == nil {
		t.Fatal("the README has no session")
	}
	var lines []string
	for line := range strings.Lines(string(found[1])) {
		if typed, ok := strings.CutPrefix(line, "$ "); ok {
			lines = append(lines, strings.TrimSpace(typed))
		}
	}
	if len(lines) != 9 {
		t.Errorf("the session has %d lines, want nine", len(lines))
	}

	dir := t.TempDir()
	if err := os.Symlink(programs(t), filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	script := "set -eu -o pipefail\ntrap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n"
	for i, line := range lines {
		line = strings.ReplaceAll(line, "localhost:8420", "127.0.0.1:"+port)
		if i == 0 {
			line = strings.Replace(line, " &", " --addr 127.0.0.1:"+port+" >server.log 2>&1 &", 1)
			line += "\nuntil curl -sf 127.0.0.1:" + port + "/readyz >/dev/null && test -s data/dev-keys.json; do kill -0 $!; sleep 0.05; done"
		}
		line = strings.ReplaceAll(line, "curl -s ", "curl -sf ")
		script += "echo '== line " + string(rune('0'+i)) + "'\n" + line + "\n"
	}
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("the session failed: %v\n%s", err, out.String())
	}
	for _, want := range []string{
		`{"number":"XXXXXXXXXXXX4242","expiration_month":12,"expiration_year":2030}`,
		`{"number":"4242424242424242","expiration_month":12,"expiration_year":2030,"cvc":"123"}`,
		`"charge": "4242424242424242"`, `,"pets":["`, "are as they were sealed", "The store is sound.",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the session printed no %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "Jane") {
		t.Errorf("the session printed what it tokenized:\n%s", out.String())
	}
}

// freePort is outside of the range in which systems choose ports: no other test
// is given it before a server of this one listens there.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(10_000 + rand.IntN(20_000))
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}
