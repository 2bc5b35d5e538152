package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/server"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
)

// vault is a stopped server on the embedded store, with what it answered.
type vault struct {
	data    string
	tenants []string
	answers map[[2]string]string // by key and path
}

// fillVault makes a store with a row in every table, and stops its server.
func fillVault(t *testing.T, cards int) *vault {
	t.Helper()
	keeptest.OnFiles(t)
	o := openOffice(t)
	v := &vault{data: o.server.Data, answers: map[[2]string]string{}}
	ask := func(key, path string) {
		answer := o.server.Call(t, http.MethodGet, path, key, "")
		if answer.Status != http.StatusOK {
			t.Fatalf("GET %s = %s", path, answer)
		}
		v.answers[[2]string{key, path}] = answer.Body
	}
	made := func(key, path, body string, more ...string) keeptest.Answer {
		t.Helper()
		answer := o.server.Call(t, http.MethodPost, path, key, body, more...)
		if answer.Status/100 != 2 {
			t.Fatalf("POST %s = %s", path, answer)
		}
		return answer
	}
	for n := range 2 {
		tenant := o.server.Tenant(t)
		v.tenants = append(v.tenants, tenant.Tenant.ID)
		id := tenant.Tenant.ID
		key := o.server.Application(t, id, api.CreateApplication{Type: "private", Rules: []api.Rule{
			{Container: "/", Transform: "reveal", Permissions: []string{"token:create", "token:read", "token:search"}},
		}}).Key
		manager := o.server.Application(t, id, api.CreateApplication{Type: "management", Permissions: []string{
			"reactor:create", "reactor:read", "proxy:create", "proxy:read", "session:read", "application:read",
		}}).Key
		made(manager, "/reactors", `{"name":"charge","code":"module.exports = async () => ({})","configuration":{"a":"b"}}`)
		made(manager, "/proxies", `{"name":"payments","destination_url":"https://psp.example.com"}`)
		made(o.server.Application(t, id, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}}).Key, "/sessions", "")
		made(key, "/tokens", `{"type":"token","data":"kept","expires_at":"2099-01-01T00:00:00+02:00"}`, api.Header(api.DefaultPrefix, api.IdempotencyKey), "once")
		var clients sync.WaitGroup
		for c := range 4 {
			clients.Go(func() {
				for i := c; i < cards; i += 4 {
					body := fmt.Sprintf(`{"id":"card-%d","type":"card","data":{"number":"4242424242424242","expiration_month":12,"expiration_year":2040,"cvc":"123"},"metadata":{"order":"%d"}}`, i, i%7)
					if answer := o.server.Call(t, http.MethodPost, "/tokens", key, body); answer.Status != http.StatusCreated {
						t.Errorf("create = %s", answer)
						return
					}
				}
			})
		}
		clients.Wait()
		for i := range cards {
			ask(key, fmt.Sprintf("/tokens/card-%d", i))
		}
		for _, path := range []string{"/tokens?size=5", "/tokens?metadata.order=3&size=5"} {
			ask(key, path)
		}
		for _, path := range []string{"/reactors", "/proxies", "/applications"} {
			ask(manager, path)
		}
		if n == 0 {
			o.done("audit", "checkpoint", id) // of the other one, entries wait unsealed
		}
	}
	gone := o.server.Tenant(t).Tenant.ID
	o.done("tenant", "delete", gone, "--yes")
	if !strings.Contains(v.answers[[2]string{}]+fmt.Sprint(v.answers), `"123"`) {
		t.Fatal("there are no security codes to move")
	}
	if err := o.server.Stop(); err != nil {
		t.Fatal(err)
	}
	return v
}

// args are those of the command, of a vault; the database comes by a variable.
func (v *vault) args(more ...string) []string {
	return append([]string{"migrate-store", "--data", v.data, "--kek-file", kekOf(v.data)}, more...)
}

// compare starts a server on the database and asks it what the other was asked.
func (v *vault) compare(t *testing.T, url string) {
	t.Helper()
	s := keeptest.Start(t, keeptest.Options{Data: v.data, StoreURL: url})
	for asked, want := range v.answers {
		if got := s.Call(t, http.MethodGet, asked[1], asked[0], ""); got.Status != http.StatusOK || got.Body != want {
			t.Fatalf("GET %s on PostgreSQL = %s, want %s", asked[1], got, want)
		}
	}
	nothing := func(admin.Progress) error { return nil }
	for _, tenant := range v.tenants {
		last, err := s.Operator().Follow(t.Context(), http.MethodPost, "/tenants/"+tenant+"/audit/verify", admin.VerifyLog{}, nothing)
		if err != nil || !strings.Contains(string(last.Data), `"found":0`) {
			t.Errorf("the log of a tenant on PostgreSQL = %s, %v", last.Data, err)
		}
	}
	if last, err := s.Operator().Follow(t.Context(), http.MethodPost, "/store/check", nil, nothing); err != nil || len(last.Found) > 0 {
		t.Errorf("the check of the store on PostgreSQL = %v, %v", last.Found, err)
	}
	// It goes on from there.
	key := ""
	for asked := range v.answers {
		if strings.HasPrefix(asked[1], "/tokens/") {
			key = asked[0]
		}
	}
	if got := s.Call(t, http.MethodPost, "/tokens", key, `{"type":"token","data":"later"}`); got.Status != http.StatusCreated {
		t.Errorf("a create on PostgreSQL = %s", got)
	}
}

// unserved fails unless a server refuses the database.
func (v *vault) unserved(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var said strings.Builder
	code := run(ctx, []string{"serve", "--addr", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "data"), "--kek-file", kekOf(v.data)}, nil, io.Discard, &said)
	if code != 18 || !strings.Contains(said.String(), "a migration to this database was begun and is not complete: run 'tokenkeep migrate-store' again") {
		t.Fatalf("serve on a database that is not complete = %d %s, want 18", code, &said)
	}
}

// owned makes a database whose owner is no superuser, so that row-level
// security is in force for the migration too.
func owned(t *testing.T, c *pgtest.Cluster) (url string) {
	t.Helper()
	for _, statement := range []string{
		"CREATE ROLE tokenkeep_requests NOLOGIN", "CREATE ROLE tokenkeep LOGIN", "GRANT tokenkeep_requests TO tokenkeep", "CREATE DATABASE vault OWNER tokenkeep",
	} {
		if out, err := c.Command("psql", "postgres", "-c", statement).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", statement, err, out)
		}
	}
	return strings.Replace(c.URL("vault"), "user=postgres", "user=tokenkeep", 1)
}

// execute runs a statement in a database and returns a number.
func execute(t *testing.T, url, statement string) (n int64, err error) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close(t.Context()) }()
	return n, c.QueryRow(t.Context(), statement).Scan(&n)
}

const moved = "SELECT (SELECT count(*) FROM tokenkeep.tokens) + (SELECT count(*) FROM tokenkeep.token_terms) + (SELECT count(*) FROM tokenkeep.log)"

// TestAKilledMigrationGoesOnWhereItWas kills the process with SIGKILL at every
// step and among the rows, and the database once, and then compares every
// token with what the embedded store answered.
func TestAKilledMigrationGoesOnWhereItWas(t *testing.T) {
	v := fillVault(t, 150)
	c := pgtest.Start(t, pgtest.Options{NoSync: true})
	url := owned(t, c)
	t.Setenv("TOKENKEEP_STORE_URL", url)
	psql := func(statement string) {
		t.Helper()
		if out, err := c.Command("psql", "vault", "-v", "ON_ERROR_STOP=1", "-qc", statement).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", statement, err, out)
		}
	}
	total := count(t, v.data, "SELECT (SELECT count(*) FROM tokens) + (SELECT count(*) FROM token_terms) + (SELECT count(*) FROM log)")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// until runs the command until something happens, and kills it then; it
	// reports whether that was before its end.
	until := func(line string, rows int64, kill func(*exec.Cmd)) (hit bool) {
		t.Helper()
		cmd := exec.Command(self, v.args()...)
		cmd.Env = append(os.Environ(), asTokenkeep+"=1")
		said, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		var once sync.Once
		kills := func() { once.Do(func() { hit = true; kill(cmd) }) }
		var watching sync.WaitGroup
		if line == "" {
			watching.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if n, err := execute(t, url, moved); err != nil {
						t.Error(err)
						return
					} else if n >= rows {
						kills()
						return
					}
				}
			})
		}
		for lines := bufio.NewScanner(said); lines.Scan(); {
			if line != "" && strings.HasPrefix(lines.Text(), line) {
				kills()
			}
		}
		_ = cmd.Wait()
		close(stop)
		watching.Wait()
		return hit
	}
	sigkill := func(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
	for _, line := range []string{"… reading log", "… opening every sealed value", "… copying tenants"} {
		if !until(line, 0, sigkill) {
			t.Errorf("the migration was not killed at %q", line)
		}
		v.unserved(t)
	}
	// Among the rows it is given no time to be done before it is seen.
	slow := "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.02); RETURN NULL; END';"
	for _, table := range []string{"tokens", "token_terms", "log"} {
		slow += "CREATE TRIGGER slowly AFTER INSERT ON tokenkeep." + table + " EXECUTE FUNCTION slowly();"
	}
	psql(slow)
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	for range rounds {
		n, err := execute(t, url, moved)
		if err != nil {
			t.Fatal(err)
		}
		if at := n + rand.Int64N(max((total-n)/2, 1)) + 1; !until("", at, sigkill) {
			t.Errorf("the migration was not killed at row %d of %d", at, total)
		}
		v.unserved(t)
	}
	psql("DROP FUNCTION slowly CASCADE")
	until("… comparing tokens", 0, func(*exec.Cmd) {
		c.Kill()
		if err := c.Restart(); err != nil {
			t.Error(err)
		}
	})
	for _, line := range []string{"… copying log:", "… comparing log", "… copying the keys that live an hour"} {
		if !until(line, 0, sigkill) {
			t.Errorf("the migration was not killed at %q", line)
		}
	}

	got := call(t, v.args("--json")...)
	var m server.Migrated
	if err := json.Unmarshal([]byte(got.out), &m); got.code != 0 || err != nil || m.Verified == nil || m.Verified.Failed != 0 || m.EpochKeys == 0 {
		t.Fatalf("migrate-store = %+v, %v", got, err)
	}
	if n, err := execute(t, url, moved); err != nil || n != total {
		t.Errorf("the database has %d rows, %v; the folder has %d", n, err, total)
	}
	// Keys that live an hour are in one place.
	if keys, err := os.ReadFile(filepath.Join(v.data, "epoch.keys")); err != nil || strings.Trim(string(keys), "\x00") != "" {
		t.Errorf("the folder still has keys that live an hour: %v", err)
	}
	again := call(t, v.args()...)
	if again.code != 0 || !strings.Contains(again.out, "The store is in the database") || !strings.Contains(again.err, "going on with the migration") {
		t.Errorf("migrate-store once more = %+v", again)
	}
	v.compare(t, url)
	// From here on the database is a store of its own: it has changed, and the
	// folder is still what was moved.
	if got := call(t, v.args()...); got.code != 4 {
		t.Errorf("migrate-store beside a server = %+v, want 4", got)
	}
}

// count asks the embedded store.
func count(t *testing.T, data, statement string) (n int64) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(data, "tokenkeep.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.QueryRow(statement).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAMigrationOfWhatIsNotRightIsRefused(t *testing.T) {
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
		"an older schema":         {"PRAGMA user_version = 2", "", 1, "written by an older release: its schema is number 2, and this release has 3: start a server of this release on it once", ""},
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
	refused(v, 1, "the schema of the database is number 2, and this release has 3: empty the database")

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
		command, ok := strings.CutPrefix(line, "    tokenkeep ")
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
