package sandbox_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tokenkeep/tokenkeep/internal/sandbox"
)

// A program that took over its process runs native code. This test binary
// stands in for one: it is given to the sandbox as the node binary, speaks the
// protocol of the runner, and calls the kernel itself.

// native is what the stand-in does; it runs inside the sandbox.
func native() int {
	control := os.NewFile(3, "control")
	send := func(kind byte, nonce []byte, payload []byte) {
		frame := binary.LittleEndian.AppendUint32(nil, uint32(9+len(payload)))
		frame = append(append(append(frame, kind), nonce...), payload...)
		_, _ = control.Write(frame)
	}
	send(0, make([]byte, 8), nil)
	for {
		var size [4]byte
		if _, err := io.ReadFull(control, size[:]); err != nil {
			return 0
		}
		frame := make([]byte, binary.LittleEndian.Uint32(size[:]))
		if _, err := io.ReadFull(control, frame); err != nil {
			return 0
		}
		if frame[0] != 2 {
			continue
		}
		var gaps []string
		switch text := string(frame); {
		case strings.Contains(text, "foreign"):
			_, _, _ = unix.RawSyscall(unix.SYS_GETPID|0x40000000, 0, 0, 0)
			gaps = []string{"a call of another interface returned"}
		default:
			gaps = append(everyCall(), attempts()...)
		}
		payload, _ := json.Marshal(gaps)
		send(2, frame[1:9], payload)
	}
}

// everyCall makes every call of the kernel with arguments of zero, but for
// those that would end or block the caller, and returns what was answered
// although it should not be.
func everyCall() []string {
	skipped := []uintptr{unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_RT_SIGRETURN, unix.SYS_PPOLL, unix.SYS_RESTART_SYSCALL,
		unix.SYS_CLOSE, unix.SYS_SET_TID_ADDRESS, 335, 336} // the last two trap by design, filtered or not
	gaps, answered := []string{}, 0
	for call := range uintptr(470) {
		if slices.Contains(skipped, call) {
			continue
		}
		pid, _, errno := unix.RawSyscall6(call, 0, 0, 0, 0, 0, 0)
		if call == unix.SYS_CLONE && errno == 0 && pid == 0 {
			os.Exit(1)
		}
		if errno != unix.EPERM && errno != unix.ENOSYS && errno != unix.EAFNOSUPPORT {
			answered++
			for name, number := range sandbox.Calls {
				if uint32(call) == number && slices.Contains(neverAnswered, name) {
					gaps = append(gaps, fmt.Sprintf("%s was answered with %v", name, errno))
				}
			}
		}
	}
	if answered < 40 || answered > 100 {
		gaps = append(gaps, fmt.Sprintf("%d calls were answered", answered))
	}
	return gaps
}

var neverAnswered = strings.Fields(`ptrace bpf io_uring_setup mount unshare setns keyctl userfaultfd memfd_create perf_event_open execveat
	bind listen accept4 socketpair process_vm_readv shmat pkey_mprotect seccomp sysinfo pidfd_getfd open_by_handle_at chroot setuid unlinkat
	clone clone3 execve socket`)

// attempts are single steps of an exploit, each with what must come of it.
func attempts() (gaps []string) {
	path, _ := unix.BytePtrFromString("/bin/node")
	argv := []*byte{path, nil}
	const anonymous = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	page, _, errno := unix.RawSyscall6(unix.SYS_MMAP, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, anonymous, ^uintptr(0), 0)
	if errno != 0 {
		return []string{"no memory at all"}
	}
	for _, a := range []struct {
		what string
		call uintptr
		args [6]uintptr
		want unix.Errno
	}{
		{"execve", unix.SYS_EXECVE, [6]uintptr{uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(&argv[0]))}, unix.EPERM},
		{"fork", unix.SYS_CLONE, [6]uintptr{uintptr(unix.SIGCHLD)}, unix.EPERM},
		{"a user namespace", unix.SYS_CLONE, [6]uintptr{unix.CLONE_NEWUSER | uintptr(unix.SIGCHLD)}, unix.EPERM},
		{"memory to write and execute", unix.SYS_MMAP, [6]uintptr{0, 4096, unix.PROT_READ | unix.PROT_WRITE | unix.PROT_EXEC, anonymous, ^uintptr(0)}, unix.EPERM},
		{"memory to execute", unix.SYS_MMAP, [6]uintptr{0, 4096, unix.PROT_READ | unix.PROT_EXEC, anonymous, ^uintptr(0)}, unix.EPERM},
		{"executing what was written", unix.SYS_MPROTECT, [6]uintptr{page, 4096, unix.PROT_READ | unix.PROT_EXEC}, unix.EACCES},
		{"shared memory", unix.SYS_MMAP, [6]uintptr{0, 4096, unix.PROT_READ, unix.MAP_SHARED | unix.MAP_ANONYMOUS, ^uintptr(0)}, unix.EPERM},
		{"a TCP socket", unix.SYS_SOCKET, [6]uintptr{unix.AF_INET, unix.SOCK_STREAM}, unix.EAFNOSUPPORT},
		{"a TCP socket over IPv6", unix.SYS_SOCKET, [6]uintptr{unix.AF_INET6, unix.SOCK_STREAM}, unix.EAFNOSUPPORT},
		{"a netlink socket", unix.SYS_SOCKET, [6]uintptr{unix.AF_NETLINK, unix.SOCK_RAW}, unix.EAFNOSUPPORT},
		{"a vsock", unix.SYS_SOCKET, [6]uintptr{unix.AF_VSOCK, unix.SOCK_STREAM}, unix.EAFNOSUPPORT},
		{"a signal to all", unix.SYS_KILL, [6]uintptr{^uintptr(0), 9}, unix.EPERM},
		{"a higher limit", unix.SYS_PRLIMIT64, [6]uintptr{0, unix.RLIMIT_DATA, page}, unix.EPERM},
		{"dumping", unix.SYS_PRCTL, [6]uintptr{unix.PR_SET_DUMPABLE, 1}, unix.EINVAL},
	} {
		_, _, errno := unix.RawSyscall6(a.call, a.args[0], a.args[1], a.args[2], a.args[3], a.args[4], a.args[5])
		if errno != a.want {
			gaps = append(gaps, fmt.Sprintf("%s: %v instead of %v", a.what, errno, a.want))
		}
	}
	for _, file := range []string{"/", "/etc", "/etc/passwd", "/proc/1/environ", "/proc/self/mem", "/dev/mem"} {
		if f, err := os.Open(file); err == nil {
			_, err = f.Readdirnames(1)
			gaps = append(gaps, fmt.Sprintf("%s was opened: %v", file, err))
		}
	}
	return gaps
}

// TestNativeCodeReachesNothing lets the stand-in loose. New runs it already, for
// its self-test, and would refuse what it found.
func TestNativeCodeReachesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector, which runs the short form, needs more memory than a sandbox has")
	}
	const self = "/proc/self/exe"
	s := open(t, func(o *sandbox.Settings) { o.Node = self })
	if s.Level() != sandbox.Full {
		t.Fatalf("the level is %v, want full", s.Level())
	}
	if got := value(t, s, program("t", "calls", "1", ""), nil); got != "[]" {
		t.Errorf("gaps: %s", got)
	}
	// What the JIT needs is a gap that the stand-in finds.
	_, err := sandbox.New(t.Context(), sandbox.Settings{Runtime: runtimeFolder(t), Scratch: t.TempDir(), Node: self, JIT: true})
	if err == nil || !strings.Contains(err.Error(), "memory to write and execute") {
		t.Errorf("with the JIT: %v; want executable memory found", err)
	}
	out, err := run(t, s, program("t", "foreign", "1", ""), "foreign")
	if got := told(out, err); got != "exited" {
		t.Errorf("a call of another interface: got %s, want the end of the process", got)
	}
}
