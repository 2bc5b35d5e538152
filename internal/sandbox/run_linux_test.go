package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/sandbox"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

func TestRunsGiveWhatCodeReturns(t *testing.T) {
	s := common(t)
	if s.Level() != sandbox.Full {
		t.Fatalf("the level is %v, want full", s.Level())
	}
	for name, r := range map[string]struct{ code, want string }{
		"an object":         {"module.exports = async ({ args }) => ({ raw: args.number })", `value {"raw":"4242424242424242"}`},
		"a plain function":  {"module.exports = ({ args }) => args.list.length", "value 2"},
		"a default export":  {"exports.default = async () => null", "value null"},
		"nothing":           {"module.exports = async () => {}", "nothing"},
		"its configuration": {"module.exports = ({ configuration }) => configuration.SECRET", `value "configured"`},
		"no client":         {"module.exports = ({ bt }) => bt", "value null"},
		"after a while":     {"module.exports = () => new Promise((r) => setTimeout(r, 5, 'late'))", `value "late"`},
		"sloppy code":       {"module.exports = function () { undeclared = 010; return undeclared }", "value 8"},
		"its version":       {"module.exports = () => process.version", `value "v16.20.2"`},
		"modules":           {"module.exports = () => require('crypto').createHash('sha256').update('x').digest('hex').length", "value 64"},
		"a missing module":  {"module.exports = () => { try { require('left-pad') } catch (e) { return e.code } }", `value "MODULE_NOT_FOUND"`},
		"wide text":         {"module.exports = () => '\\ud83d\\ude00 \\u2028'", `value "` + "\U0001F600 \u2028" + `"`},
		"memory figures":    {"module.exports = () => process.memoryUsage().heapUsed > 0", "value true"},
		"a throw":           {"module.exports = () => { throw new TypeError('no') }", "thrown TypeError"},
		"five megabytes":    {"module.exports = () => 'x'.repeat((5 << 20) - 2).length", "value 5242878"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, s, program("t", name, "1", r.code), map[string]any{"number": "4242424242424242", "list": []int{1, 2}})
			if got := told(out, err); got != r.want {
				t.Errorf("got %s, want %s (%s)", got, r.want, thrownMessage(out))
			}
		})
	}
}

func TestLargeInputAndResult(t *testing.T) {
	s := common(t)
	echo := program("t", "echo", "1", "module.exports = ({ args }) => args")
	text := strings.Repeat("x", 5<<20-2)
	if got := value(t, s, echo, text); len(got) != 5<<20 {
		t.Errorf("got %d bytes back, want %d", len(got), 5<<20)
	}
	if got := value(t, s, echo, "small"); got != `"small"` {
		t.Errorf("after that: got %s", got)
	}
	if out, err := run(t, s, echo, text+"xx"); told(out, err) != "too_large" {
		t.Errorf("beyond the bounds: got %s, want too_large", told(out, err))
	}
	if out, err := run(t, s, echo, strings.Repeat("x", 6<<20)); told(out, err) != "too_large" {
		t.Errorf("given too much: got %s, want too_large", told(out, err))
	}
}

func TestInputIsOverwritten(t *testing.T) {
	s := common(t)
	for name, p := range map[string]sandbox.Program{
		"after a run":  program("t", "x", "1", "module.exports = () => 1"),
		"when refused": {},
	} {
		given := input(map[string]string{"number": "4242424242424242"})
		_, _ = s.Run(t.Context(), p, sandbox.Call{Entry: "main", Input: given, Timeout: patience})
		if !bytes.Equal(given, make([]byte, len(given))) {
			t.Errorf("%s the input still holds %d bytes that are not zero", name, len(bytes.Trim(given, "\x00")))
		}
	}
}

func TestWhatIsThrownIsDescribed(t *testing.T) {
	s := common(t)
	const code = `const e = require('tokenkeep/errors');
		module.exports = ({ args }) => { throw args === 'custom'
			? new e.CustomHttpResponseError({ status: 418, headers: { 'X-A': 'b' }, body: { tea: true } })
			: new e.AuthenticationError('who') }`
	out, err := run(t, s, program("t", "x", "1", code), "known")
	if err != nil || out.Thrown == nil || out.Thrown.Name != "AuthenticationError" || out.Thrown.Status != 401 || string(out.Thrown.Errors) != `{"error":["who"]}` {
		t.Errorf("an error of the module: %v, %+v", err, out.Thrown)
	}
	out, err = run(t, s, program("t", "x", "1", code), "custom")
	if err != nil || out.Thrown == nil || out.Thrown.Custom == nil {
		t.Fatalf("a custom response: %v, %+v", err, out.Thrown)
	}
	if c := out.Thrown.Custom; c.Status != 418 || c.Headers["X-A"] != "b" || string(c.Body) != `{"tea":true}` {
		t.Errorf("a custom response: %+v", c)
	}
}

func TestConsoleIsKept(t *testing.T) {
	s := common(t)
	out, err := run(t, s, program("t", "x", "1", `module.exports = () => { console.log('a %s', 'b', { c: 1 }); console.warn('w'); console.error('e'); process.stdout.write('raw\n') }`), nil)
	want := `{"level":"log","text":"a b { c: 1 }"}` + "\n" + `{"level":"warn","text":"w"}` + "\n" + `{"level":"error","text":"e"}` + "\n" + `{"level":"log","text":"raw"}` + "\n"
	if err != nil || string(out.Console) != want {
		t.Errorf("got %v, %s; want %s", err, out.Console, want)
	}
}

func TestConsoleIsBounded(t *testing.T) {
	storetest.Long(t)
	s := common(t)
	// Of a run that does not end by itself, in a process that is there.
	flood := program("t", "y", "1", `module.exports = ({ args }) => { do console.log('x'.repeat(1000)); while (args) }`)
	if out, err := run(t, s, flood, false); err != nil {
		t.Fatalf("a line: %s", told(out, err))
	}
	var out sandbox.Outcome
	waittest.Until(t, "a flood that has begun when its time is over", func() bool {
		var err error
		out, err = s.Run(t.Context(), flood, sandbox.Call{Entry: "main", Input: input(true), Timeout: 500 * time.Millisecond})
		if got := told(out, err); got != "timed_out" && !errors.Is(err, sandbox.ErrBusy) {
			t.Fatalf("a flood: %s, want timed_out", got)
		}
		return len(out.Console) >= 1000
	})
	if len(out.Console) > 64<<10 {
		t.Errorf("a flood: %d bytes of console; want at most 64 KiB", len(out.Console))
	}
}

func TestEntriesOfOneProgramShareAProcess(t *testing.T) {
	s := common(t)
	p := sandbox.Program{Tenant: "t", ID: "proxy", Version: "1", Sources: map[string]string{
		"request":  "globalThis.seen = 'request'; module.exports = ({ args }) => args.headers['content-TYPE']",
		"response": "module.exports = ({ args }) => [globalThis.seen, args.headers]",
		"broken":   "throw new Error('while loading')",
	}}
	for _, c := range []struct {
		entry   string
		headers bool
		want    string
	}{
		{"request", true, `value "text/plain"`},
		{"response", true, `value ["request",{"Content-Type":"text/plain"}]`},
		{"response", false, `value ["request",{"content-type":"text/plain"}]`},
		{"broken", false, "thrown Error"},
		{"response", false, `value [null,{"content-type":"text/plain"}]`}, // what failed to load took its process with it
		{"other", false, "refused"},
	} {
		out, err := s.Run(t.Context(), p, sandbox.Call{
			Entry: c.entry, Headers: c.headers, Input: input(map[string]any{"headers": map[string]string{"content-type": "text/plain"}}), Timeout: patience,
		})
		if got := told(out, err); got != c.want {
			t.Errorf("entry %s: got %s, want %s", c.entry, got, c.want)
		}
	}
}

// TestNothingReachesAnotherProgram changes all that a process shares and looks
// for it elsewhere.
func TestNothingReachesAnotherProgram(t *testing.T) {
	storetest.Long(t)
	const code = `module.exports = ({ args }) => {
		const seen = [globalThis.left, {}.polluted, Array.prototype.evil, globalThis.ticks, require('crypto').left].map((x) => x === undefined ? 0 : 1);
		globalThis.left = args; Object.prototype.polluted = args; Array.prototype.evil = args; require('crypto').left = args;
		globalThis.ticks = 0; setInterval(() => { globalThis.ticks++ }, 1);
		return seen.join('');
	}`
	s := common(t)
	first := program("t1", "r1", "1", code)
	if got := value(t, s, first, "secret"); got != `"00000"` {
		t.Errorf("a first call sees %s, want nothing", got)
	}
	if got := value(t, s, first, "secret"); got != `"11111"` {
		t.Errorf("a second call sees %s, want what the first left: processes are reused", got)
	}
	for name, p := range map[string]sandbox.Program{
		"another tenant":  program("t2", "r1", "1", code),
		"another program": program("t1", "r2", "1", code),
		"another version": program("t1", "r1", "2", code),
	} {
		if got := value(t, s, p, "secret"); got != `"00000"` {
			t.Errorf("%s sees %s, want nothing", name, got)
		}
	}
	alone := open(t, func(o *sandbox.Settings) { o.PerInvocation = true })
	for range 2 {
		if got := value(t, alone, first, "secret"); got != `"00000"` {
			t.Errorf("with a process for each call it sees %s, want nothing", got)
		}
	}
}

func TestCheckParsesWithoutRunning(t *testing.T) {
	s := common(t)
	for name, r := range map[string]struct {
		code, want   string
		line, column int
	}{
		"good":               {"module.exports = async () => { for (;;); }", "", 0, 0},
		"endless when run":   {"for (;;);", "", 0, 0},
		"sloppy":             {"with ({}) {}; undeclared = 010; return 1", "", 0, 0},
		"unknown module":     {"require('nothing')", "", 0, 0},
		"bad":                {"let a = 1;\n  let b = ;", "Unexpected token ';'", 2, 11},
		"a value in there":   {"let a = 4242424242424242 4242", "Invalid or unexpected token", 1, 9},
		"a module":           {"\nexport default 1", "Unexpected token 'export'", 2, 1},
		"ends the function":  {"}); evil(); (function () {", "Unexpected token '}'", 1, 1},
		"a name declared":    {"let number4242;\nlet number4242;", "Identifier '...' has already been declared", 2, 5},
		"nothing":            {"", "", 0, 0},
		"unterminated quote": {"x = 'abc", "Invalid or unexpected token", 1, 5},

		"ends too early":                  {"module.exports = async () => {", "Unexpected end of input", 1, 31},
		"ends too early, later":           {"let a = [1,\n  2", "Unexpected end of input", 2, 4},
		"ends too early, after a newline": {"module.exports = () => {\n\n\n", "Unexpected end of input", 4, 1},
		"ends too early, CRLF":            {"foo(\r\n1,\r\n", "Unexpected end of input", 3, 1},
		"ends too early, in a comment":    {"foo(\n// the end", "Unexpected end of input", 2, 11},
		"ends too early, not ASCII":       {"'é', (", "Unexpected end of input", 1, 7},
	} {
		err := s.Check(t.Context(), "t", r.code)
		var bad *sandbox.SyntaxError
		switch {
		case r.want == "" && err != nil:
			t.Errorf("%s: %v, want none", name, err)
		case r.want == "":
		case !errors.As(err, &bad):
			t.Errorf("%s: %v, want a syntax error", name, err)
		case bad.Message != r.want && name != "a value in there" || strings.Contains(bad.Message, "4242") || bad.Line != r.line || bad.Column != r.column && name != "a value in there":
			t.Errorf("%s: got %d:%d %s; want %d:%d %s", name, bad.Line, bad.Column, bad.Message, r.line, r.column, r.want)
		}
	}
}

func TestAnAbandonedCallEndsAtOnce(t *testing.T) {
	s := common(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Run(ctx, program("t", "spin", "1", "module.exports = () => { for (;;); }"), sandbox.Call{Entry: "main", Input: input(nil), Timeout: patience})
		ended <- err
	}()
	waittest.Until(t, "the loop runs", func() bool { _, _, busy := s.PIDs(); return len(busy) == 1 })
	_, before, _ := s.PIDs()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, sandbox.ErrBusy) {
		t.Errorf("got %v, want the cancellation", err)
	}
	if _, idle, busy := s.PIDs(); len(idle) > len(before) || len(busy) != 0 {
		t.Errorf("its process is kept: %d idle, %d busy", len(idle), len(busy))
	}
}

func TestPackagesOfTheOperator(t *testing.T) {
	storetest.Long(t)
	folder := t.TempDir()
	module := filepath.Join(folder, "node_modules", "ours")
	if err := os.MkdirAll(module, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(module, "index.js"), []byte("module.exports = 'ours'"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(module, "link.js")); err != nil {
		t.Fatal(err)
	}
	s := open(t, func(o *sandbox.Settings) { o.Packages = folder })
	if got := value(t, s, program("t", "x", "1", "module.exports = () => require('ours')"), nil); got != `"ours"` {
		t.Errorf("got %s", got)
	}
	if _, err := os.Lstat(filepath.Join(s.Root(), "app", "extra", "node_modules", "ours", "link.js")); !os.IsNotExist(err) {
		t.Errorf("a link was taken along: %v", err)
	}
}
