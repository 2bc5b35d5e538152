package sandbox

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	sweepEvery  = time.Second
	freezeAfter = time.Second
	refillPause = time.Second // after a process could not be started
	closeWait   = 10 * time.Second
	starters    = 2 // processes that are started at once
)

// pool keeps processes. A call holds a turn while it runs, and a process is found
// or made within that turn. So there are never more processes than turns beside
// the blank ones: to bind one more, the one that was idle longest goes.
type pool struct {
	mu      sync.Mutex // guards what follows
	blank   []*process
	idle    []*process // longest idle first
	busy    map[*process]bool
	wanting []want // for a blank process
	making  int    // processes that are being started
	closed  bool

	more *sync.Cond // tells the starters that more blank processes are wanted
	stop context.CancelFunc
	done sync.WaitGroup
}

// want is a call that waits for a blank process.
type want struct {
	tenant string
	got    chan fresh
}

// fresh is a blank process, or why there is none.
type fresh struct {
	process *process
	err     error
}

// identity is a program whatever its version.
type identity struct{ tenant, id string }

func (p Program) identity() identity { return identity{p.Tenant, p.ID} }

// take gives a process that is bound to the program, or a blank one for the
// zero Program, to a call of the tenant. The turn lasts until put.
func (s *Sandbox) take(ctx context.Context, tenant string, p Program) (*process, *turn, error) {
	mine, err := s.turns.take(ctx, tenant, p.identity())
	if err != nil {
		return nil, nil, err
	}
	proc, err := s.find(ctx, mine.chain.tenant, p)
	if err != nil {
		s.turns.give(mine)
		return nil, nil, err
	}
	return proc, mine, nil
}

// lateness is the error of a call that waited until ctx ended.
func lateness(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return context.Canceled
	}
	return ErrBusy
}

// find gives an idle process of the program, or binds a blank one, to a call that
// counts for the tenant.
func (s *Sandbox) find(ctx context.Context, tenant string, program Program) (*process, error) {
	s.pool.mu.Lock()
	for i := len(s.pool.idle) - 1; i >= 0; i-- {
		p := s.pool.idle[i]
		if p.bound.identity() != program.identity() {
			continue
		}
		s.pool.idle = slices.Delete(s.pool.idle, i, i+1)
		if p.bound.Version != program.Version || s.worn(p) || !p.quiet() {
			p.kill() // another version is not needed, and one that talks is not trusted
			continue
		}
		p.thaw()
		p.tenant = tenant
		p.calls++
		s.pool.busy[p] = true
		s.pool.mu.Unlock()
		return p, nil
	}
	for len(s.pool.idle) > 0 && len(s.pool.idle)+len(s.pool.busy) >= s.settings.Global {
		s.pool.idle[0].kill()
		s.pool.idle = s.pool.idle[1:]
	}
	s.pool.mu.Unlock()

	p, err := s.takeBlank(ctx, tenant)
	if err != nil {
		return nil, err
	}
	s.pool.mu.Lock()
	p.tenant = tenant
	p.bound = Program{Tenant: program.Tenant, ID: program.ID, Version: program.Version}
	p.calls++
	p.used = s.settings.Now()
	s.pool.busy[p] = true
	closed := s.pool.closed
	s.pool.mu.Unlock()
	err = ErrClosed
	if !closed {
		deadline, _ := ctx.Deadline()
		_ = p.control.SetDeadline(deadline)
		if err = p.bind(program); errors.Is(err, os.ErrDeadlineExceeded) {
			err = ErrBusy // the process came too late, and nothing has run
		}
	}
	if err != nil {
		p.kill()
		s.pool.mu.Lock()
		delete(s.pool.busy, p)
		s.pool.mu.Unlock()
		return nil, err
	}
	return p, nil
}

// takeBlank waits for a blank process. One that comes too late for this call
// is kept for the next.
func (s *Sandbox) takeBlank(ctx context.Context, tenant string) (*process, error) {
	s.pool.mu.Lock()
	defer s.pool.more.Signal()
	for len(s.pool.blank) > 0 {
		p := s.pool.blank[0]
		s.pool.blank = slices.Delete(s.pool.blank, 0, 1)
		if !p.quiet() {
			p.kill() // most likely it is already gone
			continue
		}
		s.pool.mu.Unlock()
		return p, nil
	}
	if s.pool.closed {
		s.pool.mu.Unlock()
		return nil, ErrClosed
	}
	mine := want{tenant, make(chan fresh, 1)}
	s.pool.wanting = append(s.pool.wanting, mine)
	s.pool.more.Signal()
	s.pool.mu.Unlock()
	select {
	case f := <-mine.got:
		return f.process, f.err
	case <-ctx.Done():
	}
	s.pool.mu.Lock()
	if i := slices.Index(s.pool.wanting, mine); i >= 0 {
		s.pool.wanting = slices.Delete(s.pool.wanting, i, i+1)
	}
	s.pool.mu.Unlock()
	select {
	case f := <-mine.got: // it came in the same moment
		s.hand(f)
	default:
	}
	return nil, lateness(ctx)
}

// nextWant returns which call gets the next process: one of the tenant with the
// fewest that are busy, and among those the first that came.
func (p *pool) nextWant() (next int) {
	busy := make(map[string]int)
	for proc := range p.busy {
		busy[proc.tenant]++
	}
	for i, w := range p.wanting {
		if busy[w.tenant] < busy[p.wanting[next].tenant] {
			next = i
		}
	}
	return next
}

// hand gives a new process to one that wants it, or keeps it. An error goes to
// all that want one.
func (s *Sandbox) hand(f fresh) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	switch {
	case f.err != nil:
		for _, w := range s.pool.wanting {
			w.got <- f
		}
		s.pool.wanting = nil
	case s.pool.closed:
		f.process.kill()
	case !f.process.alive():
		s.pool.more.Signal()
	case len(s.pool.wanting) > 0:
		next := s.pool.nextWant()
		s.pool.wanting[next].got <- f
		s.pool.wanting = slices.Delete(s.pool.wanting, next, next+1)
	default:
		s.pool.blank = append(s.pool.blank, f.process)
	}
}

// put takes a process back after its call. It is kept for the next call of its
// program, or ended.
func (s *Sandbox) put(p *process, mine *turn, reuse bool) {
	s.pool.mu.Lock()
	delete(s.pool.busy, p)
	p.used = s.settings.Now()
	if !reuse || s.settings.PerInvocation || s.pool.closed || s.worn(p) || !p.alive() {
		p.kill()
	} else {
		s.pool.idle = append(s.pool.idle, p)
	}
	s.pool.mu.Unlock()
	s.turns.give(mine)
}

// worn tells whether a process has served long enough: what a heap remembers
// of earlier calls is bounded by that.
func (s *Sandbox) worn(p *process) bool {
	now := s.settings.Now()
	return p.calls >= s.settings.MaxCalls || now.Sub(p.born) >= s.settings.MaxAge || now.Sub(p.used) >= s.settings.Idle
}

func (p *process) alive() bool {
	select {
	case <-p.dead:
		return false
	default:
		return true
	}
}

// The main thread of an idle process waits in read(2). Threads that code may
// have made do not; so a process that stays idle is stopped as a whole.
func (p *process) freeze() {
	if !p.frozen {
		p.frozen = true
		p.signal(unix.SIGSTOP)
	}
}

func (p *process) thaw() {
	if p.frozen {
		p.frozen = false
		p.signal(unix.SIGCONT)
	}
}

// buried forgets a process that has ended, whoever ended it.
func (s *Sandbox) buried(p *process) {
	is := func(q *process) bool { return q == p }
	s.pool.mu.Lock()
	s.pool.idle = slices.DeleteFunc(s.pool.idle, is)
	s.pool.blank = slices.DeleteFunc(s.pool.blank, is)
	s.pool.mu.Unlock()
	s.pool.more.Signal()
	_ = p.pidfd.Close()
	if p.memory != nil {
		_ = p.memory.Close()
	}
	s.slots.give(p.slot)
}

// keepStarting starts processes until the Sandbox is closed: for those that
// want one, and so many more that the next will not have to wait.
func (s *Sandbox) keepStarting(ctx context.Context) {
	failing := false
	for {
		s.pool.mu.Lock()
		for !s.pool.closed && len(s.pool.blank)+s.pool.making >= s.settings.Blank+len(s.pool.wanting) {
			s.pool.more.Wait()
		}
		if s.pool.closed {
			s.pool.mu.Unlock()
			return
		}
		s.pool.making++
		s.pool.mu.Unlock()
		p, err := s.startProcess(ctx, s.level)
		s.pool.mu.Lock()
		s.pool.making--
		s.pool.mu.Unlock()
		s.hand(fresh{p, err})
		if err != nil && ctx.Err() == nil {
			if !failing {
				s.settings.Log.Error("a process for code of tenants could not be started", "error", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(refillPause):
			}
		}
		failing = err != nil
	}
}

// sweep ends processes that were idle for too long or are too old, and stops
// the others for as long as nobody needs them.
func (s *Sandbox) sweep() {
	now := s.settings.Now()
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.pool.idle = slices.DeleteFunc(s.pool.idle, func(p *process) bool {
		if s.worn(p) {
			p.kill()
			return true
		}
		if now.Sub(p.used) >= freezeAfter {
			p.freeze()
		}
		return false
	})
}

func (s *Sandbox) keepSweeping(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.sweep()
		}
	}
}

// slots are the numbers of processes, each of which is one's own user where the
// server is root. A number is given again when its process has ended.
type slots struct {
	mu   sync.Mutex
	free []int
	next int
}

func (s *slots) take() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 {
		s.next++
		return s.next - 1
	}
	n := s.free[0]
	s.free = s.free[1:]
	return n
}

func (s *slots) give(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, n)
}
