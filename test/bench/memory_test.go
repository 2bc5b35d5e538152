package bench_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// memoryOf is the memory that a process has now (VmRSS) or had at most (VmHWM),
// in MiB.
func memoryOf(b *testing.B, pid int, field string) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				b.Fatal(err)
			}
			return float64(kib) / 1024
		}
	}
	b.Fatalf("no %s", field)
	return 0
}

// BenchmarkMemory starts a server on an empty folder, and then keeps it busy on
// many connections. Processes for code of tenants do not count.
func BenchmarkMemory(b *testing.B) {
	p := serve(b, "", nil)
	atMost("start to ready, empty folder", "aim", "s", p.ready.Seconds(), 1, 1)
	atMost("memory, idle", "aim", "MiB", memoryOf(b, p.pid(), "VmRSS"), 60, 1)
	ids := p.create(b, 200)
	measure(b, 128, p.creating(), side{"read", p.pid(), func(_ int, i int64) error {
		_, err := p.ask("GET", "/tokens/"+ids[i%200], p.revealing, "", 200)
		return err
	}})
	atMost("memory at most, 128 connections", "aim", "MiB", memoryOf(b, p.pid(), "VmHWM"), 300, 1)
}
