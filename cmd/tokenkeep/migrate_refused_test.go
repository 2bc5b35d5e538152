package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

func TestAMigrationOfWhatIsNotRightIsRefused(t *testing.T) {
	storetest.CheckOnly(t)
	good := fillVault(t, 5)
	for name, test := range map[string]struct {
		spoil string // a statement on the source
		kek   string
		code  int
		want  string // in the last line
		found string // in one before
	}{
		"another key": {kek: keyFile(t), code: 8, want: "not the key-encryption key of this installation"},
		"a sealed value that was moved": {"UPDATE tokens SET data = (SELECT data FROM tokens AS x WHERE x.tenant_id = tokens.tenant_id AND x.id = 'card-1') WHERE id = 'card-0'", "", 6,
			`sealed values in the data folder do not open; nothing was moved`, `found: token\.data in the row of tokens of tenant [0-9a-f-]{36} that was made at 2\d{3}-`},
		"a grant that was changed": {"UPDATE applications SET rules = x'0102' WHERE type = 'private'", "", 6,
			`sealed values in the data folder do not open; nothing was moved`, `found: application\.rules in the row of applications of tenant`},
		"a log entry that was changed": {"UPDATE log SET message = 'Tenant updated' WHERE message = 'Tenant created'", "", 10,
			`a tenant's log is not what was sealed: that of tenant [0-9a-f-]{36} in the data folder; nothing was moved`, `found: changed, batch 1, entry `},
		"a counter that is wrong": {"UPDATE token_groups SET tokens = tokens + 1", "", 6, `the check of the store in the data folder found \d faults; nothing was moved`, "found: 1|found: 2|found: 4"},
		"a keyset of another KEK": {"UPDATE keysets SET kek = 'local-00000000'", "", 8, "does not open the keys of a tenant", ""},
		"a text with a NUL":       {"UPDATE applications SET name = 'a' || char(0) || 'b' WHERE type = 'public'", "", 1, `row \d+ of applications in the order of its key \(of tenant [0-9a-f-]{36}\) has a text that PostgreSQL cannot hold`, ""},
		"an older schema":         {"PRAGMA user_version = 2", "", 1, "written by an older release: its schema is number 2, and this release has 6: start a server of this release on it once", ""},
		"a newer schema":          {"PRAGMA user_version = 99", "", 5, "written by a newer release", ""},
	} {
		t.Run(name, func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "data")
			if err := os.Mkdir(data, 0o700); err != nil {
				t.Fatal(err)
			}
			copyFile(t, filepath.Join(good.data, "tokenkeep.db"), filepath.Join(data, "tokenkeep.db"))
			copyFile(t, kekOf(good.data), kekOf(data))
			if test.spoil != "" {
				edit(t, data, test.spoil)
			}
			if test.kek == "" {
				test.kek = kekOf(data)
			}
			url := pgtest.Database(t)
			t.Setenv("TOKENKEEP_STORE_URL", url)
			got := call(t, "migrate-store", "--data", data, "--kek-file", test.kek)
			lines := strings.Split(strings.TrimSpace(got.err), "\n")
			if got.code != test.code || got.out != "" || !regexp.MustCompile(test.want).MatchString(lines[len(lines)-1]) {
				t.Errorf("migrate-store = %d %q, want %d with %s", got.code, lines[len(lines)-1], test.code, test.want)
			}
			if test.found != "" && !regexp.MustCompile(test.found).MatchString(got.err) {
				t.Errorf("migrate-store said\n%s\nwant %s", got.err, test.found)
			}
			if strings.Contains(got.err, "card-0") {
				t.Error("a tenant's own word is in what it said")
			}
			if n, err := execute(t, url, moved); err == nil && n != 0 {
				t.Errorf("%d rows were moved", n)
			}
		})
	}
}

func TestAMigrationTakesAnEmptyDatabaseOrItsOwn(t *testing.T) {
	storetest.CheckOnly(t)
	v, other := fillVault(t, 5), fillVault(t, 1)
	url := pgtest.Database(t)
	t.Setenv("TOKENKEEP_STORE_URL", url)
	refused := func(of *vault, code int, want string) {
		t.Helper()
		if got := call(t, of.args()...); got.code != code || !strings.Contains(got.err, want) || strings.Contains(got.err, url) {
			t.Errorf("migrate-store = %+v, want %d with %s", got, code, want)
		}
	}
	if got := call(t, v.args()...); got.code != 0 {
		t.Fatalf("migrate-store = %+v", got)
	}
	refused(other, 15, "the database is not empty: a migration of another store, or of this one before it changed")
	// A server on the old store makes it another one.
	s := keeptest.Start(t, keeptest.Options{Data: v.data})
	refused(v, 4, "in use by another process")
	s.Tenant(t)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	refused(v, 15, "or of this one before it changed")

	fresh := pgtest.Database(t)
	t.Setenv("TOKENKEEP_STORE_URL", fresh)
	if err := keeptest.Start(t, keeptest.Options{StoreURL: fresh}).Stop(); err != nil { // it leaves a check value
		t.Fatal(err)
	}
	refused(v, 15, "the database is not empty")

	older := pgtest.Database(t)
	t.Setenv("TOKENKEEP_STORE_URL", older)
	for _, statement := range []string{"CREATE SCHEMA tokenkeep", "CREATE TABLE tokenkeep.installation (name text, value bytea)", "INSERT INTO tokenkeep.installation VALUES ('schema', '2')"} {
		_, _ = execute(t, older, statement)
	}
	refused(v, 1, "the schema of the database is number 2, and this release has 6: empty the database")

	t.Setenv("TOKENKEEP_STORE_URL", "")
	refused(v, 1, "store.url is not set")
	t.Setenv("TOKENKEEP_STORE_URL", pgtest.Database(t))
	refused(&vault{data: t.TempDir()}, 3, "kek.file")
	empty := &vault{data: filepath.Join(t.TempDir(), "data")}
	if err := os.Mkdir(empty.data, 0o700); err != nil {
		t.Fatal(err)
	}
	copyFile(t, kekOf(v.data), kekOf(empty.data))
	refused(empty, 1, "there is no embedded store in the data folder")
}

// TestACopyThatDiffersIsNotServed changes what has arrived before the rest does.
func TestACopyThatDiffersIsNotServed(t *testing.T) {
	storetest.CheckOnly(t)
	v := fillVault(t, 5)
	for name, statement := range map[string]string{
		"a changed row":  "UPDATE tokenkeep.tokens SET containers = '[\"/other/\"]' WHERE id = 'card-1' RETURNING 1",
		"a missing row":  "DELETE FROM tokenkeep.tokens WHERE id = 'card-1' RETURNING 1",
		"another row":    "INSERT INTO tokenkeep.marks SELECT tenant_id, 'x', '' FROM tokenkeep.tenants LIMIT 1 RETURNING 1",
		"another's slot": "INSERT INTO tokenkeep.log_counts SELECT tenant_id, entity_type, 7, 0 FROM tokenkeep.log_counts LIMIT 1 RETURNING 1",
	} {
		t.Run(name, func(t *testing.T) {
			url := pgtest.Database(t)
			t.Setenv("TOKENKEEP_STORE_URL", url)
			if got := call(t, v.args()...); got.code != 0 {
				t.Fatalf("migrate-store = %+v", got)
			}
			for _, change := range []string{statement,
				"UPDATE tokenkeep.installation SET value = convert_to((convert_from(value, 'UTF8')::jsonb - 'complete')::text, 'UTF8') WHERE name = 'migration' RETURNING 1"} {
				if _, err := execute(t, url, change); err != nil {
					t.Fatal(err)
				}
			}
			got := call(t, v.args()...)
			if got.code != 17 || !strings.Contains(got.err, "the copy is not the same as its source: ") || !strings.Contains(got.err, "empty the database and begin again") {
				t.Errorf("migrate-store = %+v, want 17", got)
			}
			v.unserved(t)
		})
	}
}

// TestTheCommandsOfThePageMoveTheStore runs the lines of docs/operations.md as
// an operator does: a stop, the move, a start on the database.
func TestTheCommandsOfThePageMoveTheStore(t *testing.T) {
	storetest.Long(t)
	text, err := os.ReadFile(page("operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n### Moving from the embedded store\n")
	section, _, _ = strings.Cut(section, "\n## ")
	dir, kek := t.TempDir(), keyFile(t)
	data := filepath.Join(dir, "data")
	config := mustWrite(t, filepath.Join(dir, "tokenkeep.yaml"), "addr: 127.0.0.1:0\ndata: "+data+"\nkek.file: "+kek+"\n")
	p := start(t, "serve", "--config", config)
	if got := call(t, "tenant", "create", "acme", "--data", data); got.code != 0 {
		t.Fatalf("tenant create = %+v", got)
	}
	p.end()
	mustWrite(t, config, "addr: 127.0.0.1:0\ndata: "+data+"\nkek.file: "+kek+"\nstore.url_file: "+mustWrite(t, filepath.Join(dir, "url"), pgtest.Database(t))+"\n")
	places := strings.NewReplacer("/etc/tokenkeep/tokenkeep.yaml", config, "/var/lib/tokenkeep", data)
	ran := 0
	for line := range strings.Lines(section) {
		command, ok := strings.CutPrefix(line, "tokenkeep ")
		if !ok {
			continue
		}
		ran++
		command, _, _ = strings.Cut(command, "#")
		args := strings.Fields(places.Replace(command))
		if args[0] == "serve" {
			start(t, args...)
		} else if got := call(t, args...); got.code != 0 {
			t.Fatalf("tokenkeep %s = %+v", command, got)
		}
	}
	if ran != 3 {
		t.Errorf("ran %d commands of the page, want three", ran)
	}
	if got := call(t, "tenant", "list", "--data", data); got.code != 0 || !strings.Contains(got.out, "acme") {
		t.Errorf("after the move: %+v", got)
	}
}
