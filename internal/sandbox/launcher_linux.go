package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The launcher is this binary once more, started by the server with an empty
// environment. It makes the sandboxes, because a fork into a user namespace
// copies the page tables of the forking process: from the server, with its heap
// and its keys, that would stall every request and put both into the copy.
//
// It ends when the server does, because its socket does; and its sandboxes end
// with it, by the signal that the kernel sends them.

// The names by which a process knows that it is a launcher or a first stage.
const (
	launcherName = "tokenkeep-launcher"
	stageName    = "tokenkeep-stage"
)

const launchWait = 20 * time.Second

// plan is what all sandboxes of a launcher have in common.
type plan struct {
	Root      string   // the prepared folder; also the working directory of the launcher
	Libraries []string // what node is linked with, as paths of this machine
	Node      []string // arguments of node
	DataMiB   int
	JIT       bool
	FirstUser int // as root, the user of slot 0

	HeaderPrefix string
}

// order asks for one sandbox.
type order struct {
	Socket string // where there is no filter, the path for connections
	Slot   int
	Level  Level
}

// delivery answers an order; the descriptors come beside it: control stream,
// the process, and its standard error.
type delivery struct {
	PID   int
	Error string
}

// Main must be called first in the main function of every binary that makes a
// Sandbox, tests included. It reports true when the process was started by this
// package for work of its own, which is then done: the caller returns at once.
func Main() bool {
	if len(os.Args) != 2 {
		return false
	}
	switch os.Args[0] {
	case launcherName:
		launch(os.Args[1])
	case stageName:
		stage(os.Args[1])
	default:
		return false
	}
	return true
}

// launch serves orders until the server is gone.
func launch(argument string) {
	// The kernel ends the sandboxes when the thread that made them ends; this
	// one lasts as long as the process.
	runtime.LockOSThread()
	// Whoever stops the server, with all of its processes, gives it the time to
	// finish what runs. Caught, not ignored: ignoring would be inherited.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	var p plan
	if json.Unmarshal([]byte(argument), &p) != nil {
		return
	}
	orders, err := unixConn(3)
	if err != nil {
		return
	}
	groups := findGroups()
	buffer := make([]byte, 4096)
	for {
		n, err := orders.Read(buffer)
		if err != nil || n == 0 {
			return
		}
		var o order
		if json.Unmarshal(buffer[:n], &o) != nil {
			return
		}
		d, files, err := p.start(o, groups)
		if err != nil {
			d.Error = err.Error()
		}
		text, _ := json.Marshal(d)
		var rights []byte
		if len(files) > 0 {
			rights = unix.UnixRights(files...)
		}
		_, _, err = orders.WriteMsgUnix(text, rights, nil)
		for _, fd := range files {
			_ = unix.Close(fd)
		}
		if err != nil {
			return
		}
	}
}

// start makes one process, and returns the descriptors for the server.
func (p plan) start(o order, groups *groups) (delivery, []int, error) {
	control, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return delivery{}, nil, fmt.Errorf("make a control stream: %w", err)
	}
	child := os.NewFile(uintptr(control[1]), "control")
	defer child.Close()
	// Full, it refuses more instead of keeping the writer waiting.
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		_ = unix.Close(control[0])
		return delivery{}, nil, fmt.Errorf("make a pipe: %w", err)
	}
	words := os.NewFile(uintptr(pipe[1]), "errors")
	defer words.Close()
	mine := []int{control[0], pipe[0]}

	pidfd := -1
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"GOMAXPROCS=1", "GOGC=off"}
	cmd.Stderr = words // a pipe: a file would run into the limit of file sizes
	cmd.ExtraFiles = []*os.File{child}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd}
	w := p.work(o)
	switch text, err := json.Marshal(w); {
	case err != nil:
		closeAll(mine)
		return delivery{}, nil, err
	case o.Level == UnsafeNone:
		cmd.Path, cmd.Args, cmd.Env = w.Argv[0], w.Argv, w.Env
		cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	default:
		cmd.Args = []string{stageName, string(text)}
	}
	if o.Level == Full {
		namespaces(cmd.SysProcAttr, p.FirstUser+o.Slot)
	}
	if err := cmd.Start(); err != nil {
		closeAll(mine)
		return delivery{}, nil, fmt.Errorf("start: %w", plainError(err))
	}
	leave := groups.enter(cmd.Process.Pid, p.DataMiB)
	go func() {
		_ = cmd.Wait()
		leave()
	}()
	// The stage waits for this byte, so nothing runs before it is in its group.
	if o.Level != UnsafeNone {
		_, err = unix.Write(control[0], []byte{0})
	}
	if err != nil {
		_ = cmd.Process.Kill()
		closeAll(append(mine, pidfd))
		return delivery{}, nil, fmt.Errorf("begin: %w", err)
	}
	return delivery{PID: cmd.Process.Pid}, []int{control[0], pidfd, pipe[0]}, nil
}

// plainError leaves the path out of what the system says.
func plainError(err error) error {
	if pe := (*os.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// namespaces asks for all of them. As root every sandbox gets a user of its own.
func namespaces(a *syscall.SysProcAttr, user int) {
	root := os.Geteuid() == 0
	group := user
	if !root {
		user, group = os.Geteuid(), os.Getegid()
	}
	a.Cloneflags = newNamespaces
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: user, Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: group, Size: 1}}
	// Root becomes that user and leaves its groups; others may not change theirs.
	a.GidMappingsEnableSetgroups = root
	a.Credential = &syscall.Credential{NoSetGroups: !root}
}

// launcher is the server's side.
type launcher struct {
	plan plan

	mu      sync.Mutex // guards the conversation
	orders  *net.UnixConn
	process *os.Process
}

// started is a process as the launcher handed it over.
type started struct {
	control *net.UnixConn
	pidfd   *os.File
	errors  *os.File
	pid     int
}

func (l *launcher) begin() error {
	argument, err := json.Marshal(l.plan)
	if err != nil {
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a socket: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "orders")
	defer theirs.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{launcherName, string(argument)}
	cmd.Env = []string{}
	cmd.Dir = l.plan.Root // sandboxes find their root here, whatever lies above it
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		_ = unix.Close(pair[0])
		return plainError(err)
	}
	go func() { _ = cmd.Wait() }()
	l.process = cmd.Process
	l.orders, err = unixConn(pair[0])
	return err
}

// start orders one sandbox. A launcher that is gone is replaced.
func (l *launcher) start(ctx context.Context, o order) (started, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return started{}, ctx.Err()
	}
	if l.orders == nil {
		if err := l.begin(); err != nil {
			return started{}, fmt.Errorf("start the launcher: %w", err)
		}
	}
	s, err := l.talk(o)
	if broken := (*brokenError)(nil); errors.As(err, &broken) {
		l.end()
	}
	return s, err
}

// brokenError says that the launcher itself is of no more use.
type brokenError struct{ cause error }

func (e *brokenError) Error() string { return "the launcher is gone: " + e.cause.Error() }

func (l *launcher) talk(o order) (started, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return started{}, err
	}
	if err := l.orders.SetDeadline(time.Now().Add(launchWait)); err != nil {
		return started{}, &brokenError{err}
	}
	if _, err := l.orders.Write(text); err != nil {
		return started{}, &brokenError{err}
	}
	buffer := make([]byte, 4096)
	beside := make([]byte, unix.CmsgSpace(3*4))
	n, besides, _, _, err := l.orders.ReadMsgUnix(buffer, beside)
	if err != nil {
		return started{}, &brokenError{err}
	}
	fds := rights(beside[:besides])
	var d delivery
	if err := json.Unmarshal(buffer[:n], &d); err != nil || (d.Error == "" && len(fds) != 3) {
		closeAll(fds)
		return started{}, &brokenError{errors.New("it broke the protocol")}
	}
	if d.Error != "" {
		closeAll(fds)
		return started{}, errors.New(d.Error)
	}
	control, err := unixConn(fds[0])
	if err != nil {
		closeAll(fds[1:])
		return started{}, err
	}
	return started{control: control, pidfd: pollable(fds[1], "process"), errors: pollable(fds[2], "errors"), pid: d.PID}, nil
}

// end lets the launcher go, and with it every sandbox that it made.
func (l *launcher) end() {
	if l.orders == nil {
		return
	}
	_ = l.orders.Close()
	_ = l.process.Kill()
	l.orders = nil
}

// rights takes descriptors out of a control message.
func rights(beside []byte) []int {
	messages, err := unix.ParseSocketControlMessage(beside)
	if err != nil {
		return nil
	}
	var all []int
	for _, m := range messages {
		if fds, err := unix.ParseUnixRights(&m); err == nil {
			all = append(all, fds...)
		}
	}
	return all
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// pollable wraps a descriptor so that waiting for it takes no thread.
func pollable(fd int, name string) *os.File {
	_ = unix.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), name)
}

// unixConn takes over a descriptor of a unix socket.
func unixConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "socket "+strconv.Itoa(fd))
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, errors.New("not a unix socket")
	}
	return u, nil
}
