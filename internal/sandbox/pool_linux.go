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

// pool keeps processes, and decides who gets one. A call holds one of Global
// turns while it runs; a process is found or made within that turn. So there
// are never more than Global processes beside the blank ones: to bind one more,
// the one that was idle longest goes.
type pool struct {
	mu      sync.Mutex // guards what follows
	blank   []*process
	idle    []*process // longest idle first
	busy    map[*process]bool
	running int              // turns taken
	calls   map[identity]int // calls of a program, waiting ones included
	waiting []chan struct{}  // for a turn, first come first
	wanting []chan fresh     // for a blank process, first come first
	making  int              // processes that are being started
	closed  bool

	more *sync.Cond // tells the starters that more blank processes are wanted
	stop context.CancelFunc
	done sync.WaitGroup
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
// zero Program.
func (s *Sandbox) take(ctx context.Context, p Program) (*process, error) {
	if err := s.turn(ctx, p.identity()); err != nil {
		return nil, err
	}
	proc, err := s.find(ctx, p)
	if err != nil {
		s.giveTurn(p.identity())
		return nil, err
	}
	return proc, nil
}

// lateness is the error of a call that waited until ctx ended.
func lateness(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return context.Canceled
	}
	return ErrBusy
}

// turn waits until one more call may run.
func (s *Sandbox) turn(ctx context.Context, who identity) error {
	s.pool.mu.Lock()
	switch {
	case s.pool.closed:
		s.pool.mu.Unlock()
		return ErrClosed
	case who.tenant != "" && s.pool.calls[who] >= s.settings.PerProgram:
		s.pool.mu.Unlock()
		return ErrTooMany
	case s.pool.running < s.settings.Global:
		s.pool.running++
		s.pool.calls[who]++
		s.pool.mu.Unlock()
		return nil
	case len(s.pool.waiting) >= s.settings.Queue:
		s.pool.mu.Unlock()
		return ErrBusy
	}
	mine := make(chan struct{})
	s.pool.waiting = append(s.pool.waiting, mine)
	s.pool.calls[who]++
	s.pool.mu.Unlock()

	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	s.pool.mu.Lock()
	if i := slices.Index(s.pool.waiting, mine); i >= 0 {
		s.pool.waiting = slices.Delete(s.pool.waiting, i, i+1)
		s.pool.leave(who)
		s.pool.mu.Unlock()
		return lateness(ctx)
	}
	s.pool.mu.Unlock()
	s.giveTurn(who) // it came in the same moment
	return lateness(ctx)
}

// giveTurn ends a turn: the first that waits has it next.
func (s *Sandbox) giveTurn(who identity) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.pool.leave(who)
	if len(s.pool.waiting) > 0 {
		close(s.pool.waiting[0])
		s.pool.waiting = s.pool.waiting[1:]
		return
	}
	s.pool.running--
}

func (p *pool) leave(who identity) {
	if p.calls[who]--; p.calls[who] == 0 {
		delete(p.calls, who)
	}
}

// find gives an idle process of the program, or binds a blank one.
func (s *Sandbox) find(ctx context.Context, program Program) (*process, error) {
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

	p, err := s.takeBlank(ctx)
	if err != nil {
		return nil, err
	}
	s.pool.mu.Lock()
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
func (s *Sandbox) takeBlank(ctx context.Context) (*process, error) {
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
	mine := make(chan fresh, 1)
	s.pool.wanting = append(s.pool.wanting, mine)
	s.pool.more.Signal()
	s.pool.mu.Unlock()
	select {
	case f := <-mine:
		return f.process, f.err
	case <-ctx.Done():
	}
	s.pool.mu.Lock()
	if i := slices.Index(s.pool.wanting, mine); i >= 0 {
		s.pool.wanting = slices.Delete(s.pool.wanting, i, i+1)
	}
	s.pool.mu.Unlock()
	select {
	case f := <-mine: // it came in the same moment
		s.hand(f)
	default:
	}
	return nil, lateness(ctx)
}

// hand gives a new process to the first that wants one, or keeps it. An error
// goes to all that want one.
func (s *Sandbox) hand(f fresh) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	switch {
	case f.err != nil:
		for _, w := range s.pool.wanting {
			w <- f
		}
		s.pool.wanting = nil
	case s.pool.closed:
		f.process.kill()
	case !f.process.alive():
		s.pool.more.Signal()
	case len(s.pool.wanting) > 0:
		s.pool.wanting[0] <- f
		s.pool.wanting = s.pool.wanting[1:]
	default:
		s.pool.blank = append(s.pool.blank, f.process)
	}
}

// put takes a process back after its call. It is kept for the next call of its
// program, or ended.
func (s *Sandbox) put(p *process, reuse bool) {
	s.pool.mu.Lock()
	who := p.bound.identity()
	delete(s.pool.busy, p)
	p.used = s.settings.Now()
	if !reuse || s.settings.PerInvocation || s.pool.closed || s.worn(p) || !p.alive() {
		p.kill()
	} else {
		s.pool.idle = append(s.pool.idle, p)
	}
	s.pool.mu.Unlock()
	s.giveTurn(who)
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
