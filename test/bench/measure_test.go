// Package bench_test measures a whole server from the outside, each figure
// beside its limit in the same run, and prints one table at the end.
//
// The server is the program that users run, in a process of its own on its
// default, durable settings; what it is compared with runs in processes of its
// own too. They all share the processors with the client.
package bench_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// side is one of the things that are compared: it does its work once, on the
// connection of that number.
type side struct {
	name string
	pid  int // whose processor time counts; 0 is this process
	do   func(connection int, n int64) error
}

// Turns are short and alternate, so that whatever else the machine does meets
// all sides alike.
const (
	turns = 6
	turn  = 300 * time.Millisecond
)

// figure is what a side came to.
type figure struct {
	rate   float64 // a second
	cpu    float64 // µs of processor time for one, of the side's process and its children
	median float64 // µs of waiting for one
}

// measure lets the sides do their work in turns, on so many connections.
func measure(b *testing.B, connections int, sides ...side) []figure {
	b.Helper()
	type sum struct {
		done  int64
		time  time.Duration
		cpu   time.Duration
		waits []time.Duration
	}
	sums := make([]sum, len(sides))
	syscall.Sync() // what others left to be written does not meet these
	for b.Loop() {
		for _, s := range sides { // connections, code and caches are warm
			spin(b, connections, turn/3, s.do)
		}
		for range turns {
			for i, s := range sides {
				began, used := time.Now(), cpuOf(b, s.pid)
				waits := spin(b, connections, turn, s.do)
				sums[i].time += time.Since(began)
				sums[i].cpu += cpuOf(b, s.pid) - used
				sums[i].done += int64(len(waits))
				sums[i].waits = append(sums[i].waits, waits...)
			}
		}
	}
	figures := make([]figure, len(sides))
	for i, s := range sums {
		if s.done == 0 {
			b.Fatalf("%s did nothing", sides[i].name)
		}
		figures[i] = figure{
			rate: float64(s.done) / s.time.Seconds(), cpu: float64(s.cpu.Microseconds()) / float64(s.done), median: median(s.waits),
		}
		b.ReportMetric(figures[i].rate, sides[i].name+"/s")
	}
	b.ReportMetric(0, "ns/op")
	return figures
}

// spin works on all connections for a while, and returns how long each piece took.
func spin(b *testing.B, connections int, long time.Duration, do func(connection int, n int64) error) (waits []time.Duration) {
	var n atomic.Int64
	var working sync.WaitGroup
	took := make([][]time.Duration, connections)
	start := time.Now()
	for c := range connections {
		working.Go(func() {
			for time.Since(start) < long {
				began := time.Now()
				if err := do(c, n.Add(1)); err != nil {
					b.Error(err)
					return
				}
				took[c] = append(took[c], time.Since(began))
			}
		})
	}
	working.Wait()
	return slices.Concat(took...)
}

// median in microseconds.
func median(times []time.Duration) float64 {
	slices.Sort(times)
	return float64(times[len(times)/2].Nanoseconds()) / 1000
}

// cpuOf is the processor time that a process has used, and its descendants
// that live.
func cpuOf(b *testing.B, pid int) (used time.Duration) {
	b.Helper()
	if pid == 0 {
		pid = os.Getpid()
		return ticks(b, stat(pid))
	}
	parents := map[int][]int{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range stats {
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if fields := stat(child); fields != nil {
			parent, _ := strconv.Atoi(fields[1])
			parents[parent] = append(parents[parent], child)
		}
	}
	var add func(pid int)
	add = func(pid int) {
		used += ticks(b, stat(pid))
		for _, child := range parents[pid] {
			add(child)
		}
	}
	add(pid)
	return used
}

// stat is what the kernel says of a process from its state on; nil when it has
// ended.
func stat(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(text), ") ") // behind a name that may hold anything
	return strings.Fields(rest)
}

func ticks(b *testing.B, fields []string) time.Duration {
	b.Helper()
	const user, system, tick = 11, 12, 10 * time.Millisecond
	if fields == nil {
		return 0
	}
	u, err := strconv.Atoi(fields[user])
	if err != nil {
		b.Fatal(err)
	}
	s, err := strconv.Atoi(fields[system])
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(u+s) * tick
}

// line is a line of the table.
type line struct {
	work, limit    string
	ours, beside   string
	ratio, aim     float64
	most           bool // the aim is the most that it may be
	cpu, besideCPU float64
}

var table struct {
	mu    sync.Mutex // guards lines
	lines []line
}

func note(l line) {
	table.mu.Lock()
	defer table.mu.Unlock()
	table.lines = append(table.lines, l)
}

// against notes rates a second beside their limit.
func against(work, limit string, ours, beside figure, aim float64) {
	note(line{
		work: work, limit: limit, ours: rounded(ours.rate) + "/s", beside: rounded(beside.rate) + "/s",
		ratio: ours.rate / beside.rate, aim: aim, cpu: ours.cpu, besideCPU: beside.cpu,
	})
}

// atMost notes a figure that must stay below another.
func atMost(work, limit, unit string, ours, beside, aim float64) {
	note(line{
		work: work, limit: limit, ours: rounded(ours) + " " + unit, beside: rounded(beside) + " " + unit,
		ratio: ours / beside, aim: aim, most: true,
	})
}

func rounded(v float64) string {
	switch {
	case v >= 1000:
		return strconv.Itoa(int(v/10) * 10)
	case v >= 10:
		return strconv.Itoa(int(v + 0.5))
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// print writes the table of what was measured.
func printTable() {
	if len(table.lines) == 0 {
		return
	}
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Printf("\n%d processors, load at the end %s\n\n", runtime.NumCPU(), strings.Join(strings.Fields(string(load))[:3], " "))
	fmt.Println("| work | ours | limit | | ratio | aim | | µs of processor: ours | limit |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	for _, l := range table.lines {
		met, sign := "met", "≥"
		if l.most {
			sign = "≤"
		}
		if l.most != (l.ratio <= l.aim) {
			met = "missed"
		}
		cpu, besideCPU := "", ""
		if l.cpu > 0 {
			cpu, besideCPU = rounded(l.cpu), rounded(l.besideCPU)
		}
		fmt.Printf("| %s | %s | %s | %s | %.2f | %s %g | %s | %s | %s |\n", l.work, l.ours, l.beside, l.limit, l.ratio, sign, l.aim, met, cpu, besideCPU)
	}
}
