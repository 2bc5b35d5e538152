package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/backup"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/server"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// kekOf is the key-encryption key of a developer's folder.
func kekOf(data string) string { return filepath.Join(data, "dev-kek.json") }

// restoreInto runs restore with the key of another folder.
func restoreInto(t *testing.T, from, data, kek string, more ...string) result {
	t.Helper()
	return call(t, append([]string{"restore", from, "--data", data, "--kek-file", kek}, more...)...)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, to, string(b))
}

// card makes a card whose token is id, and returns its status.
func (o *office) card(key, id string) int {
	return o.server.Call(o.t, http.MethodPost, "/tokens", key,
		fmt.Sprintf(`{"id":%q,"type":"card","data":{"number":"4242424242424242","expiration_month":12,"expiration_year":2040,"cvc":"123"}}`, id)).Status
}

// revealing makes an application that may do everything with tokens.
func (o *office) revealing() string {
	o.t.Helper()
	tenant := o.server.Tenant(o.t).Tenant.ID
	return o.server.Application(o.t, tenant, api.CreateApplication{Type: "private", Rules: []api.Rule{
		{Container: "/", Transform: "reveal", Permissions: []string{"token:create", "token:read"}},
	}}).Key
}

func TestABackupUnderLoadOpensEveryTokenOnAnEmptyFolder(t *testing.T) {
	storetest.Long(t)
	keeptest.OnFiles(t)
	o := openOffice(t)
	key := o.revealing()
	began := time.Now().Truncate(time.Second)
	const before = 60
	for n := range before {
		if status := o.card(key, fmt.Sprintf("before-%d", n)); status != http.StatusCreated {
			t.Fatalf("create = %d", status)
		}
	}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	var told [3]atomic.Int64 // what each client was told to be made
	for c := range told {
		clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if status := o.card(key, fmt.Sprintf("during-%d-%d", c, n)); status != http.StatusCreated {
					t.Errorf("create during the backup = %d", status)
					return
				}
				told[c].Add(1)
			}
		})
	}
	var acknowledged []string // before the backup began, by the clients that are at it
	waittest.Until(t, "the clients are at work", func() bool { return told[0].Load() > 5 && told[1].Load() > 5 && told[2].Load() > 5 })
	for c := range told {
		for n := range told[c].Load() {
			acknowledged = append(acknowledged, fmt.Sprintf("during-%d-%d", c, n))
		}
	}
	for n := range before {
		acknowledged = append(acknowledged, fmt.Sprintf("before-%d", n))
	}
	folder := filepath.Join(t.TempDir(), "deep", "monday")
	var m backup.Manifest
	o.read(&m, "backup", folder)
	close(stop)
	clients.Wait()
	if m.Rows["tokens"] < before || m.Release != "test" || len(m.KEKs) != 1 || !strings.HasPrefix(m.KEKs[0], "local-") || m.MadeAt.Before(began) {
		t.Errorf("the manifest is %+v", m)
	}
	if names := tree(t, folder); strings.Count(names, "\n") != 3 || strings.Contains(names, "epoch") || !strings.Contains(names, "tokenkeep.db -rw-------") {
		t.Errorf("the backup holds\n%s", names)
	}

	data := filepath.Join(t.TempDir(), "data")
	got := restoreInto(t, folder, data, kekOf(o.server.Data), "--verify", "--json")
	var restored server.Restored
	if err := json.Unmarshal([]byte(got.out), &restored); got.code != 0 || err != nil || restored.Verified == nil {
		t.Fatalf("restore = %+v", got)
	}
	if v := restored.Verified; v.Tenants != 1 || v.Values < 2*before || v.Failed != 0 || v.Logs != 1 || restored.Backup.File != m.File {
		t.Errorf("restore --verify --json gave %+v", v)
	}
	copyFile(t, kekOf(o.server.Data), kekOf(data))
	second := &office{t, keeptest.Start(t, keeptest.Options{Data: data})}
	for _, id := range acknowledged {
		answer := second.server.Call(t, http.MethodGet, "/tokens/"+id, key, "")
		var card struct {
			Data struct {
				Number string `json:"number"`
				CVC    string `json:"cvc"`
			} `json:"data"`
		}
		answer.Into(t, http.StatusOK, &card)
		if card.Data.Number != "4242424242424242" || card.Data.CVC != "" {
			t.Fatalf("token %s of the restored store has the number %q and the cvc %q, want the number alone", id, card.Data.Number, card.Data.CVC)
		}
	}
	var list struct {
		Pagination api.Pagination `json:"pagination"`
	}
	second.server.Call(t, http.MethodGet, "/tokens?size=1", key, "").Into(t, http.StatusOK, &list)
	if list.Pagination.TotalItems != m.Rows["tokens"] {
		t.Errorf("the restored store lists %d tokens, and the manifest says %d", list.Pagination.TotalItems, m.Rows["tokens"])
	}
	if status := second.card(key, "afterwards"); status != http.StatusCreated {
		t.Errorf("a create on the restored store = %d", status)
	}
	if out := second.done("store", "check"); !strings.Contains(out, "The store is sound.") {
		t.Errorf("store check printed %s", out)
	}
}

func TestABackupTellsWhatItDid(t *testing.T) {
	storetest.Long(t)
	keeptest.OnFiles(t)
	o := openOffice(t)
	o.server.Tenant(t)
	folder := filepath.Join(t.TempDir(), "backup")
	got := o.operate("backup", folder)
	for _, want := range []string{`tenants +1`, `key-encryption keys +local-[0-9a-f]{8}`, `sha256 +[0-9a-f]{64}`, `The backup is whole\..*`} {
		wantLine(t, got.out, want)
	}
	if got.code != 0 || !strings.Contains(got.errOut, "MB") {
		t.Errorf("backup = %d and told %q", got.code, got.errOut)
	}
	if got := o.operate("backup", folder); got.code != 15 || !strings.Contains(got.errOut, "not empty") {
		t.Errorf("a backup over a backup = %+v, want 15", got)
	}
	if got := o.operate("backup", "/proc/nobody/writes/here"); got.code != 1 || !strings.Contains(got.errOut, "its user can write to") || strings.Contains(got.errOut, "nobody") {
		t.Errorf("a backup into a folder that cannot be = %+v", got)
	}
	if answer := o.server.Call(t, http.MethodGet, "/metrics", "", ""); !strings.Contains(answer.Body, "tokenkeep_backup_last_success_timestamp_seconds 1.") {
		t.Error("the metrics do not tell of the backup")
	}
}

// whole makes a backup of a server with a tenant and tokens, and returns its
// folder and the file of its key-encryption key.
func whole(t *testing.T) (folder, kek string) {
	t.Helper()
	o := openOffice(t)
	key := o.revealing()
	for n := range 3 {
		o.card(key, fmt.Sprintf("card-%d", n))
	}
	o.done("audit", "checkpoint", o.tenants()[0].ID) // seals what there is
	folder = filepath.Join(t.TempDir(), "backup")
	o.done("backup", folder)
	return folder, kekOf(o.server.Data)
}

func (o *office) tenants() (list []api.Tenant) {
	o.read(&list, "tenant", "list")
	return list
}

// edit runs a statement in the database of a backup.
func edit(t *testing.T, folder, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(folder, "tokenkeep.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(statement); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// describeAnew makes the manifest fit the file, as somebody would who tampers.
func describeAnew(t *testing.T, folder string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(folder, backup.ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	var m backup.Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(folder, backup.ManifestFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Finish(t.Context(), folder, m.File.Name, m); err != nil {
		t.Fatal(err)
	}
}

func TestARestoreOfWhatIsNotRightRestoresNothing(t *testing.T) {
	storetest.Long(t)
	keeptest.OnFiles(t)
	good, kek := whole(t)
	database := func(dir string) string { return filepath.Join(dir, "tokenkeep.db") }
	manifest := func(dir string) string { return filepath.Join(dir, backup.ManifestFile) }
	remove := func(path string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	replace := func(path, old, with string) {
		b, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(b), old) {
			t.Fatalf("%s: %v, and no %s in it", filepath.Base(path), err, old)
		}
		mustWrite(t, path, strings.Replace(string(b), old, with, 1))
	}
	for name, test := range map[string]struct {
		spoil func(dir string)
		kek   string
		flag  string
		code  int
		want  string
	}{
		"another key":                {nil, keyFile(t), "--verify", 8, "not the key-encryption key of this installation"},
		"no manifest":                {func(dir string) { remove(manifest(dir)) }, kek, "--verify", 14, "not a whole backup: it has no manifest"},
		"no database":                {func(dir string) { remove(database(dir)) }, kek, "--verify", 14, "not a whole backup: it has a manifest and no database"},
		"half a database":            {func(dir string) { _ = os.Truncate(database(dir), 8192) }, kek, "--verify", 14, "not a whole backup: its database has 8192 bytes"},
		"half a manifest":            {func(dir string) { _ = os.Truncate(manifest(dir), 50) }, kek, "--verify", 14, "its manifest cannot be read"},
		"a manifest that leads away": {func(dir string) { replace(manifest(dir), `"tokenkeep.db"`, `"../tokenkeep.db"`) }, kek, "--verify", 14, "its manifest cannot be read"},
		"a changed bit":              {func(dir string) { spoil(t, database(dir), 9000, 0xAA) }, kek, "--verify", 6, "the backup is damaged"},
		"a newer form":               {func(dir string) { replace(manifest(dir), `"format": 1`, `"format": 2`) }, kek, "--verify", 5, "a newer release made this backup"},
		"a newer schema": {func(dir string) {
			spoil(t, database(dir), 60, 0, 0, 0x7f, 0xff)
			describeAnew(t, dir)
		}, kek, "--verify", 5, "written by a newer release"},
		"a sealed value that was moved": {func(dir string) {
			edit(t, dir, "UPDATE tokens SET data = (SELECT data FROM tokens WHERE id = 'card-1') WHERE id = 'card-0'")
			describeAnew(t, dir)
		}, kek, "--verify", 6, "sealed values in the backup do not open; nothing was restored"},
		"a counter that is wrong": {func(dir string) {
			edit(t, dir, "UPDATE token_groups SET tokens = tokens + 1")
			describeAnew(t, dir)
		}, kek, "--verify", 6, "the check of the store in the backup found 2 faults"},
		"a log entry that was changed": {func(dir string) {
			edit(t, dir, "UPDATE log SET message = 'Tenant updated' WHERE message = 'Tenant created'")
			describeAnew(t, dir)
		}, kek, "--verify", 10, "in the backup; nothing was restored"},
		"a keyset of another KEK": {func(dir string) {
			edit(t, dir, "UPDATE keysets SET kek = 'local-00000000'")
			describeAnew(t, dir)
		}, kek, "", 8, "does not open the keys of a tenant"},
	} {
		t.Run(name, func(t *testing.T) {
			folder, data := t.TempDir(), filepath.Join(t.TempDir(), "data")
			copyFile(t, database(good), database(folder))
			copyFile(t, manifest(good), manifest(folder))
			if test.spoil != nil {
				test.spoil(folder)
			}
			args := []string{}
			if test.flag != "" {
				args = append(args, test.flag)
			}
			got := restoreInto(t, folder, data, test.kek, args...)
			lines := strings.Split(strings.TrimSpace(got.err), "\n")
			if last := lines[len(lines)-1]; got.code != test.code || !strings.Contains(last, test.want) || got.out != "" {
				t.Errorf("restore = %d %q, want %d with %q", got.code, got.err, test.code, test.want)
			}
			if strings.Contains(got.err, folder) || strings.Contains(got.err, data) {
				t.Errorf("the sentence repeats a path: %q", got.err)
			}
			if _, err := os.Stat(data); !os.IsNotExist(err) {
				t.Errorf("something was left in the data folder:\n%s", tree(t, data))
			}
		})
	}
}

func TestARestoreTakesAnEmptyFolderAlone(t *testing.T) {
	keeptest.OnFiles(t)
	folder, kek := whole(t)
	for name, test := range map[string]struct {
		holds string // a file in the folder
		code  int
	}{
		"somebody's file":          {"notes.txt", 15},
		"a database":               {"tokenkeep.db", 15},
		"nothing":                  {"", 0},
		"what a file system makes": {"lost+found", 0},
		"what a killed one left":   {".restoring/tokenkeep.db", 0},
	} {
		t.Run(name, func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "data")
			if err := os.MkdirAll(filepath.Join(data, filepath.Dir(test.holds)), 0o700); err != nil {
				t.Fatal(err)
			}
			if test.holds != "" {
				mustWrite(t, filepath.Join(data, test.holds), "here first")
			}
			before := tree(t, data)
			got := restoreInto(t, folder, data, kek)
			if got.code != test.code {
				t.Errorf("restore = %+v, want %d", got, test.code)
			}
			if after := tree(t, data); test.code != 0 && after != before {
				t.Errorf("files changed from\n%s\nto\n%s", before, after)
			}
			if _, err := os.Stat(filepath.Join(data, ".restoring")); err == nil {
				t.Error("the folder that it worked in is still there")
			}
		})
	}
	o := openOffice(t)
	if got := restoreInto(t, folder, o.server.Data, kek); got.code != 15 {
		t.Errorf("restore over a running server = %+v, want 15", got)
	}
	t.Setenv("TOKENKEEP_STORE_URL", "postgres:///nowhere")
	if got := restoreInto(t, folder, filepath.Join(t.TempDir(), "data"), kek); got.code != 1 || !strings.Contains(got.err, "PostgreSQL is restored with its own tools") {
		t.Errorf("restore with a database configured = %+v", got)
	}
}

// TestTheCommandsOfThePageBackUpAndRestore runs the lines of docs/operations.md
// as an operator does: a backup, a lost folder, a restore, a start.
func TestTheCommandsOfThePageBackUpAndRestore(t *testing.T) {
	storetest.Long(t)
	text, err := os.ReadFile(page("operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	config := mustWrite(t, filepath.Join(dir, "tokenkeep.yaml"), "addr: 127.0.0.1:0\ndata: "+data+"\nkek.file: "+keyFile(t)+"\n")
	places := strings.NewReplacer("/var/backups/tokenkeep", filepath.Join(dir, "backups"), "/var/lib/tokenkeep", data, "/etc/tokenkeep/tokenkeep.yaml", config)
	follow := func(word string) {
		t.Helper()
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, "tokenkeep "+word+" "); ok {
				args := append([]string{word}, strings.Fields(places.Replace(rest))...)
				if got := call(t, args...); got.code != 0 {
					t.Fatalf("tokenkeep %s = %+v", word, got)
				}
				return
			}
		}
		t.Fatalf("docs/operations.md has no line with tokenkeep %s", word)
	}
	p := start(t, "serve", "--config", config)
	if got := call(t, "tenant", "create", "acme", "--data", data); got.code != 0 {
		t.Fatalf("tenant create = %+v", got)
	}
	follow("backup")
	p.end()
	if err := os.Rename(data, data+".lost"); err != nil {
		t.Fatal(err)
	}
	follow("restore")
	start(t, "serve", "--config", config)
	if got := call(t, "tenant", "list", "--data", data); got.code != 0 || !strings.Contains(got.out, "acme") {
		t.Errorf("after the restore: %+v", got)
	}
}
