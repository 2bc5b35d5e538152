package sandbox

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	// foreignCalls is where the calls of the x32 interface begin.
	foreignCalls = 0x40000000
)

// allowedHere are older calls that other architectures never had.
var allowedHere = []uint32{
	unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_NEWFSTATAT, unix.SYS_ACCESS, unix.SYS_OPEN, unix.SYS_READLINK, unix.SYS_DUP2,
	unix.SYS_EPOLL_WAIT, unix.SYS_POLL, unix.SYS_TIME, unix.SYS_GETRLIMIT, unix.SYS_ARCH_PRCTL,
}
