package keyring_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

const rotationMark = "keyring.rotation"

func TestRotateTenantSealsEverythingAnew(t *testing.T) {
	w := newWorld(t)
	tenant, other := w.tenant(), w.tenant()
	w.fill(tenant, 60, 30)
	w.fill(other, 3, 1)
	keys := w.keys(tenant)
	old, before := keys.Primary(), fingerprint(keys, "card", "v")
	cvc, _ := w.sealCVC(tenant)

	var phases []keyring.Phase
	var last keyring.Rotation
	err := w.ring.RotateTenant(t.Context(), tenant, func(at keyring.Rotation) {
		if at.Phase != last.Phase {
			phases = append(phases, at.Phase)
		}
		last = at
	})
	if err != nil {
		t.Fatalf("RotateTenant = %v", err)
	}
	if got := fmt.Sprint(phases); got != "[introduced promoted resealing resealed]" {
		t.Errorf("phases = %s", got)
	}
	if last.Seen != 91 || last.Resealed != 75 || last.Damaged != 0 { // half of the applications have no rules
		t.Errorf("rotation saw %d rows, sealed %d anew, found %d damaged, want 91, 75, 0", last.Seen, last.Resealed, last.Damaged)
	}
	used := w.readable(tenant, keys)
	if len(used) != 1 || used[keys.Primary()] != 135 || keys.Primary() == old {
		t.Errorf("values by key: %v, want 135 under %d, and not %d", used, keys.Primary(), old)
	}
	status := w.status(tenant)
	if len(status.Data) != 2 || status.Data[0].Values != 0 || status.Data[1].Values != 136 || !status.Data[1].Primary {
		t.Errorf("Status = %+v, want nothing under the old key and 136 under the new one", status.Data)
	}

	if err := w.ring.RetireTenant(t.Context(), tenant); err != nil {
		t.Fatalf("RetireTenant = %v", err)
	}
	fresh, err := w.open(keyring.Options{}).For(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	w.readable(tenant, fresh)
	if string(fingerprint(fresh, "card", "v")) != string(before) {
		t.Error("the fingerprint changed")
	}
	if err := w.openCVC(w.open(keyring.Options{}), tenant, cvc); err != nil {
		t.Errorf("Open of a short-lived value after the rotation = %v", err)
	}
	if status := w.status(tenant); len(status.Data) != 1 || status.Rotation.Phase != keyring.Retired || status.Data[0].Values != -1 {
		t.Errorf("Status = %+v, want one key", status)
	}
	if status := w.status(other); len(status.Data) != 1 || status.Rotation.Phase != "" {
		t.Errorf("Status of the other tenant = %+v, want it untouched", status)
	}
	w.readable(other, w.keys(other))
}

// A rotation computes no fingerprints and terms, so it says nothing new of them.
func TestARotationLeavesTheFormOfDerivedValuesAsItIs(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	w.fill(tenant, 60, 0)
	if err := w.ring.RotateTenant(t.Context(), tenant, nil); err != nil {
		t.Fatalf("RotateTenant = %v", err)
	}
	var want []store.TokenRef
	w.update(tenant, func(tx store.Tx) error {
		want = nil
		for i := range 60 {
			row, err := tx.Token(t.Context(), fmt.Sprintf("token-%03d", i))
			if err != nil {
				return err
			}
			if row.Version != 2 || row.Derived != (i%2 == 0) {
				t.Errorf("%s has version %d, Derived %t; want 2, %t", row.ID, row.Version, row.Derived, i%2 == 0)
			}
			if i%2 != 0 {
				want = append(want, store.TokenRef{Tenant: tenant, ID: row.ID})
			}
		}
		return nil
	})
	if got, err := w.store.AllTenants().OutdatedTokens(t.Context(), "", 0, 100); err != nil || !slices.Equal(got, want) {
		t.Errorf("OutdatedTokens = %v, %v, want %v", got, err, want)
	}
}

func TestTheOldKeyIsDestroyed(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	sealed := mustSeal(t, w.keys(tenant), "nowhere", "f", "a copy that nobody listed")
	if err := w.ring.RotateTenant(t.Context(), tenant, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := w.keys(tenant).Open("nowhere", "f", sealed); err != nil {
		t.Errorf("Open before the old key is retired = %v", err)
	}
	if err := w.ring.RetireTenant(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	if _, err := w.keys(tenant).Open("nowhere", "f", sealed); err != nil {
		t.Errorf("Open of what a request under way has read = %v", err)
	}
	w.clock.Advance(time.Minute)
	if _, err := w.keys(tenant).Open("nowhere", "f", sealed); !errors.Is(err, keyring.ErrDamaged) {
		t.Errorf("Open a minute after the old key is retired = %v, want ErrDamaged", err)
	}
	fresh, err := w.open(keyring.Options{}).For(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fresh.Open("nowhere", "f", sealed); !errors.Is(err, keyring.ErrDamaged) {
		t.Errorf("Open with keys that are read anew = %v, want ErrDamaged", err)
	}
}

func TestKeyAgesAreKnown(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	times := []time.Time{start}
	for range 2 {
		w.clock.Advance(24 * time.Hour)
		times = append(times, w.clock.Now())
		if err := w.ring.RotateTenant(t.Context(), tenant, nil); err != nil {
			t.Fatal(err)
		}
		data := w.status(tenant).Data
		if len(data) != 2 || !data[0].Made.Equal(times[len(times)-2]) || !data[1].Made.Equal(times[len(times)-1]) {
			t.Errorf("keys = %+v, want made at %v", data, times[len(times)-2:])
		}
		if err := w.ring.RetireTenant(t.Context(), tenant); err != nil {
			t.Fatal(err)
		}
	}
	if data := w.status(tenant).Data; len(data) != 1 || !data[0].Made.Equal(times[2]) {
		t.Errorf("keys = %+v, want one made at %v", data, times[2])
	}
}

func TestNobodySealsWithAKeyThatAnotherNodeDoesNotKnow(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	w.fill(tenant, 3, 1)
	node := w.open(keyring.Options{})
	waits := 0
	w.ring = w.open(keyring.Options{Wait: func(_ context.Context, d time.Duration) error {
		waits++
		if d != time.Minute {
			t.Errorf("wait of %v, want twice the time of the cache", d)
		}
		here, err := w.ring.For(t.Context(), tenant)
		if err != nil {
			t.Fatal(err)
		}
		there, err := node.For(t.Context(), tenant) // as it was before the change
		if err != nil {
			t.Fatal(err)
		}
		// At either wait each opens what the other one seals.
		for name, pair := range map[string][2]*keyring.Keys{"here": {here, there}, "there": {there, here}} {
			if _, err := pair[1].Open("r", "f", mustSeal(t, pair[0], "r", "f", "a value")); err != nil {
				t.Errorf("wait %d: what was sealed %s does not open on the other node: %v", waits, name, err)
			}
		}
		w.clock.Advance(d / 2)
		if _, err := node.For(t.Context(), tenant); err != nil { // the cache is stale, so it looks
			t.Fatal(err)
		}
		w.clock.Advance(d / 2)
		return nil
	}})
	if err := w.ring.RotateTenant(t.Context(), tenant, nil); err != nil {
		t.Fatalf("RotateTenant = %v", err)
	}
	if waits != 2 {
		t.Errorf("%d waits, want one before and one after the promotion", waits)
	}
}

func TestAKilledRotationGoesOnWhereItStopped(t *testing.T) {
	storetest.Long(t)
	w := newWorld(t)
	rotate := func(tenant string) error {
		if err := w.ring.RotateTenant(t.Context(), tenant, nil); err != nil {
			return err
		}
		return w.ring.RetireTenant(t.Context(), tenant)
	}
	tenant := func() (id string, cvc []byte) {
		id = w.tenant()
		w.fill(id, 26, 1)
		w.furnish(id, 1)
		cvc, _ = w.sealCVC(id)
		return id, cvc
	}
	// A first run shows all calls at which it could be killed. The tokens of a
	// batch are all alike.
	first, _ := tenant()
	w.watch().from(nil)
	if err := rotate(first); err != nil {
		t.Fatalf("rotation = %v", err)
	}
	var points []int
	for n, call := range w.watch().seen {
		if call != "ReplaceToken" || w.watch().seen[n-1] != call {
			points = append(points, n)
		}
	}
	if len(points) < 30 {
		t.Fatalf("a rotation made %d calls, want more", len(points))
	}
	for _, n := range points {
		w.clock.Advance(start.Sub(w.clock.Now()))
		id, cvc := tenant()
		w.watch().from(failAt(n))
		if err := rotate(id); !errors.Is(err, errKilled) {
			t.Fatalf("rotation killed at call %d = %v", n, err)
		}
		w.watch().from(nil)
		w.ring = w.open(keyring.Options{}) // the process that comes after
		w.readable(id, w.keys(id))
		if err := w.ring.RotateTenant(t.Context(), id, nil); err != nil {
			t.Fatalf("killed at call %d: RotateTenant again = %v", n, err)
		}
		if err := w.ring.RetireTenant(t.Context(), id); err != nil && !errors.Is(err, keyring.ErrNotRotated) {
			t.Fatalf("killed at call %d: RetireTenant = %v", n, err)
		}
		keys := w.keys(id)
		if used := w.readable(id, keys); len(used) != 1 || used[keys.Primary()] != 53 {
			t.Fatalf("killed at call %d: values by key %v, primary %d", n, used, keys.Primary())
		}
		if used := w.furniture(id); len(used) != 1 || used[keys.Primary()] != 8 {
			t.Fatalf("killed at call %d: values of sessions, parcels and definitions by key %v, primary %d", n, used, keys.Primary())
		}
		if err := w.openCVC(w.ring, id, cvc); err != nil {
			t.Fatalf("killed at call %d: Open of a short-lived value = %v", n, err)
		}
	}
}

func TestTwoRunsOfARotationHelpEachOther(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	w.fill(tenant, 80, 3)
	rings := []*keyring.Ring{w.ring, w.open(keyring.Options{}), w.open(keyring.Options{})}
	var group sync.WaitGroup
	for _, ring := range rings {
		group.Go(func() {
			if err := ring.RotateTenant(t.Context(), tenant, nil); err != nil {
				t.Errorf("RotateTenant = %v", err)
			}
		})
	}
	group.Wait()
	status := w.status(tenant)
	if len(status.Data) != 2 || status.Data[0].Values != 0 || status.Rotation.Phase != keyring.Resealed {
		t.Errorf("Status = %+v, want two keys and nothing under the old one", status)
	}
	w.clock.Advance(time.Minute)
	w.readable(tenant, w.keys(tenant))
}

func TestAStepThatIsNoLongerDueIsLeft(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	w.fill(tenant, 2, 0)
	said := false
	err := w.ring.RotateTenant(t.Context(), tenant, func(at keyring.Rotation) {
		if at.Phase != keyring.Resealing || said {
			return
		}
		// Between its look at the mark and its change another run says that all is done.
		at.Phase = keyring.Resealed
		mark, err := json.Marshal(at)
		if err != nil {
			t.Fatal(err)
		}
		w.watch().from(func(call string, _ int) error {
			if call != "Keysets" || said {
				return nil
			}
			said = true
			return w.store.Store.Update(t.Context(), tenant, func(tx store.Tx) error { return tx.PutMark(t.Context(), rotationMark, mark) })
		})
	})
	if err != nil || !said {
		t.Fatalf("RotateTenant = %v, and another run said so: %t", err, said)
	}
	if status := w.status(tenant); status.Rotation.Seen != 0 || status.Rotation.Phase != keyring.Resealed {
		t.Errorf("Rotation = %+v, want no row to be looked at", status.Rotation)
	}
	if err := w.ring.RetireTenant(t.Context(), tenant); !errors.Is(err, keyring.ErrInUse) {
		t.Errorf("RetireTenant = %v, want ErrInUse: what a mark says is not believed", err)
	}
}

func TestNoRequestFailsDuringARotation(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	w.fill(tenant, 40, 2)
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for i := range 3 {
		group.Go(func() {
			for j := 0; ctx.Err() == nil; j++ {
				keys, err := w.ring.For(t.Context(), tenant)
				if err != nil {
					t.Errorf("For = %v", err)
					return
				}
				id := fmt.Sprintf("token-%03d", (i*13+j)%40)
				err = w.store.Store.Update(t.Context(), tenant, func(tx store.Tx) error {
					token, err := tx.Token(t.Context(), id)
					if err != nil {
						return err
					}
					if _, err := keys.Open(id, keyring.FieldTokenData, token.Data); err != nil {
						return err
					}
					if token.Data, err = keys.Seal(id, keyring.FieldTokenData, []byte("data of "+id)); err != nil {
						return err
					}
					token.Version++
					return tx.ReplaceToken(t.Context(), token)
				})
				if err != nil {
					t.Errorf("a request failed: %v", err)
					return
				}
			}
		})
	}
	for range 3 {
		if err := w.ring.RotateTenant(t.Context(), tenant, nil); err != nil {
			t.Errorf("RotateTenant = %v", err)
		}
		if err := w.ring.RetireTenant(t.Context(), tenant); err != nil {
			t.Errorf("RetireTenant = %v", err)
		}
	}
	stop()
	group.Wait()
	w.readable(tenant, w.keys(tenant))
}

func TestARotationBeginsAStepAgainWhenRowsChangeMeanwhile(t *testing.T) {
	for _, call := range []string{"PutKeyset", "PutMark", "ReplaceToken", "ReplaceSession", "ReplaceParcel", "ReplaceDefinition"} {
		w := newWorld(t)
		tenant := w.tenant()
		w.fill(tenant, 2, 0)
		w.furnish(tenant, 1)
		conflicts := 0
		w.watch().from(func(name string, _ int) error {
			if name == call && conflicts < 5 {
				conflicts++
				return store.ErrConflict
			}
			return nil
		})
		if err := w.ring.RotateTenant(t.Context(), tenant, nil); err != nil || conflicts != 5 {
			t.Errorf("%s: RotateTenant = %v after %d conflicts", call, err, conflicts)
		}
		if used := w.readable(tenant, w.keys(tenant)); len(used) != 1 {
			t.Errorf("%s: values by key %v", call, used)
		}
	}
}

func TestWhatIsDamagedStaysAndKeepsItsKey(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	w.fill(tenant, 2, 0)
	put := func(change func(*store.Token)) {
		w.update(tenant, func(tx store.Tx) (err error) {
			token, err := tx.Token(t.Context(), "token-001")
			if err != nil {
				return err
			}
			change(&token)
			token.Version++
			return tx.ReplaceToken(t.Context(), token)
		})
	}
	put(func(token *store.Token) { token.Data = append(token.Data, 0) })
	var last keyring.Rotation
	again := func() {
		t.Helper()
		if err := w.ring.RotateTenant(t.Context(), tenant, func(at keyring.Rotation) { last = at }); err != nil {
			t.Fatalf("RotateTenant = %v", err)
		}
	}
	again()
	if last.Damaged != 1 || last.Resealed != 2 {
		t.Errorf("%d damaged and %d sealed anew, want 1 and 2", last.Damaged, last.Resealed)
	}
	if err := w.ring.RetireTenant(t.Context(), tenant); !errors.Is(err, keyring.ErrInUse) {
		t.Errorf("RetireTenant = %v, want ErrInUse", err)
	}
	put(func(token *store.Token) { token.Data = []byte("not sealed at all") })
	if err := w.ring.RetireTenant(t.Context(), tenant); !errors.Is(err, keyring.ErrNotRotated) {
		t.Errorf("RetireTenant after a refusal = %v, want ErrNotRotated: the rows must be looked at again", err)
	}
	again()
	if err := w.ring.RetireTenant(t.Context(), tenant); !errors.Is(err, keyring.ErrInUse) {
		t.Errorf("RetireTenant with a value that names no key = %v, want ErrInUse", err)
	}
	w.update(tenant, func(tx store.Tx) error { return tx.DeleteToken(t.Context(), "token-001") })
	again()
	if last.Damaged != 0 || last.Seen != 2 {
		t.Errorf("%d damaged of %d, want none of 2", last.Damaged, last.Seen)
	}
	if err := w.ring.RetireTenant(t.Context(), tenant); err != nil {
		t.Errorf("RetireTenant after it was removed = %v", err)
	}
}

func TestOnlyAFinishedRotationIsRetiredAndOnlyOnce(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	if err := w.ring.RetireTenant(t.Context(), tenant); !errors.Is(err, keyring.ErrNotRotated) {
		t.Errorf("RetireTenant before a rotation = %v, want ErrNotRotated", err)
	}
	stopped := w.open(keyring.Options{Wait: func(context.Context, time.Duration) error { return errKilled }})
	for range 2 { // it waits where it waited before
		if err := stopped.RotateTenant(t.Context(), tenant, nil); !errors.Is(err, errKilled) {
			t.Errorf("RotateTenant = %v, want the error of the wait", err)
		}
	}
	if err := w.ring.RetireTenant(t.Context(), tenant); !errors.Is(err, keyring.ErrNotRotated) {
		t.Errorf("RetireTenant in between = %v, want ErrNotRotated", err)
	}
	if data := w.status(tenant).Data; len(data) != 2 || !data[0].Primary {
		t.Errorf("keys = %+v, want the old one to be primary still", data)
	}
	w.clock.Advance(time.Hour) // so that there is nothing to wait for at first
	if err := stopped.RotateTenant(t.Context(), tenant, nil); !errors.Is(err, errKilled) {
		t.Errorf("RotateTenant = %v, want the error of the second wait", err)
	}
	for range 2 { // the second run finds nothing to do
		if err := w.ring.RotateTenant(t.Context(), tenant, nil); err != nil {
			t.Errorf("RotateTenant = %v", err)
		}
	}
	if data := w.status(tenant).Data; len(data) != 2 {
		t.Errorf("%d keys, want 2", len(data))
	}
	if err := w.ring.RetireTenant(t.Context(), tenant); err != nil {
		t.Errorf("RetireTenant = %v", err)
	}
	if err := w.ring.RetireTenant(t.Context(), tenant); !errors.Is(err, keyring.ErrNotRotated) {
		t.Errorf("RetireTenant again = %v, want ErrNotRotated", err)
	}
}

// A newer release that shares the store may have sealed values where this one
// does not look.
func TestAnOldKeyIsNotDestroyedBesideANewerRelease(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	if err := w.ring.RotateTenant(t.Context(), tenant, nil); err != nil {
		t.Fatal(err)
	}
	w.watch().from(failOn("Current", store.ErrNewerSchema))
	if err := w.ring.RetireTenant(t.Context(), tenant); !errors.Is(err, store.ErrNewerSchema) {
		t.Errorf("RetireTenant = %v, want ErrNewerSchema", err)
	}
	w.watch().from(nil)
	if data := w.status(tenant).Data; len(data) != 2 {
		t.Errorf("%d keys, want 2", len(data))
	}
	if err := w.ring.RetireTenant(t.Context(), tenant); err != nil {
		t.Errorf("RetireTenant on the newest release = %v", err)
	}
}

func TestATenantWithoutKeysIsNotRotated(t *testing.T) {
	w := newWorld(t)
	destroyed := w.tenant()
	w.destroy(destroyed)
	noData := w.blankTenant(func(set store.Keyset) bool { return set.Purpose != "data" })
	for _, tenant := range []string{destroyed, noData} {
		if err := w.ring.RotateTenant(t.Context(), tenant, nil); !errors.Is(err, keyring.ErrNoKeys) {
			t.Errorf("RotateTenant = %v, want ErrNoKeys", err)
		}
	}
}

func TestADamagedMarkStopsARotation(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	for mark, want := range map[string]error{
		"no JSON":                                  keyring.ErrDamaged,
		`{"phase":"of a later release"}`:           keyring.ErrDamaged,
		`{"phase":"resealing","source":-1}`:        keyring.ErrDamaged,
		`{"phase":"introduced","key":1,"since":1}`: nil, // a key that is not there: some error
	} {
		w.update(tenant, func(tx store.Tx) error { return tx.PutMark(t.Context(), rotationMark, []byte(mark)) })
		err := w.ring.RotateTenant(t.Context(), tenant, nil)
		if err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("RotateTenant with the mark %s = %v", mark, err)
		}
		if data := w.keys(tenant); data == nil {
			t.Error("the keys are gone")
		}
	}
	// A mark that claims a rotation is done does not make anyone drop a key.
	w.fill(tenant, 1, 0)
	w.update(tenant, func(tx store.Tx) error {
		return tx.PutMark(t.Context(), rotationMark, []byte(`{"phase":"resealed","key":1}`))
	})
	if err := w.ring.RetireTenant(t.Context(), tenant); !errors.Is(err, keyring.ErrInUse) {
		t.Errorf("RetireTenant = %v, want ErrInUse", err)
	}
	w.readable(tenant, w.keys(tenant))
}

func TestAValueThatCameLateUnderTheOldKeyIsFound(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	late := mustSeal(t, w.keys(tenant), "token-000", keyring.FieldTokenData, "data of token-000")
	if err := w.ring.RotateTenant(t.Context(), tenant, nil); err != nil {
		t.Fatal(err)
	}
	w.fill(tenant, 1, 0)
	w.update(tenant, func(tx store.Tx) error {
		token, err := tx.Token(t.Context(), "token-000")
		token.Data, token.Version = late, token.Version+1
		return errors.Join(err, tx.ReplaceToken(t.Context(), token))
	})
	w.watch().from(failOn("PutMark", errKilled))
	if err := w.ring.RetireTenant(t.Context(), tenant); !errors.Is(err, errKilled) {
		t.Errorf("RetireTenant that cannot note it = %v, want that error", err)
	}
	w.watch().from(nil)
	if err := w.ring.RetireTenant(t.Context(), tenant); !errors.Is(err, keyring.ErrInUse) {
		t.Errorf("RetireTenant = %v, want ErrInUse", err)
	}
	if err := w.ring.RotateTenant(t.Context(), tenant, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.ring.RetireTenant(t.Context(), tenant); err != nil {
		t.Errorf("RetireTenant = %v", err)
	}
	w.readable(tenant, w.keys(tenant))
}

func TestReplacingAKeyLooksAgainWhenAValueCameLate(t *testing.T) {
	for name, test := range map[string]struct {
		late    int // how many times something comes late
		damaged bool
		passes  int
		want    error
	}{
		"nothing late":      {passes: 1},
		"one value":         {late: 1, passes: 2},
		"values, again":     {late: 2, passes: 3},
		"values forever":    {late: 3, passes: 3, want: keyring.ErrInUse},
		"a value is broken": {damaged: true, passes: 1, want: keyring.ErrInUse},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tenant := w.tenant()
			w.fill(tenant, 1, 0)
			late := mustSeal(t, w.keys(tenant), "token-000", keyring.FieldTokenData, "data of token-000")
			put := func(data []byte) {
				w.update(tenant, func(tx store.Tx) error {
					token, err := tx.Token(t.Context(), "token-000")
					token.Data, token.Version = data, token.Version+1
					return errors.Join(err, tx.ReplaceToken(t.Context(), token))
				})
			}
			if test.damaged {
				put(append(slices.Clone(late), 0))
			}
			passes := 0
			err := w.ring.ReplaceTenantKey(t.Context(), tenant, func(at keyring.Rotation) {
				if at.Phase != keyring.Resealed {
					return
				}
				if passes++; passes <= test.late {
					put(late)
				}
			})
			if !errors.Is(err, test.want) || passes != test.passes {
				t.Errorf("ReplaceTenantKey = %v after %d passes, want %v after %d", err, passes, test.want, test.passes)
			}
			if !test.damaged {
				w.readable(tenant, w.keys(tenant))
			}
		})
	}
	w := newWorld(t)
	if err := w.ring.ReplaceTenantKey(t.Context(), "00000000-0000-4000-8000-000000000000", func(keyring.Rotation) {}); !errors.Is(err, keyring.ErrNoKeys) {
		t.Errorf("ReplaceTenantKey of nobody = %v, want %v", err, keyring.ErrNoKeys)
	}
}

func TestEpochKeysThatGoMeanwhileDoNotStopARotation(t *testing.T) {
	for call, failure := range map[string]error{"EpochKey": store.ErrNotFound, "ReplaceEpochKey": store.ErrNotFound} {
		w := newWorld(t)
		tenant := w.tenant()
		w.sealCVC(tenant)
		w.watch().from(failOn(call, failure))
		if err := w.ring.RotateTenant(t.Context(), tenant, nil); err != nil {
			t.Errorf("%s: RotateTenant = %v", call, err)
		}
	}
	// One that opens nothing is left alone, and keeps the old key for its hour.
	w := newWorld(t)
	tenant := w.tenant()
	_, epoch := w.sealCVC(tenant)
	if err := w.store.EpochKeys().ReplaceEpochKey(t.Context(), tenant, epoch, []byte("damaged")); err != nil {
		t.Fatal(err)
	}
	if err := w.ring.RotateTenant(t.Context(), tenant, nil); err != nil {
		t.Errorf("RotateTenant = %v", err)
	}
	if err := w.ring.RetireTenant(t.Context(), tenant); !errors.Is(err, keyring.ErrInUse) {
		t.Errorf("RetireTenant = %v, want ErrInUse", err)
	}
	w.clock.Advance(time.Hour)
	if _, err := w.ring.DestroyDue(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if err := w.ring.RotateTenant(t.Context(), tenant, nil); err != nil {
		t.Errorf("RotateTenant = %v", err)
	}
	if err := w.ring.RetireTenant(t.Context(), tenant); err != nil {
		t.Errorf("RetireTenant after the hour = %v", err)
	}
}

func TestEveryFailureOfStatusIsReported(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	w.fill(tenant, 30, 1)
	w.sealCVC(tenant)
	if err := w.ring.RotateTenant(t.Context(), tenant, nil); err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		w.watch().from(failAt(n))
		err := w.ring.Status(t.Context(), func(keyring.TenantStatus) error { return nil })
		if w.watch().count("") <= n {
			if err != nil {
				t.Fatalf("Status = %v, though nothing failed", err)
			}
			return
		}
		if !errors.Is(err, errKilled) {
			t.Errorf("Status whose call %d failed = %v, want that error", n, err)
		}
	}
}

// A request may have read a row before it was sealed anew, and open it when one
// rotation has ended and the next has begun.
func TestWhatARequestHasReadOpensThroughSeveralRotations(t *testing.T) {
	w := newWorld(t)
	ring := w.open(keyring.Options{CacheFor: time.Second})
	tenant := w.tenant()
	keys, err := ring.For(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	read, err := keys.Seal("record", keyring.FieldTokenData, []byte("value"))
	if err != nil {
		t.Fatal(err)
	}
	begun := w.clock.Now()
	for range 2 {
		if err := ring.RotateTenant(t.Context(), tenant, nil); err != nil {
			t.Fatal(err)
		}
		if err := ring.RetireTenant(t.Context(), tenant); err != nil {
			t.Fatal(err)
		}
	}
	if took := w.clock.Now().Sub(begun); took > 25*time.Second {
		t.Fatalf("two rotations took %v, which is too long for this test", took)
	}
	if got, err := keys.Open("record", keyring.FieldTokenData, read); err != nil || string(got) != "value" {
		t.Errorf("Open after two rotations = %q, %v", got, err)
	}
	// Two further changes of the keys, behind its time, and it is gone.
	w.clock.Advance(time.Minute)
	if err := ring.RotateTenant(t.Context(), tenant, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := keys.Open("record", keyring.FieldTokenData, read); !errors.Is(err, keyring.ErrDamaged) {
		t.Errorf("Open a minute later = %v, want ErrDamaged", err)
	}
}

func TestAnOldKeyOutlivesTheRequestsThatSealedWithIt(t *testing.T) {
	w := newWorld(t)
	ring := w.open(keyring.Options{CacheFor: time.Second, Requests: 90 * time.Second})
	tenant := w.tenant()
	var promoted time.Time
	if err := ring.RotateTenant(t.Context(), tenant, func(at keyring.Rotation) {
		if at.Phase == keyring.Promoted {
			promoted = w.clock.Now()
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := ring.RetireTenant(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	if waited := w.clock.Now().Sub(promoted); waited < 92*time.Second || waited > 95*time.Second {
		t.Errorf("the old key was destroyed %v after the new one began to seal, want 92 s", waited)
	}
}

// A store that is away for a moment is waited for, and not for ever.
func TestARotationWaitsForAStoreThatIsAway(t *testing.T) {
	for name, c := range map[string]struct {
		failures int
		want     error
	}{"for a moment": {5, nil}, "for good": {1 << 30, store.ErrUnavailable}} {
		w := newWorld(t)
		tenant := w.tenant()
		w.fill(tenant, 2, 0)
		failures := 0
		w.watch().from(func(call string, _ int) error {
			if call == "ReplaceToken" && failures < c.failures {
				failures++
				return store.ErrUnavailable
			}
			return nil
		})
		begun := w.clock.Now()
		if err := w.ring.RotateTenant(t.Context(), tenant, nil); !errors.Is(err, c.want) || failures == 0 {
			t.Errorf("%s: RotateTenant = %v after %d failures, want %v", name, err, failures, c.want)
		}
		if !w.clock.Now().After(begun) {
			t.Errorf("%s: nobody waited", name)
		}
	}
}

func TestARotationThatIsEndedWaitsForNothing(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	w.fill(tenant, 2, 0)
	ended, away := errors.New("ended"), errors.New("away")
	var end error
	ring := w.open(keyring.Options{CacheFor: time.Second, Requests: time.Minute, Wait: func(_ context.Context, d time.Duration) error {
		w.clock.Advance(d)
		return end
	}})
	if err := ring.RotateTenant(t.Context(), tenant, nil); err != nil {
		t.Fatal(err)
	}
	end = ended
	if err := ring.RetireTenant(t.Context(), tenant); !errors.Is(err, ended) {
		t.Errorf("RetireTenant = %v, want that it was ended while it waited for requests", err)
	}
	end = nil
	if err := ring.RetireTenant(t.Context(), tenant); err != nil {
		t.Errorf("RetireTenant afterwards = %v", err)
	}
	w.watch().from(func(call string, _ int) error {
		if call != "ReplaceToken" {
			return nil
		}
		end = ended
		return errors.Join(away, store.ErrUnavailable)
	})
	if err := ring.RotateTenant(t.Context(), tenant, nil); !errors.Is(err, away) {
		t.Errorf("RotateTenant = %v, want what failed", err)
	}
}

// The tenant's own row is sealed anew with the rest.
func TestTheSecretsOfATenantAreRotated(t *testing.T) {
	w := newWorld(t)
	ctx, tenant := t.Context(), w.tenant()
	w.update(tenant, func(tx store.Tx) error {
		row, err := tx.TenantRow(ctx)
		row.Secrets = mustSeal(t, w.keys(tenant), tenant, keyring.FieldTenantSecrets, "secrets")
		return errors.Join(err, tx.ReplaceTenant(ctx, row))
	})
	if err := errors.Join(w.ring.RotateTenant(ctx, tenant, nil), w.ring.RetireTenant(ctx, tenant)); err != nil {
		t.Fatal(err)
	}
	keys := w.keys(tenant)
	w.update(tenant, func(tx store.Tx) error {
		row, err := tx.TenantRow(ctx)
		if err != nil {
			return err
		}
		if id, err := keyring.KeyID(row.Secrets); id != keys.Primary() || err != nil {
			t.Errorf("the secrets are under the key %d, %v, want %d", id, err, keys.Primary())
		}
		if got, err := keys.Open(tenant, keyring.FieldTenantSecrets, row.Secrets); string(got) != "secrets" || err != nil {
			t.Errorf("Open = %q, %v", got, err)
		}
		return nil
	})
}
