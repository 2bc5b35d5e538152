package failover_test

import (
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// faults are what happens to the line, one after the other, while clients call.
// A fault lasts until it has ended so many connections, or for a while.
var faults = []struct {
	name   string
	fault  fault
	broken int           // connections that it must have ended
	lasts  time.Duration // at least
}{
	{name: "every piece comes late", fault: fault{delay: 10 * time.Millisecond}, lasts: 500 * time.Millisecond},
	{name: "connections are cut in the middle", fault: fault{cut: 0.02}, broken: 10},
	{name: "connections are reset in the middle", fault: fault{cut: 0.02, reset: true}, broken: 10},
	{name: "answers to commits are lost", fault: fault{lost: 0.2}, broken: 10},
	{name: "answers to commits are lost, and all is late", fault: fault{lost: 0.2, reset: true, delay: 5 * time.Millisecond}, broken: 10},
	{name: "every answer to a commit is lost", fault: fault{lost: 1}, broken: 10},
	{name: "the database is not reached", fault: fault{refuse: true, cut: 1}, lasts: 500 * time.Millisecond},
	{name: "the line is silent", fault: fault{silent: true}, lasts: time.Second},
}

func TestFaultsOnTheLineLoseNothing(t *testing.T) {
	storetest.Long(t)
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
			w.served("before "+f.name, soon)
			before, errors := l.count(), w.told()["503"]
			l.set(f.fault)
			began := time.Now()
			w.wait(f.name, patience, func() bool { return l.count() >= before+f.broken && time.Since(began) >= f.lasts })
			l.set(fault{})
			ended := time.Now()
			took := w.served("after "+f.name, soon)
			if every() && f.fault.silent {
				t.Logf("the last error came %v later", w.quiet(f.name, ended))
			}
			t.Logf("%s: lasted %v, ended %d connections, %d errors; every client served %v later", f.name, ended.Sub(began).Round(time.Millisecond), l.count()-before, w.told()["503"]-errors, took.Round(time.Millisecond))
		}
	}
	w.verify(url("vault", l), func(statement string) string { return ask(t, cluster, "vault", statement) })
	t.Logf("%d requests; errors %v", w.done(), w.told())
}
