package definition_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/definition"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
)

var errAbsent = fault.New(fault.NotFound, "no such thing")

var kinds = map[string]definition.Kind{
	store.DefinitionReactor: {
		Row: store.DefinitionReactor, Entity: audit.Reactor, Absent: errAbsent,
		Create: access.ReactorCreate, Read: access.ReactorRead, Update: access.ReactorUpdate, Delete: access.ReactorDelete,
		Users: store.DefinitionProxy, InUse: errInUse,
	},
	store.DefinitionProxy: {
		Row: store.DefinitionProxy, Entity: audit.Proxy, Absent: errAbsent,
		Create: access.ProxyCreate, Read: access.ProxyRead, Update: access.ProxyUpdate, Delete: access.ProxyDelete,
	},
}

// service keeps definitions as they are, whatever their kind.
type service = definition.Service[definition.Definition]

func itself(d definition.Definition) definition.Definition { return d }

var errInUse = fault.New(fault.Conflict, "in use")

// world is an installation with two tenants, each with one application of
// every type, whose id is its type.
type world struct {
	t        *testing.T
	store    store.Store
	ring     *keyring.Ring
	now      time.Time
	reactors *service
	proxies  *service
	tenant   string
	other    string
	// beforeUpdate runs before each transaction in which reactors are written.
	beforeUpdate func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, now: time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC), tenant: uuid.NewString(), other: uuid.NewString()}
	kek := filepath.Join(t.TempDir(), "kek.json")
	if _, err := localkms.Generate(kek); err != nil {
		t.Fatal(err)
	}
	kms, err := localkms.Open(kek)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	w.store = s
	now := func() time.Time { return w.now }
	if w.ring, err = keyring.Open(t.Context(), kms, s, keyring.Options{Now: now}); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{w.tenant, w.other} {
		sets, err := w.ring.NewTenant(t.Context(), tenant)
		if err != nil {
			t.Fatal(err)
		}
		w.change(tenant, func(tx store.Tx) (err error) {
			for _, set := range sets {
				err = errors.Join(err, tx.PutKeyset(t.Context(), set))
			}
			err = errors.Join(err, tx.InsertTenant(t.Context(), store.Tenant{ID: tenant, Name: "test"}))
			for _, kind := range []access.ApplicationType{access.Public, access.Private, access.Management} {
				err = errors.Join(err, tx.InsertApplication(t.Context(), store.Application{ID: string(kind), Name: "x", Type: string(kind), Version: 1}))
			}
			return err
		})
	}
	w.reactors = definition.New(kinds[store.DefinitionReactor], w.hooked(), w.ring, now, nil, itself)
	w.proxies = definition.New(kinds[store.DefinitionProxy], s, w.ring, now, func(contents jsonvalue.Value) secret.Text {
		key, _ := contents.Get("key")
		return secret.NewText(key.Reveal())
	}, itself)
	return w
}

// hooked is the store with a function that runs before an update of reactors.
type hooked struct {
	store.Store
	w *world
}

func (w *world) hooked() store.Store { return hooked{w.store, w} }

func (h hooked) Update(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	if h.w.beforeUpdate != nil {
		h.w.beforeUpdate()
	}
	return h.Store.Update(ctx, tenant, fn)
}

func (w *world) change(tenant string, fn func(store.Tx) error) {
	w.t.Helper()
	if err := w.store.Update(w.t.Context(), tenant, fn); err != nil {
		w.t.Fatal(err)
	}
}

// manager may do everything with reactors and proxies of a tenant.
func (w *world) manager(tenant string) access.Caller {
	return accesstest.Caller(w.t, tenant, "management", access.ReactorCreate, access.ReactorRead, access.ReactorUpdate, access.ReactorDelete,
		access.ProxyCreate, access.ProxyRead, access.ProxyUpdate, access.ProxyDelete)
}

func contents(t *testing.T, text string) jsonvalue.Value {
	t.Helper()
	v, err := jsonvalue.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (w *world) make(s *service, in definition.Draft) definition.Definition {
	w.t.Helper()
	d, err := s.Create(w.t.Context(), w.manager(w.tenant), in)
	if err != nil {
		w.t.Fatalf("Create: %v", err)
	}
	return d
}

// row reads a row as the database has it.
func (w *world) row(kind, id string) (r store.Definition) {
	w.t.Helper()
	err := w.store.View(w.t.Context(), w.tenant, func(tx store.Tx) (err error) {
		r, err = tx.Definition(w.t.Context(), kind, id)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// logged counts the entries on an entity with an operation.
func (w *world) logged(entity, id string, op audit.Operation) (n int) {
	w.t.Helper()
	err := w.store.View(w.t.Context(), w.tenant, func(tx store.Tx) error {
		entries, err := tx.Logs(w.t.Context(), store.LogFilter{EntityType: entity, EntityID: id}, store.Page{Limit: 100})
		for _, e := range entries {
			if e.Operation == string(op) {
				n++
			}
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

var ctx = context.Background()
