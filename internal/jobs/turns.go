package jobs

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// turns bounds how much of one kind a node does at once, and decides which
// tenant is served next: the one with the fewest turns, and among equals the one
// that follows the tenant served last. A tenant for which nothing is running may
// take a spare turn when all others are taken, so that it does not wait for slow
// work of the others.
type turns struct {
	kind             string
	all, each, spare int

	mu      sync.Mutex // guards what follows
	taken   int
	running map[string]int           // by tenant
	held    map[store.ParcelRef]bool // what has a turn
	last    string                   // the tenant that was served last
}

func newTurns(k Kind) *turns {
	return &turns{kind: k.Name, all: k.AtOnce, each: k.PerTenant, spare: k.Spare, running: make(map[string]int), held: make(map[store.ParcelRef]bool)}
}

// free returns how many turns one tenant could be given now, and which tenant
// was served last.
func (t *turns) free() (n int, last string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.taken < t.all:
		n = min(t.all-t.taken, t.each)
	case t.taken < t.all+t.spare:
		n = 1
	}
	return n, t.last
}

// may tells whether a tenant can be given one more turn.
func (t *turns) may(tenant string) bool {
	running := t.running[tenant]
	return running < t.each && t.taken < t.all || running == 0 && t.taken < t.all+t.spare
}

// backlog is what is due of one tenant, longest due first.
type backlog struct {
	tenant string
	due    []store.ParcelRef
}

// count returns for how many of the tenants there is a turn.
func (t *turns) count(list []backlog) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range list {
		if t.may(w.tenant) {
			n++
		}
	}
	return n
}

// take gives out the turns that are free, and returns what has one now. The list
// begins with the tenant that follows the one served last.
func (t *turns) take(list []backlog) (chosen []store.ParcelRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range list {
		list[i].due = slices.DeleteFunc(list[i].due, func(r store.ParcelRef) bool { return t.held[r] })
	}
	for {
		best := -1
		for i, w := range list {
			if len(w.due) > 0 && t.may(w.tenant) && (best < 0 || t.running[w.tenant] < t.running[list[best].tenant]) {
				best = i
			}
		}
		if best < 0 {
			return chosen
		}
		ref := list[best].due[0]
		list[best].due = list[best].due[1:]
		t.taken++
		t.running[ref.Tenant]++
		t.held[ref] = true
		t.last = ref.Tenant
		chosen = append(chosen, ref)
	}
}

// give ends a turn.
func (t *turns) give(ref store.ParcelRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken--
	delete(t.held, ref)
	if t.running[ref.Tenant]--; t.running[ref.Tenant] == 0 {
		delete(t.running, ref.Tenant)
	}
}

// next returns what is to be begun now. It looks through the tenants from the
// one that follows the tenant served last, until there are enough to give each
// free turn to another, or all were seen.
func (t *turns) next(ctx context.Context, all store.AllTenants, now store.Time) ([]store.ParcelRef, error) {
	each, last := t.free()
	if each == 0 {
		return nil, nil
	}
	var list []backlog
	for after, wrapped := last, last == ""; ; {
		due, next, err := all.DueParcels(ctx, t.kind, now, after, tenantsAtOnce, each)
		if err != nil {
			return nil, fmt.Errorf("find jobs: %w", err)
		}
		for _, ref := range due {
			if wrapped && last != "" && ref.Tenant > last {
				break // seen before
			}
			if n := len(list); n == 0 || list[n-1].tenant != ref.Tenant {
				list = append(list, backlog{tenant: ref.Tenant})
			}
			list[len(list)-1].due = append(list[len(list)-1].due, ref)
		}
		switch {
		case t.count(list) >= t.all:
			return t.take(list), nil
		case next != "" && !(wrapped && last != "" && next >= last):
			after = next
		case wrapped:
			return t.take(list), nil
		default:
			after, wrapped = "", true
		}
	}
}
