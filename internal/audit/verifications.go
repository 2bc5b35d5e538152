package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jobs"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Verifications are verifications of logs that run as jobs: a tenant has one at
// a time, and its result is kept for a month.
type Verifications struct {
	log  *Service
	jobs *jobs.Queue
}

// NewVerifications returns them, over the queue of a server.
func NewVerifications(s *Service, q *jobs.Queue) *Verifications { return &Verifications{s, q} }

// The states of a verification.
const (
	StateQueued  = "queued"
	StateRunning = "running"
	StateDone    = "done"
	StateFailed  = "failed"
)

// VerificationJob is a verification that was asked for.
type VerificationJob struct {
	ID        string    `json:"-"`
	State     string    `json:"state"`
	StartedAt time.Time `json:"started_at"`
	ActorID   string    `json:"actor_id"`
	ActorType string    `json:"actor_type"`
	ActorName string    `json:"actor_name"`
	Progress  *Progress `json:"progress,omitempty"`
	// Result is set when it is done.
	Result     *Verification `json:"result,omitempty"`
	FinishedAt *time.Time    `json:"finished_at,omitempty"`
}

const (
	verificationLease = 15 * time.Second
	verificationTime  = 6 * time.Hour
	// verificationLife is how long a verification may wait and run, with the
	// attempts that a restart of the server takes.
	verificationLife  = 24 * time.Hour
	verificationKept  = 30 * 24 * time.Hour
	verificationTries = 5
	// progressEvery is how often progress is written.
	progressEvery = time.Second
)

var errNoVerification = fault.New(fault.NotFound, "unknown verification")

// Kinds returns the kind of these jobs.
func (v *Verifications) Kinds() []jobs.Kind {
	return []jobs.Kind{{
		Name: store.ParcelVerification, Handle: v.run, Life: verificationLife, Lease: verificationLease, Heartbeat: verificationLease / 3, Timeout: verificationTime,
		AtOnce: 2, PerTenant: 1,
		Retry: jobs.Schedule{Attempts: verificationTries, First: verificationLease, Most: 4 * verificationLease},
	}}
}

// Start begins a verification of the log of the caller's tenant, or returns the
// one that is under way. The caller needs log:read.
func (v *Verifications) Start(ctx context.Context, c access.Caller) (j VerificationJob, err error) {
	if err := c.Require(access.LogRead); err != nil {
		return j, err
	}
	keys, err := v.keys(ctx, c.Tenant())
	if err != nil {
		return j, err
	}
	now := v.log.now()
	err = v.log.store.Update(ctx, c.Tenant(), func(tx store.Tx) error {
		under, err := tx.Parcels(ctx, store.ParcelFilter{Kind: store.ParcelVerification}, store.Page{Limit: 1})
		if err != nil {
			return err
		}
		if len(under) > 0 && under[0].ExpiresAt > store.At(now) {
			j, err = openVerification(keys, under[0])
			return err
		}
		j = VerificationJob{ID: access.NewID(), State: StateQueued, StartedAt: now.UTC(), ActorID: c.Application(), ActorType: c.ActorType(), ActorName: c.ActorName()}
		p := v.jobs.Record(store.ParcelVerification, j.ID)
		if err := sealVerification(keys, &p, j); err != nil {
			return err
		}
		if err := v.jobs.Insert(ctx, tx, p); err != nil {
			return err
		}
		return tx.AppendLog(ctx, EntryThat(c, now, Log, j.ID, Read, "verification started"))
	})
	if errors.Is(err, store.ErrNoTenant) {
		return j, errNoTenant
	}
	if err != nil {
		return j, fmt.Errorf("audit: start a verification: %w", err)
	}
	v.jobs.Wake()
	return j, nil
}

// Get returns a verification that was started. The caller needs log:read.
func (v *Verifications) Get(ctx context.Context, c access.Caller, id string) (j VerificationJob, err error) {
	if err := c.Require(access.LogRead); err != nil {
		return j, err
	}
	keys, err := v.keys(ctx, c.Tenant())
	if err != nil {
		return j, err
	}
	err = v.log.readAbout(ctx, c, id, "verification retrieved", func(tx store.Tx) error {
		p, err := tx.Parcel(ctx, store.ParcelVerification, id)
		if errors.Is(err, store.ErrNotFound) {
			p, err = tx.Parcel(ctx, store.ParcelVerified, id)
		}
		if errors.Is(err, store.ErrNotFound) || err == nil && p.ExpiresAt <= store.At(v.log.now()) {
			return errNoVerification
		}
		if err != nil {
			return err
		}
		j, err = openVerification(keys, p)
		return err
	})
	return j, err
}

func (v *Verifications) keys(ctx context.Context, tenant string) (*keyring.Keys, error) {
	keys, err := v.log.ring.For(ctx, tenant)
	if errors.Is(err, keyring.ErrNoKeys) || errors.Is(err, store.ErrNoTenant) {
		return nil, errNoTenant
	}
	if err != nil {
		return nil, fmt.Errorf("audit: get keys: %w", err)
	}
	return keys, nil
}

func sealVerification(keys *keyring.Keys, p *store.Parcel, j VerificationJob) error {
	b, err := json.Marshal(j)
	if err != nil {
		return errors.New("audit: encode a verification")
	}
	p.Contents, err = keys.Seal(p.Record(), keyring.FieldParcel, b)
	return err
}

func openVerification(keys *keyring.Keys, p store.Parcel) (j VerificationJob, err error) {
	b, err := keys.Open(p.Record(), keyring.FieldParcel, p.Contents)
	if err != nil {
		return j, fmt.Errorf("audit: open a verification: %w", err)
	}
	if json.Unmarshal(b, &j) != nil {
		return j, fmt.Errorf("audit: read a verification: %w", store.ErrDamaged)
	}
	j.ID = p.ID
	if p.Kind == store.ParcelVerification && p.Attempts > 0 {
		j.State = StateRunning
	}
	return j, nil
}

// run does a verification. It may run again after a kill: it changes nothing but
// its own record.
func (v *Verifications) run(ctx context.Context, job jobs.Job) (jobs.Verdict, error) {
	keys, err := v.keys(ctx, job.Tenant)
	if err != nil {
		return jobs.GiveBack(verificationLease), err
	}
	state, err := openVerification(keys, job.Parcel)
	if err != nil {
		return jobs.Failed, err
	}
	written := v.log.now()
	result, err := v.log.Verify(ctx, job.Tenant, nil, func(p Progress) {
		if now := v.log.now(); now.Sub(written) >= progressEvery {
			written = now
			state.Progress = &p
			v.note(ctx, job, state)
		}
	})
	if err != nil && ctx.Err() != nil {
		return jobs.GiveBack(verificationLease), err
	}
	if err != nil && job.Attempts < verificationTries {
		return jobs.Failed, err
	}
	cause := err
	if cause != nil {
		state.State = StateFailed
	} else {
		state.State, state.Result = StateDone, result
	}
	if err := v.finish(ctx, job, state); err != nil {
		return jobs.Failed, err
	}
	return jobs.Replaced, cause
}

// note writes progress. Nothing depends on it, so an error is left alone.
func (v *Verifications) note(ctx context.Context, job jobs.Job, state VerificationJob) {
	keys, err := v.keys(ctx, job.Tenant)
	if err != nil {
		return
	}
	_ = v.log.store.Update(ctx, job.Tenant, func(tx store.Tx) error {
		return job.Change(ctx, tx, func(p *store.Parcel) error { return sealVerification(keys, p, state) })
	})
}

// finish puts the result in the place of the job, with the entry about it and
// the record of who verified last.
func (v *Verifications) finish(ctx context.Context, job jobs.Job, state VerificationJob) error {
	keys, err := v.keys(ctx, job.Tenant)
	if err != nil {
		return err
	}
	now := v.log.now()
	at := now.UTC()
	state.Progress, state.FinishedAt = nil, &at
	p := store.Parcel{Kind: store.ParcelVerified, ID: job.ID, CreatedAt: store.At(now), ExpiresAt: store.At(now.Add(verificationKept)), Version: 1}
	if err := sealVerification(keys, &p, state); err != nil {
		return err
	}
	return v.log.store.Update(ctx, job.Tenant, func(tx store.Tx) error {
		if err := job.Replace(ctx, tx, p); err != nil || state.Result == nil {
			return err
		}
		done := verifiedBy(access.NewSystem(job.Tenant), job.ID, now, state.Result)
		done.ActorID, done.ActorType, done.ActorName = state.ActorID, state.ActorType, state.ActorName
		if err := done.put(ctx, tx); err != nil {
			return err
		}
		what := "verified"
		if !state.Result.Clean() {
			what = "verification found changes"
		}
		e := EntryThat(access.NewSystem(job.Tenant), now, Log, job.ID, Read, what)
		return tx.AppendLog(ctx, e)
	})
}
