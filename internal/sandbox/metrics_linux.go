package sandbox

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count what happened, never whose code it was.
type metrics struct {
	runs    *prometheus.CounterVec
	seconds prometheus.Histogram
}

var outcomes = map[Reason]string{
	Refused: "refused", TimedOut: "timed_out", OutOfMemory: "out_of_memory", Exited: "exited", DidNotSettle: "did_not_settle",
	NoFunction: "no_function", BadResult: "bad_result", TooLarge: "too_large", Broke: "broke",
}

func newMetrics(s *Sandbox, r prometheus.Registerer) *metrics {
	m := &metrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tokenkeep_sandbox_runs_total", Help: "Runs of tenants' code, by what came of them.",
		}, []string{"outcome"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tokenkeep_sandbox_run_seconds", Help: "How long runs of tenants' code took.",
			Buckets: []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5, 10, 60},
		}),
	}
	if r == nil {
		return m
	}
	r.MustRegister(m.runs, m.seconds)
	for state, count := range map[string]func() int{
		"blank": func() int { return len(s.pool.blank) },
		"idle":  func() int { return len(s.pool.idle) },
		"busy":  func() int { return len(s.pool.busy) },
	} {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tokenkeep_sandbox_processes", Help: "Processes for tenants' code, by state.",
			ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 {
			s.pool.mu.Lock()
			defer s.pool.mu.Unlock()
			return float64(count())
		}))
	}
	return m
}

func (m *metrics) ran(out Outcome, err error) {
	outcome := "returned"
	var f *Failure
	switch {
	case errors.As(err, &f):
		outcome = outcomes[f.Reason]
	case err != nil:
		outcome = "cancelled"
	case out.Thrown != nil:
		outcome = "threw"
	}
	m.runs.WithLabelValues(outcome).Inc()
	m.seconds.Observe(out.Took.Seconds())
}
