package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// maxContainers is the bound on containers of the stores that RunContainers opens.
const maxContainers = 5

// RunContainers runs the tests of the bound on a tenant's containers, each on
// an empty store that open opens with that bound. tidy, when not nil, does what
// the store does by itself from time to time.
func RunContainers(t *testing.T, open func(t *testing.T, maxContainers int64) store.Store, tidy func(context.Context, store.Store) error) {
	for _, c := range []test{
		{"a container beyond the bound is refused and the others go on working", containerBeyond},
		{"the containers of another tenant do not count", containersOfOthers},
		{"the last token of a container takes it along", containerFreed},
		{"a change of containers is bounded too", containerMoved},
		{"combinations of few containers are bounded", containerCombinations},
		{"of many creates at the bound just as many are kept as fit", containerRace},
		{"the counters agree while groups come and go at the same time", containersComeAndGo},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := &fixture{T: t, Store: open(t, maxContainers)}
			f.people(tenantA, tenantB)
			c.run(f)
			f.sound()
			if tidy != nil {
				if err := tidy(f.Context(), f.Store); err != nil {
					f.Errorf("tidy: %v", err)
				}
				f.sound()
			}
		})
	}
}

// in makes the n-th token, in these containers.
func in(n int, containers ...string) store.Token {
	t := token(n)
	t.Containers = containers
	return t
}

func (f *fixture) insert(tenant string, t store.Token) error {
	return f.Update(f.Context(), tenant, func(tx store.Tx) error { return tx.InsertToken(f.Context(), t) })
}

// fillContainers inserts tokens 0 to n-1, each in a container of its own.
func (f *fixture) fillContainers(tenant string, n int) {
	f.Helper()
	for i := range n {
		if err := f.insert(tenant, in(i, fmt.Sprintf("/%d/", i))); err != nil {
			f.Fatalf("token %d: %v", i, err)
		}
	}
}

func (f *fixture) full(doing string, err error) {
	f.Helper()
	if !errors.Is(err, store.ErrContainers) {
		f.Errorf("%s: got error %v, want %v", doing, err, store.ErrContainers)
	}
}

func containerBeyond(f *fixture) {
	f.fillContainers(tenantA, maxContainers)
	f.full("one more container", f.insert(tenantA, in(10, "/more/")))
	f.full("one more container beside one that is there", f.insert(tenantA, in(10, "/0/", "/more/")))
	if err := f.insert(tenantA, in(10, "/0/")); err != nil {
		f.Errorf("a container that has tokens: %v", err)
	}
	if err := f.insert(tenantA, in(11, "/0/", "/1/")); err != nil {
		f.Errorf("two containers that have tokens: %v", err)
	}
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		types, err := tx.CountTypes(ctx, day)
		f.same("types", types, map[string]int64{"card": maxContainers + 2})
		return err
	})
}

func containersOfOthers(f *fixture) {
	f.fillContainers(tenantB, maxContainers)
	f.fillContainers(tenantA, maxContainers)
	f.full("one more container", f.insert(tenantA, in(10, "/more/")))
}

func containerFreed(f *fixture) {
	f.fillContainers(tenantA, maxContainers)
	for i := range 3 { // what goes frees its place each time
		f.full("one more container", f.insert(tenantA, in(10, "/more/")))
		f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.DeleteToken(ctx, token(i).ID) })
		if err := f.insert(tenantA, in(20+i, fmt.Sprintf("/more-%d/", i))); err != nil {
			f.Errorf("a container in the place of one that went: %v", err)
		}
	}
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		groups, err := tx.TokenGroups(ctx)
		f.same("groups", len(groups), maxContainers)
		return err
	})
}

func containerMoved(f *fixture) {
	f.fillContainers(tenantA, maxContainers)
	if err := f.insert(tenantA, in(10, "/0/")); err != nil {
		f.Fatal(err)
	}
	f.refused("ReplaceToken with one more container", tenantA, store.ErrContainers, func(ctx context.Context, tx store.Tx) error {
		moved := in(10, "/more/")
		moved.Version = 2
		return tx.ReplaceToken(ctx, moved)
	})
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		moved := in(10, "/1/")
		moved.Version = 2
		return tx.ReplaceToken(ctx, moved)
	})
}

func containerCombinations(f *fixture) {
	kept := int64(0)
	for mask := 1; mask < 1<<maxContainers; mask++ {
		var containers []string
		for i := range maxContainers {
			if mask&(1<<i) != 0 {
				containers = append(containers, fmt.Sprintf("/%d/", i))
			}
		}
		err := f.insert(tenantA, in(mask, containers...))
		if err == nil {
			kept++
		} else if !errors.Is(err, store.ErrContainers) {
			f.Fatal(err)
		}
	}
	f.same("combinations that were kept", kept, store.MaxGroups(maxContainers))
}

func containerRace(f *fixture) {
	var kept atomic.Int64
	inParallel(12, func(i int) {
		for { // a store may give up on a conflict
			err := f.insert(tenantA, in(i, fmt.Sprintf("/%d/", i)))
			if err == nil {
				kept.Add(1)
			}
			if err == nil || errors.Is(err, store.ErrContainers) {
				return
			}
			if !retryable(err) {
				f.Errorf("insert: %v", err)
				return
			}
		}
	})
	f.same("creates that were kept", kept.Load(), int64(maxContainers))
}

func containersComeAndGo(f *fixture) {
	inParallel(4, func(i int) {
		for n := range 6 {
			name := fmt.Sprintf("/%d/", n%3)
			for _, change := range []func(store.Tx) error{
				func(tx store.Tx) error { return tx.InsertToken(f.Context(), in(i, name, "/shared/")) },
				func(tx store.Tx) error { return tx.DeleteToken(f.Context(), token(i).ID) },
			} {
				for {
					err := f.Update(f.Context(), tenantA, change)
					if err == nil {
						break
					}
					if !retryable(err) {
						f.Errorf("Update: %v", err)
						return
					}
				}
			}
		}
	})
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		groups, errGroups := tx.TokenGroups(ctx)
		types, err := tx.CountTypes(ctx, day)
		if len(groups)+len(types) > 0 {
			f.Errorf("groups %v and types %v are left, want none", groups, types)
		}
		return errors.Join(errGroups, err)
	})
}
