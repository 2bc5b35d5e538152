package localkms

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
)

// maxFile bounds a key file: a key takes some 200 bytes.
const maxFile = 64 << 10

// Generate makes a key file with one new key and returns its id. It never
// touches a file that is there already.
func Generate(path string) (id string, err error) {
	keys, err := change(keyset.NewManager(), addPrimary)
	if err == nil {
		err = create(path, keys)
	}
	if err != nil {
		return "", fmt.Errorf("localkms: make the key file: %w", err)
	}
	return keys.primary, syncFolder(path)
}

// Open returns a KMS of the keys in a file.
func Open(path string) (*KMS, error) {
	k := &KMS{path: path, now: time.Now}
	if err := k.Reload(); err != nil {
		return nil, err
	}
	return k, nil
}

// Reload reads the file again: another process may have changed it, or the
// operator. Keys that are not in it any more still unwrap, until this process
// ends. A file without the key that wraps is somebody else's: ErrOther.
func (k *KMS) Reload() error {
	if k.path == "" {
		return nil // a text does not change
	}
	using := k.current()
	return k.reread(func(next *keys) error {
		if using != nil && !slices.Contains(next.ids, using.primary) {
			return ErrOther
		}
		return nil
	})
}

// reread uses the keys that are in the file now, unless they are refused.
func (k *KMS) reread(check func(*keys) error) error {
	f, next, err := read(k.path)
	if err != nil {
		return err
	}
	seen, err := f.Stat()
	if err == nil {
		err = check(next)
	}
	if err == nil {
		k.use(next, seen)
	}
	return errors.Join(err, f.Close())
}

// Rotate adds a new key to the file, makes it the primary and uses it from
// then on. The old keys stay until Drop. It is on disk before it wraps.
func (k *KMS) Rotate(context.Context) (id string, err error) {
	if err := k.change(addPrimary); err != nil {
		return "", err
	}
	return k.Primary(), nil
}

// Drop takes a key that is not the primary out of the file. What it wrapped
// does not open any more: keyring.Ring.DropKEK makes sure that nothing is.
func (k *KMS) Drop(_ context.Context, id string) error {
	err := k.change(func(m *keyset.Manager) error {
		var number uint32
		if _, err := fmt.Sscanf(id, "local-%08x", &number); err != nil || idOf(number) != id {
			return errors.New("not the id of a key")
		}
		return m.Delete(number)
	})
	if err == nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.gone, id)
	}
	return err
}

// change replaces the file by one with changed keys and uses those.
func (k *KMS) change(by func(*keyset.Manager) error) error {
	if k.path == "" {
		return ErrNoFile
	}
	// The name that is replaced is the file's own, not that of a link to it.
	path, err := filepath.EvalSymlinks(k.path)
	if err != nil {
		return fmt.Errorf("localkms: find the key file: %w", err)
	}
	f, keys, err := lock(path)
	if err != nil {
		return err
	}
	defer f.Close() // and with it the lock
	if keys, err = change(keyset.NewManagerFromHandle(keys.handle), by); err != nil {
		return fmt.Errorf("localkms: change the keys: %w", err)
	}
	if err := replace(path, keys); err != nil {
		return fmt.Errorf("localkms: replace the key file: %w", err)
	}
	k.use(keys, nil)
	return nil
}

// change returns changed keys.
func change(m *keyset.Manager, by func(*keyset.Manager) error) (*keys, error) {
	err := by(m)
	handle, noHandle := m.Handle()
	if err := errors.Join(err, noHandle); err != nil {
		return nil, err
	}
	return newKeys(handle)
}

// addPrimary adds a key and makes it the one that wraps.
func addPrimary(m *keyset.Manager) error {
	id, err := m.Add(template())
	return errors.Join(err, m.SetPrimary(id))
}

// read opens a key file, refuses one that others can read, and returns it with
// its keys. It does not wait for what is no file, such as a pipe.
func read(path string) (*os.File, *keys, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("localkms: open the key file: %w", err)
	}
	var text []byte
	info, err := f.Stat() // of what was opened, so that nothing can be put in its place
	if err == nil {
		err = private(info, os.Geteuid())
	}
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(f, maxFile))
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("localkms: the key file %s: %w", path, err), f.Close())
	}
	keys, err := parse(text)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, keys, nil
}

// private refuses a file that someone other than the user could read or change.
func private(info os.FileInfo, user int) error {
	if !info.Mode().IsRegular() {
		return errors.New("it is not a regular file")
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("others may use it (mode %04o): make it 0600", info.Mode().Perm())
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != user && owner != 0 {
		return errors.New("it belongs to another user")
	}
	return nil
}

// lock reads a key file and keeps other processes from changing it until the
// returned file is closed.
func lock(path string) (*os.File, *keys, error) {
	f, keys, err := read(path)
	if err != nil {
		return nil, nil, err
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		// Another process may have replaced the file between open and lock.
		opened, err1 := f.Stat()
		named, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(opened, named) {
			return f, keys, nil
		}
	}
	return nil, nil, errors.Join(errors.New("localkms: another process is changing the key file: try again"), f.Close())
}

// replace puts a file with these keys in place of the one that is there, under
// the lock. What a process that was killed here left behind is removed.
func replace(path string, keys *keys) error {
	next := path + ".new"
	_ = os.Remove(next) // what cannot be removed cannot be made anew either
	if err := create(next, keys); err != nil {
		return err
	}
	return errors.Join(os.Rename(next, path), syncFolder(path))
}

// create makes a file where none is.
func create(path string, keys *keys) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return fill(f, keys)
}

// fill writes the keys into a new file, makes sure that they are on disk and
// closes it. A file that is not whole is removed.
func fill(f *os.File, keys *keys) error {
	var text bytes.Buffer
	err := insecurecleartextkeyset.Write(keys.handle, keyset.NewJSONWriter(&text))
	text.WriteByte('\n')
	_, noWrite := f.Write(text.Bytes())
	clear(text.Bytes())
	if err := errors.Join(err, noWrite, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// syncFolder makes sure that the name of a file is on disk.
func syncFolder(path string) error {
	folder, err := os.Open(filepath.Dir(path))
	return errors.Join(err, folder.Sync(), folder.Close())
}
