package sqlite_test

import (
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// open opens the store in dir for the length of a test, with some tenants.
func open(t testing.TB, dir string, o sqlite.Options) *sqlite.Store {
	t.Helper()
	s := openBare(t, dir, o)
	if err := storetest.AddTenants(t.Context(), s, storetest.Tenants()...); err != nil {
		t.Fatal(err)
	}
	return s
}

func openBare(t testing.TB, dir string, o sqlite.Options) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), dir, o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// A term is common here when four tokens have it, so that the tests meet both
// sides of that line. The true one has a test of its own.
func TestSuite(t *testing.T) {
	o := sqlite.Options{CommonTerm: 4}
	storetest.Run(t, func(t *testing.T) (store.Store, func() store.Store) {
		dir := t.TempDir()
		return openBare(t, dir, o), func() store.Store { return openBare(t, dir, o) }
	})
}

func TestContainersOfATenantAreBounded(t *testing.T) {
	storetest.RunContainers(t, func(t *testing.T, maxContainers int64) store.Store {
		return openBare(t, t.TempDir(), sqlite.Options{MaxContainers: maxContainers})
	}, nil)
}
