package sandbox_test

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tokenkeep/tokenkeep/internal/sandbox"
)

// A signal that interrupted the look at a sandbox's connects was once taken for
// the end of the sandbox, and its next connect failed.
func TestASignalIsNotTheEndOfASandbox(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close(); _ = w.Close() }()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread := unix.Gettid()
	var sent atomic.Bool
	go func() {
		defer sent.Store(true)
		for range 20_000 {
			_ = unix.Tgkill(os.Getpid(), thread, unix.SIGURG) // as the runtime sends it
		}
	}()
	for !sent.Load() {
		if ready, err := sandbox.Look(r.Fd()); ready != 0 || err != nil {
			t.Fatalf("a pipe with nothing in it is ready for %x, %v", ready, err)
		}
	}
	if _, err := w.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if ready, err := sandbox.Look(r.Fd()); ready&unix.POLLIN == 0 || err != nil {
		t.Errorf("a pipe with something in it is ready for %x, %v", ready, err)
	}
}
