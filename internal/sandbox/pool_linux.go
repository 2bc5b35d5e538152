package sandbox

import (
	"context"
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
	closed  bool

	refill chan struct{} // asks for blank processes
	stop   context.CancelFunc
	done   sync.WaitGroup
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
		if ctx.Err() != nil {
			return nil, ErrBusy
		}
		return nil, err
	}
	return proc, nil
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
		return ErrBusy
	}
	s.pool.mu.Unlock()
	s.giveTurn(who) // it came in the same moment
	return ErrBusy
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
	p := s.pool.popBlank()
	if p != nil {
		s.pool.busy[p] = true
	}
	s.pool.mu.Unlock()
	s.askForBlank()

	if p == nil {
		var err error
		if p, err = s.startProcess(ctx, s.level); err != nil {
			return nil, err
		}
	}
	s.pool.mu.Lock()
	p.bound = Program{Tenant: program.Tenant, ID: program.ID, Version: program.Version}
	p.calls++
	s.pool.busy[p] = true
	closed := s.pool.closed
	s.pool.mu.Unlock()
	if closed {
		p.kill()
		return nil, ErrClosed
	}
	if program.Tenant == "" {
		return p, nil
	}
	deadline, _ := ctx.Deadline()
	_ = p.control.SetDeadline(deadline)
	if err := p.bind(program); err != nil {
		p.kill()
		s.pool.mu.Lock()
		delete(s.pool.busy, p)
		s.pool.mu.Unlock()
		return nil, err
	}
	return p, nil
}

func (p *pool) popBlank() *process {
	if len(p.blank) == 0 {
		return nil
	}
	first := p.blank[0]
	p.blank = p.blank[1:]
	return first
}

func (s *Sandbox) askForBlank() {
	select {
	case s.pool.refill <- struct{}{}:
	default:
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
	blanks := len(s.pool.blank)
	s.pool.blank = slices.DeleteFunc(s.pool.blank, is)
	refill := len(s.pool.blank) < blanks
	s.pool.mu.Unlock()
	if refill {
		s.askForBlank()
	}
	_ = p.pidfd.Close()
	if p.memory != nil {
		_ = p.memory.Close()
	}
	s.slots.give(p.slot)
}

// keepBlank starts blank processes, one after another, until ctx ends.
func (s *Sandbox) keepBlank(ctx context.Context) {
	failing := false
	for {
		s.pool.mu.Lock()
		missing := len(s.pool.blank) < s.settings.Blank
		s.pool.mu.Unlock()
		if !missing {
			select {
			case <-ctx.Done():
				return
			case <-s.pool.refill:
				continue
			}
		}
		p, err := s.startProcess(ctx, s.level)
		if ctx.Err() != nil {
			if p != nil {
				p.kill()
			}
			return
		}
		if err != nil {
			if !failing {
				s.settings.Log.Error("a process for code of tenants could not be started", "error", err)
			}
			failing = true
			select {
			case <-ctx.Done():
				return
			case <-time.After(refillPause):
			}
			continue
		}
		failing = false
		s.pool.mu.Lock()
		s.pool.blank = append(s.pool.blank, p)
		dead := !p.alive()
		s.pool.mu.Unlock()
		if dead {
			s.buriedLate(p)
		}
	}
}

// buriedLate takes out a process that ended before it was put in.
func (s *Sandbox) buriedLate(p *process) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.pool.blank = slices.DeleteFunc(s.pool.blank, func(q *process) bool { return q == p })
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
