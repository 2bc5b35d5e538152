package pgtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

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
