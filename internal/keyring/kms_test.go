package keyring_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// failingKMS fails as it is told to, and can do nothing but wrap and unwrap.
type failingKMS struct {
	kms keyring.KMS
	err error
}

func (f *failingKMS) Primary() string     { return f.kms.Primary() }
func (f *failingKMS) Owns(id string) bool { return f.kms.Owns(id) }

func (f *failingKMS) Wrap(ctx context.Context, plaintext, associated []byte) ([]byte, string, error) {
	if f.err != nil {
		return nil, "", f.err
	}
	return f.kms.Wrap(ctx, plaintext, associated)
}

func (f *failingKMS) Unwrap(ctx context.Context, id string, wrapped, associated []byte) ([]byte, error) {
	if f.err != nil {
		return nil, f.err
	}
	return f.kms.Unwrap(ctx, id, wrapped, associated)
}

// advised also has advice.
type advised struct{ *failingKMS }

func (advised) Advise(what keyring.Operation) string { return "run the tool to " + string(what) }

// probed also can be probed.
type probed struct{ *failingKMS }

func (p probed) Probe(context.Context) error { return p.err }

func localKey(t *testing.T) *localkms.KMS {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kek.json")
	if _, err := localkms.Generate(path); err != nil {
		t.Fatal(err)
	}
	k, err := localkms.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// closing is a KMS that can be closed.
type closing struct {
	keyring.KMS
	done bool
}

func (c *closing) Close() error {
	c.done = true
	return nil
}

func TestSeveralKMSsUnwrapWhatIsTheirs(t *testing.T) {
	old, now, stranger := localKey(t), localKey(t), localKey(t)
	all := keyring.Several{now, old}
	wrapped, id, err := old.Wrap(t.Context(), []byte("key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := all.Unwrap(t.Context(), id, wrapped, nil); err != nil || string(got) != "key" {
		t.Errorf("Unwrap of what the second wrapped = %q, %v", got, err)
	}
	if _, id, err := all.Wrap(t.Context(), []byte("key"), nil); err != nil || id != now.Primary() || all.Primary() != id {
		t.Errorf("Wrap used %q, %v, want the first, %q", id, err, now.Primary())
	}
	if _, err := all.Unwrap(t.Context(), stranger.Primary(), wrapped, nil); !errors.Is(err, keyring.ErrNoKEK) {
		t.Errorf("Unwrap with an unknown id = %v, want ErrNoKEK", err)
	}
	if !all.Owns(old.Primary()) || !all.Owns(now.Primary()) || all.Owns(stranger.Primary()) {
		t.Error("Owns does not name exactly the keys of both")
	}
	// A key that another process added to the file is found.
	path := filepath.Join(t.TempDir(), "kek.json")
	if _, err := localkms.Generate(path); err != nil {
		t.Fatal(err)
	}
	here, err1 := localkms.Open(path)
	there, err2 := localkms.Open(path)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if _, err := there.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if wrapped, id, err = there.Wrap(t.Context(), []byte("key"), nil); err != nil {
		t.Fatal(err)
	}
	if got, err := (keyring.Several{now, here}).Unwrap(t.Context(), id, wrapped, nil); err != nil || string(got) != "key" {
		t.Errorf("Unwrap with a key that came later = %q, %v", got, err)
	}
}

func TestSeveralKMSsCanDoWhatTheirMembersCan(t *testing.T) {
	file, other := localKey(t), localKey(t)
	plain := &failingKMS{kms: other}
	all := keyring.Several{file, plain}
	if got := all.IDs(); !slices.Equal(got, []string{file.Primary(), other.Primary()}) {
		t.Errorf("IDs = %q", got)
	}
	if err := all.Reload(); err != nil {
		t.Errorf("Reload = %v", err)
	}
	first := file.Primary()
	if id, err := all.Rotate(t.Context()); err != nil || id != file.Primary() || id == first {
		t.Errorf("Rotate = %q, %v", id, err)
	}
	if err := all.Drop(t.Context(), first); err != nil {
		t.Errorf("Drop of a key in the file = %v", err)
	}
	if err := all.Drop(t.Context(), "none"); !errors.Is(err, keyring.ErrNoKEK) {
		t.Errorf("Drop of an unknown key = %v, want ErrNoKEK", err)
	}
	var unsupported *keyring.Unsupported
	if err := all.Drop(t.Context(), other.Primary()); !errors.As(err, &unsupported) || unsupported.What != keyring.Drop || strings.Contains(err.Error(), ";") {
		t.Errorf("Drop of a key that cannot be dropped = %v, want Unsupported", err)
	}
	if _, err := (keyring.Several{advised{plain}}).Rotate(t.Context()); !errors.As(err, &unsupported) || !strings.Contains(err.Error(), "run the tool to rotate") {
		t.Errorf("Rotate of a key that others rotate = %v, want the advice", err)
	}
	if err := all.Probe(t.Context()); err != nil {
		t.Errorf("Probe of what cannot be probed = %v", err)
	}
	var closed closing
	if err := (keyring.Several{file, &closed}).Close(); err != nil || !closed.done {
		t.Errorf("Close = %v, want those closed that can be", err)
	}
	plain.err = keyring.ErrExcess
	if err := (keyring.Several{probed{plain}}).Probe(t.Context()); !errors.Is(err, keyring.ErrExcess) {
		t.Errorf("Probe = %v, want ErrExcess", err)
	}
}

// A KMS that does not respond is no reason to take keys for lost, or for wrong.
func TestAnOutageOfTheKMS(t *testing.T) {
	for name, down := range map[string]error{"unavailable": keyring.ErrKMSUnavailable, "refused": keyring.ErrKEKRefused} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			known := w.tenant()
			kms := &failingKMS{kms: w.local, err: down}
			if _, err := keyring.Open(t.Context(), kms, w.store, keyring.Options{}); !errors.Is(err, down) || errors.Is(err, keyring.ErrWrongKEK) {
				t.Errorf("Open = %v, want %v", err, down)
			}
			ring, err := keyring.Open(t.Context(), kms, w.store, keyring.Options{Now: w.clock.Now, Later: true})
			if err != nil {
				t.Fatalf("Open that waits for the KMS = %v", err)
			}
			if ring.Proven() || !errors.Is(ring.Prove(t.Context()), down) {
				t.Error("the KMS counts as proven while it is down")
			}
			if _, err := ring.For(t.Context(), known); !keyring.IsKMSDown(err) || errors.Is(err, keyring.ErrUnwrap) {
				t.Errorf("For = %v, want one that says that the KMS is down", err)
			}
			if _, err := ring.NewTenant(t.Context(), "new"); !keyring.IsKMSDown(err) {
				t.Errorf("NewTenant = %v, want one that says that the KMS is down", err)
			}
			kms.err = nil
			if err := ring.Prove(t.Context()); err != nil || !ring.Proven() {
				t.Fatalf("Prove = %v", err)
			}
			if _, err := ring.For(t.Context(), known); err != nil {
				t.Fatalf("For = %v", err)
			}
			// What is in memory is used on, until it is forgotten.
			kms.err = down
			w.clock.Advance(time.Hour)
			if _, err := ring.For(t.Context(), known); err != nil {
				t.Errorf("For of keys in memory = %v", err)
			}
			ring.ForgetAll()
			if _, err := ring.For(t.Context(), known); !errors.Is(err, down) {
				t.Errorf("For of forgotten keys = %v, want %v", err, down)
			}
		})
	}
	t.Run("a wrong key is found when the KMS is back", func(t *testing.T) {
		w := newWorld(t)
		kms := &failingKMS{kms: localKey(t), err: keyring.ErrKMSUnavailable}
		ring, err := keyring.Open(t.Context(), kms, w.store, keyring.Options{Later: true})
		if err != nil {
			t.Fatal(err)
		}
		kms.err = nil
		if err := ring.Prove(t.Context()); !errors.Is(err, keyring.ErrWrongKEK) {
			t.Errorf("Prove = %v, want ErrWrongKEK", err)
		}
	})
}

func TestAMissingKeyIsReportedOnceASecond(t *testing.T) {
	w := newWorld(t)
	tenants := []string{w.tenant(), w.tenant(), w.tenant()}
	var reported []string
	kms := &failingKMS{kms: w.local}
	ring, err := keyring.Open(t.Context(), kms, w.store, keyring.Options{Now: w.clock.Now, Missing: func(id string) { reported = append(reported, id) }})
	if err != nil {
		t.Fatal(err)
	}
	kms.err = keyring.ErrNoKEK
	for i, tenant := range tenants {
		if i == 2 {
			w.clock.Advance(time.Second)
		}
		if _, err := ring.For(t.Context(), tenant); !errors.Is(err, keyring.ErrNoKEK) {
			t.Fatalf("For = %v, want ErrNoKEK", err)
		}
	}
	if len(reported) != 2 || reported[0] != w.local.Primary() {
		t.Errorf("reported %q, want the key twice", reported)
	}
}

func TestStatusAsksTheKMSOnlyDuringARotation(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	keys := w.keys(tenant)
	w.update(tenant, func(tx store.Tx) error {
		row, err := tx.TenantRow(t.Context())
		if err != nil {
			return err
		}
		if row.Secrets, err = keys.Seal(tenant, keyring.FieldTenantSecrets, []byte("secret")); err != nil {
			return err
		}
		return tx.ReplaceTenant(t.Context(), row)
	})
	look := func(when string, calls int) keyring.TenantStatus {
		t.Helper()
		w.watch().from(nil)
		status := w.status(tenant)
		if got := w.watch().count("Unwrap"); got != calls {
			t.Errorf("%s: Status made %d calls of the KMS, want %d", when, got, calls)
		}
		return status
	}
	before := look("before a rotation", 0)
	if len(before.Data) != 1 || !before.Data[0].Primary || before.Data[0].ID == 0 {
		t.Errorf("before a rotation: %+v", before.Data)
	}
	if err := w.ring.RotateTenant(t.Context(), tenant, nil); err != nil {
		t.Fatal(err)
	}
	during := look("during a rotation", 5)
	if len(during.Data) != 2 || during.Data[0].ID != before.Data[0].ID {
		t.Errorf("during a rotation: %+v", during.Data)
	}
	if err := w.ring.RetireTenant(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	after := look("after a rotation", 0)
	if len(after.Data) != 1 || after.Data[0].ID != during.Data[1].ID || !after.Data[0].Primary {
		t.Errorf("after a rotation: %+v, want %+v", after.Data, during.Data[1])
	}
	if err := w.ring.OpenKeys(t.Context()); err != nil {
		t.Errorf("OpenKeys = %v", err)
	}
	if old, err := w.ring.OldKEKs(t.Context()); err != nil || len(old) != 0 {
		t.Errorf("OldKEKs = %q, %v, want none", old, err)
	}
	w.watch().from(nil)
	last := w.newKEK()
	if old, err := w.ring.OldKEKs(t.Context()); err != nil || !slices.Equal(old, []string{last}) || w.watch().count("Unwrap") != 0 {
		t.Errorf("OldKEKs = %q, %v, want %q without the KMS", old, err, last)
	}
}
