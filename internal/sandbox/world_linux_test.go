package sandbox_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/sandbox"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	if os.Args[0] == "/bin/node" {
		os.Exit(native())
	}
	if helper := os.Getenv("SANDBOX_TEST_HELPER"); helper != "" {
		os.Exit(help(helper))
	}
	code := m.Run()
	if shared != nil {
		if err := shared.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// shared is the sandbox of tests that need none of their own.
var shared *sandbox.Sandbox

func common(t testing.TB) *sandbox.Sandbox {
	t.Helper()
	if shared == nil {
		s, err := sandbox.New(t.Context(), sandbox.Settings{Runtime: runtimeFolder(t)})
		if err != nil {
			t.Fatalf("New: %v", err)
		}
		shared = s
	}
	return shared
}

// runtimeFolder finds the runtime, or skips the test.
func runtimeFolder(t testing.TB) string {
	t.Helper()
	return runtimetest.Find(t).Folder
}

// open makes a sandbox that is closed with the test.
func open(t testing.TB, change func(*sandbox.Settings)) *sandbox.Sandbox {
	t.Helper()
	settings := sandbox.Settings{Runtime: runtimeFolder(t), Scratch: t.TempDir(), Blank: 2}
	if change != nil {
		change(&settings)
	}
	s, err := sandbox.New(t.Context(), settings)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// patience is for calls that are not about time.
const patience = time.Hour

// program has a version that changes with its code.
func program(tenant, id, version, code string) sandbox.Program {
	return sandbox.Program{Tenant: tenant, ID: id, Version: fmt.Sprintf("%s-%x", version, sha256.Sum256([]byte(code))), Sources: map[string]string{"main": code}}
}

func input(args any) []byte {
	text, err := json.Marshal(map[string]any{"args": args, "configuration": map[string]string{"SECRET": "configured"}})
	if err != nil {
		panic(err)
	}
	return text
}

// run runs code as a program of its own, with patience.
func run(t testing.TB, s *sandbox.Sandbox, p sandbox.Program, args any) (sandbox.Outcome, error) {
	t.Helper()
	return s.Run(t.Context(), p, sandbox.Call{Entry: "main", Input: input(args), Timeout: patience})
}

// value runs code that must return something.
func value(t testing.TB, s *sandbox.Sandbox, p sandbox.Program, args any) string {
	t.Helper()
	out, err := run(t, s, p, args)
	if err != nil || out.Thrown != nil {
		t.Fatalf("Run: %v, thrown %+v; want a value", err, out.Thrown)
	}
	return string(out.Value)
}

var outcomeNames = map[sandbox.Reason]string{
	sandbox.Refused: "refused", sandbox.TimedOut: "timed_out", sandbox.OutOfMemory: "out_of_memory", sandbox.Exited: "exited",
	sandbox.DidNotSettle: "did_not_settle", sandbox.NoFunction: "no_function", sandbox.BadResult: "bad_result",
	sandbox.TooLarge: "too_large", sandbox.Broke: "broke",
}

// told puts an outcome into words, as the rows of tests have them.
func told(out sandbox.Outcome, err error) string {
	var f *sandbox.Failure
	switch {
	case errors.As(err, &f):
		return outcomeNames[f.Reason]
	case err != nil:
		return "error " + err.Error()
	case out.Thrown != nil:
		return "thrown " + out.Thrown.Name
	case out.Value == nil:
		return "nothing"
	}
	return "value " + string(out.Value)
}

// refusal is an error of a dialler with the code that programs see.
type refusal string

func (r refusal) Error() string { return "refused" }
func (r refusal) Errno() string { return string(r) }

func refuseAll(context.Context, string, string, int) (net.Conn, error) { return nil, refusal("EACCES") }

func help(name string) int {
	switch name {
	case "victim":
		return victim()
	}
	fmt.Fprintln(os.Stderr, "no such helper")
	return 2
}
