// Package powercut is test support: it lets a test cut the power under SQLite
// and look at what a disk could show afterwards.
//
// A Recorder is a SQLite VFS that works on real files through the default one
// and writes down what has not yet been synced. A sync goes no further than the
// recorder. Cut freezes one instant, while the databases run on; Disk.Write
// makes folders out of it, each a state in which the files could come back. A
// test opens them without the recorder and checks that they hold whatever had
// been acknowledged at that instant.
//
// What is modelled:
//
//   - A file holds what it held when its last successful xSync began, plus any
//     part of what was written and truncated since. Each 512-byte sector of
//     each such write is kept or lost on its own, so later sectors may
//     be there without earlier ones. What is kept is applied in the order in
//     which it was issued. Lost writes past the end of a file may still have
//     made it longer, by zeros.
//   - The name of a new file is safe from the file's first xSync on. A deletion
//     is safe when it was asked to sync the folder (as synchronous=EXTRA does),
//     or when the folder is synced later: by another such deletion, or by the
//     first xSync of a handle on a journal or WAL. Until then the file may be
//     back, or not.
//   - Files lose data independently of one another: a write to one file may
//     survive although an earlier write to another was lost.
//   - Shared memory (-shm) is gone. Memory-mapped I/O and promises of atomic
//     writes are turned off, for they would pass the recorder by.
//
// What is not modelled: a disk that reports a sync and did not do it, a failed
// sync that drops what it should have written, bytes that rot or change next
// to a write (SQLite's power-safe overwrite is taken at its word), sectors that
// tear inside, file modes, folders that are lost, and writes that did not go
// through the recorder. A sector with several unsynced writes may show a later
// one without an earlier one; that is harsher than a page cache.
//
// It never runs outside tests and it promises nothing about speed.
package powercut

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Recorder watches the SQLite files of one folder. Its methods are safe for
// concurrent use.
type Recorder struct {
	t    testing.TB
	dir  string // absolute, without links
	name string
	vfs  uintptr // our sqlite3_vfs, in SQLite's memory
	real uintptr // the sqlite3_vfs that does the work

	mu     sync.Mutex       // guards what follows: one order for all that is recorded
	names  map[string]*name // by path below dir
	open   int              // files that SQLite holds open through this recorder
	writes trap
	syncs  trap
	plans  []*plan
}

// plan is a cut to come.
type plan struct {
	after        int // operations from now on
	acknowledged func()
	cut          chan *Disk
}

var recorders atomic.Int64

// New registers a VFS for the databases in dir, which must not be open. What
// lies in dir already counts as safely on disk. The VFS goes when the test ends
// and all its databases must be closed by then.
func New(t testing.TB, dir string) *Recorder {
	t.Helper()
	// SQLite resolves links before it opens a file.
	dir, err := filepath.EvalSymlinks(dir)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		t.Fatalf("powercut: resolve the folder: %v", err)
	}
	r := &Recorder{
		t:     t,
		dir:   dir,
		name:  fmt.Sprintf("powercut%d", recorders.Add(1)),
		names: map[string]*name{},
	}
	if err := r.readFolder(); err != nil {
		t.Fatalf("powercut: read the folder: %v", err)
	}
	if err := r.register(); err != nil {
		t.Fatalf("powercut: register: %v", err)
	}
	t.Cleanup(func() {
		if n := r.unregister(); n != 0 {
			t.Errorf("powercut: %d files are still open when the test ends", n)
		}
	})
	return r
}

// Name is the name of the VFS, for file:…?vfs=NAME.
func (r *Recorder) Name() string { return r.name }

// Cut freezes the disk as it is now. It first calls acknowledged, in which the
// test notes what it may count on: nothing is written or synced between that
// and the cut. acknowledged may be nil. It must not use a database, nor wait for
// somebody who does.
func (r *Recorder) Cut(acknowledged func()) *Disk {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.freeze(acknowledged)
}

// CutAfter cuts right after the n-th operation from now on, on the goroutine
// that did it; what it returns waits for that. A write, a truncation, a sync and
// a deletion are operations, so a random n hits a transaction at any point.
func (r *Recorder) CutAfter(n int, acknowledged func()) (wait func() *Disk) {
	if n <= 0 {
		d := r.Cut(acknowledged)
		return func() *Disk { return d }
	}
	p := &plan{after: n, acknowledged: acknowledged, cut: make(chan *Disk, 1)}
	r.mu.Lock()
	r.plans = append(r.plans, p)
	r.mu.Unlock()
	return func() *Disk {
		r.t.Helper()
		select {
		case d := <-p.cut:
			return d
		case <-time.After(time.Minute):
			r.t.Fatal("powercut: nothing is written any more, so there is nothing to cut")
			return nil
		}
	}
}

// count is called after every operation, under the lock.
func (r *Recorder) count() {
	r.plans = slices.DeleteFunc(r.plans, func(p *plan) bool {
		p.after--
		if p.after == 0 {
			p.cut <- r.freeze(p.acknowledged)
		}
		return p.after == 0
	})
}

func (r *Recorder) freeze(acknowledged func()) *Disk {
	if acknowledged != nil {
		acknowledged()
	}
	d := &Disk{names: map[string]*name{}}
	for path, n := range r.names {
		d.names[path] = n.clone()
	}
	return d
}

// FailWrites makes the n-th write from now on (the first is 1), and every one
// after it until Heal, do nothing and return the SQLite result code.
func (r *Recorder) FailWrites(n, code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes = trap{passing: n, code: int32(code)}
}

// FailWritesWhile makes every write fail for which holds returns true, until
// Heal, as FailWrites does.
func (r *Recorder) FailWritesWhile(holds func() bool, code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes = trap{while: holds, code: int32(code)}
}

// FailSyncs does to syncs what FailWrites does to writes. What was to be synced
// stays unsynced.
func (r *Recorder) FailSyncs(n, code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.syncs = trap{passing: n, code: int32(code)}
}

// Heal ends what FailWrites and FailSyncs began.
func (r *Recorder) Heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes, r.syncs = trap{}, trap{}
}

// trap makes operations fail. The zero trap lets everything pass.
type trap struct {
	passing int         // the next operations, of which the last one fails
	while   func() bool // nil: always
	code    int32
}

// spring counts one operation and returns the code with which it fails, or 0.
func (t *trap) spring() int32 {
	if t.code == 0 || t.while != nil && !t.while() {
		return 0
	}
	if t.passing > 1 {
		t.passing--
		return 0
	}
	return t.code
}

func (r *Recorder) readFolder() error {
	return filepath.WalkDir(r.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || strings.HasSuffix(path, "-shm") {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		path, err = filepath.Rel(r.dir, path)
		if err != nil {
			return err
		}
		r.names[path] = &name{states: []*file{{durable: content}}}
		return nil
	})
}
