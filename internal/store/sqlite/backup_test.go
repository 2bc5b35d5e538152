package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// restored opens a store on a copy of a backup.
func restored(t *testing.T, backup string) *sqlite.Store {
	t.Helper()
	b, err := os.ReadFile(backup)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, sqlite.BackupFile), b, 0o600); err != nil {
		t.Fatal(err)
	}
	return open(t, dir, sqlite.Options{})
}

// insertNamed inserts a token that can be told from others.
func insertNamed(ctx context.Context, s *sqlite.Store, id string) error {
	tok := storetest.SomeToken()
	tok.ID = id
	return s.Update(ctx, tenantA, func(tx store.Tx) error { return tx.InsertToken(ctx, tok) })
}

func TestABackupUnderLoadHoldsWhatWasThereAndIsSound(t *testing.T) {
	dir := t.TempDir()
	// A log that would start over often, if the backup did not read from it.
	s := open(t, dir, sqlite.Options{WALSoftBytes: 64 << 10, WALHardBytes: 256 << 10})
	ctx := t.Context()
	const before = 400
	for n := range before {
		if err := insertNamed(ctx, s, fmt.Sprintf("before-%d", n)); err != nil {
			t.Fatal(err)
		}
	}
	stop := make(chan struct{})
	var writers sync.WaitGroup
	var written atomic.Int64
	for w := range 4 {
		writers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := insertNamed(ctx, s, fmt.Sprintf("during-%d-%d", w, n)); err != nil {
					t.Error(err)
					return
				}
				written.Add(1)
			}
		})
	}
	path := filepath.Join(t.TempDir(), "copy.db")
	var last, of int64
	got, err := s.Backup(ctx, path, func(written, all int64) { last, of = written, all })
	during := written.Load()
	close(stop)
	writers.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if got.Rows["tokens"] < before || got.Rows["tokens"] > before+during+4 || got.Rows["token_terms"] == 0 || got.Schema == 0 {
		t.Errorf("the backup has %v, schema %d; %d tokens were there, %d came during it", got.Rows, got.Schema, before, during)
	}
	if last == 0 || last > of {
		t.Errorf("the last progress is %d of %d bytes", last, of)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup's file: %v, %v; want mode 0600", info.Mode(), err)
	}
	t.Logf("%d tokens came in during the backup", during)

	r := restored(t, path)
	if found, err := r.Check(ctx, nil); err != nil || len(found) > 0 {
		t.Errorf("the check of the restored store found %v, %v", found, err)
	}
	err = r.View(ctx, tenantA, func(tx store.Tx) error {
		for n := range before {
			if _, err := tx.Token(ctx, fmt.Sprintf("before-%d", n)); err != nil {
				return fmt.Errorf("token %d: %w", n, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	// The log starts over again once the backup is done.
	for n := 0; ; n++ {
		if err := insertNamed(ctx, s, fmt.Sprintf("after-%d", n)); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(filepath.Join(dir, "tokenkeep.db-wal")); err == nil && info.Size() <= 512<<10 {
			return
		}
	}
}

// TestABackupHoldsNothingThatWasDeleted needs a store in which SQLite has left
// copies of rows that it moved between pages, which it does now and then: rows
// are deleted among others that grow, until it has.
func TestABackupHoldsNothingThatWasDeleted(t *testing.T) {
	storetest.Long(t)
	const needle = "sealed bytes that somebody wants gone"
	for size := 10; size < 30; size++ {
		dir := t.TempDir()
		s := open(t, dir, sqlite.Options{})
		deleteAmongOthers(t, s, []byte(needle), size)
		if !s.Checkpoint() {
			t.Fatal("could not copy the log")
		}
		left := holds(t, dir, needle, ".db")
		folder := t.TempDir()
		if _, err := s.Backup(t.Context(), filepath.Join(folder, "copy.db"), nil); err != nil {
			t.Fatal(err)
		}
		if n := holds(t, folder, needle, ""); n != 0 {
			t.Errorf("what was deleted stands in the backup %d times", n)
		}
		if left > 0 {
			t.Logf("the live database had %d copies left", left)
			return
		}
	}
	t.Error("the live database never had copies left: the test shows nothing")
}

// deleteAmongOthers inserts rows with the needle among others, then deletes
// them in any order while the others grow.
func deleteAmongOthers(t *testing.T, s *sqlite.Store, needle []byte, size int) {
	t.Helper()
	ctx := t.Context()
	random := rand.New(rand.NewPCG(1, 2))
	update := func(fn func(tx store.Tx) error) {
		t.Helper()
		if err := s.Update(ctx, tenantA, fn); err != nil {
			t.Fatal(err)
		}
	}
	const rows = 300
	for n := range rows {
		tok := storetest.SomeToken()
		tok.ID = fmt.Sprintf("token-%d", n)
		if n%2 == 0 {
			tok.Data = bytes.Repeat(needle, 1+random.IntN(size))
		}
		update(func(tx store.Tx) error { return tx.InsertToken(ctx, tok) })
	}
	for _, n := range random.Perm(rows) {
		larger := bytes.Repeat([]byte("x"), 1+random.IntN(3000))
		update(func(tx store.Tx) error {
			id := fmt.Sprintf("token-%d", n)
			if n%2 == 0 {
				return tx.DeleteToken(ctx, id)
			}
			tok, err := tx.Token(ctx, id)
			if err != nil {
				return err
			}
			tok.Version, tok.Data = tok.Version+1, larger
			return tx.ReplaceToken(ctx, tok)
		})
	}
}

func TestABackupThatCannotBeDoneLeavesTheStoreAtWork(t *testing.T) {
	ctx := t.Context()
	gone, cancel := context.WithCancel(ctx)
	cancel()
	full := filepath.Join(t.TempDir(), "full.db")
	if err := os.WriteFile(full, []byte(strings.Repeat("somebody's file", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		options sqlite.Options
		ctx     context.Context
		path    string
		want    error
	}{
		"the log outgrows its bound": {sqlite.Options{BackupWALBytes: 1}, ctx, filepath.Join(t.TempDir(), "copy.db"), sqlite.ErrLogOutgrown},
		"the operator went away":     {sqlite.Options{}, gone, filepath.Join(t.TempDir(), "copy.db"), context.Canceled},
		"no such folder":             {sqlite.Options{}, ctx, filepath.Join(t.TempDir(), "none", "copy.db"), os.ErrNotExist},
		"there is a file already":    {sqlite.Options{}, ctx, full, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir(), test.options)
			insertMany(t, s, 50)
			if _, err := s.Backup(test.ctx, test.path, nil); err == nil || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("Backup = %v, want %v", err, test.want)
			}
			insertMany(t, s, 5)
			if _, err := s.Backup(ctx, filepath.Join(t.TempDir(), "next.db"), nil); err != nil && test.options.BackupWALBytes == 0 {
				t.Errorf("the next Backup = %v", err)
			}
		})
	}
	if b, err := os.ReadFile(full); err != nil || !strings.HasPrefix(string(b), "somebody's file") {
		t.Errorf("the file that was there is %.20q, %v", b, err)
	}
	s := open(t, t.TempDir(), sqlite.Options{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Backup(ctx, filepath.Join(t.TempDir(), "copy.db"), nil); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Backup of a closed store = %v, want ErrUnavailable", err)
	}
}

func TestTheSchemaIsToldWithoutTouchingTheStore(t *testing.T) {
	has := func(dir string) (int, int) {
		t.Helper()
		before := files(t, dir)
		has, knows, err := sqlite.Schema(dir)
		if err != nil || knows == 0 {
			t.Fatalf("Schema = %d, %d, %v", has, knows, err)
		}
		if after := files(t, dir); len(after) != len(before) {
			t.Errorf("Schema left files behind: %d, and there were %d", len(after), len(before))
		}
		return has, knows
	}
	dir := t.TempDir()
	if has, knows := has(dir); has != knows {
		t.Errorf("the schema of an empty folder is %d, want %d", has, knows)
	}
	s := open(t, dir, sqlite.Options{})
	if has, _ := has(dir); has != -1 {
		t.Errorf("the schema of a store at work is %d, want -1", has)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if has, knows := has(dir); has != knows {
		t.Errorf("the schema of a new store is %d, want %d", has, knows)
	}
	path := filepath.Join(dir, sqlite.BackupFile)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[63] = 1 // the last byte of PRAGMA user_version
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if has, knows := has(dir); has != 1 || knows < 3 {
		t.Errorf("the schema of an older store is %d of %d, want 1", has, knows)
	}
	for name, content := range map[string][]byte{"short": []byte("no"), "of another program": append(b[:68:68], make([]byte, 100)...)} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if has, _, err := sqlite.Schema(dir); !errors.Is(err, store.ErrDamaged) {
			t.Errorf("Schema of a file that is %s = %d, %v, want ErrDamaged", name, has, err)
		}
	}
}
