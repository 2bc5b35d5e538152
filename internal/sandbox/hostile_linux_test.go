package sandbox_test

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tokenkeep/tokenkeep/internal/sandbox"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

//go:embed testdata/hostile
var hostile embed.FS

const (
	canary       = "canary-5d1e9c0b"
	maxGrowth    = 64 << 20 // of the server, over the whole corpus
	shortTimeout = 400 * time.Millisecond
	killSlack    = 10 * time.Second // beyond a deadline, and so many times as long as a good program takes
	killFactor   = 50
)

// hostileProgram is a file of the corpus. Its first lines say what it tries,
// how long it may, and what must come out.
type hostileProgram struct {
	name, code string
	timeout    time.Duration
	expect     []string
}

func corpus(t *testing.T) []hostileProgram {
	t.Helper()
	files, err := hostile.ReadDir("testdata/hostile")
	if err != nil {
		t.Fatal(err)
	}
	var all []hostileProgram
	for _, f := range files {
		code, err := hostile.ReadFile("testdata/hostile/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		p := hostileProgram{name: strings.TrimSuffix(f.Name(), ".js"), code: string(code), timeout: patience}
		for line := range strings.Lines(p.code) {
			comment, ok := strings.CutPrefix(strings.TrimSpace(line), "// ")
			if !ok {
				break
			}
			if text, ok := strings.CutPrefix(comment, "expect: "); ok {
				p.expect = strings.Split(text, " | ")
			}
		}
		if len(p.expect) == 0 {
			t.Fatalf("%s does not say what must come out", f.Name())
		}
		if p.expect[0] == "timed_out" || p.expect[len(p.expect)-1] == "timed_out" {
			p.timeout = shortTimeout
		}
		all = append(all, p)
	}
	if len(all) < 60 {
		t.Fatalf("found %d programs: the test looks in the wrong place", len(all))
	}
	return all
}

func (p hostileProgram) accepts(got string) bool {
	for _, want := range p.expect {
		if prefix, open := strings.CutSuffix(want, "*"); got == want || open && strings.HasPrefix(got, prefix) {
			return true
		}
	}
	return false
}

// witness counts who reaches a listener of the machine.
type witness struct {
	hits             atomic.Int64
	port             int
	socket, abstract string
}

func newWitness(t *testing.T) *witness {
	t.Helper()
	w := &witness{socket: filepath.Join(t.TempDir(), "s"), abstract: "tokenkeep-witness-" + strconv.Itoa(os.Getpid())}
	for _, l := range []struct{ network, address string }{{"tcp", "127.0.0.1:0"}, {"unix", w.socket}, {"unix", "@" + w.abstract}} {
		listener, err := net.Listen(l.network, l.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		if tcp, ok := listener.Addr().(*net.TCPAddr); ok {
			w.port = tcp.Port
		}
		go func() {
			for {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				w.hits.Add(1)
				_, _ = c.Write([]byte("hello"))
				_ = c.Close()
			}
		}()
	}
	return w
}

// good is a program that minds its own business.
const good = `module.exports = async ({ args }) => {
	let sum = 0;
	[...args.number].reverse().forEach((d, i) => { const n = d * (i % 2 ? 2 : 1); sum += n > 9 ? n - 9 : n; });
	return { luhn: sum % 10 === 0 };
}`

func checkGood(t *testing.T, s *sandbox.Sandbox, tenant string) {
	t.Helper()
	out, err := s.Run(t.Context(), program(tenant, "good", "1", good), sandbox.Call{
		Entry: "main", Input: input(map[string]string{"number": "4242424242424242"}), Timeout: patience,
	})
	if got, want := told(out, err), `value {"luhn":true}`; got != want {
		t.Errorf("the good program of %s gave %s; want %s", tenant, got, want)
	}
}

func resident(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// TestHostileCode runs the whole corpus: nothing is read, nobody is reached,
// nobody else is disturbed, everything ends, and the server does not grow.
func TestHostileCode(t *testing.T) {
	storetest.Long(t)
	// A limit of the test's own, which the users of sandboxes inherit, should
	// theirs fail.
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: 2000, Max: 2000}); err != nil {
		t.Fatal(err)
	}
	t.Run("hardened", func(t *testing.T) { testHostileCode(t, false) })
	if !thorough() {
		return
	}
	t.Run("jit", func(t *testing.T) { testHostileCode(t, true) })
}

func testHostileCode(t *testing.T, jit bool) {
	t.Setenv("TOKENKEEP_CANARY", canary)
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(canary), 0o644); err != nil {
		t.Fatal(err)
	}
	w := newWitness(t)
	s := open(t, func(o *sandbox.Settings) {
		o.JIT = jit
		o.Dial = refuseAll
		o.OldSpaceMiB, o.DataMiB = 24, 128
		o.Blank = 3
	})
	if s.Level() != sandbox.Full {
		t.Fatalf("the level is %v: hostile programs run behind the full filter alone", s.Level())
	}
	checkGood(t, s, "beside")
	before := resident(t)

	stop := make(chan struct{})
	var beside sync.WaitGroup
	beside.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				checkGood(t, s, "beside")
				waittest.Sometime(40 * time.Millisecond)
			}
		}
	})
	args := map[string]any{"file": file, "port": w.port, "socket": w.socket, "abstract": w.abstract}
	queue := make(chan hostileProgram)
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for p := range queue {
				took := attack(t, s, p, args)
				begun := time.Now()
				checkGood(t, s, "between")
				if limit := p.timeout + killSlack + killFactor*time.Since(begun); storetest.All() && took > limit {
					t.Errorf("%s: took %v with a deadline of %v; want at most %v on this machine", p.name, took, p.timeout, limit)
				}
			}
		})
	}
	for _, p := range corpus(t) {
		queue <- p
	}
	close(queue)
	workers.Wait()
	close(stop)
	beside.Wait()

	if grown := resident(t) - before; grown > maxGrowth {
		t.Errorf("the server grew by %d MiB; want less than %d", grown>>20, maxGrowth>>20)
	}
	if hits := w.hits.Load(); hits != 0 {
		t.Errorf("the witness was reached %d times", hits)
	}
}

func attack(t *testing.T, s *sandbox.Sandbox, p hostileProgram, args any) (took time.Duration) {
	t.Helper()
	var out sandbox.Outcome
	begun, err := time.Now(), sandbox.ErrBusy
	// On a busy machine a short deadline may pass before there is a process.
	for errors.Is(err, sandbox.ErrBusy) {
		begun = time.Now()
		out, err = s.Run(context.Background(), program("hostile", p.name, "1", p.code), sandbox.Call{Entry: "main", Input: input(args), Timeout: p.timeout})
	}
	took = time.Since(begun)
	if got := told(out, err); !p.accepts(got) {
		t.Errorf("%s: got %.300s (%v), want %s; console %.300s", p.name, got, thrownMessage(out), strings.Join(p.expect, " or "), out.Console)
	}
	if len(out.Console) > 64<<10 {
		t.Errorf("%s: printed %d bytes", p.name, len(out.Console))
	}
	thrown, _ := json.Marshal(out.Thrown)
	if bytes.Contains(bytes.Join([][]byte{out.Value, out.Console, thrown}, nil), []byte(canary)) {
		t.Errorf("%s: read what the server keeps", p.name)
	}
	return took
}

func thrownMessage(out sandbox.Outcome) string {
	if out.Thrown == nil {
		return ""
	}
	return out.Thrown.Message
}
