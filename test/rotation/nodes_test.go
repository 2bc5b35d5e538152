package rotation_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// node is a server on a shared database, with a key file of its own.
type node struct {
	*keeptest.Server
	kek string
}

func startNode(t *testing.T, url, data, kek string) *node {
	t.Helper()
	return &node{keeptest.Start(t, keeptest.Options{
		Data: data, StoreURL: url, KeyCache: 20 * time.Millisecond, Settings: map[string]string{"kek.file": kek},
	}), kek}
}

// put puts a key file in the place of the server's own, as an operator does:
// whole or not at all.
func (n *node) put(t *testing.T, from string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.kek+".next", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(n.kek+".next", n.kek); err != nil {
		t.Fatal(err)
	}
}

// add is what 'tokenkeep key add' does to a copy of the server's file.
func (n *node) add(t *testing.T) (path, id string) {
	t.Helper()
	path = n.kek + ".copy"
	(&node{kek: path}).put(t, n.kek)
	keys, err := localkms.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if id, err = keys.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return path, id
}

func (n *node) status(t *testing.T) (s admin.KeyStatus) {
	t.Helper()
	if err := n.Operator().Call(t.Context(), http.MethodGet, "/keys", nil, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func (n *node) rotate(t *testing.T) {
	t.Helper()
	if _, err := n.Operator().Follow(t.Context(), http.MethodPost, "/keys/rotate-kek", nil, func(admin.Progress) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

// reading makes an application that reads what it makes.
func (n *node) reading(t *testing.T) (key string) {
	t.Helper()
	return n.Application(t, n.Tenant(t).Tenant.ID, api.CreateApplication{Type: "private", Rules: []api.Rule{
		{Container: "/", Transform: "reveal", Permissions: []string{"token:create", "token:read"}},
	}}).Key
}

func TestServersOnOneDatabaseRotateTheKEKTogether(t *testing.T) {
	storetest.CheckOnly(t)
	url, dir := pgtest.Database(t), t.TempDir()
	kek := func(name string) string { return filepath.Join(dir, name) }
	old, err := localkms.Generate(kek("one"))
	if err != nil {
		t.Fatal(err)
	}
	(&node{kek: kek("two")}).put(t, kek("one"))
	one, two := startNode(t, url, filepath.Join(dir, "data-1"), kek("one")), startNode(t, url, filepath.Join(dir, "data-2"), kek("two"))
	nodes := []*node{one, two}
	key := one.reading(t)
	made := one.Call(t, http.MethodPost, "/tokens", key, `{"id":"kept","type":"token","data":"secret"}`)
	if made.Status != http.StatusCreated {
		t.Fatalf("create = %s", made)
	}
	read := func(n *node) keeptest.Answer { return n.Call(t, http.MethodGet, "/tokens/kept", key, "") }

	// The file comes to every server, then one of them rotates; both answer
	// throughout.
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for _, n := range nodes {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got := read(n); got.Status != http.StatusOK || !strings.Contains(got.Body, "secret") {
					t.Errorf("a read during the rotation = %s", got)
					return
				}
			}
		})
	}
	next, id := one.add(t)
	for _, n := range nodes {
		n.put(t, next)
	}
	one.rotate(t)
	for _, n := range nodes {
		if s := n.status(t); s.Primary != id || slices.ContainsFunc(s.Tenants, func(tenant admin.TenantKeys) bool { return !slices.Equal(tenant.KEKs, []string{id}) }) {
			t.Errorf("after the rotation a server says %+v, want everything wrapped by %s", s, id)
		}
	}
	later := two.reading(t) // of a tenant that the other server makes
	if s := one.status(t); slices.ContainsFunc(s.Tenants, func(tenant admin.TenantKeys) bool { return slices.Contains(tenant.KEKs, old) }) {
		t.Errorf("the other server still wraps with the old key: %+v", s)
	}
	for _, n := range nodes {
		if err := n.Operator().Call(t.Context(), http.MethodPost, "/keys/drop-kek", admin.DropKEK{ID: old}, nil); err != nil {
			t.Errorf("drop the old key: %v", err)
		}
		if got := n.Call(t, http.MethodPost, "/tokens", later, `{"type":"token","data":"x"}`); got.Status != http.StatusCreated {
			t.Errorf("a create for the new tenant = %s", got)
		}
	}
	close(stop)
	clients.Wait()

	// A key that one server makes for itself closes the others, until its file
	// comes to them.
	one.rotate(t)
	waittest.Until(t, "a server without the key reads nothing", func() bool { return read(two).Status != http.StatusOK })
	got := read(two)
	if got.Status != http.StatusServiceUnavailable || got.Header.Get("Retry-After") != "5" || strings.Contains(got.Body, "secret") {
		t.Errorf("a server without the key answers %s, Retry-After %q; want 503 and 5", got, got.Header.Get("Retry-After"))
	}
	primary := one.status(t).Primary
	if said := two.Log.String(); !strings.Contains(said, `name it in kek.also, or use the key file of a server that has it","kek":"`+primary+`"`) {
		t.Errorf("the log of a server without the key %s does not say so", primary)
	}
	if got := read(one); got.Status != http.StatusOK {
		t.Errorf("the server with the key answers %s", got)
	}
	two.put(t, one.kek)
	waittest.Until(t, "a server with the file in its place reads", func() bool { return read(two).Status == http.StatusOK })

	// A file that is somebody else's is not rotated to.
	stranger := kek("stranger")
	if _, err := localkms.Generate(stranger); err != nil {
		t.Fatal(err)
	}
	two.put(t, stranger)
	_, err = two.Operator().Follow(t.Context(), http.MethodPost, "/keys/rotate-kek", nil, func(admin.Progress) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "it is another one's") {
		t.Errorf("a rotation to another's file = %v, want it refused", err)
	}
	if got := read(two); got.Status != http.StatusOK {
		t.Errorf("beside another's file: %s", got)
	}
}
