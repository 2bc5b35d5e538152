// Package jobs does durable work: rows of the store that a node claims, does and
// removes.
//
// It promises that one node at a time holds a job, for as long as it renews its
// lease; that a node which has lost a job writes nothing about it any more; that
// each tenant gets its turn, however much work the others have; and that a job
// which fails again and again ends after its attempts. Work of an unknown kind
// is reported and stays in the store. The package never opens the contents of a
// job and knows nothing of its kinds: the packages that own them bring the rows.
package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

var (
	// ErrUnknownKind refuses a job whose kind has no row.
	ErrUnknownKind = errors.New("jobs: unknown kind")
	// ErrFull refuses a job of a tenant that has Kind.Queued of them already.
	ErrFull = errors.New("jobs: the tenant has as many jobs of this kind as it may have")
	// ErrLost says that another node has taken a job over, or that the job is gone.
	ErrLost = errors.New("jobs: the job is no longer held by this node")
)

// Options are the settings of a Queue. The zero Options are good ones.
type Options struct {
	Now     func() time.Time // default time.Now
	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

// Queue is the durable work of a store, as one node sees it. It knows no kind
// until SetKinds was called. Its methods are safe for concurrent use.
type Queue struct {
	store store.Store
	now   func() time.Time
	log   *slog.Logger
	woken chan struct{} // by a job that is due at once
	kinds []*kind

	lost, givenUp *prometheus.CounterVec
	unknown       prometheus.Gauge

	mu       sync.Mutex // guards what follows
	looked   time.Time  // when unknown kinds were looked for
	reported []string   // the unknown kinds of that time
}

// New returns a queue over a store.
func New(s store.Store, o Options) *Queue {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	q := &Queue{
		store: s, now: o.Now, log: o.Logger, woken: make(chan struct{}, 1),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tokenkeep_jobs_lost_total", Help: "Jobs that another node took over while this one was at work on them.",
		}, []string{"kind"}),
		givenUp: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tokenkeep_jobs_given_up_total", Help: "Jobs that ended because all their attempts had failed.",
		}, []string{"kind"}),
		unknown: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tokenkeep_jobs_unknown_kinds", Help: "Kinds of jobs in the store that this release does not know, and so leaves there.",
		}),
	}
	if o.Metrics != nil {
		o.Metrics.MustRegister(q.lost, q.givenUp, q.unknown)
	}
	return q
}

// SetKinds gives the queue its rows, once, before it is used: handlers insert
// jobs themselves, so the queue exists before they do. A row that cannot work is
// a mistake of the program, and panics.
func (q *Queue) SetKinds(rows ...Kind) {
	for _, row := range rows {
		if err := row.check(); err != nil {
			panic(err)
		}
		if q.kind(row.Name) != nil {
			panic("jobs: two rows for kind " + row.Name)
		}
		q.lost.WithLabelValues(row.Name)
		q.givenUp.WithLabelValues(row.Name)
		q.kinds = append(q.kinds, &kind{Kind: row, turns: newTurns(row)})
	}
}

// kind is a row with what runs of it on this node.
type kind struct {
	Kind
	turns *turns
}

func (q *Queue) kind(name string) *kind {
	if i := slices.IndexFunc(q.kinds, func(k *kind) bool { return k.Name == name }); i >= 0 {
		return q.kinds[i]
	}
	return nil
}

// Record returns a job that is due at once, for its owner to seal something
// into and to insert.
func (q *Queue) Record(name, id string) store.Parcel {
	now, life := q.now(), time.Duration(0)
	if k := q.kind(name); k != nil {
		life = k.Life
	}
	return store.Parcel{Kind: name, ID: id, CreatedAt: store.At(now), DueAt: store.At(now), ExpiresAt: store.At(now.Add(life)), Version: 1}
}

// Insert adds a job, in a transaction of the caller. ErrUnknownKind when its
// kind has no row.
func (q *Queue) Insert(ctx context.Context, tx store.Tx, p store.Parcel) error {
	if q.kind(p.Kind) == nil {
		return ErrUnknownKind
	}
	if err := tx.InsertParcel(ctx, p); err != nil {
		return fmt.Errorf("insert a job: %w", err)
	}
	return nil
}

// Wake has the node look for work at once. It is called when the transaction of
// an Insert is committed; work is found a second later without it.
func (q *Queue) Wake() {
	select {
	case q.woken <- struct{}{}:
	default: // somebody is about to look anyway
	}
}

// Room returns ErrFull when a tenant has Kind.Queued jobs of a kind, waiting or
// in work. It reads no more rows than that. Callers that look at the same time
// may exceed the limit by their number.
func (q *Queue) Room(ctx context.Context, tenant, name string) error {
	k := q.kind(name)
	if k == nil {
		return ErrUnknownKind
	}
	if k.Queued == 0 {
		return nil
	}
	return q.store.View(ctx, tenant, func(tx store.Tx) error {
		most := int64(k.Queued)
		n, err := tx.CountParcels(ctx, store.ParcelFilter{Kind: name, Most: most})
		if err != nil {
			return fmt.Errorf("count jobs: %w", err)
		}
		if n >= most {
			return ErrFull
		}
		return nil
	})
}
