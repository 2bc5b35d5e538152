package keyring_test

import (
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
)

func TestAWatchSeesTheOldestEpoch(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	old, epoch := w.sealCVC(tenant)
	w.clock.Advance(2 * time.Minute)
	fresh, _ := w.sealCVC(tenant)

	outer, seen := keyring.Watched(t.Context())
	inner, same := keyring.Watched(outer)
	if seen != same || seen.Oldest() != nil {
		t.Error("a watch inside another is not the same, or has seen something already")
	}
	elsewhere, other := keyring.Watched(t.Context())
	for _, step := range []struct {
		name   string
		sealed []byte
		want   int64
	}{
		{"the fresh one", fresh, epoch + 2},
		{"the old one", old, epoch},
		{"the fresh one again", fresh, epoch},
	} {
		if _, err := w.ring.OpenShortLived(inner, tenant, 0, "r", "cvc", step.sealed); err != nil {
			t.Fatalf("%s: OpenShortLived = %v", step.name, err)
		}
		if got := seen.Oldest(); got == nil || got.Epoch() != step.want {
			t.Errorf("%s: the watch has seen %v, want epoch %d", step.name, got, step.want)
		}
	}
	if other.Oldest() != nil {
		t.Error("a watch saw what happened under another")
	}
	if _, err := w.ring.OpenShortLived(seen.Over(elsewhere), tenant, 0, "r", "cvc", old); err != nil || other.Oldest() != nil {
		t.Errorf("OpenShortLived = %v, and the covered watch has seen %v", err, other.Oldest())
	}

	w.clock.Advance(time.Hour)
	gone, late := keyring.Watched(t.Context())
	if _, err := w.ring.DestroyDue(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	_, _ = w.ring.OpenShortLived(gone, tenant, 0, "r", "cvc", old)
	if late.Oldest() != nil {
		t.Error("the watch has seen a key that is gone")
	}
}
