package postgres

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	groupSize   prometheus.Histogram
	groupsSplit prometheus.Counter
	retries     prometheus.Counter
	outcomes    prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		groupSize: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tokenkeep_store_commit_updates", Help: "Updates that shared one commit.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256},
		}),
		groupsSplit: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tokenkeep_store_commits_split_total", Help: "Shared commits that failed and were tried again one by one.",
		}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tokenkeep_store_retries_total", Help: "Updates that were run again after a conflict or a lost connection.",
		}),
		outcomes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tokenkeep_store_unanswered_commits_total", Help: "Commits whose outcome had to be found out because the connection was lost.",
		}),
	}
	if r != nil {
		r.MustRegister(m.groupSize, m.groupsSplit, m.retries, m.outcomes)
	}
	return m
}
