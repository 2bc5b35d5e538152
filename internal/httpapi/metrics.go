package httpapi

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics has no label that a caller or a tenant can shape: routes are
// patterns of the table, methods are known ones, statuses are classes.
type metrics struct {
	requests    *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	inFlight    prometheus.Gauge
	panics      prometheus.Counter
	limited     *prometheus.CounterVec
	connections prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	if r == nil {
		r = prometheus.NewRegistry()
	}
	return &metrics{
		requests: register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tokenkeep_http_requests_total",
			Help: "Requests by route pattern, method and status class.",
		}, []string{"route", "method", "status"})),
		duration: register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "tokenkeep_http_request_duration_seconds",
			Help:    "Time from the request's headers to the end of its answer, by route pattern.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"route"})),
		inFlight: register(r, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tokenkeep_http_requests_in_flight",
			Help: "Requests that are being answered now.",
		})),
		panics: register(r, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tokenkeep_http_panics_total",
			Help: "Handlers that panicked.",
		})),
		limited: register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tokenkeep_http_rate_limited_total",
			Help: "Requests refused by a rate limit, by the limit.",
		}, []string{"limit"})),
		connections: register(r, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tokenkeep_http_connection_errors_total",
			Help: "Connections that failed before or between requests.",
		})),
	}
}

// register returns the collector that counts under its name: two handlers of
// one process, for two listeners, share theirs.
func register[C prometheus.Collector](r prometheus.Registerer, c C) C {
	err := r.Register(c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		return already.ExistingCollector.(C)
	}
	if err != nil {
		panic(err) // two meanings for one name: a mistake in the program
	}
	return c
}

// classes are the status labels, by the first digit.
var classes = [...]string{1: "1xx", 2: "2xx", 3: "3xx", 4: "4xx", 5: "5xx"}

func (m *metrics) observe(x *exchange, took time.Duration) {
	class := "none" // the connection was broken off, or the status is a tenant's own
	if i := x.status / 100; i > 0 && i < len(classes) {
		class = classes[i]
	}
	m.inFlight.Dec()
	m.requests.WithLabelValues(x.route, x.method, class).Inc()
	m.duration.WithLabelValues(x.route).Observe(took.Seconds())
}
