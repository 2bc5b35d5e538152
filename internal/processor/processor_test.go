package processor_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/processor"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// Enough steps for a request to need a turn, and to use one up.
const (
	heavy = 1 << 16
	whole = 1 << 20
)

// request is one request of a test: it does what it is told to.
type request struct {
	*processor.Work
	steps chan int      // how many to take next; it ends when closed
	taken chan error    // the result of each
	ended chan struct{} // when it has given everything back
}

// begin starts a request that needs a turn. The first result is that of Begin.
func begin(ctx context.Context, turns *processor.Turns, tenant string) *request {
	r := &request{Work: turns.For(tenant), steps: make(chan int), taken: make(chan error), ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		defer r.End()
		_ = r.Spend(ctx, heavy) // outside of work nothing waits
		r.taken <- r.Begin(ctx)
		for n := range r.steps {
			r.taken <- r.Spend(ctx, n)
		}
	}()
	return r
}

// waits returns when so many callers wait.
func waits(t *testing.T, turns *processor.Turns, n int) {
	t.Helper()
	waittest.Until(t, "callers to wait for their turn", func() bool { return turns.Waiting() == n })
}

// goes returns when the request has what it waited for.
func (r *request) goes(t *testing.T, what string) {
	t.Helper()
	if err := waittest.Receive(t, what, r.taken); err != nil {
		t.Errorf("%s = %v", what, err)
	}
}

// ends ends requests that have their turns.
func (r *request) ends(t *testing.T) {
	t.Helper()
	close(r.steps)
	waittest.Receive(t, "a request to end", r.ended)
}

func TestOneTenantHasEverythingWhileNobodyElseWaits(t *testing.T) {
	reached := 0
	turns := processor.New(3, func() { reached++ })
	var list []*request
	for range 3 {
		r := begin(t.Context(), turns, "attacker")
		r.goes(t, "a turn that is free")
		list = append(list, r)
	}
	if n := turns.Running(); n != 3 || reached != 0 {
		t.Errorf("%d turns are taken and the limit was reached %d times, want 3 and 0", n, reached)
	}
	fourth := begin(t.Context(), turns, "attacker")
	waits(t, turns, 1)
	for _, r := range list {
		r.steps <- whole
		r.goes(t, "the next turn of a tenant that only waits for itself")
	}
	if n := turns.Waiting(); n != 1 || reached != 1 {
		t.Errorf("%d requests wait and the limit was reached %d times, want 1 and 1", n, reached)
	}
	list[0].ends(t)
	fourth.goes(t, "the turn that was given back")
	for _, r := range append(list[1:], fourth) {
		r.ends(t)
	}
	if r, w := turns.Running(), turns.Waiting(); r != 0 || w != 0 {
		t.Errorf("at the end %d turns are taken and %d requests wait, want none", r, w)
	}
}

func TestAnAttackIsInterruptedForAnotherTenant(t *testing.T) {
	reached := 0
	turns := processor.New(1, func() { reached++ })
	attackers := []*request{begin(t.Context(), turns, "attacker")}
	attackers[0].goes(t, "the first turn")
	for n := range 7 {
		attackers = append(attackers, begin(t.Context(), turns, "attacker"))
		waits(t, turns, n+1)
	}
	other := begin(t.Context(), turns, "other")
	waits(t, turns, 8)
	attackers[0].steps <- whole - 1
	attackers[0].goes(t, "the turn until it is over")
	attackers[0].steps <- 1
	other.goes(t, "the turn of the other tenant, before seven that came first")
	if n := turns.Running(); n != 1 || reached != 8 {
		t.Errorf("%d turns are taken and the limit was reached %d times, want 1 and 8", n, reached)
	}
	other.steps <- whole
	attackers[0].goes(t, "the next turn of the attacker: what began first ends first")
	attackers[0].steps <- whole
	other.goes(t, "the second turn of the other tenant")
	other.ends(t)
	for i, r := range attackers {
		r.goes(t, "the turn of the attacker when the others have ended")
		if r.ends(t); turns.Waiting() != max(0, 6-i) {
			t.Errorf("%d requests wait after %d have ended, want %d", turns.Waiting(), i+1, max(0, 6-i))
		}
	}
}

func TestTenantsThatWaitShareTheTurnsEqually(t *testing.T) {
	turns := processor.New(4, nil)
	running := map[string]*atomic.Int64{"attacker": {}, "other": {}}
	follow := func(r *request, tenant string) {
		go func() {
			for range r.taken {
				running[tenant].Add(1)
			}
		}()
	}
	var attackers, others []*request
	for range 4 {
		r := begin(t.Context(), turns, "attacker")
		r.goes(t, "a turn that is free")
		attackers = append(attackers, r)
		follow(r, "attacker")
	}
	for n := range 4 {
		r := begin(t.Context(), turns, "other")
		waits(t, turns, n+1)
		others = append(others, r)
		follow(r, "other")
	}
	for _, r := range attackers {
		r.steps <- whole
	}
	waittest.Until(t, "two of the attacker to go on, and two others to begin", func() bool {
		return running["attacker"].Load() == 2 && running["other"].Load() == 2
	})
	if r, w := turns.Running(), turns.Waiting(); r != 4 || w != 4 {
		t.Errorf("%d turns are taken and %d requests wait, want 4 and 4", r, w)
	}
	for _, r := range append(attackers, others...) {
		go func() { close(r.steps) }()
	}
	for _, r := range append(attackers, others...) {
		waittest.Receive(t, "a request to end", r.ended)
		close(r.taken)
	}
}

func TestSmallWorkNeverWaits(t *testing.T) {
	turns := processor.New(1, nil)
	attacker := begin(t.Context(), turns, "attacker")
	attacker.goes(t, "the turn")
	small := turns.For("other")
	for range 3 {
		if err := errors.Join(small.Begin(t.Context()), small.Spend(t.Context(), heavy/3), small.Begin(t.Context())); err != nil {
			t.Error(err)
		}
		small.End()
		small.End()
	}
	if n := turns.Running(); n != 1 {
		t.Errorf("%d turns are taken, want that of the attacker", n)
	}
	attacker.ends(t)
	var none *processor.Turns
	work := none.For("other")
	if err := errors.Join(work.Begin(t.Context()), work.Spend(t.Context(), 10*whole)); err != nil {
		t.Errorf("without turns: %v", err)
	}
	work.End()
}

func TestACallerWhoLeavesGivesUpItsPlace(t *testing.T) {
	turns := processor.New(1, nil)
	attacker := begin(t.Context(), turns, "attacker")
	attacker.goes(t, "the turn")
	ctx, leave := context.WithCancel(t.Context())
	leaver := begin(ctx, turns, "other")
	waits(t, turns, 1)
	next := begin(t.Context(), turns, "other")
	waits(t, turns, 2)
	leave()
	if err := waittest.Receive(t, "the end of the wait", leaver.taken); !errors.Is(err, context.Canceled) {
		t.Errorf("Begin = %v, want the end of the context", err)
	}
	leaver.ends(t)
	if r, w := turns.Running(), turns.Waiting(); r != 1 || w != 1 {
		t.Errorf("%d turns are taken and %d requests wait, want 1 and 1", r, w)
	}
	attacker.ends(t)
	next.goes(t, "the turn of the next")

	// One that leaves while others have the turn that was taken from it has none.
	last := begin(t.Context(), turns, "attacker")
	waits(t, turns, 1)
	ctx, leave = context.WithCancel(t.Context())
	interrupted := begin(ctx, turns, "third")
	waits(t, turns, 2)
	next.ends(t)
	last.goes(t, "the turn")
	last.steps <- whole
	interrupted.goes(t, "the turn")
	interrupted.steps <- whole
	last.goes(t, "the turn again")
	leave()
	if err := waittest.Receive(t, "the end of the wait", interrupted.taken); !errors.Is(err, context.Canceled) {
		t.Errorf("Spend = %v, want the end of the context", err)
	}
	interrupted.ends(t)
	if r, w := turns.Running(), turns.Waiting(); r != 1 || w != 0 {
		t.Errorf("%d turns are taken and %d requests wait, want 1 and 0", r, w)
	}
	last.ends(t)
}

func TestTenantsAreServedInTurn(t *testing.T) {
	turns := processor.New(min(1, processor.Default()), nil)
	first := begin(t.Context(), turns, "a")
	first.goes(t, "the turn")
	list := map[string]*request{}
	for i, tenant := range []string{"a", "b", "c"} {
		list[tenant] = begin(t.Context(), turns, tenant)
		waits(t, turns, i+1)
	}
	first.ends(t)
	for _, tenant := range []string{"b", "c", "a"} {
		list[tenant].goes(t, "the turn of tenant "+tenant)
		list[tenant].ends(t)
	}
}
