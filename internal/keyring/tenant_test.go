package keyring_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

func TestForAsksTheStoreNowAndThenAndTheKMSOnlyForWhatIsNew(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	for _, step := range []struct {
		name          string
		before        func()
		views, unwrap int
	}{
		{"first use", func() {}, 1, 5},
		{"again", func() {}, 0, 0},
		{"just before it is stale", func() { w.clock.Advance(30*time.Second - 1) }, 0, 0},
		{"when it is stale", func() { w.clock.Advance(1) }, 1, 0},
		{"again after that", func() {}, 0, 0},
		{"when the clock was set back", func() { w.clock.Advance(-time.Hour) }, 1, 0},
		{"when the rows changed", func() {
			if _, err := w.local.Rotate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := w.ring.RotateKEK(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			w.clock.Advance(time.Minute)
		}, 1, 5},
		{"when it was forgotten", func() { w.ring.Forget(tenant) }, 1, 5},
		{"when another was forgotten", func() { w.ring.Forget(uuid.NewString()) }, 0, 0},
	} {
		step.before()
		w.watch().from(nil)
		w.keys(tenant)
		if views, unwraps := w.watch().count("View"), w.watch().count("Unwrap"); views != step.views || unwraps != step.unwrap {
			t.Errorf("%s: For made %d views and %d calls of the KMS, want %d and %d", step.name, views, unwraps, step.views, step.unwrap)
		}
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	w := newWorld(t)
	w.ring = w.open(keyring.Options{CacheTenants: 2})
	a, b, c := w.tenant(), w.tenant(), w.tenant()
	for _, step := range []struct {
		name, tenant string
		loaded       bool
	}{
		{"a first", a, true}, {"b first", b, true}, {"a is there", a, false},
		{"c takes the place of b", c, true}, {"a is still there", a, false}, {"b has gone", b, true}, {"c has gone", c, true},
	} {
		w.watch().from(nil)
		w.keys(step.tenant)
		if loaded := w.watch().count("View") > 0; loaded != step.loaded {
			t.Errorf("%s: loaded = %t, want %t", step.name, loaded, step.loaded)
		}
	}
}

func TestAllWhoAskAtOnceWaitForOneLoad(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	entered, release := make(chan struct{}), make(chan struct{})
	w.watch().from(nil)
	w.store.slow = func() {
		close(entered)
		<-release
	}
	var group sync.WaitGroup
	group.Go(func() { w.keys(tenant) })
	<-entered
	w.store.slow = nil
	for range 20 {
		group.Go(func() { w.keys(tenant) })
	}
	// One who gives up does not end the load of the others.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.ring.For(ctx, tenant); !errors.Is(err, context.Canceled) {
		t.Errorf("For of one who gave up = %v, want context.Canceled", err)
	}
	close(release)
	group.Wait()
	if n := w.watch().count("Unwrap"); n != 5 {
		t.Errorf("%d calls of the KMS, want 5", n)
	}
}

func TestKeysDestroyedDuringALoadAreNotKept(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	entered, release := make(chan struct{}), make(chan struct{})
	w.kms.slow = func() {
		close(entered)
		<-release
	}
	done := make(chan error, 1)
	go func() {
		_, err := w.ring.For(t.Context(), tenant)
		done <- err
	}()
	<-entered // the rows have been read
	w.kms.slow = nil
	w.destroy(tenant)
	if _, err := w.ring.For(t.Context(), tenant); !errors.Is(err, keyring.ErrNoKeys) {
		t.Errorf("For after the destruction = %v, want ErrNoKeys", err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Errorf("For that began before = %v", err)
	}
	if _, err := w.ring.For(t.Context(), tenant); !errors.Is(err, keyring.ErrNoKeys) {
		t.Errorf("For after the load ended = %v, want ErrNoKeys", err)
	}
}

func TestADestroyedTenantIsGoneOnEveryNodeSoon(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	other := w.open(keyring.Options{})
	if _, err := other.Epoch(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	w.destroy(tenant)
	if _, err := w.ring.For(t.Context(), tenant); !errors.Is(err, keyring.ErrNoKeys) {
		t.Errorf("For on the node that destroyed = %v, want ErrNoKeys", err)
	}
	w.clock.Advance(30 * time.Second)
	if _, err := other.For(t.Context(), tenant); !errors.Is(err, keyring.ErrNoKeys) {
		t.Errorf("For on another node = %v, want ErrNoKeys", err)
	}
	if _, err := other.Epoch(t.Context(), tenant); !errors.Is(err, keyring.ErrNoKeys) {
		t.Errorf("Epoch on another node = %v, want ErrNoKeys", err)
	}
	if err := w.ring.Status(t.Context(), func(s keyring.TenantStatus) error { return errors.New("still there") }); err != nil {
		t.Errorf("Status = %v, want nothing to tell", err)
	}
}

// destroy destroys a tenant's keys as the deletion of a tenant does.
func (w *world) destroy(tenant string) {
	w.t.Helper()
	w.update(tenant, func(tx store.Tx) error { return tx.DestroyKeysets(w.t.Context()) })
	w.ring.Forget(tenant)
}

func TestAStoreThatIsAwayDoesNotCostTheCache(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	w.keys(tenant)
	w.clock.Advance(time.Minute)
	for _, call := range []string{"View", "Keysets"} {
		w.watch().from(failOn(call, store.ErrUnavailable))
		if _, err := w.ring.For(t.Context(), tenant); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("For = %v, want ErrUnavailable", err)
		}
	}
	w.watch().from(nil)
	w.keys(tenant)
	if n := w.watch().count("Unwrap"); n != 0 {
		t.Errorf("%d calls of the KMS when the store came back, want none", n)
	}
	w.ring.Forget(tenant)
	w.watch().from(failOn("Unwrap", errKilled))
	if _, err := w.ring.For(t.Context(), tenant); !errors.Is(err, errKilled) {
		t.Errorf("For without a KMS = %v, want its error", err)
	}
}

func TestOlderKeysNeverReplaceNewerOnes(t *testing.T) {
	for name, cached := range map[string]bool{"cached": true, "not cached": false} {
		w := newWorld(t)
		tenant := w.tenant()
		old := w.keys(tenant).Primary()
		w.clock.Advance(time.Minute)
		if !cached {
			w.ring.Forget(tenant)
		}
		// A refresh reads the rows and is then overtaken by a whole rotation.
		entered, release := make(chan struct{}), make(chan struct{})
		w.store.slowAfter = func() {
			close(entered)
			<-release
		}
		done := make(chan *keyring.Keys, 1)
		go func() {
			keys, _ := w.ring.For(t.Context(), tenant)
			done <- keys
		}()
		<-entered
		w.store.slowAfter = nil
		if err := w.ring.RotateTenant(t.Context(), tenant, nil); err != nil {
			t.Fatal(err)
		}
		close(release)
		if keys := <-done; keys == nil || keys.Primary() == old {
			t.Errorf("%s: the primary key is still %d after the rotation", name, old)
		}
	}
}

func TestForIsSafeForConcurrentUse(t *testing.T) {
	w := newWorld(t)
	w.ring = w.open(keyring.Options{CacheTenants: 2, CacheFor: time.Nanosecond})
	tenants := []string{w.tenant(), w.tenant(), w.tenant()}
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() {
			for j := range 30 {
				tenant := tenants[(i+j)%3]
				keys, err := w.ring.For(t.Context(), tenant)
				if err != nil {
					t.Errorf("For = %v", err)
					return
				}
				record := fmt.Sprint(i, j)
				if got, err := keys.Open(record, "f", mustSeal(t, keys, record, "f", tenant)); err != nil || string(got) != tenant {
					t.Errorf("Open = %q, %v", got, err)
				}
				w.clock.Advance(time.Second)
				if j%10 == 0 {
					w.ring.Forget(tenant)
				}
			}
		})
	}
	group.Wait()
}

func TestUnstoredKeysSealWhatATenantBeginsWith(t *testing.T) {
	w := newWorld(t)
	ctx, tenant := t.Context(), uuid.NewString()
	sets, err := w.ring.NewTenant(ctx, tenant)
	if err != nil {
		t.Fatal(err)
	}
	unstored, err := w.ring.Unstored(ctx, tenant, sets)
	if err != nil {
		t.Fatal(err)
	}
	sealed := mustSeal(t, unstored, tenant, keyring.FieldTenantSecrets, "first secret")
	w.update(tenant, func(tx store.Tx) error {
		errs := []error{tx.InsertTenant(ctx, store.Tenant{ID: tenant, Name: "test"})}
		for _, set := range sets {
			errs = append(errs, tx.PutKeyset(ctx, set))
		}
		return errors.Join(errs...)
	})
	if got, err := w.keys(tenant).Open(tenant, keyring.FieldTenantSecrets, sealed); string(got) != "first secret" || err != nil {
		t.Errorf("Open = %q, %v", got, err)
	}
	if _, err := w.ring.Unstored(ctx, uuid.NewString(), sets); !errors.Is(err, keyring.ErrUnwrap) {
		t.Errorf("Unstored for another tenant = %v, want ErrUnwrap", err)
	}
}
