package sqlite

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	groupSize   prometheus.Histogram
	groupsSplit prometheus.Counter
	walBytes    prometheus.Gauge
	full        prometheus.Gauge
	checkpoints *prometheus.CounterVec
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
		walBytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tokenkeep_store_wal_bytes", Help: "Size of the write-ahead log after the last commit.",
		}),
		full: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tokenkeep_store_disk_full", Help: "1 while what makes the store larger is refused because the disk is full.",
		}),
		checkpoints: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tokenkeep_store_checkpoints_total", Help: "Checkpoints of the write-ahead log.",
		}, []string{"mode", "result"}),
	}
	if r != nil {
		r.MustRegister(m.groupSize, m.groupsSplit, m.walBytes, m.full, m.checkpoints)
	}
	return m
}
