package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

// office is where an operator sits: a running server and the commands.
type office struct {
	t      *testing.T
	server *keeptest.Server
}

func openOffice(t *testing.T) *office {
	t.Helper()
	return &office{t, keeptest.Start(t, keeptest.Options{KeyCache: 10 * time.Millisecond})}
}

// outcome is what a command left behind.
type outcome struct {
	code        int
	out, errOut string
}

// operate runs a command on the server's data folder.
func (o *office) operate(args ...string) outcome {
	o.t.Helper()
	var out, errOut bytes.Buffer
	code := run(o.t.Context(), append(args, "--data", o.server.Data), strings.NewReader(""), &out, &errOut)
	return outcome{code, out.String(), errOut.String()}
}

// done runs a command that must succeed and returns what it printed.
func (o *office) done(args ...string) string {
	o.t.Helper()
	got := o.operate(args...)
	if got.code != 0 {
		o.t.Fatalf("tokenkeep %s = %d: %s", strings.Join(args, " "), got.code, got.errOut)
	}
	return got.out
}

// read runs a command with --json and reads what it printed.
func (o *office) read(v any, args ...string) {
	o.t.Helper()
	out := o.done(append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), v); err != nil {
		o.t.Fatalf("tokenkeep %s --json printed %s: %v", strings.Join(args, " "), out, err)
	}
}

// opens tells whether a key opens anything.
func (o *office) opens(key string) bool {
	o.t.Helper()
	return key != "" && o.server.Call(o.t, "GET", "/applications/key", key, "").Status == 200
}

var anyKey = regexp.MustCompile(`key_test_(pub|pvt|mgt)_[1-9A-HJ-NP-Za-km-z]{50}`)

func TestTenantsFromTheCommandLine(t *testing.T) {
	o := openOffice(t)
	out := o.done("tenant", "create", "Acme & Söhne")
	key := anyKey.FindString(out)
	if !o.opens(key) || !strings.Contains(out, "Acme & Söhne") || !strings.Contains(out, "shown this once") {
		t.Errorf("tenant create printed\n%s", strings.ReplaceAll(out, key, "…"))
	}
	var second api.CreatedTenant
	o.read(&second, "tenant", "create", "second")
	if second.Tenant.Name != "second" || second.Application.Type != "management" || !o.opens(second.Application.Key) {
		t.Errorf("tenant create --json gave tenant %+v", second.Tenant)
	}
	var list []api.Tenant
	o.read(&list, "tenant", "list")
	if len(list) != 2 {
		t.Errorf("tenant list --json gave %+v", list)
	}
	table := o.done("tenant", "list")
	if lines := strings.Split(strings.TrimSpace(table), "\n"); len(lines) != 3 || !strings.HasPrefix(lines[0], "TENANT") ||
		!strings.Contains(table, "Acme & Söhne") || !strings.Contains(table, second.Tenant.ID) || anyKey.MatchString(table) {
		t.Errorf("tenant list printed\n%s", table)
	}

	if got := o.operate("tenant", "delete", second.Tenant.ID); got.code != 2 || !strings.Contains(got.errOut, "--yes") || !o.opens(second.Application.Key) {
		t.Errorf("tenant delete without --yes = %+v, and the key opens: %t", got, o.opens(second.Application.Key))
	}
	if out := o.done("tenant", "delete", strings.ToUpper(second.Tenant.ID), "--yes"); !strings.Contains(out, "destroyed") || o.opens(second.Application.Key) {
		t.Errorf("tenant delete printed %s, and the key opens: %t", out, o.opens(second.Application.Key))
	}
	o.read(&list, "tenant", "list")
	if len(list) != 1 || list[0].ID == second.Tenant.ID || !o.opens(key) {
		t.Errorf("after the deletion: %+v", list)
	}
	if out := o.done("audit", "verify", second.Tenant.ID); !strings.Contains(out, "are as they were sealed") {
		t.Errorf("audit verify of the deleted tenant printed %s", out)
	}
}

func TestApplicationsFromTheCommandLine(t *testing.T) {
	o := openOffice(t)
	tenant := o.server.Tenant(t).Tenant.ID
	rules := filepath.Join(t.TempDir(), "rules.json")
	if err := os.WriteFile(rules, []byte(`[{"container":"/pci/","transform":"mask","permissions":["token:read"]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	var made api.Application
	o.read(&made, "application", "create", "checkout", "--tenant", tenant, "--permission", "token:create", "--permission", "token:use", "--rules", rules)
	if made.Name != "checkout" || made.Type != "private" || len(made.Permissions) != 2 || len(made.Rules) != 1 || !o.opens(made.Key) {
		t.Errorf("application create --json gave %s %s %v %v", made.Name, made.Type, made.Permissions, made.Rules)
	}
	out := o.done("application", "create", "web", "--tenant", tenant, "--type", "public", "--permission", "token:create")
	if !o.opens(anyKey.FindString(out)) || !strings.Contains(out, "shown this once") || !strings.Contains(out, "public") {
		t.Errorf("application create printed\n%s", anyKey.ReplaceAllString(out, "…"))
	}
	table := o.done("application", "list", "--tenant", tenant)
	if lines := strings.Split(strings.TrimSpace(table), "\n"); len(lines) != 4 || !strings.HasPrefix(lines[0], "APPLICATION") || anyKey.MatchString(table) {
		t.Errorf("application list printed\n%s", table)
	}
	var list []api.Application
	o.read(&list, "application", "list", "--tenant", tenant)
	if len(list) != 3 || list[0].Name != "web" || list[0].Key != "" || list[1].Key != "" {
		t.Errorf("application list --json gave %d applications", len(list))
	}

	var more api.Key
	o.read(&more, "application", "rotate-key", made.ID, "--tenant", tenant, "--keep-old")
	if !o.opens(made.Key) || !o.opens(more.Key) {
		t.Error("after rotate-key --keep-old not both keys open")
	}
	table = o.done("application", "keys", made.ID, "--tenant", tenant)
	if lines := strings.Split(strings.TrimSpace(table), "\n"); len(lines) != 3 || !strings.Contains(table, more.Prefix+"…") || anyKey.MatchString(table) {
		t.Errorf("application keys printed\n%s", table)
	}
	o.done("application", "revoke-key", made.ID, more.ID, "--tenant", tenant)
	o.done("application", "revoke-key", made.ID, more.ID, "--tenant", tenant) // gone already
	if o.opens(more.Key) || !o.opens(made.Key) {
		t.Error("after revoke-key not exactly the other key opens")
	}
	out = o.done("application", "rotate-key", made.ID, "--tenant", tenant)
	if fresh := anyKey.FindString(out); o.opens(made.Key) || !o.opens(fresh) {
		t.Error("after rotate-key not exactly the new key opens")
	}
	out = o.done("application", "rotate-key", made.ID, "--tenant", tenant, "--keep-old")
	if !o.opens(anyKey.FindString(out)) || !strings.Contains(out, "shown this once") {
		t.Errorf("rotate-key --keep-old printed\n%s", anyKey.ReplaceAllString(out, "…"))
	}
}

func TestApplicationListReadsEveryPage(t *testing.T) {
	o := openOffice(t)
	tenant := o.server.Tenant(t).Tenant.ID
	without := false
	for range 100 {
		o.server.Application(t, tenant, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}, CreateKey: &without})
	}
	var list []api.Application
	o.read(&list, "application", "list", "--tenant", tenant, "--limit", "0")
	if got := o.operate("application", "list", "--tenant", tenant); strings.Count(got.out, "\n") != 101 || got.errOut != "… there are more; --limit 0 lists all\n" {
		t.Errorf("application list printed %d lines and %q", strings.Count(got.out, "\n"), got.errOut)
	}
	seen := map[string]bool{}
	for _, a := range list {
		seen[a.ID] = true
	}
	if len(seen) != 101 {
		t.Errorf("the list has %d applications, want 101", len(seen))
	}
}

func TestKeysFromTheCommandLine(t *testing.T) {
	o := openOffice(t)
	tenant := o.server.Tenant(t)
	var before, after admin.KeyStatus
	o.read(&before, "key", "status")
	if len(before.KEKs) != 1 || before.Primary != before.KEKs[0] || len(before.Tenants) != 1 || len(before.Tenants[0].Keys) != 1 || before.Tenants[0].Keys[0].Values != -1 {
		t.Fatalf("key status --json gave %+v", before)
	}
	if got := o.operate("key", "drop-kek", before.Primary); got.code != 1 || !strings.Contains(got.errOut, "still in use") {
		t.Errorf("key drop-kek of the only one = %+v", got)
	}
	if got := o.operate("key", "rotate-kek"); got.code != 0 || !strings.Contains(got.out, "wrapped with the new key") || !strings.Contains(got.errOut, "… ") {
		t.Errorf("key rotate-kek = %+v", got)
	}
	if got := o.operate("key", "rotate-tenant", strings.ToUpper(tenant.Tenant.ID)); got.code != 0 || !strings.Contains(got.out, "the old one is destroyed") || !strings.Contains(got.errOut, "resealing") {
		t.Errorf("key rotate-tenant = %+v", got)
	}
	o.read(&after, "key", "status")
	if len(after.KEKs) != 2 || after.Primary == before.Primary || after.Tenants[0].KEKs[0] != after.Primary || after.Tenants[0].Rotation != "retired" ||
		len(after.Tenants[0].Keys) != 1 || after.Tenants[0].Keys[0].ID == before.Tenants[0].Keys[0].ID {
		t.Errorf("key status --json gave %+v, was %+v", after, before)
	}
	table := o.done("key", "status")
	if !strings.Contains(table, after.Primary) || !strings.Contains(table, after.Tenants[0].Keys[0].ID) || !strings.Contains(table, "retired") {
		t.Errorf("key status printed\n%s", table)
	}
	o.done("key", "drop-kek", before.Primary)
	o.read(&after, "key", "status")
	if len(after.KEKs) != 1 || !o.opens(tenant.Application.Key) {
		t.Errorf("after drop-kek: %+v", after)
	}

	path := filepath.Join(t.TempDir(), "kek.json")
	if got := o.operateWithoutData("key", "create", path); got.code != 0 || !strings.Contains(got.out, "local-") {
		t.Errorf("key create = %+v", got)
	}
	if got := o.operateWithoutData("key", "create", path); got.code == 0 || strings.Contains(got.errOut, path) {
		t.Errorf("a second key create = %+v", got)
	}
}

func (o *office) operateWithoutData(args ...string) outcome {
	o.t.Helper()
	var out, errOut bytes.Buffer
	code := run(o.t.Context(), args, strings.NewReader(""), &out, &errOut)
	return outcome{code, out.String(), errOut.String()}
}

func TestTheLogFromTheCommandLine(t *testing.T) {
	o := openOffice(t)
	tenant := o.server.Tenant(t)
	id, dir := tenant.Tenant.ID, t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	checkpoint := write("checkpoint.json", o.done("audit", "checkpoint", id))
	for range 3 {
		o.opens(tenant.Application.Key)
	}
	o.done("audit", "checkpoint", id)
	var v audit.Verification
	o.read(&v, "audit", "verify", id)
	if v.Entries != 5 || v.Found != 0 || v.Batches < 2 { // the server seals by itself, too
		t.Errorf("audit verify --json gave %+v", v)
	}
	sealed := fmt.Sprintf("5 entries in %d batches", v.Batches)
	if out := o.done("audit", "verify", id, "--checkpoint", checkpoint); !strings.Contains(out, sealed+" are as they were sealed") || !strings.Contains(out, "0 entries wait") {
		t.Errorf("audit verify printed %s", out)
	}
	export := write("export.ndjson", o.done("audit", "export", id))
	if got := o.operateWithoutData("audit", "check-export", export); got.code != 0 || !strings.Contains(got.out, sealed+" verify") {
		t.Errorf("audit check-export = %+v", got)
	}
	b, err := os.ReadFile(export)
	if err != nil {
		t.Fatal(err)
	}
	changed := write("changed.ndjson", strings.Replace(string(b), "Application retrieved", "Application deleted", 1))
	if got := o.operateWithoutData("audit", "check-export", changed); got.code != 10 || !strings.Contains(got.out, "changed") {
		t.Errorf("audit check-export of a changed export = %+v", got)
	}
	if out := o.done("audit", "export", id, "--before", "2000-01-01T00:00:00Z"); strings.Contains(out, "Application retrieved") {
		t.Errorf("audit export of nothing printed %s", out)
	}
	if out := o.done("audit", "retain", id, "--keep", "24h"); !strings.Contains(out, "Dropped 0 entries") {
		t.Errorf("audit retain printed %s", out)
	}

	if err := o.server.Stop(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(o.server.Data, "tokenkeep.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("UPDATE log SET operation = 'delete' WHERE operation = 'read'"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	again := &office{t, keeptest.Start(t, keeptest.Options{Data: o.server.Data})}
	if got := again.operate("audit", "verify", id); got.code != 10 || !strings.Contains(got.out, "changed: entry ") || !strings.Contains(got.errOut, "the log is not what was sealed") {
		t.Errorf("audit verify of a changed log = %+v", got)
	}
	if got := again.operate("audit", "verify", id, "--json"); got.code != 10 || !json.Valid([]byte(got.out)) {
		t.Errorf("audit verify --json of a changed log = %+v", got)
	}
}

// What is wrong is told in one sentence, with the code of its kind, and
// without what was typed: it may have been a key.
func TestOperatorsMistakesAreToldInOneSentence(t *testing.T) {
	o := openOffice(t)
	made := o.server.Tenant(t)
	tenant, application, key := made.Tenant.ID, made.Application.ID, made.Application.Key
	const card, nothing = "4242424242424242", "b7f1d3a0-0000-4000-8000-000000000001"
	bad := filepath.Join(t.TempDir(), key)
	if err := os.WriteFile(bad, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"an empty name":         {[]string{"tenant", "create", ""}, 1, "name must have 1 to 200 characters"},
		"a long name":           {[]string{"tenant", "create", strings.Repeat(key, 5)}, 1, "name must have 1 to 200 characters"},
		"a control character":   {[]string{"tenant", "create", key + "\n"}, 1, "name must not hold control characters"},
		"no name":               {[]string{"tenant", "create"}, 2, "accepts 1 arg(s), received 0"},
		"a key too much":        {[]string{"tenant", "create", "x", key}, 2, "accepts 1 arg(s), received 2"},
		"an unknown command":    {[]string{"tenant", key}, 2, ""},
		"an unknown flag":       {[]string{"tenant", "list", "--" + key}, 2, "unknown flag; 'tokenkeep tenant list --help' lists the flags"},
		"delete without --yes":  {[]string{"tenant", "delete", key}, 2, "this destroys everything that the tenant holds: add --yes to do it"},
		"delete a key":          {[]string{"tenant", "delete", key, "--yes"}, 1, errTenantName.Error()},
		"delete nothing":        {[]string{"tenant", "delete", nothing, "--yes"}, 1, "no such tenant"},
		"delete dots":           {[]string{"tenant", "delete", "..", "--yes"}, 1, errTenantName.Error()},
		"delete a path":         {[]string{"tenant", "delete", "../status", "--yes"}, 1, errTenantName.Error()},
		"no tenant":             {[]string{"application", "list", "--tenant", ""}, 2, errNoTenantID.Error()},
		"a key as a tenant":     {[]string{"application", "list", "--tenant", key}, 1, errTenantName.Error()},
		"nothing as a tenant":   {[]string{"application", "create", "x", "--permission", "token:use", "--tenant", nothing}, 1, "no such tenant"},
		"a key as a type":       {[]string{"application", "create", "x", "--tenant", tenant, "--type", key}, 1, "type must be public, private or management"},
		"a key as a permission": {[]string{"application", "create", "x", "--tenant", tenant, "--permission", key}, 1, "permissions unknown permission; GET /permissions lists them"},
		"no permissions":        {[]string{"application", "create", "x", "--tenant", tenant}, 1, "permissions or rules are required"},
		"several mistakes":      {[]string{"application", "create", "", "--tenant", tenant, "--permission", key}, 1, "name must have 1 to 200 characters"},
		"a file of no rules":    {[]string{"application", "create", "x", "--tenant", tenant, "--rules", bad}, 2, "the file given with --rules is not a JSON list of rules"},
		"no file of rules":      {[]string{"application", "create", "x", "--tenant", tenant, "--rules", bad + key}, 2, "the file with the rules cannot be read"},
		"keys of a card number": {[]string{"application", "keys", card, "--tenant", tenant}, 1, "no such application"},
		"rotate a key's key":    {[]string{"application", "rotate-key", key, "--tenant", tenant}, 1, "no such application"},
		"drop a key":            {[]string{"key", "drop-kek", key}, 1, "there is no such key-encryption key"},
		"rotate a key":          {[]string{"key", "rotate-tenant", key}, 1, errTenantName.Error()},
		"rotate nothing":        {[]string{"key", "rotate-tenant", nothing}, 1, "no such tenant"},
		"verify a key":          {[]string{"audit", "verify", key}, 1, errTenantName.Error()},
		"verify nothing":        {[]string{"audit", "verify", nothing}, 1, "no such tenant"},
		"no checkpoint":         {[]string{"audit", "verify", tenant, "--checkpoint", bad}, 2, "the file given with --checkpoint is not a checkpoint"},
		"no instant":            {[]string{"audit", "export", tenant, "--from", key}, 2, "--from and --before take an instant such as 2026-01-31T00:00:00Z, or a day such as 2026-01-31"},
		"a short retention":     {[]string{"audit", "retain", tenant, "--keep", "1h"}, 1, "keep must be a duration of at least 24h"},
		"a key as a retention":  {[]string{"audit", "retain", tenant, "--keep", key}, 1, "keep must be a duration of at least 24h"},
		"checkpoint of nothing": {[]string{"audit", "checkpoint", nothing}, 1, "no such tenant"},
		"export of nothing":     {[]string{"audit", "export", nothing}, 1, "no such tenant"},
		"retain of nothing":     {[]string{"audit", "retain", nothing, "--keep", "24h"}, 1, "no such tenant"},
		"checkpoint of a key":   {[]string{"audit", "checkpoint", key}, 1, errTenantName.Error()},
		"export of a key":       {[]string{"audit", "export", key}, 1, errTenantName.Error()},
		"four keys":             {[]string{"application", "rotate-key", application, "--keep-old", "--tenant", tenant}, 1, "the application has as many keys as it may have: delete one first"},
	} {
		if name == "four keys" {
			for range 2 {
				o.done("application", "rotate-key", application, "--keep-old", "--tenant", tenant)
			}
		}
		got := o.operate(test.args...)
		for progress, rest, ok := strings.Cut(got.errOut, "\n"); ok && strings.HasPrefix(progress, "… "); progress, rest, ok = strings.Cut(got.errOut, "\n") {
			got.errOut = rest
		}
		if got.code != test.code || test.want != "" && got.errOut != "tokenkeep: "+test.want+"\n" {
			t.Errorf("%s = %d %q, want %d %q", name, got.code, got.errOut, test.code, test.want)
		}
		if strings.Count(got.errOut, "\n") != 1 || got.out != "" {
			t.Errorf("%s printed %q and %q, want one line of error", name, got.out, got.errOut)
		}
		if strings.Contains(got.out+got.errOut, "key_test") || strings.Contains(got.out+got.errOut, "4242") {
			t.Errorf("%s repeats what was typed: %q", name, got.errOut)
		}
	}
	if strings.Contains(o.server.Log.String(), key) {
		t.Error("the server's log holds a key")
	}
	if err := o.server.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"tenant", "list"}, {"application", "list", "--tenant", tenant}, {"key", "status"}, {"audit", "verify", tenant}} {
		if got := o.operate(args...); got.code != 9 || got.errOut != "tokenkeep: "+admin.ErrNoServer.Error()+"\n" {
			t.Errorf("%v without a server = %d %q", args, got.code, got.errOut)
		}
	}
}

// TestAKeyThatWasAddedToTheTextIsTheOneToRotateTo has no file that the server
// could change: the operator makes the key, and the server takes it.
func TestAKeyThatWasAddedToTheTextIsTheOneToRotateTo(t *testing.T) {
	path, data := keyFile(t), filepath.Join(t.TempDir(), "data")
	serve := func() *process {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("TOKENKEEP_KEK_VALUE", string(text))
		return start(t, "serve", "--addr", "127.0.0.1:0", "--data", data, "--drain-delay", "0s")
	}
	p := serve()
	if got := call(t, "tenant", "create", "acme", "--data", data); got.code != 0 {
		t.Fatalf("tenant create = %+v", got)
	}
	p.end()
	got := call(t, "key", "add", path)
	added := regexp.MustCompile(`local-[0-9a-f]{8}`).FindString(got.out)
	if got.code != 0 || added == "" {
		t.Fatalf("key add = %+v", got)
	}
	if got := call(t, "key", "add", path+".none"); got.code == 0 || strings.Contains(got.err, path) {
		t.Errorf("key add to no file = %+v", got)
	}
	serve()
	if got := call(t, "key", "rotate-kek", "--data", data); got.code != 0 || !strings.Contains(got.err, "going on with key-encryption key "+added) {
		t.Fatalf("rotate-kek = %+v, want it to take %s", got, added)
	}
	var status admin.KeyStatus
	if got := call(t, "key", "status", "--json", "--data", data); json.Unmarshal([]byte(got.out), &status) != nil || status.Primary != added ||
		len(status.Tenants) != 1 || !slices.Equal(status.Tenants[0].KEKs, []string{added}) {
		t.Errorf("key status = %+v, want everything wrapped by %s", got, added)
	}
}
