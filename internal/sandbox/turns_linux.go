package sandbox

import (
	"context"
	"slices"
	"sync"
)

const (
	// fanOut is how many runs at once one run may have at each level below it,
	// and how many calls of req.bt at once it may have under way.
	fanOut = 4
	// share is the part of the turns that a tenant has at most while others wait:
	// one in four.
	share = 4
	// spare is the part of the turns that are added for those that must not wait
	// for the others: one in eight, for each level.
	spare = 8
)

// turns decides which call may run. When a turn is free, the tenant with the
// fewest turns is next, and among equals the one that was served least recently.
// A tenant that has its share gets no more while others wait, also when turns
// are free: those are for tenants that come. So a tenant may have all turns while
// nobody else wants one, and gets none while a tenant with fewer waits.
//
// A run that code makes with req.bt is one level below the run that made it, and
// counts for the tenant of the first one. The run above keeps its turn
// meanwhile, so runs below must never wait for runs above. Therefore the first
// run of a tenant at a level or below may go beyond the number of turns, and the
// further the deeper the level: runs of upper levels cannot use up what the
// lower ones need. At the lowest level nothing waits for a turn, so its runs
// end, and then those above it.
type turns struct {
	global, perProgram, queue int
	reached                   func(Bound)

	mu      sync.Mutex // guards what follows, and chains
	running int
	calls   map[identity]int // calls of a program, waiting ones included
	tenants map[string]*tenantTurns
	waiting []*waiter // in the order in which they came
	served  int       // turns that were given out
	closed  bool
}

// tenantTurns is what a tenant has. It is forgotten when it has nothing.
type tenantTurns struct {
	levels  map[int]int // runs by level
	running int
	waiting int
	served  int // turns.served when it was given its last turn, or when it came
}

// from counts the runs at a level and below it.
func (t *tenantTurns) from(level int) (n int) {
	for l, runs := range t.levels {
		if l >= level {
			n += runs
		}
	}
	return n
}

// chain is a run that a request began, with all that its code began.
type chain struct {
	tenant string
	levels map[int]int // runs by level
}

// turn is the right to run.
type turn struct {
	who   identity
	chain *chain
	level int // 1 for what a request began
}

type waiter struct {
	*turn
	ready chan error // nil when the turn has come
}

// newWaiter is a call that is about to wait, below another one unless that is nil.
func newWaiter(tenant string, who identity, above *turn) *waiter {
	w := &waiter{turn: &turn{who: who, level: 1}, ready: make(chan error, 1)}
	if above != nil {
		w.chain, w.level = above.chain, above.level+1
	} else {
		w.chain = &chain{tenant: tenant, levels: make(map[int]int)}
	}
	return w
}

func newTurns(s Settings) *turns {
	reached := s.Reached
	if reached == nil {
		reached = func(Bound) {}
	}
	return &turns{
		global: s.Global, perProgram: s.PerProgram, queue: s.Queue, reached: reached,
		calls: make(map[identity]int), tenants: make(map[string]*tenantTurns),
	}
}

type turnKey struct{}

// within marks what runs for a call that has a turn: a run with this context is
// below it.
func within(ctx context.Context, t *turn) context.Context {
	return context.WithValue(ctx, turnKey{}, t)
}

// take waits for a turn of a tenant's program, or of none when a tenant has code
// checked.
func (t *turns) take(ctx context.Context, tenant string, who identity) (*turn, error) {
	above, _ := ctx.Value(turnKey{}).(*turn)
	w := newWaiter(tenant, who, above)
	mine := w.turn
	if err := t.enter(w); err != nil {
		return nil, err
	}
	select {
	case err := <-w.ready:
		if err != nil {
			return nil, err
		}
		return mine, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	if i := slices.Index(t.waiting, w); i >= 0 {
		t.remove(i)
		t.dispatch() // a tenant that was the only other one to wait does no more
		t.mu.Unlock()
		return nil, lateness(ctx)
	}
	t.mu.Unlock()
	if err := <-w.ready; err != nil { // it came in the same moment
		return nil, err
	}
	t.give(mine)
	return nil, lateness(ctx)
}

// enter puts a call among those that wait, unless there are too many, and gives
// out what is free.
func (t *turns) enter(w *waiter) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return ErrClosed
	case w.who.tenant != "" && t.calls[w.who] >= t.perProgram:
		return ErrTooMany
	}
	tenant := t.tenants[w.chain.tenant]
	if tenant == nil {
		tenant = &tenantTurns{levels: make(map[int]int), served: t.served}
		t.tenants[w.chain.tenant] = tenant
	}
	t.calls[w.who]++
	tenant.waiting++
	t.waiting = append(t.waiting, w)
	t.dispatch()
	if len(t.waiting) > max(t.queue, 0) && slices.Contains(t.waiting, w) {
		return t.makeRoom(w)
	}
	return nil
}

// makeRoom ends the wait of one call when too many wait: of the one that has
// come, or of the last one of a tenant that has more waiting.
func (t *turns) makeRoom(w *waiter) error {
	most := w.chain.tenant
	for name, tenant := range t.tenants {
		if tenant.waiting > t.tenants[most].waiting {
			most = name
		}
	}
	if t.tenants[most].waiting > t.tenants[w.chain.tenant].waiting {
		for i := len(t.waiting) - 1; i >= 0; i-- {
			if last := t.waiting[i]; last.chain.tenant == most {
				t.reached(SharedTurns)
				t.remove(i)
				last.ready <- ErrBusy
				return nil
			}
		}
	}
	t.remove(slices.Index(t.waiting, w))
	return ErrBusy
}

// remove takes a call out of those that wait.
func (t *turns) remove(i int) {
	w := t.waiting[i]
	t.waiting = slices.Delete(t.waiting, i, i+1)
	t.tenants[w.chain.tenant].waiting--
	t.leave(w.turn)
}

// leave forgets a call that neither waits nor runs any more.
func (t *turns) leave(m *turn) {
	if t.calls[m.who]--; t.calls[m.who] == 0 {
		delete(t.calls, m.who)
	}
	if tenant := t.tenants[m.chain.tenant]; tenant.running == 0 && tenant.waiting == 0 {
		delete(t.tenants, m.chain.tenant)
	}
}

// give ends a turn. Those that wait have it next.
func (t *turns) give(m *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tenant := t.tenants[m.chain.tenant]
	t.running--
	tenant.running--
	tenant.levels[m.level]--
	m.chain.levels[m.level]--
	t.leave(m)
	t.dispatch()
}

// dispatch gives out the turns that are free.
func (t *turns) dispatch() {
	for !t.closed {
		i := t.next()
		if i < 0 {
			return
		}
		w := t.waiting[i]
		t.waiting = slices.Delete(t.waiting, i, i+1)
		tenant := t.tenants[w.chain.tenant]
		t.served++
		tenant.waiting, tenant.served = tenant.waiting-1, t.served
		t.running++
		tenant.running++
		tenant.levels[w.level]++
		w.chain.levels[w.level]++
		w.ready <- nil
	}
}

// next returns which call has its turn now; -1 for none.
func (t *turns) next() int {
	best, bestLoad, first := -1, 0, -1
	several := t.severalWait()
	for i, w := range t.waiting {
		if w.blocked() {
			continue
		}
		tenant := t.tenants[w.chain.tenant]
		load, most := tenant.running, t.global
		if tenant.from(w.level) == 0 {
			load, most = 0, t.global+w.level*max(1, t.global/spare)
		}
		if t.running >= most {
			continue
		}
		if first < 0 {
			first = i
		}
		if several && load >= t.share() {
			continue
		}
		if best < 0 || load < bestLoad || load == bestLoad && tenant.served < t.tenants[t.waiting[best].chain.tenant].served {
			best, bestLoad = i, load
		}
	}
	if first >= 0 && best != first && t.tenants[t.waiting[first].chain.tenant].running >= t.share() {
		t.reached(SharedTurns)
	}
	return best
}

// share is how many turns a tenant has at most while others wait.
func (t *turns) share() int { return max(1, t.global/share) }

// blocked reports whether a call waits for others of its own request.
func (w *waiter) blocked() bool { return w.level > 1 && w.chain.levels[w.level] >= fanOut }

// severalWait reports whether calls of more than one tenant wait.
func (t *turns) severalWait() bool {
	first := ""
	for _, w := range t.waiting {
		switch {
		case w.blocked() || w.chain.tenant == first:
		case first == "":
			first = w.chain.tenant
		default:
			return true
		}
	}
	return false
}

// close refuses all that wait and all that come.
func (t *turns) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, w := range t.waiting {
		t.tenants[w.chain.tenant].waiting--
		t.leave(w.turn)
		w.ready <- ErrClosed
	}
	t.waiting = nil
}
