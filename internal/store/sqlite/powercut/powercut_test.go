package powercut_test

import (
	"bytes"
	"database/sql"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tokenkeep/tokenkeep/internal/store/sqlite/powercut"
)

// What SQLite documents about each setting is what the recorder must find: a
// recorder that never finds a loss would prove nothing.
func TestAPowerCutTakesWhatTheSettingsAllow(t *testing.T) {
	for name, tt := range map[string]struct {
		journal, synchronous string
		cuts                 int
		mayLose, mayDamage   bool
	}{
		"wal, full":      {"wal", "full", 100, false, false},
		"wal, normal":    {"wal", "normal", 50, true, false},
		"wal, off":       {"wal", "off", 50, true, true},
		"truncate, full": {"truncate", "full", 50, false, false},
		"delete, extra":  {"delete", "extra", 50, false, false},
		"delete, full":   {"delete", "full", 50, true, false}, // the deletion of the journal is not synced
		"delete, off":    {"delete", "off", 50, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // for writers mostly wait for one another
			seed := rand.Uint64()
			rng := rand.New(rand.NewPCG(seed, 0))
			dir := t.TempDir()
			before := open(t, dir, "", "journal_mode("+tt.journal+")", "synchronous(off)")
			createTables(t, before)
			before.Close()
			rec := powercut.New(t, dir)
			w := start(t, dir, rec.Name(), "journal_mode("+tt.journal+")", "synchronous("+tt.synchronous+")")

			var lost, damaged int
			for i := range tt.cuts {
				var acknowledged [writers]int
				cut := rec.CutAfter(rng.IntN(80), func() { acknowledged = w.read() })
				w.allow() // after the plan, so that there is enough left to count
				disk := cut()
				loss := powercut.Losses[i%len(powercut.Losses)]
				err := check(t, disk.Write(t, loss, rng), acknowledged)
				switch {
				case errors.Is(err, errLost):
					lost++
				case err != nil:
					damaged++
				}
				if err != nil && (loss == powercut.LoseNothing || errors.Is(err, errLost) && !tt.mayLose || errors.Is(err, errDamaged) && !tt.mayDamage) {
					t.Fatalf("cut %d of seed %d, losing %s: %v", i, seed, loss, err)
				}
			}
			w.stop()
			done := w.read()
			t.Logf("transactions %v, cuts %d, lost %d, damaged %d", done, tt.cuts, lost, damaged)
			if (tt.mayLose || tt.mayDamage) && lost+damaged == 0 {
				t.Errorf("%d cuts did no harm, want some", tt.cuts)
			}
			for i, n := range done {
				if n == 0 {
					t.Errorf("writer %d got no transaction done", i)
				}
			}
		})
	}
}

// Whatever escaped the recorder would show here.
func TestLosingNothingGivesTheFilesAsTheyAre(t *testing.T) {
	for name, pragmas := range map[string][]string{
		"wal":      {"journal_mode(wal)", "synchronous(normal)"},
		"delete":   {"journal_mode(delete)", "synchronous(off)"},
		"persist":  {"journal_mode(persist)", "synchronous(off)"},
		"mapped":   {"journal_mode(wal)", "synchronous(normal)", "mmap_size(1000000)"},
		"vacuumed": {"auto_vacuum(full)", "journal_mode(truncate)", "synchronous(off)"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			rec := powercut.New(t, dir)
			db := open(t, dir, rec.Name(), pragmas...)
			createTables(t, db)
			for n := 1; n <= 2*slots; n++ {
				if err := write(db, 0, n, func() {}); err != nil {
					t.Fatal(err)
				}
			}
			exec(t, db, `DELETE FROM "left" WHERE slot % 2 = 0`)

			got := files(t, rec.Cut(nil).Write(t, powercut.LoseNothing, nil))
			want := files(t, dir)
			for path := range want {
				if !bytes.Equal(got[path], want[path]) {
					t.Errorf("%s: %d bytes after the cut differ from the %d on disk", path, len(got[path]), len(want[path]))
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d files after the cut, %d on disk", len(got), len(want))
			}
		})
	}
}

// files reads a folder, without the shared memory that a cut takes.
func files(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	contents := map[string][]byte{}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), "-shm") {
			continue
		}
		if contents[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return contents
}

func TestWhatWasThereBeforeTheRecorderIsSafe(t *testing.T) {
	dir := t.TempDir()
	before := open(t, dir, "", "journal_mode(wal)", "synchronous(off)")
	createTables(t, before)
	if err := write(before, 0, 1, func() {}); err != nil {
		t.Fatal(err)
	}
	before.Close()

	rec := powercut.New(t, dir)
	db := open(t, dir, rec.Name(), "synchronous(off)")
	if err := write(db, 0, 2, func() {}); err != nil {
		t.Fatal(err)
	}
	disk := rec.Cut(nil)
	for loss, want := range map[powercut.Loss]int{powercut.LoseEverything: 1, powercut.LoseNothing: 2} {
		if err := check(t, disk.Write(t, loss, nil), [writers]int{want}); err != nil {
			t.Errorf("losing %s: %v", loss, err)
		}
	}
}

func TestAFailingDiskIsReportedToTheWriter(t *testing.T) {
	for name, tt := range map[string]struct {
		fail func(*powercut.Recorder)
		want int
	}{
		"full at once":    {func(r *powercut.Recorder) { r.FailWrites(1, sqlite3.SQLITE_FULL) }, sqlite3.SQLITE_FULL},
		"full on the way": {func(r *powercut.Recorder) { r.FailWrites(3, sqlite3.SQLITE_FULL) }, sqlite3.SQLITE_FULL},
		"failing writes":  {func(r *powercut.Recorder) { r.FailWrites(2, sqlite3.SQLITE_IOERR_WRITE) }, sqlite3.SQLITE_IOERR_WRITE},
		"failing syncs":   {func(r *powercut.Recorder) { r.FailSyncs(1, sqlite3.SQLITE_IOERR_FSYNC) }, sqlite3.SQLITE_IOERR_FSYNC},
		"a later sync":    {func(r *powercut.Recorder) { r.FailSyncs(2, sqlite3.SQLITE_IOERR_FSYNC) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			rec := powercut.New(t, dir)
			db := open(t, dir, rec.Name(), "journal_mode(wal)", "synchronous(full)")
			createTables(t, db)
			if err := write(db, 0, 1, func() {}); err != nil {
				t.Fatal(err)
			}
			tt.fail(rec)
			if got := code(write(db, 0, 2, func() {})); got != tt.want {
				t.Errorf("write on a failing disk: result code %d, want %d", got, tt.want)
			}
			rec.Heal()
			if err := write(db, 0, 2, func() {}); err != nil {
				t.Errorf("write on a healed disk: %v", err)
			}
			for _, loss := range powercut.Losses {
				rng := rand.New(rand.NewPCG(1, 1))
				if err := check(t, rec.Cut(nil).Write(t, loss, rng), [writers]int{2}); err != nil {
					t.Errorf("losing %s: %v", loss, err)
				}
			}
		})
	}
}

// code is SQLite's result code in an error, 0 for none.
func code(err error) int {
	if err == nil {
		return 0
	}
	if failure, ok := errors.AsType[*sqlite.Error](err); ok {
		return failure.Code()
	}
	return -1
}

func TestRecordersStayApart(t *testing.T) {
	dir1, dir2 := t.TempDir(), t.TempDir()
	rec1, rec2 := powercut.New(t, dir1), powercut.New(t, dir2)
	db1, db2 := open(t, dir1, rec1.Name()), open(t, dir2, rec2.Name())
	rec1.FailWrites(1, sqlite3.SQLITE_FULL)
	if _, err := db1.Exec("CREATE TABLE t (x)"); code(err) != sqlite3.SQLITE_FULL {
		t.Errorf("the disk that is full: %v, want result code %d", err, sqlite3.SQLITE_FULL)
	}
	if _, err := db2.Exec("CREATE TABLE t (x)"); err != nil {
		t.Errorf("the other disk: %v", err)
	}
}

func TestARecorderEndsWithItsTest(t *testing.T) {
	var vfs string
	t.Run("recorded", func(t *testing.T) {
		dir := t.TempDir()
		vfs = powercut.New(t, dir).Name()
		exec(t, open(t, dir, vfs), "CREATE TABLE t (x)")
	})
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "test.db")+"?vfs="+vfs)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Ping(); err == nil || !strings.Contains(err.Error(), "no such vfs") {
		t.Errorf("open with the name of an ended recorder: %v, want no such vfs", err)
	}
}
