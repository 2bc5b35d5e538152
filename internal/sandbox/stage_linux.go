package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The first stage is this binary once more, inside the new namespaces. It gives
// up everything, in an order in which each step is still allowed to do its work,
// and becomes node.

const (
	controlFD     = 3
	maxFiles      = 256
	maxThreads    = 16
	oomFirst      = "1000" // when memory is short, a sandbox goes before anything else
	lockedSecure  = 0x2f   // no root, no set-user-id fixup, both and keep-caps locked
	highestCap    = 63
	exitUnusable  = 125
	sandboxedHost = "sandbox"
)

// work is what the launcher tells the stage.
type work struct {
	Level     Level
	User      int    // without namespaces: become this user; 0 to stay
	Threads   uint64 // 0 for no limit, where it would count other processes
	DataMiB   int
	JIT       bool
	Argv, Env []string
	Readable  []readable
}

// work translates an order. Without namespaces and without being root there is
// no root of its own, and paths are those of the machine.
func (p plan) work(o order) work {
	w := work{Level: o.Level, DataMiB: p.DataMiB, JIT: p.JIT, Threads: maxThreads}
	prefix := ""
	switch {
	case o.Level == Full:
	case os.Geteuid() == 0 && o.Level == Reduced:
		w.User = p.FirstUser + o.Slot
	default:
		prefix = p.Root
		w.Threads = 0 // would count all processes of this user
	}
	w.Argv = append([]string{prefix + "/bin/node"}, p.Node...)
	w.Argv = append(w.Argv, prefix+"/app/runner.js", p.HeaderPrefix)
	w.Env = []string{
		"PATH=/bin", "HOME=/", "LANG=C.UTF-8", "TZ=UTC", "NODE_ENV=production",
		"OPENSSL_CONF=" + prefix + "/app/openssl.cnf", "NODE_EXTRA_CA_CERTS=" + prefix + "/app/ca.pem",
	}
	if o.Socket != "" {
		w.Env = append(w.Env, "TOKENKEEP_PARENT="+o.Socket)
	}
	w.Readable = []readable{{prefix + "/bin/node", true, false}, {prefix + "/app", false, true}}
	if prefix == "" {
		w.Readable = append(w.Readable, readable{"/proc", false, true})
	}
	for _, l := range p.Libraries {
		w.Readable = append(w.Readable, readable{l, true, false})
	}
	return w
}

// stage does not return when all goes well.
func stage(argument string) {
	runtime.LockOSThread() // all of it is done by, and holds for, the thread that execs
	var w work
	err := json.Unmarshal([]byte(argument), &w)
	if err == nil {
		var begin [1]byte
		switch n, failed := unix.Read(controlFD, begin[:]); {
		case failed != nil:
			err = failed
		case n == 0:
			err = errors.New("the launcher is gone")
		default:
			err = w.become()
		}
	}
	_, _ = fmt.Fprintf(os.Stderr, "sandbox: %v\n", err)
	os.Exit(exitUnusable)
}

func (w work) become() error {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(oomFirst), 0)
	if err := w.enterRoot(); err != nil {
		return err
	}
	if err := w.limit(); err != nil {
		return err
	}
	if err := w.dropPrivileges(); err != nil {
		return err
	}
	if err := w.landlock(); err != nil {
		return err
	}
	return w.exec()
}

// enterRoot makes the prepared folder the root: read-only, with nothing else
// mounted. The folder is the working directory, which the launcher entered
// before: what lies above it need not be open to the user of the sandbox.
func (w work) enterRoot() error {
	if w.Level == Full {
		if err := pivot(); err != nil {
			return err
		}
		return unix.Sethostname([]byte(sandboxedHost))
	}
	if w.User != 0 {
		if err := unix.Chroot("."); err != nil {
			return fmt.Errorf("change the root: %w", err)
		}
	}
	return unix.Chdir("/")
}

func pivot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, ".", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("copy the root: %w", err)
	}
	attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attributes); err != nil {
		return fmt.Errorf("make the root read-only: %w", err)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, ".", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount the root: %w", err)
	}
	if err := unix.Fchdir(tree); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot to the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	return unix.Chdir("/")
}

func (w work) limit() error {
	unix.Umask(0o077)
	limits := []struct {
		resource int
		value    uint64
	}{
		{unix.RLIMIT_CORE, 1}, // 0 would still feed a program that collects cores
		{unix.RLIMIT_FSIZE, 0},
		{unix.RLIMIT_MEMLOCK, 0},
		{unix.RLIMIT_MSGQUEUE, 0},
		{unix.RLIMIT_NOFILE, maxFiles},
		{unix.RLIMIT_NPROC, w.Threads},
	}
	for _, l := range limits {
		if l.resource == unix.RLIMIT_NPROC && l.value == 0 {
			continue
		}
		if err := setLimit(l.resource, l.value); err != nil {
			return err
		}
	}
	return nil
}

func setLimit(resource int, value uint64) error {
	if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: value, Max: value}); err != nil {
		return fmt.Errorf("set limit %d: %w", resource, err)
	}
	return nil
}

func (w work) dropPrivileges() error {
	if w.User != 0 {
		if err := becomeUser(uintptr(w.User)); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	// These need capabilities, and a process without any has nothing to drop.
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	_ = unix.Prctl(unix.PR_SET_SECUREBITS, lockedSecure, 0, 0, 0)
	for c := uintptr(0); c <= highestCap; c++ {
		if unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0) != nil {
			break
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	// After the last change of credentials, which would clear it.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("bind to the launcher: %w", err)
	}
	return nil
}

// becomeUser changes this thread alone, which is the one that execs.
func becomeUser(id uintptr) error {
	for c := uintptr(0); c <= highestCap; c++ {
		if unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0) != nil {
			break
		}
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return fmt.Errorf("leave groups: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, id, id, id); errno != 0 {
		return fmt.Errorf("change group: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, id, id, id); errno != 0 {
		return fmt.Errorf("change user: %w", errno)
	}
	return nil
}

func (w work) landlock() error {
	err := landlock(w.Readable)
	if errors.Is(err, unix.ENOSYS) && (w.Level == Full || w.User != 0) {
		return nil // the root holds nothing else anyway
	}
	return err
}

// exec installs the filter, hands the descriptor of its announcements to the
// server, and becomes node.
func (w work) exec() error {
	path, err := unix.BytePtrFromString(w.Argv[0])
	if err != nil {
		return err
	}
	argv, err := syscall.SlicePtrFromStrings(w.Argv)
	if err != nil {
		return err
	}
	env, err := syscall.SlicePtrFromStrings(w.Env)
	if err != nil {
		return err
	}
	f := filter(filterOptions{execPath: uintptr(unsafe.Pointer(path)), pid: unix.Getpid(), jit: w.JIT})
	// Last of the limits: from here on this process asks for no memory.
	if err := setLimit(unix.RLIMIT_DATA, uint64(w.DataMiB)<<20); err != nil {
		return err
	}
	listener, err := installFilter(f)
	if err != nil {
		return fmt.Errorf("install the filter: %w", err)
	}
	if err := unix.Sendmsg(controlFD, []byte{0}, unix.UnixRights(listener), nil, 0); err != nil {
		return fmt.Errorf("hand over the listener: %w", err)
	}
	_, _, errno := unix.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&env[0])))
	return fmt.Errorf("start node: %w", errno)
}
