package folder_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/folder"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

func TestAFolderHasOneLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "here")
	if _, err := folder.Lock(dir); err == nil {
		t.Error("Lock took a folder that does not exist")
	}
	lock, err := folder.CreateAndLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder is %v, %v; want it for its owner alone", info, err)
	}
	for name, take := range map[string]func(string) (*os.File, error){"Lock": folder.Lock, "CreateAndLock": folder.CreateAndLock} {
		if _, err := take(dir); !errors.Is(err, store.ErrInUse) {
			t.Errorf("%s of a locked folder = %v, want %v", name, err, store.ErrInUse)
		}
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := folder.Lock(dir)
	if err != nil {
		t.Fatalf("Lock of a folder that was given back = %v", err)
	}
	_ = again.Close()
}

func TestAFolderBelowAFileIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := folder.CreateAndLock(filepath.Join(file, "data")); err == nil {
		t.Error("CreateAndLock made a folder below a file")
	}
	if err := folder.Sync(filepath.Join(file, "data")); err == nil {
		t.Error("Sync took a folder below a file")
	}
}
