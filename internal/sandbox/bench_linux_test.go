package sandbox_test

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/sandbox"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// handler does what programs do: a Luhn check, JSON, and a keyed hash.
const handler = `const { createHmac } = require('crypto');
module.exports = async ({ args }) => {
	let sum = 0;
	for (let i = args.number.length - 1, twice = false; i >= 0; i--, twice = !twice) {
		let n = args.number.charCodeAt(i) - 48;
		if (twice) { n *= 2; if (n > 9) n -= 9; }
		sum += n;
	}
	const signature = createHmac('sha256', 'key').update(JSON.stringify(args)).digest('hex');
	return { raw: { valid: sum % 10 === 0, signature } };
}`

func benchCall(b testing.TB, s *sandbox.Sandbox, p sandbox.Program) {
	out, err := s.Run(b.Context(), p, sandbox.Call{Entry: "main", Input: input(map[string]any{"number": "4242424242424242", "amount": 1999}), Timeout: patience})
	if err != nil || out.Thrown != nil {
		b.Fatalf("Run: %v, %+v", err, out.Thrown)
	}
}

// alone is what the handler takes in the engine, without a call from outside:
// the limit of what a warm call can reach.
func alone(b *testing.B, s *sandbox.Sandbox) {
	code := handler + `
const own = module.exports;
module.exports = async () => {
	const text = JSON.stringify({ args: { number: '4242424242424242', amount: 1999 } });
	const took = [];
	for (let i = 0; i < 7000; i++) {
		const begun = process.hrtime.bigint();
		JSON.stringify(await own(JSON.parse(text)));
		if (i >= 2000) took.push(Number(process.hrtime.bigint() - begun));
	}
	return took.sort((a, b) => a - b)[took.length >> 1] / 1000;
}`
	us, err := strconv.ParseFloat(value(b, s, program("t", "alone", "1", code), nil), 64)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(us, "alone-p50-µs")
}

// report gives the middle and the slow end of what was measured.
func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	b.ReportMetric(us(took[len(took)/2]), "p50-µs")
	b.ReportMetric(us(took[len(took)*99/100]), "p99-µs")
}

func modes(b *testing.B, f func(b *testing.B, jit bool)) {
	b.Run("hardened", func(b *testing.B) { f(b, false) })
	b.Run("jit", func(b *testing.B) { f(b, true) })
}

// BenchmarkWarm calls a program whose process is there.
func BenchmarkWarm(b *testing.B) {
	modes(b, func(b *testing.B, jit bool) {
		s := open(b, func(o *sandbox.Settings) { o.JIT = jit; o.MaxCalls = 1 << 30 })
		p := program("t", "x", "1", handler)
		for range 2000 {
			benchCall(b, s, p)
		}
		took := make([]time.Duration, 0, 5000*b.N)
		b.ResetTimer()
		for range 5000 * b.N {
			begun := time.Now()
			benchCall(b, s, p)
			took = append(took, time.Since(begun))
		}
		report(b, took)
		b.StopTimer()
		alone(b, s)
	})
}

// BenchmarkFirst calls programs that have no process yet, with a blank one ready.
func BenchmarkFirst(b *testing.B) {
	modes(b, func(b *testing.B, jit bool) {
		s := open(b, func(o *sandbox.Settings) { o.JIT = jit; o.Blank = 2; o.Global = 20 })
		took := make([]time.Duration, 0, 50*b.N)
		b.ResetTimer()
		for i := range 50 * b.N {
			b.StopTimer()
			waittest.Until(b, "blank processes are ready", func() bool { blank, _, _ := s.PIDs(); return len(blank) == 2 })
			b.StartTimer()
			begun := time.Now()
			benchCall(b, s, program("t", fmt.Sprint(i), "1", handler))
			took = append(took, time.Since(begun))
		}
		report(b, took)
	})
}

// BenchmarkThroughput calls programs from twice as many callers as there are
// cores, a program each.
func BenchmarkThroughput(b *testing.B) {
	modes(b, func(b *testing.B, jit bool) {
		s := open(b, func(o *sandbox.Settings) { o.JIT = jit; o.MaxCalls = 1 << 30 })
		callers := 2 * runtime.NumCPU()
		for i := range callers {
			for range 500 {
				benchCall(b, s, program("t", fmt.Sprint(i), "1", handler))
			}
		}
		var left atomic.Int64
		left.Store(int64(20000 * b.N))
		b.ResetTimer()
		begun := time.Now()
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				p := program("t", fmt.Sprint(i), "1", handler)
				for left.Add(-1) >= 0 {
					benchCall(b, s, p)
				}
			})
		}
		all.Wait()
		b.ReportMetric(float64(20000*b.N)/time.Since(begun).Seconds(), "runs/s")
	})
}

// BenchmarkPerInvocation takes a fresh process for each call.
func BenchmarkPerInvocation(b *testing.B) {
	modes(b, func(b *testing.B, jit bool) {
		s := open(b, func(o *sandbox.Settings) { o.JIT = jit; o.PerInvocation = true })
		b.ResetTimer()
		begun := time.Now()
		for range 50 * b.N {
			benchCall(b, s, program("t", "x", "1", handler))
		}
		b.ReportMetric(float64(50*b.N)/time.Since(begun).Seconds(), "runs/s")
	})
}
