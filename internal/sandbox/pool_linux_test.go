package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/sandbox"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// clock is a time that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// pid tells which process serves a program: its own is always 1, so code keeps
// a random number.
const whoAmI = "globalThis.me = globalThis.me || Math.random(); module.exports = () => globalThis.me"

func TestProcessesAreReusedForAWhile(t *testing.T) {
	storetest.Long(t)
	c := newClock()
	s := open(t, func(o *sandbox.Settings) {
		o.Now, o.Idle, o.MaxAge, o.MaxCalls = c.Now, time.Minute, time.Hour, 5
	})
	p := program("t", "x", "1", whoAmI)
	first := value(t, s, p, nil)
	if again := value(t, s, p, nil); again != first {
		t.Error("a second call met another process")
	}
	c.forward(59 * time.Second)
	s.Sweep()
	if again := value(t, s, p, nil); again != first {
		t.Error("a call within the minute met another process")
	}
	c.forward(time.Minute)
	s.Sweep()
	second := value(t, s, p, nil)
	if second == first {
		t.Error("a call after an idle minute met the same process")
	}
	for range 4 {
		value(t, s, p, nil)
	}
	third := value(t, s, p, nil)
	if third == second {
		t.Error("a sixth call met the same process; it may serve five")
	}
	// Never idle for a minute, and more than an hour old in the end.
	s = open(t, func(o *sandbox.Settings) { o.Now, o.MaxAge = c.Now, time.Hour })
	fourth := value(t, s, p, nil)
	for range 61 {
		c.forward(59 * time.Second)
		if again := value(t, s, p, nil); again != fourth {
			t.Fatal("a process went before its time")
		}
	}
	c.forward(59 * time.Second)
	if again := value(t, s, p, nil); again == fourth {
		t.Error("a process served on beyond its age")
	}
}

func TestIdleProcessesAreStopped(t *testing.T) {
	storetest.Long(t)
	c := newClock()
	s := open(t, func(o *sandbox.Settings) { o.Now = c.Now })
	p := program("t", "x", "1", "globalThis.n = 0; setInterval(() => { n++ }, 1); module.exports = () => n")
	value(t, s, p, nil)
	_, idle, _ := s.PIDs()
	if len(idle) != 1 {
		t.Fatalf("%d processes are idle, want 1", len(idle))
	}
	c.forward(2 * time.Second)
	s.Sweep()
	waittest.Until(t, "the process is stopped", func() bool {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(idle[0]), "stat"))
		_, state, _ := strings.Cut(string(text), ") ")
		return err == nil && strings.HasPrefix(state, "T")
	})
	before := value(t, s, p, nil)
	if n, err := strconv.Atoi(before); err != nil || n > 5 {
		t.Errorf("a timer ran %s times between calls; want none, but for a turn at the start of the call", before)
	}
}

func TestAFullPoolAnswersAtOnceAndRecovers(t *testing.T) {
	storetest.Long(t)
	s := open(t, func(o *sandbox.Settings) { o.PerProgram, o.Global, o.Queue, o.Blank = 2, 3, 1, 1 })
	const waits = "module.exports = () => new Promise((r) => setTimeout(r, 600000))"
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	begin := func(who string) {
		running.Go(func() {
			if _, err := s.Run(ctx, program("t", who, "1", waits), sandbox.Call{Entry: "main", Input: input(nil), Timeout: patience}); !errors.Is(err, context.Canceled) {
				t.Errorf("%s ended with %v, want to be cancelled", who, err)
			}
		})
	}
	busy := func(n int) {
		waittest.Until(t, fmt.Sprintf("%d calls run", n), func() bool { _, _, b := s.PIDs(); return len(b) == n })
	}
	begin("a")
	busy(1)
	begin("a")
	busy(2)
	if _, err := run(t, s, program("t", "a", "1", waits), nil); err != sandbox.ErrTooMany {
		t.Errorf("a third call of a program: %v, want ErrTooMany", err)
	}
	if _, err := run(t, s, program("t", "a", "2", waits), nil); err != sandbox.ErrTooMany {
		t.Errorf("a call of its next version: %v, want ErrTooMany", err)
	}
	begin("b")
	busy(3)
	waited := make(chan string)
	go func() {
		out, err := run(t, s, program("t", "c", "1", "module.exports = () => 1"), nil)
		waited <- told(out, err)
	}()
	waittest.Until(t, "a call waits", func() bool { return s.Waiting() == 1 })
	if _, err := run(t, s, program("t", "e", "1", waits), nil); err != sandbox.ErrBusy {
		t.Errorf("a call beyond the queue: %v, want ErrBusy at once", err)
	}
	cancel()
	running.Wait()
	if got := <-waited; got != "value 1" {
		t.Errorf("the call that waited: got %s, want value 1", got)
	}
	if got := value(t, s, program("t", "a", "1", "module.exports = () => 1"), nil); got != "1" {
		t.Errorf("afterwards: got %s", got)
	}
}

func TestWaitingEndsAtTheDeadline(t *testing.T) {
	storetest.Long(t)
	s := open(t, func(o *sandbox.Settings) { o.Global, o.Queue, o.Blank = 1, 5, 1 })
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		_, _ = s.Run(ctx, program("t", "a", "1", "module.exports = () => new Promise((r) => setTimeout(r, 600000))"), sandbox.Call{Entry: "main", Input: input(nil), Timeout: patience})
	})
	waittest.Until(t, "a call runs", func() bool { _, _, b := s.PIDs(); return len(b) == 1 })
	_, err := s.Run(t.Context(), program("t", "b", "1", "module.exports = () => 1"), sandbox.Call{Entry: "main", Input: input(nil), Timeout: 10 * time.Millisecond})
	if err != sandbox.ErrBusy || s.Waiting() != 0 {
		t.Errorf("got %v with %d waiting, want ErrBusy and none", err, s.Waiting())
	}
	cancel()
	running.Wait()
}

func TestTheLongestIdleMakesRoom(t *testing.T) {
	storetest.Long(t)
	s := open(t, func(o *sandbox.Settings) { o.Global, o.Blank = 2, 1 })
	names := []string{"a", "b", "c"}
	first := map[string]string{}
	for _, name := range names {
		first[name] = value(t, s, program("t", name, "1", whoAmI), nil)
	}
	if _, idle, _ := s.PIDs(); len(idle) > 2 {
		t.Errorf("%d processes are idle, want 2 at most", len(idle))
	}
	if again := value(t, s, program("t", "c", "1", whoAmI), nil); again != first["c"] {
		t.Error("the program that ran last had to give way")
	}
	if again := value(t, s, program("t", "a", "1", whoAmI), nil); again == first["a"] {
		t.Error("the program that was idle longest kept its process")
	}
}

func TestRunsAreCounted(t *testing.T) {
	storetest.Long(t)
	r := prometheus.NewRegistry()
	s := open(t, func(o *sandbox.Settings) { o.Metrics = r })
	value(t, s, program("t", "x", "1", "module.exports = () => 1"), nil)
	_, _ = run(t, s, program("t", "y", "1", "module.exports = () => { throw 1 }"), nil)
	_, _ = run(t, s, program("t", "z", "1", "module.exports = () => process.exit()"), nil)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "tokenkeep_sandbox_runs_total" {
					got[l.GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
	}
	for _, outcome := range []string{"returned", "threw", "exited"} {
		if got[outcome] != 1 {
			t.Errorf("counted %v; want one each of returned, threw and exited", got)
		}
	}
}

// recorder keeps the frames that the runner writes, to use them again.
const recorder = `const fs = process.binding('fs');
const write = fs.writeBuffer;
let kept = null;
fs.writeBuffer = function recorded(fd, buffer, ...rest) {
	if (fd === 3 && buffer[4] === 2) kept = Buffer.from(buffer);
	return write.call(fs, fd, buffer, ...rest);
};
const replay = () => { if (kept) process.mainModule.require('fs').writeSync(3, kept); };
`

func TestAnAnswerCannotBeUsedAgain(t *testing.T) {
	s := common(t)
	p := program("t", "replay", "1", recorder+`module.exports = ({ args }) => { setInterval(replay, 1); return args }`)
	broke := 0
	for i := 0; i < 20 || broke == 0; i++ { // until an old answer was sent
		mine := fmt.Sprint("call ", i)
		out, err := run(t, s, p, mine)
		// The timer that a call left has its turn at the beginning of the next.
		switch got := told(out, err); got {
		case fmt.Sprintf("value %q", mine):
		case "broke":
			broke++
		default:
			t.Errorf("%s: got %s, want its own answer or none", mine, got)
		}
	}
	t.Logf("%d calls met an old answer", broke)
}

func TestAProcessThatTalksBetweenCallsIsNotUsedAgain(t *testing.T) {
	s := common(t)
	code, err := hostile.ReadFile("testdata/hostile/frames-twice.js")
	if err != nil {
		t.Fatal(err)
	}
	p := program("t", "twice", "1", string(code)+"\nconst me = Math.random(); module.exports = () => me;")
	seen := map[string]bool{}
	for range 10 {
		out, err := run(t, s, p, nil)
		got := told(out, err)
		// It breaks the next call when that came before its second answer.
		if got != "broke" && (!strings.HasPrefix(got, "value ") || seen[got]) {
			t.Errorf("got %s; want an answer of a process of its own, or none", got)
		}
		seen[got] = true
	}
}
