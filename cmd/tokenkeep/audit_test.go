package main

import (
	"database/sql"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/tokenkeep/tokenkeep/api"
)

// TestAChangedLogIsFound goes the operator's way: a checkpoint, a change behind
// the server's back, a verification.
func TestAChangedLogIsFound(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	p := start(t, "dev", "--addr", "127.0.0.1:0", "--data", data)
	var tenants []api.Tenant
	if err := json.Unmarshal([]byte(call(t, "tenant", "list", "--json", "--data", data).out), &tenants); err != nil || len(tenants) != 1 {
		t.Fatalf("tenants = %v, %v, want one", tenants, err)
	}
	tenant := tenants[0].ID
	checkpoint := call(t, "audit", "checkpoint", tenant, "--data", data)
	if checkpoint.code != 0 {
		t.Fatalf("audit checkpoint = %+v", checkpoint)
	}
	file := mustWrite(t, filepath.Join(t.TempDir(), "checkpoint.json"), checkpoint.out)
	if got := call(t, "audit", "verify", tenant, "--checkpoint", file, "--data", data); got.code != 0 {
		t.Fatalf("audit verify of an untouched log = %+v", got)
	}
	export := call(t, "audit", "export", tenant, "--data", data)
	lines := mustWrite(t, filepath.Join(t.TempDir(), "export.jsonl"), export.out)
	if got := call(t, "audit", "check-export", lines); got.code != 0 {
		t.Fatalf("audit check-export of an untouched export = %+v", got)
	}
	mustWrite(t, lines, strings.Replace(export.out, "Tenant created", "Tenant updated", 1))
	if got := call(t, "audit", "check-export", lines); got.code != 10 {
		t.Errorf("audit check-export of a changed export = %+v, want code 10", got)
	}

	p.end()
	db, err := sql.Open("sqlite", filepath.Join(data, "tokenkeep.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("UPDATE log SET message = 'Tenant updated' WHERE message = 'Tenant created'"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	start(t, "dev", "--addr", "127.0.0.1:0", "--data", data)
	got := call(t, "audit", "verify", tenant, "--checkpoint", file, "--data", data)
	if got.code != 10 || !strings.Contains(got.out, "changed: entry ") {
		t.Errorf("audit verify of a changed log = %+v, want code 10 and the entry", got)
	}
}
