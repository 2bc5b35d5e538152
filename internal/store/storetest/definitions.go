package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

var definitionTests = []test{
	{"a definition comes back whole, by id and key", definitionComesBack},
	{"ids are taken in their kind, and hashes once", definitionTaken},
	{"a replacement changes everything but what never changes", definitionReplacement},
	{"a replacement needs the next version", definitionVersions},
	{"a list by kind, id and application, newest first, in pages", definitionList},
	{"a walk over all kinds meets definitions of one id and instant", definitionWalk},
	{"a name is found whatever its case, and a star is the only wildcard", definitionNames},
	{"a name that was changed is found by the new one", definitionRenamed},
}

func insertDefinition(d store.Definition) func(context.Context, store.Tx) error {
	return func(ctx context.Context, tx store.Tx) error { return tx.InsertDefinition(ctx, d) }
}

// proxy is the n-th proxy.
func proxy(n int) store.Definition { return definition(store.DefinitionProxy, n) }

// reactor is the n-th reactor, which has no key.
func reactor(n int) store.Definition {
	return version2(definition(store.DefinitionReactor, n), func(d *store.Definition) { d.KeyHash = nil })
}

func definitionComesBack(f *fixture) {
	for _, d := range []store.Definition{proxy(1), reactor(1), reactor(2)} {
		f.update(tenantA, insertDefinition(d))
	}
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		byID, errID := tx.Definition(ctx, store.DefinitionReactor, reactor(1).ID)
		byKey, errKey := tx.DefinitionByKey(ctx, proxy(1).KeyHash)
		f.same("Definition", byID, reactor(1))
		f.same("DefinitionByKey", byKey, proxy(1))
		for _, c := range [][2]string{{store.DefinitionProxy, reactor(2).ID}, {store.DefinitionReactor, "nope"}, {"", reactor(1).ID}} {
			if _, err := tx.Definition(ctx, c[0], c[1]); !errors.Is(err, store.ErrNotFound) {
				f.Errorf("Definition(%q): got error %v, want %v", c, err, store.ErrNotFound)
			}
		}
		for _, hash := range [][]byte{nil, {}, []byte("hash"), append(proxy(1).KeyHash, ' ')} {
			if _, err := tx.DefinitionByKey(ctx, hash); !errors.Is(err, store.ErrNotFound) {
				f.Errorf("DefinitionByKey(%q): got error %v, want %v", hash, err, store.ErrNotFound)
			}
		}
		return errors.Join(errID, errKey)
	})
}

func definitionTaken(f *fixture) {
	f.update(tenantA, insertDefinition(proxy(1)))
	f.update(tenantA, insertDefinition(reactor(1))) // the same id in another kind
	f.refused("InsertDefinition of an id that is taken", tenantA, store.ErrExists, insertDefinition(version2(proxy(1), func(d *store.Definition) { d.KeyHash = nil })))
	for _, kind := range []string{store.DefinitionProxy, store.DefinitionReactor} {
		f.refused("InsertDefinition with a hash that is taken", tenantA, store.ErrExists,
			insertDefinition(version2(definition(kind, 2), func(d *store.Definition) { d.KeyHash = proxy(1).KeyHash })))
	}
	f.update(tenantA, insertDefinition(proxy(2)))
	f.refused("ReplaceDefinition with a hash that is taken", tenantA, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
		return tx.ReplaceDefinition(ctx, version2(proxy(2), func(d *store.Definition) { d.Version, d.KeyHash = 2, proxy(1).KeyHash }))
	})
	remove := func(ctx context.Context, tx store.Tx) error {
		return tx.DeleteDefinition(ctx, store.DefinitionProxy, proxy(1).ID)
	}
	f.update(tenantA, remove)
	f.refused("DeleteDefinition again", tenantA, store.ErrNotFound, remove)
	f.same("definitions", f.contents(tenantA).Definitions, []store.Definition{reactor(1), proxy(2)})
}

func definitionReplacement(f *fixture) {
	f.update(tenantA, insertDefinition(proxy(1)))
	changed := store.Definition{
		Kind: store.DefinitionProxy, ID: proxy(1).ID, Name: "New name", ApplicationID: "", KeyHash: []byte("new hash"), Contents: []byte("new contents"),
		CreatedBy: "a forger", CreatedAt: day + 99*hour, ModifiedBy: "changer", ModifiedAt: day + hour, Version: 2,
	}
	want := changed
	want.CreatedBy, want.CreatedAt = proxy(1).CreatedBy, proxy(1).CreatedAt
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.ReplaceDefinition(ctx, changed) })
	f.same("definitions", f.contents(tenantA).Definitions, []store.Definition{want})
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		if _, err := tx.DefinitionByKey(ctx, proxy(1).KeyHash); !errors.Is(err, store.ErrNotFound) {
			f.Errorf("DefinitionByKey with the old hash: got error %v, want %v", err, store.ErrNotFound)
		}
		got, err := tx.DefinitionByKey(ctx, changed.KeyHash)
		f.same("DefinitionByKey with the new hash", got, want)
		return err
	})
}

func definitionVersions(f *fixture) {
	f.update(tenantA, insertDefinition(proxy(1)))
	for _, version := range []int64{-1, 0, 1, 3} {
		f.refused(fmt.Sprintf("ReplaceDefinition with version %d over 1", version), tenantA, store.ErrConflict, func(ctx context.Context, tx store.Tx) error {
			return tx.ReplaceDefinition(ctx, version2(proxy(1), func(d *store.Definition) { d.Version = version }))
		})
	}
	f.refused("ReplaceDefinition of one that is not there", tenantA, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.ReplaceDefinition(ctx, version2(reactor(1), func(d *store.Definition) { d.Version = 2 }))
	})
	f.same("definitions", f.contents(tenantA).Definitions, []store.Definition{proxy(1)})
}

func definitionList(f *fixture) {
	applications := []string{"", "one", "two"}
	var rows []store.Definition // newest first
	for n := range 18 {
		d := proxy(n)
		if n%2 == 0 {
			d = reactor(n)
		}
		d.ApplicationID, d.CreatedAt = applications[n%3], day+store.Time(n/4) // two of a kind at an instant
		f.update(tenantA, insertDefinition(d))
		rows = append([]store.Definition{d}, rows...)
	}
	ids := []string{proxy(3).ID, proxy(4).ID, proxy(9).ID, "nope", "\x00"}
	for _, filter := range []store.DefinitionFilter{
		{Kind: store.DefinitionProxy}, {Kind: store.DefinitionReactor}, {Kind: "robot"}, {Kind: store.DefinitionProxy, IDs: ids},
		{Kind: store.DefinitionReactor, IDs: ids}, {Kind: store.DefinitionProxy, ApplicationID: "one"}, {Kind: store.DefinitionReactor, ApplicationID: "two"},
		{Kind: store.DefinitionReactor, ApplicationID: "three"}, {Kind: store.DefinitionProxy, ApplicationID: "one", IDs: []string{proxy(1).ID, proxy(3).ID}},
		{Kind: store.DefinitionProxy, ApplicationID: "one", Name: "1"}, {Kind: store.DefinitionProxy, Name: "7"},
	} {
		var want []string
		for _, d := range rows {
			if d.Kind == filter.Kind && (filter.ApplicationID == "" || filter.ApplicationID == d.ApplicationID) &&
				(len(filter.IDs) == 0 || slices.Contains(filter.IDs, d.ID)) && strings.Contains(d.Name, filter.Name) {
				want = append(want, d.ID)
			}
		}
		what := fmt.Sprintf("definitions by %q", filter)
		pages(f, what, want,
			func(ctx context.Context, tx store.Tx, p store.Page) ([]store.Definition, error) {
				return tx.Definitions(ctx, filter, p)
			},
			func(d store.Definition) string { return d.ID },
			func(d store.Definition) store.Position { return store.Position{CreatedAt: d.CreatedAt, ID: d.ID} })
		f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
			n, err := tx.CountDefinitions(ctx, filter)
			f.same("count of "+what, n, int64(len(want)))
			return err
		})
	}
}

func definitionWalk(f *fixture) {
	for _, filter := range []store.DefinitionFilter{{}, {ApplicationID: proxy(1).ApplicationID}, {Name: "definition"}} {
		var want []string
		for _, kind := range []string{store.DefinitionReactor, store.DefinitionProxy} { // by their names, from the last
			for n := 4; n >= 0; n-- {
				d := version2(definition(kind, n), func(d *store.Definition) { d.CreatedAt = day })
				want = append(want, d.Record())
				f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
					if _, err := tx.Definition(ctx, d.Kind, d.ID); err == nil {
						return nil
					}
					return tx.InsertDefinition(ctx, d)
				})
			}
		}
		pages(f, fmt.Sprintf("definitions of all kinds by %q", filter), want,
			func(ctx context.Context, tx store.Tx, p store.Page) ([]store.Definition, error) {
				return tx.Definitions(ctx, filter, p)
			},
			store.Definition.Record,
			func(d store.Definition) store.Position {
				return store.Position{CreatedAt: d.CreatedAt, ID: d.ID, Kind: d.Kind}
			})
	}
}

// finds returns the names of the reactors that a name finds, sorted.
func (f *fixture) finds(name string) (found []string) {
	f.Helper()
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		filter := store.DefinitionFilter{Kind: store.DefinitionReactor, Name: name}
		list, err := tx.Definitions(ctx, filter, large)
		if err != nil {
			return err
		}
		for _, d := range list {
			found = append(found, d.Name)
		}
		n, err := tx.CountDefinitions(ctx, filter)
		f.same(fmt.Sprintf("count of reactors named %q", name), n, int64(len(list)))
		return err
	})
	slices.Sort(found)
	return found
}

func definitionNames(f *fixture) {
	for n, name := range []string{
		"Card Check", "card check 2", "check", "100%", "1000", "a_b", "aXb", `back\slash`, `back\\slash`, "Über Straße", "ΣΊΣΥΦΟΣ", "ǅ", "İstanbul", "[a-c]", "a?c",
		"'; DROP TABLE", "two\nlines", "",
	} {
		f.update(tenantA, insertDefinition(version2(reactor(n), func(d *store.Definition) { d.Name = name })))
	}
	f.update(tenantB, insertDefinition(version2(reactor(1), func(d *store.Definition) { d.Name = "check of another tenant" })))
	for _, c := range []struct {
		name string
		want []string
	}{
		{"check", []string{"Card Check", "card check 2", "check"}},
		{"CHECK", []string{"Card Check", "card check 2", "check"}},
		{"check*", []string{"check"}},
		{"*check", []string{"Card Check", "check"}},
		{"c*k", []string{"Card Check", "check"}},
		{"CARD*", []string{"Card Check", "card check 2"}},
		{"card*2", []string{"card check 2"}},
		{"*a*d*c*", []string{"Card Check", "card check 2"}},
		{"*check*", []string{"Card Check", "card check 2", "check"}},
		{"**check", []string{"Card Check", "check"}},
		{"%", []string{"100%"}},
		{"100%", []string{"100%"}},
		{"1*%", []string{"100%"}},
		{"_", []string{"a_b"}},
		{"a_b", []string{"a_b"}},
		{"A*B", []string{"aXb", "a_b"}},
		{`\`, []string{`back\\slash`, `back\slash`}},
		{`\\`, []string{`back\\slash`}},
		{`k\s`, []string{`back\slash`}},
		{`\*`, nil},
		{`*\s*`, []string{`back\\slash`, `back\slash`}},
		{"über straße", []string{"Über Straße"}},
		{"ÜBER STRAẞE", []string{"Über Straße"}},
		{"strasse", nil},
		{"uber", nil},
		{"σίσυφος", []string{"ΣΊΣΥΦΟΣ"}}, // with both forms of the small letter
		{"ǆ", []string{"ǅ"}},
		{"Ǆ", []string{"ǅ"}},
		{"İSTANBUL", []string{"İstanbul"}},
		{"istanbul", nil},
		{"[a", []string{"[a-c]"}},
		{"[a-c]*", []string{"[a-c]"}},
		{"a?c", []string{"a?c"}},
		{"'", []string{"'; DROP TABLE"}},
		{"two*lines", []string{"two\nlines"}},
		{"nope", nil},
		{"\x00", nil},
	} {
		f.same(fmt.Sprintf("reactors named %q", c.name), f.finds(c.name), c.want)
	}
	f.same("reactors of any name", len(f.finds("*")), 18)
	f.same("reactors without a filter", len(f.finds("")), 18)
}

func definitionRenamed(f *fixture) {
	f.update(tenantA, insertDefinition(version2(reactor(1), func(d *store.Definition) { d.Name = "Before" })))
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		return tx.ReplaceDefinition(ctx, version2(reactor(1), func(d *store.Definition) { d.Name, d.Version = "After", 2 }))
	})
	f.same("by its old name", f.finds("before"), []string(nil))
	f.same("by its new name", f.finds("after"), []string{"After"})
}
