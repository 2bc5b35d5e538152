package keyring_test

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// sealCVC seals a cvc for the tenant and returns it with its epoch.
func (w *world) sealCVC(tenant string) (sealed []byte, epoch int64) {
	w.t.Helper()
	sealed, err := w.ring.SealShortLived(w.t.Context(), tenant, "r", "cvc", []byte("123"))
	if err != nil {
		w.t.Fatalf("SealShortLived = %v", err)
	}
	if epoch, err = keyring.SealedEpoch(sealed); err != nil {
		w.t.Fatalf("SealedEpoch = %v", err)
	}
	return sealed, epoch
}

func (w *world) openCVC(ring *keyring.Ring, tenant string, sealed []byte) error {
	w.t.Helper()
	got, err := ring.OpenShortLived(w.t.Context(), tenant, 0, "r", "cvc", sealed)
	if err == nil && string(got) != "123" {
		w.t.Errorf("OpenShortLived = %q, want 123", got)
	}
	return err
}

func TestAShortLivedValueOpensOnlyWhereItWasSealed(t *testing.T) {
	w := newWorld(t)
	one, two := w.tenant(), w.tenant()
	sealed, _ := w.sealCVC(one)
	w.sealCVC(two) // so that the other tenant has a key of that minute
	for name, test := range map[string]struct {
		tenant, record, field string
		sealed                []byte
		want                  error
	}{
		"in its place":     {one, "r", "cvc", sealed, nil},
		"another tenant":   {two, "r", "cvc", sealed, keyring.ErrGone}, // not one of its keys
		"another record":   {one, "s", "cvc", sealed, keyring.ErrDamaged},
		"another field":    {one, "r", "pin", sealed, keyring.ErrDamaged},
		"no such tenant":   {"00000000-0000-4000-8000-000000000000", "r", "cvc", sealed, keyring.ErrNoKeys},
		"a lasting value":  {one, "r", "cvc", mustSeal(t, w.keys(one), "r", "cvc", "123"), keyring.ErrDamaged},
		"nothing":          {one, "r", "cvc", nil, keyring.ErrDamaged},
		"cut in the id":    {one, "r", "cvc", sealed[:12], keyring.ErrDamaged},
		"with a byte more": {one, "r", "cvc", append(bytes.Clone(sealed), 0), keyring.ErrDamaged},
	} {
		got, err := w.ring.OpenShortLived(t.Context(), test.tenant, 0, test.record, test.field, test.sealed)
		if !errors.Is(err, test.want) || err == nil && string(got) != "123" {
			t.Errorf("%s: OpenShortLived = %q, %v, want %v", name, got, err, test.want)
		}
	}
	if _, err := w.keys(one).Open("r", "cvc", sealed); !errors.Is(err, keyring.ErrDamaged) {
		t.Errorf("Open of a short-lived value = %v, want ErrDamaged", err)
	}
	if _, err := w.ring.SealShortLived(t.Context(), "00000000-0000-4000-8000-000000000000", "r", "f", nil); !errors.Is(err, keyring.ErrNoKeys) {
		t.Errorf("SealShortLived for nobody = %v, want ErrNoKeys", err)
	}
}

func TestAShortLivedValueIsGoneAnHourAfterItsMinuteBegan(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	sealed, epoch := w.sealCVC(tenant)
	key, err := w.ring.Epoch(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	gone := start.Truncate(time.Minute).Add(time.Hour)
	if !key.Gone().Equal(gone) || key.Epoch() != epoch {
		t.Errorf("key of epoch %d is gone at %v, want %d and %v", key.Epoch(), key.Gone().UTC(), epoch, gone)
	}
	w.clock.Advance(gone.Sub(start) - 1)
	if err := w.openCVC(w.ring, tenant, sealed); err != nil {
		t.Errorf("just before the hour: Open = %v", err)
	}
	if n, err := w.ring.DestroyDue(t.Context(), 0); n != 0 || err != nil {
		t.Errorf("just before the hour: DestroyDue = %d, %v, want nothing", n, err)
	}
	w.clock.Advance(1)
	// The destroyer is late: use is refused all the same, by rings that hold
	// the key and by those that would have to read it.
	for name, ring := range map[string]*keyring.Ring{"held": w.ring, "read": w.open(keyring.Options{})} {
		if err := w.openCVC(ring, tenant, sealed); !errors.Is(err, keyring.ErrGone) {
			t.Errorf("%s: Open after the hour = %v, want ErrGone", name, err)
		}
	}
	if _, err := key.Seal("r", "cvc", []byte("123")); !errors.Is(err, keyring.ErrGone) {
		t.Errorf("Seal after the hour = %v, want ErrGone", err)
	}
	if n, err := w.ring.DestroyDue(t.Context(), 0); n != 1 || err != nil {
		t.Errorf("DestroyDue = %d, %v, want 1", n, err)
	}
	if _, err := w.store.EpochKeys().EpochKey(t.Context(), tenant, epoch); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the wrapped key is still there: %v", err)
	}
}

func TestADestroyedKeyOpensNothingEvenWhenTheClockIsSetBack(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	sealed, epoch := w.sealCVC(tenant)
	w.clock.Advance(time.Hour)
	if n, err := w.ring.DestroyDue(t.Context(), 0); n != 1 || err != nil {
		t.Fatalf("DestroyDue = %d, %v, want 1", n, err)
	}
	w.clock.Advance(-time.Hour)
	for name, ring := range map[string]*keyring.Ring{"that destroyed": w.ring, "new": w.open(keyring.Options{})} {
		if err := w.openCVC(ring, tenant, sealed); !errors.Is(err, keyring.ErrGone) {
			t.Errorf("ring %s: Open = %v, want ErrGone", name, err)
		}
	}
	// The minute gets another key; what the first one sealed stays gone.
	again, number := w.sealCVC(tenant)
	if number != epoch {
		t.Fatalf("epoch %d, want %d again", number, epoch)
	}
	if err := w.openCVC(w.ring, tenant, again); err != nil {
		t.Errorf("Open of the new value = %v", err)
	}
	if err := w.openCVC(w.ring, tenant, sealed); !errors.Is(err, keyring.ErrGone) {
		t.Errorf("Open of the old value = %v, want ErrGone", err)
	}
}

func TestARetentionMayBeShorterAndNeverLonger(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	sealed, _ := w.sealCVC(tenant)
	for _, step := range []struct {
		age, retention time.Duration
		want           error
	}{
		{0, time.Minute, nil},
		{29 * time.Second, time.Minute, nil},
		{30 * time.Second, time.Minute, keyring.ErrGone},
		{30 * time.Second, 2 * time.Minute, nil},
		{59*time.Minute + 29*time.Second, 0, nil},
		{59*time.Minute + 29*time.Second, 30 * time.Minute, keyring.ErrGone},
		{59*time.Minute + 29*time.Second, 90 * time.Minute, nil},
		{59*time.Minute + 30*time.Second, 90 * time.Minute, keyring.ErrGone},
	} {
		w.clock.Advance(start.Add(step.age).Sub(w.clock.Now()))
		_, err := w.ring.OpenShortLived(t.Context(), tenant, step.retention, "r", "cvc", sealed)
		if !errors.Is(err, step.want) {
			t.Errorf("after %v with retention %v: Open = %v, want %v", step.age, step.retention, err, step.want)
		}
	}
	w.clock.Advance(start.Sub(w.clock.Now()))
	if n, err := w.ring.DestroyDue(t.Context(), 2*time.Hour); n != 0 || err != nil {
		t.Errorf("DestroyDue = %d, %v, want nothing", n, err)
	}
	w.clock.Advance(5 * time.Minute)
	if n, err := w.ring.DestroyDue(t.Context(), 5*time.Minute); n != 1 || err != nil {
		t.Errorf("DestroyDue after five minutes with that retention = %d, %v, want 1", n, err)
	}
}

func TestOneKeyAMinuteForAllWhoAsk(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	other := w.open(keyring.Options{})
	w.keys(tenant)
	w.watch().from(nil)
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			if _, err := w.ring.Epoch(t.Context(), tenant); err != nil {
				t.Errorf("Epoch = %v", err)
			}
		})
	}
	group.Wait()
	if n := w.watch().count("AddEpochKey"); n < 1 || n > 10 || w.watch().count("Unwrap") != 0 {
		t.Errorf("%d keys added, %d calls of the KMS", n, w.watch().count("Unwrap"))
	}
	// Two nodes open what the other one sealed.
	a, first := w.sealCVC(tenant)
	b, err := other.SealShortLived(t.Context(), tenant, "r", "cvc", []byte("123"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.openCVC(other, tenant, a), w.openCVC(w.ring, tenant, b)); err != nil {
		t.Errorf("Open of another node's value = %v", err)
	}
	w.clock.Advance(time.Minute)
	if _, second := w.sealCVC(tenant); second != first+1 {
		t.Errorf("a minute later the epoch is %d, want %d", second, first+1)
	}
}

func TestASetOpensTheEpochsForWhichItWasMade(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	a, first := w.sealCVC(tenant)
	w.clock.Advance(time.Minute)
	b, second := w.sealCVC(tenant)
	ring := w.open(keyring.Options{})
	set, err := ring.EpochOf(t.Context(), tenant, 0, first, first-1)
	if err != nil {
		t.Fatalf("EpochOf = %v", err)
	}
	w.watch().from(failAt(0)) // no I/O from here on
	if got, err := set.Open("r", "cvc", a); err != nil || string(got) != "123" {
		t.Errorf("Open = %q, %v", got, err)
	}
	if _, err := set.Open("r", "cvc", b); !errors.Is(err, keyring.ErrOtherEpoch) {
		t.Errorf("Open of epoch %d = %v, want ErrOtherEpoch", second, err)
	}
	gone := bytes.Clone(a)
	gone[8]-- // the epoch before, which never had a key
	if _, err := set.Open("r", "cvc", gone); !errors.Is(err, keyring.ErrGone) {
		t.Errorf("Open of an epoch without a key = %v, want ErrGone", err)
	}
	if _, err := set.Open("r", "cvc", nil); !errors.Is(err, keyring.ErrDamaged) {
		t.Errorf("Open of nothing = %v, want ErrDamaged", err)
	}
}

func TestForgetDropsEpochKeysToo(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	sealed, _ := w.sealCVC(tenant)
	if err := w.store.EpochKeys().DestroyTenantEpochKeys(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	w.ring.Forget(tenant)
	if err := w.openCVC(w.ring, tenant, sealed); !errors.Is(err, keyring.ErrGone) {
		t.Errorf("Open = %v, want ErrGone", err)
	}
}

func TestDamagedEpochKeysOpenNothing(t *testing.T) {
	w := newWorld(t)
	one, two := w.tenant(), w.tenant()
	sealed, epoch := w.sealCVC(one)
	w.sealCVC(two)
	epochs := w.store.EpochKeys()
	good, err := epochs.EpochKey(t.Context(), one, epoch)
	if err != nil {
		t.Fatal(err)
	}
	other, err := epochs.EpochKey(t.Context(), two, epoch)
	if err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(time.Minute)
	_, later := w.sealCVC(one)
	moved, err := epochs.EpochKey(t.Context(), one, later)
	if err != nil {
		t.Fatal(err)
	}
	for name, wrapped := range map[string][]byte{
		"of another tenant": other,
		"of another minute": moved,
		"another format":    append([]byte{0x42}, good[1:]...),
		"cut":               good[:len(good)-1],
		"of another kind":   keyring.WrapOtherKind(w.keys(one), epoch),
	} {
		if err := epochs.ReplaceEpochKey(t.Context(), one, epoch, wrapped); err != nil {
			t.Fatal(err)
		}
		if err := w.openCVC(w.open(keyring.Options{}), one, sealed); !errors.Is(err, keyring.ErrDamaged) {
			t.Errorf("%s: Open = %v, want ErrDamaged", name, err)
		}
		w.clock.Advance(-time.Minute)
		if _, err := w.open(keyring.Options{}).Epoch(t.Context(), one); !errors.Is(err, keyring.ErrDamaged) {
			t.Errorf("%s: Epoch = %v, want ErrDamaged", name, err)
		}
		w.clock.Advance(time.Minute)
	}
}

func TestEpochKeysReportAStoreThatIsAway(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	sealed, _ := w.sealCVC(tenant)
	w.clock.Advance(2 * time.Second)
	ring := w.open(keyring.Options{})
	if _, err := ring.For(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	w.watch().from(func(string, int) error { return store.ErrUnavailable })
	if _, err := ring.Epoch(t.Context(), tenant); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Epoch = %v, want ErrUnavailable", err)
	}
	if err := w.openCVC(ring, tenant, sealed); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Open = %v, want ErrUnavailable", err)
	}
	if _, err := ring.DestroyDue(t.Context(), 0); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("DestroyDue = %v, want ErrUnavailable", err)
	}
}
