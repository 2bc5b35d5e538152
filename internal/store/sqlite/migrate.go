package sqlite

import (
	"context"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// applicationID marks a database file as ours ("TKEP").
const applicationID = 0x544b4550

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrations returns the texts in the order of their numbers, which have no gaps.
func migrations() ([]string, error) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(names))
	for i, name := range names { // fs.Glob sorts
		if want := fmt.Sprintf("migrations/%04d_", i+1); !strings.HasPrefix(name, want) {
			return nil, fmt.Errorf("sqlite: migration %d is missing: found %s", i+1, name)
		}
		b, err := migrationFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		texts[i] = string(b)
	}
	return texts, nil
}

// refuseForeign fails unless the file is empty or a database of ours that this
// release can read. It leaves the file as it is: a connection that could write
// would copy the write-ahead log of a newer release into it.
func refuseForeign(path, vfs string) error {
	switch info, err := os.Stat(path); {
	case err != nil:
		return fmt.Errorf("sqlite: look at database: %w", err)
	case info.Size() == 0:
		return nil
	case info.Size() < databaseHeader:
		// SQLite would take it for an empty database. It is one if the power
		// went while SQLite wrote its first page: then there is a journal.
		if _, err := os.Stat(path + "-journal"); err != nil {
			return fmt.Errorf("%w: %s is no database", store.ErrDamaged, databaseFile)
		}
	}
	// A reader makes these and leaves them; the folder's lock is ours, so
	// nobody else needs what was not there.
	for _, side := range []string{path + "-wal", path + "-shm"} {
		if _, err := os.Stat(side); errors.Is(err, os.ErrNotExist) {
			defer func() { _ = os.Remove(side) }()
		}
	}
	err := readMarks(path, vfs, true)
	if errors.Is(err, store.ErrReadOnly) || errors.Is(err, store.ErrUnavailable) {
		// There is a change to roll back before the file can be read.
		return readMarks(path, vfs, false)
	}
	return err
}

// databaseHeader is the size of what every SQLite database begins with.
const databaseHeader = 100

// readMarks looks at what says whose database a file is.
func readMarks(path, vfs string, readOnly bool) error {
	c, err := connectPlain(path, vfs, readOnly)
	if err != nil {
		return err
	}
	defer func() { _ = c.close() }()
	ctx := context.Background()
	id, err := c.number(ctx, "PRAGMA application_id")
	if err != nil {
		return err
	}
	version, err := c.number(ctx, "PRAGMA user_version")
	if err != nil {
		return err
	}
	if id == 0 && version == 0 {
		// The power went while the first migration had not been committed.
		if tables, err := c.number(ctx, "SELECT count(*) FROM sqlite_schema"); err != nil || tables == 0 {
			return err
		}
	}
	if id != applicationID {
		return fmt.Errorf("%w: %s is a database of another program", store.ErrDamaged, databaseFile)
	}
	known, err := migrations()
	if err != nil {
		return err
	}
	if version > int64(len(known)) {
		return fmt.Errorf("%w: its schema is number %d, and this release knows %d", store.ErrNewerSchema, version, len(known))
	}
	return nil
}

// migrate runs the migrations that the database has not seen, each in a
// transaction of its own. It refuses to when the store is to stay as it is.
func migrate(ctx context.Context, c *conn, asItIs bool) error {
	texts, err := migrations()
	if err != nil {
		return err
	}
	version, err := c.number(ctx, "PRAGMA user_version")
	if err != nil {
		return err
	}
	if asItIs && int(version) < len(texts) {
		return fmt.Errorf("%w: its schema is number %d, and this release has %d: start a server of this release on it once", store.ErrOlderSchema, version, len(texts))
	}
	for n := int(version); n < len(texts); n++ {
		text := fmt.Sprintf("BEGIN IMMEDIATE;\n%s\nPRAGMA application_id = %d;\nPRAGMA user_version = %d;\nCOMMIT;", texts[n], applicationID, n+1)
		if err := c.script(text); err != nil {
			_ = c.script("ROLLBACK")
			return fmt.Errorf("sqlite: migration %d: %w", n+1, err)
		}
	}
	if asItIs {
		return nil
	}
	for _, text := range lateIndexes {
		if err := c.script(text); err != nil {
			return fmt.Errorf("sqlite: build an index: %w", err)
		}
	}
	return nil
}

// lateIndexes are indexes that are built when they are missing. An index does
// not change the number of the schema: an older release works on a store that
// has one more, and SQLite maintains it.
var lateIndexes = []string{
	// For jobs and deliveries, which are taken tenant by tenant. Most parcels are
	// never due, and cost nothing here.
	"CREATE INDEX IF NOT EXISTS parcels_due_by_tenant ON parcels (kind, tenant_id, due_at, id) WHERE due_at IS NOT NULL",
}

// The mark of a clean stop is a row: it is there exactly while nobody has the
// store open for writing.

func stoppedUncleanly(ctx context.Context, c *conn) (bool, error) {
	tables, err := c.number(ctx, "SELECT count(*) FROM sqlite_schema WHERE name = 'installation'")
	if err != nil || tables == 0 {
		return false, err
	}
	marked, err := c.number(ctx, "SELECT count(*) FROM installation WHERE name = 'clean_stop'")
	return marked == 0, err
}

func markOpen(c *conn) error {
	_, err := c.run("DELETE FROM installation WHERE name = 'clean_stop'")
	return err
}

func markClosed(c *conn) error {
	if _, err := c.run("INSERT OR REPLACE INTO installation (name, value) VALUES ('clean_stop', x'01')"); err != nil {
		return err
	}
	return c.query(context.Background(), "PRAGMA wal_checkpoint(TRUNCATE)", nil,
		func([]driver.Value) (bool, error) { return false, nil })
}

// quickCheck reads every page and checks the shape of every tree.
func quickCheck(ctx context.Context, c *conn) ([]string, error) {
	return runCheck(ctx, c, "PRAGMA quick_check(100)")
}

func runCheck(ctx context.Context, c *conn, pragma string) ([]string, error) {
	var found []string
	err := c.query(ctx, pragma, nil, func(row []driver.Value) (bool, error) {
		if message := text(row[0]); message != "ok" {
			found = append(found, message)
		}
		return true, nil
	})
	if errors.Is(err, store.ErrDamaged) {
		return append(found, "the database file is damaged beyond reading"), nil
	}
	return found, err
}
