package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	readyWait  = 20 * time.Second
	deathWait  = 5 * time.Second
	errorsKept = 64 << 10 // what a pipe holds
)

// process is one sandbox. Until it is bound it is blank: it has seen no code.
type process struct {
	started
	slot    int
	memory  *os.File // its entry of /proc, opened while it surely was this process
	network *network
	dead    chan struct{}
	words   []byte // the last on standard error; set before dead is closed

	// Guarded by the mutex of the Sandbox.
	bound  Program
	tenant string // for whom its call counts
	born   time.Time
	used   time.Time
	calls  int
	frozen bool
}

// startProcess orders a sandbox and waits until it is ready for code.
func (s *Sandbox) startProcess(ctx context.Context, level Level) (*process, error) {
	slot := s.slots.take()
	o := order{Slot: slot, Level: level}
	var listener net.Listener
	if level == UnsafeNone {
		o.Socket = filepath.Join(s.launcher.plan.Root, "run", strconv.Itoa(slot))
		var err error
		if listener, err = net.Listen("unix", o.Socket); err != nil {
			s.slots.give(slot)
			return nil, err
		}
	}
	st, err := s.launcher.start(ctx, o)
	if err != nil {
		if listener != nil {
			_ = listener.Close()
		}
		s.slots.give(slot)
		return nil, err
	}
	p := &process{started: st, slot: slot, dead: make(chan struct{}), born: s.settings.Now()}
	alive, gone := context.WithCancel(context.Background())
	p.network = &network{ctx: alive, tickets: map[string]net.Conn{}, dial: s.settings.Dial, reached: s.turns.reached}
	p.memory, _ = os.Open(filepath.Join("/proc", strconv.Itoa(p.pid), "statm"))
	go func() {
		waitFor(p.pidfd)
		gone()
		p.words = p.said()
		_ = p.errors.Close()
		_ = p.control.Close()
		if listener != nil {
			_ = listener.Close()
		}
		close(p.dead)
		s.buried(p)
	}()
	if listener != nil {
		go acceptConnects(listener, p.network.admit)
	}
	if err := p.ready(ctx, level); err != nil {
		p.kill()
		<-p.dead
		return nil, err
	}
	return p, nil
}

// acceptConnects stands in for notifications where there is no filter.
func acceptConnects(l net.Listener, admit func() func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if serve := admit(); serve != nil {
			serve(c)
		} else {
			_ = c.Close()
		}
	}
}

// ready receives the listener of the filter from the first stage, and then the
// first frame of the runner.
func (p *process) ready(ctx context.Context, level Level) error {
	defer context.AfterFunc(ctx, func() { _ = p.control.SetReadDeadline(time.Unix(1, 0)) })()
	if err := p.control.SetReadDeadline(time.Now().Add(readyWait)); err != nil {
		return err
	}
	if level != UnsafeNone {
		// The only time that descriptors are taken from this stream: no code
		// of a tenant, and not even node, has run yet.
		beside := make([]byte, unix.CmsgSpace(4))
		_, besides, _, _, err := p.control.ReadMsgUnix(make([]byte, 1), beside)
		fds := rights(beside[:besides])
		if err != nil || len(fds) != 1 {
			closeAll(fds)
			return p.notReady(err)
		}
		go serveConnects(pollable(fds[0], "connects"), p.network.admit)
	}
	kind, payload, err := readFrame(p.control, nonce{})
	if err != nil || kind != frameReady || len(payload) != 0 {
		return p.notReady(err)
	}
	return nil
}

// notReady tells what the first stage, or node, said when it gave up.
func (p *process) notReady(err error) error {
	line, _, _ := strings.Cut(strings.TrimSpace(string(p.lastWords())), "\n")
	if line == "" {
		return fmt.Errorf("the sandbox did not get ready: %w", err)
	}
	return errors.New(line)
}

// lastWords ends the process and returns what it said at last on its standard
// error.
func (p *process) lastWords() []byte {
	p.kill()
	select {
	case <-p.dead:
		return p.words
	case <-time.After(deathWait):
		return nil
	}
}

// said returns what stands in the pipe of standard error.
func (p *process) said() []byte {
	raw, err := p.errors.SyscallConn()
	if err != nil {
		return nil
	}
	text := make([]byte, errorsKept)
	n := 0
	_ = raw.Read(func(fd uintptr) bool {
		n, _ = unix.Read(int(fd), text)
		return true
	})
	return text[:max(n, 0)]
}

// kill ends the process, and with it everything in its namespaces.
func (p *process) kill() { p.signal(unix.SIGKILL) }

func (p *process) signal(s unix.Signal) {
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return // already buried
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), s, nil, 0) })
}

// waitFor returns when the process behind the descriptor has ended.
func waitFor(pidfd *os.File) {
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		ready, err := look(fd)
		return ready != 0 || err != nil
	})
}

// occupies tells how much memory the process has, 0 when that is not known.
func (p *process) occupies() int64 {
	if p.memory == nil {
		return 0
	}
	text := make([]byte, 128)
	n, _ := p.memory.ReadAt(text, 0)
	fields := bytes.Fields(text[:n])
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize())
}

// bind gives a blank process its program, for life.
func (p *process) bind(program Program) error {
	p.network.bind(program.Tenant)
	text, err := json.Marshal(program.Sources)
	if err != nil {
		return err
	}
	return writeFrame(p.control, frameProgram, nonce{}, text)
}

// quiet tells whether the process, which has nothing to say between calls, has
// indeed said nothing.
func (p *process) quiet() bool {
	raw, err := p.control.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	_ = raw.Control(func(fd uintptr) {
		ready, err := look(fd)
		quiet = ready == 0 && err == nil
	})
	return quiet
}

// ended finds the reason why a process ended before its answer.
func (p *process) ended(err error) error {
	switch {
	case errors.Is(err, errProtocol):
		return &Failure{Reason: Broke}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Failure{Reason: TimedOut}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE), errors.Is(err, net.ErrClosed):
	default:
		return err
	}
	said := bytes.ToLower(p.lastWords())
	for _, words := range []string{"out of memory", "allocation failed", "bad_alloc"} {
		if bytes.Contains(said, []byte(words)) {
			return &Failure{Reason: OutOfMemory}
		}
	}
	return &Failure{Reason: Exited}
}
