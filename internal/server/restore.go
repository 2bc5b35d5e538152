package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/backup"
	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/folder"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/providers"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
)

// staging is the folder inside the data folder in which a restore works. What
// a killed one left there is removed by the next.
const staging = ".restoring"

// Restored is what Restore put back.
type Restored struct {
	Backup   backup.Manifest `json:"backup"`
	Verified *Verified       `json:"verified,omitempty"`
}

// Restore makes the data folder of the configuration out of a backup. The
// folder must be empty, and the database appears in it at the very end: when
// anything is wrong with the backup, or the configured key-encryption key does
// not open its keysets, the folder is as empty as before. With verify it also
// checks the store, opens every sealed value and verifies every log, and
// restores nothing that fails. say is told what is being done.
func Restore(ctx context.Context, c *config.Config, source string, verify bool, now func() time.Time, say func(string)) (_ *Restored, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if !c.StoreURL.IsZero() || c.StoreURLFile != "" {
		return nil, errors.New("store.url is set: a restore is for the embedded store; PostgreSQL is restored with its own tools")
	}
	kms, err := openKMS(ctx, c, providers.Options{Now: now})
	if err != nil {
		return nil, err
	}
	m, err := backup.Read(source)
	if err != nil {
		return nil, err
	}
	for _, id := range m.KEKs {
		if !kms.Owns(id) {
			return nil, fmt.Errorf("%w: the backup needs %q", keyring.ErrWrongKEK, id)
		}
	}
	free, err := clearFolder(c.Data)
	if err != nil {
		return nil, err
	}
	defer func() { free(err == nil) }()
	r := &restore{kms: kms, now: now, say: say, dir: filepath.Join(c.Data, staging)}
	say(fmt.Sprintf("copying %.1f MB", float64(m.File.Bytes)/1e6))
	if err := backup.Copy(ctx, source, m, filepath.Join(r.dir, sqlite.BackupFile)); err != nil {
		return nil, err
	}
	out := &Restored{Backup: m}
	if out.Verified, err = r.open(ctx, verify); err != nil {
		return nil, err
	}
	// The store closes with everything in the one file.
	if info, err := os.Stat(filepath.Join(r.dir, sqlite.BackupFile+"-wal")); err == nil && info.Size() > 0 {
		return nil, errors.New("the restored store did not close as a whole")
	}
	if err := os.Rename(filepath.Join(r.dir, sqlite.BackupFile), filepath.Join(c.Data, sqlite.BackupFile)); err != nil {
		return nil, fmt.Errorf("put the database in its place: %w", err)
	}
	return out, backup.SyncFolder(c.Data)
}

// clearFolder takes an empty data folder for a restore, and keeps servers out
// of it. free gives it back, as it was unless the restore has succeeded.
func clearFolder(dir string) (free func(done bool), err error) {
	// A file system has its own folder at its root, and a killed restore
	// leaves its staging and the lock behind.
	if err := backup.Empty(dir, "lost+found", staging, folder.LockFile); err != nil {
		return nil, err
	}
	_, err = os.Stat(dir)
	made := errors.Is(err, os.ErrNotExist)
	lock, err := folder.CreateAndLock(dir)
	if err != nil {
		return nil, err
	}
	work := filepath.Join(dir, staging)
	free = func(done bool) {
		_ = os.RemoveAll(work)
		if !done {
			_ = os.Remove(lock.Name())
		}
		if !done && made {
			_ = os.Remove(dir)
		}
		_ = lock.Close()
	}
	if err := errors.Join(os.RemoveAll(work), os.Mkdir(work, 0o700)); err != nil {
		free(false)
		return nil, fmt.Errorf("make a folder to work in: %w", err)
	}
	return free, nil
}

// restore is a restore under way.
type restore struct {
	kms keyring.KMS
	now func() time.Time
	say func(string)
	dir string
}

// open opens the copied store, brings its schema up to date, makes sure that
// the key-encryption key opens every tenant's keysets, and verifies.
func (r *restore) open(ctx context.Context, verify bool) (v *Verified, err error) {
	r.say("opening the store")
	s, err := sqlite.Open(ctx, r.dir, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	ring, err := keyring.Open(ctx, r.kms, s, keyring.Options{Now: r.now})
	if err != nil {
		return nil, err
	}
	r.say("opening the keys of every tenant")
	err = ring.OpenKeys(ctx)
	if errors.Is(err, keyring.ErrUnwrap) {
		return nil, fmt.Errorf("%w: it does not open the keys of a tenant", keyring.ErrWrongKEK)
	}
	if err != nil || !verify {
		return nil, err
	}
	p := proof{now: r.now, say: r.say, where: "in the backup", so: "nothing was restored"}
	return p.verify(ctx, s, ring)
}
