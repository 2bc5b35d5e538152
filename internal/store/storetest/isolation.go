package storetest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

var isolationTests = []test{
	{"every method of a transaction is tried", everyMethodIsTried},
	{"a transaction without a tenant reaches nothing", noTenant},
	{"the case of a tenant id does not matter", tenantCase},
	{"an empty tenant sees and changes nothing of another", emptyTenant},
	{"a tenant with the same ids keeps its own rows", sameIDs},
	{"epoch keys are apart", epochIsolation},
}

// everyMethodIsTried keeps the table of methods complete when Tx grows.
func everyMethodIsTried(f *fixture) {
	t := reflect.TypeFor[store.Tx]()
	for i := range t.NumMethod() {
		name := t.Method(i).Name
		if name != "Tenant" && !slices.ContainsFunc(methods, func(m method) bool { return m.name == name }) {
			f.Errorf("store.Tx has a method %s that the suite does not try", name)
		}
	}
}

func noTenant(f *fixture) {
	for name, id := range map[string]string{
		"empty":          "",
		"nil":            "00000000-0000-0000-0000-000000000000",
		"a word":         "tenant",
		"no dashes":      strings.ReplaceAll(tenantA, "-", ""),
		"in braces":      "{" + tenantA + "}",
		"as a URN":       "urn:uuid:" + tenantA,
		"a space behind": tenantA + " ",
		"a space before": " " + tenantA,
		"a wrong digit":  "g" + tenantA[1:],
		"a NUL inside":   tenantA[:35] + "\x00",
	} {
		untouched := func(store.Tx) error { f.Errorf("%s: the function was run", name); return nil }
		if err := f.View(f.Context(), id, untouched); !errors.Is(err, store.ErrNoTenant) {
			f.Errorf("View, %s: got error %v, want %v", name, err, store.ErrNoTenant)
		}
		if err := f.Read(f.Context(), id, untouched); !errors.Is(err, store.ErrNoTenant) {
			f.Errorf("Read, %s: got error %v, want %v", name, err, store.ErrNoTenant)
		}
		if err := f.Update(f.Context(), id, untouched); !errors.Is(err, store.ErrNoTenant) {
			f.Errorf("Update, %s: got error %v, want %v", name, err, store.ErrNoTenant)
		}
		keys := f.EpochKeys()
		_, errGet := keys.EpochKey(f.Context(), id, 1)
		_, errAdd := keys.AddEpochKey(f.Context(), id, 1, []byte("wrapped"))
		errReplace := keys.ReplaceEpochKey(f.Context(), id, 1, []byte("wrapped"))
		_, errList := keys.EpochKeyList(f.Context(), id)
		errDestroy := keys.DestroyTenantEpochKeys(f.Context(), id)
		for i, err := range []error{errGet, errAdd, errReplace, errList, errDestroy} {
			if !errors.Is(err, store.ErrNoTenant) {
				f.Errorf("epoch key method %d, %s: got error %v, want %v", i, name, err, store.ErrNoTenant)
			}
		}
	}
}

func tenantCase(f *fixture) {
	lower, upper := "abcdefab-cdef-4abc-8def-abcdefabcdef", "ABCDEFAB-CDEF-4ABC-8DEF-ABCDEFABCDEF"
	f.fill(upper)
	want := f.contents(lower)
	f.same("contents under the id in capitals", f.contents(upper), want)
	f.view(upper, func(_ context.Context, tx store.Tx) error {
		f.same("Tenant()", tx.Tenant(), lower)
		return nil
	})
	f.same("tenant id in its row", want.Tenant[0].ID, lower)
}

func emptyTenant(f *fixture) {
	f.fill(tenantA)
	want := f.contents(tenantA)
	for _, m := range methods {
		if m.writes {
			continue
		}
		f.view(tenantB, func(ctx context.Context, tx store.Tx) error {
			if seen, err := m.call(ctx, tx); seen != 0 || !errors.Is(err, m.absent) {
				f.Errorf("%s for an empty tenant: got %d rows, error %v; want none, error %v", m.name, seen, err, m.absent)
			}
			return nil
		})
	}
	for _, m := range methods {
		if !m.writes {
			continue
		}
		var more int
		if m.name != "InsertTenant" && m.name != "ReplaceTenant" {
			f.people(tenantB) // its own row is all that it has
		}
		err := f.Update(f.Context(), tenantB, func(tx store.Tx) (err error) {
			more, err = m.call(f.Context(), tx)
			return err
		})
		if !errors.Is(err, m.absent) || more != 0 {
			f.Errorf("%s for an empty tenant: got %d, error %v; want 0, error %v", m.name, more, err, m.absent)
		}
		f.same("contents of the other tenant after "+m.name, f.contents(tenantA), want)
		f.update(tenantB, func(ctx context.Context, tx store.Tx) error {
			_, err := tx.DeleteTenantRows(ctx, 1000)
			return err
		})
	}
	f.same("contents of the other tenant in the end", f.contents(tenantA), want)
	f.sound()
}

func sameIDs(f *fixture) {
	f.fill(tenantA)
	f.fill(tenantB)
	want := f.contents(tenantA)
	for _, m := range methods {
		if !m.writes || m.name == "InsertTenant" {
			continue
		}
		f.update(tenantB, func(ctx context.Context, tx store.Tx) error {
			_, err := m.call(ctx, tx)
			return err
		})
		f.same("contents of the other tenant after "+m.name, f.contents(tenantA), want)
		f.sound()
		// Back to the start for the next method.
		f.update(tenantB, func(ctx context.Context, tx store.Tx) error {
			_, err := tx.DeleteTenantRows(ctx, 1000)
			return err
		})
		f.fill(tenantB)
	}
}

func epochIsolation(f *fixture) {
	ctx, keys := f.Context(), f.EpochKeys()
	for _, id := range []string{tenantA, tenantB} {
		if _, err := keys.AddEpochKey(ctx, id, 7, []byte("key of "+id)); err != nil {
			f.Fatalf("AddEpochKey: %v", err)
		}
	}
	if err := keys.ReplaceEpochKey(ctx, tenantB, 7, []byte("other")); err != nil {
		f.Fatalf("ReplaceEpochKey: %v", err)
	}
	if err := keys.DestroyTenantEpochKeys(ctx, tenantB); err != nil {
		f.Fatalf("DestroyTenantEpochKeys: %v", err)
	}
	got, err := keys.EpochKey(ctx, tenantA, 7)
	if string(got) != "key of "+tenantA || err != nil {
		f.Errorf("EpochKey of the other tenant: got %q, error %v; want it untouched", got, err)
	}
	if _, err := keys.EpochKey(ctx, tenantB, 7); !errors.Is(err, store.ErrNotFound) {
		f.Errorf("EpochKey after the tenant's were destroyed: got error %v, want %v", err, store.ErrNotFound)
	}
}
