package sandbox_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tokenkeep/tokenkeep/internal/sandbox"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// victim is a server that is killed: it prints the processes that it made, one
// of which is spinning, and waits.
func victim() int {
	s, err := sandbox.New(context.Background(), sandbox.Settings{Runtime: os.Getenv("TOKENKEEP_RUNTIME"), Scratch: os.Getenv("SANDBOX_TEST_SCRATCH"), Blank: 2})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		_, _ = s.Run(context.Background(), program("t", "spin", "1", "module.exports = () => { for (;;); }"), sandbox.Call{Entry: "main", Input: []byte("{}"), Timeout: patience})
	}()
	for {
		blank, _, busy := s.PIDs()
		if len(blank) == 2 && len(busy) == 1 {
			fmt.Println(strings.Trim(fmt.Sprint(append(blank, busy...)), "[]"))
			break
		}
	}
	select {}
}

// TestNoProcessOutlivesAKilledServer kills a server the hard way.
func TestNoProcessOutlivesAKilledServer(t *testing.T) {
	storetest.Long(t)
	folder, err := filepath.Abs(runtimeFolder(t))
	if err != nil {
		t.Fatal(err)
	}
	scratch := t.TempDir()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "SANDBOX_TEST_HELPER=victim", "TOKENKEEP_RUNTIME="+folder, "SANDBOX_TEST_SCRATCH="+scratch)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server did not start: %v", err)
	}
	pids := append(strings.Fields(line), strconv.Itoa(childOf(t, cmd.Process.Pid)))
	if len(pids) != 4 {
		t.Fatalf("the server has the processes %v; want three and a launcher", pids)
	}
	// Descriptors, because numbers are given again.
	var watched []unix.PollFd
	for _, pid := range pids {
		n, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.PidfdOpen(n, 0)
		if err != nil {
			t.Fatalf("process %d: %v", n, err)
		}
		defer unix.Close(fd)
		watched = append(watched, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	waittest.Until(t, "all processes of the server are gone", func() bool {
		n, err := unix.Poll(watched, 100)
		return err == nil && n == len(watched)
	})

	// What it left on disk goes with the next start.
	left, _ := filepath.Glob(filepath.Join(scratch, "*"))
	if len(left) != 1 {
		t.Fatalf("left behind: %v; want one root", left)
	}
	open(t, func(o *sandbox.Settings) { o.Scratch = scratch })
	if _, err := os.Stat(left[0]); !os.IsNotExist(err) {
		t.Errorf("the root of the killed server is still there: %v", err)
	}
}

func childOf(t *testing.T, parent int) int {
	t.Helper()
	entries, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range entries {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		_, after, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(after); len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, _, _ := strings.Cut(string(text), " ")
			n, _ := strconv.Atoi(pid)
			return n
		}
	}
	t.Fatalf("process %d has no child", parent)
	return 0
}

func TestALauncherThatIsGoneIsReplaced(t *testing.T) {
	s := open(t, nil)
	p := program("t", "x", "1", "module.exports = () => 1")
	value(t, s, p, nil)
	blank, idle, busy := s.PIDs()
	before := slices.Concat(blank, idle, busy)
	s.KillLauncher()
	waittest.Until(t, "its processes went with it", func() bool {
		blank, idle, busy := s.PIDs()
		return !slices.ContainsFunc(slices.Concat(blank, idle, busy), func(pid int) bool { return slices.Contains(before, pid) })
	})
	waittest.Until(t, "code runs again", func() bool {
		out, err := run(t, s, p, nil)
		return told(out, err) == "value 1"
	})
}

func TestClosingEndsEverything(t *testing.T) {
	begun := make(chan struct{})
	begins := sync.OnceFunc(func() { close(begun) })
	s := open(t, func(o *sandbox.Settings) {
		o.Dial = func(ctx context.Context, tenant, host string, port int) (net.Conn, error) {
			begins()
			return refuseAll(ctx, tenant, host, port)
		}
	})
	value(t, s, program("t", "x", "1", "module.exports = () => 1"), nil)
	ended := make(chan string)
	go func() {
		out, err := run(t, s, program("t", "spin", "1", `module.exports = () => new Promise(() => {
			require('http').get('http://here.example.com/').on('error', () => { for (;;); });
		})`), nil)
		ended <- told(out, err)
	}()
	select {
	case <-begun: // its code runs, for it has called
	case got := <-ended:
		t.Fatalf("the loop ended by itself: %s", got)
	}
	blank, idle, busy := s.PIDs()
	if len(busy) != 1 {
		t.Errorf("%d processes run code, want 1", len(busy))
	}
	pids := slices.Concat(blank, idle, busy)
	root := s.Root()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if got := <-ended; got != "exited" {
		t.Errorf("the loop: got %s, want exited", got)
	}
	for _, pid := range pids {
		waittest.Until(t, "process "+strconv.Itoa(pid)+" is gone", func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
	}
	if _, err := os.Stat(root); !os.IsNotExist(err) {
		t.Errorf("the root is still there: %v", err)
	}
	if _, err := run(t, s, program("t", "x", "1", "module.exports = () => 1"), nil); err != sandbox.ErrClosed {
		t.Errorf("Run after Close: %v, want ErrClosed", err)
	}
}

// thorough asks for what takes minutes, as make check does.
func thorough() bool { return storetest.All() && !testing.Short() }

// TestAsAnOrdinaryUser runs the tests of the walls once more, where they
// run as root.
func TestAsAnOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 || !thorough() {
		t.Skip("they already run as an ordinary user, or in their short form: KEEPTEST_ROUNDS=all asks for both")
	}
	from := runtimeFolder(t)
	folder, err := os.MkdirTemp("", "tokenkeep-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := os.CopyFS(filepath.Join(folder, "runtime"), os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	for _, name := range []string{folder, filepath.Join(folder, "tmp")} {
		if err := os.MkdirAll(name, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(name, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"-test.v", "-test.run", "^Test(Hostile|Native|NoProcess|Less|Without|Connections|CodeCalls|Nothing|IdleProcesses|AProcess)"}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Dir = folder
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + filepath.Join(folder, "tmp"), "TOKENKEEP_RUNTIME=" + filepath.Join(folder, "runtime"), "KEEPTEST_RUNTIME=required", "KEEPTEST_ROUNDS=all"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
	if !strings.Contains(string(out), "--- PASS: TestHostileCode") {
		t.Error("the hostile programs did not run as nobody")
	}
}
