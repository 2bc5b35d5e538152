package jobs_test

import (
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// TestAnotherTenantHasItsTurn: all turns are taken by one tenant, whose jobs do
// not end, and it has more of them.
func TestAnotherTenantHasItsTurn(t *testing.T) {
	onBoth(t, func(f *fixture) {
		g := newGate()
		n, busy, other := f.node(row(work, g.pass)), f.tenant(), f.tenant()
		n.adds(busy, work, 10)
		wait := n.inBackground(f.Context())
		for range 4 {
			if tenant := waittest.Receive(f, "a job is begun", g.came); tenant != busy {
				f.Error("another tenant's job was begun, and it has none")
			}
		}
		n.adds(other, work, 1)
		waitOther := n.inBackground(f.Context())
		if tenant := waittest.Receive(f, "the spare turn is taken", g.came); tenant != other {
			f.Error("the busy tenant took the spare turn")
		}
		close(g.open)
		wait()
		waitOther()
		n.inBackground(f.Context())() // two that look at once may leave something to each other
		if left := f.count(busy, work) + f.count(other, work); left != 0 {
			f.Errorf("%d jobs are left, want none", left)
		}
	})
}

// TestTenantsAreServedInTurn: with all jobs there at once, each tenant gets as
// many of the first turns.
func TestTenantsAreServedInTurn(t *testing.T) {
	onBoth(t, func(f *fixture) {
		g := newGate()
		n, many, few := f.node(row(work, g.pass)), f.tenant(), f.tenant()
		n.adds(many, work, 20)
		n.adds(few, work, 2)
		wait := n.inBackground(f.Context())
		began := make(map[string]int)
		for range 4 {
			began[waittest.Receive(f, "a job is begun", g.came)]++
		}
		if began[many] != 2 || began[few] != 2 {
			f.Errorf("of the first turns %d went to the tenant with many jobs and %d to the one with few, want 2 and 2", began[many], began[few])
		}
		close(g.open)
		wait()
	})
}

// TestKindsDoNotWaitForEachOther: all turns of one kind are taken.
func TestKindsDoNotWaitForEachOther(t *testing.T) {
	onBoth(t, func(f *fixture) {
		var l ledger
		g := newGate()
		n, tenant := f.node(row("test-slow", g.pass), row(work, l.noting)), f.tenant()
		n.adds(tenant, "test-slow", 10)
		wait := n.inBackground(f.Context())
		for range 4 {
			waittest.Receive(f, "a slow job is begun", g.came)
		}
		n.adds(tenant, work, 3)
		n.does(3)
		close(g.open)
		wait()
	})
}
