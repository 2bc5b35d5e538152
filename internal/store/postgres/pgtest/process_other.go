//go:build !linux

package pgtest

import (
	"os"
	"syscall"
)

func attributes(account *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: account}
}

// killAll ends the server without a shutdown: its children cannot be found
// here, and they end when it is gone.
func killAll(p *os.Process) { _ = p.Signal(syscall.SIGQUIT) }
