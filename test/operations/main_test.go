// Package operations_test runs what docs and deploy/ tell an operator to run,
// and checks that what they name exists.
package operations_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

func TestMain(m *testing.M) { os.Exit(keeptest.Run(m)) }

// file reads a file of the repository.
func file(t *testing.T, name ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, name...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
