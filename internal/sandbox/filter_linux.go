package sandbox

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system call filter: what is not listed is refused. Processes, sockets but
// unix streams, namespaces, mounts, keys, bpf, perf, io_uring, ptrace, memfd and
// shared memory are not listed.

// What the filter may answer.
const (
	seccompKill   = 0x80000000
	seccompAllow  = 0x7fff0000
	seccompNotify = 0x7fc00000
	seccompErrno  = 0x00050000
)

// Where the filter finds things in struct seccomp_data.
const (
	offsetNumber    = 0
	offsetArch      = 4
	offsetArguments = 16
)

// Requests of ioctl and fcntl, and options of prctl, that libuv and libc use.
const (
	fioNonblock     = 0x5421
	fioCloexec      = 0x5451
	fioNoCloexec    = 0x5450
	fioRead         = 0x541b
	fDupfdCloexec   = 1030
	prSetVMA        = 0x53564d41
	mapTypeMask     = 0xf
	socketTypeMask  = 0xf
	everyBit        = 0xffffffff
	newNamespaces   = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
	threadFlags     = unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND
	threadFlagsMask = threadFlags | newNamespaces | unix.CLONE_PTRACE | unix.CLONE_UNTRACED
)

// check holds when some bits of an argument are one of a few values. Arguments
// are compared by their low half, which is all that the kernel reads of them,
// but for pointers.
type check struct {
	argument int
	mask     uint32
	is       []uint32
	high     bool // compare the upper half instead
}

// rule refuses a call with an errno unless one of its alternatives holds in full.
type rule struct {
	call      uint32
	otherwise unix.Errno
	any       [][]check
}

// filterOptions are what differs between processes.
type filterOptions struct {
	execPath uintptr // execve is allowed with this very pointer alone
	pid      int     // signals go to this process alone
	jit      bool
}

func rules(o filterOptions) []rule {
	flags := func(argument int, mask uint32, is ...uint32) check {
		return check{argument: argument, mask: mask, is: is}
	}
	pointer := func(argument int, p uint64) []check {
		return []check{flags(argument, everyBit, uint32(p)), {argument: argument, mask: everyBit, is: []uint32{uint32(p >> 32)}, high: true}}
	}
	private := flags(3, mapTypeMask, unix.MAP_PRIVATE)
	list := []rule{
		// libc falls back to clone, whose flags can be looked at.
		{unix.SYS_CLONE3, unix.ENOSYS, nil},
		{unix.SYS_CLONE, unix.EPERM, [][]check{{flags(0, threadFlagsMask, threadFlags)}}},
		{unix.SYS_SOCKET, unix.EAFNOSUPPORT, [][]check{{flags(0, everyBit, unix.AF_UNIX), flags(1, socketTypeMask, unix.SOCK_STREAM)}}},
		{unix.SYS_SETSOCKOPT, unix.EPERM, [][]check{{flags(1, everyBit, unix.SOL_SOCKET),
			flags(2, everyBit, unix.SO_REUSEADDR, unix.SO_KEEPALIVE, unix.SO_SNDBUF, unix.SO_RCVBUF)}}},
		{unix.SYS_IOCTL, unix.ENOTTY, [][]check{{flags(1, everyBit, fioNonblock, fioCloexec, fioNoCloexec, fioRead)}}},
		{unix.SYS_FCNTL, unix.EINVAL, [][]check{{flags(1, everyBit, unix.F_DUPFD, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL, fDupfdCloexec)}}},
		{unix.SYS_PRCTL, unix.EINVAL, [][]check{{flags(0, everyBit, unix.PR_SET_NAME, unix.PR_GET_NAME, prSetVMA)}}},
		{unix.SYS_PRLIMIT64, unix.EPERM, [][]check{pointer(2, 0)}}, // reading
		{unix.SYS_KILL, unix.EPERM, [][]check{{flags(0, everyBit, uint32(o.pid))}}},
		{unix.SYS_TGKILL, unix.EPERM, [][]check{{flags(0, everyBit, uint32(o.pid))}}},
		{unix.SYS_EXECVE, unix.EPERM, [][]check{pointer(0, uint64(o.execPath))}},
	}
	// Shared memory would not count against the limit of private memory.
	if o.jit {
		return append(list,
			rule{unix.SYS_MMAP, unix.EPERM, [][]check{{private}}},
			rule{unix.SYS_MPROTECT, unix.EPERM, [][]check{{}}})
	}
	// Executable memory comes from files, for the loader, and is never written.
	return append(list,
		rule{unix.SYS_MMAP, unix.EPERM, [][]check{
			{flags(2, unix.PROT_EXEC, 0), private},
			{flags(2, unix.PROT_EXEC|unix.PROT_WRITE, unix.PROT_EXEC), flags(3, mapTypeMask|unix.MAP_ANONYMOUS, unix.MAP_PRIVATE)},
		}},
		rule{unix.SYS_MPROTECT, unix.EACCES, [][]check{{flags(2, unix.PROT_EXEC, 0)}}})
}

const (
	bpfLoad = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	bpfSame = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	bpfOver = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	bpfAnd  = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	bpfGive = unix.BPF_RET | unix.BPF_K
)

func give(answer uint32) unix.SockFilter { return unix.SockFilter{Code: bpfGive, K: answer} }

// compile turns the checks of one alternative into instructions that go on
// behind them when they hold, and skip what follows when they do not: the skip
// is counted from the end, where the caller puts one instruction.
func compile(checks []check) []unix.SockFilter {
	var code []unix.SockFilter
	for i := len(checks) - 1; i >= 0; i-- {
		c := checks[i]
		at := uint32(offsetArguments + 8*c.argument)
		if c.high {
			at += 4
		}
		part := []unix.SockFilter{{Code: bpfLoad, K: at}}
		if c.mask != everyBit {
			part = append(part, unix.SockFilter{Code: bpfAnd, K: c.mask})
		}
		for n, value := range c.is {
			jump := unix.SockFilter{Code: bpfSame, K: value, Jt: uint8(len(c.is) - 1 - n)}
			if n == len(c.is)-1 {
				jump.Jf = uint8(len(code) + 1)
			}
			part = append(part, jump)
		}
		code = append(part, code...)
	}
	return code
}

// filter builds the program for this machine's architecture.
func filter(o filterOptions) []unix.SockFilter {
	f := []unix.SockFilter{
		{Code: bpfLoad, K: offsetArch},
		{Code: bpfSame, K: auditArch, Jt: 1},
		give(seccompKill),
		{Code: bpfLoad, K: offsetNumber},
		{Code: bpfOver, K: foreignCalls, Jf: 1},
		give(seccompKill),
	}
	for _, r := range rules(o) {
		var body []unix.SockFilter
		for _, alternative := range r.any {
			body = append(body, compile(alternative)...)
			body = append(body, give(seccompAllow))
		}
		body = append(body, give(seccompErrno|uint32(r.otherwise)))
		f = append(f, unix.SockFilter{Code: bpfSame, K: r.call, Jf: uint8(len(body))})
		f = append(f, body...)
	}
	answer := func(call, with uint32) {
		f = append(f, unix.SockFilter{Code: bpfSame, K: call, Jf: 1}, give(with))
	}
	answer(unix.SYS_CONNECT, seccompNotify)
	for _, call := range allowedEverywhere {
		answer(call, seccompAllow)
	}
	for _, call := range allowedHere {
		answer(call, seccompAllow)
	}
	return append(f, give(seccompErrno|uint32(unix.EPERM)))
}

// allowedEverywhere is what Node needs at run time on any architecture.
var allowedEverywhere = []uint32{
	// files that are there, and streams
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREAD64, unix.SYS_CLOSE, unix.SYS_LSEEK,
	unix.SYS_FSTAT, unix.SYS_STATX, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_OPENAT, unix.SYS_READLINKAT,
	unix.SYS_GETDENTS64, unix.SYS_GETCWD, unix.SYS_EVENTFD2, unix.SYS_PIPE2, unix.SYS_DUP, unix.SYS_DUP3,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_PPOLL,
	unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME, unix.SYS_GETSOCKOPT, unix.SYS_SHUTDOWN,
	unix.SYS_SENDTO, unix.SYS_RECVFROM, unix.SYS_SENDMSG, unix.SYS_RECVMSG,
	// memory and threads
	unix.SYS_BRK, unix.SYS_MUNMAP, unix.SYS_MREMAP, unix.SYS_MADVISE, unix.SYS_MEMBARRIER,
	unix.SYS_FUTEX, unix.SYS_SET_ROBUST_LIST, unix.SYS_GET_ROBUST_LIST, unix.SYS_SET_TID_ADDRESS, unix.SYS_RSEQ,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RT_SIGTIMEDWAIT,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SCHED_GETPARAM, unix.SYS_SCHED_GETSCHEDULER, unix.SYS_GETPRIORITY, unix.SYS_GETCPU,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_RESTART_SYSCALL,
	// clocks, and what a process may know of itself
	unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_NANOSLEEP, unix.SYS_GETTIMEOFDAY,
	unix.SYS_TIMERFD_CREATE, unix.SYS_TIMERFD_SETTIME,
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETPPID, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID,
	unix.SYS_GETRESUID, unix.SYS_GETRESGID, unix.SYS_GETGROUPS, unix.SYS_GETRUSAGE, unix.SYS_UNAME, unix.SYS_TIMES,
	unix.SYS_UMASK, unix.SYS_GETRANDOM, unix.SYS_CAPGET,
}

// installFilter puts the filter on the calling thread, from where it survives
// execve, and returns the descriptor on which connect is announced.
func installFilter(f []unix.SockFilter) (listener int, err error) {
	program := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(f)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}
