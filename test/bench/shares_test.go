package bench_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

// attack is what one tenant does to take the server from the others. Its calls
// may be refused: what counts is what another tenant waits.
type attack struct {
	name        string
	code        bool // whether the server runs reactors
	connections int
	// prepare is called once, as the attacking tenant.
	prepare func(b *testing.B, p *place)
	// do is one call of the attacking tenant.
	do func(p *place, connection int, n int64)
	// use makes what the other tenant calls; it reads tokens otherwise.
	use func(p *place, b *testing.B) func(connection int, n int64) error
}

// attacks are measured one by one, each on a server of its own.
var attacks = []attack{
	{
		name: "expressions that grow", connections: 12,
		do: func(p *place, _ int, _ int64) {
			p.attempt("POST", "/tokens", p.revealing, `{"type":"token","data":"1","fingerprint_expression":"{{ data | pad_left: 999999 | replace: ' ', 'xxxxxxxx' | split: '' }}"}`)
		},
	},
	{
		name: "expressions of many steps", connections: 8,
		do: func(p *place, _ int, _ int64) {
			p.attempt("POST", "/tokens", p.revealing, `{"type":"token","data":"`+strings.Repeat("x", 20000)+`","mask":"`+strings.Repeat("{{ data | size }}", 75)+`"}`)
		},
	},
	{
		name: "reactors that call reactors", connections: 8, code: true,
		prepare: func(b *testing.B, p *place) {
			inner := p.reactor(b, `module.exports = async () => ({ raw: {} })`)
			p.attacking = p.reactor(b, `module.exports = async (req) => {
				await Promise.all(Array.from({ length: 24 }, () => req.bt.reactors.react('`+inner+`', { args: {} }).catch(() => {})));
				return { raw: {} };
			}`)
		},
		do: func(p *place, _ int, _ int64) {
			p.attempt("POST", "/reactors/"+p.attacking+"/react", p.revealing, `{"args":{}}`)
		},
		use: (*place).reacting,
	},
	{
		name: "slow asynchronous jobs", connections: 4, code: true,
		prepare: func(b *testing.B, p *place) {
			p.attacking = p.reactor(b, `module.exports = async () => { await new Promise((done) => setTimeout(done, 500)); return { raw: {} }; }`)
		},
		do: func(p *place, _ int, _ int64) {
			p.attempt("POST", "/reactors/"+p.attacking+"/react-async", p.revealing, `{"args":{}}`)
		},
		use: (*place).reacting,
	},
	{
		name: "usage reports with 3,000 containers", connections: 8,
		prepare: func(b *testing.B, p *place) {
			for from := 0; from < 3000; from += 500 {
				if _, err := p.ask("POST", "/tokenize", p.revealing, manyContainers(from, from+500), http.StatusOK); err != nil {
					b.Fatal(err)
				}
			}
		},
		do: func(p *place, _ int, _ int64) { p.attempt("GET", "/tenants/self/reports/usage", p.managing, "") },
	},
	{
		name: "lists with 3,000 containers by a key with rules", connections: 8,
		prepare: func(b *testing.B, p *place) {
			for from := 0; from < 3000; from += 500 {
				if _, err := p.ask("POST", "/tokenize", p.revealing, manyContainers(from, from+500), http.StatusOK); err != nil {
					b.Fatal(err)
				}
			}
		},
		do: func(p *place, _ int, _ int64) { p.attempt("GET", "/tokens?container=/c/*", p.revealing, "") },
	},
	{
		name: "creates in ever new containers", connections: 8,
		do: func(p *place, _ int, n int64) {
			p.attempt("POST", "/tokens", p.revealing, fmt.Sprintf(`{"type":"token","data":"x","containers":["/new/%d/"]}`, n))
		},
	},
	{
		name: "tokenizing 1,000 values at a time", connections: 8,
		do: func(p *place, _ int, _ int64) {
			p.attempt("POST", "/tokenize", p.revealing, "["+strings.TrimSuffix(strings.Repeat(`{"type":"token","data":"x"},`, 1000), ",")+"]")
		},
	},
}

// manyContainers is the body that creates a token in each of these containers.
func manyContainers(from, to int) string {
	var items []string
	for n := from; n < to; n++ {
		items = append(items, fmt.Sprintf(`{"type":"token","data":"value %d","containers":["/c/%d/"]}`, n, n))
	}
	return "[" + strings.Join(items, ",") + "]"
}

// attempt calls the API, whatever comes of it.
func (p *place) attempt(method, path, key, body string) {
	_, _ = p.ask(method, path, key, body, http.StatusOK)
}

// reactor makes one with the rights of the revealing application.
func (p *place) reactor(b *testing.B, code string) string {
	b.Helper()
	body, err := json.Marshal(map[string]any{"name": "shares", "code": code, "configuration": map[string]string{}, "application": map[string]string{"id": p.application}})
	if err != nil {
		b.Fatal(err)
	}
	text, err := p.ask("POST", "/reactors", p.managing, string(body), http.StatusCreated)
	return made(b, text, err)
}

// reading is a call that reads one of twenty tokens.
func (p *place) reading(b *testing.B) func(int, int64) error {
	ids := p.create(b, 20)
	return func(_ int, n int64) error {
		_, err := p.ask("GET", "/tokens/"+ids[n%int64(len(ids))], p.masking, "", http.StatusOK)
		return err
	}
}

// reacting is a call that runs a reactor.
func (p *place) reacting(b *testing.B) func(int, int64) error {
	id := p.reactor(b, `module.exports = async () => ({ raw: {} })`)
	return func(int, int64) error {
		_, err := p.ask("POST", "/reactors/"+id+"/react", p.revealing, `{"args":{}}`, http.StatusOK)
		return err
	}
}

// readers are the connections of the tenant that is measured.
const readers = 4

// BenchmarkFairShares reads tokens, or runs a reactor, as one tenant, alone and beside another that
// attacks, in turns. The p99 beside the attack is compared with the one alone.
func BenchmarkFairShares(b *testing.B) {
	for _, a := range attacks {
		b.Run(a.name, func(b *testing.B) {
			var flags []string
			if a.code {
				flags = []string{"--sandbox-level", "full", "--sandbox-runtime", runtimetest.Find(b).Folder}
			}
			p := serve(b, "", nil, flags...)
			attacker := *p // the same server
			attacker.populate(b)
			if a.prepare != nil {
				a.prepare(b, &attacker)
			}
			use := (*place).reading
			if a.use != nil {
				use = a.use
			}
			read := use(p, b)
			var alone, beside []time.Duration
			var calls atomic.Int64
			syscall.Sync()
			for b.Loop() {
				spin(b, readers, turn/3, read)
				for range turns {
					alone = append(alone, spin(b, readers, turn, read)...)
					stop := a.begin(&attacker, &calls)
					beside = append(beside, spin(b, readers, 2*turn, read)...)
					stop()
				}
			}
			if calls.Load() == 0 || len(alone) == 0 || len(beside) == 0 {
				b.Fatalf("%d calls of the attack, %d reads alone and %d beside it: nothing was measured", calls.Load(), len(alone), len(beside))
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(p99(beside)/p99(alone), "p99-ratio")
			atMost("p99 of a tenant's calls beside "+a.name, "alone", "µs", p99(beside), p99(alone), 5)
		})
	}
}

// begin attacks until the function that it returns is called. It returns when
// each connection has sent its first call.
func (a attack) begin(p *place, calls *atomic.Int64) (stop func()) {
	var working, begun sync.WaitGroup
	ended := make(chan struct{})
	begun.Add(a.connections)
	for c := range a.connections {
		working.Go(func() {
			begun.Done()
			for {
				select {
				case <-ended:
					return
				default:
					a.do(p, c, calls.Add(1))
				}
			}
		})
	}
	begun.Wait()
	return func() {
		close(ended)
		working.Wait()
	}
}

// p99 in microseconds.
func p99(times []time.Duration) float64 {
	slices.Sort(times)
	return float64(times[len(times)*99/100].Nanoseconds()) / 1000
}
