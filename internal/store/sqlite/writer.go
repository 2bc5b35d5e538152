package sqlite

import (
	"context"
	"errors"
	"slices"
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
	// entries are all that an update without a function has to write.
	entries []groupEntry
	done    chan outcome
	// charged is what its tenant was charged for it. The queue owns it.
	charged int64
}

// outcome is what became of an update: err, or the value with which its
// function panicked, which belongs to the goroutine that called Update.
type outcome struct {
	err      error
	panicked any
}

func (o outcome) kept() bool { return o.err == nil && o.panicked == nil }

// writer owns the one connection that writes. It runs the functions of updates
// that wait in one transaction, in which each can be taken back alone, and
// answers them after one sync to disk. The queue decides whose update is next;
// a commit ends early when its updates have cost much and others wait.
type writer struct {
	conn          *conn
	group         int // the most updates in one commit
	common        *commonTerms
	maxContainers int64 // see Options
	memory        *memory
	recent        *recentTokens
	served        map[tenantKey]bool // tenants that are there, and stay
	queue         *updateQueue
	turnEnded     func() // is told that a tenant waits for its next turn because others do
	stopped       chan struct{}
	checkpointer  *checkpointer
	reserve       *reserve
	metrics       *metrics
	failing       atomic.Bool // the last update was refused, say for a full disk
}

func newWriter(c *conn, group int, maxContainers int64, turnEnded func(), common *commonTerms, memory *memory, recent *recentTokens, k *checkpointer, r *reserve, m *metrics) *writer {
	c.group = &groupWork{conn: c}
	w := &writer{
		conn: c, group: group, maxContainers: maxContainers, common: common, memory: memory, recent: recent, served: map[tenantKey]bool{}, queue: newUpdateQueue(turnEnded), stopped: make(chan struct{}),
		turnEnded: turnEnded, checkpointer: k, reserve: r, metrics: m,
	}
	go w.run()
	return w
}

// submit hands an update to the writer and waits for its outcome. An update
// whose context ends while it waits in the queue is not run; one that has
// begun is waited for, because its outcome is then a fact.
func (w *writer) submit(ctx context.Context, tenant tenantKey, fn func(*tx) error) error {
	return w.wait(&update{ctx: ctx, tenant: tenant, fn: fn, done: make(chan outcome, 1)})
}

// appendLog commits entries with the updates that wait, as submit does.
func (w *writer) appendLog(ctx context.Context, tenant tenantKey, entries []groupEntry) error {
	return w.wait(&update{ctx: ctx, tenant: tenant, entries: entries, done: make(chan outcome, 1)})
}

func (w *writer) wait(u *update) error {
	if !w.queue.put(u) {
		return errClosed
	}
	o := <-u.done
	if o.panicked != nil {
		panic(o.panicked)
	}
	return o.err
}

// stop answers what waits, lets nothing new in and returns when the writer is idle.
func (w *writer) stop() {
	w.queue.close()
	<-w.stopped
}

func (w *writer) run() {
	defer close(w.stopped)
	group := make([]*update, 0, maxGroup)
	for {
		group = w.queue.take(group[:0], w.group)
		if len(group) == 0 {
			return
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
	outcomes, ran, err := w.transaction(live)
	w.putBack(live[:ran], live[ran:])
	live = live[:ran]
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
		outcomes, _, err := w.transaction([]*update{u})
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

// putBack returns what a commit did not come to. The tenant that made it end
// early has reached its turn if more of its updates wait behind those of others.
func (w *writer) putBack(ran, rest []*update) {
	if len(rest) == 0 {
		return
	}
	w.queue.putBack(rest)
	most := ran[0]
	for _, u := range ran {
		if u.charged > most.charged {
			most = u
		}
	}
	own := func(u *update) bool { return u.tenant == most.tenant }
	if slices.ContainsFunc(rest, own) && slices.ContainsFunc(rest, func(u *update) bool { return !own(u) }) {
		w.turnEnded()
	}
}

// transaction runs the updates and commits, except the last ones if those
// before them cost too much: ran is how many were run. The error says that
// nothing was kept of any of these.
func (w *writer) transaction(group []*update) (_ []outcome, ran int, err error) {
	if _, err := w.conn.run("BEGIN IMMEDIATE"); err != nil {
		return nil, len(group), err
	}
	defer func() {
		if err != nil {
			// SQLite may have rolled back by itself; then this one has nothing to do.
			_, _ = w.conn.run("ROLLBACK")
		}
	}()
	w.conn.forgets, w.conn.changed = false, recentChange{}
	defer func() {
		if w.conn.forgets {
			clear(w.served) // some may be gone
		}
	}()
	w.conn.regroups = false
	var regrouped []tenantKey
	together := w.conn.group
	together.begin()
	outcomes := make([]outcome, 0, len(group))
	kept, scrub := 0, false
	alone := len(group) == 1 // then there are no neighbours to keep
	begun := w.conn.cost
	for _, u := range group {
		if w.conn.cost-begun+int64(len(together.entries)) > maxTurnCost {
			break
		}
		before := w.conn.cost
		together.next(alone)
		o, scrubs := w.apply(u)
		if o.kept() {
			kept++
			scrub = scrub || scrubs
		}
		outcomes = append(outcomes, o)
		if w.conn.regroups {
			w.conn.regroups, regrouped = false, append(regrouped, u.tenant)
		}
		w.queue.settle(u, 1+w.conn.cost-before+int64(len(together.entries)-together.first))
		if err := together.end(o.kept()); err != nil {
			return nil, len(outcomes), err
		}
	}
	ran = len(outcomes)
	if kept == 0 {
		_, err := w.conn.run("ROLLBACK")
		if alone {
			err = nil // it may be gone already: what the update died of says more
		}
		return outcomes, ran, err
	}
	if err := together.write(); err != nil {
		return nil, ran, err
	}
	if w.conn.forgets {
		w.memory.turn()
		defer w.memory.turn()
	}
	if changed := w.conn.changed; !changed.empty() {
		w.recent.turn(&changed)
		defer w.recent.turn(&changed)
	}
	defer w.memory.groups.change(regrouped)()
	if _, err := w.conn.run("COMMIT"); err != nil {
		return nil, ran, err
	}
	if scrub {
		w.checkpointer.scrub()
	}
	return outcomes, ran, nil
}

// apply does what one update asks for. Entries of a tenant that is known to be
// there need no statement of their own.
func (w *writer) apply(u *update) (o outcome, scrub bool) {
	if u.fn == nil {
		w.conn.group.entries = append(w.conn.group.entries, u.entries...)
		if w.served[u.tenant] && !w.conn.forgets {
			return outcome{}, false
		}
		t := &tx{conn: w.conn, tenant: u.tenant, writable: true, served: w.served, needsTenant: true}
		return outcome{err: t.checkTenant()}, false
	}
	t := &tx{conn: w.conn, tenant: u.tenant, writable: true, memory: w.memory, common: w.common, maxContainers: w.maxContainers, served: w.served, full: w.reserve.full.Load()}
	o = call(u, t)
	return o, t.scrub
}

// call runs one update's function. Its panic must not end the writer.
func call(u *update, t *tx) (o outcome) {
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
