package sandbox_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/sandbox"
)

// TestGroupsAreEnteredWhereTheyWereGiven uses a plain folder for the kernel's
// tree: which group is taken, what is written, and what is left alone.
func TestGroupsAreEnteredWhereTheyWereGiven(t *testing.T) {
	top := t.TempDir()
	service := filepath.Join(top, "system.slice", "tokenkeep.service")
	own := filepath.Join(service, "server")
	stale := filepath.Join(service, "tokenkeep-sandbox-999999999-1")
	for _, folder := range []string{own, stale} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	none := func(string) bool { return false }
	if folder, _ := sandbox.EnterGroup(top, own, none, 1, 1); folder != "" {
		t.Errorf("took %s, which nobody gave", folder)
	}
	given := func(folder string) bool { return folder == service || folder == own }
	folder, leave := sandbox.EnterGroup(top, own, given, 4711, 256)
	if folder != service {
		t.Fatalf("took %q, want the group above the own", folder)
	}
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("the group of a launcher that is gone is still there: %v", err)
	}
	groups, _ := filepath.Glob(filepath.Join(service, "tokenkeep-sandbox-*-4711"))
	if len(groups) != 1 {
		t.Fatalf("groups: %v, want one of process 4711", groups)
	}
	for name, want := range map[string]string{"memory.max": "335544320", "memory.swap.max": "0", "pids.max": "32", "cgroup.procs": "4711"} {
		if got, err := os.ReadFile(filepath.Join(groups[0], name)); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
		}
	}
	leave()
}

func TestMessagesQuoteNoCode(t *testing.T) {
	for message, want := range map[string]string{
		"Unexpected token ';'":                                    "Unexpected token ';'",
		"Unexpected token 'export'":                               "Unexpected token 'export'",
		"Unexpected token '4242424242424242'":                     "Unexpected token '...'",
		"Identifier 'secret' has already been declared":           "Identifier '...' has already been declared",
		"Invalid regular expression: /4242(/: Unterminated group": "Invalid regular expression: Unterminated group",
		"missing ) after argument list":                           "missing ) after argument list",
		"Undefined label 'a\nb'":                                  "Undefined label '...'",
		"line\nbreak":                                             "linebreak",
		strings.Repeat("x", 1000):                                 strings.Repeat("x", 200),
	} {
		if got := sandbox.WithoutQuotes(message); got != want {
			t.Errorf("WithoutQuotes(%q): got %q, want %q", message, got, want)
		}
	}
}

// FuzzFrames feeds the reader what a hostile process might send.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{9, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{255, 255, 255, 255, 2, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{11, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, '{', '}'})
	f.Fuzz(func(t *testing.T, sent []byte) {
		kind, payload, err := sandbox.ReadFrame(bytes.NewReader(sent))
		if err != nil {
			return
		}
		if kind != sent[4] || !bytes.Equal(payload, sent[13:13+len(payload)]) {
			t.Errorf("read %d %x of %x", kind, payload, sent)
		}
	})
}

func TestAMissingRuntimeIsNamed(t *testing.T) {
	_, err := sandbox.New(context.Background(), sandbox.Settings{Runtime: t.TempDir(), Scratch: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "node binary") {
		t.Errorf("New without a runtime: %v; want the node binary named", err)
	}
}
