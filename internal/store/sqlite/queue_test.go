package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// order notes whose updates ran, in their order.
type order struct {
	t     *testing.T
	store *sqlite.Store
	wg    sync.WaitGroup
	mu    sync.Mutex // guards ran
	ran   []string
}

// put adds updates of a tenant that write and read so much, and returns when
// they wait.
func (o *order) put(tenant string, n, cost int) {
	o.t.Helper()
	for range n {
		o.add(tenant, func(tx store.Tx) error {
			for i := range cost {
				if err := tx.PutMark(context.Background(), fmt.Sprint("mark ", i%10), []byte("value")); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// add adds an update of a tenant, and returns when it waits.
func (o *order) add(tenant string, fn func(tx store.Tx) error) {
	o.t.Helper()
	waiting := o.store.Waiting()
	o.wg.Go(func() {
		err := o.store.Update(o.t.Context(), tenant, func(tx store.Tx) error {
			o.mu.Lock()
			o.ran = append(o.ran, tenant)
			o.mu.Unlock()
			return fn(tx)
		})
		if err != nil {
			o.t.Errorf("an update of %s: %v", tenant, err)
		}
	})
	for o.store.Waiting() == waiting {
		runtime.Gosched()
	}
}

// run has the updates that fill adds wait, until all are there, and returns
// whose ran in which order.
func inOrder(t *testing.T, s *sqlite.Store, fill func(o *order)) []string {
	t.Helper()
	o := &order{t: t, store: s}
	begun, leave := make(chan struct{}), make(chan struct{})
	o.wg.Go(func() {
		if err := s.Update(t.Context(), tenantC, func(store.Tx) error { close(begun); <-leave; return nil }); err != nil {
			t.Errorf("the update that goes first: %v", err)
		}
	})
	<-begun
	fill(o)
	close(leave)
	o.wg.Wait()
	return o.ran
}

const tenantC = "33333333-3333-4333-8333-333333333333"

// TestTheWriterServesTenantsInTurn: updates of a tenant that came last run
// beside the first of one that has many waiting.
func TestTheWriterServesTenantsInTurn(t *testing.T) {
	s := open(t, t.TempDir(), sqlite.Options{})
	ran := inOrder(t, s, func(o *order) {
		o.put(tenantA, 300, 1)
		o.put(tenantB, 10, 1)
	})
	last := 0
	for i, tenant := range ran {
		if tenant == tenantB {
			last = i
		}
	}
	if len(ran) != 310 || last > 22 {
		t.Errorf("of %d updates the last of the second tenant was number %d, want both tenants in turn", len(ran), last)
	}
}

// TestATenantThatWritesMuchGetsItsTurnLater: the turn of a tenant ends with the
// update that cost much, and others are served until they have cost as much.
func TestATenantThatWritesMuchGetsItsTurnLater(t *testing.T) {
	ended := 0
	registry := prometheus.NewPedanticRegistry()
	s := open(t, t.TempDir(), sqlite.Options{Metrics: registry, TurnEnded: func() { ended++ }})
	before, _ := commits(t, registry)
	ran := inOrder(t, s, func(o *order) {
		o.put(tenantA, 3, 5000)
		o.put(tenantB, 100, 1)
	})
	after, _ := commits(t, registry)
	heavy := 0
	for _, tenant := range ran[:slices.Index(ran, tenantB)+100] {
		if tenant == tenantA {
			heavy++
		}
	}
	if len(ran) != 103 || heavy > 1 {
		t.Errorf("%d of the three large updates ran before the hundred small ones, want one at most", heavy)
	}
	// The one that goes first, then a turn for each of the large ones at most.
	if n := after - before; n < 3 || n > 5 {
		t.Errorf("%d commits, want the large updates in turns of their own", n)
	}
	if ended == 0 {
		t.Error("nobody was told that a turn ended")
	}
}

// TestAnIdleWriterGivesOneTenantEverything: alone, a tenant's updates share
// commits as they always did.
func TestAnIdleWriterGivesOneTenantEverything(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	ended := 0
	s := open(t, t.TempDir(), sqlite.Options{Metrics: registry, TurnEnded: func() { ended++ }})
	before, _ := commits(t, registry)
	ran := inOrder(t, s, func(o *order) { o.put(tenantA, 200, 1) })
	after, _ := commits(t, registry)
	if len(ran) != 200 || after-before != 2 || ended != 0 {
		t.Errorf("%d updates took %d commits, and %d turns were ended, want 200 in the first and one more, and none", len(ran), after-before, ended)
	}
}

// TestSmallUpdatesDoNotShareACommitWithALongOne: an update is answered after its
// commit, so one that comes before a long one of another tenant is committed
// before that begins.
func TestSmallUpdatesDoNotShareACommitWithALongOne(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	s := open(t, t.TempDir(), sqlite.Options{Metrics: registry})
	before, _ := commits(t, registry)
	ran := inOrder(t, s, func(o *order) {
		o.put(tenantA, 3, 5000)
		o.put(tenantB, 2, 1)
	})
	after, _ := commits(t, registry)
	if want := []string{tenantA, tenantB, tenantB, tenantA, tenantA}; !slices.Equal(ran, want) {
		t.Errorf("updates ran in the order %v, want %v", ran, want)
	}
	// The one that goes first, a long one, both small ones, and two long ones.
	if n := after - before; n != 5 {
		t.Errorf("%d commits, want 5: the small updates share one with each other only", n)
	}
}

// inserting is an update that creates so many tokens, with an entry for each.
func inserting(ctx context.Context, tokens int) func(tx store.Tx) error {
	return func(tx store.Tx) error {
		for range tokens {
			tok := storetest.SomeToken()
			tok.Terms = [][]byte{[]byte("one " + tok.ID), []byte("two " + tok.ID)}
			if err := errors.Join(tx.InsertToken(ctx, tok), tx.AppendLog(ctx, storetest.SomeEntry(tok.ID))); err != nil {
				return err
			}
		}
		return nil
	}
}

// TestManyTokensTakeFewStatements: others wait for the update that creates them.
func TestManyTokensTakeFewStatements(t *testing.T) {
	s := open(t, t.TempDir(), sqlite.Options{})
	before := s.Changes()
	if err := s.Update(t.Context(), tenantA, inserting(t.Context(), 1000)); err != nil {
		t.Fatal(err)
	}
	// 5,000 rows, 32 at a time, and the counters.
	if n := s.Changes() - before; n > 250 {
		t.Errorf("1,000 tokens took %d statements, want at most 250", n)
	}
	err := s.View(t.Context(), tenantA, func(tx store.Tx) error {
		n, err := tx.CountTokens(t.Context(), store.TokenFilter{Groups: store.AllGroups()})
		if err == nil && n != 1000 {
			t.Errorf("%d tokens are stored, want 1000", n)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestRowsCountAsWorkOfAnUpdate: a tenant is charged for the rows that it
// inserts, also when few statements insert them.
func TestRowsCountAsWorkOfAnUpdate(t *testing.T) {
	s := open(t, t.TempDir(), sqlite.Options{})
	var first []string
	ran := inOrder(t, s, func(o *order) {
		for range 3 {
			o.add(tenantA, inserting(t.Context(), 1000))
		}
		o.put(tenantB, 100, 1)
	})
	for _, tenant := range ran[:slices.Index(ran, tenantB)+100] {
		if tenant == tenantA {
			first = append(first, tenant)
		}
	}
	if len(ran) != 103 || len(first) > 1 {
		t.Errorf("%d of three updates that insert 1,000 tokens ran before a hundred small ones, want one at most", len(first))
	}
}
