package jobs_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/jobs"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

func TestAJobIsDoneOnce(t *testing.T) {
	onBoth(t, func(f *fixture) {
		var l ledger
		n, tenant := f.node(row(work, l.noting)), f.tenant()
		ids := n.adds(tenant, work, 10)
		n.does(10)
		n.does(0)
		for _, id := range ids {
			if got := l.of(id); got != 1 {
				f.Errorf("a job was done %d times, want 1", got)
			}
		}
		if left := f.count(tenant, ""); left != 0 {
			f.Errorf("%d rows are left, want none", left)
		}
	})
}

func TestVerdicts(t *testing.T) {
	trouble := errors.New("trouble")
	for name, test := range map[string]struct {
		verdict  jobs.Verdict
		err      error
		attempts int           // that the row counts afterwards
		least    time.Duration // until it is due again
		most     time.Duration
	}{
		"failed":                 {jobs.Failed, nil, 1, 10 * time.Second, 11 * time.Second},
		"failed, with an error":  {jobs.Failed, trouble, 1, 10 * time.Second, 11 * time.Second},
		"given back":             {jobs.GiveBack(time.Second), nil, 0, time.Second, time.Second},
		"given back with reason": {jobs.GiveBack(time.Minute), trouble, 0, time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(f *fixture) {
				n, tenant := f.node(row(work, func(context.Context, jobs.Job) (jobs.Verdict, error) { return test.verdict, test.err })), f.tenant()
				id := n.adds(tenant, work, 1)[0]
				if did, err := n.DoDue(f.Context()); did != 1 || !errors.Is(err, test.err) {
					f.Errorf("DoDue = %d, %v, want 1, %v", did, err, test.err)
				}
				p := f.parcel(tenant, work, id)
				if wait := p.DueAt.Time().Sub(f.clock.Now()); p.Attempts != test.attempts || wait < test.least || wait > test.most {
					f.Errorf("the row counts %d attempts and is due in %s, want %d, and %s to %s", p.Attempts, wait, test.attempts, test.least, test.most)
				}
			})
		})
	}
}

// TestAJobIsReplacedInTheTransactionOfItsHandler: what follows from a job is
// there when the job is gone, and a due row of an unknown kind is refused.
func TestAJobIsReplacedInTheTransactionOfItsHandler(t *testing.T) {
	onBoth(t, func(f *fixture) {
		var (
			l    ledger
			n    node
			next = "test-next"
		)
		replace := func(ctx context.Context, j jobs.Job) (jobs.Verdict, error) {
			err := f.store.Update(ctx, j.Tenant, func(tx store.Tx) error { return j.Replace(ctx, tx, n.Record(next, j.ID)) })
			return jobs.Replaced, err
		}
		n = f.node(row(work, replace), row("test-next", l.noting))
		tenant := f.tenant()
		id := n.adds(tenant, work, 1)[0]
		n.does(2)
		if l.of(id) != 1 || f.count(tenant, "") != 0 {
			f.Errorf("the second job ran %d times and %d rows are left, want 1 and 0", l.of(id), f.count(tenant, ""))
		}
		next = "test-nobody"
		id = n.adds(tenant, work, 1)[0]
		if _, err := n.DoDue(f.Context()); !errors.Is(err, jobs.ErrUnknownKind) {
			f.Errorf("a job replaced by one of no kind: %v, want %v", err, jobs.ErrUnknownKind)
		}
		if f.parcel(tenant, work, id).ID != id {
			f.Error("the job is gone, and nothing came of it")
		}
	})
}

// TestTheJobsOfADeadNodeAreTakenOver: a node that is killed writes nothing, so
// its handler never returns here.
func TestTheJobsOfADeadNodeAreTakenOver(t *testing.T) {
	onBoth(t, func(f *fixture) {
		var l ledger
		g := newGate()
		dead, other, tenant := f.node(row(work, g.pass)), f.node(row(work, l.noting)), f.tenant()
		id := dead.adds(tenant, work, 1)[0]
		wait := dead.inBackground(f.Context())
		waittest.Receive(f, "the job is begun", g.came)
		f.clock.Advance(15*time.Second - time.Microsecond)
		other.does(0)
		f.clock.Advance(time.Microsecond)
		other.does(1)
		if l.of(id) != 1 || f.count(tenant, work) != 0 {
			f.Errorf("the other node did the job %d times and %d rows are left, want 1 and 0", l.of(id), f.count(tenant, work))
		}
		close(g.open)
		wait()
	})
}

// TestANodeThatLostItsJobWritesNothing: the first node comes back when the
// second is at work, or has failed.
func TestANodeThatLostItsJobWritesNothing(t *testing.T) {
	for name, late := range map[string]jobs.Verdict{"failed": jobs.Failed, "given back": jobs.GiveBack(0), "replaced": jobs.Replaced} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(f *fixture) {
				g := newGate()
				slow := f.node(row(work, func(ctx context.Context, j jobs.Job) (jobs.Verdict, error) {
					_, _ = g.pass(ctx, j)
					if late != jobs.Replaced {
						return late, nil
					}
					return late, f.store.Update(ctx, j.Tenant, func(tx store.Tx) error { return j.Replace(ctx, tx) })
				}))
				other := f.node(row(work, func(context.Context, jobs.Job) (jobs.Verdict, error) { return jobs.Failed, nil }))
				tenant := f.tenant()
				id := slow.adds(tenant, work, 1)[0]
				wait := slow.inBackground(f.Context())
				waittest.Receive(f, "the job is begun", g.came)
				f.clock.Advance(16 * time.Second)
				other.does(1)
				before := f.parcel(tenant, work, id)
				close(g.open)
				wait()
				after := f.parcel(tenant, work, id)
				if before.ID != id || after.Version != before.Version || after.Attempts != 2 || after.DueAt != before.DueAt {
					f.Errorf("the row was version %d and is version %d with %d attempts, want no change", before.Version, after.Version, after.Attempts)
				}
				if lost := slow.metric("tokenkeep_jobs_lost_total"); lost != 1 {
					f.Errorf("%v jobs were lost, want 1", lost)
				}
			})
		})
	}
}

// TestALeaseIsRenewedWhileItsHandlerRuns, and no longer than its timeout: a
// handler that never returns loses its job.
func TestALeaseIsRenewedWhileItsHandlerRuns(t *testing.T) {
	onBoth(t, func(f *fixture) {
		var l ledger
		g := newGate()
		contexts := make(chan context.Context, 1)
		k := row(work, func(ctx context.Context, j jobs.Job) (jobs.Verdict, error) {
			contexts <- ctx
			return g.pass(ctx, j)
		})
		k.Heartbeat, k.Timeout = time.Millisecond, time.Hour
		n, other, tenant := f.node(k), f.node(row(work, l.noting)), f.tenant()
		id := n.adds(tenant, work, 1)[0]
		ctx, kill := context.WithCancel(f.Context())
		wait := n.inBackground(ctx)
		attempt := waittest.Receive(f, "the context of the attempt", contexts)
		for range 3 {
			due := store.At(f.clock.Advance(14 * time.Second).Add(15 * time.Second))
			waittest.Until(f, "the lease is renewed", func() bool { return f.parcel(tenant, work, id).DueAt == due })
			other.does(0)
		}
		kill() // what the timeout does, without the wait
		waittest.Receive(f, "the end of the attempt", attempt.Done())
		// A renewal that was under way may come yet, but none after it.
		waittest.Until(f, "the job is taken over", func() bool {
			f.clock.Advance(16 * time.Second)
			_, err := other.DoDue(f.Context())
			f.must(err)
			return l.of(id) == 1
		})
		close(g.open)
		wait()
	})
}

// TestAnAttemptEndsWithItsTimeout: the context ends, and the handler has the
// last word.
func TestAnAttemptEndsWithItsTimeout(t *testing.T) {
	f := onSQLite(t)
	k := row(work, func(ctx context.Context, _ jobs.Job) (jobs.Verdict, error) {
		<-ctx.Done()
		return jobs.Failed, ctx.Err()
	})
	k.Timeout = time.Millisecond
	n, tenant := f.node(k), f.tenant()
	id := n.adds(tenant, work, 1)[0]
	if _, err := n.DoDue(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("DoDue = %v, want the end of the attempt", err)
	}
	if p := f.parcel(tenant, work, id); p.Attempts != 1 {
		t.Errorf("the row counts %d attempts, want 1", p.Attempts)
	}
}

func TestTwoNodesDoEachJobOnceBetweenThem(t *testing.T) {
	onBoth(t, func(f *fixture) {
		var l ledger
		var nodes []node
		for range 2 {
			nodes = append(nodes, f.node(row(work, l.noting)))
		}
		var ids []string
		for range 3 {
			ids = append(ids, nodes[0].adds(f.tenant(), work, 10)...)
		}
		var group sync.WaitGroup
		for _, n := range nodes {
			group.Go(func() {
				if _, err := n.DoDue(f.Context()); err != nil {
					f.Errorf("DoDue: %v", err)
				}
			})
		}
		group.Wait()
		nodes[0].does(0)
		for _, id := range ids {
			if got := l.of(id); got != 1 {
				f.Errorf("a job was done %d times, want 1", got)
			}
		}
	})
}

// TestClockJumps: a clock that jumps, ahead or back, neither loses a job nor has
// it done twice by nodes that finish.
func TestClockJumps(t *testing.T) {
	for name, jump := range map[string]time.Duration{"ahead, over the life of the job": 48 * time.Hour, "ahead": time.Hour, "back": -time.Hour} {
		t.Run("while it waits: "+name, func(t *testing.T) {
			onBoth(t, func(f *fixture) {
				var l ledger
				n, tenant := f.node(row(work, l.noting)), f.tenant()
				id := n.adds(tenant, work, 1)[0]
				f.clock.Advance(jump)
				_, err := n.DoDue(f.Context()) // at the wrong time it may be done or not
				f.must(err)
				f.clock.Advance(-jump)
				_, err = n.DoDue(f.Context())
				f.must(err)
				if l.of(id) != 1 || f.count(tenant, work) != 0 {
					f.Errorf("the job was done %d times and %d rows are left, want 1 and 0", l.of(id), f.count(tenant, work))
				}
			})
		})
		t.Run("while it runs: "+name, func(t *testing.T) {
			onBoth(t, func(f *fixture) {
				g := newGate()
				n, tenant := f.node(row(work, g.pass)), f.tenant()
				n.adds(tenant, work, 1)
				wait := n.inBackground(f.Context())
				waittest.Receive(f, "the job is begun", g.came)
				f.clock.Advance(jump)
				close(g.open)
				wait()
				f.clock.Advance(-jump)
				n.does(0)
				if len(g.came) != 0 || f.count(tenant, work) != 0 {
					f.Errorf("the job was begun %d times again and %d rows are left, want 0 and 0", len(g.came), f.count(tenant, work))
				}
			})
		})
	}
	t.Run("a heartbeat puts right what a jump did to a lease", func(t *testing.T) {
		onBoth(t, func(f *fixture) {
			g := newGate()
			k := row(work, g.pass)
			k.Heartbeat, k.Timeout = time.Millisecond, time.Hour
			n, tenant := f.node(k), f.tenant()
			id := n.adds(tenant, work, 1)[0]
			f.clock.Advance(time.Hour)
			wait := n.inBackground(f.Context())
			waittest.Receive(f, "the job is begun", g.came)
			due := store.At(f.clock.Advance(-time.Hour).Add(15 * time.Second))
			waittest.Until(f, "the lease is of the right time", func() bool { return f.parcel(tenant, work, id).DueAt == due })
			close(g.open)
			wait()
		})
	})
}

// TestAPoisonJobEnds after its attempts, on a schedule, while others go on.
func TestAPoisonJobEnds(t *testing.T) {
	for name, poison := range map[string]jobs.Handler{
		"always fails":  func(context.Context, jobs.Job) (jobs.Verdict, error) { return jobs.Failed, errors.New("poison") },
		"always panics": func(context.Context, jobs.Job) (jobs.Verdict, error) { panic("4242424242424242") },
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(f *fixture) {
				var l ledger
				var gaveUp []string
				bad, good := row("test-poison", poison), row(work, l.noting)
				bad.GaveUp = func(j jobs.Job) { gaveUp = append(gaveUp, j.ID) }
				n, tenant := f.node(bad, good), f.tenant()
				id := n.adds(tenant, "test-poison", 1)[0]
				for attempt := 1; attempt <= 3; attempt++ {
					other := n.adds(tenant, work, 1)[0]
					if did, err := n.DoDue(f.Context()); did != 2 || err == nil {
						f.Fatalf("attempt %d: DoDue = %d, %v, want 2 and the error", attempt, did, err)
					}
					if l.of(other) != 1 {
						f.Errorf("attempt %d: the other job was done %d times, want 1", attempt, l.of(other))
					}
					p := f.parcel(tenant, "test-poison", id)
					if attempt == 3 {
						break
					}
					wait, least := p.DueAt.Time().Sub(f.clock.Now()), 10*time.Second<<(attempt-1)
					if p.Attempts != attempt || wait < least || wait > least+least/10 {
						f.Errorf("after attempt %d the row counts %d and is due in %s, want %s and a little", attempt, p.Attempts, wait, least)
					}
					f.clock.Advance(wait)
				}
				if left := f.count(tenant, ""); left != 0 || len(gaveUp) != 1 || gaveUp[0] != id {
					f.Errorf("%d rows are left and %d jobs were given up, want 0 and 1", left, len(gaveUp))
				}
				if m := n.metric("tokenkeep_jobs_given_up_total"); m != 1 || f.logged("a job was given up") != 1 {
					f.Errorf("%v jobs were counted and %d logged as given up, want 1 and 1", m, f.logged("a job was given up"))
				}
				f.clock.Advance(time.Hour)
				n.does(0)
			})
		})
	}
}

// TestAPanicTakesNoServerAlong, wherever it is, and its value is in no error.
func TestAPanicTakesNoServerAlong(t *testing.T) {
	f := onSQLite(t)
	k := row(work, func(context.Context, jobs.Job) (jobs.Verdict, error) { panic("4242424242424242") })
	k.Retry.Attempts, k.GaveUp = 1, func(jobs.Job) { panic("4242424242424242") }
	n, tenant := f.node(k), f.tenant()
	n.adds(tenant, work, 1)
	_, err := n.DoDue(t.Context())
	if err == nil || !strings.Contains(err.Error(), "panic of type string in a job of kind "+work) || strings.Contains(err.Error(), "4242") {
		t.Errorf("DoDue = %v, want an error with the type of the panic", err)
	}
	if left := f.count(tenant, work); left != 0 {
		t.Errorf("%d rows are left, want none", left)
	}
}

// TestAJobThatEndsItsNodeEnds: each claim is the last thing that its node does.
// Attempts that were cut off leave room for later ones, but not without end
// where the kind says so.
func TestAJobThatEndsItsNodeEnds(t *testing.T) {
	onBoth(t, func(f *fixture) {
		var l ledger
		unbounded := row("test-unbounded", l.noting)
		unbounded.Retry.CutOff = 0
		n, tenant := f.node(row(work, l.noting), unbounded), f.tenant()
		ids := append(n.adds(tenant, work, 2), n.adds(tenant, unbounded.Name, 1)...)
		for i, claimed := range []struct {
			kind   string
			claims int
		}{{work, 12}, {work, 13}, {unbounded.Name, 40}} {
			f.must(f.store.Update(f.Context(), tenant, func(tx store.Tx) error {
				p, err := tx.Parcel(f.Context(), claimed.kind, ids[i])
				if err != nil {
					return err
				}
				p.Attempts, p.Version = claimed.claims, p.Version+1
				return tx.ReplaceParcel(f.Context(), p)
			}))
		}
		n.does(3)
		if l.of(ids[0]) != 1 || l.of(ids[1]) != 0 || l.of(ids[2]) != 1 || f.count(tenant, work) != 0 {
			f.Errorf("after 12 and 13 attempts that were cut off, the jobs were begun %d and %d times, want 1 and 0; without a bound and after 40, %d times, want 1",
				l.of(ids[0]), l.of(ids[1]), l.of(ids[2]))
		}
		if m := n.metric("tokenkeep_jobs_given_up_total"); m != 1 {
			f.Errorf("%v jobs were given up, want 1", m)
		}
	})
}

// TestAJobWithoutANumberOfAttemptsEndsWithItsLife: until then it is tried again.
func TestAJobWithoutANumberOfAttemptsEndsWithItsLife(t *testing.T) {
	f := onSQLite(t)
	k := row(work, func(context.Context, jobs.Job) (jobs.Verdict, error) { return jobs.Failed, nil })
	k.Retry.Attempts = 0
	n, tenant := f.node(k), f.tenant()
	n.adds(tenant, work, 1)
	for range 40 {
		n.does(1)
		f.clock.Advance(66 * time.Second)
	}
	f.clock.Advance(24 * time.Hour)
	n.does(0)
	if left := f.count(tenant, work); left != 1 {
		t.Errorf("%d rows are left, want 1 for the sweep", left)
	}
}

// TestUnknownKindsAreReportedAndLeft: rows as a newer release leaves them.
func TestUnknownKindsAreReportedAndLeft(t *testing.T) {
	onBoth(t, func(f *fixture) {
		var l ledger
		tenant := f.tenant()
		newer := f.node(row("test-newer", l.noting), row(work, l.noting))
		id := newer.adds(tenant, "test-newer", 1)[0]
		n := f.node(row(work, l.noting))
		err := f.store.Update(f.Context(), tenant, func(tx store.Tx) error { return n.Insert(f.Context(), tx, n.Record("test-newer", "1")) })
		if !errors.Is(err, jobs.ErrUnknownKind) {
			f.Errorf("Insert of an unknown kind = %v, want %v", err, jobs.ErrUnknownKind)
		}
		if err := n.Room(f.Context(), tenant, "test-newer"); !errors.Is(err, jobs.ErrUnknownKind) {
			f.Errorf("Room for an unknown kind = %v, want %v", err, jobs.ErrUnknownKind)
		}
		before := f.parcel(tenant, "test-newer", id)
		for range 3 {
			n.adds(tenant, work, 1)
			n.does(1)
			f.clock.Advance(time.Minute)
		}
		if after := f.parcel(tenant, "test-newer", id); after.Version != before.Version || l.of(id) != 0 {
			f.Errorf("the row is version %d and ran %d times, want version %d and 0", after.Version, l.of(id), before.Version)
		}
		if m := n.metric("tokenkeep_jobs_unknown_kinds"); m != 1 || f.logged("kind=test-newer") != 1 {
			f.Errorf("%v kinds were counted and %d reported, want 1 and 1", m, f.logged("kind=test-newer"))
		}
		newer.does(1)
		f.clock.Advance(time.Minute)
		n.does(0)
		if m := n.metric("tokenkeep_jobs_unknown_kinds"); m != 0 || newer.metric("tokenkeep_jobs_unknown_kinds") != 0 {
			f.Errorf("%v kinds are counted when the newer release has done its work, want 0", m)
		}
	})
}

func TestATenantMayQueueSoMany(t *testing.T) {
	onBoth(t, func(f *fixture) {
		var l ledger
		k := row(work, l.noting)
		k.Queued = 3
		n, tenant, other := f.node(k, row("test-free", l.noting)), f.tenant(), f.tenant()
		for i, want := range []error{nil, nil, nil, jobs.ErrFull} {
			if err := n.Room(f.Context(), tenant, work); !errors.Is(err, want) {
				f.Errorf("Room with %d jobs = %v, want %v", i, err, want)
			}
			n.adds(tenant, work, 1)
		}
		f.must(n.Room(f.Context(), other, work))
		f.must(n.Room(f.Context(), tenant, "test-free"))
		n.does(4)
		f.must(n.Room(f.Context(), tenant, work))
	})
}

func TestAStopTakesNothingNewAndWaits(t *testing.T) {
	f := onSQLite(t)
	g := newGate()
	k := row(work, g.pass)
	k.AtOnce, k.PerTenant = 1, 1
	n, tenant := f.node(k), f.tenant()
	n.adds(tenant, work, 2)
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		n.Work(ctx, t.Context())
	}()
	waittest.Receive(t, "the first job is begun", g.came)
	stop()
	close(g.open)
	waittest.Receive(t, "the end of the work", over)
	if left := f.count(tenant, work); left != 1 || len(g.came) != 0 {
		t.Errorf("%d jobs are left and %d more were begun, want 1 and 0", left, len(g.came))
	}
}

// TestWorkIsFoundAtOnce: each job is inserted while the node waits.
func TestWorkIsFoundAtOnce(t *testing.T) {
	f := onSQLite(t)
	g := newGate()
	close(g.open)
	n, tenant := f.node(row(work, g.pass)), f.tenant()
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		n.Work(ctx, t.Context())
	}()
	for range 5 {
		n.adds(tenant, work, 1)
		n.Wake()
		waittest.Receive(t, "the job is begun", g.came)
	}
	stop()
	waittest.Receive(t, "the end of the work", over)
}

func TestRowsThatCannotWork(t *testing.T) {
	f := onSQLite(t)
	for name, spoil := range map[string]func(*jobs.Kind){
		"no name":                    func(k *jobs.Kind) { k.Name = "" },
		"no handler":                 func(k *jobs.Kind) { k.Handle = nil },
		"no life":                    func(k *jobs.Kind) { k.Life = 0 },
		"no lease":                   func(k *jobs.Kind) { k.Lease = 0 },
		"a heartbeat that is late":   func(k *jobs.Kind) { k.Heartbeat, k.Timeout = k.Lease, time.Hour },
		"a heartbeat without an end": func(k *jobs.Kind) { k.Heartbeat = time.Second },
		"no turns":                   func(k *jobs.Kind) { k.AtOnce = 0 },
		"no turns of a tenant":       func(k *jobs.Kind) { k.PerTenant = 0 },
		"no schedule":                func(k *jobs.Kind) { k.Retry = jobs.Schedule{} },
		"a kind that is there":       func(k *jobs.Kind) { k.Name = "test-first" },
	} {
		k := row(work, new(ledger).noting)
		spoil(&k)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: the row was taken", name)
				}
			}()
			f.node(row("test-first", new(ledger).noting), k)
		}()
	}
}
