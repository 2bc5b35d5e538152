package sqlite_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// A test that needs a second process runs this binary again, with one of these
// roles and the folder of a store.
const roleVariable, folderVariable = "KEEPTEST_ROLE", "KEEPTEST_FOLDER"

var roles = map[string]func(dir string) error{
	"open":  openOnce,
	"write": writeUntilKilled,
}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := roles[role](os.Getenv(folderVariable)); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// process prepares a second process in a role.
func process(t *testing.T, role, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, folderVariable+"="+dir)
	return cmd
}
