package backup_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/backup"
)

// made makes a backup of a file with this text.
func made(t *testing.T, text string) (dir string, m backup.Manifest) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "new")
	if _, err := backup.Create(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "copy.db"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := backup.Finish(t.Context(), dir, "copy.db", backup.Manifest{
		Release: "v1", MadeAt: time.Unix(1e9, 0).UTC(), Schema: 3, KEKs: []string{"local-1"}, Rows: map[string]int64{"tokens": 2},
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir, m
}

func TestWhatWasFinishedIsReadBackAndCopied(t *testing.T) {
	dir, m := made(t, "rows")
	got, err := backup.Read(dir)
	if err != nil || got.File != m.File || got.Release != "v1" || got.Schema != 3 || got.KEKs[0] != "local-1" || got.Rows["tokens"] != 2 || !got.MadeAt.Equal(m.MadeAt) {
		t.Errorf("Read = %+v, %v, want %+v", got, err, m)
	}
	to := filepath.Join(t.TempDir(), "copy")
	if err := backup.Copy(t.Context(), dir, got, to); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(to); err != nil || string(b) != "rows" {
		t.Errorf("the copy holds %q, %v", b, err)
	}
	if err := backup.Copy(t.Context(), dir, got, to); !errors.Is(err, os.ErrExist) {
		t.Errorf("Copy over a file = %v, want it refused", err)
	}
	for _, name := range []string{"", "copy.db", backup.ManifestFile} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%q has mode %v, %v: others can read it", name, info.Mode(), err)
		}
	}
}

func TestAChangedFileOfTheSameSizeIsDamaged(t *testing.T) {
	dir, m := made(t, "rows")
	if err := os.WriteFile(filepath.Join(dir, "copy.db"), []byte("rowz"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := backup.Copy(t.Context(), dir, m, filepath.Join(t.TempDir(), "copy")); !errors.Is(err, backup.ErrDamaged) {
		t.Errorf("Copy = %v, want ErrDamaged", err)
	}
	for name, hash := range map[string]string{"no hash": "no hex", "an empty one": ""} {
		m.File.SHA256 = hash
		if err := backup.Copy(t.Context(), dir, m, filepath.Join(t.TempDir(), "copy")); err == nil {
			t.Errorf("Copy by a manifest with %s succeeded", name)
		}
	}
}

func TestACopyEndsWithItsContext(t *testing.T) {
	dir, m := made(t, "rows")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := backup.Copy(ctx, dir, m, filepath.Join(t.TempDir(), "copy")); !errors.Is(err, context.Canceled) {
		t.Errorf("Copy = %v, want context.Canceled", err)
	}
}

func TestManifestsThatAreNoneAreRefused(t *testing.T) {
	dir, m := made(t, "rows")
	path := filepath.Join(dir, backup.ManifestFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		text string
		want error
	}{
		"as it was":          {string(good), nil},
		"nothing":            {"", backup.ErrIncomplete},
		"half":               {string(good[:len(good)/2]), backup.ErrIncomplete},
		"of another program": {"{}", backup.ErrIncomplete},
		"of a newer release": {strings.Replace(string(good), `"format": 1`, `"format": 9`, 1), backup.ErrNewer},
		"without a file":     {strings.Replace(string(good), `"copy.db"`, `""`, 1), backup.ErrIncomplete},
		"of a file above":    {strings.Replace(string(good), `"copy.db"`, `"../copy.db"`, 1), backup.ErrIncomplete},
		"of a folder":        {strings.Replace(string(good), `"copy.db"`, `".."`, 1), backup.ErrIncomplete},
		"of another size":    {strings.Replace(string(good), `"bytes": 4`, `"bytes": 5`, 1), backup.ErrIncomplete},
		"of a missing file":  {strings.Replace(string(good), `"copy.db"`, `"gone.db"`, 1), backup.ErrIncomplete},
	} {
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := backup.Read(dir); !errors.Is(err, test.want) || test.want == nil && got.File != m.File {
			t.Errorf("a manifest %s: Read = %v, want %v", name, err, test.want)
		}
	}
}

func TestUndoLeavesTheFolderAsItWas(t *testing.T) {
	there := t.TempDir()
	gone := filepath.Join(there, "a", "b")
	for _, dir := range []string{gone, there} {
		undo, err := backup.Create(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "copy.db"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := backup.Create(dir); !errors.Is(err, backup.ErrNotEmpty) {
			t.Errorf("Create in a folder with a file = %v, want ErrNotEmpty", err)
		}
		undo()
		if dir == gone {
			if _, err := os.Stat(gone); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the folder that was made is still there: %v", err)
			}
			if err := os.Remove(filepath.Dir(gone)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := backup.Empty(there); err != nil {
		t.Errorf("the folder that was there: %v, want it empty", err)
	}
}
