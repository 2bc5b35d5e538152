package sandbox_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tokenkeep/tokenkeep/internal/sandbox"
)

func refusedWith(e unix.Errno) uint32 { return sandbox.Errno | uint32(e) }

// TestTheFilterAnswers runs the filter on single calls, as the kernel would.
func TestTheFilterAnswers(t *testing.T) {
	const (
		thread  = unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND | unix.CLONE_FS | unix.CLONE_FILES
		path    = 0x1234_5678_9abc
		private = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
		rw      = unix.PROT_READ | unix.PROT_WRITE
		rx      = unix.PROT_READ | unix.PROT_EXEC
	)
	allowed, eperm := uint32(sandbox.Allowed), refusedWith(unix.EPERM)
	rows := []struct {
		call          string
		args          [6]uint64
		hardened, jit uint32
	}{
		{"read", [6]uint64{}, allowed, allowed},
		{"connect", [6]uint64{3}, sandbox.Noticed, sandbox.Noticed},
		{"clone3", [6]uint64{}, refusedWith(unix.ENOSYS), refusedWith(unix.ENOSYS)},
		{"clone", [6]uint64{thread}, allowed, allowed},
		{"clone", [6]uint64{uint64(unix.SIGCHLD)}, eperm, eperm},
		{"clone", [6]uint64{unix.CLONE_VM | unix.CLONE_VFORK}, eperm, eperm},
		{"clone", [6]uint64{thread | unix.CLONE_NEWUSER}, eperm, eperm},
		{"clone", [6]uint64{thread | unix.CLONE_NEWNET}, eperm, eperm},
		{"socket", [6]uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC}, allowed, allowed},
		{"socket", [6]uint64{unix.AF_UNIX, unix.SOCK_DGRAM}, refusedWith(unix.EAFNOSUPPORT), refusedWith(unix.EAFNOSUPPORT)},
		{"socket", [6]uint64{unix.AF_INET, unix.SOCK_STREAM}, refusedWith(unix.EAFNOSUPPORT), refusedWith(unix.EAFNOSUPPORT)},
		{"socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW}, refusedWith(unix.EAFNOSUPPORT), refusedWith(unix.EAFNOSUPPORT)},
		{"socket", [6]uint64{unix.AF_UNIX | 1<<32, unix.SOCK_STREAM}, allowed, allowed}, // the kernel reads the lower half
		{"setsockopt", [6]uint64{3, unix.SOL_SOCKET, unix.SO_KEEPALIVE}, allowed, allowed},
		{"setsockopt", [6]uint64{3, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER}, eperm, eperm},
		{"setsockopt", [6]uint64{3, unix.IPPROTO_TCP, unix.SO_KEEPALIVE}, eperm, eperm},
		{"mmap", [6]uint64{0, 4096, rw, private}, allowed, allowed},
		{"mmap", [6]uint64{0, 4096, rw, unix.MAP_SHARED | unix.MAP_ANONYMOUS}, eperm, eperm},
		{"mmap", [6]uint64{0, 4096, rx, private}, eperm, allowed},
		{"mmap", [6]uint64{0, 4096, rx | unix.PROT_WRITE, private}, eperm, allowed},
		{"mmap", [6]uint64{0, 4096, rx, unix.MAP_PRIVATE}, allowed, allowed},
		{"mmap", [6]uint64{0, 4096, rx, unix.MAP_SHARED}, eperm, eperm},
		{"mmap", [6]uint64{0, 4096, rx | unix.PROT_WRITE, unix.MAP_PRIVATE}, eperm, allowed},
		{"mprotect", [6]uint64{0, 4096, rw}, allowed, allowed},
		{"mprotect", [6]uint64{0, 4096, rx}, refusedWith(unix.EACCES), allowed},
		{"execve", [6]uint64{path}, allowed, allowed},
		{"execve", [6]uint64{path + 1}, eperm, eperm},
		{"execve", [6]uint64{path + 1<<32}, eperm, eperm},
		{"kill", [6]uint64{7, 9}, allowed, allowed},
		{"kill", [6]uint64{8, 9}, eperm, eperm},
		{"kill", [6]uint64{0xffffffffffffffff, 9}, eperm, eperm},
		{"kill", [6]uint64{0, 9}, eperm, eperm},
		{"tgkill", [6]uint64{7, 7, 9}, allowed, allowed},
		{"tgkill", [6]uint64{8, 8, 9}, eperm, eperm},
		{"prlimit64", [6]uint64{0, unix.RLIMIT_DATA, 0, path}, allowed, allowed},
		{"prlimit64", [6]uint64{0, unix.RLIMIT_DATA, 1 << 40, path}, eperm, eperm},
		{"ioctl", [6]uint64{0, 0x5421}, allowed, allowed},
		{"ioctl", [6]uint64{0, 0x5412}, refusedWith(unix.ENOTTY), refusedWith(unix.ENOTTY)}, // TIOCSTI
		{"fcntl", [6]uint64{0, unix.F_GETFL}, allowed, allowed},
		{"fcntl", [6]uint64{0, unix.F_SETOWN}, refusedWith(unix.EINVAL), refusedWith(unix.EINVAL)},
		{"prctl", [6]uint64{unix.PR_SET_NAME}, allowed, allowed},
		{"prctl", [6]uint64{unix.PR_SET_DUMPABLE, 1}, refusedWith(unix.EINVAL), refusedWith(unix.EINVAL)},
	}
	for _, never := range strings.Fields(`ptrace bpf io_uring_setup mount unshare setns keyctl userfaultfd memfd_create perf_event_open execveat
		bind listen accept4 socketpair process_vm_readv shmat pkey_mprotect seccomp sysinfo pidfd_getfd open_by_handle_at chroot setuid unlinkat`) {
		rows = append(rows, struct {
			call          string
			args          [6]uint64
			hardened, jit uint32
		}{never, [6]uint64{}, eperm, eperm})
	}
	for _, r := range rows {
		number, known := sandbox.Calls[r.call]
		if !known {
			t.Fatalf("no number for %s", r.call)
		}
		for jit, want := range map[bool]uint32{false: r.hardened, true: r.jit} {
			if got := sandbox.FilterAnswer(jit, sandbox.Arch, number, r.args); got != want {
				t.Errorf("%s(%x) with jit %t: got %#x, want %#x", r.call, r.args, jit, got, want)
			}
		}
		if got := sandbox.FilterAnswer(false, sandbox.Arch+1, number, r.args); got != sandbox.Killed {
			t.Errorf("%s of another architecture: got %#x, want the end", r.call, got)
		}
		if got := sandbox.FilterAnswer(false, sandbox.Arch, number|0x40000000, r.args); got != sandbox.Killed {
			t.Errorf("%s of another interface: got %#x, want the end", r.call, got)
		}
	}
}

// TestMostCallsAreRefused counts what is left of the kernel.
func TestMostCallsAreRefused(t *testing.T) {
	answered := 0
	for call := range uint32(600) {
		if got := sandbox.FilterAnswer(false, sandbox.Arch, call, [6]uint64{}); got == sandbox.Allowed || got == sandbox.Noticed {
			answered++
		}
	}
	if answered == 0 || answered > 105 {
		t.Errorf("%d calls are answered; want some and at most 105", answered)
	}
	if n := sandbox.FilterLength(); n > 4096 {
		t.Errorf("the filter has %d instructions; the kernel takes 4096", n)
	}
}
