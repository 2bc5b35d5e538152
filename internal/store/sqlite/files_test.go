package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

const databaseName = "tokenkeep.db"

// files reads a folder, but for what holds no data: the lock and the index of
// the write-ahead log, which SQLite makes anew.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	content := map[string]string{}
	for _, e := range entries {
		if e.Name() == "tokenkeep.lock" || strings.HasSuffix(e.Name(), "-shm") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if len(b) == 0 && strings.HasSuffix(e.Name(), "-wal") {
			continue // as good as none
		}
		content[e.Name()] = string(b)
	}
	return content
}

func writeFiles(t *testing.T, dir string, content map[string]string) {
	t.Helper()
	for name, b := range content {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// plain runs statements on the database of a store that is closed.
func plain(t *testing.T, dir string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, databaseName))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range statements {
		if _, err := db.Exec(text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// fillStore keeps some tokens and closes the store.
func fillStore(t *testing.T, dir string, n int) {
	t.Helper()
	s := open(t, dir, sqlite.Options{})
	insertMany(t, s, n)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func insertMany(t *testing.T, s store.Store, n int) {
	t.Helper()
	if err := s.Update(t.Context(), tenantA, func(tx store.Tx) error {
		for range n {
			tok := storetest.SomeToken()
			if err := errors.Join(tx.InsertToken(t.Context(), tok), tx.AppendLog(t.Context(), storetest.SomeEntry(tok.ID))); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func openOnce(dir string) error {
	s, err := sqlite.Open(context.Background(), dir, sqlite.Options{})
	if err != nil {
		return err
	}
	return s.Close()
}

func TestASecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, sqlite.Options{})
	out, err := process(t, "open", dir).CombinedOutput()
	if want := "error: " + store.ErrInUse.Error() + "\n"; err == nil || string(out) != want {
		t.Errorf("a second process: got %q, error %v; want %q", out, err, want)
	}
	if _, err := sqlite.Open(t.Context(), dir, sqlite.Options{}); !errors.Is(err, store.ErrInUse) {
		t.Errorf("a second Open in this process: got error %v, want %v", err, store.ErrInUse)
	}
	if _, err := sqlite.CheckFiles(t.Context(), dir, nil); !errors.Is(err, store.ErrInUse) {
		t.Errorf("CheckFiles meanwhile: got error %v, want %v", err, store.ErrInUse)
	}
	insertMany(t, s, 1) // the first one is unharmed
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if out, err := process(t, "open", dir).CombinedOutput(); err != nil {
		t.Errorf("a process after the first has closed: got %q, error %v", out, err)
	}
}

func TestWhatOpenRefusesItLeavesAsItWas(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir string)
		want    error
	}{
		"a newer schema": {func(t *testing.T, dir string) {
			fillStore(t, dir, 3)
			plain(t, dir, "PRAGMA user_version = 9999")
		}, store.ErrNewerSchema},
		"a newer schema after an unclean stop": {func(t *testing.T, dir string) {
			fillStore(t, dir, 3)
			plain(t, dir, "PRAGMA user_version = 9999")
			db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, databaseName)+"?_pragma=wal_autocheckpoint(0)")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec("CREATE TABLE newer (x); INSERT INTO newer VALUES ('not copied yet')"); err != nil {
				t.Fatal(err)
			}
			stopped := files(t, dir)
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if stopped[databaseName+"-wal"] == "" {
				t.Fatal("there is nothing in the log")
			}
			writeFiles(t, dir, stopped)
		}, store.ErrNewerSchema},
		"a database of another program": {func(t *testing.T, dir string) {
			plain(t, dir, "CREATE TABLE songs (title TEXT)", "INSERT INTO songs VALUES ('x')")
		}, store.ErrDamaged},
		"a database of another program with a mark of its own": {func(t *testing.T, dir string) {
			plain(t, dir, "PRAGMA application_id = 42", "PRAGMA user_version = 1", "CREATE TABLE songs (title TEXT)")
		}, store.ErrDamaged},
		"garbage": {func(t *testing.T, dir string) {
			writeFiles(t, dir, map[string]string{databaseName: strings.Repeat("not a database ", 1000)})
		}, store.ErrDamaged},
		"a short piece of garbage": {func(t *testing.T, dir string) {
			writeFiles(t, dir, map[string]string{databaseName: "x"})
		}, store.ErrDamaged},
		"a database that was cut short": {func(t *testing.T, dir string) {
			fillStore(t, dir, 50)
			if err := os.Truncate(filepath.Join(dir, databaseName), 3*4096); err != nil {
				t.Fatal(err)
			}
		}, store.ErrDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.prepare(t, dir)
			before := files(t, dir)
			for range 2 {
				s, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
				if err == nil {
					_ = s.Close()
				}
				if !errors.Is(err, c.want) {
					t.Errorf("Open: got error %v, want %v", err, c.want)
				}
				after := files(t, dir)
				if !maps.Equal(before, after) {
					t.Errorf("the files changed: %s before, %s after", sizes(before), sizes(after))
				}
			}
		})
	}
}

func sizes(content map[string]string) string {
	var b strings.Builder
	for name, c := range content {
		fmt.Fprintf(&b, "%s %d; ", name, len(c))
	}
	return b.String()
}

// An empty file, and one that
// SQLite has given its form and no schema, are the start of a store.
func TestAnEmptyDatabaseIsTheStartOfAStore(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, dir string){
		"an empty file": func(t *testing.T, dir string) { writeFiles(t, dir, map[string]string{databaseName: ""}) },
		"no schema yet": func(t *testing.T, dir string) { plain(t, dir, "PRAGMA journal_mode = WAL") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			prepare(t, dir)
			insertMany(t, open(t, dir, sqlite.Options{}), 1)
		})
	}
}

func TestAnUncleanStopIsFollowedByACheck(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, sqlite.Options{})
	insertMany(t, s, 200)
	if !s.Checkpoint() {
		t.Fatal("could not copy the log")
	}
	insertMany(t, s, 5)
	stopped := files(t, dir) // as a crash would leave them
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	const words = "not closed cleanly"
	reopen := func(t *testing.T, dir string) (*sqlite.Store, string, error) {
		var log bytes.Buffer
		s, err := sqlite.Open(t.Context(), dir, sqlite.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err == nil {
			t.Cleanup(func() { _ = s.Close() })
		}
		return s, log.String(), err
	}

	t.Run("a clean stop is not", func(t *testing.T) {
		if _, log, err := reopen(t, dir); err != nil || strings.Contains(log, words) {
			t.Errorf("Open after a clean stop: logged %q, error %v", log, err)
		}
	})
	t.Run("a sound store opens", func(t *testing.T) {
		dir := t.TempDir()
		writeFiles(t, dir, stopped)
		s, log, err := reopen(t, dir)
		if err != nil || !strings.Contains(log, words) {
			t.Fatalf("Open after an unclean stop: logged %q, error %v; want the check and no error", log, err)
		}
		if got := countTokens(t, s); got != 205 {
			t.Errorf("tokens after an unclean stop: got %d, want 205", got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, log, err := reopen(t, dir); err != nil || strings.Contains(log, words) {
			t.Errorf("Open after the next clean stop: logged %q, error %v", log, err)
		}
	})
	t.Run("a damaged page is refused and listed", func(t *testing.T) {
		// The kind of a page is its first byte; the first page has it behind
		// the header of the file.
		database := stopped[databaseName]
		refused := 0
		for page := 1; page < len(database)/4096; page += 5 {
			dir := t.TempDir()
			damaged := maps.Clone(stopped)
			b := []byte(database)
			b[page*4096] ^= 0x55
			damaged[databaseName] = string(b)
			writeFiles(t, dir, damaged)
			_, _, err := reopen(t, dir)
			if err == nil {
				continue // a page that the log has anew, or the rest of a long value
			}
			if !errors.Is(err, store.ErrDamaged) {
				t.Errorf("Open with page %d damaged: got error %v, want %v", page+1, err, store.ErrDamaged)
			}
			refused++
			found, err := sqlite.CheckFiles(t.Context(), dir, nil)
			if len(found) == 0 || err != nil {
				t.Errorf("CheckFiles with page %d damaged: found %q, error %v", page+1, found, err)
			}
		}
		if refused < 5 {
			t.Errorf("only %d damaged stores were refused", refused)
		}
	})
}

func countTokens(t testing.TB, s store.Store) (n int64) {
	t.Helper()
	if err := s.View(t.Context(), tenantA, func(tx store.Tx) (err error) {
		n, err = tx.CountTokens(t.Context(), store.TokenFilter{Now: 1, Groups: store.AllGroups()})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestCheckFindsRowsThatDisagree(t *testing.T) {
	for name, c := range map[string]struct{ damage, want string }{
		"a counter":             {"UPDATE token_groups SET tokens = tokens + 1", "counter"},
		"a type's counter":      {"UPDATE token_types SET tokens = tokens + 1", "types whose counter"},
		"a container":           {"DELETE FROM token_containers", "containers that do not agree"},
		"a container's counter": {"UPDATE container_counts SET containers = containers + 1", "counter of containers"},
		"a term's counter":      {"INSERT INTO token_term_counts SELECT tenant_id, term, group_id, 7 FROM token_terms LIMIT 1", "terms whose counter"},
		"a log counter":         {"UPDATE log_counts SET entries = 0", "counter"},
		"a term is gone":        {"DELETE FROM token_terms WHERE id = (SELECT min(id) FROM token_terms)", "missing from their index"},
		"a token is gone":       {"DELETE FROM tokens WHERE row_id = 3", "without their token"},
		"a token's group":       {"UPDATE tokens SET group_id = x'00' WHERE row_id = 3", "not theirs"},
		"a term's group":        {"UPDATE token_terms SET group_id = x'00000000000000000000000000000000'", "without their token"},
		"an unsealed entry":     {"DELETE FROM log", "not in the log"},
		"a key":                 {"INSERT INTO application_keys VALUES (x'01', x'02', 'a', 'b', 1, 'c', 'd', 1)", "application is gone"},
		"the list of its terms": {"UPDATE tokens SET terms = x'ff' WHERE row_id = 3", "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fillStore(t, dir, 5)
			plain(t, dir, c.damage)
			found, err := sqlite.CheckFiles(t.Context(), dir, nil)
			if err != nil || !strings.Contains(strings.Join(found, "; "), c.want) {
				t.Errorf("CheckFiles: found %q, error %v; want %q", found, err, c.want)
			}
			s := open(t, dir, sqlite.Options{})
			again, err := s.Check(t.Context(), nil)
			if err != nil || strings.Join(again, "; ") != strings.Join(found, "; ") {
				t.Errorf("Check: found %q, error %v; CheckFiles found %q", again, err, found)
			}
		})
	}
}

func TestOnlyTheOwnerMayReadTheFiles(t *testing.T) {
	for name, folder := range map[string]string{"plain": "data", "deep": "a/b/c", "odd": "a ?b=c#d%41&vfs=x 'é"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), folder)
			s := open(t, dir, sqlite.Options{})
			insertMany(t, s, 1)
			if _, err := s.EpochKeys().AddEpochKey(t.Context(), tenantA, 1, []byte("k")); err != nil {
				t.Fatal(err)
			}
			seen := 0
			err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				info, err := e.Info()
				if err != nil {
					return err
				}
				want := fs.FileMode(0o600)
				if e.IsDir() {
					want = 0o700
				}
				if info.Mode().Perm() != want {
					t.Errorf("%s has the mode %v, want %v", e.Name(), info.Mode().Perm(), want)
				}
				seen++
				return nil
			})
			if err != nil || seen != 6 { // folder, database, -wal, -shm, keys, lock
				t.Errorf("saw %d files, error %v; want 6", seen, err)
			}
		})
	}
}

func TestEveryConnectionIsDurable(t *testing.T) {
	s := open(t, t.TempDir(), sqlite.Options{Readers: 3})
	insertMany(t, s, 1)
	want := sqlite.Durable()
	if len(want) < 9 {
		t.Fatalf("only %d settings", len(want))
	}
	var names []string
	for name := range want {
		names = append(names, name)
	}
	got, err := s.Pragmas(append(names, "query_only")...)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 8 {
		t.Errorf("looked at %d connections, want 8", len(got))
	}
	for name, pragmas := range got {
		for pragma, value := range want {
			if pragmas[pragma] != value {
				t.Errorf("%s: %s is %q, want %q", name, pragma, pragmas[pragma], value)
			}
		}
		if readOnly := pragmas["query_only"] == "1"; readOnly != (strings.HasPrefix(name, "reader") || strings.HasPrefix(name, "viewer")) {
			t.Errorf("%s: query_only is %q", name, pragmas["query_only"])
		}
	}
}

func TestMigrationsRunOnce(t *testing.T) {
	texts, err := sqlite.Migrations()
	if err != nil || len(texts) == 0 {
		t.Fatalf("Migrations: got %d, error %v", len(texts), err)
	}
	dir := t.TempDir()
	fillStore(t, dir, 2)
	version := func() (n int) {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, databaseName))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		if err := db.QueryRow("PRAGMA user_version").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if got := version(); got != len(texts) {
		t.Errorf("the schema has number %d, want %d", got, len(texts))
	}
	if got := countTokens(t, open(t, dir, sqlite.Options{})); got != 2 {
		t.Errorf("tokens after opening again: got %d, want 2", got)
	}
}

// TestAnOlderStoreIsBroughtUpToDate begins with what each earlier release left.
func TestAnOlderStoreIsBroughtUpToDate(t *testing.T) {
	texts, err := sqlite.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for n := 1; n < len(texts); n++ {
		dir := t.TempDir()
		plain(t, dir, append(slices.Clone(texts[:n]), "INSERT INTO marks VALUES (x'"+strings.ReplaceAll(tenantB, "-", "")+"', 'kept', CAST('value' AS BLOB))",
			fmt.Sprintf("PRAGMA user_version = %d", n), "PRAGMA application_id = 0x544b4550")...)
		s := openBare(t, dir, sqlite.Options{})
		storetest.EveryRequest(t, s, tenantA)
		storetest.EverySweep(t, s)
		if err := s.View(ctx, tenantB, func(tx store.Tx) error {
			value, err := tx.Mark(ctx, "kept")
			if string(value) != "value" {
				t.Errorf("from number %d: the mark is %q, want it kept", n, value)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		if found, err := s.Check(ctx, nil); len(found) > 0 || err != nil {
			t.Errorf("from number %d: Check: got %q, error %v; want nothing", n, found, err)
		}
	}
}

// TestWhatAnOlderReleaseWroteIsOutdated: it does not know the column derived_at.
func TestWhatAnOlderReleaseWroteIsOutdated(t *testing.T) {
	texts, err := sqlite.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	ctx, dir := t.Context(), t.TempDir()
	a, b := "x'"+strings.ReplaceAll(tenantA, "-", "")+"'", "x'"+strings.ReplaceAll(tenantB, "-", "")+"'"
	group, containers := store.GroupOf("card", []string{"/"})
	statements := slices.Clone(texts[:3])
	for _, tenant := range []string{b, a} {
		statements = append(statements,
			"INSERT INTO tenants VALUES ("+tenant+", '', '{}', NULL, '', 0, '', 0, 0)",
			fmt.Sprintf("INSERT INTO token_groups VALUES (%s, x'%s', 'card', '%s', 1)", tenant, group, containers),
			fmt.Sprintf(`INSERT INTO tokens (tenant_id, id, group_id, type, containers, data, expires_offset, created_by, created_at, modified_by, modified_at, version)
				VALUES (%s, 'old', x'%s', 'card', '%s', x'01', 0, '', 1, '', 1, 7)`, tenant, group, containers))
	}
	plain(t, dir, append(statements, "PRAGMA user_version = 3", "PRAGMA application_id = 0x544b4550")...)
	refs := []store.TokenRef{{Tenant: tenantA, ID: "old"}, {Tenant: tenantB, ID: "old"}}
	check := func(s *sqlite.Store, doing string, want ...store.TokenRef) {
		t.Helper()
		if got, err := s.AllTenants().OutdatedTokens(ctx, "", 0, 10); err != nil || !slices.Equal(got, want) {
			t.Errorf("OutdatedTokens %s: got %v, error %v; want %v", doing, got, err, want)
		}
		if found, err := s.Check(ctx, nil); len(found) > 0 || err != nil {
			t.Errorf("Check %s: got %q, error %v; want nothing", doing, found, err)
		}
	}
	s := openBare(t, dir, sqlite.Options{})
	check(s, "after the migration", refs...)
	if err := s.Update(ctx, tenantA, func(tx store.Tx) error {
		row, err := tx.Token(ctx, "old")
		if row.Derived {
			t.Error("a token of an older release reads as derived")
		}
		row.Version, row.Derived = row.Version+1, true
		return errors.Join(err, tx.ReplaceToken(ctx, row))
	}); err != nil {
		t.Fatal(err)
	}
	check(s, "when one was recomputed", refs[1])
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	plain(t, dir, "UPDATE tokens SET version = version + 1 WHERE tenant_id = "+a)
	check(openBare(t, dir, sqlite.Options{}), "when that was changed by who does not know the column", refs...)
}

func TestMetricsAreRegistered(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	s := open(t, t.TempDir(), sqlite.Options{Metrics: registry})
	insertMany(t, s, 1)
	s.Checkpoint()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, f := range families {
		got[f.GetName()] = true
	}
	for _, name := range []string{"tokenkeep_store_commit_updates", "tokenkeep_store_commits_split_total", "tokenkeep_store_wal_bytes", "tokenkeep_store_checkpoints_total"} {
		if !got[name] {
			t.Errorf("there is no metric %s", name)
		}
	}
}
