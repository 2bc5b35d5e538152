package sandbox_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tokenkeep/tokenkeep/internal/sandbox"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// TestLessThanFullMustBeAskedFor pretends that there are no namespaces.
func TestLessThanFullMustBeAskedFor(t *testing.T) {
	storetest.Long(t)
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

// TestAProcessHasNothingLeft looks at a process from outside.
func TestAProcessHasNothingLeft(t *testing.T) {
	s := common(t)
	var blank []int
	waittest.Until(t, "a process is ready", func() bool { blank, _, _ = s.PIDs(); return len(blank) > 0 })
	folder := filepath.Join("/proc", strconv.Itoa(blank[0]))
	status, err := os.ReadFile(filepath.Join(folder, "status"))
	if err != nil {
		t.Fatal(err)
	}
	limits, err := os.ReadFile(filepath.Join(folder, "limits"))
	if err != nil {
		t.Fatal(err)
	}
	found := strings.Join(strings.Fields(string(status)+string(limits)), " ")
	for _, want := range []string{
		"NoNewPrivs: 1", "Seccomp: 2", "CapInh: 0000000000000000 CapPrm: 0000000000000000 CapEff: 0000000000000000 CapBnd: 0000000000000000 CapAmb: 0000000000000000",
		"Max data size 268435456 268435456", "Max processes 16 16", "Max open files 256 256", "Max file size 0 0", "Max core file size 1 1", "Max locked memory 0 0",
	} {
		if !strings.Contains(found, want) {
			t.Errorf("a process does not have %q: %s", want, found)
		}
	}
	if score, err := os.ReadFile(filepath.Join(folder, "oom_score_adj")); err != nil || string(score) != "1000\n" {
		t.Errorf("when memory is short it goes at %q, %v; want 1000", score, err)
	}
	if os.Getuid() == 0 && !strings.Contains(found, "Uid: 9000") {
		t.Errorf("a process is no user of its own: %s", found)
	}
	// Undumpable: what there is to read of it belongs to root. An ordinary
	// user that made a namespace is root to it, and may.
	var environ unix.Stat_t
	if err := unix.Stat(filepath.Join(folder, "environ"), &environ); err != nil || os.Getuid() == 0 && environ.Uid != 0 {
		t.Errorf("its environment belongs to user %d, %v; want root", environ.Uid, err)
	}
}
