package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// BackupFile is the name of the database in a backup and in a data folder.
const BackupFile = databaseFile

// What a backup reports beside the errors of the store.
var (
	// ErrBackupUnderWay says that another backup of the same store is not done.
	ErrBackupUnderWay = errors.New("sqlite: another backup is under way")
	// ErrLogOutgrown says that so much was written during a backup that the
	// write-ahead log reached its bound.
	ErrLogOutgrown = errors.New("sqlite: the write-ahead log reached its bound before the backup was done: take it when less is written")
)

// backupTick is how often a backup looks at how far it has come and at how
// large the log has grown.
const backupTick = 100 * time.Millisecond

// Backups implements store.Store.
func (s *Store) Backups() store.Backups { return s }

// Backup implements store.Backups. It writes the store, as it is at one instant, into a new database at
// path, where there must be nothing or an empty file. Only rows that are there
// are written: free pages, and what SQLite left behind in others, stay where
// they are, and so do epoch keys. Requests go on meanwhile. The log cannot
// start over as long, so it grows by what they write, up to BackupWALBytes or
// half of the room that is left on the disk: then the backup ends with
// ErrLogOutgrown, and the requests go on.
//
// progress, when not nil, is called now and then with how many bytes are
// written, of about how many.
func (s *Store) Backup(ctx context.Context, path string, progress func(written, of int64)) (store.BackupContents, error) {
	if s.ending.Err() != nil {
		return store.BackupContents{}, errClosed
	}
	if !s.backingUp.TryLock() {
		return store.BackupContents{}, ErrBackupUnderWay
	}
	defer s.backingUp.Unlock()
	// SQLite would make the file readable for others.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return store.BackupContents{}, fmt.Errorf("sqlite: create backup: %w", err)
	}
	defer func() { _ = f.Close() }()
	if progress == nil {
		progress = func(int64, int64) {}
	}
	if err := s.vacuumInto(ctx, f, progress); err != nil {
		return store.BackupContents{}, err
	}
	// SQLite does not sync what VACUUM INTO makes.
	if err := f.Sync(); err != nil {
		return store.BackupContents{}, fmt.Errorf("sqlite: sync backup: %w", err)
	}
	return readContents(ctx, path)
}

// vacuumInto writes the rows of one snapshot into an empty file.
func (s *Store) vacuumInto(ctx context.Context, f *os.File, progress func(written, of int64)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ending, func() { cancel(errClosed) })()
	c, err := connectPlain(filepath.Join(s.dir, databaseFile), s.options.VFS, true)
	if err != nil {
		return err
	}
	defer func() { _ = c.close() }()
	size, err := c.number(ctx, "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()")
	if err != nil {
		return err
	}
	s.checkpointer.held.Store(true)
	defer s.checkpointer.held.Store(false)
	done, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		s.watchBackup(done, cancel, f, size, progress)
	}()
	_, err = c.raw.(driver.ExecerContext).ExecContext(ctx, "VACUUM INTO ?", []driver.NamedValue{{Ordinal: 1, Value: f.Name()}})
	close(done)
	<-watched
	if cause := context.Cause(ctx); cause != nil {
		return cause // what the driver says of it is only that it was interrupted
	}
	return mapError("write backup", err)
}

// watchBackup tells how far a backup has come and ends it when the log has
// grown too large.
func (s *Store) watchBackup(done <-chan struct{}, cancel context.CancelCauseFunc, f *os.File, size int64, progress func(written, of int64)) {
	bound := s.options.BackupWALBytes
	if room, err := freeBytes(s.dir); err == nil {
		bound = min(bound, room/2)
	}
	ticker := time.NewTicker(backupTick)
	defer ticker.Stop()
	for ended := false; ; {
		if info, err := os.Stat(s.checkpointer.wal); err == nil && info.Size() > bound && !ended {
			cancel(ErrLogOutgrown)
			return
		}
		if info, err := f.Stat(); err == nil {
			progress(info.Size(), max(size, info.Size()))
		}
		if ended {
			return
		}
		select {
		case <-done:
			ended = true
		case <-ticker.C:
		}
	}
}

func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil //nolint:unconvert // the types differ between systems
}

// readContents says what a backup holds.
func readContents(ctx context.Context, path string) (c store.BackupContents, err error) {
	conn, err := connectPlain(path, "", true)
	if err != nil {
		return c, err
	}
	defer func() { _ = conn.close() }()
	version, err := conn.number(ctx, "PRAGMA user_version")
	if err != nil {
		return c, err
	}
	c = store.BackupContents{Schema: int(version), Rows: map[string]int64{}, KEKs: []string{}}
	var tables []string
	err = conn.query(ctx, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name", nil, func(row []driver.Value) (bool, error) {
		tables = append(tables, text(row[0]))
		return true, nil
	})
	if err != nil {
		return c, err
	}
	for _, table := range tables { // names of ours, out of migrations
		if c.Rows[table], err = conn.number(ctx, `SELECT count(*) FROM "`+table+`"`); err != nil {
			return c, err
		}
	}
	err = conn.query(ctx, "SELECT DISTINCT kek FROM keysets ORDER BY kek", nil, func(row []driver.Value) (bool, error) {
		c.KEKs = append(c.KEKs, text(row[0]))
		return true, nil
	})
	return c, err
}

// Where the header of every SQLite database has the last migration and the
// mark of its program.
const (
	headerMagic   = "SQLite format 3\x00"
	headerVersion = 60
	headerProgram = 68
)

// Schema says which migration the database in a folder has seen last, and
// which is the last that this release knows; both are the same when there is
// no database yet. It reads the header alone: a connection, even one that can
// only read, would leave files behind that may then belong to another user. So
// it cannot tell, and has is -1, while changes stand in the write-ahead log: of
// a server that runs, or of one that was killed.
func Schema(dir string) (has, knows int, err error) {
	known, err := migrations()
	if err != nil {
		return 0, 0, err
	}
	path := filepath.Join(dir, databaseFile)
	if info, err := os.Stat(path + "-wal"); err == nil && info.Size() > 0 {
		return -1, len(known), nil
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return len(known), len(known), nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("sqlite: open database: %w", err)
	}
	defer func() { _ = f.Close() }()
	header := make([]byte, databaseHeader)
	switch _, err := io.ReadFull(f, header); {
	case errors.Is(err, io.EOF): // it is empty: the first start has just begun
		return len(known), len(known), nil
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return 0, 0, fmt.Errorf("sqlite: read database: %w", err)
	}
	if !bytes.HasPrefix(header, []byte(headerMagic)) || binary.BigEndian.Uint32(header[headerProgram:]) != applicationID {
		return 0, 0, fmt.Errorf("%w: %s is no database of ours", store.ErrDamaged, databaseFile)
	}
	return int(binary.BigEndian.Uint32(header[headerVersion:])), len(known), nil
}
