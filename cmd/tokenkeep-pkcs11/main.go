//go:build cgo && unix

// Tokenkeep-pkcs11 uses a key in a PKCS#11 token for the server that started it.
//
// It promises to do nothing but what its standard input asks for, and to end
// with it. It never shows a PIN or a key, and what a module prints goes nowhere.
// It is a program of its own because a module is foreign native code: the server
// stays a static binary, and outlives a module that crashes or hangs.
package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tokenkeep/tokenkeep/internal/keyring/pkcs11/wire"
)

func main() {
	out, err := takeOutput()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tokenkeep-pkcs11: "+err.Error())
		os.Exit(1)
	}
	// Whoever signals the server signals its group: the server ends this program
	// when no request needs it any more.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	calls := make(chan wire.Message)
	go func() {
		for {
			m, err := wire.Read(os.Stdin)
			if err != nil {
				os.Exit(0) // the server is gone; a module that hangs must not keep us
			}
			calls <- m
		}
	}()
	serve(calls, out)
}

// takeOutput returns the standard output for messages and leaves an empty one to
// the module: some print what they do.
func takeOutput() (io.Writer, error) {
	fd, err := unix.Dup(1)
	if err != nil {
		return nil, fmt.Errorf("keep the standard output: %w", err)
	}
	unix.CloseOnExec(fd)
	empty, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the empty device: %w", err)
	}
	if err := unix.Dup2(int(empty.Fd()), 1); err != nil {
		return nil, fmt.Errorf("replace the standard output: %w", err)
	}
	return os.NewFile(uintptr(fd), "messages"), nil
}

// serve responds to one call after the other.
func serve(calls <-chan wire.Message, out io.Writer) {
	open := <-calls
	target, err := wire.DecodeTarget(open.Payload)
	clear(open.Payload)
	if open.Kind != wire.Open || err != nil {
		os.Exit(2)
	}
	t, failed := openToken(target)
	clear(target.PIN)
	for call := range calls {
		reply := wire.Message{ID: call.ID, Kind: failed}
		if failed == wire.OK {
			reply.Kind, reply.Payload = t.do(call)
		}
		clear(call.Payload)
		err := wire.Write(out, reply)
		clear(reply.Payload)
		if err != nil || reply.Kind == wire.Unavailable {
			os.Exit(1) // the server starts another, which begins from nothing
		}
	}
}
