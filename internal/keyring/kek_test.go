package keyring_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// newKEK gives the installation a new primary KEK and returns the old one's id.
func (w *world) newKEK() (old string) {
	w.t.Helper()
	old = w.local.Primary()
	if _, err := w.local.Rotate(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return old
}

// wrappedBy counts the keysets of tenants that a KEK wraps.
func (w *world) wrappedBy(id string, tenants ...string) (n int) {
	w.t.Helper()
	for _, tenant := range tenants {
		for _, set := range w.keysets(tenant) {
			if set.KEK == id {
				n++
			}
		}
	}
	return n
}

func TestRotateKEKWrapsEverythingAnewAndChangesNoValue(t *testing.T) {
	w := newWorld(t)
	tenants := []string{w.tenant(), w.tenant(), w.tenant()}
	destroyed := w.tenant()
	w.destroy(destroyed)
	sealed := mustSeal(t, w.keys(tenants[0]), "r", "f", "a value")
	before := fingerprint(w.keys(tenants[0]), "card", "v")
	old := w.newKEK()
	var progress []int
	if err := w.ring.RotateKEK(t.Context(), func(n int) { progress = append(progress, n) }); err != nil {
		t.Fatalf("RotateKEK = %v", err)
	}
	if len(progress) != 3 || progress[2] != 15 {
		t.Errorf("progress = %v, want 5, 10, 15", progress)
	}
	if n := w.wrappedBy(w.local.Primary(), tenants...); n != 15 || w.wrappedBy(old, tenants...) != 0 {
		t.Errorf("%d keysets are wrapped by the new KEK, want 15", n)
	}
	if sets := w.keysets(destroyed); len(sets) != 0 {
		t.Errorf("destroyed keysets came back: %d", len(sets))
	}
	if err := w.ring.DropKEK(t.Context(), old, w.local.Drop); err != nil {
		t.Fatalf("DropKEK = %v", err)
	}
	ring := w.open(keyring.Options{})
	keys, err := ring.For(t.Context(), tenants[0])
	if err != nil {
		t.Fatalf("For with the new KEK alone = %v", err)
	}
	if got, err := keys.Open("r", "f", sealed); err != nil || string(got) != "a value" {
		t.Errorf("Open = %q, %v", got, err)
	}
	if string(fingerprint(keys, "card", "v")) != string(before) {
		t.Error("the fingerprint changed")
	}
}

func TestAnOldKEKIsNotDroppedWhileItIsNeeded(t *testing.T) {
	w := newWorld(t)
	one, two := w.tenant(), w.tenant()
	dropped := func(context.Context, string) error { t.Error("the key was dropped"); return nil }
	if err := w.ring.DropKEK(t.Context(), w.local.Primary(), dropped); !errors.Is(err, keyring.ErrInUse) {
		t.Errorf("DropKEK of the primary = %v, want ErrInUse", err)
	}
	old := w.newKEK()
	if err := w.ring.DropKEK(t.Context(), old, dropped); !errors.Is(err, keyring.ErrInUse) {
		t.Errorf("DropKEK before a rotation = %v, want ErrInUse", err)
	}
	// A keyset that comes back from before the rotation is enough.
	kept := w.keysets(two)[0]
	if err := w.ring.RotateKEK(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	kept.Version = w.keysets(two)[0].Version + 1
	w.update(two, func(tx store.Tx) error { return tx.PutKeyset(t.Context(), kept) })
	if err := w.ring.DropKEK(t.Context(), old, dropped); !errors.Is(err, keyring.ErrInUse) {
		t.Errorf("DropKEK with one keyset left = %v, want ErrInUse", err)
	}
	if got := w.status(two).KEKs; len(got) != 2 {
		t.Errorf("Status names KEKs %v, want both", got)
	}
	if got := w.status(one).KEKs; len(got) != 1 || got[0] != w.local.Primary() {
		t.Errorf("Status names KEKs %v, want the new one", got)
	}
	if err := w.ring.RotateKEK(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := w.ring.DropKEK(t.Context(), old, func(context.Context, string) error { return errKilled }); !errors.Is(err, errKilled) {
		t.Errorf("DropKEK = %v, want the error of drop", err)
	}
	if err := w.store.AllTenants().PutSetting(t.Context(), checkSetting, []byte{}); err != nil {
		t.Fatal(err)
	}
	if err := w.ring.DropKEK(t.Context(), old, dropped); !errors.Is(err, keyring.ErrDamaged) {
		t.Errorf("DropKEK with a damaged check value = %v, want ErrDamaged", err)
	}
}

func TestAKilledKEKRotationIsRunAgain(t *testing.T) {
	w := newWorld(t)
	tenants := []string{w.tenant(), w.tenant()}
	sealed := mustSeal(t, w.keys(tenants[1]), "r", "f", "a value")
	for n := 0; ; n++ {
		old := w.newKEK()
		w.watch().from(dieAt(n))
		err := w.ring.RotateKEK(t.Context(), nil)
		calls := w.watch().count("")
		w.watch().from(nil)
		if calls <= n {
			if err != nil {
				t.Fatalf("RotateKEK = %v, though nothing failed", err)
			}
			break
		}
		if !errors.Is(err, errKilled) {
			t.Fatalf("RotateKEK killed at call %d = %v", n, err)
		}
		// In between both KEKs serve, and a new process finds its way.
		ring := w.open(keyring.Options{})
		keys, err := ring.For(t.Context(), tenants[1])
		if err != nil {
			t.Fatalf("killed at call %d: For = %v", n, err)
		}
		if _, err := keys.Open("r", "f", sealed); err != nil {
			t.Fatalf("killed at call %d: Open = %v", n, err)
		}
		// Whoever asks learns that there is something left to do, to the last step.
		if left, err := ring.OldKEKs(t.Context()); err != nil || !slices.Contains(left, old) {
			t.Fatalf("killed at call %d: OldKEKs = %q, %v, want %q among them", n, left, err, old)
		}
		if err := ring.RotateKEK(t.Context(), nil); err != nil {
			t.Fatalf("killed at call %d: RotateKEK again = %v", n, err)
		}
		if err := ring.DropKEK(t.Context(), old, w.local.Drop); err != nil {
			t.Fatalf("killed at call %d: DropKEK = %v", n, err)
		}
	}
}

func TestDropKEKReportsWhatItCouldNotFindOut(t *testing.T) {
	w := newWorld(t)
	w.tenant()
	old := w.newKEK()
	if err := w.ring.RotateKEK(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		w.watch().from(failAt(n))
		err := w.ring.DropKEK(t.Context(), old, func(context.Context, string) error { return nil })
		if w.watch().count("") <= n {
			if err != nil {
				t.Errorf("DropKEK = %v, though nothing failed", err)
			}
			return
		}
		if !errors.Is(err, errKilled) {
			t.Errorf("DropKEK whose call %d failed = %v, want that error", n, err)
		}
	}
}

func TestTryKeysetTellsWhetherAKMSOpensIt(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	var rows []store.Keyset
	err := w.store.View(t.Context(), tenant, func(tx store.Tx) (err error) {
		rows, err = tx.Keysets(t.Context())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := keyring.TryKeyset(t.Context(), w.local, tenant, rows[0]); err != nil {
		t.Errorf("TryKeyset = %v", err)
	}
	if err := keyring.TryKeyset(t.Context(), w.local, "another", rows[0]); !errors.Is(err, keyring.ErrUnwrap) {
		t.Errorf("TryKeyset for another tenant = %v, want ErrUnwrap", err)
	}
	if err := keyring.TryKeyset(t.Context(), localKey(t), tenant, rows[0]); !errors.Is(err, keyring.ErrNoKEK) {
		t.Errorf("TryKeyset with another key = %v, want ErrNoKEK", err)
	}
}

func TestOldKEKsReportsWhatItCouldNotFindOut(t *testing.T) {
	w := newWorld(t)
	w.tenant()
	first := w.newKEK()
	w.tenant()
	second := w.newKEK()
	if old, err := w.ring.OldKEKs(t.Context()); err != nil || !slices.Equal(old, []string{first, second}) {
		t.Errorf("OldKEKs = %q, %v, want %q and %q", old, err, first, second)
	}
	for n := 0; ; n++ {
		w.watch().from(failAt(n))
		_, err := w.ring.OldKEKs(t.Context())
		if w.watch().count("") <= n {
			if err != nil {
				t.Errorf("OldKEKs = %v, though nothing failed", err)
			}
			return
		}
		if !errors.Is(err, errKilled) {
			t.Errorf("OldKEKs whose call %d failed = %v, want that error", n, err)
		}
	}
}

func TestKEKRotationBeginsAgainWhenRowsChangeMeanwhile(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	w.newKEK()
	conflicts := 0
	w.watch().from(func(call string, _ int) error {
		if call == "PutKeyset" && conflicts < 3 {
			conflicts++
			return store.ErrConflict
		}
		return nil
	})
	if err := w.ring.RotateKEK(t.Context(), nil); err != nil || conflicts != 3 {
		t.Errorf("RotateKEK = %v after %d conflicts", err, conflicts)
	}
	if n := w.wrappedBy(w.local.Primary(), tenant); n != 5 {
		t.Errorf("%d keysets are wrapped by the new KEK, want 5", n)
	}
	w.newKEK()
	w.watch().from(failOn("PutKeyset", store.ErrConflict))
	if err := w.ring.RotateKEK(t.Context(), nil); !errors.Is(err, store.ErrConflict) {
		t.Errorf("RotateKEK that never gets through = %v, want ErrConflict", err)
	}
}

func TestKeysDestroyedDuringAKEKRotationStayDestroyed(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	w.newKEK()
	once := sync.OnceFunc(func() { w.destroy(tenant) })
	w.watch().from(func(call string, _ int) error {
		if call == "Update" {
			once()
		}
		return nil
	})
	if err := w.ring.RotateKEK(t.Context(), nil); err != nil {
		t.Errorf("RotateKEK = %v", err)
	}
	if sets := w.keysets(tenant); len(sets) != 0 {
		t.Errorf("%d keysets came back", len(sets))
	}
}

func TestNoRequestFailsDuringAKEKRotation(t *testing.T) {
	w := newWorld(t)
	tenants := []string{w.tenant(), w.tenant(), w.tenant()}
	// Another node has the keys of before and reads the key file again when it must.
	nodeKMS, err := localkms.Open(w.kekFile)
	if err != nil {
		t.Fatal(err)
	}
	node, err := keyring.Open(t.Context(), nodeKMS, w.store, keyring.Options{Now: w.clock.Now, CacheTenants: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for i := range 3 {
		group.Go(func() {
			for j := 0; ctx.Err() == nil; j++ {
				keys, err := node.For(t.Context(), tenants[(i+j)%3])
				if err != nil {
					t.Errorf("For during the rotation = %v", err)
					return
				}
				if _, err := keys.Open("r", "f", mustSeal(t, keys, "r", "f", "a value")); err != nil {
					t.Errorf("Open during the rotation = %v", err)
				}
				w.clock.Advance(time.Second)
			}
		})
	}
	for range 5 {
		w.newKEK()
		if err := w.ring.RotateKEK(t.Context(), nil); err != nil {
			t.Errorf("RotateKEK = %v", err)
		}
	}
	stop()
	group.Wait()
}

func TestWithoutTheOldKEKARotationCannotRun(t *testing.T) {
	w := newWorld(t)
	w.tenant()
	path := t.TempDir() + "/other.json"
	if _, err := localkms.Generate(path); err != nil {
		t.Fatal(err)
	}
	other, err := localkms.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	w.kms.KMS = other
	if err := w.ring.RotateKEK(t.Context(), nil); !errors.Is(err, keyring.ErrUnwrap) {
		t.Errorf("RotateKEK = %v, want ErrUnwrap", err)
	}
}

func TestMoreTenantsThanAPageAreAllVisited(t *testing.T) {
	w := newWorld(t)
	const tenants = 101
	for range tenants {
		w.tenant()
	}
	seen := map[string]bool{}
	err := w.ring.Status(t.Context(), func(s keyring.TenantStatus) error {
		seen[s.Tenant] = true
		return nil
	})
	if err != nil || len(seen) != tenants {
		t.Errorf("Status told of %d tenants, %v, want %d", len(seen), err, tenants)
	}
}
