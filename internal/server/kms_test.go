package server_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/kmstest"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/keyring/transit/transittest"
	"github.com/tokenkeep/tokenkeep/internal/server"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// vaultKey returns the URI of a key of a transit engine.
func vaultKey(t *testing.T, s *transittest.Server, key string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(transittest.RootToken), 0o600); err != nil {
		t.Fatal(err)
	}
	return s.URI(key, "auth=token&token_file="+file)
}

// filled is an installation with a tenant and one token.
type filled struct {
	data, key, id string
}

func fill(t *testing.T, k *keeptest.Server) (f filled) {
	t.Helper()
	tenant := k.Tenant(t)
	f.data = k.Data
	f.key = k.Application(t, tenant.Tenant.ID, api.CreateApplication{
		Type: "private", Permissions: []string{"token:create", "token:read"}, Rules: []api.Rule{{
			Container: "/", Permissions: []string{"token:create", "token:read"}, Transform: "reveal",
		}},
	}).Key
	var made api.Token
	k.Call(t, "POST", "/tokens", f.key, `{"type":"token","data":"planted"}`).Into(t, http.StatusCreated, &made)
	f.id = made.ID
	return f
}

func (f filled) read(t *testing.T, k *keeptest.Server) keeptest.Answer {
	t.Helper()
	return k.Call(t, "GET", "/tokens/"+f.id, f.key, "")
}

func (f filled) opens(t *testing.T, k *keeptest.Server) {
	t.Helper()
	var token api.Token
	f.read(t, k).Into(t, http.StatusOK, &token)
	if string(token.Data) != `"planted"` {
		t.Errorf("the token holds %s", token.Data)
	}
}

func TestAServerStartsWhileItsKMSIsDown(t *testing.T) {
	vault := transittest.New(t)
	vault.Create("key")
	settings := map[string]string{"kek": vaultKey(t, vault, "key")}
	clock := clocktest.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	k := keeptest.Start(t, keeptest.Options{Settings: settings, Now: clock.Now})
	f := fill(t, k)
	f.opens(t, k)
	if err := k.Stop(); err != nil {
		t.Fatal(err)
	}
	vault.Fail(kmstest.Down)
	k = keeptest.Start(t, keeptest.Options{Data: f.data, Settings: settings, Now: clock.Now})
	if got := k.Call(t, "GET", "/readyz", "", ""); got.Status != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" {
		t.Errorf("/readyz while the KMS is down = %d, want 503 with Retry-After", got.Status)
	}
	if got := f.read(t, k); got.Status != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" {
		t.Errorf("a read while the KMS is down = %d, want 503 with Retry-After", got.Status)
	}
	if got := status(t, f.data); got.Ready || !strings.Contains(got.KMS, "not available") || strings.Contains(got.KMS, kmstest.Echo) {
		t.Errorf("status while the KMS is down = %+v", got)
	}
	vault.Fail(kmstest.None)
	clock.Advance(time.Second) // nobody calls a KMS that was down a moment ago
	f.opens(t, k)
	if got := k.Call(t, "GET", "/readyz", "", ""); got.Status != http.StatusOK {
		t.Errorf("/readyz = %d, want 200", got.Status)
	}
	// Tenants whose keys are in memory are served through an outage.
	vault.Fail(kmstest.Denied)
	f.opens(t, k)
	if strings.Contains(k.Log.String(), kmstest.Echo) {
		t.Error("the log repeats what the KMS said")
	}
}

func TestAServerThatMayCreateKeysSaysSo(t *testing.T) {
	vault := transittest.New(t)
	vault.Create("key")
	vault.Allow("create", "update")
	k := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"kek": vaultKey(t, vault, "key")}})
	f := fill(t, k)
	waittest.Until(t, "the status names what the token may do", func() bool { return strings.Contains(status(t, f.data).KMS, "may create") })
	f.opens(t, k) // which is no reason not to serve
}

func TestTheKeyMovesFromAFileToAKMSAndBack(t *testing.T) {
	vault := transittest.New(t)
	vault.Create("key")
	dir := t.TempDir()
	first, second := "file:"+filepath.Join(dir, "first"), "file:"+filepath.Join(dir, "second")
	for _, uri := range []string{first, second} {
		if _, err := localkms.Generate(strings.TrimPrefix(uri, "file:")); err != nil {
			t.Fatal(err)
		}
	}
	remote := vaultKey(t, vault, "key")
	k := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"kek": first}})
	f := fill(t, k)
	for _, step := range []struct {
		name, kek, also string
		rotate          bool
	}{
		{"the KMS may open", first, remote, false},
		{"the KMS wraps", remote, first, true},
		{"only the KMS is left", remote, "", false},
		{"another file may open", remote, second, false},
		{"the file wraps", second, remote, true},
		{"only the file is left", second, "", false},
	} {
		if err := k.Stop(); err != nil {
			t.Fatal(err)
		}
		settings := map[string]string{"kek": step.kek}
		if step.also != "" {
			settings["kek.also"] = step.also
		}
		k = keeptest.Start(t, keeptest.Options{Data: f.data, Settings: settings})
		f.opens(t, k)
		if step.rotate {
			if _, err := k.Operator().Follow(t.Context(), http.MethodPost, "/keys/rotate-kek", nil, func(admin.Progress) error { return nil }); err != nil {
				t.Fatalf("%s: rotate-kek = %v", step.name, err)
			}
			f.opens(t, k)
		}
	}
	// The KMS is not needed any more, and a server without the right key does not start.
	vault.Fail(kmstest.Down)
	f.opens(t, k)
	if err := k.Stop(); err != nil {
		t.Fatal(err)
	}
	keeptest.OnFiles(t)
	conf, err := config.Load("", nil, map[string]string{"addr": "127.0.0.1:0", "data": f.data, "kek": first, "kek.timeout": "1h", "sandbox.level": "off"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.New(t.Context(), conf, server.Options{}); !errors.Is(err, keyring.ErrWrongKEK) {
		t.Errorf("start with a key that was left = %v, want ErrWrongKEK", err)
	}
}

func TestWhatAKMSDoesItselfIsRefusedWithAdvice(t *testing.T) {
	vault := transittest.New(t)
	vault.Create("key")
	k := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"kek": vaultKey(t, vault, "key")}})
	fill(t, k)
	_, err := k.Operator().Follow(t.Context(), http.MethodPost, "/keys/rotate-kek", nil, func(admin.Progress) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "vault write -f transit/keys/key/rotate") {
		t.Errorf("rotate-kek = %v, want the command of Vault", err)
	}
	// A key that only opens is dropped by its own tools too.
	vault.Create("old")
	other := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"kek": vaultKey(t, vault, "key"), "kek.also": vaultKey(t, vault, "old")}})
	err = other.Operator().Call(t.Context(), http.MethodPost, "/keys/drop-kek", admin.DropKEK{ID: "hcvault:transit/keys/old"}, nil)
	if err == nil || !strings.Contains(err.Error(), "kek.also") || !strings.Contains(err.Error(), "vault delete transit/keys/old") {
		t.Errorf("drop-kek = %v, want the command of Vault", err)
	}
}

func TestARestoreTriesTheKeysOfTheBackupFirst(t *testing.T) {
	keeptest.OnFiles(t)
	vault := transittest.New(t)
	vault.Create("key")
	vault.Create("other")
	remote := vaultKey(t, vault, "key")
	k := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"kek": remote}})
	fill(t, k)
	folder := filepath.Join(t.TempDir(), "backup")
	if _, err := k.Operator().Follow(t.Context(), http.MethodPost, "/backup", admin.Backup{Folder: folder}, func(admin.Progress) error { return nil }); err != nil {
		t.Fatal(err)
	}
	restore := func(kek string) (copied bool, err error) {
		conf, err := config.Load("", nil, map[string]string{"addr": "127.0.0.1:0", "data": filepath.Join(t.TempDir(), "data"), "kek": kek, "kek.timeout": "1h", "sandbox.level": "off"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = server.Restore(t.Context(), conf, folder, false, time.Now, func(doing string) { copied = copied || strings.Contains(doing, "copying") })
		return copied, err
	}
	for _, tc := range []struct {
		name, kek string
		change    func()
		want      error
	}{
		{"another key", vaultKey(t, vault, "other"), func() {}, keyring.ErrWrongKEK},
		{"the KMS is down", remote, func() { vault.Fail(kmstest.Down) }, keyring.ErrKMSUnavailable},
		{"the key is disabled", remote, func() { vault.Fail(kmstest.Disabled) }, keyring.ErrKEKRefused},
		{"all is well", remote, func() { vault.Fail(kmstest.None) }, nil},
		{"another key of the same name", remote, func() { vault.Delete("key"); vault.Create("key") }, keyring.ErrWrongKEK},
	} {
		tc.change()
		copied, err := restore(tc.kek)
		if !errors.Is(err, tc.want) || copied != (tc.want == nil) {
			t.Errorf("%s: Restore = %v, copied %t; want %v", tc.name, err, copied, tc.want)
		}
		if err != nil && !strings.Contains(err.Error(), "hcvault:transit/keys/key") {
			t.Errorf("%s: Restore = %v, want the key named", tc.name, err)
		}
	}
}
