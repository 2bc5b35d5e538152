package sqlite

import (
	"context"
	"database/sql/driver"
	"os"
	"sync"
)

// checkpointer copies the write-ahead log into the database on a connection of
// its own, so that commits rarely wait for it.
type checkpointer struct {
	conn       *conn
	wal        string
	soft, hard int64
	metrics    *metrics

	mu     sync.Mutex // serializes checkpoints
	wake   chan struct{}
	done   chan struct{}
	closed sync.Once
}

func newCheckpointer(path string, o Options, m *metrics) (*checkpointer, error) {
	c, err := connect(path, o.VFS, false, 1<<10)
	if err != nil {
		return nil, err
	}
	k := &checkpointer{
		conn: c, wal: path + "-wal", soft: o.WALSoftBytes, hard: o.WALHardBytes, metrics: m,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go k.run()
	return k, nil
}

// committed is called by the writer after each commit. Past the soft bound it
// wakes the background; past the hard one it does the work itself, so that the
// log stays bounded however fast commits come.
func (k *checkpointer) committed() {
	info, err := os.Stat(k.wal)
	if err != nil {
		return
	}
	k.metrics.walBytes.Set(float64(info.Size()))
	switch size := info.Size(); {
	case size > k.hard:
		k.checkpoint("TRUNCATE")
	case size > k.soft:
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

func (k *checkpointer) run() {
	defer close(k.done)
	for range k.wake {
		k.checkpoint("PASSIVE")
	}
}

// checkpoint copies what it can. It cannot fail in a way that loses anything:
// what it does not copy stays in the log, and a later one copies it.
func (k *checkpointer) checkpoint(mode string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.conn.query(context.Background(), "PRAGMA wal_checkpoint("+mode+")", nil,
		func(row []driver.Value) (bool, error) { return false, nil })
	result := "ok"
	if err != nil {
		result = "failed"
	}
	k.metrics.checkpoints.WithLabelValues(mode, result).Inc()
}

func (k *checkpointer) stop() {
	k.closed.Do(func() { close(k.wake) })
	<-k.done
}
