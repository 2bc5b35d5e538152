// Package sqlite keeps the store in one SQLite file, for one process.
//
// It promises what package store promises, on the strength of SQLite's
// write-ahead log synced at every commit: the changes of all requests that
// wait are gathered into one transaction and answered after its one sync. It
// never shares its file with a second process and never checkpoints while a
// commit waits, unless the log has outgrown its bound or holds keysets that
// were destroyed.
//
// What is deleted is overwritten where it stands. That is no promise for the
// sealed bytes of tokens: SQLite leaves copies of rows that it moved between
// pages. Keysets and epoch keys are kept so that none of them can stay, and
// without the keys no copy opens.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/folder"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// The files of a store, all in one folder.
const (
	databaseFile = "tokenkeep.db"
	epochFile    = "epoch.keys"
)

// lockWait is how long the writer and the readers wait for a checkpoint that
// needs the database to itself.
const lockWait = 10 * time.Second

// Options are what Open needs to know beside the folder. The zero value will do.
type Options struct {
	Logger  *slog.Logger
	Metrics prometheus.Registerer
	// Readers is how many Views may run at once, and how many Reads beside them;
	// 0 means twice the processors, at least four.
	Readers int
	// WALSoftBytes is the size of the write-ahead log from which on it is
	// copied into the database in the background; WALHardBytes the one from
	// which on commits wait for that. 0 means 32 and 64 MiB.
	WALSoftBytes, WALHardBytes int64
	// BackupWALBytes is how large that log may grow during a backup; 0 means
	// 1 GiB.
	BackupWALBytes int64
	// ReserveBytes is how much of the disk is kept for the log, so that reads
	// go on when the disk is full; 0 means nothing.
	ReserveBytes int64
	// CommonTerm is how many tokens a search term has, about, when their number
	// is kept instead of counted; 0 means 1000.
	CommonTerm int
	// MaxContainers is how many different containers the tokens of a tenant may
	// have; 0 means any number.
	MaxContainers int64
	// AsItIs refuses a store of an older release, with store.ErrOlderSchema,
	// instead of bringing its schema up to date.
	AsItIs bool
	// TurnEnded is called when a tenant has to wait for its next turn to write
	// because others wait; nil for nobody.
	TurnEnded func()
	// VFS names another file layer of SQLite's, for tests that cut the power.
	VFS string
	// Ungrouped gives every update a commit of its own. It exists so that a
	// benchmark can show in one run what grouping is worth.
	Ungrouped bool
}

// Store is a store in a folder.
type Store struct {
	dir          string
	options      Options
	log          *slog.Logger
	lock         *os.File
	writer       *writer
	viewers      connPool // for View, which may take long
	readers      connPool // for Read, which never waits for a View
	checkpointer *checkpointer
	epochs       *epochKeys
	memory       *memory
	recent       *recentTokens
	reserve      *reserve

	backingUp sync.Mutex      // held while a backup is written
	ending    context.Context // ends when Close begins
	viewing   sync.RWMutex    // guards the beginning of views against that
	views     sync.WaitGroup
	end       context.CancelFunc

	closing  sync.Once
	closeErr error
}

var _ store.Store = (*Store)(nil)

var errClosed = fmt.Errorf("sqlite: closed: %w", store.ErrUnavailable)

// Open opens the store in dir, which it creates when it is not there, and
// brings its schema up to date. It fails with store.ErrInUse when another
// process holds the store, with store.ErrNewerSchema when a newer release wrote it and
// with store.ErrDamaged when it is not a sound Tokenkeep database; then it has
// changed nothing.
func Open(ctx context.Context, dir string, o Options) (_ *Store, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Readers <= 0 {
		o.Readers = max(4, 2*runtime.GOMAXPROCS(0))
	}
	if o.WALSoftBytes <= 0 {
		o.WALSoftBytes = 32 << 20
	}
	if o.WALHardBytes <= 0 {
		o.WALHardBytes = 64 << 20
	}
	if o.BackupWALBytes <= 0 {
		o.BackupWALBytes = 1 << 30
	}
	if o.CommonTerm <= 0 {
		o.CommonTerm = commonTerm
	}
	if o.TurnEnded == nil {
		o.TurnEnded = func() {}
	}
	if err := folder.Create(dir); err != nil {
		return nil, err
	}
	s := &Store{dir: dir, options: o, log: o.Logger, memory: newMemory(), recent: newRecentTokens()}
	s.ending, s.end = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			_ = s.release()
		}
	}()
	if s.lock, err = folder.Lock(dir); err != nil {
		return nil, err
	}
	// SQLite gives its side files the mode of the database.
	path := filepath.Join(dir, databaseFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("sqlite: create database: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("sqlite: create database: %w", err)
	}
	writing, err := s.openWriter(ctx, path)
	if err != nil {
		return nil, err
	}
	m := newMetrics(o.Metrics)
	if s.reserve, err = openReserve(dir, o.ReserveBytes, o.Logger, m.full); err != nil {
		_ = writing.close()
		return nil, err
	}
	if s.checkpointer, err = newCheckpointer(path, o, s.reserve, m); err != nil {
		_ = writing.close()
		return nil, err
	}
	group := maxGroup
	if o.Ungrouped {
		group = 1
	}
	common, err := loadCommonTerms(ctx, writing, o.CommonTerm)
	if err != nil {
		_ = writing.close()
		return nil, err
	}
	s.writer = newWriter(writing, group, o.MaxContainers, o.TurnEnded, common, s.memory, s.recent, s.checkpointer, s.reserve, m)
	if s.viewers, err = connectPool(path, o, viewCacheKiB); err != nil {
		return nil, err
	}
	if s.readers, err = connectPool(path, o, readCacheKiB); err != nil {
		return nil, err
	}
	if s.epochs, err = openEpochKeys(filepath.Join(dir, epochFile)); err != nil {
		return nil, err
	}
	// Nothing has been acknowledged so far that a lost name could take along.
	if err := folder.Sync(dir); err != nil {
		return nil, err
	}
	return s, nil
}

// openWriter opens the connection that writes, checks that the database is
// ours and sound, migrates it and notes that it is open.
func (s *Store) openWriter(ctx context.Context, path string) (_ *conn, err error) {
	if err := refuseForeign(path, s.options.VFS); err != nil {
		return nil, err
	}
	c, err := connect(path, s.options, false, 16<<10, lockWait)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = c.close()
		}
	}()
	if unclean, err := stoppedUncleanly(ctx, c); err != nil {
		return nil, err
	} else if unclean {
		s.log.Warn("the store was not closed cleanly: checking it before it is used")
		if found, err := quickCheck(ctx, c); err != nil {
			return nil, err
		} else if len(found) > 0 {
			return nil, fmt.Errorf("%w: the check after an unclean stop found %d faults; restore a backup, or run 'tokenkeep store check' for the list", store.ErrDamaged, len(found))
		}
	}
	if err := migrate(ctx, c, s.options.AsItIs); err != nil {
		return nil, err
	}
	return c, markOpen(c)
}

// View implements store.Store.
func (s *Store) View(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	key, err := parseTenant(tenant)
	if err != nil {
		return err
	}
	return s.view(&tx{ctx: ctx, tenant: key, pool: s.viewers}, fn)
}

// Read implements store.Store: a view, and then the entries that it left go to
// the writer, which commits them with whatever else waits.
func (s *Store) Read(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	key, err := parseTenant(tenant)
	if err != nil {
		return err
	}
	var entries []groupEntry
	err = s.view(&tx{ctx: ctx, tenant: key, pool: s.readers, logs: &entries}, fn)
	if err != nil || len(entries) == 0 {
		return err
	}
	return s.writer.appendLog(ctx, key, entries)
}

// view runs fn on a snapshot. Many views are answered from memory and need no
// connection.
func (s *Store) view(t *tx, fn func(store.Tx) error) error {
	if err := t.ctx.Err(); err != nil {
		return err
	}
	if err := s.beginView(); err != nil {
		return err
	}
	defer s.views.Done()
	again := *t
	look := func(t *tx) error { return fn(t) }
	t.memory, t.recent, t.begin = s.memory, s.recent, s.begin
	err := s.run(t, look)
	if !errors.Is(t.failed, errChanged) {
		return err
	}
	if again.logs != nil {
		*again.logs = nil
	}
	if err := s.begin(&again); err != nil {
		return err
	}
	return s.run(&again, look)
}

// run runs the function of a view and ends the view.
func (s *Store) run(t *tx, fn func(*tx) error) error {
	defer s.finish(t)
	if err := fn(t); err != nil {
		return err
	}
	return t.failed
}

// beginView counts a view, which Close waits for whether or not it has taken a
// connection yet.
func (s *Store) beginView() error {
	s.viewing.RLock()
	defer s.viewing.RUnlock()
	if s.ending.Err() != nil {
		return errClosed
	}
	s.views.Add(1)
	return nil
}

// Update implements store.Store.
func (s *Store) Update(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	key, err := parseTenant(tenant)
	if err != nil {
		return err
	}
	return s.writer.submit(ctx, key, func(t *tx) error { return fn(t) })
}

// read runs fn on a snapshot, on a connection that cannot write.
func (s *Store) read(ctx context.Context, tenant tenantKey, fn func(*tx) error) error {
	t := &tx{ctx: ctx, tenant: tenant, pool: s.viewers}
	if err := s.begin(t); err != nil {
		return err
	}
	return s.run(t, fn)
}

// begin takes a connection for a view.
func (s *Store) begin(t *tx) error {
	if err := t.ctx.Err(); err != nil {
		return err // the choice below is made at random when both are ready
	}
	var c *conn
	var ok bool
	select {
	case c, ok = <-t.pool:
	case <-t.ctx.Done():
		return t.ctx.Err()
	}
	if !ok {
		return errClosed
	}
	if _, err := c.exec("BEGIN"); err != nil {
		t.pool <- c
		return err
	}
	t.conn = c
	return nil
}

// finish ends a view: kept beyond its function, it reaches nothing.
func (s *Store) finish(t *tx) {
	t.ended = true
	if c := t.conn; c != nil {
		t.conn = nil
		_, _ = c.exec("ROLLBACK")
		t.pool <- c
	}
}

// Ready implements store.Store.
func (s *Store) Ready(ctx context.Context) error {
	err := s.read(ctx, tenantKey{}, func(t *tx) error {
		_, err := t.conn.number(ctx, "SELECT count(*) FROM installation")
		return err
	})
	if err != nil || !s.writer.failing.Load() {
		return err
	}
	// Whether the next update would be refused as the last one was, only a
	// write can tell, of as many pages as an entry of the log touches.
	return s.writer.submit(ctx, tenantKey{}, func(t *tx) error {
		_, err := t.conn.exec("INSERT OR REPLACE INTO installation (name, value) VALUES ('ready', zeroblob(32768))")
		return err
	})
}

// Now implements store.Store: the clock is the machine's.
func (s *Store) Now(context.Context) (time.Time, error) { return time.Time{}, store.ErrNoClock }

// Room implements store.Store.
func (s *Store) Room() error {
	if s.reserve.full.Load() {
		return errFull
	}
	return nil
}

// EpochKeys implements store.Store.
func (s *Store) EpochKeys() store.EpochKeys { return s.epochs }

// Close implements store.Store.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.viewing.Lock()
		s.end()
		s.viewing.Unlock()
		s.backingUp.Lock() // for good: no further backup begins
		s.writer.stop()
		s.checkpointer.stop()
		s.views.Wait()
		// Every view gives its connection back; then nobody else holds one.
		s.viewers.close()
		s.readers.close()
		s.closeErr = errors.Join(markClosed(s.writer.conn), s.release())
	})
	return s.closeErr
}

// release gives up whatever Open has taken so far.
func (s *Store) release() error {
	s.end()
	var errs []error
	for _, pool := range []connPool{s.viewers, s.readers} {
		for len(pool) > 0 {
			c := <-pool
			errs = append(errs, c.close())
		}
	}
	if s.reserve != nil {
		s.reserve.stop()
	}
	if s.checkpointer != nil {
		s.checkpointer.stop()
		errs = append(errs, s.checkpointer.conn.close())
	}
	if s.writer != nil {
		s.writer.stop()
		errs = append(errs, s.writer.conn.close())
	}
	if s.epochs != nil {
		errs = append(errs, s.epochs.close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// tenantKey is a tenant's id as it stands in every key. The zero key is no
// tenant, and reaches nothing.
type tenantKey [16]byte

func parseTenant(tenant string) (tenantKey, error) {
	id, err := uuid.Parse(tenant)
	if err != nil || id == uuid.Nil || len(tenant) != 36 {
		return tenantKey{}, store.ErrNoTenant
	}
	return tenantKey(id), nil
}

func (k tenantKey) String() string { return uuid.UUID(k).String() }
