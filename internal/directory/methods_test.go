package directory_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// target names what a method is called with.
type target struct{ application, key, session string }

// nothing exists nowhere.
var nothing = target{"b7f1d3a0-0000-4000-8000-000000000001", "b7f1d3a0-0000-4000-8000-000000000002", "b7f1d3a0-0000-4000-8000-000000000003"}

// method is one method of the service, with what it asks for and leaves behind.
type method struct {
	name       string
	permission access.Permission // 0: any key will do
	entity     string
	operation  string
	message    string
	// missing is what a target that is not there makes of the call; nil for
	// methods that take none.
	missing *missing
	// call returns the id that the entry names.
	call func(w *world, c access.Caller, at target) (id string, err error)
	// fail is the call with a last step that fails; nil without such steps.
	fail func(w *world, c access.Caller, at target, step error) error
}

// missing has the words of a refusal, none when the call succeeds and does nothing.
type missing struct{ words string }

var (
	noFault       = &missing{}
	noApplication = &missing{"no such application"}
	noKey         = &missing{"no such key"}
	noSession     = &missing{"no such session"}
)

func failing[T any](err error) store.Step[T] { return func(store.Tx, T) error { return err } }

func replaced() directory.NewApplication {
	in := private()
	in.Name = "replaced"
	return in
}

var methods = []method{
	{"Tenant", access.TenantRead, "tenant", "read", "Tenant retrieved", nil,
		func(w *world, c access.Caller, _ target) (string, error) {
			_, err := w.Tenant(w.t.Context(), c)
			return c.Tenant(), err
		}, nil},
	{"ReplaceTenant", access.TenantUpdate, "tenant", "update", "Tenant updated", nil,
		func(w *world, c access.Caller, _ target) (string, error) {
			_, err := w.ReplaceTenant(w.t.Context(), c, "New", nil)
			return c.Tenant(), err
		},
		func(w *world, c access.Caller, _ target, step error) error {
			_, err := w.ReplaceTenant(w.t.Context(), c, "New", nil, failing[directory.Tenant](step))
			return err
		}},
	{"DeleteTenant", access.TenantDelete, "tenant", "delete", "Tenant deleted", nil,
		func(w *world, c access.Caller, _ target) (string, error) {
			return c.Tenant(), w.DeleteTenant(w.t.Context(), c)
		}, nil},
	{"Usage", access.ReportRead, "tenant", "read", "Tenant retrieved", nil,
		func(w *world, c access.Caller, _ target) (string, error) {
			_, err := w.Usage(w.t.Context(), c)
			return c.Tenant(), err
		}, nil},
	{"CallbackSecret", access.TenantRead, "tenant", "read", "Tenant retrieved", nil,
		func(w *world, c access.Caller, _ target) (string, error) {
			_, err := w.CallbackSecret(w.t.Context(), c)
			return c.Tenant(), err
		}, nil},
	{"RotateCallbackSecret", access.TenantUpdate, "tenant", "rotate", "Tenant rotated", nil,
		func(w *world, c access.Caller, _ target) (string, error) {
			_, err := w.RotateCallbackSecret(w.t.Context(), c)
			return c.Tenant(), err
		},
		func(w *world, c access.Caller, _ target, step error) error {
			_, err := w.RotateCallbackSecret(w.t.Context(), c, failing[directory.CallbackSecret](step))
			return err
		}},
	{"CreateApplication", access.ApplicationCreate, "application", "create", "Application created", nil,
		func(w *world, c access.Caller, _ target) (string, error) {
			a, err := w.CreateApplication(w.t.Context(), c, private())
			return a.ID, err
		},
		func(w *world, c access.Caller, _ target, step error) error {
			_, err := w.CreateApplication(w.t.Context(), c, private(), failing[directory.Application](step))
			return err
		}},
	{"Application", access.ApplicationRead, "application", "read", "Application retrieved", noApplication,
		func(w *world, c access.Caller, at target) (string, error) {
			_, err := w.Application(w.t.Context(), c, at.application)
			return at.application, err
		}, nil},
	{"Applications", access.ApplicationRead, "application", "read", "Application retrieved", nil,
		func(w *world, c access.Caller, _ target) (string, error) {
			_, _, err := w.Applications(w.t.Context(), c, store.ApplicationFilter{}, store.Page{Limit: 20})
			return "*", err
		}, nil},
	{"ReplaceApplication", access.ApplicationUpdate, "application", "update", "Application updated", noApplication,
		func(w *world, c access.Caller, at target) (string, error) {
			_, err := w.ReplaceApplication(w.t.Context(), c, at.application, replaced())
			return at.application, err
		},
		func(w *world, c access.Caller, at target, step error) error {
			_, err := w.ReplaceApplication(w.t.Context(), c, at.application, replaced(), failing[directory.Application](step))
			return err
		}},
	{"DeleteApplication", access.ApplicationDelete, "application", "delete", "Application deleted", noApplication,
		func(w *world, c access.Caller, at target) (string, error) {
			return at.application, w.DeleteApplication(w.t.Context(), c, at.application)
		}, nil},
	{"Regenerate", access.ApplicationUpdate, "application", "rotate", "Application rotated", noApplication,
		func(w *world, c access.Caller, at target) (string, error) {
			_, err := w.Regenerate(w.t.Context(), c, at.application)
			return at.application, err
		},
		func(w *world, c access.Caller, at target, step error) error {
			_, err := w.Regenerate(w.t.Context(), c, at.application, failing[directory.Application](step))
			return err
		}},
	{"CreateKey", access.ApplicationUpdate, "key", "create", "Key created", noApplication,
		func(w *world, c access.Caller, at target) (string, error) {
			k, err := w.CreateKey(w.t.Context(), c, at.application)
			return k.ID, err
		},
		func(w *world, c access.Caller, at target, step error) error {
			_, err := w.CreateKey(w.t.Context(), c, at.application, failing[directory.Key](step))
			return err
		}},
	{"Keys", access.ApplicationRead, "key", "read", "Key retrieved", noApplication,
		func(w *world, c access.Caller, at target) (string, error) {
			_, err := w.Keys(w.t.Context(), c, at.application)
			return "*", err
		}, nil},
	{"Key", access.ApplicationRead, "key", "read", "Key retrieved", noApplication,
		func(w *world, c access.Caller, at target) (string, error) {
			_, err := w.Key(w.t.Context(), c, at.application, at.key)
			return at.key, err
		}, nil},
	{"DeleteKey", access.ApplicationUpdate, "key", "delete", "Key deleted", noFault,
		func(w *world, c access.Caller, at target) (string, error) {
			return at.key, w.DeleteKey(w.t.Context(), c, at.application, at.key)
		}, nil},
	{"Sessions", access.SessionRead, "session", "read", "Session retrieved", nil,
		func(w *world, c access.Caller, _ target) (string, error) {
			_, _, err := w.Sessions(w.t.Context(), c, store.Page{Limit: 20})
			return "*", err
		}, nil},
	{"DeleteSession", access.SessionDelete, "session", "delete", "Session deleted", noSession,
		func(w *world, c access.Caller, at target) (string, error) {
			return at.session, w.DeleteSession(w.t.Context(), c, at.session)
		}, nil},
	{"Explain", access.ApplicationRead, "session", "read", "Session retrieved by access explanation", noSession,
		func(w *world, c access.Caller, at target) (string, error) {
			if at.session == "" {
				at.session = "none" // else no holder is named
			}
			_, err := w.Explain(w.t.Context(), c, directory.Question{Session: at.session, Permission: "token:read", Containers: []string{"/"}})
			return at.session, err
		}, nil},
	{"Who", access.ApplicationRead, "application", "read", "Application retrieved by access review", nil,
		func(w *world, c access.Caller, _ target) (string, error) {
			_, err := w.Who(w.t.Context(), c, "token:read", "/")
			return "*", err
		}, nil},
	{"KeyInventory", access.ApplicationRead, "key", "read", "Key retrieved by key report", nil,
		func(w *world, c access.Caller, _ target) (string, error) {
			_, err := w.KeyInventory(w.t.Context(), c)
			return "*", err
		}, nil},
	{"AccessReview", access.ApplicationRead, "application", "read", "Application retrieved by access report", nil,
		func(w *world, c access.Caller, _ target) (string, error) {
			_, err := w.AccessReview(w.t.Context(), c, time.Time{})
			return "*", err
		}, nil},
}

// each runs a test for every method, on a tenant with a private and a public
// application beside the management one, and with a session.
func each(t *testing.T, test func(t *testing.T, w *world, m method, tenant string, at target)) {
	for _, m := range methods {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tenant, _ := w.tenant()
			a := w.application(tenant, private())
			public, err := w.Authenticate(t.Context(), w.application(tenant, publicApplication).Key)
			if err != nil {
				t.Fatal(err)
			}
			session, err := w.CreateSession(t.Context(), public)
			if err != nil {
				t.Fatal(err)
			}
			test(t, w, m, tenant, target{a.ID, a.Keys[0].ID, session.ID})
		})
	}
}

// Every method that takes a caller has a row.
func TestEveryMethodHasARow(t *testing.T) {
	rows := map[string]bool{"Own": true, "CreateSession": true, "AuthorizeSession": true, "WhoOf": true} // have tests of their own
	for _, m := range methods {
		rows[m.name] = true
	}
	service, callers := reflect.TypeFor[*directory.Service](), reflect.TypeFor[access.Caller]()
	for m := range service.Methods() {
		if m.Type.NumIn() > 2 && m.Type.In(2) == callers && !rows[m.Name] {
			t.Errorf("%s has no row", m.Name)
		}
	}
}

func TestWhoHoldsThePermissionIsServedAndLogged(t *testing.T) {
	each(t, func(t *testing.T, w *world, m method, tenant string, at target) {
		c := caller(t, tenant, m.permission)
		id := ""
		got := w.since(tenant, func() {
			var err error
			if id, err = m.call(w, c, at); err != nil {
				t.Fatalf("%s = %v", m.name, err)
			}
		})
		if len(got) != 1 {
			t.Fatalf("%s made %d entries, want 1: %+v", m.name, len(got), got)
		}
		want := store.LogEntry{
			ID: got[0].ID, CreatedAt: store.At(w.clock.Now()), ActorID: "the-caller", ActorType: "application",
			EntityType: m.entity, EntityID: id, Operation: m.operation, Outcome: "allowed", Message: m.message,
			TraceID: origin.TraceID, ClientAddress: origin.Address,
		}
		if got[0] != want {
			t.Errorf("%s made the entry\n%+v, want\n%+v", m.name, got[0], want)
		}
	})
}

func TestAllOtherPermissionsDoNotHelp(t *testing.T) {
	each(t, func(t *testing.T, w *world, m method, tenant string, at target) {
		others := slices.DeleteFunc(access.Management.Permissions(), func(p access.Permission) bool { return p == m.permission })
		for name, c := range map[string]access.Caller{
			"the others": caller(t, tenant, others...), "none": caller(t, tenant), "nobody": {},
			"nobody's in the tenant": access.NewAnonymousProxy(tenant, access.PlainGrant(access.Permissions()...)),
		} {
			entries := w.since(tenant, func() {
				_, err := m.call(w, c, at)
				var denial *access.Denial
				if !errors.As(err, &denial) || denial.Permission() != m.permission {
					t.Errorf("%s with %s = %v, want a denial of %s", m.name, name, err, m.permission)
				}
			})
			if len(entries) != 0 {
				t.Errorf("%s with %s made entries: %+v", m.name, name, entries)
			}
		}
	})
}

// What another tenant has, and what nobody has, is told in the same words.
func TestAnotherTenantsThingsAreNotThere(t *testing.T) {
	each(t, func(t *testing.T, w *world, m method, tenant string, at target) {
		if m.missing == nil {
			t.Skip("names nothing")
		}
		other, _ := w.tenant()
		rowsBefore := w.rows(tenant)
		for name, call := range map[string]struct {
			tenant string
			at     target
		}{
			"another tenant's": {other, at}, "an unknown one": {tenant, nothing}, "an empty one": {tenant, target{}},
		} {
			entries := w.since(call.tenant, func() {
				_, err := m.call(w, w.manager(call.tenant), call.at)
				if m.missing == noFault && err != nil {
					t.Errorf("%s of %s = %v, want no fault", m.name, name, err)
				}
				if m.missing != noFault && (!errors.Is(err, fault.NotFound) || fault.Of(err).Detail() != m.missing.words) {
					t.Errorf("%s of %s = %v, want not found: %s", m.name, name, err, m.missing.words)
				}
			})
			if len(entries) != 0 {
				t.Errorf("%s of %s made entries: %+v", m.name, name, entries)
			}
		}
		if got := w.rows(tenant); !reflect.DeepEqual(got, rowsBefore) {
			t.Errorf("%s from another tenant changed rows: %+v, were %+v", m.name, got, rowsBefore)
		}
	})
}

func TestAnotherApplicationsKeyIsNotThere(t *testing.T) {
	w := newWorld(t)
	tenant, manager := w.tenant()
	a := w.application(tenant, private())
	c := w.manager(tenant)
	for name, id := range map[string]string{"another application's": manager.Keys[0].ID, "unknown": nothing.key} {
		if _, err := w.Key(t.Context(), c, a.ID, id); !errors.Is(err, fault.NotFound) || fault.Of(err).Detail() != noKey.words {
			t.Errorf("Key of %s = %v, want not found", name, err)
		}
		entries := w.since(tenant, func() {
			if err := w.DeleteKey(t.Context(), c, a.ID, id); err != nil {
				t.Errorf("DeleteKey of %s = %v, want nil: it is not there", name, err)
			}
		})
		if len(entries) != 0 {
			t.Errorf("DeleteKey of %s made entries: %+v", name, entries)
		}
	}
	if !w.authenticates(manager.Key) {
		t.Error("a key was revoked through another application")
	}
}

// A change and its entry, and what a caller adds to them, are one.
func TestNothingIsKeptWithoutItsEntryOrItsLastStep(t *testing.T) {
	each(t, func(t *testing.T, w *world, m method, tenant string, at target) {
		before, c := w.rows(tenant), w.manager(tenant)
		check := func(what string, entries []store.LogEntry) {
			t.Helper()
			if got := w.rows(tenant); len(entries) != 0 || !reflect.DeepEqual(got, before) {
				t.Errorf("%s %s left entries %+v and rows\n%+v, were\n%+v", m.name, what, entries, got, before)
			}
		}
		check("without its entry", w.since(tenant, func() {
			w.store.logBroken = true
			if _, err := m.call(w, c, at); !errors.Is(err, errBroken) {
				t.Errorf("%s without its entry = %v, want %v", m.name, err, errBroken)
			}
			w.store.mend()
		}))
		if m.fail == nil {
			return
		}
		step := errors.New("the last step fails")
		check("without its last step", w.since(tenant, func() {
			if err := m.fail(w, c, at, step); !errors.Is(err, step) {
				t.Errorf("%s with a failing step = %v, want %v", m.name, err, step)
			}
		}))
	})
}

// A request that was let in before its tenant was deleted leaves nothing
// behind: nobody would ever remove it.
func TestNothingIsWrittenForATenantThatIsGone(t *testing.T) {
	each(t, func(t *testing.T, w *world, m method, tenant string, at target) {
		c := w.manager(tenant)
		entries := 0
		w.store.before = func() {
			if err := w.DeleteTenant(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			entries = len(w.entries(tenant))
		}
		if _, err := m.call(w, c, at); !errors.Is(err, fault.Conflict) || fault.Of(err).Detail() != "the tenant is being deleted" {
			t.Errorf("%s while the tenant is being deleted = %v, want a conflict", m.name, err)
		}
		if got := len(w.entries(tenant)); got != entries {
			t.Errorf("%s while the tenant is being deleted made %d entries", m.name, got-entries)
		}
	})
	each(t, func(t *testing.T, w *world, m method, tenant string, at target) {
		c := w.manager(tenant)
		w.store.before = func() {
			if err := errors.Join(w.DeleteTenant(t.Context(), c), w.FinishDeletions(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := m.call(w, c, at); !errors.Is(err, fault.NotFound) || fault.Of(err).Detail() != "no such tenant" {
			t.Errorf("%s in a deleted tenant = %v, want not found", m.name, err)
		}
		if rows := w.rows(tenant); len(rows.Applications)+len(rows.Keys)+len(rows.Keysets)+len(rows.Sessions)+len(w.entries(tenant)) != 0 || rows.Tenant.ID != "" {
			t.Errorf("%s in a deleted tenant left %+v", m.name, rows)
		}
		if _, err := m.call(w, c, at); !errors.Is(err, fault.NotFound) || fault.Of(err).Detail() != "no such tenant" {
			t.Errorf("%s in a tenant that was deleted long ago = %v, want not found", m.name, err)
		}
	})
}

// rows is what the store has of a tenant, but for its log.
type rows struct {
	Tenant       store.Tenant
	Applications []store.Application
	Keys         []store.Key
	Keysets      []store.Keyset
	Sessions     []store.Session
}

func (w *world) rows(tenant string) (r rows) {
	w.t.Helper()
	ctx := w.t.Context()
	err := w.files.View(ctx, tenant, func(tx store.Tx) (err error) {
		if r.Tenant, err = tx.TenantRow(ctx); err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if r.Applications, err = tx.Applications(ctx, store.ApplicationFilter{}, store.Page{Limit: 1000}); err != nil {
			return err
		}
		for _, a := range r.Applications {
			keys, err := tx.Keys(ctx, a.ID)
			if err != nil {
				return err
			}
			r.Keys = append(r.Keys, keys...)
		}
		if r.Keysets, err = tx.Keysets(ctx); err != nil {
			return err
		}
		r.Sessions, err = tx.Sessions(ctx, store.SessionFilter{Now: 1}, store.Page{Limit: 1000})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}
