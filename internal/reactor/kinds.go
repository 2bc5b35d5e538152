package reactor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/jobs"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

const (
	lease = 15 * time.Second
	// runTime is longer than any run takes, with the wait for a sandbox and the
	// tokens that are made from its result.
	runTime = 10 * time.Minute
)

// A delivery is tried ten times. The waits between the tries double from the
// first one on, and come to about two and a half hours.
const (
	deliveryTries = 10
	firstWait     = 18 * time.Second
	lastWait      = firstWait << (deliveryTries - 2)
)

// Kinds returns the kinds of jobs that belong to reactors: runs that nobody
// waits for, and the deliveries of their results.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{{
		// A run is begun once. What failed on our side ends with the next claim,
		// which finds that it was interrupted.
		Name: store.ParcelJob, Handle: s.opened(s.runJob), Life: jobLife, Lease: lease, Heartbeat: lease / 3, Timeout: runTime,
		AtOnce: 32, PerTenant: 32, Spare: 8, Queued: s.options.QueuedJobs,
		Retry: jobs.Schedule{First: lease, Most: lease},
	}, {
		Name: store.ParcelDelivery, Handle: s.opened(s.deliver), Life: jobLife, Lease: lease,
		AtOnce: 64, PerTenant: 32, Spare: 16,
		Retry:  jobs.Schedule{Attempts: deliveryTries, First: firstWait, Most: lastWait},
		GaveUp: func(jobs.Job) { s.givenUp.Inc() },
	}}
}

// opened is a handler that is given the contents of its job. A job that cannot
// be opened now has had no attempt.
func (s *Service) opened(handle func(context.Context, *keyring.Keys, jobs.Job, contents) (jobs.Verdict, error)) jobs.Handler {
	return func(ctx context.Context, j jobs.Job) (jobs.Verdict, error) {
		keys, err := s.parts.Ring.For(ctx, j.Tenant)
		if errors.Is(err, keyring.ErrNoKeys) || errors.Is(err, store.ErrNoTenant) {
			return jobs.GiveBack(lease), nil // the tenant is being deleted
		}
		if err != nil {
			return jobs.GiveBack(lease), fmt.Errorf("get keys: %w", err)
		}
		held, err := s.open(ctx, keys, j.Parcel)
		if err != nil {
			return jobs.GiveBack(lease), err
		}
		defer clear(held.payload)
		return handle(ctx, keys, j, held)
	}
}
