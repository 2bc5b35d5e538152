package readme_test

import (
	"bufio"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

// TestANewcomerGetsToAProxiedCall does what a newcomer does, copying lines and
// nothing else: the README's first line in one terminal, and docs/quickstart.md in
// another. It runs in a copy of the checkout.
func TestANewcomerGetsToAProxiedCall(t *testing.T) {
	storetest.Long(t)
	if testing.Short() {
		t.Skip("it builds the program as users do")
	}
	for _, tool := range []string{"bash", "curl", "make", "node", "sed"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	built := runtimetest.Find(t)
	dir := filepath.Join(t.TempDir(), "tokenkeep")
	clone(t, dir)
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(built.Folder, filepath.Join(dir, "bin", "runtime")); err != nil { // npm would fetch it
		t.Fatal(err)
	}
	readme, guide := examplesIn(t, dir, "README.md"), examplesIn(t, dir, "docs/quickstart.md")
	if len(readme) != 1 || len(guide) < 9 || readme[0].typed != "make run\n" || guide[0] != readme[0] {
		t.Fatalf("the README has %d blocks to paste, the guide %d, and they begin differently", len(readme), len(guide))
	}
	startAsUsersDo(t, dir, readme[0].typed)
	port := freePort(t)
	for i := range guide {
		guide[i].typed = strings.ReplaceAll(guide[i].typed, "8421", port)
	}
	inShell(t, dir, guide[1:])
}

// clone copies what is in the checkout and was not made by building it.
func clone(t *testing.T, to string) {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && p != root && slices.Contains([]string{".git", "bin", "data", "node_modules"}, d.Name()):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o700)
		case !d.Type().IsRegular() || d.Name() == ".git":
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), text, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func examplesIn(t *testing.T, dir, page string) []example {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, page))
	if err != nil {
		t.Fatal(err)
	}
	return examplesOf(t, string(text))
}

// startAsUsersDo runs a line that does not end, in a terminal of its own, until
// the server has said how to stop it.
func startAsUsersDo(t *testing.T, dir, line string) {
	t.Helper()
	cmd := exec.Command("bash", "-c", line)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TOKENKEEP_ADDR=127.0.0.1:0", "TOKENKEEP_SANDBOX_LEVEL=reduced", "npm_config_offline=true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // make does not hand signals on
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = out.Close()
	var said strings.Builder
	ready := false
	lines := bufio.NewScanner(in)
	for !ready && lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		ready = strings.HasPrefix(lines.Text(), "Stop with Ctrl-C.")
	}
	go func() { _, _ = io.Copy(io.Discard, in) }()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		_ = cmd.Wait()
		_ = in.Close()
	})
	if !ready {
		t.Fatalf("%sended with\n%s", line, said.String())
	}
}
