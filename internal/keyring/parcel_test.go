package keyring_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

func TestAParcelOpensAsLongAsItsKeyLives(t *testing.T) {
	w := newWorld(t)
	ctx, tenant := t.Context(), w.tenant()
	keys := w.keys(tenant)
	long, short := store.Parcel{Kind: store.ParcelAnswer, ID: "long", Epoch: 7}, store.Parcel{Kind: store.ParcelAnswer, ID: "short"}
	now, err := w.ring.Epoch(ctx, tenant)
	if err != nil {
		t.Fatal(err)
	}
	epoch, err := w.ring.EpochKeyOf(ctx, tenant, now.Epoch())
	if err != nil {
		t.Fatalf("EpochKeyOf this minute = %v", err)
	}
	if err := errors.Join(keys.SealParcel(&long, nil, []byte("x")), keys.SealParcel(&short, epoch, []byte("y"))); err != nil {
		t.Fatal(err)
	}
	if long.Epoch != 0 || short.Epoch != epoch.Epoch() {
		t.Errorf("the epochs are %d and %d, want none and %d", long.Epoch, short.Epoch, epoch.Epoch())
	}
	open := func(p store.Parcel, want string, wantErr error) {
		t.Helper()
		if got, err := w.ring.OpenParcel(ctx, keys, p); string(got) != want || !errors.Is(err, wantErr) {
			t.Errorf("OpenParcel(%s) = %q, %v, want %q, %v", p.ID, got, err, want, wantErr)
		}
	}
	open(long, "x", nil)
	open(short, "y", nil)
	moved := long
	moved.ID = "another"
	if _, err := w.ring.OpenParcel(ctx, keys, moved); !errors.As(err, new(*keyring.OpenError)) {
		t.Errorf("OpenParcel of another parcel's contents = %v, want an OpenError", err)
	}
	w.clock.Advance(keyring.Retention)
	if _, err := w.ring.DestroyDue(ctx, 0); err != nil {
		t.Fatal(err)
	}
	open(long, "x", nil)
	open(short, "", keyring.ErrGone)
	if _, err := w.ring.EpochKeyOf(ctx, tenant, epoch.Epoch()); !errors.Is(err, keyring.ErrGone) {
		t.Errorf("EpochKeyOf a minute that is over = %v, want ErrGone", err)
	}
	if err := keys.SealParcel(&short, epoch, []byte("z")); !errors.Is(err, keyring.ErrGone) {
		t.Errorf("SealParcel under a key that is over = %v, want ErrGone", err)
	}
	if _, err := w.ring.EpochKeyOf(ctx, w.blankTenant(func(store.Keyset) bool { return false }), 1); !errors.Is(err, keyring.ErrNoKeys) {
		t.Errorf("EpochKeyOf a tenant without keys = %v, want ErrNoKeys", err)
	}
}

// A minute that has not come is one from before the clock was set back: nobody
// knows how old its values are.
func TestACodeFromAheadIsGone(t *testing.T) {
	w := newWorld(t)
	ctx, tenant := t.Context(), w.tenant()
	sealed, err := w.ring.SealShortLived(ctx, tenant, "r", "f", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		back      time.Duration
		want      error
		destroyed int
	}{
		{0, nil, 0}, {5 * time.Minute, nil, 0}, {6 * time.Minute, keyring.ErrGone, 0}, {time.Hour, keyring.ErrGone, 0}, {0, nil, 0}, {62 * time.Minute, keyring.ErrGone, 1}, {0, keyring.ErrGone, 0},
	} {
		w.clock.Advance(-c.back)
		if _, err := w.ring.OpenShortLived(ctx, tenant, 0, "r", "f", sealed); !errors.Is(err, c.want) {
			t.Errorf("set back by %v, OpenShortLived = %v, want %v", c.back, err, c.want)
		}
		if n, err := w.ring.DestroyDue(ctx, 0); n != c.destroyed || err != nil {
			t.Errorf("set back by %v, DestroyDue = %d, %v, want %d", c.back, n, err, c.destroyed)
		}
		w.clock.Advance(c.back)
	}
}
