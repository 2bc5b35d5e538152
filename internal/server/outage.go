package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// outage follows whether the KMS can be used.
type outage struct {
	now   func() time.Time
	log   *slog.Logger
	up    prometheus.Gauge
	calls *prometheus.CounterVec
	took  *prometheus.HistogramVec

	mu    sync.Mutex // guards what follows
	cause error      // nil while the KMS works
	since time.Time  // when it stopped working
	// excess is an ErrExcess of the last probe; nil when there was none.
	excess error
}

func newOutage(now func() time.Time, log *slog.Logger, metrics prometheus.Registerer) *outage {
	o := &outage{
		now: now, log: log,
		up: prometheus.NewGauge(prometheus.GaugeOpts{Name: "tokenkeep_kms_up", Help: "1 while the KMS that holds the key-encryption key can be used, 0 otherwise."}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tokenkeep_kms_calls_total", Help: "Calls of the KMS, by operation and result.",
		}, []string{"operation", "result"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tokenkeep_kms_call_seconds", Help: "How long calls of the KMS took.", Buckets: prometheus.ExponentialBuckets(0.001, 3, 9),
		}, []string{"operation"}),
	}
	o.up.Set(1)
	metrics.MustRegister(o.up, o.calls, o.took)
	return o
}

// result names how a call ended.
func result(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, keyring.ErrKEKRefused):
		return "refused"
	case errors.Is(err, keyring.ErrUnwrap):
		return "not_opened"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "abandoned"
	}
	return "unavailable"
}

// called counts a call and learns from it.
func (o *outage) called(operation string, err error, took time.Duration) {
	o.calls.WithLabelValues(operation, result(err)).Inc()
	o.took.WithLabelValues(operation).Observe(took.Seconds())
	if err == nil || keyring.IsKMSDown(err) {
		o.note(err)
	}
}

// note remembers whether the KMS works, and logs every change of that.
func (o *outage) note(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil && o.cause != nil:
		o.log.Info("the KMS can be used again", "outage_seconds", int(o.now().Sub(o.since).Seconds()))
		o.up.Set(1)
	case err != nil && o.cause == nil:
		o.log.Error("the KMS cannot be used: tenants whose keys are in memory are served, others are not", "error", err)
		o.up.Set(0)
		o.since = o.now()
	}
	o.cause = err
}

// lasted returns for how long the KMS could not be used; 0 while it works.
func (o *outage) lasted() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cause == nil {
		return 0
	}
	return o.now().Sub(o.since)
}

// trouble returns what an operator should know; "" when all is well.
func (o *outage) trouble() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.cause != nil:
		return o.cause.Error() + ", since " + o.since.UTC().Format(time.RFC3339)
	case o.excess != nil:
		return o.excess.Error()
	}
	return ""
}

// probed notes what a probe found.
func (o *outage) probed(err error) {
	excess := errors.Is(err, keyring.ErrExcess)
	if err == nil || excess {
		o.note(nil)
	} else if keyring.IsKMSDown(err) {
		o.note(err)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if excess && o.excess == nil {
		o.log.Warn("the credentials for the KMS allow more than they should", "error", err)
	}
	if o.excess = nil; excess {
		o.excess = err
	}
}

// ready reports whether requests can be served at all.
func (s *Server) ready(ctx context.Context) error {
	if err := s.store.Ready(ctx); err != nil {
		return err
	}
	if !s.ring.Proven() {
		return keyring.ErrKMSUnavailable
	}
	return nil
}

// proveKEK tries until the KMS has proved that it holds the key-encryption key
// of the store. It fails when the key is proved to be the wrong one.
func (s *Server) proveKEK(ctx context.Context) error {
	const first, last = time.Second, 30 * time.Second
	for wait := first; ; wait = min(2*wait, last) {
		err := s.ring.Prove(ctx)
		if err == nil {
			return s.watchKMS(ctx) // doctor need not wait for the first round of the chore
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the server is stopping
		}
		if !keyring.IsKMSDown(err) && !errors.Is(err, store.ErrUnavailable) {
			return err
		}
		s.outage.note(err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// watchKMS finds out whether the KMS can be used while nobody needs it, and
// forgets the keys in memory when it could not for too long.
func (s *Server) watchKMS(ctx context.Context) error {
	s.outage.probed(s.kms.Probe(ctx))
	if limit := s.config.KEKMaxOutage; limit > 0 && s.outage.lasted() > limit {
		s.log.Warn("the KMS could not be used for longer than kek.max_outage: no keys are left in memory")
		s.ring.ForgetAll()
	}
	return nil
}
