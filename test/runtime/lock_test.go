package runtime_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var exact = regexp.MustCompile(`^\d+\.\d+\.\d+$`)

// TestEveryPackageIsPinnedByItsHash reads the lock file: whatever registry serves
// a package, it is the one that was looked at. The lock file names no registry.
func TestEveryPackageIsPinnedByItsHash(t *testing.T) {
	var manifest struct {
		Dependencies, DevDependencies, OptionalDependencies map[string]string
	}
	read(t, "package.json", &manifest)
	for _, list := range []map[string]string{manifest.Dependencies, manifest.DevDependencies, manifest.OptionalDependencies} {
		for name, version := range list {
			if !exact.MatchString(version) {
				t.Errorf("package.json asks for %s %s, which is not one version", name, version)
			}
		}
	}
	var lock struct {
		Packages map[string]struct{ Resolved, Integrity string }
	}
	read(t, "package-lock.json", &lock)
	if len(lock.Packages) < len(manifest.Dependencies) {
		t.Fatalf("found %d packages in the lock file: the test reads it wrongly", len(lock.Packages))
	}
	for name, p := range lock.Packages {
		if name != "" && p.Integrity == "" {
			t.Errorf("%s has no hash", name)
		}
		if p.Resolved != "" {
			t.Errorf("%s names where it was fetched from", name)
		}
	}
}

func read(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "runtime", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}
