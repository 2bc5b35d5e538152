package failover_test

import (
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// faults are what happens to the line, one after the other, while clients call.
// A fault lasts until it has ended so many connections, met so many pieces and
// brought so many errors.
var faults = []struct {
	name   string
	fault  fault
	broken int // connections that it must have ended
	met    int // pieces that came late, were lost or cut, and connections that were turned away
	told   int // errors that clients must have been told
}{
	{name: "every piece comes late", fault: fault{delay: 10 * time.Millisecond}, met: 300},
	{name: "connections are cut in the middle", fault: fault{cut: 0.02}, broken: 10},
	{name: "connections are reset in the middle", fault: fault{cut: 0.02, reset: true}, broken: 10},
	{name: "answers to commits are lost", fault: fault{lost: 0.2}, broken: 10},
	{name: "answers to commits are lost, and all is late", fault: fault{lost: 0.2, reset: true, delay: 5 * time.Millisecond}, broken: 10},
	{name: "every answer to a commit is lost", fault: fault{lost: 1}, broken: 10},
	{name: "the database is not reached", fault: fault{refuse: true, cut: 1}, met: 20, told: 20},
	{name: "the line is silent", fault: fault{silent: true}, met: clients / 2},
}

func TestFaultsOnTheLineLoseNothing(t *testing.T) {
	storetest.CheckOnly(t)
	t.Parallel()
	cluster := pgtest.Start(t, pgtest.Options{})
	ask(t, cluster, "postgres", "CREATE DATABASE vault")
	l := newLine(t, cluster)
	w := newWorld(t, url("vault", l), nil)
	w.begin()
	rounds := 1
	if every() {
		rounds = 3
	}
	for range rounds {
		for _, f := range faults {
			w.served("before " + f.name)
			broken, met := l.count()
			errors := w.told()["503"]
			l.set(f.fault)
			lasted := w.wait(f.name, func() bool {
				b, m := l.count()
				return b >= broken+f.broken && m >= met+f.met && w.told()["503"] >= errors+f.told
			})
			l.set(fault{})
			ended := time.Now()
			took := w.served("after " + f.name)
			b, m := l.count()
			t.Logf("%s: lasted %v, ended %d connections, met %d pieces, %d errors; every client served %v later", f.name, lasted.Round(time.Millisecond), b-broken, m-met, w.told()["503"]-errors, took.Round(time.Millisecond))
			if every() && f.fault.silent {
				t.Logf("the last error came %v later", w.quiet(f.name, ended))
			}
		}
	}
	w.verify(url("vault", l), func(statement string) string { return ask(t, cluster, "vault", statement) })
	t.Logf("%d requests; errors %v", w.done(), w.told())
}
