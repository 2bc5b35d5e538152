package operations_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// command returns the one line of docs/operations.md that begins with a word.
func command(t *testing.T, word string) string {
	t.Helper()
	var found []string
	for line := range strings.Lines(file(t, "docs", "operations.md")) {
		if strings.HasPrefix(line, word+" ") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	if len(found) != 1 {
		t.Fatalf("docs/operations.md has %d lines with %s, want one", len(found), word)
	}
	return found[0]
}

// psql runs a statement as the superuser and returns what it printed.
func psql(t *testing.T, c *pgtest.Cluster, database, statement string) string {
	t.Helper()
	out, err := c.Command("psql", database, "-v", "ON_ERROR_STOP=1", "-Atc", statement).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", statement, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestADumpOfTheOwnerOpensEveryToken runs the commands of docs/operations.md as
// a role that owns the tables and is no superuser: row-level security is forced
// on it too.
func TestADumpOfTheOwnerOpensEveryToken(t *testing.T) {
	storetest.CheckOnly(t)
	c := pgtest.Start(t, pgtest.Options{NoSync: true})
	for _, statement := range []string{
		"CREATE ROLE tokenkeep LOGIN", command(t, "CREATE"), command(t, "GRANT"),
		"CREATE DATABASE vault OWNER tokenkeep", "CREATE DATABASE again OWNER tokenkeep",
	} {
		psql(t, c, "postgres", statement)
	}
	url := func(database string) string {
		return strings.Replace(c.URL(database), "user=postgres", "user=tokenkeep", 1)
	}

	first := keeptest.Start(t, keeptest.Options{StoreURL: url("vault")})
	tenant := first.Tenant(t).Tenant.ID
	first.Tenant(t) // of whom the dump must have rows too
	key := first.Application(t, tenant, api.CreateApplication{Type: "private", Rules: []api.Rule{
		{Container: "/", Transform: "reveal", Permissions: []string{"token:create", "token:read"}},
	}}).Key
	const cards = 20
	for n := range cards {
		body := fmt.Sprintf(`{"id":"card-%d","type":"card","data":{"number":"4242424242424242","cvc":"123"}}`, n)
		if answer := first.Call(t, http.MethodPost, "/tokens", key, body); answer.Status != http.StatusCreated {
			t.Fatalf("create = %s", answer)
		}
	}
	if n := psql(t, c, "vault", "SELECT count(*) FROM tokenkeep.epoch_keys"); n == "0" {
		t.Fatal("there are no short-lived keys that the dump could leave out")
	}
	err := first.Operator().Call(t.Context(), http.MethodPost, "/backup", admin.Backup{Folder: t.TempDir()}, nil)
	if err == nil || !strings.Contains(err.Error(), "its own tools") {
		t.Errorf("a backup through the socket = %v, want a refusal", err)
	}
	var status admin.Status
	if err := first.Operator().Call(t.Context(), http.MethodGet, "/status", nil, &status); err != nil || status.ClockOffsetMS == nil || max(*status.ClockOffsetMS, -*status.ClockOffsetMS) > 5000 {
		t.Errorf("the status of a server on PostgreSQL is %+v, %v: want an offset of its clock", status, err)
	}

	dir := t.TempDir()
	bin := filepath.Dir(c.Command("pg_dump", "vault").Path)
	for _, word := range []string{"pg_dump", "pg_restore"} {
		cmd := exec.Command("sh", "-c", command(t, word))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "OLD_URL="+url("vault"), "NEW_URL="+url("again"))
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("%s: %v: %s", word, err, out)
		}
	}
	if n := psql(t, c, "again", "SELECT count(*) FROM tokenkeep.epoch_keys"); n != "0" {
		t.Errorf("the dump brought %s short-lived keys along", n)
	}
	for _, table := range []string{"tenants", "tokens", "keysets", "log", "log_batches", "applications"} {
		count := "SELECT count(*) FROM tokenkeep." + table
		// The first server may have sealed a batch since.
		if was, is := psql(t, c, "vault", count), psql(t, c, "again", count); was != is && table != "log_batches" {
			t.Errorf("%s had %s rows, and the restored one has %s", table, was, is)
		}
	}
	kek, err := os.ReadFile(filepath.Join(first.Data, "dev-kek.json"))
	if err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	if err := os.Chmod(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "dev-kek.json"), kek, 0o600); err != nil {
		t.Fatal(err)
	}
	second := keeptest.Start(t, keeptest.Options{StoreURL: url("again"), Data: data})
	for n := range cards {
		answer := second.Call(t, http.MethodGet, fmt.Sprintf("/tokens/card-%d", n), key, "")
		if answer.Status != http.StatusOK || !strings.Contains(answer.Body, `"4242424242424242"`) || strings.Contains(answer.Body, "cvc") && strings.Contains(answer.Body, `"123"`) {
			t.Fatalf("token %d of the restored database = %s, want the number and no cvc", n, answer)
		}
	}
	nothing := func(admin.Progress) error { return nil }
	for path, in := range map[string]any{"/store/check": nil, "/tenants/" + tenant + "/audit/verify": admin.VerifyLog{}} {
		last, err := second.Operator().Follow(t.Context(), http.MethodPost, path, in, nothing)
		if err != nil || len(last.Found) > 0 || strings.Contains(string(last.Data), `"found":1`) {
			t.Errorf("%s of the restored database = %+v, %v", path, last, err)
		}
	}
}
