package failover_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

// TestNothingIsAcknowledgedThatTheStandbyLacks takes the standby away. Commits
// are then on the primary's disk and wait, and nobody may be told of them:
// whoever gives up waiting, or looks what became of them, must not take what is
// there for what is safe.
func TestNothingIsAcknowledgedThatTheStandbyLacks(t *testing.T) {
	if !every() {
		t.Skip("it waits for time-outs; KEEPTEST_ROUNDS=all runs it, and package postgres has a shorter one")
	}
	t.Parallel()
	p := newPair(t)
	w := newWorld(t, url("vault", p.lines[0], p.lines[1]), nil)
	create := func(id string) keeptest.Answer {
		return w.nodes[0].Call(t, http.MethodPost, "/tokens", w.private, fmt.Sprintf(`{"id":%q,"type":"token","data":"x"}`, id),
			api.Header(api.DefaultPrefix, api.IdempotencyKey), id)
	}
	if a := create("before"); a.Status != http.StatusCreated {
		t.Fatalf("a token with a standby = %s", a)
	}
	p.standby.Kill()
	began := time.Now()
	for n := range 2 { // the second time for what the first left behind
		if a := create("alone"); a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
			t.Errorf("try %d: a token that no standby has = %s", n, a)
		}
	}
	t.Logf("refused after %v", time.Since(began))
	p.primary.Kill()
	if err := p.standby.Restart(); err != nil {
		t.Fatal(err)
	}
	p.takeOver()
	w.wait("a token after the standby took over", func() bool { return create("alone").Status == http.StatusCreated })
	if got := ask(t, p.primary, "vault", "SELECT count(*) FROM tokenkeep.tokens WHERE id IN ('before', 'alone')"); got != "2" {
		t.Errorf("there are %s tokens, want 2", got)
	}
}
