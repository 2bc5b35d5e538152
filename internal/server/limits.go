package server

import (
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/admission"
	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/limit"
	"github.com/tokenkeep/tokenkeep/internal/processor"
)

// mostTokens is how many tokens one request may access: a /tokenize of 1,000.
// A bucket that held fewer would refuse it for ever.
const mostTokens = 1000

// rateLimits returns the rate limits in force.
func rateLimits(c *config.Config) httpapi.RateLimits {
	requests, tokens, keyTokens := c.PublicRates()
	return httpapi.RateLimits{
		PerKey: httpapi.Rate{PerSecond: c.RateLimitPerKey, Burst: int(10*c.RateLimitPerKey + 1)}, PerAddress: httpapi.Rate{PerSecond: c.RateLimitPerAddress, Burst: int(10*c.RateLimitPerAddress + 1)},
		PublicRequests:  httpapi.Rate{PerSecond: requests, Burst: max(1, int(10*requests))},
		PublicTokens:    httpapi.Rate{PerSecond: tokens, Burst: max(mostTokens, int(20*tokens))},
		PublicKeyTokens: httpapi.Rate{PerSecond: keyTokens, Burst: max(mostTokens, int(10*keyTokens))},
	}
}

// The memory for requests where no setting gives it.
const (
	memoryPart   = 4 // one in four bytes of the machine
	leastMemory  = 64 << 20
	unknownTotal = 2 << 30 // what a machine is assumed to have that does not tell
)

func newMemory(c *config.Config, limits *limit.Recorder, metrics prometheus.Registerer) *admission.Pool {
	p := admission.NewPool(cmp.Or(c.RequestMemory, max(leastMemory, totalMemory("/")/memoryPart)), limits)
	metrics.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tokenkeep_request_memory_bytes", Help: "Memory that requests in flight hold, by estimate.",
		}, func() float64 { return float64(p.Used()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tokenkeep_request_memory_limit_bytes", Help: "Memory that requests in flight may hold together.",
		}, func() float64 { return float64(p.Size()) }),
	)
	return p
}

// newProcessors returns the turns that requests take at expressions.
func newProcessors(limits *limit.Recorder, metrics prometheus.Registerer) *processor.Turns {
	t := processor.New(processor.Default(), func() { limits.Reached(limit.Evaluations) })
	metrics.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tokenkeep_evaluations_running", Help: "Requests that evaluate expressions of many steps now.",
		}, func() float64 { return float64(t.Running()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tokenkeep_evaluations_waiting", Help: "Requests that wait for their turn to evaluate expressions.",
		}, func() float64 { return float64(t.Waiting()) }),
	)
	return t
}

// totalMemory returns the memory of the machine, or of the container where that
// has less, as the files below root tell.
func totalMemory(root string) int64 {
	total := int64(unknownTotal)
	meminfo, _ := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	for line := range strings.Lines(string(meminfo)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "MemTotal:" {
			if kib, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				total = kib << 10
			}
		}
	}
	for _, file := range []string{"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, _ := os.ReadFile(filepath.Join(root, file))
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
			total = min(total, n)
		}
	}
	return total
}
