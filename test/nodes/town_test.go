// Package nodes_test calls two servers over one database, which must behave as
// one: what is done on either counts on both, at once, whatever connections are
// lost, and while a newer release replaces an older one.
package nodes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
)

func TestMain(m *testing.M) { os.Exit(keeptest.Run(m)) }

// town is an installation of two servers, with a tenant.
type town struct {
	t        *testing.T
	database string
	kek      string
	clock    *clocktest.Clock
	a, b     *keeptest.Server

	tenant                      string
	public, private, management api.Application
}

// options are what the two servers of a town differ in, and what they share.
type options struct {
	settings map[string]string
	ahead    []string // of the second
	real     bool     // the machine's clock
	keyCache time.Duration
}

func newTown(t *testing.T, o options) *town {
	t.Helper()
	w := &town{t: t, database: pgtest.Database(t), kek: filepath.Join(t.TempDir(), "kek.json")}
	if !o.real {
		w.clock = clocktest.New(time.Date(2031, 5, 6, 7, 8, 0, 0, time.UTC))
	}
	if _, err := localkms.Generate(w.kek); err != nil {
		t.Fatal(err)
	}
	w.a, w.b = w.start(o, nil), w.start(o, o.ahead)
	return w.settle(t)
}

// settle is the town as another tenant sees it.
func (w *town) settle(t *testing.T) *town {
	t.Helper()
	next := *w
	next.t = t
	made := w.a.Tenant(t)
	next.tenant, next.management = made.Tenant.ID, made.Application
	next.public = w.a.Application(t, next.tenant, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}})
	next.private = next.application()
	return &next
}

// start starts a server of the town.
func (w *town) start(o options, ahead []string) *keeptest.Server {
	w.t.Helper()
	k := keeptest.Options{StoreURL: w.database, Settings: map[string]string{"kek.file": w.kek}, Ahead: ahead, KeyCache: o.keyCache, Requests: 40 * o.keyCache}
	if w.clock != nil {
		k.Now = w.clock.Now
	}
	for name, value := range o.settings {
		k.Settings[name] = value
	}
	return keeptest.Start(w.t, k)
}

// application makes a private application that may do everything with tokens.
func (w *town) application() api.Application {
	w.t.Helper()
	return w.a.Application(w.t, w.tenant, api.CreateApplication{Type: "private", Permissions: []string{"token:create", "token:use"}, Rules: []api.Rule{
		{Container: "/", Transform: "reveal", Permissions: []string{"token:read"}},
	}})
}

// must calls a node with the management key, and wants a status of success.
func (w *town) must(n *keeptest.Server, method, path, body string) keeptest.Answer {
	w.t.Helper()
	got := n.Call(w.t, method, path, w.management.Key, body)
	if got.Status >= 300 {
		w.t.Fatalf("%s %s = %s", method, path, got)
	}
	return got
}

// cut ends every connection of both nodes to the database.
func (w *town) cut() {
	w.t.Helper()
	c, err := pgx.Connect(w.t.Context(), w.database)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = c.Close(w.t.Context()) }()
	if _, err := c.Exec(w.t.Context(), "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"); err != nil {
		w.t.Fatal(err)
	}
}

// together does both at the same moment.
func together(do ...func()) {
	var begin, done sync.WaitGroup
	begin.Add(1)
	for _, f := range do {
		done.Go(func() {
			begin.Wait()
			f()
		})
	}
	begin.Done()
	done.Wait()
}

func (w *town) session() (made api.CreatedSession, id string) {
	w.t.Helper()
	w.a.Call(w.t, "POST", "/sessions", w.public.Key, "").Into(w.t, 201, &made)
	if got := w.a.Call(w.t, "POST", "/sessions/authorize", w.private.Key, fmt.Sprintf(`{"nonce":%q,"permissions":["token:read"]}`, made.Nonce)); got.Status != 200 {
		w.t.Fatalf("authorize = %s", got)
	}
	var list api.List[api.Session]
	w.must(w.a, "GET", "/sessions?size=100", "").Into(w.t, 200, &list)
	for _, s := range list.Data {
		if strings.HasPrefix(made.SessionKey, s.Prefix) {
			return made, s.ID
		}
	}
	w.t.Fatal("the session is not in the list")
	return made, ""
}
