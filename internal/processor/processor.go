// Package processor lets tenants take turns at work that takes processor time,
// such as the evaluation of expressions.
//
// It promises that no more work than it has turns goes on at once, that a
// tenant gets a turn only while no tenant with fewer turns is waiting, and that
// a caller whose context ends stops waiting. A tenant may have all turns while
// no other tenant wants one. Work that is small in all never waits. It counts in
// steps that its callers report, and reads no clock.
package processor

import (
	"context"
	"runtime"
	"slices"
	"sync"
)

const (
	// freeSteps is how many steps a request may take before it needs a turn: the
	// expressions of ordinary tokens never wait.
	freeSteps = 1 << 16
	// turnSteps is how many steps a turn lasts while other tenants wait: about a
	// millisecond.
	turnSteps = 1 << 20
)

// Default returns how many turns a server has: one for each processor, except a
// quarter of them, at least one, which are left for everything else.
func Default() int {
	n := runtime.GOMAXPROCS(0)
	return max(1, n-max(1, n/4))
}

// Turns are the turns of one server. A nil Turns bounds nothing.
type Turns struct {
	size    int
	reached func()

	mu      sync.Mutex // guards what follows, and the fields of tenants
	running int
	waiting int
	served  int64 // turns that were given out
	entered int64 // callers that began to wait
	tenants map[string]*tenant
}

// tenant is what a tenant has. It is forgotten when it has nothing.
type tenant struct {
	running int
	waiting []*waiter // in the order in which they are served
	// served is Turns.served when the tenant was given its last turn. A tenant that
	// comes is before the one that was served last, and after the others.
	served int64
}

type waiter struct {
	order int64 // Turns.entered when it came
	ready chan struct{}
}

// before decides between tenants that wait: the one with the fewest turns is
// next, among equals the one that was served least recently, and then the one
// that came first.
func (x *tenant) before(y *tenant) bool {
	if x.running != y.running {
		return x.running < y.running
	}
	if x.served != y.served {
		return x.served < y.served
	}
	return x.waiting[0].order < y.waiting[0].order
}

// New returns so many turns. reached is called when work waits because its
// tenant has its share of them: half, or any while other tenants wait. It may be
// nil.
func New(size int, reached func()) *Turns {
	if reached == nil {
		reached = func() {}
	}
	return &Turns{size: max(1, size), reached: reached, tenants: make(map[string]*tenant)}
}

// Running returns how many turns are taken.
func (t *Turns) Running() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running
}

// Waiting returns how many callers wait for a turn.
func (t *Turns) Waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting
}

// For returns the work of one request of a tenant.
func (t *Turns) For(tenant string) *Work {
	if t == nil {
		return nil
	}
	return &Work{turns: t, tenant: tenant}
}

// Work is what one request does with processors. A nil Work is not bounded. It
// is not safe for concurrent use.
type Work struct {
	turns  *Turns
	tenant string
	depth  int  // calls of Begin without End
	steps  int  // all of the request, up to freeSteps
	turn   int  // steps since the turn was taken
	held   bool // it has a turn
}

// Begin says that work follows, which ends with End. It may be called again
// inside. When the request has taken many steps already, it blocks until its
// turn comes; the error is that of a context that ended meanwhile. End is called
// whatever Begin returned.
func (w *Work) Begin(ctx context.Context) error {
	if w == nil {
		return nil
	}
	w.depth++
	return w.hold(ctx)
}

// End gives the turn back. Without a Begin before it, it does nothing.
func (w *Work) End() {
	if w == nil || w.depth == 0 {
		return
	}
	if w.depth--; w.depth == 0 && w.held {
		w.held = false
		w.turns.give(w.tenant)
	}
}

// Spend reports steps that were taken. Between Begin and End it blocks until
// the turn comes, or comes again when it is over and other tenants wait.
func (w *Work) Spend(ctx context.Context, steps int) error {
	if w == nil {
		return nil
	}
	w.steps = min(w.steps+steps, freeSteps)
	w.turn += steps
	if !w.held || w.turn < turnSteps {
		return w.hold(ctx)
	}
	w.turn = 0
	next := w.turns.swap(w.tenant)
	if next == nil {
		runtime.Gosched() // what else waits for a processor goes first
		return nil
	}
	w.held = false
	return w.wait(ctx, next)
}

// hold takes a turn if the request needs one and has none.
func (w *Work) hold(ctx context.Context) error {
	if w.held || w.depth == 0 || w.steps < freeSteps {
		return nil
	}
	return w.wait(ctx, w.turns.enter(w.tenant))
}

// wait blocks until the turn of a waiter has come.
func (w *Work) wait(ctx context.Context, mine *waiter) error {
	select {
	case <-mine.ready:
	case <-ctx.Done():
		if w.turns.leave(w.tenant, mine) {
			return ctx.Err()
		}
		<-mine.ready // it came in the same moment
	}
	w.held, w.turn = true, 0
	return nil
}

// enter puts a caller behind the others of its tenant, and gives out what is
// free.
func (t *Turns) enter(name string) *waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.tenants[name]
	if x == nil {
		x = &tenant{served: t.served - 1}
		t.tenants[name] = x
	}
	w := t.newWaiter()
	x.waiting = append(x.waiting, w)
	t.waiting++
	t.dispatch()
	if slices.Contains(x.waiting, w) && x.running >= max(1, t.size/2) {
		t.reached()
	}
	return w
}

// leave takes a caller out of those that wait; false if its turn has come.
func (t *Turns) leave(name string, w *waiter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.tenants[name]
	if x == nil {
		return false
	}
	i := slices.Index(x.waiting, w)
	if i < 0 {
		return false
	}
	x.waiting = slices.Delete(x.waiting, i, i+1)
	t.waiting--
	t.forget(name)
	return true
}

// give ends a turn. Those that wait have it next.
func (t *Turns) give(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
	t.tenants[name].running--
	t.dispatch()
	t.forget(name)
}

// swap ends a turn if a tenant with fewer waits. The caller then is the first of
// its tenant that waits. It returns nil if the caller keeps its turn.
func (t *Turns) swap(name string) *waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.tenants[name]
	fewer := false
	for _, other := range t.tenants {
		fewer = fewer || len(other.waiting) > 0 && other.running < x.running
	}
	if !fewer {
		return nil
	}
	w := t.newWaiter()
	x.waiting = slices.Insert(x.waiting, 0, w)
	x.served = t.tick()
	t.waiting++
	t.running--
	x.running--
	t.reached()
	t.dispatch()
	return w
}

// forget drops a tenant that has nothing.
func (t *Turns) forget(name string) {
	if x := t.tenants[name]; x.running == 0 && len(x.waiting) == 0 {
		delete(t.tenants, name)
	}
}

func (t *Turns) newWaiter() *waiter {
	t.entered++
	return &waiter{order: t.entered, ready: make(chan struct{})}
}

// tick counts a turn. There is a number between two of them for a tenant that
// comes.
func (t *Turns) tick() int64 {
	t.served += 2
	return t.served
}

// dispatch gives out the turns that are free.
func (t *Turns) dispatch() {
	for t.running < t.size && t.waiting > 0 {
		var next *tenant
		for _, x := range t.tenants {
			if len(x.waiting) > 0 && (next == nil || x.before(next)) {
				next = x
			}
		}
		w := next.waiting[0]
		next.waiting = slices.Delete(next.waiting, 0, 1)
		next.served = t.tick()
		next.running++
		t.running++
		t.waiting--
		close(w.ready)
	}
}
