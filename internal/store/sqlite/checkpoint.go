package sqlite

import (
	"context"
	"database/sql/driver"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// checkpointer copies the write-ahead log into the database on a connection of
// its own, so that commits rarely wait for it.
//
// The log starts over from its beginning once all of it has been copied, and
// is then cut to the soft bound (journal_size_limit), so the size of its file
// beyond that is the size of what it holds.
type checkpointer struct {
	conn       *conn
	wal        string
	soft, hard int64
	reserve    *reserve
	metrics    *metrics

	// The size of the log after the last commit, those at which the next steps
	// are due, and how far these are apart; the writer's own.
	size, copyAt, waitAt, step int64

	mu         sync.Mutex  // serializes checkpoints
	unscrubbed atomic.Bool // the log still holds what was destroyed
	held       atomic.Bool // a backup reads, so the log cannot start over
	wake       chan struct{}
	stopping   chan struct{}
	done       chan struct{}
	closed     sync.Once
}

// How long a checkpoint that needs the log to itself waits for running views,
// and after which time emptying the log is tried again.
const (
	checkpointWait = 100 * time.Millisecond
	scrubAgain     = time.Second
)

func newCheckpointer(path string, o Options, r *reserve, m *metrics) (*checkpointer, error) {
	c, err := connect(path, o, false, 1<<10, checkpointWait)
	if err != nil {
		return nil, err
	}
	k := &checkpointer{
		conn: c, wal: path + "-wal", soft: o.WALSoftBytes, hard: o.WALHardBytes, reserve: r, metrics: m,
		copyAt: o.WALSoftBytes, waitAt: o.WALHardBytes,
		wake: make(chan struct{}, 1), stopping: make(chan struct{}), done: make(chan struct{}),
	}
	go k.run()
	return k, nil
}

// committed is called by the writer after each commit. Each time the log has
// grown by the soft bound it wakes the background. Past the hard one it does
// the rest itself and lets the log start over, however fast commits come. A
// long view can keep the log from that: then commits do not wait for it again
// until the log has grown by another step.
func (k *checkpointer) committed() {
	info, err := os.Stat(k.wal)
	if err != nil {
		return
	}
	size := info.Size()
	k.metrics.walBytes.Set(float64(size))
	soft, hard, mode := k.soft, k.hard, "RESTART"
	if k.reserve.full.Load() {
		soft, hard, mode = min(soft, fullSoft), min(hard, fullHard), "TRUNCATE"
	}
	if size < k.size || soft < k.step { // it started over, or must stay short from here on
		k.copyAt, k.waitAt = soft, hard
	}
	k.step = soft
	k.size = size
	switch {
	case size > k.waitAt && !k.held.Load():
		k.copyAt, k.waitAt = size+soft, size+soft
		k.checkpoint(mode)
	case size > k.copyAt:
		k.copyAt = size + soft
		k.background()
	}
}

// The bounds of the log on a full disk, where it must not take the room that
// is left for entries.
const fullSoft, fullHard = 1 << 20, 4 << 20

func (k *checkpointer) background() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *checkpointer) run() {
	defer close(k.done)
	for {
		var again <-chan time.Time
		if k.unscrubbed.Load() {
			again = time.After(scrubAgain)
		}
		select {
		case <-k.stopping:
			return
		case <-k.wake:
			k.checkpoint("PASSIVE")
		case <-again:
			k.scrub()
		}
	}
}

// scrub empties the log of what was destroyed. While a view still reads from
// the log that is not possible, and is tried again in the background.
func (k *checkpointer) scrub() {
	if k.checkpoint("TRUNCATE") {
		k.unscrubbed.Store(false)
		return
	}
	k.unscrubbed.Store(true)
	k.background()
}

// checkpoint copies what it can and reports whether it did all that its mode
// asks for. It cannot fail in a way that loses anything: what it does not copy
// stays in the log, and a later one copies it. It is often the first to find
// the disk full; then the log is still short, and the reserve goes a long way.
func (k *checkpointer) checkpoint(mode string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	result, err := k.try(mode)
	if k.reserve.spend(err) {
		result, _ = k.try(mode)
	}
	return result == "ok"
}

func (k *checkpointer) try(mode string) (result string, err error) {
	result = "ok"
	err = k.conn.query(context.Background(), "PRAGMA wal_checkpoint("+mode+")", nil, func(row []driver.Value) (bool, error) {
		if whole(row[0]) != 0 {
			result = "busy"
		}
		return true, nil
	})
	if err != nil {
		result = "failed"
	}
	k.metrics.checkpoints.WithLabelValues(mode, result).Inc()
	return result, err
}

func (k *checkpointer) stop() {
	k.closed.Do(func() { close(k.stopping) })
	<-k.done
}
