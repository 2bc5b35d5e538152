package definition_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/definition"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

func TestADefinitionsLife(t *testing.T) {
	w := newWorld(t)
	c := w.manager(w.tenant)
	made := w.make(w.reactors, definition.Draft{Name: "one", ApplicationID: "private", Contents: contents(t, `{"code":"canary-in-code"}`)})
	if row := w.row(store.DefinitionReactor, made.ID); bytes.Contains(row.Contents, []byte("canary")) || row.ApplicationID != "private" || row.KeyHash != nil {
		t.Error("the row holds the code in clear, or not its application")
	}
	if text := fmt.Sprintf("%v %+v %#v", made, made, made); strings.Contains(text, "canary") {
		t.Error("a definition prints what it holds")
	}
	got, err := w.reactors.Get(ctx, c, made.ID)
	if err != nil || !got.Contents.Equal(made.Contents) || got.CreatedBy != "management" || !got.CreatedAt.Equal(w.now) || got.Version != 1 || got.TenantID != w.tenant {
		t.Errorf("Get = %+v, %v", got, err)
	}
	w.now = w.now.Add(time.Minute)
	got, err = w.reactors.Change(ctx, c, made.ID, audit.Update, func(old definition.Definition) (definition.Draft, error) {
		return definition.Draft{Name: old.Name + " more", Contents: old.Contents.With("x", contents(t, `1`))}, nil
	})
	if err != nil || got.Name != "one more" || got.ApplicationID != "" || got.Version != 2 || !got.ModifiedAt.Equal(w.now) || got.ModifiedBy != "management" {
		t.Errorf("Change = %+v, %v", got, err)
	}
	if found, err := w.reactors.Find(ctx, w.tenant, made.ID); err != nil || !found.Contents.Equal(contents(t, `{"code":"canary-in-code","x":1}`)) {
		t.Errorf("Find = %+v, %v", found, err)
	}
	if list, total, err := w.reactors.List(ctx, c, definition.Filter{Name: "MORE"}, store.Page{Limit: 10}); err != nil || total != 1 || len(list) != 1 || list[0].ID != made.ID {
		t.Errorf("List = %d of %d, %v", len(list), total, err)
	}
	if err := w.reactors.Delete(ctx, c, made.ID); err != nil {
		t.Errorf("Delete: %v", err)
	}
	for op, want := range map[audit.Operation]int{audit.Create: 1, audit.Read: 1, audit.Update: 1, audit.Delete: 1} {
		if n := w.logged(audit.Reactor, made.ID, op); n != want {
			t.Errorf("%d entries of %s, want %d", n, op, want)
		}
	}
	if n := w.logged(audit.Reactor, audit.Many, audit.Read); n != 1 {
		t.Errorf("%d entries of the list, want 1", n)
	}
}

// calls are all methods that ask for a permission, on one id.
func (w *world) calls(s *service) map[access.Permission]func(access.Caller, string) error {
	return map[access.Permission]func(access.Caller, string) error{
		access.ReactorCreate: func(c access.Caller, _ string) error {
			_, err := s.Create(ctx, c, definition.Draft{Name: "x", Contents: contents(w.t, `{}`)})
			return err
		},
		access.ReactorRead: func(c access.Caller, id string) error {
			_, err := s.Get(ctx, c, id)
			return err
		},
		access.ReactorUpdate: func(c access.Caller, id string) error {
			_, err := s.Change(ctx, c, id, audit.Update, func(d definition.Definition) (definition.Draft, error) {
				return definition.Draft{Name: "changed", Contents: d.Contents}, nil
			})
			return err
		},
		access.ReactorDelete: func(c access.Caller, id string) error { return s.Delete(ctx, c, id) },
	}
}

func TestWhoMayWhat(t *testing.T) {
	w := newWorld(t)
	all := []access.Permission{access.ReactorCreate, access.ReactorRead, access.ReactorUpdate, access.ReactorDelete}
	for needed, call := range w.calls(w.reactors) {
		var others []access.Permission
		for _, p := range all {
			if p != needed {
				others = append(others, p)
			}
		}
		id := w.make(w.reactors, definition.Draft{Name: "x", Contents: contents(t, `{}`)}).ID
		if err := call(accesstest.Caller(t, w.tenant, "management", others...), id); !errors.Is(err, fault.Forbidden) {
			t.Errorf("without %s: %v, want forbidden", needed, err)
		}
		if err := call(w.manager(w.other), id); needed != access.ReactorCreate && !errors.Is(err, fault.NotFound) {
			t.Errorf("%s in another tenant: %v, want not found", needed, err)
		}
		if err := call(w.manager(w.tenant), "nothing"); needed != access.ReactorCreate && !errors.Is(err, fault.NotFound) {
			t.Errorf("%s of nothing: %v, want not found", needed, err)
		}
		if err := call(accesstest.Caller(t, w.tenant, "management", needed), id); err != nil {
			t.Errorf("with %s alone: %v", needed, err)
		}
	}
	id := w.make(w.reactors, definition.Draft{Name: "x", Contents: contents(t, `{}`)}).ID
	for name, find := range map[string]func() error{
		"another tenant": func() error { _, err := w.reactors.Find(ctx, w.other, id); return err },
		"no tenant":      func() error { _, err := w.reactors.Find(ctx, "nobody", id); return err },
		"another kind":   func() error { _, err := w.proxies.Find(ctx, w.tenant, id); return err },
		"its id as key":  func() error { _, err := w.proxies.FindByKey(ctx, w.tenant, secret.NewText(id)); return err },
	} {
		if err := find(); !errors.Is(err, fault.NotFound) {
			t.Errorf("Find in %s: %v, want not found", name, err)
		}
	}
}

func TestOnlyApplicationsOfTheTenantThatUseTokensAreNamed(t *testing.T) {
	w := newWorld(t)
	w.change(w.other, func(tx store.Tx) error {
		return tx.InsertApplication(ctx, store.Application{ID: "theirs", Name: "x", Type: "private", Version: 1})
	})
	for id, allowed := range map[string]bool{"": true, "public": true, "private": true, "management": false, "theirs": false, "nothing": false} {
		_, err := w.reactors.Create(ctx, w.manager(w.tenant), definition.Draft{Name: "x", ApplicationID: id, Contents: contents(t, `{}`)})
		if allowed != (err == nil) || err != nil && fault.Of(err).Fields()["application.id"] == nil {
			t.Errorf("Create for %q = %v, want it allowed: %t", id, err, allowed)
		}
		d := w.make(w.reactors, definition.Draft{Name: "x", Contents: contents(t, `{}`)})
		_, err = w.reactors.Change(ctx, w.manager(w.tenant), d.ID, audit.Update, func(old definition.Definition) (definition.Draft, error) {
			return definition.Draft{Name: "x", ApplicationID: id, Contents: old.Contents}, nil
		})
		if allowed != (err == nil) {
			t.Errorf("Change to %q = %v, want it allowed: %t", id, err, allowed)
		}
	}
}

func TestADefinitionIsFoundByItsKeyAlone(t *testing.T) {
	w := newWorld(t)
	key := func(s string) secret.Text { return secret.NewText(s) }
	made := w.make(w.proxies, definition.Draft{Name: "x", Contents: contents(t, `{"key":"first"}`)})
	if d, err := w.proxies.FindByKey(ctx, w.tenant, key("first")); err != nil || d.ID != made.ID {
		t.Errorf("FindByKey = %s, %v", d.ID, err)
	}
	for name, find := range map[string]error{
		"another key":    second(w.proxies.FindByKey(ctx, w.tenant, key("second"))),
		"another tenant": second(w.proxies.FindByKey(ctx, w.other, key("first"))),
		"another kind":   second(w.reactors.FindByKey(ctx, w.tenant, key("first"))),
	} {
		if !errors.Is(find, fault.NotFound) {
			t.Errorf("FindByKey with %s: %v, want not found", name, find)
		}
	}
	_, err := w.proxies.Change(ctx, w.manager(w.tenant), made.ID, audit.Rotate, func(definition.Definition) (definition.Draft, error) {
		return definition.Draft{Name: "x", Contents: contents(t, `{"key":"second"}`)}, nil
	})
	if err != nil || !errors.Is(second(w.proxies.FindByKey(ctx, w.tenant, key("first"))), fault.NotFound) || second(w.proxies.FindByKey(ctx, w.tenant, key("second"))) != nil {
		t.Errorf("after a change of the key: %v", err)
	}
}

func second(_ definition.Definition, err error) error { return err }

// TestADefinitionThatWasChangedByHandIsRefused: whoever writes to the database
// gives no code another application, reaches nothing by another key, and puts
// no contents into another row, of the same kind, another kind or another tenant.
func TestADefinitionThatWasChangedByHandIsRefused(t *testing.T) {
	for name, change := range map[string]func(w *world, r, other *store.Definition){
		"another application": func(_ *world, r, _ *store.Definition) { r.ApplicationID = "private" },
		"no application":      func(_ *world, r, _ *store.Definition) { r.ApplicationID = "" },
		"another's contents":  func(_ *world, r, other *store.Definition) { r.Contents = other.Contents },
		"another's all": func(_ *world, r, other *store.Definition) {
			r.Contents, r.ApplicationID, r.KeyHash = other.Contents, other.ApplicationID, nil
		},
		"another key": func(_ *world, r, _ *store.Definition) { r.KeyHash = bytes.Repeat([]byte{7}, 32) },
		"no key":      func(_ *world, r, _ *store.Definition) { r.KeyHash = nil },
		"a changed bit": func(_ *world, r, _ *store.Definition) {
			r.Contents = bytes.Clone(r.Contents)
			r.Contents[len(r.Contents)-1] ^= 1
		},
		"nothing at all": func(_ *world, r, _ *store.Definition) { r.Contents = nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			made := w.make(w.proxies, definition.Draft{Name: "x", ApplicationID: "public", Contents: contents(t, `{"key":"first","destination":"https://x"}`)})
			other := w.make(w.proxies, definition.Draft{Name: "y", ApplicationID: "private", Contents: contents(t, `{"key":"second","destination":"https://y"}`)})
			row, otherRow := w.row(store.DefinitionProxy, made.ID), w.row(store.DefinitionProxy, other.ID)
			change(w, &row, &otherRow)
			row.Version++
			w.change(w.tenant, func(tx store.Tx) error { return tx.ReplaceDefinition(ctx, row) })
			c := w.manager(w.tenant)
			keep := func(d definition.Definition) (definition.Draft, error) {
				t.Error("a change saw what was changed by hand")
				return definition.Draft{Name: d.Name, ApplicationID: d.ApplicationID, Contents: d.Contents}, nil
			}
			for call, err := range map[string]error{
				"Get":    second(w.proxies.Get(ctx, c, made.ID)),
				"Find":   second(w.proxies.Find(ctx, w.tenant, made.ID)),
				"Change": second(w.proxies.Change(ctx, c, made.ID, audit.Update, keep)),
				"List":   third(w.proxies.List(ctx, c, definition.Filter{}, store.Page{Limit: 10})),
			} {
				if !errors.As(err, new(*keyring.OpenError)) || fault.Of(err).Kind() != fault.Internal {
					t.Errorf("%s = %v, want that it does not open, and no fault of the caller's", call, err)
				}
			}
			if d, err := w.proxies.FindByKey(ctx, w.tenant, secret.NewText("first")); err == nil {
				t.Errorf("FindByKey = %s, want a refusal", d.ID)
			}
		})
	}
}

func third(_ []definition.Definition, _ int64, err error) error { return err }

// TestContentsDoNotMoveBetweenKindsAndTenants puts a sealed row where another belongs.
func TestContentsDoNotMoveBetweenKindsAndTenants(t *testing.T) {
	w := newWorld(t)
	made := w.make(w.reactors, definition.Draft{Name: "x", ApplicationID: "private", Contents: contents(t, `{"code":"1"}`)})
	row := w.row(store.DefinitionReactor, made.ID)
	w.change(w.other, func(tx store.Tx) error { return tx.InsertDefinition(ctx, row) })
	row.Kind = store.DefinitionProxy
	w.change(w.tenant, func(tx store.Tx) error { return tx.InsertDefinition(ctx, row) })
	if err := second(w.reactors.Find(ctx, w.other, made.ID)); !errors.As(err, new(*keyring.OpenError)) {
		t.Errorf("in another tenant: %v, want that it does not open", err)
	}
	if err := second(w.proxies.Find(ctx, w.tenant, made.ID)); !errors.As(err, new(*keyring.OpenError)) {
		t.Errorf("as another kind: %v, want that it does not open", err)
	}
	if err := second(w.reactors.Find(ctx, w.tenant, made.ID)); err != nil {
		t.Errorf("in its place: %v", err)
	}
}

// TestTheLastStepIsPartOfTheChange: when it fails, nothing happened.
func TestTheLastStepIsPartOfTheChange(t *testing.T) {
	w := newWorld(t)
	c := w.manager(w.tenant)
	stop := errors.New("stop")
	fail := func(store.Tx, definition.Definition) error { return stop }
	if _, err := w.reactors.Create(ctx, c, definition.Draft{Name: "x", Contents: contents(t, `{}`)}, fail); !errors.Is(err, stop) {
		t.Errorf("Create = %v, want the error of its last step", err)
	}
	if _, total, err := w.reactors.List(ctx, c, definition.Filter{}, store.Page{Limit: 10}); err != nil || total != 0 {
		t.Errorf("List = %d, %v, want none", total, err)
	}
	made := w.make(w.reactors, definition.Draft{Name: "x", Contents: contents(t, `{}`)})
	_, err := w.reactors.Change(ctx, c, made.ID, audit.Update, func(d definition.Definition) (definition.Draft, error) {
		return definition.Draft{Name: "y", Contents: d.Contents}, nil
	}, fail)
	if got, _ := w.reactors.Get(ctx, c, made.ID); !errors.Is(err, stop) || got.Name != "x" {
		t.Errorf("Change = %v, and the name is %q", err, got.Name)
	}
}

// TestOthersWriteWhileADefinitionIsOpened: what a change makes of a definition is
// not made in the transaction that writes, and no change is lost by that. Were it
// made there, the change inside the change would wait for itself.
func TestOthersWriteWhileADefinitionIsOpened(t *testing.T) {
	w := newWorld(t)
	c := w.manager(w.tenant)
	made := w.make(w.reactors, definition.Draft{Name: "a", Contents: contents(t, `{"code":"1"}`)})
	append1 := func(letter string, between func()) error {
		_, err := w.reactors.Change(ctx, c, made.ID, audit.Update, func(old definition.Definition) (definition.Draft, error) {
			between()
			return definition.Draft{Name: old.Name + letter, Contents: old.Contents}, nil
		})
		return err
	}
	runs := 0
	err := append1("b", func() {
		if runs++; runs == 1 {
			if err := append1("c", func() {}); err != nil {
				t.Errorf("the change in between: %v", err)
			}
		}
	})
	got, errGet := w.reactors.Get(ctx, c, made.ID)
	if err != nil || errGet != nil || runs != 2 || got.Name != "acb" || got.Version != 3 {
		t.Errorf("Change = %v after %d runs, and it is %q of version %d (%v); want acb of version 3 after 2 runs", err, runs, got.Name, got.Version, errGet)
	}
	if n := w.logged(audit.Reactor, made.ID, audit.Update); n != 2 {
		t.Errorf("%d changes are in the log, want 2", n)
	}

	err = append1("d", func() {
		if err := append1("e", func() {}); err != nil {
			t.Errorf("the change in between: %v", err)
		}
	})
	if !errors.Is(err, fault.Conflict) {
		t.Errorf("Change = %v where another is always faster, want a conflict", err)
	}

	err = append1("f", func() {
		if err := w.reactors.Delete(ctx, c, made.ID); err != nil {
			t.Errorf("Delete: %v", err)
		}
	})
	if !errors.Is(err, fault.NotFound) {
		t.Errorf("Change = %v of what was deleted in between, want not found", err)
	}
}

// TestADeletionMindsWhatIsWrittenMeanwhile: the definitions that may name another
// are opened before the transaction that deletes it.
func TestADeletionMindsWhatIsWrittenMeanwhile(t *testing.T) {
	for name, test := range map[string]struct {
		between func(w *world, id string, users []definition.Definition)
		want    string
	}{
		"nothing": {func(*world, string, []definition.Definition) {}, ""},
		"one that names it": {func(w *world, id string, _ []definition.Definition) {
			w.make(w.proxies, definition.Draft{Name: "y", Contents: contents(w.t, `{"key":"third"}`), Reactors: map[string]string{"reactor": id}})
		}, "in use: 1"},
		"one that names another": {func(w *world, _ string, _ []definition.Definition) {
			w.make(w.proxies, definition.Draft{Name: "y", Contents: contents(w.t, `{"key":"third"}`)})
		}, ""},
		"one that names it now": {func(w *world, id string, users []definition.Definition) {
			_, err := w.proxies.Change(ctx, w.manager(w.tenant), users[0].ID, audit.Update, func(old definition.Definition) (definition.Draft, error) {
				return definition.Draft{Name: old.Name, Contents: old.Contents, Reactors: map[string]string{"reactor": id}}, nil
			})
			if err != nil {
				w.t.Error(err)
			}
		}, "in use: 1"},
		"its own deletion": {func(w *world, id string, _ []definition.Definition) {
			w.change(w.tenant, func(tx store.Tx) error { return tx.DeleteDefinition(ctx, store.DefinitionReactor, id) })
		}, "no such thing"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			made := w.make(w.reactors, definition.Draft{Name: "x", Contents: contents(t, `{"code":"1"}`)})
			user := w.make(w.proxies, definition.Draft{Name: "x", Contents: contents(t, `{"key":"first"}`)})
			runs := 0
			w.beforeUpdate = func() {
				if runs++; runs == 1 {
					test.between(w, made.ID, []definition.Definition{user})
				}
			}
			err := w.reactors.Delete(ctx, w.manager(w.tenant), made.ID)
			if (err == nil) != (test.want == "") || err != nil && err.Error() != test.want {
				t.Errorf("Delete = %v, want %q", err, test.want)
			}
		})
	}
}
