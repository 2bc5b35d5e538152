//go:build !linux

package pgtest

import (
	"os"
	"strconv"
	"syscall"
)

func runName(pid int) string { return strconv.Itoa(pid) }

// ended returns a channel that is never closed: here, a host ends when nobody
// is connected any more.
func ended(string) <-chan struct{} { return make(chan struct{}) }

func attributes(account *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: account}
}

// killAll ends the server without a shutdown: its children cannot be found
// here, and they end when it is gone.
func killAll(p *os.Process) { _ = p.Signal(syscall.SIGQUIT) }
