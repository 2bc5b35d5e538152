package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Run runs one entry of a program. What code did is in the Outcome, or a
// *Failure when it gave no answer; ErrBusy and ErrTooMany mean that it did not
// run at all.
func (s *Sandbox) Run(ctx context.Context, p Program, c Call) (Outcome, error) {
	defer clear(c.Input)
	if p.Tenant == "" || p.ID == "" || p.Version == "" || c.Timeout <= 0 || len(c.Entry) > 255 {
		return Outcome{}, &Failure{Reason: Refused}
	}
	if _, there := p.Sources[c.Entry]; !there {
		return Outcome{}, &Failure{Reason: Refused}
	}
	if len(c.Input) > maxInput {
		return Outcome{}, &Failure{Reason: TooLarge, words: "what the code is given is larger than 5 MiB"}
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	proc, mine, err := s.take(ctx, p.Tenant, p)
	if err != nil {
		return Outcome{}, err
	}
	out, reuse, err := proc.call(within(ctx, mine), c)
	s.put(proc, mine, reuse)
	s.metrics.ran(out, err)
	return out, err
}

// call hands a call over and waits for the answer. reuse tells whether the
// process kept to the protocol and may serve another.
func (p *process) call(ctx context.Context, c Call) (out Outcome, reuse bool, err error) {
	begun := time.Now()
	var n nonce
	_, _ = rand.Read(n[:])
	p.network.begin(ctx, c.Client)
	defer p.network.end()

	deadline, _ := ctx.Deadline()
	_ = p.control.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = p.control.SetDeadline(time.Unix(1, 0)) })

	flags := byte(0)
	if c.Headers {
		flags |= flagHeaders
	}
	if c.Client != nil {
		flags |= flagClient
	}
	head := append([]byte{flags, byte(len(c.Entry))}, c.Entry...)
	err = writeFrame(p.control, frameCall, n, head, c.Input)
	if err == nil {
		out, reuse, err = p.await(n)
	}
	if err != nil {
		err = p.ended(err)
		if cause := context.Cause(ctx); errors.Is(cause, context.Canceled) {
			err = cause
		}
	}
	out.Took = time.Since(begun)
	out.Memory = p.occupies()
	return out, stop() && reuse, err
}

// await reads frames until the one that answers.
func (p *process) await(n nonce) (out Outcome, reuse bool, err error) {
	seen := 0
	for {
		kind, payload, err := readFrame(p.control, n)
		if err != nil {
			return out, false, err
		}
		switch kind {
		case frameConsole:
			if seen += len(payload); seen > 4*maxConsole || !isJSON(payload) || bytes.ContainsAny(payload, "\n\r") {
				return out, false, errProtocol
			}
			if len(out.Console)+len(payload) < maxConsole {
				out.Console = append(append(out.Console, payload...), '\n')
			}
		case frameValue:
			if len(payload) == 0 {
				return out, true, nil
			}
			if !isJSON(payload) {
				return out, false, errProtocol
			}
			out.Value = payload
			return out, true, nil
		case frameThrown, frameFatal:
			out.Thrown = &Thrown{}
			if err := json.Unmarshal(payload, out.Thrown); err != nil || !out.Thrown.bounded() {
				out.Thrown = nil
				return out, false, errProtocol
			}
			return out, kind == frameThrown, nil
		case frameFailed:
			f, known := failures[string(payload)]
			if !known {
				return out, false, errProtocol
			}
			return out, f.Reason != DidNotSettle, &f
		default:
			return out, false, errProtocol
		}
	}
}

func isJSON(text []byte) bool { return utf8.Valid(text) && json.Valid(text) }

// bounded tells whether what was thrown is no longer than the runtime lets it be.
func (t *Thrown) bounded() bool {
	return len(t.Name) <= 1<<10 && len(t.Message) <= 64<<10 && len(t.Errors) <= 256<<10
}

// failures are what the runner reports by number.
var failures = map[string]Failure{
	"1": {Reason: NoFunction},
	"2": {Reason: BadResult, words: "the code returned something that is not JSON: it contains itself"},
	"3": {Reason: BadResult, words: "the code returned something that is not JSON: it contains a BigInt"},
	"4": {Reason: BadResult, words: "the code returned something that is not JSON: a function or a symbol"},
	"5": {Reason: BadResult, words: "the code returned something that is not JSON: its toJSON failed"},
	"6": {Reason: TooLarge},
	"7": {Reason: DidNotSettle},
}

const checkWait = 10 * time.Second

// Check parses code as the body of a module, in sloppy mode and without
// running it, in a turn of the tenant. The error is a *SyntaxError when it does
// not parse.
func (s *Sandbox) Check(ctx context.Context, tenant, code string) error {
	if len(code) > maxInput {
		return &Failure{Reason: TooLarge, words: "the code is larger than 5 MiB"}
	}
	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	// Parsing is work on hostile input too: the process serves nothing else.
	p, mine, err := s.take(ctx, tenant, Program{})
	if err != nil {
		return err
	}
	defer s.put(p, mine, false)
	deadline, _ := ctx.Deadline()
	_ = p.control.SetDeadline(deadline)
	defer context.AfterFunc(ctx, func() { _ = p.control.SetDeadline(time.Unix(1, 0)) })()
	var n nonce
	_, _ = rand.Read(n[:])
	if err := writeFrame(p.control, frameCheck, n, []byte(code)); err != nil {
		return p.ended(err)
	}
	kind, payload, err := readFrame(p.control, n)
	if err != nil {
		return p.ended(err)
	}
	if kind != frameChecked {
		return &Failure{Reason: Broke}
	}
	if len(payload) == 0 {
		return nil
	}
	var told SyntaxError
	if err := json.Unmarshal(payload, &told); err != nil {
		return &Failure{Reason: Broke}
	}
	told.Message = withoutQuotes(told.Message)
	return &told
}

var (
	quotedText  = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	quotedRegex = regexp.MustCompile(`regular expression: /.*/: `)
	signs       = regexp.MustCompile(`^[(){}\[\];,<>=!&|+*/%?:.^~-]{1,4}$`)
	noWords     = regexp.MustCompile(`[^A-Za-z0-9 ,.()'{}\[\];<>=!&|+*/%?:^~-]`)
)

// keywords may be named in a message: they are the language's, not the code's.
var keywords = strings.Fields(`await break case catch class const continue debugger default delete do else enum export extends
	finally for function if import in instanceof let new return static super switch this throw try typeof var void while with yield`)

const maxMessage = 200

// withoutQuotes takes out of the engine's message what it quotes of the code,
// in which somebody may have written a value.
func withoutQuotes(message string) string {
	message = quotedRegex.ReplaceAllString(message, "regular expression: ")
	message = quotedText.ReplaceAllStringFunc(message, func(q string) string {
		if inner := q[1 : len(q)-1]; signs.MatchString(inner) || slices.Contains(keywords, inner) {
			return q
		}
		return "'...'"
	})
	message = noWords.ReplaceAllString(message, "")
	return message[:min(len(message), maxMessage)]
}
