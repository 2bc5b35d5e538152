package sandbox

import (
	"context"
	"encoding/binary"
	"io"

	"golang.org/x/sys/unix"
)

// NewAt starts looking for a level at best, as on a machine without the better.
func NewAt(ctx context.Context, s Settings, best Level) (*Sandbox, error) {
	return newSandbox(ctx, s, best)
}

// Sweep does what happens every second.
func (s *Sandbox) Sweep() { s.sweep() }

// PIDs lists the processes that are blank, idle and busy.
func (s *Sandbox) PIDs() (blank, idle, busy []int) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	for _, p := range s.pool.blank {
		blank = append(blank, p.pid)
	}
	for _, p := range s.pool.idle {
		idle = append(idle, p.pid)
	}
	for p := range s.pool.busy {
		busy = append(busy, p.pid)
	}
	return blank, idle, busy
}

// Waiting tells how many calls wait for a turn.
func (s *Sandbox) Waiting() int {
	s.turns.mu.Lock()
	defer s.turns.mu.Unlock()
	return len(s.turns.waiting)
}

// Turns gives out turns, without processes that use them.
type Turns struct{ t *turns }

// NewTurns returns the turns that a Sandbox with these settings has.
func NewTurns(s Settings) Turns { return Turns{newTurns(s.filled())} }

// Running and Waiting tell how many calls have a turn and how many wait for one.
func (t Turns) Running() int { return t.t.running }

// Waiting tells how many calls wait.
func (t Turns) Waiting() int { return len(t.t.waiting) }

// Asked is a call that asked for a turn.
type Asked struct {
	waiter *waiter
	came   bool
	err    error
}

// Ask asks for a turn, below another one unless that is nil.
func (t Turns) Ask(tenant, program string, above *Asked) (*Asked, error) {
	var up *turn
	if above != nil {
		up = above.waiter.turn
	}
	w := newWaiter(tenant, identity{tenant, program}, up)
	return &Asked{waiter: w}, t.t.enter(w)
}

// Give ends a turn.
func (t Turns) Give(a *Asked) { t.t.give(a.waiter.turn) }

// Came tells whether the turn has come, or why it will not.
func (a *Asked) Came() (bool, error) {
	select {
	case a.err = <-a.waiter.ready:
		a.came = a.err == nil
	default:
	}
	return a.came, a.err
}

// Tenant is for whom the turn counts.
func (a *Asked) Tenant() string { return a.waiter.chain.tenant }

// NextWant tells which of those that want a process gets the next one, by tenants.
func NextWant(busy, wanting []string) int {
	p := pool{busy: make(map[*process]bool)}
	for _, tenant := range busy {
		p.busy[&process{tenant: tenant}] = true
	}
	for _, tenant := range wanting {
		p.wanting = append(p.wanting, want{tenant: tenant})
	}
	return p.nextWant()
}

// KillLauncher ends the launcher as the kernel might.
func (s *Sandbox) KillLauncher() {
	s.launcher.mu.Lock()
	defer s.launcher.mu.Unlock()
	_ = s.launcher.process.Kill()
}

// Root is the prepared folder.
func (s *Sandbox) Root() string { return s.root.folder }

// EnterGroup enters a group below the folder that is ours.
func EnterGroup(top, own string, ours func(string) bool, pid, dataMiB int) (folder string, leave func()) {
	g := groupsAbove(top, own, ours)
	if g == nil {
		return "", nil
	}
	return g.folder, g.enter(pid, dataMiB)
}

// WithoutQuotes is what becomes of the engine's message.
func WithoutQuotes(message string) string { return withoutQuotes(message) }

// ReadFrame reads a frame with the zero nonce.
func ReadFrame(r io.Reader) (kind byte, payload []byte, err error) { return readFrame(r, nonce{}) }

// What a filter may answer.
const (
	Allowed = seccompAllow
	Killed  = seccompKill
	Noticed = seccompNotify
	Errno   = seccompErrno
	Arch    = auditArch
)

// FilterAnswer runs the filter on one system call, as the kernel would.
func FilterAnswer(jit bool, arch, call uint32, args [6]uint64) uint32 {
	var data [64]byte
	binary.LittleEndian.PutUint32(data[offsetNumber:], call)
	binary.LittleEndian.PutUint32(data[offsetArch:], arch)
	for i, a := range args {
		binary.LittleEndian.PutUint64(data[offsetArguments+8*i:], a)
	}
	f := filter(filterOptions{execPath: 0x1234_5678_9abc, pid: 7, jit: jit})
	var a uint32
	for i := 0; ; i++ {
		jump := func(holds bool) {
			if holds {
				i += int(f[i].Jt)
			} else {
				i += int(f[i].Jf)
			}
		}
		switch f[i].Code {
		case bpfLoad:
			a = binary.LittleEndian.Uint32(data[f[i].K:])
		case bpfAnd:
			a &= f[i].K
		case bpfSame:
			jump(a == f[i].K)
		case bpfOver:
			jump(a >= f[i].K)
		case bpfGive:
			return f[i].K
		default:
			panic("the filter has an instruction that is not known here")
		}
	}
}

// FilterLength is how many instructions there are; the kernel takes 4096.
func FilterLength() int { return len(filter(filterOptions{})) }

// Calls by name, for tests that know no architecture.
var Calls = map[string]uint32{
	"clone": unix.SYS_CLONE, "clone3": unix.SYS_CLONE3, "socket": unix.SYS_SOCKET, "connect": unix.SYS_CONNECT, "mmap": unix.SYS_MMAP,
	"mprotect": unix.SYS_MPROTECT, "execve": unix.SYS_EXECVE, "kill": unix.SYS_KILL, "tgkill": unix.SYS_TGKILL, "prlimit64": unix.SYS_PRLIMIT64,
	"ioctl": unix.SYS_IOCTL, "fcntl": unix.SYS_FCNTL, "prctl": unix.SYS_PRCTL, "read": unix.SYS_READ, "setsockopt": unix.SYS_SETSOCKOPT,
	"ptrace": unix.SYS_PTRACE, "bpf": unix.SYS_BPF, "io_uring_setup": unix.SYS_IO_URING_SETUP, "mount": unix.SYS_MOUNT, "unshare": unix.SYS_UNSHARE,
	"setns": unix.SYS_SETNS, "keyctl": unix.SYS_KEYCTL, "userfaultfd": unix.SYS_USERFAULTFD, "memfd_create": unix.SYS_MEMFD_CREATE,
	"perf_event_open": unix.SYS_PERF_EVENT_OPEN, "execveat": unix.SYS_EXECVEAT, "bind": unix.SYS_BIND, "listen": unix.SYS_LISTEN,
	"accept4": unix.SYS_ACCEPT4, "socketpair": unix.SYS_SOCKETPAIR, "process_vm_readv": unix.SYS_PROCESS_VM_READV, "shmat": unix.SYS_SHMAT,
	"pkey_mprotect": unix.SYS_PKEY_MPROTECT, "seccomp": unix.SYS_SECCOMP, "sysinfo": unix.SYS_SYSINFO, "pidfd_getfd": unix.SYS_PIDFD_GETFD,
	"open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT, "chroot": unix.SYS_CHROOT, "setuid": unix.SYS_SETUID, "unlinkat": unix.SYS_UNLINKAT,
}

// Look lets a test look at a descriptor.
var Look = look
