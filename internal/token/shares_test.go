package token_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/processor"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// held is a source of randomness for the ids of tokens: whoever draws from it
// stops there, in the middle of an evaluation, until it is opened.
type held struct {
	drawing atomic.Int64 // callers that are there
	open    chan struct{}
}

func (h *held) Read(p []byte) (int, error) {
	h.drawing.Add(1)
	<-h.open
	return rand.Read(p)
}

func TestOneTenantLeavesProcessorsToOthers(t *testing.T) {
	// Each does much, and then draws for the id of a token.
	for name, attack := range map[string]string{
		"expressions of many steps": `{"type":"token","data":"` + strings.Repeat("x", 20_000) + `","id":"` +
			strings.Repeat("{{ data | size | slice: 0, 0 }}", 20) + `{{ data | slice: 0, 20 | alias_preserve_length }}"}`,
		"a document of many tokens": `[` + strings.Repeat(`"x",`, 19) + `{"type":"token","data":"abcdefghijklmnopqrst","id":"{{ data | alias_preserve_length }}"}]`,
	} {
		t.Run(name, func(t *testing.T) { leavesProcessors(t, attack) })
	}
}

func leavesProcessors(t *testing.T, attack string) {
	const attacks, most = 12, 2
	w := newWorld(t)
	source := &held{open: make(chan struct{})}
	var reached atomic.Int64
	turns := processor.New(most, func() { reached.Add(1) })
	w.tokens = token.New(w.store, w.ring, token.Options{Now: w.clock.Now, Random: source, Processors: turns})
	attacker, body := w.revealing(), parse(t, attack)
	var attacking sync.WaitGroup
	for range attacks {
		attacking.Go(func() {
			if _, err := w.tokens.Tokenize(t.Context(), attacker, body); err != nil {
				t.Errorf("Tokenize = %s", says(err))
			}
		})
	}
	waittest.Until(t, "all attacks to work or to wait", func() bool { return source.drawing.Load()+int64(turns.Waiting()) == attacks })
	if n, running := source.drawing.Load(), turns.Running(); n != most || running != most {
		t.Errorf("%d attacks are under way with %d turns, want %d", n, running, most)
	}
	if reached.Load() == 0 {
		t.Error("the limit was never counted")
	}
	// Another tenant creates and reads ordinary tokens meanwhile.
	other := w.stranger()
	made := w.mustCreate(other, `{"type":"card","data":{"number":"`+visa+`"},"mask":{"n":"{{ data.number | last4 }}"},"search_indexes":["{{ data.number }}"]}`)
	if _, err := w.tokens.Get(t.Context(), other, made.ID); err != nil {
		t.Errorf("Get by the other tenant = %s", says(err))
	}
	close(source.open)
	attacking.Wait()
	if running, waiting := turns.Running(), turns.Waiting(); running != 0 || waiting != 0 {
		t.Errorf("at the end %d turns are taken and %d requests wait, want none", running, waiting)
	}
}

func TestListsOverManyContainersTakeTurns(t *testing.T) {
	const attacks, most = 3, 1 // fewer than the store has connections
	w := newWorld(t)
	s := &stopping{Store: w.store, open: make(chan struct{})}
	turns := processor.New(most, nil)
	w.tokens = token.New(s, w.ring, token.Options{Now: w.clock.Now, Processors: turns})
	// Callers with a rule for a container decide on every group.
	attacker := w.within("/c/")
	var body strings.Builder
	for n := range 200 {
		fmt.Fprintf(&body, `%c{"type":"token","data":"x","containers":["/c/%d/"]}`, "[,"[min(n, 1)], n)
	}
	if _, err := w.tokens.Tokenize(t.Context(), w.revealing(), parse(t, body.String()+"]")); err != nil {
		t.Fatal(says(err))
	}
	list := func(c access.Caller) {
		if _, _, err := w.tokens.List(t.Context(), c, token.Filter{Container: "/c/*"}, store.Page{Limit: 1}); err != nil {
			t.Errorf("List = %s", says(err))
		}
	}
	list(attacker) // from here on it is known that there are many
	s.stops.Store(true)
	var attacking sync.WaitGroup
	for range attacks {
		attacking.Go(func() { list(attacker) })
	}
	waittest.Until(t, "all attacks to read or to wait", func() bool { return s.viewing.Load()+int64(turns.Waiting()) == attacks })
	if n := s.viewing.Load(); n != most {
		t.Errorf("%d lists with many containers are under way, want %d", n, most)
	}
	list(w.stranger()) // of a tenant with few containers, which does not wait
	close(s.open)
	attacking.Wait()
}

// stopping is a store whose views of a tenant with many groups stop before they
// read these.
type stopping struct {
	store.Store
	stops   atomic.Bool
	viewing atomic.Int64
	open    chan struct{}
}

func (s *stopping) View(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	return s.Store.View(ctx, tenant, func(tx store.Tx) error { return fn(stoppingTx{tx, s}) })
}

type stoppingTx struct {
	store.Tx
	s *stopping
}

func (tx stoppingTx) TokenGroups(ctx context.Context) ([]store.TokenGroup, error) {
	groups, err := tx.Tx.TokenGroups(ctx)
	if tx.s.stops.Load() && len(groups) > 100 {
		tx.s.viewing.Add(1)
		<-tx.s.open
	}
	return groups, err
}
