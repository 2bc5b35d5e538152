package sandbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/sandbox"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// asked is what several calls asked for, in their order.
type asked []*sandbox.Asked

// ask asks for n turns of programs of a tenant, none of which may be refused.
func ask(t *testing.T, turns sandbox.Turns, tenant string, n int, above *sandbox.Asked) (list asked) {
	t.Helper()
	for range n {
		a, err := turns.Ask(tenant, fmt.Sprint(rand.Int()), above)
		if err != nil {
			t.Fatalf("tenant %s was refused a turn: %v", tenant, err)
		}
		list = append(list, a)
	}
	return list
}

// came returns those that have a turn.
func (list asked) came() (have asked) {
	for _, a := range list {
		if ok, _ := a.Came(); ok {
			have = append(have, a)
		}
	}
	return have
}

func TestAnIdleSandboxGivesOneTenantAllTurns(t *testing.T) {
	turns := sandbox.NewTurns(sandbox.Settings{Global: 24, PerProgram: 1000})
	if n := len(ask(t, turns, "a", 30, nil).came()); n != 24 || turns.Waiting() != 6 {
		t.Errorf("%d calls run and %d wait, want 24 and 6", n, turns.Waiting())
	}
}

func TestTheTenantWithTheFewestTurnsIsNext(t *testing.T) {
	reached := 0
	turns := sandbox.NewTurns(sandbox.Settings{Global: 24, Reached: func(b sandbox.Bound) {
		if b == sandbox.SharedTurns {
			reached++
		}
	}})
	attacker := ask(t, turns, "attacker", 80, nil)
	running := attacker.came()
	if len(running) != 24 {
		t.Fatalf("%d calls of the attacker run, want 24", len(running))
	}
	// The first call of another tenant does not wait at all.
	neighbour := ask(t, turns, "neighbour", 6, nil)
	if n := len(neighbour.came()); n != 1 {
		t.Fatalf("%d calls of the neighbour run at once, want its first", n)
	}
	// That one is beyond the 24, so the first turn that ends is not given out.
	for ended := range 6 {
		if n := len(neighbour.came()); n != max(1, ended) {
			t.Errorf("after %d turns of the attacker ended, %d calls of the neighbour run, want %d", ended, n, max(1, ended))
		}
		turns.Give(running[ended])
	}
	if n := len(neighbour.came()); n != 6 || len(attacker.came()) != 24 {
		t.Errorf("%d calls of the neighbour and %d more of the attacker had a turn, want 6 and 0", n, len(attacker.came())-24)
	}
	if reached == 0 {
		t.Error("nobody was told that the attacker reached its share")
	}
	// Nobody else waits: what ends goes to the attacker again.
	turns.Give(running[6])
	turns.Give(running[7])
	if n := len(attacker.came()); n != 26 {
		t.Errorf("%d calls of the attacker had a turn, want two more than 24", n)
	}
}

func TestATenantHasAQuarterOfTheTurnsWhileOthersWait(t *testing.T) {
	reached := 0
	turns := sandbox.NewTurns(sandbox.Settings{Global: 24, Queue: 1000, Reached: func(b sandbox.Bound) {
		if b == sandbox.SharedTurns {
			reached++
		}
	}})
	attacker := ask(t, turns, "attacker", 80, nil)
	running := attacker.came()
	neighbour := ask(t, turns, "neighbour", 40, nil)
	for _, a := range running {
		turns.Give(a)
	}
	// The calls of both wait, and each tenant has its share.
	if a, n := len(attacker.came())-len(running), len(neighbour.came()); a != 6 || n != 6 || reached == 0 {
		t.Errorf("%d calls of the attacker and %d of the neighbour run, and the share was reached %d times; want 6, 6 and some", a, n, reached)
	}
	// The others are free for whoever comes.
	if n := len(ask(t, turns, "third", 6, nil).came()); n != 6 {
		t.Errorf("%d of six calls of a third tenant run at once, want all", n)
	}
	// Only the attacker waits, once the neighbour has nothing left to run.
	given := 0
	for given < 40 {
		came := neighbour.came()
		if given == len(came) {
			t.Fatalf("%d calls of the neighbour had a turn, want 40", given)
		}
		turns.Give(came[given])
		given++
	}
	if a := len(attacker.came()) - len(running); a != 18 {
		t.Errorf("%d calls of the attacker run while nobody else waits, want 18: all but six", a)
	}
}

func TestTenantsThatWantMuchHaveAsManyTurns(t *testing.T) {
	turns := sandbox.NewTurns(sandbox.Settings{Global: 24, Queue: 1000})
	all := make(map[string]asked)
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		all[name] = ask(t, turns, name, 100, nil)
	}
	given := make(map[*sandbox.Asked]bool)
	for range 200 { // whose turn ends is chosen by chance
		name := names[rand.IntN(len(names))]
		for _, a := range all[name].came() {
			if !given[a] {
				given[a] = true
				turns.Give(a)
				break
			}
		}
	}
	for _, name := range names {
		n := 0
		for _, a := range all[name].came() {
			if !given[a] {
				n++
			}
		}
		if n < 5 || n > 7 {
			t.Errorf("tenant %s has %d of 24 turns, want about a quarter", name, n)
		}
	}
}

func TestAFullQueueRefusesTheTenantWithTheMostInIt(t *testing.T) {
	turns := sandbox.NewTurns(sandbox.Settings{Global: 4, Queue: 10})
	attacker := ask(t, turns, "attacker", 14, nil)
	if _, err := turns.Ask("attacker", "one more", nil); err != sandbox.ErrBusy {
		t.Errorf("the attacker's call beyond the queue: %v, want ErrBusy", err)
	}
	neighbour := ask(t, turns, "neighbour", 5, nil) // the first has a spare turn
	refused := 0
	for _, a := range attacker {
		if _, err := a.Came(); err == sandbox.ErrBusy {
			refused++
		}
	}
	for i, a := range neighbour {
		if _, err := a.Came(); err != nil {
			t.Errorf("call %d of the neighbour: %v", i, err)
		}
	}
	if refused != 4 || turns.Waiting() != 10 {
		t.Errorf("%d calls of the attacker were refused and %d wait, want 4 and 10", refused, turns.Waiting())
	}
}

// TestOneRequestFansOutSoFar: code calls code four times at once, at each level.
func TestOneRequestFansOutSoFar(t *testing.T) {
	turns := sandbox.NewTurns(sandbox.Settings{Global: 24, PerProgram: 1000})
	first := ask(t, turns, "began", 1, nil)[0]
	second := ask(t, turns, "began", 20, first)
	if n := len(second.came()); n != 4 {
		t.Fatalf("%d runs below the first, want 4", n)
	}
	var third asked
	for _, a := range second.came() {
		third = append(third, ask(t, turns, "other", 4, a)...)
	}
	if n := len(third.came()); n != 4 || turns.Running() != 9 {
		t.Errorf("%d runs below these and %d in all, want 4 and 9", n, turns.Running())
	}
	if name := third[0].Tenant(); name != "began" {
		t.Errorf("a run that code made counts for %s, want the tenant that began", name)
	}
	turns.Give(third.came()[0])
	if n := len(third.came()); n != 5 {
		t.Errorf("%d runs had a turn when one ended, want 5", n)
	}
}

// TestRunsNeverWaitForThoseAboveThem plays requests whose code calls code that
// calls code, until all of them have ended.
func TestRunsNeverWaitForThoseAboveThem(t *testing.T) {
	for _, global := range []int{1, 2, 3, 8, 24} {
		for _, tenants := range []int{1, 2, 7} {
			turns := sandbox.NewTurns(sandbox.Settings{Global: global, Queue: 100_000, PerProgram: 100_000})
			type run struct {
				*sandbox.Asked
				level   int
				above   *run
				waits   int // runs below that have not ended
				started bool
			}
			var all []*run
			add := func(tenant string, above *run) {
				r := &run{level: 1, above: above}
				var up *sandbox.Asked
				if above != nil {
					r.level, up = above.level+1, above.Asked
					above.waits++
				}
				r.Asked = ask(t, turns, tenant, 1, up)[0]
				all = append(all, r)
			}
			for i := range 40 {
				add(fmt.Sprint(i%tenants), nil)
			}
			extra := max(1, global/8)
			for ended := true; ended; {
				ended = false
				if n := turns.Running(); n > global+3*extra {
					t.Fatalf("%d runs at once with %d turns", n, global)
				}
				for i := 0; i < len(all); i++ {
					r := all[i]
					if ok, _ := r.Came(); !ok {
						continue
					}
					if !r.started {
						r.started, ended = true, true
						for range 3 * min(1, 3-r.level) {
							add("", r)
						}
					}
					if r.waits == 0 {
						turns.Give(r.Asked)
						if r.above != nil {
							r.above.waits--
						}
						all = append(all[:i], all[i+1:]...)
						i, ended = i-1, true
					}
				}
			}
			if len(all) > 0 {
				t.Errorf("with %d turns and %d tenants, %d runs never ended", global, tenants, len(all))
			}
		}
	}
}

// TestANewProcessGoesToTheTenantWithTheFewest: starting one takes a while, and
// calls that have a turn may have to wait for that.
func TestANewProcessGoesToTheTenantWithTheFewest(t *testing.T) {
	for name, c := range map[string]struct {
		busy, wanting []string
		want          int
	}{
		"all are one tenant's":                  {[]string{"a", "a"}, []string{"a", "a", "a"}, 0},
		"a tenant without any":                  {[]string{"a", "a"}, []string{"a", "a", "b", "a"}, 2},
		"a tenant with fewer":                   {[]string{"a", "b", "a"}, []string{"a", "a", "b", "b"}, 2},
		"tenants with as many, the first first": {[]string{"a", "b"}, []string{"b", "a"}, 0},
	} {
		if got := sandbox.NextWant(c.busy, c.wanting); got != c.want {
			t.Errorf("%s: number %d is next, want %d", name, got, c.want)
		}
	}
}

// crowd counts how many calls of the service are under way.
type crowd struct {
	mu       sync.Mutex
	now, top int
	open     chan struct{}
}

func (c *crowd) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	c.now++
	c.top = max(c.top, c.now)
	c.mu.Unlock()
	<-c.open
	c.mu.Lock()
	c.now--
	c.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// TestCallsOfTheServiceAreBoundedOutsideOfTheProcess: the code goes round the
// client of the runtime, which makes four calls at once, and opens as many
// connections as it likes.
func TestCallsOfTheServiceAreBoundedOutsideOfTheProcess(t *testing.T) {
	storetest.Long(t)
	c := &crowd{open: make(chan struct{})}
	var once sync.Once
	s := open(t, func(o *sandbox.Settings) {
		o.Dial = func(context.Context, string, string, int) (net.Conn, error) {
			once.Do(func() { close(c.open) }) // all connections are made
			return nil, net.ErrClosed
		}
	})
	const code = `const net = require('net');
module.exports = async () => {
  const calls = [];
  for (let i = 0; i < 12; i++) {
    const socket = net.connect({ path: process.env.TOKENKEEP_PARENT || '/run/parent' });
    await new Promise((made, failed) => { socket.on('connect', made); socket.on('error', failed); });
    socket.write('A'.repeat(17) + 'GET /tokens/x HTTP/1.1\r\nHost: vault\r\nConnection: close\r\n\r\n');
    calls.push(new Promise((done) => { let told = ''; socket.on('data', (more) => { told += more }); socket.on('close', () => done(told.slice(9, 12))); }));
  }
  await new Promise((done) => require('http').get('http://signal.example.com').on('error', done));
  return (await Promise.all(calls)).join(' ');
}`
	out, err := s.Run(t.Context(), program("t", "x", "1", code), sandbox.Call{Entry: "main", Input: input(nil), Client: c, Timeout: patience})
	if got := told(out, err); got != `value "204 204 204 204 204 204 204 204 204 204 204 204"` {
		t.Errorf("got %s, want twelve answers", got)
	}
	if c.top > 4 {
		t.Errorf("%d calls of the service were under way at once, want 4 at most", c.top)
	}
}
