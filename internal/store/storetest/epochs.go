package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

var epochTests = []test{
	{"all who ask at once get the same key", epochSameForAll},
	{"a key is replaced only while it is there", epochReplacement},
	{"keys are destroyed before an epoch, of all tenants", epochDestruction},
	{"keys survive a restart, and destroyed ones do not come back", epochReopen},
}

func (f *fixture) addEpoch(tenant string, epoch int64, key string) string {
	f.Helper()
	got, err := f.EpochKeys().AddEpochKey(f.Context(), tenant, epoch, []byte(key))
	if err != nil {
		f.Fatalf("AddEpochKey(%d): %v", epoch, err)
	}
	return string(got)
}

// epochs checks which epochs of a tenant have a key.
func (f *fixture) epochs(s store.Store, tenant string, want ...int64) {
	f.Helper()
	got, err := s.EpochKeys().EpochKeyList(f.Context(), tenant)
	if err != nil {
		f.Fatalf("EpochKeyList: %v", err)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		f.Errorf("EpochKeyList: got %v, want %v", got, want)
	}
	for _, epoch := range got {
		if _, err := s.EpochKeys().EpochKey(f.Context(), tenant, epoch); err != nil {
			f.Errorf("EpochKey(%d), which is listed: %v", epoch, err)
		}
	}
}

func epochSameForAll(f *fixture) {
	var mu sync.Mutex
	got := map[string]int{}
	inParallel(16, func(i int) {
		key, err := f.EpochKeys().AddEpochKey(f.Context(), tenantA, 5, fmt.Appendf(nil, "made by %d", i))
		if err != nil {
			f.Errorf("AddEpochKey: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		got[string(key)]++
	})
	kept, err := f.EpochKeys().EpochKey(f.Context(), tenantA, 5)
	if len(got) != 1 || got[string(kept)] != 16 || err != nil {
		f.Errorf("16 callers got %v; %q was kept, error %v", got, kept, err)
	}
	f.epochs(f.Store, tenantA, 5)
}

func epochReplacement(f *fixture) {
	ctx, keys := f.Context(), f.EpochKeys()
	if err := keys.ReplaceEpochKey(ctx, tenantA, 1, []byte("x")); !errors.Is(err, store.ErrNotFound) {
		f.Errorf("ReplaceEpochKey of none: got error %v, want %v", err, store.ErrNotFound)
	}
	f.same("key added", f.addEpoch(tenantA, 1, "first"), "first")
	f.same("key added again", f.addEpoch(tenantA, 1, "second"), "first")
	if err := keys.ReplaceEpochKey(ctx, tenantA, 1, []byte("wrapped anew")); err != nil {
		f.Fatalf("ReplaceEpochKey: %v", err)
	}
	f.same("key after the replacement", f.addEpoch(tenantA, 1, "third"), "wrapped anew")
	if _, err := keys.DestroyEpochKeys(ctx, 2, 2); err != nil {
		f.Fatalf("DestroyEpochKeys: %v", err)
	}
	if err := keys.ReplaceEpochKey(ctx, tenantA, 1, []byte("x")); !errors.Is(err, store.ErrNotFound) {
		f.Errorf("ReplaceEpochKey of a destroyed one: got error %v, want %v", err, store.ErrNotFound)
	}
	if _, err := keys.EpochKey(ctx, tenantA, 1); !errors.Is(err, store.ErrNotFound) {
		f.Errorf("EpochKey of a destroyed one: got error %v, want %v", err, store.ErrNotFound)
	}
}

func epochDestruction(f *fixture) {
	for epoch := int64(-2); epoch < 8; epoch++ {
		f.addEpoch(tenantA, epoch, fmt.Sprint("a", epoch))
		f.addEpoch(tenantB, epoch, fmt.Sprint("b", epoch))
	}
	n, err := f.EpochKeys().DestroyEpochKeys(f.Context(), 3, 6)
	if n != 12 || err != nil {
		f.Errorf("DestroyEpochKeys(3, 6): got %d, error %v; want 12", n, err)
	}
	f.epochs(f.Store, tenantA, 3, 4, 5, 6)
	f.epochs(f.Store, tenantB, 3, 4, 5, 6)
	if n, err := f.EpochKeys().DestroyEpochKeys(f.Context(), 3, 6); n != 0 || err != nil {
		f.Errorf("DestroyEpochKeys(3, 6) again: got %d, error %v; want 0", n, err)
	}
	if err := f.EpochKeys().DestroyTenantEpochKeys(f.Context(), tenantA); err != nil {
		f.Errorf("DestroyTenantEpochKeys: %v", err)
	}
	f.epochs(f.Store, tenantA)
	f.epochs(f.Store, tenantB, 3, 4, 5, 6)
	// Places that became free are used again, for the right tenant.
	for epoch := int64(10); epoch < 25; epoch++ {
		f.addEpoch(tenantC, epoch, fmt.Sprint("c", epoch))
	}
	for epoch := int64(10); epoch < 25; epoch++ {
		got, err := f.EpochKeys().EpochKey(f.Context(), tenantC, epoch)
		if string(got) != fmt.Sprint("c", epoch) || err != nil {
			f.Errorf("EpochKey(%d): got %q, error %v", epoch, got, err)
		}
	}
}

func epochReopen(f *fixture) {
	for epoch := int64(1); epoch <= 6; epoch++ {
		f.addEpoch(tenantA, epoch, fmt.Sprint("key ", epoch))
	}
	if _, err := f.EpochKeys().DestroyEpochKeys(f.Context(), 4, 6); err != nil {
		f.Fatalf("DestroyEpochKeys: %v", err)
	}
	if err := f.EpochKeys().ReplaceEpochKey(f.Context(), tenantA, 5, []byte("wrapped anew")); err != nil {
		f.Fatalf("ReplaceEpochKey: %v", err)
	}
	if err := f.Close(); err != nil {
		f.Fatalf("Close: %v", err)
	}
	s := f.again()
	f.epochs(s, tenantA, 4, 5, 6)
	for epoch, want := range map[int64]string{4: "key 4", 5: "wrapped anew", 6: "key 6"} {
		got, err := s.EpochKeys().EpochKey(f.Context(), tenantA, epoch)
		if string(got) != want || err != nil {
			f.Errorf("EpochKey(%d) after the restart: got %q, error %v; want %q", epoch, got, err, want)
		}
	}
	if err := s.EpochKeys().ReplaceEpochKey(f.Context(), tenantA, 2, []byte("x")); !errors.Is(err, store.ErrNotFound) {
		f.Errorf("ReplaceEpochKey of a destroyed one after the restart: got error %v, want %v", err, store.ErrNotFound)
	}
}
