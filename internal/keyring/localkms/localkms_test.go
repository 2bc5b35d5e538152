package localkms_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/prf"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/kmstest"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// generate makes a key file and opens it.
func generate(t *testing.T) (path string, kms *localkms.KMS) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "kek.json")
	id, err := localkms.Generate(path)
	if err != nil {
		t.Fatalf("Generate = %v", err)
	}
	if kms, err = localkms.Open(path); err != nil {
		t.Fatalf("Open = %v", err)
	}
	if kms.Primary() != id {
		t.Fatalf("Primary = %q, want %q, as Generate said", kms.Primary(), id)
	}
	return path, kms
}

func TestAFileIsAKMS(t *testing.T) {
	kmstest.Run(t, func(t *testing.T) kmstest.Fixture {
		_, kms := generate(t)
		_, other := generate(t)
		return kmstest.Fixture{KMS: kms, Other: other, Rotate: func(t *testing.T) {
			if _, err := kms.Rotate(t.Context()); err != nil {
				t.Fatalf("Rotate = %v", err)
			}
		}}
	})
}

func TestATextIsTheSameKMSAsItsFile(t *testing.T) {
	path, file := generate(t)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := localkms.FromText(secret.NewText(string(content)))
	if err != nil {
		t.Fatalf("FromText = %v", err)
	}
	wrapped, id, err := file.Wrap(t.Context(), []byte("key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := text.Unwrap(t.Context(), id, wrapped, nil); err != nil || string(got) != "key" {
		t.Errorf("Unwrap = %q, %v, want what the file wrapped", got, err)
	}
	if _, err := text.Unwrap(t.Context(), "local-00000000", wrapped, nil); !errors.Is(err, keyring.ErrUnwrap) {
		t.Errorf("Unwrap with an unknown id = %v, want ErrUnwrap", err)
	}
	if _, err := text.Rotate(t.Context()); !errors.Is(err, localkms.ErrNoFile) {
		t.Errorf("Rotate = %v, want ErrNoFile", err)
	}
	if err := text.Reload(); err != nil {
		t.Errorf("Reload = %v, want none", err)
	}
}

func TestGenerateLeavesAPrivateFileAndTouchesNoOther(t *testing.T) {
	path, _ := generate(t)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o600 {
		t.Errorf("the key file has mode %v, want 0600", info.Mode())
	}
	before, _ := os.ReadFile(path)
	if _, err := localkms.Generate(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("Generate over a file = %v, want os.ErrExist", err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("Generate changed a file that was there")
	}
}

func TestAFileThatOthersMayUseIsRefused(t *testing.T) {
	for mode, want := range map[os.FileMode]bool{
		0o600: true, 0o400: true, 0o640: false, 0o604: false, 0o660: false, 0o601: false, 0o620: false, 0o644: false,
	} {
		path, _ := generate(t)
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := localkms.Open(path)
		if (err == nil) != want {
			t.Errorf("Open of mode %04o = %v", mode, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "0600") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("Open of mode %04o says %q, want one sentence with the remedy", mode, err)
		}
	}
}

func TestAFileOfAnotherUserIsRefused(t *testing.T) {
	path, _ := generate(t)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	if err := localkms.Private(info, owner); err != nil {
		t.Errorf("own file: %v", err)
	}
	// A file of root's is fine for everyone who can read it at all.
	info.Sys().(*syscall.Stat_t).Uid = 0
	if err := localkms.Private(info, owner+1); err != nil {
		t.Errorf("file of root: %v", err)
	}
	info.Sys().(*syscall.Stat_t).Uid = uint32(owner + 1)
	if err := localkms.Private(info, owner); err == nil {
		t.Error("the file of another user is accepted")
	}
}

func TestWhatIsNoKeyFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	if _, err := localkms.Open(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open of nothing = %v, want os.ErrNotExist", err)
	}
	if _, err := localkms.Open(dir); err == nil {
		t.Error("a folder is accepted")
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := localkms.Open(pipe); err == nil {
		t.Error("a pipe is accepted")
	}

	path, _ := generate(t)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty":              "",
		"not JSON":           "4242424242424242",
		"no keys":            "{}",
		"more behind it":     string(good) + string(good),
		"cut":                string(good[:len(good)-20]),
		"another kind":       keysetText(t, prf.HMACSHA256PRFKeyTemplate(), nil),
		"another AEAD":       keysetText(t, aead.AES128GCMKeyTemplate(), nil),
		"without a prefix":   keysetText(t, aead.XAES256GCM192BitNonceNoPrefixKeyTemplate(), nil),
		"with a disabled":    keysetText(t, aead.XAES256GCM192BitNonceKeyTemplate(), (*keyset.Manager).Disable),
		"beyond the maximum": strings.Repeat(" ", 64<<10) + string(good),
	} {
		path := filepath.Join(t.TempDir(), "kek")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := localkms.Open(path)
		if !errors.Is(err, localkms.ErrFormat) {
			t.Errorf("%s: Open = %v, want ErrFormat", name, err)
		}
		if name == "beyond the maximum" {
			continue
		}
		if _, err := localkms.FromText(secret.NewText(text)); err != localkms.ErrFormat {
			t.Errorf("%s: FromText = %v, want ErrFormat and no more", name, err)
		}
	}
}

// keysetText returns a keyset with a key of the kind, and a second one that
// second changes.
func keysetText(t *testing.T, template *tinkpb.KeyTemplate, second func(*keyset.Manager, uint32) error) string {
	t.Helper()
	m := keyset.NewManager()
	id, err := m.Add(template)
	if err == nil {
		err = m.SetPrimary(id)
	}
	if err == nil && second != nil {
		if id, err = m.Add(template); err == nil {
			err = second(m, id)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	handle, err := m.Handle()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := insecurecleartextkeyset.Write(handle, keyset.NewJSONWriter(&text)); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func TestRotateReplacesTheFileBehindALink(t *testing.T) {
	path, _ := generate(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	kms, err := localkms.Open(link)
	if err != nil {
		t.Fatalf("Open of a link = %v", err)
	}
	id, err := kms.Rotate(t.Context())
	if err != nil {
		t.Fatalf("Rotate = %v", err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link became %v, %v", info.Mode(), err)
	}
	again, err := localkms.Open(path)
	if err != nil || again.Primary() != id || len(again.IDs()) != 2 {
		t.Errorf("the file has %v, %v, want two keys and the primary %s", again.IDs(), err, id)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file has mode %v, %v, want 0600", info.Mode(), err)
	}
}

func TestAKeyThatAnotherProcessAddedIsFound(t *testing.T) {
	path, one := generate(t)
	two, err := localkms.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := two.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	wrapped, id, err := two.Wrap(t.Context(), []byte("key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := one.Unwrap(t.Context(), id, wrapped, nil); err != nil || string(got) != "key" {
		t.Errorf("Unwrap = %q, %v", got, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Unwrap(t.Context(), "local-00000000", wrapped, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Unwrap with an unknown id and no file = %v, want os.ErrNotExist: it cannot tell", err)
	}
	if _, err := one.Rotate(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Rotate without the file = %v, want os.ErrNotExist", err)
	}
}

func TestDropTakesOldKeysAlone(t *testing.T) {
	path, kms := generate(t)
	old := kms.Primary()
	wrapped, _, err := kms.Wrap(t.Context(), []byte("key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := kms.Drop(t.Context(), old); err == nil {
		t.Error("the primary key was dropped")
	}
	id, err := kms.Rotate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, none := range []string{"", "local-", "local-zz", "local-0000000g", "local-00000000", strings.ToUpper(old)} {
		if err := kms.Drop(t.Context(), none); err == nil {
			t.Errorf("Drop(%q) = nil, want an error", none)
		}
	}
	if err := kms.Drop(t.Context(), old); err != nil {
		t.Fatalf("Drop = %v", err)
	}
	if _, err := kms.Unwrap(t.Context(), old, wrapped, nil); !errors.Is(err, keyring.ErrUnwrap) {
		t.Errorf("Unwrap with a dropped key = %v, want ErrUnwrap", err)
	}
	again, err := localkms.Open(path)
	if err != nil || len(again.IDs()) != 1 || again.Primary() != id {
		t.Errorf("the file has %v, %v, want %s alone", again.IDs(), err, id)
	}
}

func TestNoRotationLosesTheKeyOfAnother(t *testing.T) {
	path, _ := generate(t)
	var mu sync.Mutex
	var group sync.WaitGroup
	made := map[string]bool{}
	for range 8 {
		group.Go(func() {
			kms, err := localkms.Open(path)
			if err != nil {
				t.Errorf("Open = %v", err)
				return
			}
			if id, err := kms.Rotate(t.Context()); err == nil { // or another was at it
				mu.Lock()
				made[id] = true
				mu.Unlock()
			}
		})
	}
	group.Wait()
	kms, err := localkms.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(made) == 0 || len(kms.IDs()) != 1+len(made) {
		t.Errorf("%d keys in the file, want the first and the %d that were made", len(kms.IDs()), len(made))
	}
}

func TestAChangeThatIsUnderWayIsNotDisturbed(t *testing.T) {
	path, kms := generate(t)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := kms.Rotate(t.Context()); err == nil {
		t.Error("Rotate went on under another's lock")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := kms.Rotate(t.Context()); err != nil {
		t.Errorf("Rotate after the lock was gone = %v", err)
	}
}

func TestWhatAKilledRotationLeftBehindIsRemoved(t *testing.T) {
	path, kms := generate(t)
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, path+".new"); err != nil {
		t.Fatal(err)
	}
	if _, err := kms.Rotate(t.Context()); err != nil {
		t.Fatalf("Rotate = %v", err)
	}
	if content, _ := os.ReadFile(victim); string(content) != "mine" {
		t.Error("Rotate wrote through a link that was in its way")
	}
	if _, err := os.Lstat(path + ".new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s.new is still there: %v", filepath.Base(path), err)
	}
}

func TestAFailedReplacementChangesNothing(t *testing.T) {
	path, kms := generate(t)
	primary := kms.Primary()
	// A folder that is not empty cannot be removed, so the new file cannot be made.
	if err := os.MkdirAll(filepath.Join(path+".new", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := kms.Rotate(t.Context()); err == nil {
		t.Error("Rotate = nil, want an error")
	}
	again, err := localkms.Open(path)
	if err != nil || again.Primary() != primary || kms.Primary() != primary {
		t.Errorf("the primary is %s in the file and %s in memory, %v, want %s", again.Primary(), kms.Primary(), err, primary)
	}
}

func TestAFileThatCannotBeWrittenIsRemoved(t *testing.T) {
	_, kms := generate(t)
	path := filepath.Join(t.TempDir(), "new")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	readOnly, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := localkms.Fill(readOnly, kms); err == nil {
		t.Error("fill = nil, want an error")
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half a file is left: %v", err)
	}
}

func TestAFileThatOthersMayUseIsNotChanged(t *testing.T) {
	path, kms := generate(t)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := kms.Rotate(t.Context()); err == nil {
		t.Error("Rotate changed a file that others may read")
	}
	if err := kms.Reload(); err == nil {
		t.Error("Reload read a file that others may read")
	}
}

func TestAKeyThatIsMissingIsLookedForNowAndThen(t *testing.T) {
	path, kms := generate(t)
	now := time.Unix(1_000_000, 0)
	kms.SetClock(func() time.Time { return now })
	other, err := localkms.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	aside := path + ".aside"
	if err := os.Rename(path, aside); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(aside)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil { // as it was, for the one who lacks the key
		t.Fatal(err)
	}
	there, err := localkms.Open(aside)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := there.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	wrapped, id, err := there.Wrap(t.Context(), []byte("key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	missing := func(when string) {
		t.Helper()
		_, err := kms.Unwrap(t.Context(), id, wrapped, nil)
		if !errors.Is(err, keyring.ErrNoKEK) || !errors.Is(err, keyring.ErrUnwrap) || !strings.Contains(err.Error(), id) {
			t.Errorf("%s: Unwrap = %v, want ErrNoKEK with the id", when, err)
		}
	}
	missing("without the key in the file")
	if err := os.Rename(aside, path); err != nil {
		t.Fatal(err)
	}
	missing("a moment later, with the key in the file")
	if old, id, err := other.Wrap(t.Context(), []byte("old"), nil); err != nil || id != there.Primary() {
		t.Errorf("Wrap = %d bytes with %s, %v; want the primary key of the file as it is, %s", len(old), id, err, there.Primary())
	}
	now = now.Add(time.Second)
	if got, err := kms.Unwrap(t.Context(), id, wrapped, nil); err != nil || string(got) != "key" {
		t.Errorf("a second later: Unwrap = %q, %v", got, err)
	}
}

func TestAFileThatWasReplacedTakesNoKeyAway(t *testing.T) {
	path, kms := generate(t)
	wrapped, id, err := kms.Wrap(t.Context(), []byte("key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	stranger, _ := generate(t)
	if err := os.Rename(stranger, path); err != nil {
		t.Fatal(err)
	}
	if err := kms.Reload(); !errors.Is(err, localkms.ErrOther) {
		t.Errorf("Reload of another's file = %v, want %v", err, localkms.ErrOther)
	}
	if _, err := kms.Unwrap(t.Context(), "local-00000000", wrapped, nil); !errors.Is(err, keyring.ErrNoKEK) {
		t.Errorf("Unwrap with a key that nobody has = %v, want ErrNoKEK", err)
	}
	if _, by, err := kms.Wrap(t.Context(), []byte("key"), nil); err != nil || by != id {
		t.Errorf("Wrap beside another's file = %s, %v, want the key from before, %s", by, err, id)
	}

	// A later form of the file, from which the old key is gone, is another thing.
	later, err := localkms.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	fresh, by, err := later.Wrap(t.Context(), []byte("new"), nil)
	if err != nil {
		t.Fatal(err)
	}
	kms.SetClock(func() time.Time { return time.Now().Add(time.Hour) })
	if got, err := kms.Unwrap(t.Context(), by, fresh, nil); err != nil || string(got) != "new" || slices.Contains(kms.IDs(), id) {
		t.Errorf("Unwrap with a key that the file has = %q, %v", got, err)
	}
	if got, err := kms.Unwrap(t.Context(), id, wrapped, nil); err != nil || string(got) != "key" {
		t.Errorf("Unwrap with the key in memory alone = %q, %v", got, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, _, err := kms.Wrap(t.Context(), []byte("key"), nil); err != nil {
		t.Errorf("Wrap without the file = %v", err)
	}
}
