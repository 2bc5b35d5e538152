package server_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
)

// operator is a client of the admin socket in a data folder.
func operator(t *testing.T, data string) *http.Client {
	t.Helper()
	c := &http.Client{Transport: admin.Transport(data)}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func status(t *testing.T, data string) admin.Status {
	t.Helper()
	response, err := operator(t, data).Get("http://admin/status")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var s admin.Status
	if err := json.NewDecoder(response.Body).Decode(&s); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("GET /status = %d, %v", response.StatusCode, err)
	}
	return s
}

// check returns the lines of a check through the admin socket.
func check(t *testing.T, data string) []admin.Progress {
	t.Helper()
	response, err := operator(t, data).Post("http://admin/store/check", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var lines []admin.Progress
	for s := bufio.NewScanner(response.Body); s.Scan(); {
		var p admin.Progress
		if err := json.Unmarshal(s.Bytes(), &p); err != nil {
			t.Fatalf("line %q: %v", s.Text(), err)
		}
		lines = append(lines, p)
	}
	if len(lines) == 0 || !lines[len(lines)-1].Done {
		t.Fatalf("the check ended without a last line: %+v", lines)
	}
	return lines
}

func TestTheAdminSocketTellsHowTheServerIs(t *testing.T) {
	started := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	k := keeptest.Start(t, keeptest.Options{Now: func() time.Time { return started }})
	want := admin.Status{BaseURL: k.URL, Version: "test", StartedAt: started, Ready: true, SandboxLevel: "off"}
	if got := status(t, k.Data); !reflect.DeepEqual(got, want) {
		t.Errorf("status = %+v, want %+v", got, want)
	}
	for _, path := range []string{"/status", "/store/check"} {
		response, err := k.Client.Get(k.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusNotFound {
			t.Errorf("GET %s on the API = %d, want 404: it is the operator's alone", path, response.StatusCode)
		}
	}
}

func TestTheAdminSocketWorksInADeepFolder(t *testing.T) {
	data := filepath.Join(t.TempDir(), strings.Repeat("deep/", 40), "data")
	k := keeptest.Start(t, keeptest.Options{Data: data})
	if got := status(t, data); got.BaseURL != k.URL {
		t.Errorf("status tells %s, want %s", got.BaseURL, k.URL)
	}
	info, err := os.Lstat(filepath.Join(data, "admin.sock"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v; want mode 0600", info.Mode(), err)
	}
	if err := k.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(data, "admin.sock")); !os.IsNotExist(err) {
		t.Errorf("the socket after the stop: %v, want it gone", err)
	}
}

func TestNoServerIsAnErrorOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	k := keeptest.Start(t, keeptest.Options{Data: stale})
	if err := k.Stop(); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"no folder": filepath.Join(dir, "none"), "no folder, deep": filepath.Join(dir, strings.Repeat("deep/", 40)), "no server": stale,
	} {
		if _, err := operator(t, data).Get("http://admin/status"); err == nil || !strings.Contains(err.Error(), admin.ErrNoServer.Error()) {
			t.Errorf("%s: Get = %v, want %v", name, err, admin.ErrNoServer)
		}
	}
}

func TestACheckSaysHowFarItIsAndWhatItFound(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{})
	lines := check(t, k.Data)
	last := lines[len(lines)-1]
	if len(last.Found) != 0 || last.Error != "" {
		t.Errorf("the check of a sound store ended with %+v", last)
	}
	if len(lines) < 3 || slices.ContainsFunc(lines[:len(lines)-1], func(p admin.Progress) bool { return p.Doing == "" || p.Done }) {
		t.Errorf("the lines on the way are %+v, want what is being done", lines)
	}
	if err := k.Stop(); err != nil {
		t.Fatal(err)
	}

	damage(t, k.Data)
	again := keeptest.Start(t, keeptest.Options{Data: k.Data})
	lines = check(t, again.Data)
	if last := lines[len(lines)-1]; len(last.Found) == 0 || last.Error != "" {
		t.Errorf("the check of a damaged store ended with %+v, want what it found", last)
	}
}

// damage spoils the last page of a store that no server has open. It is the
// root of an index that nothing reads when a server starts or stops.
func damage(t *testing.T, data string) {
	t.Helper()
	path := filepath.Join(data, "tokenkeep.db")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		b[len(b)-4096+i] = 0xff
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestAStoreBehindAnotherIsBackedUp: what the server needs of a store is in the
// interface, so that one which stands in front of it changes nothing.
func TestAStoreBehindAnotherIsBackedUp(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{Store: func(inner store.Store) store.Store { return struct{ store.Store }{inner} }})
	folder := filepath.Join(t.TempDir(), "backup")
	last, err := k.Operator().Follow(t.Context(), http.MethodPost, "/backup", admin.Backup{Folder: folder}, func(admin.Progress) error { return nil })
	if err != nil || last.Error != "" {
		t.Fatalf("POST /backup = %+v, %v; want a backup", last, err)
	}
	if _, err := os.Stat(filepath.Join(folder, sqlite.BackupFile)); err != nil {
		t.Errorf("the backup has no database: %v", err)
	}
}
