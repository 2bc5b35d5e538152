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
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// vault is a stopped server on the embedded store, with what it answered.
type vault struct {
	data    string
	tenants []string
	answers map[[2]string]string // by key and path
	once    map[string]string    // by key, to a request with an idempotency key
}

const onceBody = `{"type":"token","data":"kept","expires_at":"2099-01-01T00:00:00+02:00"}`

// fillVault makes a store with a row in every table, and stops its server.
func fillVault(t *testing.T, cards int) *vault {
	t.Helper()
	keeptest.OnFiles(t)
	o := openOffice(t)
	v := &vault{data: o.server.Data, answers: map[[2]string]string{}, once: map[string]string{}}
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
	for range 2 {
		id := o.server.Tenant(t).Tenant.ID
		v.tenants = append(v.tenants, id)
		key := o.server.Application(t, id, api.CreateApplication{Type: "private", Rules: []api.Rule{
			{Container: "/", Transform: "reveal", Permissions: []string{"token:create", "token:read", "token:search"}},
		}}).Key
		manager := o.server.Application(t, id, api.CreateApplication{Type: "management", Permissions: []string{
			"reactor:create", "reactor:read", "proxy:create", "proxy:read", "session:read", "application:read",
		}}).Key
		made(manager, "/reactors", `{"name":"charge","code":"module.exports = async () => ({})","configuration":{"a":"b"}}`)
		made(manager, "/proxies", `{"name":"payments","destination_url":"https://psp.example.com"}`)
		made(o.server.Application(t, id, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}}).Key, "/sessions", "")
		v.once[key] = made(key, "/tokens", onceBody, api.Header(api.DefaultPrefix, api.IdempotencyKey), "once").Body
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
		for _, path := range []string{"/reactors", "/proxies", "/applications", "/sessions"} {
			ask(manager, path)
		}
		o.done("audit", "checkpoint", id)
	}
	gone := o.server.Tenant(t).Tenant.ID
	o.done("tenant", "delete", gone, "--yes")
	if !strings.Contains(fmt.Sprint(v.answers), `"123"`) {
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
	// It goes on from there: a request that is sent again, and a new one.
	for key, want := range v.once {
		got := s.Call(t, http.MethodPost, "/tokens", key, onceBody, api.Header(api.DefaultPrefix, api.IdempotencyKey), "once")
		if got.Body != want || got.Header.Get(api.Header(api.DefaultPrefix, api.IdempotentReplayed)) == "" {
			t.Errorf("a request that is sent again to PostgreSQL = %s %v, want %s", got, got.Header, want)
		}
		if got := s.Call(t, http.MethodPost, "/tokens", key, `{"type":"token","data":"later"}`); got.Status != http.StatusCreated {
			t.Errorf("a create on PostgreSQL = %s", got)
		}
	}
}

// unserved fails unless a server refuses the database.
func (v *vault) unserved(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	said := &output{}
	go func() { // one that is not refused is stopped when it is ready
		for ctx.Err() == nil && !readyLine.MatchString(said.String()) {
			waittest.Sometime(20 * time.Millisecond)
		}
		cancel()
	}()
	code := run(ctx, []string{"serve", "--addr", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "data"), "--kek-file", kekOf(v.data)}, nil, io.Discard, said)
	if code != 18 || !strings.Contains(said.String(), "a migration to this database was begun and is not complete: run 'tokenkeep migrate-store' again") {
		t.Fatalf("serve on a database that is not complete = %d %s, want 18", code, said)
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
	storetest.CheckOnly(t)
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
	killed := func(line string) {
		t.Helper()
		if !until(line, 0, sigkill) {
			t.Errorf("the migration was not killed at %q", line)
		}
		v.unserved(t)
	}
	killed("… reading log")
	// From here on the database takes its time, so that no migration is done
	// before it is killed.
	slow := "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(TG_ARGV[0]::float); RETURN NULL; END';"
	for table, seconds := range map[string]string{"tokens": "0.02", "token_terms": "0.02", "log": "0.02", "epoch_keys": "3"} {
		slow += "CREATE TRIGGER slowly AFTER INSERT ON tokenkeep." + table + " EXECUTE FUNCTION slowly(" + seconds + ");"
	}
	psql(slow)
	killed("… opening every sealed value")
	killed("… copying tenants")
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	for range rounds {
		n, err := execute(t, url, moved)
		if err != nil {
			t.Fatal(err)
		}
		if n == total {
			break
		}
		if at := n + 1 + rand.Int64N(total-n); !until("", at, sigkill) {
			t.Errorf("the migration was not killed at row %d of %d", at, total)
		}
		v.unserved(t)
	}
	until("… comparing tokens", 0, func(*exec.Cmd) {
		c.Kill()
		if err := c.Restart(); err != nil {
			t.Error(err)
		}
	})
	killed("… copying log:")
	killed("… comparing log")
	killed("… copying the keys that live an hour")
	psql("DROP FUNCTION slowly CASCADE")

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
