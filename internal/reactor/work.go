package reactor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/jobs"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/script"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// settling is how long the last write about a run may take when the server stops
// meanwhile.
const settling = 5 * time.Second

// runJob runs the code of a job, once: a job that is found a second time was
// interrupted in the middle, and its code may have charged a card.
func (s *Service) runJob(ctx context.Context, _ *keyring.Keys, j jobs.Job, held contents) (jobs.Verdict, error) {
	switch {
	case j.Attempts > 1:
		return s.finish(ctx, j, held, nil, s.problem(errInterrupted, held))
	case held.gone:
		return s.finish(ctx, j, held, nil, s.problem(errTooLate, held))
	}
	epoch, err := s.runOnce(ctx, j, held)
	switch {
	case err == nil:
		return jobs.Replaced, nil
	case errors.Is(err, errCancelled):
		return s.finish(ctx, j, held, nil, s.problem(errCancelled, held), audit.JobCancelled(held.requester(j.Tenant), s.options.Now(), j.Group))
	case errors.Is(err, script.ErrNotStarted):
		return jobs.GiveBack(time.Second), nil
	case errors.Is(err, keyring.ErrGone):
		return s.finish(ctx, j, held, nil, s.problem(errTooLate, held))
	case isFault(err):
		return s.finish(ctx, j, held, epoch, s.problem(err, held))
	case ctx.Err() != nil: // the server stops
		return s.finish(ctx, j, held, nil, s.problem(errInterrupted, held))
	}
	return jobs.Failed, fmt.Errorf("run a job: %w", err)
}

// runOnce runs the code of a job with the rights of this moment, and puts what
// it returned in the job's place. epoch is the key under which words about the
// run belong.
func (s *Service) runOnce(ctx context.Context, j jobs.Job, held contents) (epoch *keyring.EpochKey, err error) {
	r, err := readyFrom(held.payload)
	if err != nil {
		return nil, err
	}
	r.request, r.shown = j.ID, held.shown
	if held.epoch != 0 {
		if r.epoch, err = s.parts.Ring.EpochKeyOf(ctx, j.Tenant, held.epoch); err != nil {
			return nil, notStarted(fmt.Errorf("get epoch key: %w", err))
		}
	}
	c, err := s.callerOf(ctx, j.Tenant, held)
	if err == nil {
		r.reactor, err = s.definitions.Find(ctx, j.Tenant, j.Group)
	}
	if err != nil {
		return r.epoch, notStarted(err)
	}
	_, err = s.run(ctx, c, &r, held.timeout, func(tx store.Tx, out Response) error {
		finished := held // the result is about the tokens that were made, too
		finished.shown = out.Shown
		return s.put(ctx, tx, r.keys, j, finished, r.epoch, resultOf(out))
	}, always)
	if s.parts.Refused != nil {
		s.parts.Refused(ctx, c, err)
	}
	return r.epoch, err
}

// callerOf returns the caller that requested a run, with the permissions that it
// has now. The run is cancelled when that caller is gone, has expired, was
// revoked, or lost token:use.
func (s *Service) callerOf(ctx context.Context, tenant string, held contents) (access.Caller, error) {
	c, err := s.parts.Acting(ctx, tenant, held.application, held.session)
	if err == nil {
		err = c.RequireSomewhere(access.TokenUse)
	}
	if err == nil {
		return c.WithOrigin(held.origin), nil
	}
	if isFault(err) {
		return c, errCancelled
	}
	return c, fmt.Errorf("find the caller of a run: %w", err)
}

// requester is the caller that requested a run, as the log names it: without any
// permission.
func (held contents) requester(tenant string) access.Caller {
	c := access.NewApplication(tenant, held.application, "", access.Grant{})
	if held.session != "" {
		c = access.NewUncappedSession(tenant, held.application, held.session, access.Grant{})
	}
	return c.WithOrigin(held.origin)
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
func (s *Service) finish(ctx context.Context, j jobs.Job, held contents, epoch *keyring.EpochKey, res result, entries ...store.LogEntry) (jobs.Verdict, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settling)
	defer cancel()
	keys, err := s.parts.Ring.For(ctx, j.Tenant) // again: the run may have outlasted a rotation
	if err != nil {
		return jobs.Failed, fmt.Errorf("get keys: %w", err)
	}
	err = s.parts.Store.Update(ctx, j.Tenant, func(tx store.Tx) error {
		if err := s.put(ctx, tx, keys, j, held, epoch, res); err != nil || len(entries) == 0 {
			return err
		}
		return tx.AppendLog(ctx, entries...)
	})
	if err != nil {
		return jobs.Failed, fmt.Errorf("keep the result of a job: %w", err)
	}
	return jobs.Replaced, nil
}

// put replaces a job that has run: by its delivery, or by a result that waits
// to be asked for.
func (s *Service) put(ctx context.Context, tx store.Tx, keys *keyring.Keys, j jobs.Job, held contents, epoch *keyring.EpochKey, res result) error {
	now := s.options.Now()
	next := store.Parcel{Kind: store.ParcelResult, ID: j.ID, CreatedAt: store.At(now), ExpiresAt: store.At(now.Add(resultLife)), Version: 1}
	if held.callback != "" {
		next = s.parts.Jobs.Record(store.ParcelDelivery, j.ID)
	}
	next.Group, next.Owner = j.Group, j.Owner
	held.status, held.payload = res.status, res.body
	if err := seal(keys, &next, epoch, held); err != nil {
		return err
	}
	return j.Replace(ctx, tx, next)
}
