package reactor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/script"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// A job or a delivery is claimed by moving the instant at which it wants
// attention: whoever does so has it until then, and moves the instant on while
// at work. When its node dies, another finds it due.
const (
	lease   = 15 * time.Second
	renewal = 5 * time.Second
	// settling is how long the last write about a job may take when the server
	// stops meanwhile.
	settling = 5 * time.Second
	// tenantsAtOnce is how many tenants one look for due jobs goes through.
	tenantsAtOnce = 100
)

// What a node does at once: in all, for one tenant, and beyond that for tenants
// for which nothing is running.
const (
	runsAtOnce, runsOfATenant, spareRuns                   = 32, 32, 8
	deliveriesAtOnce, deliveriesOfATenant, spareDeliveries = 64, 32, 16
)

// errLost says that another node took a job over, or that it is gone.
var errLost = errors.New("the job is no longer held by this node")

// Work does what is due, on this node, until ctx ends, and keeps what runs
// printed. Then it takes nothing new and waits for what is under way, which
// ends with under at the latest: code that still runs then is cut off.
func (s *Service) Work(ctx, under context.Context) {
	var group sync.WaitGroup
	report := func(_ bool, err error) {
		if err != nil {
			s.options.Logger.Error("a job could not be done and will be tried again", "cause", err)
		}
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if err := s.begin(ctx, under, &group, report); err != nil && ctx.Err() == nil {
			s.options.Logger.Error("jobs could not be found and will be looked for again", "cause", err)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-s.woken:
		}
		if err := s.keepRuns(under); err != nil && under.Err() == nil {
			s.options.Logger.Error("what runs printed could not be kept", "cause", err)
		}
	}
	group.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(under), settling)
	defer cancel()
	if err := s.keepRuns(last); err != nil {
		s.options.Logger.Error("what runs printed could not be kept", "cause", err)
	}
}

// DoDue does everything that is due now, and what becomes due by that, and
// returns how much it did. Several nodes may do so at once: each job is done by
// the one that claims it.
func (s *Service) DoDue(ctx context.Context) (done int, err error) {
	for {
		var (
			group sync.WaitGroup
			mu    sync.Mutex // guards the two below
			count int
			errs  []error
		)
		err := s.begin(ctx, ctx, &group, func(did bool, err error) {
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
func (s *Service) begin(ctx, under context.Context, group *sync.WaitGroup, report func(did bool, err error)) error {
	var errs []error
	for _, turns := range []*turns{s.runs, s.deliveries} {
		due, err := turns.next(ctx, s.parts.Store.AllTenants(), store.At(s.options.Now()))
		errs = append(errs, err)
		for _, ref := range due {
			group.Go(func() {
				did, err := false, error(nil)
				if ctx.Err() == nil {
					did, err = s.doOne(under, ref)
				}
				turns.give(ref)
				report(did, err)
				if did {
					s.wake() // there is a turn again
				}
			})
		}
	}
	return errors.Join(errs...)
}

// doOne does one thing that is due, if it can be claimed. A panic must not take
// the server along; its value may hold data, its type does not.
func (s *Service) doOne(ctx context.Context, ref store.ParcelRef) (did bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic of type %T", p)
		}
	}()
	p, mine, err := s.claim(ctx, ref)
	if err != nil || !mine {
		return false, err
	}
	keys, err := s.parts.Ring.For(ctx, ref.Tenant)
	if errors.Is(err, keyring.ErrNoKeys) || errors.Is(err, store.ErrNoTenant) {
		return false, nil // the tenant is being deleted
	}
	if err != nil {
		return false, fmt.Errorf("get keys: %w", err)
	}
	j, err := s.open(ctx, keys, p)
	if err != nil {
		return false, err
	}
	defer clear(j.payload)
	h := hold{ref, p.Attempts}
	if ref.Kind == store.ParcelDelivery {
		err = s.deliver(ctx, keys, h, p, j)
	} else {
		err = s.runJob(ctx, h, p, j)
	}
	if errors.Is(err, errLost) {
		s.lost.Inc()
		err = nil
	}
	return true, err
}

// claim takes a job for this node; false when it is gone or another has it.
func (s *Service) claim(ctx context.Context, ref store.ParcelRef) (p store.Parcel, mine bool, err error) {
	err = s.parts.Store.Update(ctx, ref.Tenant, func(tx store.Tx) (err error) {
		mine = false // a transaction may run again
		now := s.options.Now()
		p, err = tx.Parcel(ctx, ref.Kind, ref.ID)
		if errors.Is(err, store.ErrNotFound) || err == nil && (p.DueAt.IsZero() || p.DueAt > store.At(now) || p.ExpiresAt <= store.At(now)) {
			return nil
		}
		if err != nil {
			return err
		}
		p.DueAt, p.Attempts, p.Version = store.At(now.Add(lease)), p.Attempts+1, p.Version+1
		mine = true
		return tx.ReplaceParcel(ctx, p)
	})
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return p, false, nil
	}
	return p, mine, err
}

// hold is a claim of this node: the row is ours while it counts this many
// claims. Other things of the row may change meanwhile, as when keys rotate, so
// every write reads it anew.
type hold struct {
	store.ParcelRef
	claim int
}

// in runs fn on the row as it is now; errLost when it is no longer ours.
func (h hold) in(ctx context.Context, tx store.Tx, fn func(store.Parcel) error) error {
	p, err := tx.Parcel(ctx, h.Kind, h.ID)
	if errors.Is(err, store.ErrNotFound) || err == nil && p.Attempts != h.claim {
		return errLost
	}
	if err != nil {
		return err
	}
	return fn(p)
}

// move changes when a held row wants attention, and how many claims it counts.
func (s *Service) move(ctx context.Context, h hold, due time.Time, claims int) error {
	return s.parts.Store.Update(ctx, h.Tenant, func(tx store.Tx) error {
		return h.in(ctx, tx, func(p store.Parcel) error {
			p.DueAt, p.Attempts, p.Version = store.At(due), claims, p.Version+1
			return tx.ReplaceParcel(ctx, p)
		})
	})
}

// giveBack undoes a claim: it is as if nobody had looked.
func (s *Service) giveBack(ctx context.Context, h hold, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settling)
	defer cancel()
	return s.move(ctx, h, s.options.Now().Add(wait), h.claim-1)
}

// renewing moves the lease on until stop is called. A renewal that fails is
// tried again; if the lease ends meanwhile another node takes the job.
func (s *Service) renewing(ctx context.Context, h hold) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		for ticker := time.NewTicker(renewal); ; {
			select {
			case <-ctx.Done():
				ticker.Stop()
				return
			case <-ticker.C:
			}
			_ = s.move(ctx, h, s.options.Now().Add(lease), h.claim)
		}
	})
	return func() { cancel(); group.Wait() }
}

// runJob runs the code of a job, once: a job that is found a second time was
// interrupted in the middle, and its code may have charged a card.
func (s *Service) runJob(ctx context.Context, h hold, p store.Parcel, j job) error {
	switch {
	case h.claim > 1:
		return s.finish(ctx, h, j, nil, s.problem(errInterrupted, j))
	case j.gone:
		return s.finish(ctx, h, j, nil, s.problem(errTooLate, j))
	}
	defer s.renewing(ctx, h)()
	epoch, err := s.runOnce(ctx, h, p, j)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errCancelled):
		return s.finish(ctx, h, j, nil, s.problem(errCancelled, j), audit.JobCancelled(j.requester(h.Tenant), s.options.Now(), p.Group))
	case errors.Is(err, script.ErrNotStarted):
		return s.giveBack(ctx, h, time.Second)
	case errors.Is(err, keyring.ErrGone):
		return s.finish(ctx, h, j, nil, s.problem(errTooLate, j))
	case isFault(err):
		return s.finish(ctx, h, j, epoch, s.problem(err, j))
	case ctx.Err() != nil: // the server stops
		return s.finish(ctx, h, j, nil, s.problem(errInterrupted, j))
	}
	return fmt.Errorf("run a job: %w", err)
}

// runOnce runs the code of a job with the rights of this moment, and puts what
// it returned in the job's place. epoch is the key under which words about the
// run belong.
func (s *Service) runOnce(ctx context.Context, h hold, p store.Parcel, j job) (epoch *keyring.EpochKey, err error) {
	r, err := readyFrom(j.payload)
	if err != nil {
		return nil, err
	}
	r.request, r.shown = p.ID, j.shown
	if j.epoch != 0 {
		if r.epoch, err = s.parts.Ring.EpochKeyOf(ctx, h.Tenant, j.epoch); err != nil {
			return nil, notStarted(fmt.Errorf("get epoch key: %w", err))
		}
	}
	c, err := s.callerOf(ctx, h.Tenant, j)
	if err == nil {
		r.reactor, err = s.definitions.Find(ctx, h.Tenant, p.Group)
	}
	if err != nil {
		return r.epoch, notStarted(err)
	}
	_, err = s.run(script.AtDepth(ctx, j.depth), c, &r, j.timeout, func(tx store.Tx, out Response) error {
		finished := j // the result is about the tokens that were made, too
		finished.shown = out.Shown
		return s.put(ctx, tx, r.keys, h, finished, r.epoch, resultOf(out))
	}, always)
	if s.parts.Refused != nil {
		s.parts.Refused(ctx, c, err)
	}
	return r.epoch, err
}

// callerOf returns the caller that requested a run, with the permissions that it
// has now. The run is cancelled when that caller is gone, has expired, was
// revoked, or lost token:use.
func (s *Service) callerOf(ctx context.Context, tenant string, j job) (access.Caller, error) {
	c, err := s.parts.Acting(ctx, tenant, j.application, j.session)
	if err == nil {
		err = c.RequireSomewhere(access.TokenUse)
	}
	if err == nil {
		return c.WithOrigin(j.origin), nil
	}
	if isFault(err) {
		return c, errCancelled
	}
	return c, fmt.Errorf("find the caller of a run: %w", err)
}

// requester is the caller that requested a run, as the log names it: without any
// permission.
func (j job) requester(tenant string) access.Caller {
	c := access.NewApplication(tenant, j.application, "", access.Grant{})
	if j.session != "" {
		c = access.NewUncappedSession(tenant, j.application, j.session, access.Grant{})
	}
	return c.WithOrigin(j.origin)
}

// notStarted marks what went wrong on our side before any code ran.
func notStarted(err error) error {
	if isFault(err) || errors.Is(err, keyring.ErrGone) {
		return err
	}
	return fmt.Errorf("%w: %w", script.ErrNotStarted, err)
}

// result is what a run came to, as it is delivered.
type result struct {
	status int
	body   []byte
}

func resultOf(out Response) result {
	if out.Custom != nil {
		return result{out.Custom.Status, out.Custom.Body}
	}
	return result{200, out.Object().AppendJSON(nil)}
}

// finish puts a result in the place of a job, in a transaction of its own, with
// the log entries that belong to it.
func (s *Service) finish(ctx context.Context, h hold, j job, epoch *keyring.EpochKey, res result, entries ...store.LogEntry) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settling)
	defer cancel()
	keys, err := s.parts.Ring.For(ctx, h.Tenant) // anew: the run may have outlasted a rotation
	if err != nil {
		return fmt.Errorf("get keys: %w", err)
	}
	err = s.parts.Store.Update(ctx, h.Tenant, func(tx store.Tx) error {
		if err := s.put(ctx, tx, keys, h, j, epoch, res); err != nil || len(entries) == 0 {
			return err
		}
		return tx.AppendLog(ctx, entries...)
	})
	if err != nil {
		return fmt.Errorf("keep the result of a job: %w", err)
	}
	return nil
}

// put replaces a job that has run: by its delivery, or by a result that waits
// to be asked for.
func (s *Service) put(ctx context.Context, tx store.Tx, keys *keyring.Keys, h hold, j job, epoch *keyring.EpochKey, res result) error {
	return h.in(ctx, tx, func(p store.Parcel) error {
		if err := tx.DeleteParcel(ctx, p.Kind, p.ID); err != nil {
			return err
		}
		now := s.options.Now()
		next := store.Parcel{
			Kind: store.ParcelResult, ID: p.ID, Group: p.Group, Owner: p.Owner, CreatedAt: store.At(now), ExpiresAt: store.At(now.Add(resultLife)), Version: 1,
		}
		if j.callback != "" {
			next.Kind, next.DueAt, next.ExpiresAt = store.ParcelDelivery, store.At(now), store.At(now.Add(jobLife))
		}
		j := j // the transaction may run again
		j.status, j.payload = res.status, res.body
		if err := seal(keys, &next, epoch, j); err != nil {
			return err
		}
		return tx.InsertParcel(ctx, next)
	})
}
