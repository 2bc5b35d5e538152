package pkcs11_test

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keyring/kmstest"
	"github.com/tokenkeep/tokenkeep/internal/keyring/pkcs11/wire"
)

// The binary of the tests runs again in place of tokenkeep-pkcs11, with a socket
// in asProgram on which the test tells it what to do wrong. It uses a token in
// its own memory, or, when behind names it, the program itself.
const (
	asProgram = "KEEPTEST_PKCS11_SOCKET"
	behind    = "KEEPTEST_PKCS11_PROGRAM"
)

// once is a fault: the program ends in the middle of one call.
const once kmstest.Fault = "once"

// pin is the PIN of all tokens here.
const pin = "test-pin-4711"

func TestMain(m *testing.M) {
	if socket := os.Getenv(asProgram); socket != "" {
		runProgram(socket)
		return
	}
	code := m.Run()
	_ = os.RemoveAll(filepath.Dir(built.path))
	os.Exit(code)
}

// control tells the programs of a test what to do.
type control struct {
	hung chan struct{}

	mu      sync.Mutex // guards what follows
	fault   kmstest.Fault
	changed chan struct{} // closed when the fault changes
	starts  int
}

// newControl makes the tests' own binary the program, with its faults.
func newControl(t *testing.T) *control {
	t.Helper()
	dir, err := os.MkdirTemp("", "p11") // the name of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	c := &control{hung: make(chan struct{}, 100), changed: make(chan struct{})}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() { c.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		c.fail(kmstest.None)
		served.Wait()
	})
	t.Setenv(asProgram, l.Addr().String())
	t.Setenv("TOKENKEEP_KEK_PIN", pin) // which the program must not get
	return c
}

// serve responds to every line of a program with a fault.
func (c *control) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		c.mu.Lock()
		if lines.Text() == "open" {
			c.starts++
		}
		fault, changed := c.fault, c.changed
		if lines.Text() == "call" && fault == once {
			c.fault = kmstest.None
		}
		c.mu.Unlock()
		if lines.Text() == "call" && fault == kmstest.Hangs {
			c.hung <- struct{}{}
			<-changed
			fault = kmstest.None
		}
		if _, err := fmt.Fprintln(conn, fault); err != nil {
			return
		}
	}
}

func (c *control) fail(f kmstest.Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = f
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *control) started() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.starts
}

// runProgram is the program.
func runProgram(socket string) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		os.Exit(1)
	}
	told := bufio.NewScanner(conn)
	ask := func(what string) kmstest.Fault {
		if _, err := fmt.Fprintln(conn, what); err != nil || !told.Scan() {
			os.Exit(1)
		}
		return kmstest.Fault(told.Text())
	}
	open, err := wire.Read(os.Stdin)
	target, decoded := wire.DecodeTarget(open.Payload)
	if err != nil || decoded != nil || open.Kind != wire.Open {
		os.Exit(2)
	}
	ask("open")
	for _, seen := range slices.Concat(os.Args, os.Environ()) {
		if strings.Contains(seen, pin) || strings.HasPrefix(seen, "TOKENKEEP_") {
			os.Exit(3)
		}
	}
	do := memory(target)
	if program := os.Getenv(behind); program != "" {
		do = relay(program, open)
	}
	for {
		call, err := wire.Read(os.Stdin)
		if err != nil {
			return
		}
		fault := ask("call")
		reply := wire.Message{ID: call.ID}
		switch fault {
		case kmstest.None:
			reply = do(call)
		case kmstest.Disabled, kmstest.Denied:
			reply.Kind = wire.Refused
		case kmstest.Throttled:
			reply.Kind = wire.Unavailable
		case kmstest.Garbled:
			_, _ = io.WriteString(os.Stdout, "<html>"+kmstest.Echo)
			continue
		default:
			fmt.Fprintln(os.Stderr, kmstest.Echo)
			os.Exit(1)
		}
		if wire.Write(os.Stdout, reply) != nil || reply.Kind == wire.Unavailable {
			os.Exit(1)
		}
	}
}

// memory is a token with the keys one, two and open, of which the last can leave.
func memory(target wire.Target) func(wire.Message) wire.Message {
	raw := sha256.Sum256([]byte(target.Object))
	block, err := aes.NewCipher(raw[:])
	if err != nil {
		os.Exit(1)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		os.Exit(1)
	}
	return func(call wire.Message) wire.Message {
		reply := wire.Message{ID: call.ID, Kind: wire.OK}
		switch {
		case string(target.PIN) != pin:
			reply.Kind = wire.WrongPIN
		case !slices.Contains([]string{"one", "two", "open"}, target.Object):
			reply.Kind = wire.NoKey
		case call.Kind == wire.Encrypt:
			nonce := make([]byte, gcm.NonceSize())
			_, _ = rand.Read(nonce)
			reply.Payload = gcm.Seal(nonce, nonce, call.Payload, nil)
		case call.Kind == wire.Decrypt:
			reply.Kind = wire.NotOpened
			if n := gcm.NonceSize(); len(call.Payload) > n {
				if key, err := gcm.Open(nil, call.Payload[:n], call.Payload[n:], nil); err == nil {
					reply.Kind, reply.Payload = wire.OK, key
				}
			}
		case call.Kind == wire.Create:
			reply.Kind = wire.Exists
		case call.Kind == wire.Probe && target.Object == "open":
			reply.Kind = wire.Extractable
		}
		return reply
	}
}

// relay has the program itself do the work.
func relay(program string, open wire.Message) func(wire.Message) wire.Message {
	cmd := exec.Command(program)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil || cmd.Start() != nil || wire.Write(in, open) != nil {
		os.Exit(1)
	}
	return func(call wire.Message) wire.Message {
		if wire.Write(in, call) != nil {
			os.Exit(1)
		}
		reply, err := wire.Read(out)
		if err != nil || reply.ID != call.ID {
			os.Exit(1)
		}
		return reply
	}
}

// softHSM makes a token, and has the program itself use it. It returns the path
// of the module.
func softHSM(t *testing.T) (module string) {
	t.Helper()
	need := func(what string, err error) {
		t.Helper()
		if err == nil {
			return
		}
		if os.Getenv("KEEPTEST_SOFTHSM") == "required" {
			t.Fatalf("%s: %v", what, err)
		}
		t.Skipf("%s, so nothing is tried with SoftHSM: %v", what, err)
	}
	util, err := exec.LookPath("softhsm2-util")
	need("softhsm2-util (Debian: softhsm2) is not installed", err)
	var modules []string
	for _, dir := range []string{"/usr/lib/softhsm", "/usr/lib/*/softhsm", "/usr/lib64/pkcs11", "/usr/local/lib/softhsm"} {
		found, _ := filepath.Glob(filepath.Join(dir, "libsofthsm2.so"))
		modules = append(modules, found...)
	}
	if len(modules) == 0 {
		need("there is no libsofthsm2.so", os.ErrNotExist)
	}
	_, err = exec.LookPath("gcc")
	need("there is no C compiler", err)
	t.Setenv(behind, buildProgram(t))
	dir := t.TempDir()
	conf := filepath.Join(dir, "softhsm2.conf")
	if err := os.WriteFile(conf, []byte("directories.tokendir = "+dir+"\nobjectstore.backend = file\nlog.level = ERROR\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOFTHSM2_CONF", conf)
	if out, err := exec.Command(util, "--init-token", "--free", "--label", "a token", "--so-pin", pin, "--pin", pin).CombinedOutput(); err != nil {
		t.Fatalf("make a token: %v: %s", err, out)
	}
	return modules[0]
}

var built struct {
	sync.Once
	path string
	err  error
	out  []byte
}

// buildProgram builds tokenkeep-pkcs11, once for all tests.
func buildProgram(t *testing.T) string {
	t.Helper()
	built.Do(func() {
		var root []byte
		if root, built.err = exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output(); built.err != nil {
			return
		}
		var dir string
		if dir, built.err = os.MkdirTemp("", "tokenkeep-pkcs11"); built.err != nil {
			return
		}
		built.path = filepath.Join(dir, "tokenkeep-pkcs11")
		cmd := exec.Command("go", "build", "-o", built.path, "./cmd/tokenkeep-pkcs11")
		cmd.Dir = string(bytes.TrimSpace(root))
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
		built.out, built.err = cmd.CombinedOutput()
	})
	if built.err != nil {
		t.Fatalf("build tokenkeep-pkcs11: %v: %s", built.err, built.out)
	}
	return built.path
}
