package sandbox

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// readable is a path that a process may read, and perhaps execute.
type readable struct {
	Path         string
	Exec, Folder bool
}

// landlockVersion is what the kernel knows of Landlock, 0 for nothing.
func landlockVersion() int {
	v, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// landlock leaves the calling thread the given paths to read and takes all
// else that this kernel can take: every other access to files, TCP, abstract
// sockets and signals to processes outside.
func landlock(paths []readable) error {
	// The kernel's struct; it may be passed as short as an older kernel knew it.
	var rules struct{ files, network, scopes uint64 }
	size := uintptr(8)
	version := landlockVersion()
	switch {
	case version < 1:
		return unix.ENOSYS
	case version >= 6:
		rules.scopes = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
		size = 24
	case version >= 4:
		size = 16
	}
	rules.files = 1<<13 - 1 // version 1: from execute to make_sym
	if version >= 2 {
		rules.files |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if version >= 3 {
		rules.files |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version >= 4 {
		rules.network = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if version >= 5 {
		rules.files |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	set, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rules)), size, 0)
	if errno != 0 {
		return fmt.Errorf("landlock: make rules: %w", errno)
	}
	defer func() { _ = unix.Close(int(set)) }()
	for _, p := range paths {
		if err := allowPath(int(set), p); err != nil {
			return err
		}
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); errno != 0 {
		return fmt.Errorf("landlock: restrict: %w", errno)
	}
	return nil
}

func allowPath(set int, p readable) error {
	fd, err := unix.Open(p.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("landlock: open %s: %w", p.Path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	access := uint64(unix.LANDLOCK_ACCESS_FS_READ_FILE)
	if p.Exec {
		access |= unix.LANDLOCK_ACCESS_FS_EXECUTE
	}
	if p.Folder {
		access |= unix.LANDLOCK_ACCESS_FS_READ_DIR
	}
	beneath := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	if _, _, errno := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&beneath)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("landlock: allow %s: %w", p.Path, errno)
	}
	return nil
}
