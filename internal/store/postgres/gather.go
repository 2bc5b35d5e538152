package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const (
	// maxLeaders is how many commits of a tenant are under way at once. While
	// they are, what comes is gathered for the next: fewer commits at once make
	// larger groups, and two were not faster than one.
	maxLeaders = 1
	// maxGroup and maxGroupBytes bound what shares a commit.
	maxGroup      = 128
	maxGroupBytes = 4 << 20
)

// gatherer commits the rows of updates that read nothing: those that wait while
// others of their tenant are being committed share the next commit. There is
// no goroutine of its own: one of those who wait does it for all.
type gatherer struct {
	store *Store
	alone bool // gather nothing

	mu     sync.Mutex // guards queues
	queues map[tenantKey]*queue
}

type queue struct {
	leaders int
	waiting []*member
}

// member is an update that waits.
type member struct {
	ctx  context.Context
	rows *rows
	// turn gets either the group that this member is to commit, itself in
	// front, or the outcome when another one has done it.
	turn chan turn
}

type turn struct {
	group []*member
	err   error
}

// errAlone says that a shared commit failed for reasons of one of its members,
// so that each must be tried alone.
var errAlone = errors.New("postgres: shared commit failed")

func newGatherer(s *Store, alone bool) *gatherer {
	return &gatherer{store: s, alone: alone, queues: make(map[tenantKey]*queue)}
}

// commit commits rows, with those of others or alone.
func (g *gatherer) commit(ctx context.Context, tenant tenantKey, r *rows) error {
	if g.alone {
		return g.store.commitRows(ctx, tenant, r)
	}
	m := &member{ctx: ctx, rows: r, turn: make(chan turn, 1)}
	now := g.join(tenant, m)
	if now.group != nil {
		now.err = g.lead(tenant, now.group)
	}
	if !errors.Is(now.err, errAlone) {
		return now.err
	}
	return g.store.commitRows(ctx, tenant, r)
}

// errCrowded says that those before were not done in time.
var errCrowded = fmt.Errorf("postgres: the changes before this one are not done: %w", store.ErrUnavailable)

// join waits until the member leads or has been served. It waits no longer than
// for an answer unless somebody has its rows in hand.
func (g *gatherer) join(tenant tenantKey, m *member) turn {
	g.mu.Lock()
	q := g.queues[tenant]
	if q == nil {
		q = &queue{}
		g.queues[tenant] = q
	}
	if q.leaders < maxLeaders {
		q.leaders++
		g.mu.Unlock()
		return turn{group: []*member{m}}
	}
	q.waiting = append(q.waiting, m)
	g.mu.Unlock()
	enough, cancel := context.WithTimeoutCause(m.ctx, answerWait, errCrowded)
	defer cancel()
	select {
	case now := <-m.turn:
		return now
	case <-enough.Done():
	}
	g.mu.Lock()
	waits := slices.Index(q.waiting, m)
	if waits >= 0 {
		q.waiting = slices.Delete(slices.Clone(q.waiting), waits, waits+1)
	}
	g.mu.Unlock()
	if waits < 0 {
		return <-m.turn
	}
	return turn{err: context.Cause(enough)}
}

// lead commits a group, tells the others of it and hands over.
func (g *gatherer) lead(tenant tenantKey, group []*member) error {
	defer g.handOver(tenant)
	live := group[:1]
	for _, m := range group[1:] {
		if err := m.ctx.Err(); err != nil {
			m.turn <- turn{err: err}
			continue
		}
		live = append(live, m)
	}
	var all rows
	for _, m := range live {
		all.add(m.rows)
	}
	g.store.metrics.groupSize.Observe(float64(len(live)))
	err := g.store.commitRows(context.WithoutCancel(live[0].ctx), tenant, &all)
	if err != nil && len(live) > 1 && !shared(err) {
		g.store.metrics.groupsSplit.Inc()
		err = errAlone
	}
	for _, m := range live[1:] {
		m.turn <- turn{err: err}
	}
	return err
}

// shared reports whether an error concerns all members of a group alike.
func shared(err error) bool {
	for _, e := range []error{errAgain, errLost, errUnknown, errUnreachable, store.ErrNoTenant} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// handOver makes one of those who wait the next leader.
func (g *gatherer) handOver(tenant tenantKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := g.queues[tenant]
	if len(q.waiting) == 0 {
		if q.leaders--; q.leaders == 0 {
			delete(g.queues, tenant)
		}
		return
	}
	n, bytes := 1, q.waiting[0].rows.bytes
	for n < len(q.waiting) && n < maxGroup && bytes+q.waiting[n].rows.bytes <= maxGroupBytes {
		bytes += q.waiting[n].rows.bytes
		n++
	}
	group := q.waiting[:n:n]
	q.waiting = q.waiting[n:]
	group[0].turn <- turn{group: group}
}

// commitRows writes rows in a transaction of its own.
func (s *Store) commitRows(ctx context.Context, tenant tenantKey, r *rows) error {
	t := &tx{store: s, tenant: tenant, begin: beginUpdate, needsTenant: true}
	defer t.end()
	if err := t.connect(ctx); err != nil {
		return err
	}
	if r.server != "" && r.server != serverOf(t.conn.Conn().PgConn()) {
		return errMoved
	}
	counters, err := r.counters(slotOf(t.conn.Conn().PgConn()), s.maxContainers)
	if err != nil {
		return err
	}
	return t.seal(ctx, append(r.statements(), counters...))
}
