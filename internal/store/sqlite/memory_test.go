package sqlite_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// remembering is a store with one application that has a key.
type remembering struct {
	*sqlite.Store
	tenant      string
	application store.Application
	key         store.Key
}

func newRemembering(t *testing.T) *remembering {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "data"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	r := &remembering{Store: s, tenant: uuid.NewString()}
	if err := storetest.AddTenants(t.Context(), s, r.tenant); err != nil {
		t.Fatal(err)
	}
	r.application = store.Application{ID: uuid.NewString(), Name: "first", Type: "private", CreatedAt: 1, Version: 1}
	r.key = store.Key{ID: uuid.NewString(), ApplicationID: r.application.ID, Version: 1, Hash: make([]byte, 32), CreatedAt: 1}
	r.update(t, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.InsertApplication(ctx, r.application), tx.InsertKey(ctx, r.key))
	})
	return r
}

func (r *remembering) update(t *testing.T, fn func(context.Context, store.Tx) error) {
	t.Helper()
	if err := r.Update(t.Context(), r.tenant, func(tx store.Tx) error { return fn(t.Context(), tx) }); err != nil {
		t.Fatal(err)
	}
}

func (r *remembering) find(ctx context.Context) (a store.Application, err error) {
	err = r.View(ctx, r.tenant, func(tx store.Tx) (err error) {
		_, a, err = tx.KeyByHash(ctx, r.key.Hash)
		return err
	})
	return a, err
}

func TestWhatIsRememberedIsWhatWasAcknowledged(t *testing.T) {
	t.Run("a change", func(t *testing.T) {
		r := newRemembering(t)
		for i := range 3 {
			if got, err := r.find(t.Context()); err != nil || got.Version != int64(i+1) {
				t.Fatalf("got version %d and error %v, want %d", got.Version, err, i+1)
			}
			r.application.Version++
			r.update(t, func(ctx context.Context, tx store.Tx) error { return tx.ReplaceApplication(ctx, r.application) })
		}
	})
	for name, take := range map[string]func(context.Context, store.Tx, *remembering) error{
		"a key that goes": func(ctx context.Context, tx store.Tx, r *remembering) error {
			return tx.DeleteKey(ctx, r.application.ID, r.key.ID)
		},
		"an application that goes": func(ctx context.Context, tx store.Tx, r *remembering) error {
			return tx.DeleteApplication(ctx, r.application.ID)
		},
		"a tenant that goes": func(ctx context.Context, tx store.Tx, _ *remembering) error {
			_, err := tx.DeleteTenantRows(ctx, 1000)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRemembering(t)
			if _, err := r.find(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.update(t, func(ctx context.Context, tx store.Tx) error { return take(ctx, tx, r) })
			if _, err := r.find(t.Context()); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("got error %v, want %v", err, store.ErrNotFound)
			}
		})
	}
	t.Run("another tenant's key", func(t *testing.T) {
		r := newRemembering(t)
		if _, err := r.find(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.tenant = uuid.NewString()
		if _, err := r.find(t.Context()); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("got error %v, want %v", err, store.ErrNotFound)
		}
	})
	t.Run("a transaction that changes it sees its own change", func(t *testing.T) {
		r := newRemembering(t)
		if _, err := r.find(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.update(t, func(ctx context.Context, tx store.Tx) error {
			if err := tx.DeleteKey(ctx, r.application.ID, r.key.ID); err != nil {
				return err
			}
			if _, _, err := tx.KeyByHash(ctx, r.key.Hash); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("got error %v, want %v", err, store.ErrNotFound)
			}
			return nil
		})
	})
}

// A view that was answered from memory and goes on must not mix two moments.
func TestAViewDoesNotMixMemoryWithALaterSnapshot(t *testing.T) {
	r := newRemembering(t)
	if _, err := r.find(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := r.View(t.Context(), r.tenant, func(tx store.Tx) error {
		if _, _, err := tx.KeyByHash(t.Context(), r.key.Hash); err != nil {
			return err
		}
		_, err := tx.Application(t.Context(), r.application.ID)
		return err
	})
	if err != nil {
		t.Errorf("nothing changed meanwhile: got error %v", err)
	}
	var seen [][2]int64 // by the key, and by the application's own id
	err = r.View(t.Context(), r.tenant, func(tx store.Tx) error {
		_, byKey, err := tx.KeyByHash(t.Context(), r.key.Hash)
		if err != nil {
			return err
		}
		if len(seen) == 0 {
			r.application.Version++
			r.update(t, func(ctx context.Context, tx store.Tx) error { return tx.ReplaceApplication(ctx, r.application) })
		}
		byID, err := tx.Application(t.Context(), r.application.ID)
		seen = append(seen, [2]int64{byKey.Version, byID.Version})
		return err
	})
	if now := r.application.Version; err != nil || len(seen) != 2 || seen[1] != [2]int64{now, now} {
		t.Errorf("changed meanwhile: saw versions %v and error %v; want a second run that sees %d twice", seen, err, now)
	}
	// A function that lets the error pass is not believed.
	if _, err := r.find(t.Context()); err != nil {
		t.Fatal(err)
	}
	runs := 0
	err = r.View(t.Context(), r.tenant, func(tx store.Tx) error {
		if _, _, err := tx.KeyByHash(t.Context(), r.key.Hash); err != nil {
			return err
		}
		if runs++; runs == 1 {
			r.application.Version++
			r.update(t, func(ctx context.Context, tx store.Tx) error { return tx.ReplaceApplication(ctx, r.application) })
		}
		_, _ = tx.Application(t.Context(), r.application.ID)
		return nil
	})
	if err != nil || runs != 2 {
		t.Errorf("changed meanwhile: %d runs and error %v, want 2 runs", runs, err)
	}
}

// Readers that fill the memory race with the writer: what a reader is told
// after a change was acknowledged is never older than the change.
func TestNothingOlderIsRememberedWhileItChanges(t *testing.T) {
	r := newRemembering(t)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if _, err := r.find(context.WithoutCancel(t.Context())); err != nil {
						t.Errorf("read: %v", err)
						return
					}
				}
			}
		})
	}
	for range 100 {
		r.application.Version++
		r.update(t, func(ctx context.Context, tx store.Tx) error { return tx.ReplaceApplication(ctx, r.application) })
		if got, err := r.find(t.Context()); err != nil || got.Version != r.application.Version {
			t.Fatalf("got version %d and error %v, want %d", got.Version, err, r.application.Version)
		}
	}
	close(stop)
	readers.Wait()
}

// What a view was told from memory and what it reads go together although
// other rows change in between.
func TestAChangeOfOtherRowsDisturbsNoView(t *testing.T) {
	r := newRemembering(t)
	if _, err := r.find(t.Context()); err != nil { // remembered from here on
		t.Fatal(err)
	}
	err := r.View(t.Context(), r.tenant, func(tx store.Tx) error {
		if _, _, err := tx.KeyByHash(t.Context(), r.key.Hash); err != nil {
			return err
		}
		if err := storetest.AddTenants(t.Context(), r.Store, uuid.NewString()); err != nil {
			return err
		}
		_, err := tx.CountLogs(t.Context(), store.LogFilter{})
		return err
	})
	if err != nil {
		t.Errorf("a view beside a change of another tenant: %v", err)
	}
}
