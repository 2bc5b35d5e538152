package jobs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Job is a job that this node has claimed, as it was then: a job is claimed by
// moving the instant at which it is due, and whoever does so has it until then.
// The number of claims is the claim itself: the job is ours while the row counts
// as many. Other things of the row may change meanwhile, as when keys rotate, so
// every write reads it again.
type Job struct {
	store.Parcel
	Tenant string
	queue  *Queue
}

// claim takes a job for this node; false when it is gone or another has it.
func (q *Queue) claim(ctx context.Context, k *kind, ref store.ParcelRef) (j Job, mine bool, err error) {
	j = Job{Tenant: ref.Tenant, queue: q}
	err = q.store.Update(ctx, ref.Tenant, func(tx store.Tx) (err error) {
		mine = false // a transaction may run again
		now := q.now()
		p, err := tx.Parcel(ctx, ref.Kind, ref.ID)
		if errors.Is(err, store.ErrNotFound) || err == nil && (p.DueAt.IsZero() || p.DueAt > store.At(now) || p.ExpiresAt <= store.At(now)) {
			return nil
		}
		if err != nil {
			return err
		}
		p.DueAt, p.Attempts, p.Version = store.At(now.Add(k.Lease)), p.Attempts+1, p.Version+1
		j.Parcel, mine = p, true
		return tx.ReplaceParcel(ctx, p)
	})
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrNoTenant) {
		return j, false, nil
	}
	return j, mine, err
}

// held runs fn on the row as it is now; ErrLost when it is no longer ours.
func (j Job) held(ctx context.Context, tx store.Tx, fn func(store.Parcel) error) error {
	p, err := tx.Parcel(ctx, j.Kind, j.ID)
	if errors.Is(err, store.ErrNotFound) || err == nil && p.Attempts != j.Attempts {
		return ErrLost
	}
	if err != nil {
		return err
	}
	return fn(p)
}

// Replace ends a job in a transaction of its handler, with what follows from it:
// further jobs, or rows that wait to be read. ErrLost, which must end the
// transaction, when this node no longer holds the job.
func (j Job) Replace(ctx context.Context, tx store.Tx, next ...store.Parcel) error {
	return j.held(ctx, tx, func(p store.Parcel) error {
		if err := tx.DeleteParcel(ctx, p.Kind, p.ID); err != nil {
			return err
		}
		for _, n := range next {
			if !n.DueAt.IsZero() && j.queue.kind(n.Kind) == nil {
				return ErrUnknownKind
			}
			if err := tx.InsertParcel(ctx, n); err != nil {
				return err
			}
		}
		return nil
	})
}

// Rest undoes the claim of a job in a transaction of its handler and leaves the job
// without a time at which it is due: whoever knows what it waits for wakes it, with
// Due. The handler returns Replaced. ErrLost as with Replace.
func (j Job) Rest(ctx context.Context, tx store.Tx) error {
	return j.held(ctx, tx, func(p store.Parcel) error {
		p.DueAt, p.Attempts, p.Version = 0, p.Attempts-1, p.Version+1
		return tx.ReplaceParcel(ctx, p)
	})
}

// Due makes a job due now that Rest has left without a time.
func (q *Queue) Due(ctx context.Context, tx store.Tx, p store.Parcel) error {
	p.DueAt, p.Version = store.At(q.now()), p.Version+1
	return tx.ReplaceParcel(ctx, p)
}

// Change changes what a held job holds, such as how far it has come, in a
// transaction of its handler. ErrLost, which must end the transaction, when this
// node no longer holds the job.
func (j Job) Change(ctx context.Context, tx store.Tx, change func(*store.Parcel) error) error {
	return j.held(ctx, tx, func(p store.Parcel) error {
		if err := change(&p); err != nil {
			return err
		}
		p.Version++
		return tx.ReplaceParcel(ctx, p)
	})
}

// remove ends a job that is done. Another node that holds it by now need not do
// it again.
func (j Job) remove(ctx context.Context) error {
	err := j.queue.store.Update(ctx, j.Tenant, func(tx store.Tx) error { return tx.DeleteParcel(ctx, j.Kind, j.ID) })
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// move changes when a held job is due, and how many claims it counts.
func (j Job) move(ctx context.Context, due time.Time, claims int) error {
	return j.queue.store.Update(ctx, j.Tenant, func(tx store.Tx) error {
		return j.held(ctx, tx, func(p store.Parcel) error {
			p.DueAt, p.Attempts, p.Version = store.At(due), claims, p.Version+1
			return tx.ReplaceParcel(ctx, p)
		})
	})
}

// renewing moves the lease on until stop is called. A renewal that fails is
// tried again; if the lease ends meanwhile another node takes the job.
func (j Job) renewing(ctx context.Context, k *kind) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		for ticker := time.NewTicker(k.Heartbeat); ; {
			select {
			case <-ctx.Done():
				ticker.Stop()
				return
			case <-ticker.C:
			}
			_ = j.move(ctx, j.queue.now().Add(k.Lease), j.Attempts)
		}
	})
	return func() { cancel(); group.Wait() }
}
