package reactor

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/script"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// SyncTimeout is how long code may take while its caller waits.
const SyncTimeout = 10 * time.Second

// maxNesting is what arguments in a request may have: they stand in an object.
const maxNesting = jsonvalue.MaxDepth - 1

var (
	errArgs    = fault.Field("args", "must be an object")
	errNesting = fault.Field("args", "is nested too deep once its tokens are in it")
	errResult  = fault.New(fault.Unprocessable, "the code must return nothing, or an object with raw, tokenize or both")
	errMember  = fault.New(fault.Unprocessable, "the code returned an object with members other than raw and tokenize")
)

// Response is what a run gives its caller.
type Response struct {
	Tokens jsonvalue.Value // null when the code tokenized nothing
	Raw    jsonvalue.Value // null when it returned nothing in clear
	hasRaw bool
	// Custom is an answer that the code gives in place of all that.
	Custom *script.Custom
	// RunID names the run in the list of runs; "" when no code ran. It is set
	// beside an error too.
	RunID string
	// Shown are the tokens among the arguments, and those that were made.
	Shown []access.Shown
}

// Object is the response as the JSON object of an answer.
func (r Response) Object() jsonvalue.Value {
	var b jsonvalue.Builder
	if !r.Tokens.IsNull() {
		b.Add("tokens", r.Tokens)
	}
	if r.hasRaw {
		b.Add("raw", r.Raw)
	}
	return b.Value()
}

// ready is a run whose arguments are there.
type ready struct {
	reactor   Reactor
	args      jsonvalue.Value
	shown     []access.Shown // the tokens among the arguments
	protected iter.Seq[jsonvalue.Value]
	hideAll   bool              // there are too many of these to keep: all that code says is hidden
	epoch     *keyring.EpochKey // under which all that is made of them belongs; nil for none
	request   string            // the id of a run that nobody waits for; "" for others
	keys      *keyring.Keys     // as they are once the code has run, which may outlast a rotation
}

// prepare finds the reactor and puts the values of tokens into the arguments.
// The use of each token is logged: whatever happens to the run from here on,
// its code may have seen them.
func (s *Service) prepare(ctx context.Context, c access.Caller, id string, args jsonvalue.Value) (r ready, err error) {
	if err := c.RequireSomewhere(access.TokenUse); err != nil {
		return r, err
	}
	if r.reactor, err = s.definitions.Find(ctx, c.Tenant(), id); err != nil {
		return r, err
	}
	b := s.parts.Tokens.BodyBudget(ctx, c.Tenant(), s.options.MaxBody)
	b.Grow(args.JSONSize())
	doc, err := expression.ParseDocument(b, args)
	if err != nil {
		return r, err
	}
	used, err := s.parts.Tokens.Use(ctx, c, token.User{Type: audit.Reactor, ID: id}, doc.IDs())
	if err != nil {
		return r, err
	}
	r.epoch, r.shown = used.Epoch(), used.Shown()
	used.Grow(b)
	expanded, err := doc.Resolve(used.Lookup(), b)
	if err != nil {
		return r, err
	}
	if err := token.ChargeExpansion(c, expanded); err != nil {
		return r, err
	}
	// Only now: an expression may stand for the whole of the arguments.
	r.args = expanded.Value()
	if err := checkArgs(r.args); err != nil {
		return r, err
	}
	r.protected = protected(used.Leaves(), args, r.args)
	return r, nil
}

// protected yields what errors must not repeat: the values of tokens, and what
// expressions made of them.
func protected(values iter.Seq[jsonvalue.Value], sent, expanded jsonvalue.Value) iter.Seq[jsonvalue.Value] {
	return func(yield func(jsonvalue.Value) bool) {
		seen := make(map[string]bool)
		for v := range values {
			seen[v.Reveal()] = true
			if !yield(v) {
				return
			}
		}
		for v := range sent.Leaves() {
			seen[v.Reveal()] = true
		}
		for v := range expanded.Leaves() {
			if !seen[v.Reveal()] && !yield(v) {
				return
			}
		}
	}
}

// nesting is how many arrays and objects of a value stand in one another.
func nesting(v jsonvalue.Value) (deepest int) {
	if v.Kind() != jsonvalue.Array && v.Kind() != jsonvalue.Object {
		return 0
	}
	for _, item := range v.Items() {
		deepest = max(deepest, nesting(item))
	}
	for _, member := range v.Members() {
		deepest = max(deepest, nesting(member))
	}
	return deepest + 1
}

// React runs a reactor while its caller waits. last runs in the transaction
// that keeps what came of it; the epoch key it gets, when not nil, is the one
// under which the answer belongs.
func (s *Service) React(ctx context.Context, c access.Caller, id string, in Invocation, last ...func(store.Tx, Response, *keyring.EpochKey) error) (Response, error) {
	if in.Timeout != 0 {
		return Response{}, errSyncTimeout
	}
	// The code may want something tokenized, when what it does is done.
	if err := s.parts.Store.Room(); err != nil {
		return Response{}, fmt.Errorf("look for room: %w", err)
	}
	r, err := s.prepare(ctx, c, id, in.Args)
	if err != nil {
		return Response{}, err
	}
	kept := never
	if len(last) > 0 {
		kept = whenWell
	}
	return s.run(ctx, c, &r, SyncTimeout, func(tx store.Tx, out Response) error {
		for _, step := range last {
			if err := step(tx, out, r.epoch); err != nil {
				return err
			}
		}
		return nil
	}, kept)
}

// kept says which answers of code are kept. Errors are not among them.
type kept int

const (
	never    kept = iota
	whenWell      // answers that say that all went well
	always        // also those that the code gives with another status
)

func (k kept) keeps(out Response) bool {
	return k == always || k == whenWell && (out.Custom == nil || out.Custom.Status >= 200 && out.Custom.Status <= 299)
}

// run runs code on its arguments and tokenizes what it wants tokenized. finish runs in the transaction of that; when there is
// nothing to tokenize and the answer is to be kept, in one of its own. When it
// runs, r.epoch is the key under which the answer belongs.
func (s *Service) run(ctx context.Context, c access.Caller, r *ready, timeout time.Duration, finish func(store.Tx, Response) error, k kept) (out Response, err error) {
	out.Shown = r.shown
	ctx, seen := keyring.Watched(ctx)
	ran, err := s.parts.Scripts.Run(ctx, program(r.reactor), script.Call{
		Entry: entry, Args: r.args, Configuration: Configuration(r.reactor), Timeout: timeout, Origin: c.Origin(), Protected: r.protected, HideAll: r.hideAll, Carry: seen.Over,
	})
	if epoch := seen.Oldest(); epoch != nil && (r.epoch == nil || epoch.Epoch() < r.epoch.Epoch()) {
		r.epoch = epoch
	}
	if !errors.Is(err, script.ErrNotStarted) {
		out.RunID = s.printed(c.Tenant(), *r, ran, err)
	}
	if err != nil && !errors.As(err, &out.Custom) {
		return out, err
	}
	if r.keys, err = s.parts.Ring.For(ctx, c.Tenant()); err != nil {
		return out, fmt.Errorf("get keys: %w", err)
	}
	if out.Custom != nil {
		if k.keeps(out) {
			return out, s.keep(ctx, c, out, finish)
		}
		return out, nil
	}
	if err := CheckResult(ran.Value); err != nil {
		return out, err
	}
	out.Raw, out.hasRaw = ran.Value.Get("raw")
	tokenize, _ := ran.Value.Get("tokenize")
	if tokenize.IsNull() {
		if k.keeps(out) {
			return out, s.keep(ctx, c, out, finish)
		}
		return out, nil
	}
	return out, s.tokenize(ctx, c, r.reactor, tokenize, func(tx store.Tx, made token.Tokenized) error {
		out.Tokens, out.Shown = made.Value, slices.Concat(r.shown, made.Shown)
		return finish(tx, out)
	})
}

var (
	errTokenize = fault.New(fault.Unprocessable, "the code returned a tokenize that is not valid; see errors").WithCode("tokenize_invalid")
	errMaker    = fault.New(fault.Unprocessable, "the application of the reactor may not create the tokens that its code returned").
			WithCode("reactor_application_denied")
)

// lastError is an error of what comes after tokenizing, in the same transaction.
type lastError struct{ error }

func (e lastError) Unwrap() error { return e.error }

// tokenize makes the tokens that code wants made: as the reactor's application
// when it has one, else as the caller. What the caller gets to see of them, and
// needs to get it again, depends on its own access in both cases.
func (s *Service) tokenize(ctx context.Context, c access.Caller, r Reactor, v jsonvalue.Value, last store.Step[token.Tokenized]) error {
	maker, viewer := c, (*access.Caller)(nil)
	if r.ApplicationID != "" {
		application, err := s.parts.Scripts.Acting(ctx, c.Tenant(), r.ApplicationID)
		if err != nil {
			return err
		}
		maker, viewer = application.WithOrigin(c.Origin()), &c
	}
	_, err := s.parts.Tokens.TokenizeResult(ctx, maker, viewer, v, func(tx store.Tx, made token.Tokenized) error {
		if err := last(tx, made); err != nil {
			return lastError{err}
		}
		return nil
	})
	var (
		denial *access.Denial
		later  lastError
	)
	if errors.As(err, &later) {
		return err // the tokens were fine
	}
	if viewer != nil && errors.As(err, &denial) {
		// It is the application that was refused, and so in the log: not the caller.
		if s.parts.Refused != nil {
			s.parts.Refused(ctx, maker, err)
		}
		return errMaker
	}
	if f := fault.Of(err); f.Kind() == fault.Invalid || f.Kind() == fault.Conflict {
		return fmt.Errorf("%w: %w", errTokenize.WithFieldsOf(f, "tokenize"), err)
	}
	return err
}

// CheckResult says what is wrong with what code returned.
func CheckResult(v jsonvalue.Value) error {
	if v.IsNull() {
		return nil
	}
	if v.Kind() != jsonvalue.Object {
		return errResult
	}
	for name := range v.Members() {
		if name != "raw" && name != "tokenize" {
			return errMember
		}
	}
	return nil
}

// keep runs finish where no other transaction does.
func (s *Service) keep(ctx context.Context, c access.Caller, out Response, finish func(store.Tx, Response) error) error {
	if err := s.parts.Store.Update(ctx, c.Tenant(), func(tx store.Tx) error { return finish(tx, out) }); err != nil {
		return fmt.Errorf("keep the answer of a run: %w", err)
	}
	return nil
}
