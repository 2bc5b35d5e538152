package jobs

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Kind is a row: one kind of work, with all that is particular to it.
type Kind struct {
	Name   string // the kind of its parcels
	Handle Handler
	Life   time.Duration // after which a job is swept, done or not

	// Lease is how long a claim lasts. When a node dies, another takes its jobs
	// after that time.
	Lease time.Duration
	// Heartbeat is how often a claim is renewed; 0 for handlers that always
	// return within a lease.
	Heartbeat time.Duration
	// Timeout ends the context of an attempt, and its heartbeats: a handler that
	// never returns loses its job. 0 for none, where there is no Heartbeat.
	Timeout time.Duration

	// What a node does at once: in all, for one tenant, and beyond that for
	// tenants for which nothing is running.
	AtOnce, PerTenant, Spare int
	// Queued is how many one tenant may have in the store; 0 for any number. Room
	// checks it.
	Queued int

	Retry Schedule
	// GaveUp runs after a job was given up; nil for nothing.
	GaveUp func(Job)
}

// Handler does a job, or makes an attempt at it. It runs at least once for each
// job, and sees by Job.Attempts when an attempt before it was cut off: work that
// must not be repeated checks that. The error is reported, and decides nothing,
// except that ErrLost means that nothing more is written. A panic is a failed
// attempt.
type Handler func(ctx context.Context, j Job) (Verdict, error)

// Verdict is what becomes of a job. The zero Verdict is Failed.
type Verdict struct {
	end  ending
	wait time.Duration
}

type ending int

const (
	failed ending = iota
	done
	replaced
	givenBack
)

var (
	// Failed counts the attempt. The next one follows by the schedule.
	Failed = Verdict{}
	// Done removes the job.
	Done = Verdict{end: done}
	// Replaced says that the handler has ended the job itself, by Job.Replace.
	Replaced = Verdict{end: replaced}
)

// GiveBack undoes the claim: the attempt does not count, and the next one
// follows after a wait. It is for attempts that had no effect.
func GiveBack(wait time.Duration) Verdict { return Verdict{givenBack, wait} }

// Schedule says when a failed job is tried again: after First, and after twice
// the time with each further attempt, up to Most. A tenth of chance is added so
// that many do not come at once.
type Schedule struct {
	Attempts    int // after which a job is given up; 0 when only its expiry ends it
	First, Most time.Duration
	// CutOff is how many claims beyond Attempts are begun, 0 for any number. A
	// job that was claimed more often may be what ends the nodes, and is given
	// up unbegun.
	CutOff int
}

// wait returns how long to wait after an attempt, the first of which is 1.
func (s Schedule) wait(attempt int) time.Duration {
	wait := s.First
	for i := 1; i < attempt && wait < s.Most; i++ {
		wait *= 2
	}
	wait = min(wait, s.Most)
	return wait + rand.N(wait/10+1)
}

// exhausted tells whether a claim is one too many.
func (s Schedule) exhausted(claim int) bool {
	return s.Attempts > 0 && s.CutOff > 0 && claim > s.Attempts+s.CutOff
}

// check says what is wrong with a row.
func (k Kind) check() error {
	switch {
	case k.Name == "" || k.Handle == nil:
		return errors.New("jobs: a kind needs a name and a handler")
	case k.Life <= 0 || k.Lease <= 0:
		return errors.New("jobs: kind " + k.Name + " needs a life and a lease")
	case k.Heartbeat < 0 || k.Heartbeat >= k.Lease:
		return errors.New("jobs: kind " + k.Name + " renews its lease too late")
	case k.Heartbeat > 0 && k.Timeout <= 0:
		return errors.New("jobs: kind " + k.Name + " has a heartbeat, so it needs a timeout")
	case k.AtOnce <= 0 || k.PerTenant <= 0 || k.Spare < 0 || k.Queued < 0:
		return errors.New("jobs: kind " + k.Name + " needs limits")
	case k.Retry.First <= 0 || k.Retry.Most < k.Retry.First || k.Retry.Attempts < 0:
		return errors.New("jobs: kind " + k.Name + " needs a schedule")
	}
	return nil
}
