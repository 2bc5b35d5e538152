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

// refusedTimeout bounds how long a refusal waits for its entry.
const refusedTimeout = 5 * time.Second

// Refused logs something that was denied: err holds an *access.Denial, other
// errors make no entry. It is called once for each request, before the response
// is written. The denial names the entities that it was about; when it names none, the
// one in the path of the call is looked up, and named if it exists. The look-up
// is part of the transaction that writes the entry and is made whether or not
// there is such an entity, so the caller cannot tell by the time it takes.
//
// The entries of one application and all of its sessions are bounded, because
// anyone with a public key can make sessions; an entry that is left out, for
// that or because the tenant is gone, is counted. A failure to write is logged
// and changes nothing for the caller, who is refused anyway.
func (s *Service) Refused(ctx context.Context, c access.Caller, err error, a Attempt) {
	var denial *access.Denial
	if c.Tenant() == "" || !errors.As(err, &denial) {
		return
	}
	now, entities := s.now(), denial.Entities()
	allowed := s.refused.allow(refusedCaller{c.Tenant(), c.Application()}, now, max(1, len(entities)))
	if allowed == 0 {
		return
	}
	// Whoever hangs up early is still logged.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refusedTimeout)
	defer cancel()
	err = s.store.Read(ctx, c.Tenant(), func(tx store.Tx) error {
		about := entities
		if len(about) == 0 {
			named, err := a.find(ctx, tx, denial.Permission(), now)
			if err != nil {
				return err
			}
			about = []access.Entity{named}
		}
		var entries []store.LogEntry
		for _, e := range about[:allowed] {
			entries = append(entries, deniedEntry(c, now, denial.Permission(), e, a))
		}
		return tx.AppendLog(ctx, entries...)
	})
	if errors.Is(err, store.ErrNoTenant) {
		s.refused.suppressed.Add(float64(allowed)) // the tenant was deleted meanwhile: there is no log
		return
	}
	if err != nil {
		s.refused.failed.Add(float64(allowed))
		s.log.Error("a refused attempt could not be logged", "tenant", c.Tenant(), "error", err)
		return
	}
	s.refused.written.Add(float64(allowed))
}

// deniedEntry is the entry for a refused attempt: "Token read denied". Parts of
// the entity that are not known come from the permission.
func deniedEntry(c access.Caller, now time.Time, p access.Permission, e access.Entity, a Attempt) store.LogEntry {
	entity, op, word := wanted(p)
	if e.Type != "" {
		entity = e.Type
	}
	if a.Operation != "" && entity == a.Entity {
		op, word = a.Operation, string(a.Operation)
	}
	id := e.ID
	if id == "" {
		id = Many
		if entity == Tenant {
			id = c.Tenant()
		}
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
		Help: "Log entries for refused attempts of known callers, by what became of them.",
	}, []string{"entry"})
	if r != nil {
		r.MustRegister(total)
	}
	return &refusals{
		written: total.WithLabelValues("written"), suppressed: total.WithLabelValues("suppressed"), failed: total.WithLabelValues("failed"),
		buckets: make(map[refusedCaller]*list.Element),
	}
}

// allow takes up to n entries from the caller's bucket, and counts those that
// it does not have.
func (r *refusals) allow(c refusedCaller, now time.Time, n int) (allowed int) {
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
	for allowed < n && e.Value.(*refusedBucket).limiter.AllowN(now, 1) {
		allowed++
	}
	r.suppressed.Add(float64(n - allowed))
	return allowed
}
