package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const (
	// settling is how long the last write about a job may take when the server
	// stops meanwhile.
	settling = 5 * time.Second
	// tenantsAtOnce is how many tenants one look for due jobs goes through.
	tenantsAtOnce = 100
	// unknownEvery is how often unknown kinds are looked for.
	unknownEvery = time.Minute
)

// Work does what is due, on this node, until ctx ends. Then it takes nothing new
// and waits for what is under way, whose context is under.
func (q *Queue) Work(ctx, under context.Context) {
	var group sync.WaitGroup
	report := func(_ bool, err error) {
		if err != nil {
			q.log.Error("a job could not be done and will be tried again", "cause", err)
		}
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if err := q.begin(ctx, under, &group, report); err != nil && ctx.Err() == nil {
			q.log.Error("jobs could not be found and will be looked for again", "cause", err)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-q.woken:
		}
	}
	group.Wait()
}

// DoDue does everything that is due now, and what becomes due by that, and
// returns how much it did. Several nodes may do so at once: each job is done by
// the one that claims it.
func (q *Queue) DoDue(ctx context.Context) (done int, err error) {
	for {
		var (
			group sync.WaitGroup
			mu    sync.Mutex // guards the two below
			count int
			errs  []error
		)
		err := q.begin(ctx, ctx, &group, func(did bool, err error) {
			mu.Lock()
			defer mu.Unlock()
			if did {
				count++
			}
			errs = append(errs, err)
		})
		group.Wait()
		done += count
		if err = errors.Join(append(errs, err)...); err != nil || count == 0 || ctx.Err() != nil {
			return done, err
		}
	}
}

// begin looks for what is due and begins as much of it as there are turns for.
func (q *Queue) begin(ctx, under context.Context, group *sync.WaitGroup, report func(did bool, err error)) error {
	errs := []error{q.reportUnknown(ctx)}
	for _, k := range q.kinds {
		due, err := k.turns.next(ctx, q.store.AllTenants(), store.At(q.now()))
		errs = append(errs, err)
		for _, ref := range due {
			group.Go(func() {
				did, err := false, error(nil)
				if ctx.Err() == nil {
					did, err = q.do(under, k, ref)
				}
				k.turns.give(ref)
				report(did, err)
				if did {
					q.Wake() // there is a turn again
				}
			})
		}
	}
	return errors.Join(errs...)
}

// reportUnknown looks for jobs of kinds that have no row, once in a while. A
// newer release that shares the store, or used it before, has left them, and
// may do them yet.
func (q *Queue) reportUnknown(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	// A clock that was set back must not delay the next look.
	if since := q.now().Sub(q.looked); since >= 0 && since < unknownEvery {
		return nil
	}
	kinds, err := q.store.AllTenants().DueKinds(ctx)
	if err != nil {
		return fmt.Errorf("find kinds of jobs: %w", err)
	}
	kinds = slices.DeleteFunc(kinds, func(name string) bool { return q.kind(name) != nil })
	for _, name := range kinds {
		if !slices.Contains(q.reported, name) {
			q.log.Warn("the store has jobs of a kind that this release does not know: they are left alone", "kind", name)
		}
	}
	q.unknown.Set(float64(len(kinds)))
	q.looked, q.reported = q.now(), kinds
	return nil
}

// do makes an attempt at one job, if it can be claimed. A panic must not take the
// server along.
func (q *Queue) do(ctx context.Context, k *kind, ref store.ParcelRef) (did bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(k, p)
		}
	}()
	j, mine, err := q.claim(ctx, k, ref)
	if err != nil || !mine {
		return false, err
	}
	if k.Retry.exhausted(j.Attempts) {
		return true, q.settled(ctx, k, func(ctx context.Context) error { return q.giveUp(ctx, k, j) })
	}
	verdict, err := attempt(ctx, k, j)
	if errors.Is(err, ErrLost) {
		q.lost.WithLabelValues(k.Name).Inc()
		return true, nil
	}
	return true, errors.Join(err, q.settled(ctx, k, func(ctx context.Context) error { return q.settle(ctx, k, j, verdict) }))
}

// panicked is the error of a panic, whose value may hold data; its type does not.
func panicked(k *kind, value any) error {
	return fmt.Errorf("panic of type %T in a job of kind %s", value, k.Name)
}

// attempt runs the handler and renews the lease meanwhile. A panic is a failed
// attempt.
func attempt(ctx context.Context, k *kind, j Job) (v Verdict, err error) {
	defer func() {
		if p := recover(); p != nil {
			v, err = Failed, panicked(k, p)
		}
	}()
	if k.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, k.Timeout)
		defer cancel()
	}
	if k.Heartbeat > 0 {
		defer j.renewing(ctx, k)()
	}
	return k.Handle(ctx, j)
}

// settled runs the last write about a job, also when the server stops. What was
// lost meanwhile, or went with its tenant, needs none.
func (q *Queue) settled(ctx context.Context, k *kind, write func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settling)
	defer cancel()
	switch err := write(ctx); {
	case errors.Is(err, ErrLost):
		q.lost.WithLabelValues(k.Name).Inc()
		return nil
	case errors.Is(err, store.ErrNoTenant):
		return nil
	default:
		return err
	}
}

// settle does with a job what its handler has decided.
func (q *Queue) settle(ctx context.Context, k *kind, j Job, v Verdict) error {
	switch {
	case v.end == replaced:
		return nil
	case v.end == done:
		return j.remove(ctx)
	case v.end == givenBack: // as if nobody had claimed it
		return j.move(ctx, q.now().Add(v.wait), j.Attempts-1)
	case k.Retry.Attempts > 0 && j.Attempts >= k.Retry.Attempts:
		return q.giveUp(ctx, k, j)
	default:
		return j.move(ctx, q.now().Add(k.Retry.wait(j.Attempts)), j.Attempts)
	}
}

// giveUp ends a job that no attempt will do.
func (q *Queue) giveUp(ctx context.Context, k *kind, j Job) error {
	err := q.store.Update(ctx, j.Tenant, func(tx store.Tx) error { return j.Replace(ctx, tx) })
	if err != nil {
		return err
	}
	q.givenUp.WithLabelValues(k.Name).Inc()
	q.log.Warn("a job was given up", "kind", k.Name, "job", j.ID, "attempts", j.Attempts)
	if k.GaveUp != nil {
		k.GaveUp(j)
	}
	return nil
}
