package powercut_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	_ "modernc.org/sqlite"
)

const (
	writers = 4
	slots   = 16 // of each writer, so that the database stays small
)

// open returns a pool of one connection, as every goroutine here has its own.
// No vfs means SQLite's default one.
func open(t testing.TB, dir, vfs string, pragmas ...string) *sql.DB {
	t.Helper()
	query := url.Values{"_txlock": {"immediate"}, "_pragma": append([]string{"busy_timeout(10000)"}, pragmas...)}
	if vfs != "" {
		query.Set("vfs", vfs)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "test.db")+"?"+query.Encode())
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return db
}

func exec(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func createTables(t testing.TB, db *sql.DB) {
	t.Helper()
	for _, table := range []string{"left", "right"} {
		exec(t, db, `CREATE TABLE "`+table+`" (writer INT, slot INT, number INT, content BLOB, PRIMARY KEY (writer, slot))`)
	}
}

// payload is what a writer's n-th transaction writes: of many lengths, so that
// rows move between pages and pages come and go.
func payload(writer, n int) []byte {
	return bytes.Repeat([]byte{byte(writer), byte(n), byte(n >> 8)}, 1+(n*n+writer)*37%1500)
}

// write is a writer's n-th transaction: the same row in both tables. It calls
// written before it commits.
func write(db *sql.DB, writer, n int, written func()) error {
	defer written()
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, table := range []string{"left", "right"} {
		_, err := tx.Exec(`INSERT OR REPLACE INTO "`+table+`" VALUES (?, ?, ?, ?)`, writer, n%slots, n, payload(writer, n))
		if err != nil {
			return err
		}
	}
	written()
	return tx.Commit()
}

// workload is writers that go on until they are stopped.
type workload struct {
	acknowledged [writers]atomic.Int64 // the number of the last transaction; they start at 1
	allowed      chan struct{}         // a transaction for each
	stop         func()
}

// start runs the writers, and a connection that checkpoints in case that means
// something. The tables are there before the recorder is.
func start(t *testing.T, dir, vfs string, pragmas ...string) *workload {
	t.Helper()
	w := &workload{allowed: make(chan struct{}, 64)}
	w.allow()
	stopped := make(chan struct{})
	var running sync.WaitGroup
	var turn sync.Mutex                  // SQLite itself lets writers starve
	checkpoint := make(chan struct{}, 1) // so that checkpoints follow the pace of the writers
	for i := range writers {
		db := open(t, dir, vfs, pragmas...)
		running.Go(func() {
			for n := 1; ; n++ {
				select {
				case <-w.allowed:
				case <-stopped:
					return
				}
				// The next one begins, and waits, while this one commits.
				turn.Lock()
				if err := write(db, i, n, sync.OnceFunc(turn.Unlock)); err != nil {
					t.Errorf("writer %d, transaction %d: %v", i, n, err)
					return
				}
				w.acknowledged[i].Store(int64(n))
				if n%8 != 0 {
					continue
				}
				select {
				case checkpoint <- struct{}{}:
				default:
				}
			}
		})
	}
	checkpoints := open(t, dir, vfs, pragmas...)
	running.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-checkpoint:
			case <-stopped:
				return
			}
			kind := []string{"PASSIVE", "PASSIVE", "TRUNCATE"}[n%3]
			if _, err := checkpoints.Exec("PRAGMA wal_checkpoint(" + kind + ")"); err != nil {
				t.Errorf("checkpoint %s: %v", kind, err)
				return
			}
		}
	})
	w.stop = sync.OnceFunc(func() {
		close(stopped)
		running.Wait()
	})
	t.Cleanup(w.stop)
	return w
}

// allow keeps the workload going for a while. Without a bound the unsynced
// writes of a fast one would fill the memory.
func (w *workload) allow() {
	for len(w.allowed) < cap(w.allowed) {
		w.allowed <- struct{}{}
	}
}

// read is what the workload had been told when the power went.
func (w *workload) read() (acknowledged [writers]int) {
	for i := range w.acknowledged {
		acknowledged[i] = int(w.acknowledged[i].Load())
	}
	return acknowledged
}

// What check finds wrong.
var (
	errLost    = errors.New("an acknowledged transaction is lost")
	errDamaged = errors.New("the database is damaged")
)

// check opens a database after a power cut, without the recorder. Of each
// writer there must be exactly the transactions up to the last acknowledged
// one, and perhaps the one after it, which was under way.
func check(t testing.TB, dir string, acknowledged [writers]int) error {
	t.Helper()
	db := open(t, dir, "", "synchronous(off)") // nobody cuts the power again
	defer db.Close()
	var verdict string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		return fmt.Errorf("%w: integrity_check: %s, %v", errDamaged, verdict, err)
	}
	left, err := readTable(db, "left")
	if err != nil {
		return err
	}
	right, err := readTable(db, "right")
	if err != nil {
		return err
	}
	if left != right {
		return fmt.Errorf("%w: half a transaction: %v and %v", errDamaged, left, right)
	}
	for i, numbers := range left {
		last := 0
		for _, n := range numbers {
			last = max(last, n)
		}
		var want [slots]int
		for n := max(1, last-slots+1); n <= last; n++ {
			want[n%slots] = n
		}
		switch {
		case numbers != want:
			return fmt.Errorf("%w: writer %d has %v, want %v", errDamaged, i, numbers, want)
		case last > acknowledged[i]+1:
			return fmt.Errorf("%w: writer %d is at %d, ahead of %d", errDamaged, i, last, acknowledged[i])
		case last < acknowledged[i]:
			return fmt.Errorf("%w: writer %d is at %d, acknowledged were %d", errLost, i, last, acknowledged[i])
		}
	}
	return nil
}

// readTable returns the number of the transaction in each writer's slots.
func readTable(db *sql.DB, table string) (numbers [writers][slots]int, err error) {
	rows, err := db.Query(`SELECT writer, slot, number, content FROM "` + table + `"`)
	if err != nil {
		return numbers, fmt.Errorf("%w: %v", errDamaged, err)
	}
	defer rows.Close()
	for rows.Next() {
		var writer, slot, n int
		var content []byte
		if err := rows.Scan(&writer, &slot, &n, &content); err != nil {
			return numbers, fmt.Errorf("%w: %v", errDamaged, err)
		}
		if !bytes.Equal(content, payload(writer, n)) {
			return numbers, fmt.Errorf("%w: writer %d, transaction %d has another content", errDamaged, writer, n)
		}
		numbers[writer][slot] = n
	}
	if err := rows.Err(); err != nil {
		return numbers, fmt.Errorf("%w: %v", errDamaged, err)
	}
	return numbers, nil
}
