package sandbox

import (
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Every connect of a sandbox arrives here. The answer is always the same: its
// socket is replaced by one end of a new pair whose other end is ours. The
// address is never read, so it cannot be changed between a check and its use.

// The kernel's structures.
type (
	notification struct {
		id    uint64
		pid   uint32
		flags uint32
		data  struct {
			number int32
			arch   uint32
			at     uint64
			args   [6]uint64
		}
	}
	notificationAnswer struct {
		id    uint64
		value int64
		errno int32
		flags uint32
	}
	notificationFile struct {
		id        uint64
		flags     uint32
		ours      uint32
		theirs    uint32
		fileFlags uint32
	}
)

const replaceFile = 1 // SECCOMP_ADDFD_FLAG_SETFD

// Requests on the descriptor, '!' being seccomp's letter.
var (
	notifyReceive = ioctlRequest(3, 0, unsafe.Sizeof(notification{}))
	notifyAnswer  = ioctlRequest(3, 1, unsafe.Sizeof(notificationAnswer{}))
	notifyAddFile = ioctlRequest(1, 3, unsafe.Sizeof(notificationFile{}))
)

func ioctlRequest(direction, number, size uintptr) uintptr {
	return direction<<30 | size<<16 | '!'<<8 | number
}

// serveConnects answers until the process is gone. admit gives what serves our
// end of one more stream, or nil to refuse it.
func serveConnects(listener *os.File, admit func() (serve func(net.Conn))) {
	defer listener.Close()
	raw, err := listener.SyscallConn()
	if err != nil {
		return
	}
	var connects pace
	for {
		n, ok := nextConnect(listener)
		if !ok {
			return
		}
		connects.step()
		if n.id == 0 {
			continue // the caller was gone before we asked
		}
		answer := notificationAnswer{id: n.id, errno: -int32(unix.ECONNREFUSED)}
		if n.data.number == unix.SYS_CONNECT {
			if serve := admit(); serve != nil {
				conn := replaceSocket(listener, n)
				if conn != nil {
					answer.errno = 0
				}
				serve(conn)
			}
		}
		_ = raw.Control(func(fd uintptr) {
			_, _, _ = unix.Syscall(unix.SYS_IOCTL, fd, notifyAnswer, uintptr(unsafe.Pointer(&answer)))
		})
	}
}

// nextConnect waits for a notification; its id is 0 when it was withdrawn.
func nextConnect(listener *os.File) (n notification, ok bool) {
	raw, err := listener.SyscallConn()
	if err != nil {
		return n, false
	}
	err = raw.Read(func(fd uintptr) bool {
		ready, err := look(fd)
		if ready == 0 && err == nil {
			return false
		}
		if ready&unix.POLLIN == 0 {
			return true // hung up
		}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, notifyReceive, uintptr(unsafe.Pointer(&n)))
		ok = errno == 0 || errno == unix.EINTR || errno == unix.ENOENT
		if errno != 0 {
			n.id = 0
		}
		return true
	})
	return n, ok && err == nil
}

// look returns what a descriptor is ready for at this moment, 0 for nothing. A
// signal interrupts even a poll that does not wait, and the Go runtime sends
// many: that is neither readiness nor the end of the other side.
func look(fd uintptr) (ready int16, err error) {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(poll, 0)
		if err != unix.EINTR {
			return poll[0].Revents, err
		}
	}
}

// replaceSocket puts a new stream where the sandbox had its socket; nil when
// that did not work.
func replaceSocket(listener *os.File, n notification) net.Conn {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	file := notificationFile{id: n.id, flags: replaceFile, ours: uint32(pair[1]), theirs: uint32(n.data.args[0]), fileFlags: unix.O_CLOEXEC}
	errno := unix.EBADF
	if raw, err := listener.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, notifyAddFile, uintptr(unsafe.Pointer(&file)))
		})
	}
	_ = unix.Close(pair[1])
	if errno != 0 {
		_ = unix.Close(pair[0])
		return nil
	}
	conn, err := unixConn(pair[0])
	if err != nil {
		return nil
	}
	return conn
}
