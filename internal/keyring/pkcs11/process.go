package pkcs11

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/tokenkeep/tokenkeep/internal/keyring/pkcs11/wire"
)

// programName is the name of the program.
const programName = "tokenkeep-pkcs11"

// findProgram returns the program beside this one, or else the one in PATH.
func findProgram() string {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), programName)
		if _, err := os.Stat(beside); err == nil {
			return beside
		}
	}
	return programName
}

// environment is what modules are configured with. The server's own variables may
// hold secrets.
func environment() []string {
	var kept []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TOKENKEEP_") {
			kept = append(kept, v)
		}
	}
	return kept
}

// process is one run of the program.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	watch func(func()) (stop func() bool)
	gone  chan struct{} // closed when the program has ended and nobody waits for it

	mu      sync.Mutex // guards what follows, and the order of what is written
	next    uint32
	waiting map[uint32]*waiter
	ended   bool
}

// waiter is a call without a response.
type waiter struct {
	reply chan wire.Message // has room for one; closed when the program ends
	calm  func() bool       // stops the watch over the call
}

// maxWaiting bounds the calls without a response, those that nobody waits for
// among them. So many fit into a pipe: writing never blocks.
const maxWaiting = 64

// start starts the program and tells it what its key is. It does not wait for it.
// ended is called once, when the program has ended.
func start(program string, target []byte, watch func(func()) func() bool, ended func(*process)) (*process, error) {
	p := &process{cmd: exec.Command(program), watch: watch, gone: make(chan struct{}), waiting: map[uint32]*waiter{}}
	p.cmd.Env = environment()
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	_ = wire.Write(p.stdin, wire.Message{Kind: wire.Open, Payload: target}) // when it is gone already, the reader finds out
	go func() {
		p.read(out)
		ended(p)
		p.fail()
		close(p.gone)
	}()
	return p, nil
}

// read hands out responses until there are no more, or something else comes.
func (p *process) read(out io.Reader) {
	r := bufio.NewReader(out)
	for {
		m, err := wire.Read(r)
		if err != nil || !p.deliver(m) {
			p.kill()
			_ = p.stdin.Close()
			_ = p.cmd.Wait() // how it ended makes no difference
			return
		}
	}
}

// deliver gives a response to its call. It reports false for one that nobody
// asked for.
func (p *process) deliver(m wire.Message) bool {
	p.mu.Lock()
	w, asked := p.waiting[m.ID]
	delete(p.waiting, m.ID)
	p.mu.Unlock()
	if !asked || m.Kind < wire.OK {
		return false
	}
	w.calm()
	w.reply <- m
	return true
}

// fail ends all calls that have no response.
func (p *process) fail() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for _, w := range p.waiting {
		w.calm()
		close(w.reply)
	}
	clear(p.waiting)
}

// kill ends the program whatever it is doing.
func (p *process) kill() { _ = p.cmd.Process.Kill() }

// call makes one call. A caller who leaves does not disturb the others; a call
// without a response for too long ends the program, because nothing else ends a
// call of a module.
func (p *process) call(ctx context.Context, kind wire.Kind, payload []byte) (wire.Message, error) {
	w, err := p.send(kind, payload)
	if err != nil {
		return wire.Message{}, err
	}
	select {
	case m, ok := <-w.reply:
		if !ok {
			return m, errEnded
		}
		return m, nil
	case <-ctx.Done():
		return wire.Message{}, ctx.Err()
	}
}

func (p *process) send(kind wire.Kind, payload []byte) (*waiter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || len(p.waiting) >= maxWaiting {
		return nil, errEnded
	}
	p.next++
	w := &waiter{reply: make(chan wire.Message, 1), calm: p.watch(p.kill)}
	p.waiting[p.next] = w
	if err := wire.Write(p.stdin, wire.Message{ID: p.next, Kind: kind, Payload: payload}); err != nil {
		delete(p.waiting, p.next)
		w.calm()
		return nil, errEnded
	}
	return w, nil
}
