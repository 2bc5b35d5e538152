package pkcs11_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/envelope"
	"github.com/tokenkeep/tokenkeep/internal/keyring/kmstest"
	"github.com/tokenkeep/tokenkeep/internal/keyring/pkcs11"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// uri names a key of the token, with the PIN in a file.
func uri(t *testing.T, module, key string) string {
	t.Helper()
	return "pkcs11:token=a%20token;object=" + key + "?module-path=" + module + "&pin-source=file:" + write(t, pin)
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pin")
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// options let this binary be the program, on a clock that never makes anybody wait.
func options(t *testing.T) pkcs11.Options {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	calls := kmstest.Calls()
	return pkcs11.Options{Program: self, Now: calls.Now, Envelope: calls}
}

func open(t *testing.T, uri string, o pkcs11.Options) *envelope.KMS {
	t.Helper()
	k, err := pkcs11.Open(uri, o)
	if err != nil {
		t.Fatalf("Open = %v", err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return k
}

// tokens are what the tests run on: a token in memory, and SoftHSM.
func tokens(t *testing.T, test func(t *testing.T, module string)) {
	t.Run("memory", func(t *testing.T) { test(t, "/none.so") })
	t.Run("SoftHSM", func(t *testing.T) {
		module := softHSM(t)
		newControl(t)
		for _, key := range []string{"one", "two"} {
			if _, err := pkcs11.Create(t.Context(), uri(t, module, key), options(t)); err != nil {
				t.Fatalf("Create(%s) = %v", key, err)
			}
		}
		test(t, module)
	})
}

func TestATokenIsAKMS(t *testing.T) {
	tokens(t, func(t *testing.T, module string) {
		kmstest.Run(t, func(t *testing.T) kmstest.Fixture {
			c := newControl(t)
			return kmstest.Fixture{
				KMS: open(t, uri(t, module, "one"), options(t)), Other: open(t, uri(t, module, "two"), options(t)),
				Fail: c.fail, Hung: c.hung,
			}
		})
	})
}

// KEEPTEST_PKCS11 names a key of a real token as the setting kek does, and
// KEEPTEST_PKCS11_OTHER another one; the program is in PATH.
func TestARealTokenIsAKMS(t *testing.T) {
	uri, other := os.Getenv("KEEPTEST_PKCS11"), os.Getenv("KEEPTEST_PKCS11_OTHER")
	if uri == "" || other == "" {
		t.Skip("KEEPTEST_PKCS11 and KEEPTEST_PKCS11_OTHER name no keys")
	}
	kmstest.Run(t, func(t *testing.T) kmstest.Fixture {
		return kmstest.Fixture{KMS: open(t, uri, pkcs11.Options{}), Other: open(t, other, pkcs11.Options{})}
	})
}

func TestAProgramThatEndsInTheMiddleOfACallIsStartedAgain(t *testing.T) {
	tokens(t, func(t *testing.T, module string) {
		c := newControl(t)
		k := open(t, uri(t, module, "one"), options(t))
		for range 3 {
			c.fail(once)
			wrapped, id, err := k.Wrap(t.Context(), []byte("key"), nil)
			if err != nil {
				t.Fatalf("Wrap while the program ends = %v", err)
			}
			c.fail(once)
			if got, err := k.Unwrap(t.Context(), id, wrapped, nil); err != nil || string(got) != "key" {
				t.Errorf("Unwrap while the program ends = %q, %v", got, err)
			}
		}
		if got := c.started(); got != 7 {
			t.Errorf("the program was started %d times, want 7", got)
		}
	})
}

// watch records the functions that end a call which takes too long.
type watch struct {
	mu   sync.Mutex // guards late
	late []func()
}

func (w *watch) after(_ time.Duration, f func()) func() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = append(w.late, f)
	return func() bool { return true }
}

func (w *watch) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.late {
		f()
	}
	w.late = nil
}

func TestAProgramThatHangsIsKilled(t *testing.T) {
	c := newControl(t)
	var w watch
	o := options(t)
	o.After = w.after
	k := open(t, uri(t, "/none.so", "one"), o)
	c.fail(kmstest.Hangs)
	done := make(chan error, 1)
	go func() {
		_, _, err := k.Wrap(t.Context(), []byte("key"), nil)
		done <- err
	}()
	waittest.Receive(t, "a call that hangs", c.hung)
	w.fire()
	waittest.Receive(t, "the next attempt, in another run", c.hung)
	if got := c.started(); got != 2 {
		t.Errorf("the program was started %d times, want 2", got)
	}
	c.fail(kmstest.None)
	if err := waittest.Receive(t, "the end of the call", done); err != nil {
		t.Errorf("Wrap = %v", err)
	}
}

func TestAProgramThatKeepsEndingIsStartedWithGrowingPauses(t *testing.T) {
	c := newControl(t)
	clock := clocktest.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	o := options(t)
	o.Now = clock.Now
	o.Envelope.Attempts = 1
	k := open(t, uri(t, "/none.so", "one"), o)
	c.fail(kmstest.Down)
	starts := 0
	for _, pause := range []time.Duration{0, 0, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond} {
		if pause > 0 {
			clock.Advance(pause - time.Millisecond)
			if _, _, err := k.Wrap(t.Context(), []byte("key"), nil); !errors.Is(err, keyring.ErrKMSUnavailable) || c.started() != starts {
				t.Errorf("a moment before %s: %v after %d starts, want ErrKMSUnavailable and no new one", pause, err, c.started())
			}
			clock.Advance(time.Millisecond)
		}
		starts++
		if _, _, err := k.Wrap(t.Context(), []byte("key"), nil); !errors.Is(err, keyring.ErrKMSUnavailable) || c.started() != starts {
			t.Errorf("after %s: %v after %d starts, want ErrKMSUnavailable after %d", pause, err, c.started(), starts)
		}
	}
	for range 20 { // the pauses are bounded
		clock.Advance(30 * time.Second)
		starts++
		if _, _, err := k.Wrap(t.Context(), []byte("key"), nil); !errors.Is(err, keyring.ErrKMSUnavailable) || c.started() != starts {
			t.Fatalf("after 30s: %v after %d starts, want ErrKMSUnavailable after %d", err, c.started(), starts)
		}
	}
	c.fail(kmstest.None)
	clock.Advance(30 * time.Second)
	if _, _, err := k.Wrap(t.Context(), []byte("key"), nil); err != nil {
		t.Errorf("Wrap = %v", err)
	}
}

func TestAWrongPINIsTriedOnce(t *testing.T) {
	tokens(t, func(t *testing.T, module string) {
		c := newControl(t)
		file := write(t, "wrong-pin-4711")
		k := open(t, "pkcs11:token=a%20token;object=one?module-path="+module+"&pin-source="+file, options(t))
		for range 3 {
			if _, _, err := k.Wrap(t.Context(), []byte("key"), nil); !errors.Is(err, keyring.ErrKEKRefused) || strings.Contains(err.Error(), "4711") {
				t.Errorf("Wrap = %v, want ErrKEKRefused without the PIN", err)
			}
		}
		if got := c.started(); got != 1 {
			t.Errorf("the PIN was tried %d times, want once", got)
		}
		if err := os.WriteFile(file, []byte(pin), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := k.Wrap(t.Context(), []byte("key"), nil); err != nil {
			t.Errorf("Wrap with the right PIN = %v", err)
		}
		// Only its owner may read the file, and without it nothing starts.
		for _, tc := range []struct {
			name   string
			change func() error
		}{
			{"others may read it", func() error { return os.Chmod(file, 0o644) }},
			{"it is gone", func() error { return os.Remove(file) }},
		} {
			if err := tc.change(); err != nil {
				t.Fatal(err)
			}
			k := open(t, "pkcs11:token=a%20token;object=one?module-path="+module+"&pin-source=file://"+file, options(t))
			if _, _, err := k.Wrap(t.Context(), []byte("key"), nil); !errors.Is(err, keyring.ErrKEKRefused) {
				t.Errorf("%s: Wrap = %v, want ErrKEKRefused", tc.name, err)
			}
		}
	})
}

func TestKeysThatAreMissing(t *testing.T) {
	tokens(t, func(t *testing.T, module string) {
		newControl(t)
		o := options(t)
		o.PIN = secret.NewText(pin)
		at := func(token, key string) string {
			return "pkcs11:token=" + token + ";object=" + key + "?module-path=" + module
		}
		if _, _, err := open(t, at("a%20token", "none"), o).Wrap(t.Context(), []byte("key"), nil); !errors.Is(err, keyring.ErrKEKRefused) || !strings.Contains(err.Error(), "no AES key") {
			t.Errorf("Wrap with a key that is not there = %v, want ErrKEKRefused", err)
		}
		if _, err := pkcs11.Create(t.Context(), at("a%20token", "one"), o); !errors.Is(err, pkcs11.ErrExists) {
			t.Errorf("Create of a key that is there = %v, want ErrExists", err)
		}
		if module == "/none.so" {
			return
		}
		late := open(t, at("a%20token", "late"), o)
		if _, _, err := late.Wrap(t.Context(), []byte("key"), nil); !errors.Is(err, keyring.ErrKEKRefused) {
			t.Errorf("Wrap before the key is made = %v, want ErrKEKRefused", err)
		}
		if id, err := pkcs11.Create(t.Context(), at("a%20token", "late"), o); err != nil || id != late.Primary() {
			t.Errorf("Create = %q, %v, want %q", id, err, late.Primary())
		}
		if err := late.Probe(t.Context()); err != nil {
			t.Errorf("Probe of the key that was made = %v", err)
		}
		if _, _, err := open(t, at("another", "one"), o).Wrap(t.Context(), []byte("key"), nil); !errors.Is(err, keyring.ErrKMSUnavailable) || !strings.Contains(err.Error(), "no slot") {
			t.Errorf("Wrap with a token that is not there = %v, want ErrKMSUnavailable", err)
		}
		if _, err := pkcs11.Create(t.Context(), at("a%20token", "twice"), o); err != nil {
			t.Fatal(err)
		}
		if _, err := pkcs11.Create(t.Context(), strings.Replace(at("a%20token", "twice"), "?", ";id=%02?", 1), o); err != nil {
			t.Fatal(err)
		}
		if _, _, err := open(t, at("a%20token", "twice"), o).Wrap(t.Context(), []byte("key"), nil); !errors.Is(err, keyring.ErrKEKRefused) || !strings.Contains(err.Error(), "several") {
			t.Errorf("Wrap with one of two keys of a name = %v, want ErrKEKRefused", err)
		}
		if err := open(t, strings.Replace(at("a%20token", "twice"), "?", ";id=%02?", 1), o).Probe(t.Context()); err != nil {
			t.Errorf("Probe of the one with an id = %v", err)
		}
	})
}

func TestAModuleThatCannotBeLoaded(t *testing.T) {
	softHSM(t)
	newControl(t)
	if _, _, err := open(t, uri(t, "/none.so", "one"), options(t)).Wrap(t.Context(), []byte("key"), nil); !errors.Is(err, keyring.ErrKMSUnavailable) || !strings.Contains(err.Error(), "module") {
		t.Errorf("Wrap = %v, want ErrKMSUnavailable that names the module", err)
	}
}

func TestAProgramThatIsNotThere(t *testing.T) {
	o := options(t)
	o.Program = filepath.Join(t.TempDir(), "none")
	_, err := pkcs11.Create(t.Context(), uri(t, "/none.so", "one"), o)
	if !errors.Is(err, keyring.ErrKMSUnavailable) || !strings.Contains(err.Error(), "tokenkeep-pkcs11") {
		t.Errorf("Create = %v, want ErrKMSUnavailable that names the program", err)
	}
}

func TestAKeyThatCanLeaveIsFound(t *testing.T) {
	newControl(t)
	if err := open(t, uri(t, "/none.so", "open"), options(t)).Probe(t.Context()); !errors.Is(err, keyring.ErrExcess) {
		t.Errorf("Probe = %v, want ErrExcess", err)
	}
	if err := open(t, uri(t, "/none.so", "one"), options(t)).Probe(t.Context()); err != nil {
		t.Errorf("Probe = %v", err)
	}
}

func TestNothingIsCalledAfterClose(t *testing.T) {
	c := newControl(t)
	k := open(t, uri(t, "/none.so", "one"), options(t))
	if _, _, err := k.Wrap(t.Context(), []byte("key"), nil); err != nil {
		t.Fatal(err)
	}
	if err := k.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	if _, _, err := k.Wrap(t.Context(), []byte("key"), nil); !errors.Is(err, keyring.ErrKMSUnavailable) || c.started() != 1 {
		t.Errorf("Wrap after Close = %v after %d starts", err, c.started())
	}
}

func TestURIs(t *testing.T) {
	for uri, want := range map[string]string{
		"pkcs11:token=t":                                                        "pkcs11:token",
		"pkcs11:object=k?module-path=/m":                                        "pkcs11:token",
		"pkcs11:token=t;object=k":                                               "module-path",
		"pkcs11:token=t;object=k?module-path=m.so":                              "module-path",
		"pkcs11:token=t;object=k?module-path=/m&pin-value=1":                    "pin-source",
		"pkcs11:token=t;object=k?module-path=/m&pin-source=|x":                  "absolute path",
		"pkcs11:token=t;object=k?module-path=/m&module-name=x":                  "module-path and pin-source",
		"pkcs11:token=t;object=k;slot-id=1?module-path=/m":                      "unknown attribute",
		"pkcs11:token=t;object=k;type=cert?module-path=/m":                      "secret-key",
		"pkcs11:token=t;token=u;object=k?module-path=/m":                        "pkcs11:token",
		"pkcs11:token=%zz;object=k?module-path=/m":                              "pkcs11:token",
		"pkcs11:token;object=k?module-path=/m":                                  "pkcs11:token",
		"https://h":                                                             "pkcs11:token",
		"pkcs11:token=t;object=" + strings.Repeat("k", 300) + "?module-path=/m": "too long",
	} {
		_, err := pkcs11.Open(uri, pkcs11.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%q) = %v, want one that names %q", uri, err, want)
		}
		if _, err := pkcs11.Create(t.Context(), uri, pkcs11.Options{}); err == nil {
			t.Errorf("Create(%q) succeeds", uri)
		}
	}
	k := open(t, "pkcs11:object=k;type=secret-key;token=a%20t;serial=1;id=%01%ff?module-path=/m", pkcs11.Options{})
	if want := "pkcs11:token=a%20t;object=k;id=%01%FF"; k.Primary() != want {
		t.Errorf("Primary = %q, want %q", k.Primary(), want)
	}
	for _, what := range []keyring.Operation{keyring.Create, keyring.Rotate, keyring.Drop} {
		if k.Advise(what) == "" {
			t.Errorf("no advice for %s", what)
		}
	}
}

func FuzzAURIIsRefusedOrNamesAKey(f *testing.F) {
	f.Add("pkcs11:token=a%20t;object=k;id=%01?module-path=/m&pin-source=file:/pin")
	f.Add("pkcs11:;;=?&=")
	f.Fuzz(func(t *testing.T, uri string) {
		k, err := pkcs11.Open(uri, pkcs11.Options{})
		if err != nil {
			return
		}
		again, err := pkcs11.Open(k.Primary()+"?module-path=/m", pkcs11.Options{})
		if err != nil || again.Primary() != k.Primary() || len(k.Primary()) > 255 {
			t.Errorf("the id %q names %v, %v", k.Primary(), again, err)
		}
	})
}
