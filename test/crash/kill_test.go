package crash_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// A server that runs code starts slowly: it is killed in a fifth of the rounds.
func TestWhatWasAnsweredIsThereWhateverIsKilled(t *testing.T) {
	const each = 20 // rounds on one store, so that stores stay small
	for _, world := range []struct {
		name            string
		rounds, servers int
		code            bool
		storeURL        func(testing.TB) string
	}{
		{"sqlite and code", storetest.Rounds(20, 100), 1, true, nil},
		{"sqlite", storetest.Rounds(80, 400), 1, false, nil},
		{"two and postgres", storetest.Rounds(10, 100), 2, false, pgtest.Database},
	} {
		t.Run(world.name, func(t *testing.T) {
			if world.name != "sqlite" {
				storetest.Long(t)
			}
			t.Parallel()
			for left := world.rounds; left > 0; left -= each {
				storeURL := ""
				if world.storeURL != nil {
					storeURL = world.storeURL(t)
				}
				newWorld(t, world.servers, storeURL, world.code).killed(min(left, each))
			}
		})
	}
}

// killed lets the actors act, kills a server under them and looks at what is
// there, so many times.
func (w *world) killed(rounds int) {
	w.t.Helper()
	const several = 5 // so many kills have met somebody, or there are more of them
	answered, unanswered := 0, 0
	w.since = time.Now().Add(-time.Minute)
	for round := 0; round < rounds || rounds >= several && unanswered == 0; round++ {
		begun := time.Now().Add(-time.Second)
		w.round(round)
		log := w.log(w.since)
		a, u := w.join(log)
		answered, unanswered = answered+a, unanswered+u
		w.verifyLog()
		for _, a := range w.actors {
			a.settleAll(log)
		}
		w.since = begun
		if w.t.Failed() {
			w.t.Fatalf("round %d of %d", round+1, rounds)
		}
	}
	w.checkStore()
	if storetest.All() { // it waits for leases of servers that were killed
		w.collectAll()
	}
	w.t.Logf("%d rounds, %d answers, %d requests without one", rounds, answered, unanswered)
}

// round lets all actors act until a server is killed, some time after half of
// them had an answer, and starts it again.
func (w *world) round(n int) {
	w.stop.Store(false)
	w.killing.Store(false)
	var answered atomic.Int64
	warm := make(chan struct{})
	var acting sync.WaitGroup
	for _, a := range w.actors {
		acting.Go(func() {
			a.act(a)
			if answered.Add(1) == int64(len(w.actors)/2) {
				close(warm)
			}
			for !w.stop.Load() && !a.stuck() {
				a.act(a)
			}
		})
	}
	<-warm
	waittest.Sometime(150 * time.Millisecond) // a kill at a random moment is the point
	p := w.farm.Processes[n%len(w.farm.Processes)]
	w.killing.Store(true)
	w.farm.Kill(p)
	w.stop.Store(true)
	w.farm.Start(p)
	acting.Wait() // who waited in the socket is answered by the new one
}

// stuck says that the last request was not answered.
func (a *actor) stuck() bool {
	return len(a.transcript) > 0 && !a.transcript[len(a.transcript)-1].answered
}

// join holds the transcripts against the log, and forgets them.
func (w *world) join(log map[string][]api.LogEntry) (answered, unanswered int) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.actors {
		for _, e := range a.transcript {
			found := e.matches(log[e.trace])
			switch {
			case e.done():
				answered++
				if found != len(e.logged) && !e.replayed {
					w.t.Errorf("%s was answered, and the log has %d of %v", e, found, e.logged)
				}
			case !e.answered:
				unanswered++
				if found != 0 && found != len(e.logged) {
					w.t.Errorf("%s was not answered, and the log has %d of %v", e, found, e.logged)
				}
			}
			if w.arrived[e.trace] && found != len(e.logged) {
				w.t.Errorf("%s left the vault, and the log has %d of %v", e, found, e.logged)
			}
		}
		a.transcript = nil
	}
	clear(w.arrived)
	return answered, unanswered
}

// settleAll finds out what became of what one actor was not told.
func (a *actor) settleAll(log map[string][]api.LogEntry) {
	a.w.t.Helper()
	for _, t := range append([]*thing(nil), a.things...) {
		a.settle(t, log)
	}
	a.settleKeys(log)
	for _, b := range a.batches {
		if asked := b.asked; asked != nil {
			b.asked = nil
			before := 0
			a.w.agree(log, func(log map[string][]api.LogEntry) error {
				logged := len(log[asked.trace])
				if before = a.total("/tokens?metadata.batch=" + b.name); before != 0 && before != 2 || (before == 2) != (logged == 3) {
					return fmt.Errorf("%s made %d of 2, and the log has %d of 3", asked, before, logged)
				}
				return nil
			})
			again := a.again(asked)
			if a.tokenized(b, again); again.replayed != (before == 2) {
				a.w.t.Errorf("%s made %d of 2, and was replayed: %v", asked, before, again.replayed)
			}
		}
		a.detokenize(b)
	}
	for _, s := range a.sessions {
		if asked := s.asked; asked != nil {
			s.asked = nil
			again := a.again(asked)
			a.sessionStep(s, again)
			a.w.agree(log, func(log map[string][]api.LogEntry) error {
				if again.replayed != (asked.matches(log[asked.trace]) == 1) {
					return fmt.Errorf("%s was replayed: %v, and the log has %v", asked, again.replayed, log[asked.trace])
				}
				return nil
			})
		}
		a.useSession(s)
	}
	if t := a.tenant; t != nil {
		if t.asked != nil {
			a.decide(t, log)
		}
		a.readTenant()
	}
}

// total tells how many a list counts.
func (a *actor) total(list string) int {
	a.w.t.Helper()
	e := a.must("GET", list, a.w.private, "", http.StatusOK)
	var page api.List[api.Token]
	if err := json.Unmarshal([]byte(e.answer), &page); err != nil {
		a.w.t.Fatal(err)
	}
	return int(page.Pagination.TotalItems)
}

// collectAll waits until every run that was accepted has a result.
func (w *world) collectAll() {
	w.t.Helper()
	for _, a := range w.actors {
		waittest.Until(w.t, "the results of runs that were accepted", func() bool {
			for id := range a.runs {
				a.collect(id)
			}
			return len(a.runs) == 0
		})
	}
}
