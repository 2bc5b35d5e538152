package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// reserveFile holds room on the disk, and nothing else.
const reserveFile = "reserve"

// reserveAgain is how often room is looked for when there is none.
const reserveAgain = time.Second

// reserve keeps room on the disk for the log: what is read must be logged
// first, so without room nothing could be read. When a commit finds the disk
// full, the room is given up, and from then on what makes the store larger is
// refused, while entries of the log, deletions and changes of access go on. When
// there is room for twice as much again, it is taken, and all goes on. A store
// that cannot take it when it opens begins as on a full disk.
type reserve struct {
	path  string
	bytes int64
	log   *slog.Logger
	gauge prometheus.Gauge
	full  atomic.Bool // what makes the store larger is refused

	mu   sync.Mutex // guards held, and the file
	held bool

	stopping, stopped chan struct{}
}

func openReserve(dir string, bytes int64, log *slog.Logger, gauge prometheus.Gauge) (*reserve, error) {
	r := &reserve{path: filepath.Join(dir, reserveFile), bytes: bytes, log: log, gauge: gauge, stopping: make(chan struct{}), stopped: make(chan struct{})}
	if bytes <= 0 {
		close(r.stopped)
		if err := os.Remove(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("sqlite: give up the reserve: %w", err)
		}
		return r, nil
	}
	if r.whole() {
		r.held = true
	} else if err := r.take(); err != nil {
		r.refuse("there is too little room on the disk")
	}
	go r.watch()
	return r, nil
}

// whole reports whether a file from before still takes all of its room: a copy
// of it may be of the same size and take none.
func (r *reserve) whole() bool {
	var st unix.Stat_t
	return unix.Stat(r.path, &st) == nil && st.Size == r.bytes && st.Blocks*512 >= r.bytes
}

// take fills the reserve, if that leaves as much room again.
func (r *reserve) take() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = os.Remove(r.path) // what is left of another size
	room, err := freeBytes(filepath.Dir(r.path))
	if err != nil {
		return err
	}
	if room < 2*r.bytes {
		return store.ErrUnavailable
	}
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(allocate(f, r.bytes), f.Close()); err != nil {
		_ = os.Remove(r.path)
		return err
	}
	r.held = true
	r.full.Store(false)
	r.gauge.Set(0)
	return nil
}

// fill writes zeros where the file system cannot hold room otherwise.
func fill(f *os.File, bytes int64) error {
	zeros := make([]byte, 1<<20)
	for bytes > 0 {
		n, err := f.Write(zeros[:min(bytes, int64(len(zeros)))])
		if err != nil {
			return err
		}
		bytes -= int64(n)
	}
	return f.Sync()
}

// spend gives the room up when an error says that the disk is full, and reports
// whether there is now room that was not there before.
func (r *reserve) spend(err error) bool {
	if !r.means(err) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.held || os.Remove(r.path) != nil {
		return false
	}
	r.held = false
	r.refuse("the disk is full")
	return true
}

// means reports whether an error says that the disk is full. SQLite has
// another word for it where it cannot extend its index of the log.
func (r *reserve) means(err error) bool {
	var se *sqlite.Error
	if !errors.As(err, &se) {
		return false
	}
	switch se.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return true
	case sqlite3.SQLITE_IOERR:
		room, err := freeBytes(filepath.Dir(r.path))
		return err == nil && room < 1<<20
	}
	return false
}

func (r *reserve) refuse(why string) {
	r.full.Store(true)
	r.gauge.Set(1)
	r.log.Error(why+": what makes the store larger is refused; reads and deletions go on while the reserve lasts", "reserve_bytes", r.bytes)
}

// watch takes the room again as soon as it is there.
func (r *reserve) watch() {
	defer close(r.stopped)
	ticker := time.NewTicker(reserveAgain)
	defer ticker.Stop()
	for {
		select {
		case <-r.stopping:
			return
		case <-ticker.C:
			if r.full.Load() && r.take() == nil {
				r.log.Warn("there is room on the disk again: nothing is refused any more")
			}
		}
	}
}

func (r *reserve) stop() {
	if r.bytes > 0 {
		close(r.stopping)
	}
	<-r.stopped
}

var errFull = fmt.Errorf("sqlite: the disk is full: %w", store.ErrUnavailable)

// grows refuses a write that makes the store larger while the disk is full.
func (t *tx) grows() error {
	if t.full {
		return t.fail(errFull)
	}
	return nil
}
