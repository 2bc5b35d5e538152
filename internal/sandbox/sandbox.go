// Package sandbox runs the JavaScript of tenants in child processes.
//
// It promises that code reaches nothing but what a call brought, the
// destinations that Settings.Dial opens, and the handler of the call that is
// running; that a process serves one version of one program of one tenant for
// its whole life, one call at a time; that a call ends at its deadline; and that
// no process outlives the one that started it. It assumes that code may take
// over its process altogether: the kernel is the wall, not the language.
//
// It never dials, never reads keys or the store, and never puts what code was
// given, returned or printed into a log, an error or a metric.
package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Level tells how much stands between code and the machine.
type Level int

// The levels. The zero value asks for everything.
const (
	// Full is namespaces, the system call filter, and Landlock where the
	// kernel has it.
	Full Level = iota
	// Reduced goes without namespaces: the filter and either Landlock or, for
	// root, a root folder and a user of its own.
	Reduced
	// UnsafeNone is no wall at all. For development with code of one's own.
	UnsafeNone
)

func (l Level) String() string {
	switch l {
	case Full:
		return "full"
	case Reduced:
		return "reduced"
	case UnsafeNone:
		return "unsafe_none"
	}
	return "unknown"
}

// Settings come from the operator. Zero values get the defaults in brackets.
type Settings struct {
	Runtime  string // folder of the runtime
	Node     string // another node binary than the runtime's
	Packages string // folder with further packages for require, "" for none
	// HeaderPrefix is that of the server's own headers, for what code calls
	// with req.bt [SVC].
	HeaderPrefix string
	Scratch      string // folder for the prepared root [the system's temporary folder]

	// JIT lets the engine compile to machine code, which needs memory that can
	// be written and executed. Without it the kernel refuses such memory.
	JIT   bool
	Level Level // the least that is acceptable

	// PerInvocation takes a fresh process for every call.
	PerInvocation bool

	Blank      int // processes kept ready [4]
	PerProgram int // calls of one program at once, waiting ones included [10]
	// Global is how many calls run at once [200]. A call for whose tenant nothing
	// runs does not wait for the others: such calls may take an eighth more, and
	// those that code makes with req.bt another eighth at each level.
	Global   int
	Queue    int           // calls that wait for a process [100]; negative for none
	Idle     time.Duration // a process ends after so long without a call [1m]
	MaxAge   time.Duration // and in any case after this [1h]
	MaxCalls int           // or after so many calls [10,000]

	OldSpaceMiB int // heap of the engine [96]
	DataMiB     int // all private memory of a process [256]

	// Dial opens a connection for code of a tenant; nil refuses all. An error
	// with a method Errno() string chooses the code that the program sees.
	Dial func(ctx context.Context, tenant, host string, port int) (net.Conn, error)

	Reached func(Bound)           // is told that a bound was reached [none]
	Log     *slog.Logger          // [none]
	Metrics prometheus.Registerer // [none]
	Now     func() time.Time      // [time.Now]
}

// Bound is a limit that keeps the code of one tenant from taking the sandbox from
// the others.
type Bound int

// The bounds.
const (
	SharedTurns Bound = iota // a tenant with its share of the turns waited because others did
	Connections              // a process asked for more connections than it may have
)

func (s Settings) filled() Settings {
	number := func(n *int, otherwise int) {
		if *n == 0 {
			*n = otherwise
		}
	}
	number(&s.Blank, 4)
	number(&s.PerProgram, 10)
	number(&s.Global, 200)
	number(&s.Queue, 100)
	number(&s.MaxCalls, 10_000)
	number(&s.OldSpaceMiB, 96)
	number(&s.DataMiB, 256)
	if s.Idle == 0 {
		s.Idle = time.Minute
	}
	if s.MaxAge == 0 {
		s.MaxAge = time.Hour
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	return s
}

// Program is code in one version. A process that has seen one serves no other.
type Program struct {
	Tenant, ID, Version string
	// Sources by entry: "main" of a reactor, "request" and "response" of a
	// proxy's transforms.
	Sources map[string]string
}

// Call is one run of an entry of a program.
type Call struct {
	Entry string
	// Input is the JSON of {"args":…,"configuration":…}. Run owns it, and
	// overwrites it with zeros before it returns.
	Input []byte
	// Headers turns args.headers into an object whose names ignore case.
	Headers bool
	// Client serves the calls that code makes with req.bt, while this call
	// runs and no longer; it must heed the context of its requests. Without
	// one, req.bt is null.
	Client http.Handler
	// Timeout bounds waiting for a process and running together.
	Timeout time.Duration
}

// Outcome is what came of a call.
type Outcome struct {
	Value   []byte        // JSON of what was returned; nil when nothing was
	Thrown  *Thrown       // what was thrown instead
	Console []byte        // lines of JSON, {"level":…,"text":…}, 64 KiB at most
	Took    time.Duration // from handing the call over to its answer
	Memory  int64         // bytes that the process occupied at the end; 0 when not known
}

// Thrown describes what code threw. All of it was chosen by code.
type Thrown struct {
	Name    string          `json:"name"`
	Message string          `json:"message"`
	Status  int             `json:"status"`
	Errors  json.RawMessage `json:"errors"`
	Custom  *CustomResponse `json:"custom"`
}

// CustomResponse is an answer that code asks for by throwing it.
type CustomResponse struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    json.RawMessage   `json:"body"`
}

// Reason says why a call gave neither a value nor a throw.
type Reason int

// The reasons. The zero Reason is a call that was not acceptable.
const (
	Refused      Reason = iota // the call names no program, entry or time
	TimedOut                   // the deadline came first
	OutOfMemory                // the process used up its memory
	Exited                     // the process ended by itself
	DidNotSettle               // nothing was left to wait for, and no answer
	NoFunction                 // the code exports no function
	BadResult                  // what was returned is not JSON
	TooLarge                   // what was given or returned is beyond the bounds
	Broke                      // the process did not keep to the protocol
)

// Failure is a call without an answer of the code. Its words are constants.
type Failure struct {
	Reason Reason
	words  string
}

func (f *Failure) Error() string {
	if f.words != "" {
		return f.words
	}
	return reasons[f.Reason]
}

var reasons = map[Reason]string{
	Refused:      "the call is not complete",
	TimedOut:     "timed out",
	OutOfMemory:  "out of memory",
	Exited:       "the code ended its process",
	DidNotSettle: "the promise that the code returned was never settled",
	NoFunction:   "the code exports no function",
	BadResult:    "the code returned something that is not JSON",
	TooLarge:     "the result is larger than 5 MiB",
	Broke:        "the code broke its process",
}

// SyntaxError tells where code does not parse. The message is the engine's,
// without what it quotes of the code.
type SyntaxError struct {
	Line, Column int
	Message      string
}

func (e *SyntaxError) Error() string { return e.Message }

// Errors that have nothing to do with what the code did.
var (
	ErrBusy    = errors.New("sandbox: no process is free")
	ErrTooMany = errors.New("sandbox: too many calls of this program at once")
	ErrOff     = errors.New("sandbox: code cannot run on this machine")
	ErrClosed  = errors.New("sandbox: closed")
)
