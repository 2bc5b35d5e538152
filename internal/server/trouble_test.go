package server_test

import (
	"database/sql"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

func TestACallerIsAskedToComeBackWhileTheStoreIsAway(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{})
	tenant := k.Tenant(t)
	key := tenant.Application.Key
	page := "/elements/v1/" + k.Application(t, tenant.Tenant.ID, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}}).Key + "/card"
	if got := k.Call(t, "GET", "/tenants/self", key, ""); got.Status != http.StatusOK {
		t.Fatalf("before: %s", got)
	}
	if err := k.CloseStore(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/tenants/self", "/applications/key", "/permissions", page} {
		got := k.Call(t, "GET", path, key, "")
		if got.Status != http.StatusServiceUnavailable || got.Header.Get("Retry-After") != "5" {
			t.Errorf("GET %s = %s, Retry-After %q; want 503 and 5", path, got, got.Header.Get("Retry-After"))
		}
		got.CheckProblem(t)
	}
}

// A grant that was changed in the file is our failure: the caller gets nothing,
// and the operator hears of it.
func TestADamagedGrantIsReportedAndGrantsNothing(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{})
	tenant := k.Tenant(t)
	a := k.Application(t, tenant.Tenant.ID, api.CreateApplication{Type: "private", Permissions: []string{"token:create"}})
	if err := k.Stop(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(k.Data, "tokenkeep.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`UPDATE applications SET permissions = '["token:create","token:read"]' WHERE id = ?`, a.ID); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	again := keeptest.Start(t, keeptest.Options{Data: k.Data})
	for _, path := range []string{"/applications/key", "/permissions"} {
		got := again.Call(t, "GET", path, a.Key, "", "SVC-TRACE-ID", "find-me")
		want := `{"title":"Internal Server Error","status":500,"detail":"internal error; trace id find-me","code":"internal_error","trace_id":"find-me"}`
		if got.Status != http.StatusInternalServerError || got.Body != want {
			t.Errorf("GET %s = %s, want %s", path, got, want)
		}
	}
	if log := again.Log.String(); !strings.Contains(log, "a sealed value does not open: application.rules") || !strings.Contains(log, "find-me") {
		t.Errorf("the log does not tell of it:\n%s", log)
	}
	if got := again.Call(t, "GET", "/tenants/self", tenant.Application.Key, ""); got.Status != http.StatusOK {
		t.Errorf("another application's key = %s", got)
	}
}
