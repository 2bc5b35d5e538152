package pgtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// runName names a process: its id, and the moment of its start, because ids
// are used again.
func runName(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const started = 19 // of the fields after the name
	if len(fields) <= started {
		return strconv.Itoa(pid)
	}
	return strconv.Itoa(pid) + "-" + fields[started]
}

// ended returns a channel that is closed when the process with that name has
// ended.
func ended(name string) <-chan struct{} {
	over := make(chan struct{})
	id, _, _ := strings.Cut(name, "-")
	pid, err := strconv.Atoi(id)
	if err != nil {
		return over
	}
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case runName(pid) != name: // already; its id may be another's by now
		close(over)
	case err == nil:
		go func() {
			for {
				n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
				if n == 1 || err != unix.EINTR {
					close(over)
					return
				}
			}
		}()
	}
	return over // without that system call, idleTime decides
}

// attributes run a process under an account and end it with the tests, also
// when those are killed.
func attributes(account *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: account, Pdeathsig: syscall.SIGQUIT}
}

// killAll kills the server with its children. It is stopped first, so that it
// cannot make new ones.
func killAll(p *os.Process) {
	_ = p.Signal(syscall.SIGSTOP)
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// "pid (name) state parent ...", and the name may hold anything.
		var state string
		var parent int
		behind := text[bytes.LastIndexByte(text, ')')+1:]
		if _, err := fmt.Sscan(string(behind), &state, &parent); err != nil || parent != p.Pid {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	_ = p.Kill()
}
