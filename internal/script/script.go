// Package script runs the code of tenants, for reactors and for the transforms
// of proxies, and says in the service's own terms how it ended.
//
// It promises that code acts with the rights of the application that its
// definition names and no others, that no key enters the sandbox, and that a
// protected value of six characters or more which code puts into an error is
// not repeated there. It never runs code itself: package sandbox does.
package script

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/sandbox"
)

// MaxDepth is how deep code may call reactors of reactors.
const MaxDepth = 3

// ErrNotStarted says that the code did not run at all and may be tried again.
var ErrNotStarted = errors.New("script: not started")

var (
	errOff      = fault.New(fault.Unprocessable, "this server does not run code")
	errBusy     = fault.New(fault.Unavailable, "too much code is running").RetryAfter(time.Second)
	errTooMany  = fault.New(fault.TooMany, "too many runs of this code at once").RetryAfter(time.Second)
	errNobody   = fault.New(fault.Unprocessable, "the application that this code acts for has expired or is gone")
	errTooDeep  = fault.New(fault.Unprocessable, "code called code too often in a row")
	errNotValid = fault.New(fault.Unprocessable, "the code returned something that is not JSON")
)

// failures are the words for code that did not come to an end of its own.
var failures = map[sandbox.Reason]*fault.Fault{
	sandbox.TimedOut:     fault.New(fault.Unprocessable, "the code timed out"),
	sandbox.OutOfMemory:  fault.New(fault.Unprocessable, "the code used too much memory"),
	sandbox.Exited:       fault.New(fault.Unprocessable, "the code ended its process"),
	sandbox.DidNotSettle: fault.New(fault.Unprocessable, "the code's promise can never settle"),
	sandbox.NoFunction:   fault.New(fault.Unprocessable, "the code does not export a function"),
	sandbox.BadResult:    errNotValid,
	sandbox.TooLarge:     fault.New(fault.Unprocessable, "the code was given or returned more than 5 MiB"),
	sandbox.Broke:        fault.New(fault.Unprocessable, "the code broke its connection to the service"),
	sandbox.Refused:      fault.New(fault.Unprocessable, "the code could not be started"),
}

// Runner runs code. Its methods are safe for concurrent use.
type Runner struct {
	box *sandbox.Sandbox // nil when this server runs no code
	// caller finds the rights of an application, as they are now.
	caller func(ctx context.Context, tenant, application string) (access.Caller, error)
	// client serves the calls of req.bt in a caller's name.
	client func(access.Caller) http.Handler
}

// New returns a runner. box is nil where no code runs.
func New(box *sandbox.Sandbox, caller func(ctx context.Context, tenant, application string) (access.Caller, error), client func(access.Caller) http.Handler) *Runner {
	return &Runner{box: box, caller: caller, client: client}
}

// Program is the code of one definition, in one version of it.
type Program struct {
	Tenant      string
	ID          string // of the reactor or the proxy
	Version     int64
	Application string            // whose rights it has; "" for none
	Sources     map[string]string // by the name of their entry
}

// Deployed is code with what it runs with.
type Deployed struct {
	Program       Program
	Entry         string          // which of its sources
	Configuration jsonvalue.Value // an object
}

// Call is one run.
type Call struct {
	Entry         string // which of the sources
	Args          jsonvalue.Value
	Configuration jsonvalue.Value // an object
	// Headers says that args.headers is looked up whatever the case of a name.
	Headers bool
	Timeout time.Duration
	Origin  access.Origin
	// Carry gives what the code calls with req.bt something of this run; nil
	// for nothing.
	Carry func(context.Context) context.Context
	// Protected yields the values that errors must not repeat; nil for none.
	Protected iter.Seq[jsonvalue.Value]
	// HideAll says that there are too many of them to know: errors repeat
	// nothing that the code said.
	HideAll bool
}

// Outcome is what a run came to.
type Outcome struct {
	// Value is what the code returned; null when it returned nothing.
	Value   jsonvalue.Value
	Console []byte // what it printed, lines of JSON
	Took    time.Duration
	Memory  int64 // bytes, as far as known
}

// What a run is charged with, in bytes of memory.
const (
	inputWeight  = 2           // for each byte of its input: the text, and the frame that carries it
	resultWeight = 2 * 5 << 20 // of the largest result: its text and its value
)

// Acting returns the application that code acts for, with the permissions that
// it has now.
func (r *Runner) Acting(ctx context.Context, tenant, application string) (access.Caller, error) {
	c, err := r.caller(ctx, tenant, application)
	if errors.Is(err, fault.Unauthenticated) || errors.Is(err, fault.NotFound) {
		return c, errNobody // a 401 would speak of the key of whoever called
	}
	if err != nil {
		return c, fmt.Errorf("find the application of code: %w", err)
	}
	return c, nil
}

// Run runs code. Its error is a fault, a *Thrown or a *Custom when the code is
// to blame; the outcome has the console and the figures of the run even then. It
// is ErrNotStarted, beside what callers are told, when the code did not run.
func (r *Runner) Run(ctx context.Context, p Program, c Call) (out Outcome, err error) {
	if r.box == nil {
		return out, errOff
	}
	inside := c.Origin // of what the code calls
	inside.Depth++
	if inside.Depth > MaxDepth {
		return out, errTooDeep
	}
	var client http.Handler
	if p.Application != "" {
		caller, err := r.Acting(ctx, p.Tenant, p.Application)
		if err != nil && fault.Of(err).Kind() == fault.Internal {
			err = fmt.Errorf("%w: %w", ErrNotStarted, err)
		}
		if err != nil {
			return out, err
		}
		serve := r.client(caller.WithOrigin(inside))
		client = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if c.Carry != nil {
				req = req.WithContext(c.Carry(req.Context()))
			}
			serve.ServeHTTP(w, req)
		})
	}
	var input jsonvalue.Builder
	input.Add("args", c.Args)
	input.Add("configuration", c.Configuration)
	// What it may return is charged before it runs: afterwards it is too late to
	// refuse, because the code may have acted.
	reserved := inputWeight*int64(input.Value().JSONSize()) + resultWeight
	if err := c.Origin.ChargeMemory(p.Tenant, reserved); err != nil {
		return out, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	got, err := r.box.Run(ctx, sandbox.Program{
		Tenant: p.Tenant, ID: p.ID, Version: strconv.FormatInt(p.Version, 10), Sources: p.Sources,
	}, sandbox.Call{Entry: c.Entry, Input: input.Value().AppendJSON(nil), Headers: c.Headers, Client: client, Timeout: c.Timeout})
	out.Console, out.Took, out.Memory = got.Console, got.Took, got.Memory
	_ = c.Origin.ChargeMemory(p.Tenant, -reserved) // giving back never fails
	if err != nil {
		return out, failure(err)
	}
	if got.Thrown != nil {
		return out, thrown(*got.Thrown, hidden{c.Protected, c.HideAll})
	}
	if got.Value == nil {
		return out, nil
	}
	defer clear(got.Value)
	if err := c.Origin.ChargeMemory(p.Tenant, int64(len(got.Value))+jsonvalue.Weight(got.Value)); err != nil {
		return out, err
	}
	if out.Value, err = jsonvalue.Parse(got.Value); err != nil {
		return out, errNotValid // duplicate names, or nested too deep for us
	}
	return out, nil
}

func failure(err error) error {
	var f *sandbox.Failure
	switch {
	case errors.As(err, &f):
		if words, ok := failures[f.Reason]; ok {
			return fmt.Errorf("%w: %w", words, err)
		}
	case errors.Is(err, sandbox.ErrBusy):
		return fmt.Errorf("%w: %w", ErrNotStarted, errBusy)
	case errors.Is(err, sandbox.ErrTooMany):
		return fmt.Errorf("%w: %w", ErrNotStarted, errTooMany)
	case errors.Is(err, sandbox.ErrOff):
		return errOff
	case errors.Is(err, sandbox.ErrClosed):
		return fmt.Errorf("%w: %w", ErrNotStarted, errBusy)
	}
	return fmt.Errorf("run code: %w", err)
}

// Check parses code of a tenant without running it. What does not parse is noted under
// path with its line and column, in the engine's words.
func (r *Runner) Check(ctx context.Context, f *fault.Fields, tenant, path, code string, maxLength int) error {
	switch n := utf8.RuneCountInString(code); {
	case strings.TrimSpace(code) == "":
		f.Add(path, "is required")
		return nil
	case n > maxLength:
		f.Add(path, "is too long")
		return nil
	}
	if r.box == nil {
		return nil // it is checked when it runs
	}
	err := r.box.Check(ctx, tenant, code)
	var syntax *sandbox.SyntaxError
	if errors.As(err, &syntax) {
		f.Add(path, fmt.Sprintf("does not parse: line %d, column %d: %s", syntax.Line, syntax.Column, syntax.Message))
		return nil
	}
	if err != nil {
		return failure(err)
	}
	return nil
}
