// Package folder has the lock of a data folder, which one process at a time may
// work in, whatever store it uses.
//
// It promises that the lock ends with the process, however that ends. It never
// reads or changes what else is in the folder.
package folder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// LockFile is the name of the file that the lock is on.
const LockFile = "tokenkeep.lock"

// Lock takes the lock of a folder that exists; store.ErrInUse when another
// process has it. Close the file to give it back.
func Lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, LockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("folder: open the lock file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, store.ErrInUse
		}
		return nil, fmt.Errorf("folder: lock: %w", err)
	}
	return f, nil
}

// CreateAndLock is Lock for a folder that is created where there is none.
func CreateAndLock(dir string) (*os.File, error) {
	if err := Create(dir); err != nil {
		return nil, err
	}
	return Lock(dir)
}

// Create creates a folder where there is none, for its owner alone, so that it
// survives a power cut.
func Create(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("folder: create: %w", err)
	}
	return Sync(filepath.Dir(dir))
}

// Sync writes to disk which files a folder has.
func Sync(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("folder: open: %w", err)
	}
	defer func() { _ = d.Close() }()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("folder: sync: %w", err)
	}
	return nil
}
