package egress

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics has no label that a tenant can shape: outcomes and reasons are words
// of this package.
type metrics struct {
	dials       *prometheus.CounterVec
	refused     *prometheus.CounterVec
	attempts    prometheus.Counter
	connections prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		dials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tokenkeep_egress_dials_total",
			Help: "Dials to destinations of tenants by outcome.",
		}, []string{"outcome"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tokenkeep_egress_refused_total",
			Help: "Destinations refused by the rules, at definition and at dial, by reason.",
		}, []string{"reason"}),
		attempts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tokenkeep_egress_connection_attempts_total",
			Help: "Connections begun to an address that passed every check; a dial may try several.",
		}),
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tokenkeep_egress_connections",
			Help: "Connections to destinations that are open now.",
		}),
	}
	if r != nil {
		r.MustRegister(m.dials, m.refused, m.attempts, m.connections)
	}
	return m
}

// refused counts an error that is a refusal, and returns it.
func (e *Egress) refused(err error) error {
	var r *refusal
	if errors.As(err, &r) {
		e.metrics.refused.WithLabelValues(r.reason).Inc()
	}
	return err
}

func (m *metrics) dialled(err error) {
	outcome := "given_up" // by the caller
	switch {
	case err == nil:
		outcome = "connected"
	case errors.Is(err, ErrForbidden):
		outcome = "refused"
	case errors.Is(err, ErrNoSuchHost):
		outcome = "no_such_host"
	case errors.Is(err, ErrConnectTimeout):
		outcome = "timeout"
	case errors.Is(err, ErrUnreachable):
		outcome = "unreachable"
	}
	m.dials.WithLabelValues(outcome).Inc()
}
