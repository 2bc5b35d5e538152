package bench_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// attack is what one tenant does to take the server from the others. Its calls
// may be refused: what counts is what another tenant waits.
type attack struct {
	name        string
	flags       []string // of the server
	connections int
	// prepare is called once, as the attacking tenant.
	prepare func(b *testing.B, p *place)
	// do is one call of the attacking tenant.
	do func(p *place, connection int, n int64)
}

// attacks are measured one by one, each on a server of its own.
var attacks = []attack{
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

// readers are the connections of the tenant that is measured.
const readers = 4

// BenchmarkFairShares reads tokens as one tenant, alone and beside another that
// attacks, in turns. The p99 beside the attack is compared with the one alone.
func BenchmarkFairShares(b *testing.B) {
	for _, a := range attacks {
		b.Run(a.name, func(b *testing.B) {
			p := serve(b, "", nil, a.flags...)
			ids := p.create(b, 20)
			attacker := *p // the same server
			attacker.populate(b)
			if a.prepare != nil {
				a.prepare(b, &attacker)
			}
			read := func(_ int, n int64) error {
				_, err := p.ask("GET", "/tokens/"+ids[n%int64(len(ids))], p.masking, "", http.StatusOK)
				return err
			}
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
			atMost("p99 of a tenant's reads beside "+a.name, "alone", "µs", p99(beside), p99(alone), 5)
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
