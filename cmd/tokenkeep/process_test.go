package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/sandbox"
	"github.com/tokenkeep/tokenkeep/internal/server"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// asTokenkeep makes the test's own binary run as the product: signals need a
// process of their own.
const asTokenkeep = "RUN_AS_TOKENKEEP"

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return // this process starts others for code of tenants
	}
	if os.Getenv(asTokenkeep) != "" {
		main()
	}
	// There is no runtime beside a test; those that want one say so.
	if err := os.Setenv("TOKENKEEP_SANDBOX_LEVEL", "off"); err != nil {
		panic(err)
	}
	// Nor do the profiles of whoever runs the tests count.
	if err := os.Setenv("XDG_CONFIG_HOME", filepath.Join(os.TempDir(), "no-profiles-of-tokenkeep")); err != nil {
		panic(err)
	}
	os.Exit(pgtest.Run(m))
}

// process is a server in a process of its own.
type process struct {
	t           *testing.T
	cmd         *exec.Cmd
	url         string
	out, errOut *output
	done        chan struct{}
}

// output keeps what a process printed.
type output struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// readyLine is what dev prints and what serve logs when clients may come.
var readyLine = regexp.MustCompile(`(?:Tokenkeep is ready at |"base_url":")(https?://[^\s"]+)`)

// start starts a server and waits until it says where it is.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startCommand(t, exec.Command(self, args...))
}

func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, out: &output{}, errOut: &output{}, done: make(chan struct{})}
	cmd.Env = append(append(os.Environ(), asTokenkeep+"=1"), cmd.Env...)
	cmd.Stdout, cmd.Stderr = p.out, p.errOut
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		select {
		case <-p.done:
		default:
			_ = cmd.Process.Kill()
			<-p.done
		}
	})
	waittest.Until(t, "the server is ready", func() bool {
		select {
		case <-p.done:
			t.Fatalf("the server ended with %d: %s", cmd.ProcessState.ExitCode(), p.errOut)
		default:
		}
		if m := readyLine.FindStringSubmatch(p.out.String() + p.errOut.String()); m != nil {
			p.url = m[1]
		}
		return p.url != ""
	})
	t.Logf("ready after %v", time.Since(began).Round(time.Millisecond))
	return p
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// end asks the server to stop and returns its exit code.
func (p *process) end() int {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	return p.wait()
}

// wait returns the exit code; -1 when a signal ended the process.
func (p *process) wait() int {
	p.t.Helper()
	waittest.Receive(p.t, "the server ends", p.done)
	return p.cmd.ProcessState.ExitCode()
}

// get returns the status of GET path; 0 when nobody is there.
func (p *process) get(path string) int {
	response, err := http.Get(p.url + path)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

func TestDevTellsItsRealAddressAndFindsItsDataAgain(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	first := start(t, "dev", "--addr", "127.0.0.1:0", "--data", data)
	if strings.HasSuffix(first.url, ":0") || first.get("/readyz") != http.StatusOK {
		t.Errorf("dev says it is at %s, where /readyz = %d", first.url, first.get("/readyz"))
	}
	b, err := os.ReadFile(filepath.Join(data, "server.json"))
	if err != nil {
		t.Fatal(err)
	}
	var note server.Note
	if err := json.Unmarshal(b, &note); err != nil || note.BaseURL != first.url || note.PID != first.cmd.Process.Pid {
		t.Errorf("server.json = %s, %v; want the address %s and the process %d", b, err, first.url, first.cmd.Process.Pid)
	}
	store, err := os.Stat(filepath.Join(data, "tokenkeep.db"))
	if err != nil {
		t.Fatal(err)
	}
	if code := first.end(); code != 0 {
		t.Errorf("SIGTERM ended dev with %d: %s", code, first.errOut)
	}

	second := start(t, "dev", "--addr", "127.0.0.1:0", "--data", data)
	if again, err := os.Stat(filepath.Join(data, "tokenkeep.db")); err != nil || !os.SameFile(store, again) {
		t.Errorf("the second start has another store: %v", err)
	}
	if secret := regexp.MustCompile(`key_[a-z0-9]+_[a-z]+_\w+`).FindString(second.out.String() + second.errOut.String()); secret != "" {
		t.Error("the second start prints a key")
	}
	if second.errOut.String() != "" {
		t.Errorf("the second start complains: %s", second.errOut)
	}
	if code := second.end(); code != 0 {
		t.Errorf("SIGTERM ended dev with %d: %s", code, second.errOut)
	}
}

func TestAClosedTerminalEndsDev(t *testing.T) {
	p := start(t, "dev", "--addr", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "data"))
	p.signal(syscall.SIGHUP)
	if code := p.wait(); code != 0 {
		t.Errorf("SIGHUP ended dev with %d: %s", code, p.errOut)
	}
}

func TestSIGTERMDrains(t *testing.T) {
	p := start(t, "serve", "--addr", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "data"), "--kek-file", keyFile(t), "--drain-delay", "300ms",
		"--drain-timeout", "1h", "--timeout-read-header", "1h", "--timeout-read", "1h")
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: a\r\n")
	p.signal(syscall.SIGTERM)
	waittest.Until(t, "the server says that it is not ready", func() bool { return p.get("/readyz") != http.StatusOK })
	waittest.Until(t, "the door closes", func() bool { return p.get("/readyz") == 0 })
	_, _ = io.WriteString(c, "\r\n")
	answer, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 ") {
		t.Errorf("the request under way = %q, %v; want its answer", answer, err)
	}
	if code := p.wait(); code != 0 {
		t.Errorf("SIGTERM ended serve with %d: %s", code, p.errOut)
	}
}

func TestASecondSIGTERMEndsAtOnce(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	p := start(t, "serve", "--addr", "127.0.0.1:0", "--data", data, "--kek-file", keyFile(t), "--drain-delay", "1h")
	p.signal(syscall.SIGTERM)
	waittest.Until(t, "the server says that it is not ready", func() bool { return p.get("/readyz") == http.StatusServiceUnavailable })
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != -1 {
		t.Errorf("the second SIGTERM ended serve with %d, want it killed", code)
	}
	if got := call(t, "store", "check", "--data", data); got.code != 0 {
		t.Errorf("store check after it = %+v", got)
	}
}

func TestAKilledServerIsReplaced(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	p := start(t, "dev", "--addr", "127.0.0.1:0", "--data", data)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.wait()
	for _, name := range []string{"server.json", "admin.sock"} {
		if _, err := os.Lstat(filepath.Join(data, name)); err != nil {
			t.Errorf("a killed server took %s along, so that this test proves nothing: %v", name, err)
		}
	}
	if got := call(t, "status", "--data", data); got.code != 9 || !strings.Contains(got.err, "no server is running") {
		t.Errorf("status of a killed server = %+v", got)
	}
	again := start(t, "dev", "--addr", "127.0.0.1:0", "--data", data)
	if !strings.Contains(again.errOut.String(), "not closed cleanly") {
		t.Errorf("the start after a kill does not say so: %q", again.errOut)
	}
	if got := call(t, "status", "--data", data); got.code != 0 || !strings.Contains(got.out, again.url) {
		t.Errorf("status = %+v, want the address %s", got, again.url)
	}
}

func TestStatusAndCheckOfARunningServer(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	p := start(t, "dev", "--addr", "127.0.0.1:0", "--data", data)
	if got := call(t, "status", "--data", data); got.code != 0 || !regexp.MustCompile(`(?m)^ready +true$`).MatchString(got.out) {
		t.Errorf("status = %+v, want it ready", got)
	}
	got := call(t, "status", "--json", "--data", data)
	var s admin.Status
	if err := json.Unmarshal([]byte(got.out), &s); err != nil || got.code != 0 || s.BaseURL != p.url || !s.Ready || s.StartedAt.IsZero() || s.Version == "" {
		t.Errorf("status --json = %+v, %v", got, err)
	}
	sound := func(when string) {
		t.Helper()
		if got := call(t, "store", "check", "--data", data); got.code != 0 || got.out != "The store is sound.\n" || strings.Count(got.err, "… ") < 2 {
			t.Errorf("store check %s = %+v", when, got)
		}
	}
	sound("of a running server")
	if code := p.end(); code != 0 {
		t.Errorf("SIGTERM ended dev with %d: %s", code, p.errOut)
	}
	sound("without a server")

	info, err := os.Stat(filepath.Join(data, "tokenkeep.db"))
	if err != nil {
		t.Fatal(err)
	}
	// The last page is the root of an index that no start reads.
	spoil(t, filepath.Join(data, "tokenkeep.db"), int(info.Size())-4096, bytes.Repeat([]byte{0xff}, 100)...)
	faulty := func(when string) {
		t.Helper()
		if got := call(t, "store", "check", "--data", data); got.code != 6 || got.out == "" || !strings.Contains(got.err, "tokenkeep: the check found faults") {
			t.Errorf("store check of damaged data %s = %+v, want 6", when, got)
		}
	}
	faulty("without a server")
	start(t, "dev", "--addr", "127.0.0.1:0", "--data", data)
	faulty("of a running server")
}

func TestServeTakesAnInheritedSocket(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The shell becomes the server, so that its process id is known to it.
	cmd := exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@"`, self,
		"serve", "--data", filepath.Join(t.TempDir(), "data"), "--kek-file", keyFile(t), "--drain-delay", "0s")
	cmd.ExtraFiles = []*os.File{f}
	p := startCommand(t, cmd)
	if want := "http://" + l.Addr().String(); p.url != want || p.get("/readyz") != http.StatusOK {
		t.Errorf("the server is at %s, want %s", p.url, want)
	}
	if code := p.end(); code != 0 {
		t.Errorf("SIGTERM ended serve with %d: %s", code, p.errOut)
	}
	// The socket is still there for the next one.
	if c, err := net.Dial("tcp", l.Addr().String()); err != nil {
		t.Errorf("the socket went with the server: %v", err)
	} else {
		_ = c.Close()
	}
}
