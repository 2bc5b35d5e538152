// Package runtimetest finds the built runtime of reactor code for tests.
//
// It promises the folder that 'make runtime' leaves, or the one that
// TOKENKEEP_RUNTIME names, with its manifest read. It never builds it, which may take the network: without one a test is skipped,
// or fails where KEEPTEST_RUNTIME says "required". It is used by tests alone.
package runtimetest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// requiredVariable says, with the value "required", that a missing runtime fails
// the tests instead of skipping them.
const requiredVariable = "KEEPTEST_RUNTIME"

// Runtime is a built runtime.
type Runtime struct {
	Folder string              // bin/runtime
	Node   string              // the program
	Flags  map[string][]string // with which code caches are good, by "jit" and "jitless"
}

// Find returns the runtime of this checkout.
func Find(t testing.TB) Runtime {
	t.Helper()
	folder := os.Getenv("TOKENKEEP_RUNTIME")
	if folder == "" {
		folder = filepath.Join(moduleRoot(t), "bin", "runtime")
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "manifest.json")) //nolint:gosec // whoever runs the tests names the folder
	if err != nil {
		missing(t, "no runtime for reactor code is built: 'make runtime' builds it")
	}
	var manifest struct {
		Node  *struct{} // absent where Node 16 does not run
		Flags map[string][]string
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatalf("manifest of the runtime: %v", err)
	}
	if manifest.Node == nil {
		missing(t, "the built runtime has no Node 16, which does not run here")
	}
	return Runtime{Folder: folder, Node: filepath.Join(folder, "bin", "node"), Flags: manifest.Flags}
}

func missing(t testing.TB, why string) {
	t.Helper()
	if os.Getenv(requiredVariable) == "required" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// moduleRoot looks upwards from the package under test.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("the test does not run inside the module")
		}
		dir = up
	}
}
