package keyring_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

const checkSetting = "keyring.check"

func TestAnotherKEKIsRefusedInOneSentence(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(t.TempDir(), "other.json")
	if _, err := localkms.Generate(path); err != nil {
		t.Fatal(err)
	}
	other, err := localkms.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	ring, err := keyring.Open(t.Context(), other, w.store, keyring.Options{})
	if !errors.Is(err, keyring.ErrWrongKEK) || ring != nil {
		t.Fatalf("Open with another KEK = %v, want ErrWrongKEK and no ring", err)
	}
	if !strings.Contains(err.Error(), w.local.Primary()) || strings.Contains(err.Error(), "\n") {
		t.Errorf("Open says %q, want one sentence that names the right key", err)
	}
	if _, err := keyring.Open(t.Context(), w.local, w.store, keyring.Options{}); err != nil {
		t.Errorf("Open with the right KEK = %v", err)
	}
}

func TestOpenRefusesADamagedCheckValue(t *testing.T) {
	w := newWorld(t)
	good, err := w.store.AllTenants().Setting(t.Context(), checkSetting)
	if err != nil {
		t.Fatal(err)
	}
	wrapped, id, err := w.local.Wrap(t.Context(), []byte("something else"), keyring.CheckBinding)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		value []byte
		want  error
	}{
		"as it was":            {good, nil},
		"empty":                {[]byte{}, keyring.ErrDamaged},
		"one byte":             {good[:1], keyring.ErrDamaged},
		"an id that is cut":    {good[:5], keyring.ErrDamaged},
		"another format":       {append([]byte{0x52}, good[1:]...), keyring.ErrDamaged},
		"cut":                  {good[:len(good)-1], keyring.ErrWrongKEK},
		"with a byte too many": {append(bytes.Clone(good), 0), keyring.ErrWrongKEK},
		"another text":         {append(append([]byte{0x51, byte(len(id))}, id...), wrapped...), keyring.ErrDamaged},
	} {
		if err := w.store.AllTenants().PutSetting(t.Context(), checkSetting, test.value); err != nil {
			t.Fatal(err)
		}
		if _, err := keyring.Open(t.Context(), w.kms, w.store, keyring.Options{}); !errors.Is(err, test.want) {
			t.Errorf("%s: Open = %v, want %v", name, err, test.want)
		}
	}
}

func TestTenantsWithoutACheckValueAreNotServed(t *testing.T) {
	w := newWorld(t)
	w.tenant()
	w.watch().from(failOn("Setting", store.ErrNotFound))
	if _, err := keyring.Open(t.Context(), w.kms, w.store, keyring.Options{}); !errors.Is(err, keyring.ErrDamaged) {
		t.Errorf("Open = %v, want ErrDamaged", err)
	}
}

func TestOpenReportsWhatItCouldNotFindOut(t *testing.T) {
	for name, again := range map[string]bool{"a new installation": false, "an old one": true} {
		for n := 0; ; n++ {
			w := newBlankWorld(t)
			if again {
				w.ring = w.open(keyring.Options{})
			}
			w.watch().from(failAt(n))
			_, err := keyring.Open(t.Context(), w.kms, w.store, keyring.Options{})
			if w.watch().count("") <= n {
				if err != nil {
					t.Errorf("%s: Open = %v, though nothing failed", name, err)
				}
				break
			}
			if !errors.Is(err, errKilled) {
				t.Errorf("%s: Open whose call %d failed = %v, want that error", name, n, err)
			}
			w.watch().from(nil)
			if _, err := keyring.Open(t.Context(), w.kms, w.store, keyring.Options{}); err != nil {
				t.Errorf("%s: Open after a failure = %v", name, err)
			}
		}
	}
}

func TestNewTenantMakesFiveWrappedKeysets(t *testing.T) {
	w := newWorld(t)
	sets, err := w.ring.NewTenant(t.Context(), "t1")
	if err != nil {
		t.Fatalf("NewTenant = %v", err)
	}
	var purposes []string
	for _, set := range sets {
		purposes = append(purposes, set.Purpose)
		if set.KEK != w.local.Primary() || set.Version != 1 || set.CreatedAt != store.At(start) || set.ModifiedAt != store.At(start) {
			t.Errorf("keyset %s = KEK %s, version %d, made %v", set.Purpose, set.KEK, set.Version, set.CreatedAt.Time())
		}
	}
	if got := strings.Join(purposes, " "); got != "data fingerprint index keyhash audit" {
		t.Errorf("purposes = %s", got)
	}
	if _, err := w.ring.NewTenant(t.Context(), ""); !errors.Is(err, store.ErrNoTenant) {
		t.Errorf("NewTenant of nobody = %v, want ErrNoTenant", err)
	}
	w.watch().from(failOn("Wrap", errKilled))
	if _, err := w.ring.NewTenant(t.Context(), "t1"); !errors.Is(err, errKilled) {
		t.Errorf("NewTenant without a KMS = %v, want its error", err)
	}
}

func TestARotationWaitsOnATimerAndOnTheContext(t *testing.T) {
	if err := keyring.Pause(t.Context(), time.Nanosecond); err != nil {
		t.Errorf("pause = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := keyring.Pause(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("pause = %v, want context.Canceled", err)
	}
}
