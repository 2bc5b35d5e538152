package sandbox_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/sandbox"
)

// TestLessThanFullMustBeAskedFor pretends that there are no namespaces.
func TestLessThanFullMustBeAskedFor(t *testing.T) {
	settings := sandbox.Settings{Runtime: runtimeFolder(t), Scratch: t.TempDir()}
	if _, err := sandbox.NewAt(t.Context(), settings, sandbox.Reduced); err == nil {
		t.Error("a machine without namespaces was accepted for the level full")
	}
	var logged bytes.Buffer
	settings.Level = sandbox.Reduced
	settings.Log = slog.New(slog.NewTextHandler(&logged, nil))
	settings.Dial = refuseAll
	s, err := sandbox.NewAt(t.Context(), settings, sandbox.Reduced)
	if err != nil {
		t.Fatalf("level reduced: %v", err)
	}
	defer s.Close()
	if s.Level() != sandbox.Reduced || !strings.Contains(logged.String(), "level=reduced") {
		t.Errorf("the level is %v, logged as %s; want reduced", s.Level(), logged.String())
	}
	w := newWitness(t)
	args := map[string]any{"file": "/etc/hostname", "port": w.port, "socket": w.socket, "abstract": w.abstract}
	checkGood(t, s, "t")
	for _, p := range corpus(t) {
		switch p.name {
		// No bombs here: threads are not bounded by user. What is left are
		// reads, connections and processes, which the filter and Landlock hold.
		case "files-read", "files-canary", "files-write", "net-raw-tcp", "net-raw-pipe", "net-loopback", "net-udp", "net-listen", "process-spawn", "process-kill", "process-ids", "env":
			attack(t, s, p, args)
		}
	}
	if hits := w.hits.Load(); hits != 0 {
		t.Errorf("the witness was reached %d times", hits)
	}
}

func TestWithoutAWallItSaysSo(t *testing.T) {
	var logged bytes.Buffer
	s, err := sandbox.NewAt(t.Context(), sandbox.Settings{
		Runtime: runtimeFolder(t), Level: sandbox.UnsafeNone, Dial: refuseAll,
		Log: slog.New(slog.NewTextHandler(&logged, nil)),
	}, sandbox.UnsafeNone)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Level() != sandbox.UnsafeNone || !strings.Contains(logged.String(), "level=WARN") {
		t.Errorf("the level is %v, logged as %s; want a warning", s.Level(), logged.String())
	}
	checkGood(t, s, "t")
	code := get + `module.exports = () => get('http', { host: 'api.example.com' }).catch((e) => e.code)`
	if got := value(t, s, program("t", "x", "1", code), nil); got != `"EACCES"` {
		t.Errorf("a connection: got %s, want it asked of the dialler", got)
	}
}
