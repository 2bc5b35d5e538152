package audit

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Attempt says more of what a refused caller wanted than the denial does.
// Empty parts come from the permission that was missing.
type Attempt struct {
	EntityType string
	// EntityID is set only when the entity is known to exist: what else stands
	// where an id should be was brought by the caller, and may be anything.
	EntityID  string
	Operation Operation
}

// refusedTimeout bounds how long a refusal waits for its entry.
const refusedTimeout = 5 * time.Second

// Refused makes an entry for something that was denied: err holds an
// *access.Denial, other errors make none. It is called once for each request,
// where the answer is made. The entries of one application and all of its
// sessions are bounded, because anyone with a public key can make sessions; an
// entry that is left out, for that or because the tenant is gone, is counted. A
// failure to write is logged and changes nothing for the caller, who is refused
// anyway.
func (s *Service) Refused(ctx context.Context, c access.Caller, err error, a Attempt) {
	var denial *access.Denial
	if c.Tenant() == "" || !errors.As(err, &denial) {
		return
	}
	now := s.now()
	if !s.refused.allow(refusedCaller{c.Tenant(), c.Application()}, now) {
		s.refused.suppressed.Inc()
		return
	}
	entry := deniedEntry(c, now, denial.Permission(), a)
	// Whoever hangs up early is still logged.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refusedTimeout)
	defer cancel()
	err = s.store.Update(ctx, c.Tenant(), func(tx store.Tx) error { return tx.AppendLog(ctx, entry) })
	if errors.Is(err, store.ErrNoTenant) {
		s.refused.suppressed.Inc() // the tenant was deleted meanwhile: there is no log
		return
	}
	if err != nil {
		s.refused.failed.Inc()
		s.log.Error("a refused attempt could not be logged", "tenant", c.Tenant(), "error", err)
		return
	}
	s.refused.written.Inc()
}

// deniedEntry is the entry for a refused attempt: "Token read denied".
func deniedEntry(c access.Caller, now time.Time, p access.Permission, a Attempt) store.LogEntry {
	entity, op, word := wanted(p)
	if a.EntityType != "" {
		entity = a.EntityType
	}
	if a.Operation != "" {
		op, word = a.Operation, string(a.Operation)
	}
	id := a.EntityID
	if id == "" {
		id = Many
	}
	return entry(c, now, entity, id, op, outcomeDenied, nounOf(entity)+" "+word+" denied")
}

// wanted derives from a permission what the caller was after, and the word for
// it. Without a permission it was a key of the wrong type: the use of that key
// is what was denied.
func wanted(p access.Permission) (entity string, op Operation, word string) {
	if p == 0 {
		return Key, Use, string(Use)
	}
	entity, word = p.Entity(), p.Action()
	op = Operation(word)
	if p == access.ReportRead {
		entity = Tenant // reports are about the tenant
	}
	if p == access.TokenSearch {
		op = Read
	}
	return entity, op, word
}

// The bounds on entries of one caller, and on the callers that are remembered:
// of more than that, the one that was quiet longest starts anew.
const (
	refusedBurst   = 20
	refusedEvery   = 3 * time.Second
	refusedCallers = 4096
)

// refusedCaller is who shares a bound: an application with its sessions, or
// all the anonymous callers of a tenant.
type refusedCaller struct{ tenant, application string }

// refusals bounds the entries for refused attempts.
type refusals struct {
	written, suppressed, failed prometheus.Counter

	mu      sync.Mutex // guards all below
	buckets map[refusedCaller]*list.Element
	recent  list.List // of *refusedBucket, the last used first
}

type refusedBucket struct {
	caller  refusedCaller
	limiter *rate.Limiter
}

func newRefusals(r prometheus.Registerer) *refusals {
	total := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tokenkeep_audit_refused_attempts_total",
		Help: "Refused attempts of known callers, by what became of their log entry.",
	}, []string{"entry"})
	if r != nil {
		r.MustRegister(total)
	}
	return &refusals{
		written: total.WithLabelValues("written"), suppressed: total.WithLabelValues("suppressed"), failed: total.WithLabelValues("failed"),
		buckets: make(map[refusedCaller]*list.Element),
	}
}

// allow takes one entry from the caller's bucket.
func (r *refusals) allow(c refusedCaller, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.buckets[c]
	if e == nil {
		if len(r.buckets) >= refusedCallers {
			oldest := r.recent.Remove(r.recent.Back()).(*refusedBucket)
			delete(r.buckets, oldest.caller)
		}
		e = r.recent.PushFront(&refusedBucket{c, rate.NewLimiter(rate.Every(refusedEvery), refusedBurst)})
		r.buckets[c] = e
	}
	r.recent.MoveToFront(e)
	return e.Value.(*refusedBucket).limiter.AllowN(now, 1)
}
