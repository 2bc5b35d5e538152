package sqlite

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// maxGroup bounds how many updates share one commit, so that the first of them
// does not wait long for the last.
const maxGroup = 256

// update is a change that waits for the writer.
type update struct {
	ctx    context.Context
	tenant tenantKey
	fn     func(*tx) error
	done   chan outcome
}

// outcome is what became of an update: err, or the value with which its
// function panicked, which belongs to the goroutine that called Update.
type outcome struct {
	err      error
	panicked any
}

func (o outcome) kept() bool { return o.err == nil && o.panicked == nil }

// writer owns the one connection that writes. It runs the functions of all
// updates that wait in one transaction, in which each can be taken back alone,
// and answers them after one sync to disk.
type writer struct {
	conn         *conn
	group        int // the most updates in one commit
	common       *commonTerms
	memory       *memory
	served       map[tenantKey]bool // tenants that are there, and stay
	queue        chan *update
	stopped      chan struct{}
	checkpointer *checkpointer
	reserve      *reserve
	metrics      *metrics
	failing      atomic.Bool // the last update was refused, say for a full disk

	mu     sync.RWMutex // guards closed against sends on queue
	closed bool
}

func newWriter(c *conn, group int, common *commonTerms, memory *memory, k *checkpointer, r *reserve, m *metrics) *writer {
	c.group = &groupWork{conn: c}
	w := &writer{
		conn: c, group: group, common: common, memory: memory, served: map[tenantKey]bool{}, queue: make(chan *update, 4*maxGroup), stopped: make(chan struct{}),
		checkpointer: k, reserve: r, metrics: m,
	}
	go w.run()
	return w
}

// submit hands an update to the writer and waits for its outcome. An update
// whose context ends while it waits in the queue is not run; one that has
// begun is waited for, because its outcome is then a fact.
func (w *writer) submit(ctx context.Context, tenant tenantKey, fn func(*tx) error) error {
	u := &update{ctx: ctx, tenant: tenant, fn: fn, done: make(chan outcome, 1)}
	w.mu.RLock()
	if w.closed {
		w.mu.RUnlock()
		return errClosed
	}
	select {
	case w.queue <- u:
		w.mu.RUnlock()
	case <-ctx.Done():
		w.mu.RUnlock()
		return ctx.Err()
	}
	o := <-u.done
	if o.panicked != nil {
		panic(o.panicked)
	}
	return o.err
}

// stop answers what waits, lets nothing new in and returns when the writer is idle.
func (w *writer) stop() {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.queue)
	}
	w.mu.Unlock()
	<-w.stopped
}

func (w *writer) run() {
	defer close(w.stopped)
	group := make([]*update, 0, maxGroup)
	for first := range w.queue {
		group = append(group[:0], first)
	gather:
		for len(group) < w.group {
			select {
			case u, ok := <-w.queue:
				if !ok {
					break gather
				}
				group = append(group, u)
			default:
				break gather
			}
		}
		w.commit(group)
		clear(group)
		w.checkpointer.committed()
	}
}

// commit runs a group in one transaction. When the transaction as a whole
// fails, each update is tried again alone: one that cannot be kept, say for
// its size on a full disk, must not take its neighbours along. What finds the
// disk full is tried again with the reserve, which only some may use.
func (w *writer) commit(group []*update) {
	live := group[:0:len(group)]
	for _, u := range group {
		if err := u.ctx.Err(); err != nil {
			u.done <- outcome{err: err}
			continue
		}
		live = append(live, u)
	}
	if len(live) == 0 {
		return
	}
	outcomes, err := w.transaction(live)
	if err != nil && len(live) > 1 {
		w.metrics.groupsSplit.Inc()
		w.reserve.spend(err)
		for _, u := range live {
			w.answer(u, w.alone(u))
		}
		return
	}
	if err != nil {
		outcomes = []outcome{{err: err}}
	}
	w.metrics.groupSize.Observe(float64(len(live)))
	for i, u := range live {
		if w.reserve.spend(outcomes[i].err) {
			outcomes[i] = w.alone(u) // nothing of it was kept
		}
		w.answer(u, outcomes[i])
	}
}

// alone runs an update in a transaction of its own, and once more if that
// brought the reserve to light.
func (w *writer) alone(u *update) outcome {
	for {
		outcomes, err := w.transaction([]*update{u})
		if err != nil {
			outcomes = []outcome{{err: err}}
		}
		if !w.reserve.spend(outcomes[0].err) {
			return outcomes[0]
		}
	}
}

func (w *writer) answer(u *update, o outcome) {
	if o.kept() {
		w.failing.Store(false)
	} else if errors.Is(o.err, store.ErrUnavailable) {
		w.failing.Store(true)
	}
	u.done <- o
}

// transaction runs the updates and commits. The error says that nothing was
// kept of any of them.
func (w *writer) transaction(group []*update) (_ []outcome, err error) {
	if _, err := w.conn.run("BEGIN IMMEDIATE"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			// SQLite may have rolled back by itself; then this one has nothing to do.
			_, _ = w.conn.run("ROLLBACK")
		}
	}()
	w.conn.forgets = false
	defer func() {
		if w.conn.forgets {
			clear(w.served) // some may be gone
		}
	}()
	together := w.conn.group
	together.begin()
	outcomes := make([]outcome, len(group))
	kept, scrub := 0, false
	alone := len(group) == 1 // then there are no neighbours to keep
	for i, u := range group {
		together.next(alone)
		t := &tx{conn: w.conn, tenant: u.tenant, writable: true, memory: w.memory, common: w.common, served: w.served, full: w.reserve.full.Load()}
		outcomes[i] = apply(u, t)
		if outcomes[i].kept() {
			kept++
			scrub = scrub || t.scrub
		}
		if err := together.end(outcomes[i].kept()); err != nil {
			return nil, err
		}
	}
	if kept == 0 {
		_, err := w.conn.run("ROLLBACK")
		if alone {
			err = nil // it may be gone already: what the update died of says more
		}
		return outcomes, err
	}
	if err := together.write(); err != nil {
		return nil, err
	}
	if w.conn.forgets {
		w.memory.turn()
		defer w.memory.turn()
	}
	if _, err := w.conn.run("COMMIT"); err != nil {
		return nil, err
	}
	if scrub {
		w.checkpointer.scrub()
	}
	return outcomes, nil
}

// apply runs one update's function. Its panic must not end the writer.
func apply(u *update, t *tx) (o outcome) {
	defer func() {
		t.conn, t.ended = nil, true // a transaction kept beyond its function reaches nothing
		if p := recover(); p != nil {
			o = outcome{panicked: p}
		}
	}()
	if err := u.fn(t); err != nil {
		return outcome{err: err}
	}
	if t.failed != nil {
		return outcome{err: t.failed}
	}
	if err := t.checkTenant(); err != nil {
		return outcome{err: err}
	}
	return outcome{err: t.flush()}
}
