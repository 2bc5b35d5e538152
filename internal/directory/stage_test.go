package directory_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
)

// stage is an installation on either store, for sessions, with a door behind
// the back of the service.
type stage struct {
	t     *testing.T
	clock *clocktest.Clock
	kms   keyring.KMS
	store store.Store
	// open opens the store as one more node does.
	open func() store.Store
	// behind runs a statement on a connection of its own and returns how many
	// rows it changed, and for a query the first column.
	behind func(text string) (n int64, column []string)
	flip   string // an expression: sealed_grant with another byte in it
	nodes  []*directory.Service
}

// onStages runs a test on either store.
func onStages(t *testing.T, test func(t *testing.T, s *stage)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		s := newStage(t)
		dir := filepath.Join(t.TempDir(), "data")
		var files *sqlite.Store
		open := func() {
			var err error
			if files, err = sqlite.Open(t.Context(), dir, sqlite.Options{}); err != nil {
				t.Fatal(err)
			}
		}
		open()
		t.Cleanup(func() { _ = files.Close() })
		s.open = func() store.Store { return files }
		s.flip = flipped("sealed_grant")
		s.behind = func(text string) (n int64, column []string) {
			if err := files.Close(); err != nil { // it takes no second process
				t.Fatal(err)
			}
			db := raw(t, dir)
			rows, err := db.QueryContext(t.Context(), text)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			column = firstColumn(t, rows)
			if err := db.QueryRow("SELECT total_changes()").Scan(&n); err != nil {
				t.Fatal(err)
			}
			_ = db.Close()
			open()
			s.restart()
			return n, column
		}
		s.begin()
		test(t, s)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		s := newStage(t)
		url := pgtest.Database(t)
		s.open = func() store.Store {
			opened, err := postgres.Open(t.Context(), url, postgres.Options{Connections: 4})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = opened.Close() })
			return opened
		}
		s.flip = "set_byte(sealed_grant, length(sealed_grant) - 1, 255 - get_byte(sealed_grant, length(sealed_grant) - 1))"
		var conn *pgx.Conn
		t.Cleanup(func() {
			if conn != nil {
				_ = conn.Close(context.WithoutCancel(t.Context()))
			}
		})
		s.behind = func(text string) (int64, []string) {
			if conn == nil {
				var err error
				if conn, err = pgx.Connect(t.Context(), url); err != nil {
					t.Fatal(err)
				}
				if _, err := conn.Exec(t.Context(), "SET search_path = tokenkeep"); err != nil {
					t.Fatal(err)
				}
			}
			rows, err := conn.Query(t.Context(), text)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			column, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			return rows.CommandTag().RowsAffected(), column
		}
		s.begin()
		test(t, s)
	})
}

func firstColumn(t *testing.T, rows *sql.Rows) (column []string) {
	t.Helper()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		column = append(column, text)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		t.Fatal(err)
	}
	return column
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, clock: clocktest.New(start)}
	kek := filepath.Join(t.TempDir(), "kek.json")
	_, err := localkms.Generate(kek)
	if err == nil {
		s.kms, err = localkms.Open(kek)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stage) begin() {
	s.t.Helper()
	s.store = s.open()
	s.nodes = []*directory.Service{s.node(s.store)}
}

// restart puts the nodes on a store that was opened again.
func (s *stage) restart() {
	s.store = s.open()
	for i := range s.nodes {
		s.nodes[i] = s.node(s.store)
	}
}

// addNode starts one more server.
func (s *stage) addNode() *directory.Service {
	s.t.Helper()
	s.nodes = append(s.nodes, s.node(s.open()))
	return s.nodes[len(s.nodes)-1]
}

func (s *stage) node(on store.Store) *directory.Service {
	s.t.Helper()
	ring, err := keyring.Open(s.t.Context(), s.kms, on, keyring.Options{Now: s.clock.Now})
	if err != nil {
		s.t.Fatal(err)
	}
	return directory.New(on, ring, s.clock.Now, "test", func(context.Context, string) error { return nil })
}

// at sets the clock, also back.
func (s *stage) at(now time.Time) { s.clock.Advance(now.Sub(s.clock.Now())) }

func (s *stage) tenant(in ...directory.NewApplication) (id string, made []directory.Application) {
	s.t.Helper()
	t, made, err := s.nodes[0].CreateTenant(s.t.Context(), "Tenant", in...)
	if err != nil {
		s.t.Fatalf("CreateTenant = %v %v", err, fault.Of(err).Fields())
	}
	return t.ID, made
}

func (s *stage) manager(tenant string) access.Caller {
	return caller(s.t, tenant, access.Management.Permissions()...)
}

// as is the caller of a key, which must open.
func (s *stage) as(key secret.Text) access.Caller {
	s.t.Helper()
	c, err := s.nodes[0].Authenticate(s.t.Context(), key)
	if err != nil {
		s.t.Fatalf("Authenticate = %v", err)
	}
	return c
}

// session makes a session, and authorizes it when there is a maker.
func (s *stage) session(public directory.Application, maker *directory.Application, in directory.Authorization) directory.Session {
	s.t.Helper()
	made, err := s.nodes[0].CreateSession(s.t.Context(), s.as(public.Key))
	if err != nil {
		s.t.Fatalf("CreateSession = %v", err)
	}
	if maker == nil {
		return made
	}
	in.Nonce = made.Nonce
	authorized, err := s.nodes[0].AuthorizeSession(s.t.Context(), s.as(maker.Key), in)
	if err != nil {
		s.t.Fatalf("AuthorizeSession = %v %v", err, fault.Of(err).Fields())
	}
	authorized.Key, authorized.Nonce = made.Key, made.Nonce
	return authorized
}

// shows is what a key may do: the transforms for each permission in some
// places; "" when it opens nothing.
func (s *stage) shows(n *directory.Service, key secret.Text) map[string]access.Transform {
	s.t.Helper()
	c, err := n.Authenticate(s.t.Context(), key)
	if err != nil {
		return nil
	}
	out := map[string]access.Transform{}
	for _, p := range []access.Permission{access.TokenCreate, access.TokenRead, access.TokenUpdate, access.TokenDelete, access.TokenSearch, access.TokenUse} {
		for _, container := range []string{"/", "/pci/", "/pci/x/"} {
			for _, id := range []string{"x", "y"} {
				t := c.Decide(p, access.Target{ID: id, Containers: []string{container}}).Transform
				out[fmt.Sprintf("%s/%s%s", c.Tenant(), p, strings.TrimSuffix(container, "/")+"/"+id)] = t
			}
		}
	}
	return out
}

// wider returns where something shows more than it did.
func wider(now, before map[string]access.Transform) (places []string) {
	for place, t := range now {
		if t > before[place] {
			places = append(places, place)
		}
	}
	return places
}
