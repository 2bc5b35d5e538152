package failover_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// pair is a primary and the standby that its commits wait for.
type pair struct {
	t                *testing.T
	primary, standby *pgtest.Cluster
	lines            [2]*line // lines[0] leads to one of them, lines[1] to the other
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t, primary: pgtest.Start(t, pgtest.Options{})}
	p.query("CREATE DATABASE vault")
	p.lines[0] = newLine(t, p.primary)
	p.follow()
	p.lines[1] = newLine(t, p.standby)
	return p
}

// query asks the primary.
func (p *pair) query(statement string) string { return ask(p.t, p.primary, "postgres", statement) }

// ask runs a statement as the superuser and returns what it printed.
func ask(t *testing.T, c *pgtest.Cluster, database, statement string) string {
	t.Helper()
	out, err := c.Command("psql", database, "-v", "ON_ERROR_STOP=1", "-qAtc", statement).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", statement, err, out)
	}
	return strings.TrimSpace(string(out))
}

// follow makes a standby of the primary, and commits wait for it from when it
// has caught up.
func (p *pair) follow() {
	p.t.Helper()
	p.standby = p.primary.Standby(p.t)
	p.until("async")
	p.query("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
	p.query("SELECT pg_reload_conf()")
	p.until("sync")
}

// until waits until the standby follows, in that state.
func (p *pair) until(state string) {
	p.t.Helper()
	waittest.Until(p.t, "a standby that is "+state, func() bool {
		return p.query("SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'") == state
	})
}

// takeOver makes the standby the primary. It has no standby of its own yet, so
// its commits must not wait for one.
func (p *pair) takeOver() {
	p.t.Helper()
	ask(p.t, p.standby, "postgres", "ALTER SYSTEM RESET synchronous_standby_names")
	ask(p.t, p.standby, "postgres", "SELECT pg_reload_conf()")
	if err := p.standby.Promote(); err != nil {
		p.t.Fatal(err)
	}
	p.primary, p.standby = p.standby, nil
}

// endings are how primaries end, one in each round.
var endings = []struct {
	name string
	end  func(p *pair, l *line)
}{
	{"it is killed", func(p *pair, _ *line) { p.primary.Kill() }},
	{"its machine goes silent", func(p *pair, l *line) { l.set(fault{silent: true}); p.primary.Kill() }},
	{"it is stopped at once", func(p *pair, _ *line) { p.primary.Quit() }},
	{"it lives on, without its standby", func(*pair, *line) {}},
	{"it is killed again", func(p *pair, _ *line) { p.primary.Kill() }},
}

// TestFailoversLoseNothing switches to the standby and makes a new one, again
// and again, while clients call.
func TestFailoversLoseNothing(t *testing.T) {
	storetest.CheckOnly(t)
	t.Parallel()
	p := newPair(t)
	w := newWorld(t, url("vault", p.lines[0], p.lines[1]), nil)
	w.begin()
	rounds := 1
	if every() {
		rounds = len(endings)
	}
	for round, e := range endings[:rounds] {
		w.served("before " + e.name)
		gone, line, errors := p.primary, p.lines[round%2], w.told()
		began := time.Now()
		e.end(p, line)
		p.takeOver()
		promoted := time.Now()
		served := w.served("after the standby took over")
		t.Logf("round %d, %s: taken over within %v, every client served %v later; errors before %v and then %v", round, e.name, promoted.Sub(began).Round(time.Millisecond), served.Round(time.Millisecond), errors, w.told())
		t.Logf("round %d: the last error came %v after the standby took over", round, w.quiet(e.name, promoted))
		gone.Kill()
		if round < rounds-1 {
			p.follow()
			line.set(fault{})
			line.lead(p.standby)
		}
	}
	w.verify(url("vault", p.lines[0], p.lines[1]), func(statement string) string { return ask(t, p.primary, "vault", statement) })
	t.Logf("%d requests", w.done())
}
