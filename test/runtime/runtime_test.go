// Package runtime runs the tests in runtime/test, which are JavaScript, against
// the built runtime.
//
// It promises that they pass under the flags of both modes of the sandbox, on
// Node 16, and on the Node of this machine if there is one. It never reaches
// beyond loopback.
package runtime_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

// oldestNode is the oldest major version on which the tests are run beside 16.
const oldestNode = 18

func TestWhatReactorCodeFinds(t *testing.T) {
	storetest.Long(t)
	built := runtimetest.Find(t)
	folder, modes := built.Folder, built.Flags
	if len(modes) != 2 {
		t.Fatalf("the sandbox has %d modes, want two", len(modes))
	}
	files, err := filepath.Glob(filepath.Join("..", "..", "runtime", "test", "*.test.js"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 5 {
		t.Fatalf("found %d files of tests: the test looks in the wrong place", len(files))
	}
	for _, f := range append(files, filepath.Join("..", "..", "runtime", "test", "built.js"), filepath.Join("..", "..", "runtime", "packages.js")) {
		// Read here, so that a change of it is not answered from the test cache.
		if _, err := os.ReadFile(f); err != nil {
			t.Fatal(err)
		}
	}
	for mode, flags := range modes {
		t.Run(mode, func(t *testing.T) { run(t, folder, filepath.Join(folder, "bin", "node"), flags, files) })
	}
	t.Run("node of this machine", func(t *testing.T) {
		node, err := exec.LookPath("node")
		if err != nil {
			t.Skip("there is none")
		}
		out, err := exec.Command(node, "--version").Output()
		if err != nil {
			t.Fatal(err)
		}
		major, _, _ := strings.Cut(strings.TrimPrefix(string(out), "v"), ".")
		if n, err := strconv.Atoi(major); err != nil || n < oldestNode {
			t.Skipf("it is older than %d", oldestNode)
		}
		run(t, folder, node, nil, files)
	})
}

func run(t *testing.T, folder, node string, flags, files []string) {
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".test.js"), func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(node, append(flags[:len(flags):len(flags)], f)...)
			cmd.Env = append(os.Environ(), "TOKENKEEP_RUNTIME="+folder, "OPENSSL_CONF="+filepath.Join(folder, "app", "openssl.cnf"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", filepath.Base(f), err, out)
			}
		})
	}
}
