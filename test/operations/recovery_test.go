package operations_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// archived returns a setting of PostgreSQL as docs/operations.md has it, with
// this archive in place of the one there.
func archived(t *testing.T, name, archive string) string {
	t.Helper()
	_, value, _ := strings.Cut(command(t, name), "=")
	return strings.ReplaceAll(strings.Trim(strings.TrimSpace(value), "'"), "/mnt/archive", archive)
}

// TestARecoveryToAPointOpensEveryTokenOfBefore does what docs/operations.md
// says: a base backup, an archive of the log, and a recovery to a point behind
// the backup and before the end.
func TestARecoveryToAPointOpensEveryTokenOfBefore(t *testing.T) {
	storetest.CheckOnly(t)
	for name, c := range map[string]struct {
		target, point string // the setting, and what it is at a moment
		logged        bool   // short-lived keys are kept in the log
	}{
		"to a time":                         {"recovery_target_time", "clock_timestamp()", false},
		"to a place in the log":             {"recovery_target_lsn", "pg_current_wal_lsn()", false},
		"to a time, with logged epoch keys": {"recovery_target_time", "clock_timestamp()", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			archive, err := os.MkdirTemp("", "archive-") // the server must be able to write there
			if err == nil {
				err = os.Chmod(archive, 0o777)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(archive) })
			old := pgtest.Start(t, pgtest.Options{Settings: map[string]string{
				"archive_mode": archived(t, "archive_mode", archive), "archive_command": archived(t, "archive_command", archive),
			}})
			psql(t, old, "postgres", "CREATE DATABASE vault")
			kek := filepath.Join(t.TempDir(), "kek.json")
			if _, err := localkms.Generate(kek); err != nil {
				t.Fatal(err)
			}
			settings := map[string]string{"kek.file": kek, "store.logged_epoch_keys": fmt.Sprint(c.logged)}
			first := keeptest.Start(t, keeptest.Options{StoreURL: old.URL("vault"), Settings: settings})
			tenant := first.Tenant(t).Tenant.ID
			key := first.Application(t, tenant, api.CreateApplication{Type: "private", Rules: []api.Rule{
				{Container: "/", Transform: "reveal", Permissions: []string{"token:create", "token:read"}},
			}}).Key
			create := func(when string) {
				t.Helper()
				for n := range 10 {
					body := fmt.Sprintf(`{"id":"%s-%d","type":"card","data":{"number":"4242424242424242","cvc":"123"}}`, when, n)
					if answer := first.Call(t, http.MethodPost, "/tokens", key, body); answer.Status != http.StatusCreated {
						t.Fatalf("create = %s", answer)
					}
				}
			}
			create("in-the-base")
			base := old.Backup(t)
			create("in-the-log")
			point := psql(t, old, "vault", "SELECT "+c.point)
			create("too-late")
			last := psql(t, old, "vault", "SELECT pg_walfile_name(pg_switch_wal())")
			waittest.Until(t, "the log is archived", func() bool {
				return psql(t, old, "vault", "SELECT last_archived_wal >= '"+last+"' FROM pg_stat_archiver") == "t"
			})
			old.Kill()

			recovered := pgtest.Start(t, pgtest.Options{Base: base, Signal: "recovery.signal", Settings: map[string]string{
				"restore_command": archived(t, "restore_command", archive), c.target: point,
				"recovery_target_action": archived(t, "recovery_target_action", archive),
			}})
			waittest.Until(t, "the recovery ends", func() bool { return psql(t, recovered, "vault", "SELECT pg_is_in_recovery()") != "t" })
			if n := psql(t, recovered, "vault", "SELECT count(*) FROM tokenkeep.epoch_keys"); (n != "0") != c.logged {
				t.Errorf("the recovery brought %s short-lived keys along", n)
			}
			second := keeptest.Start(t, keeptest.Options{StoreURL: recovered.URL("vault"), Settings: settings})
			for when, want := range map[string]int{"in-the-base": http.StatusOK, "in-the-log": http.StatusOK, "too-late": http.StatusNotFound} {
				for n := range 10 {
					answer := second.Call(t, http.MethodGet, fmt.Sprintf("/tokens/%s-%d", when, n), key, "")
					opened := strings.Contains(answer.Body, `"4242424242424242"`)
					if answer.Status != want || opened != (want == http.StatusOK) || strings.Contains(answer.Body, `"123"`) != (opened && c.logged) {
						t.Fatalf("token %d %s = %s, want %d", n, when, answer, want)
					}
				}
			}
			for path, in := range map[string]any{"/store/check": nil, "/tenants/" + tenant + "/audit/verify": admin.VerifyLog{}} {
				last, err := second.Operator().Follow(t.Context(), http.MethodPost, path, in, func(admin.Progress) error { return nil })
				if err != nil || len(last.Found) > 0 || strings.Contains(string(last.Data), `"found":1`) {
					t.Errorf("%s of the recovered database = %+v, %v", path, last, err)
				}
			}
		})
	}
}
