package reactor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/definition"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/script"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// Trial is what came of code that was tried.
type Trial struct {
	// Raw is what the code returned in clear, and Tokenize what it wants
	// tokenized, which a trial does not do. Both are null when there is none.
	Raw, Tokenize jsonvalue.Value
	Custom        *script.Custom // an answer that the code gives in place of these
	Took          time.Duration
	Memory        int64
	Console       []json.RawMessage
	// Err is what was wrong with the code; nil when it ran to its end.
	Err error
}

// Try runs code that is not saved, behind the same walls as a reactor. It takes
// reactor:update and, where tokens are among the arguments or the code acts for
// an application, token:use: otherwise whoever may write code could read values
// with it. Every token used is in the log before the code runs. Nothing that the
// code returns is tokenized, and nothing of the run is kept.
func (s *Service) Try(ctx context.Context, c access.Caller, in jsonvalue.Value) (t Trial, err error) {
	if err := c.Require(access.ReactorUpdate); err != nil {
		return t, err
	}
	if in.Kind() != jsonvalue.Object {
		return t, definition.ErrNotObject
	}
	args, _ := in.Get("args")
	if configuration, ok := in.Get(definition.MemberConfiguration); !ok || configuration.IsNull() {
		in = in.With(definition.MemberConfiguration, definition.EmptyObject)
	}
	d, err := s.checked(ctx, c.Tenant(), in.Without("args").With(definition.MemberName, jsonvalue.NewString("trial")))
	if err != nil {
		return t, err
	}
	if err := s.definitions.RequireToRun(ctx, c, d); err != nil {
		return t, err
	}
	r := ready{reactor: Reactor{definition.Definition{ID: access.NewID(), TenantID: c.Tenant(), Version: 1, ApplicationID: d.ApplicationID, Contents: d.Contents}}}
	if err := s.fill(ctx, c, &r, args); err != nil {
		return t, err
	}
	if d.ApplicationID != "" {
		if _, err := s.parts.Scripts.Acting(ctx, c.Tenant(), d.ApplicationID); err != nil {
			return t, fault.Field("application", "must be a public or private application of the tenant")
		}
	}
	ctx, seen := keyring.Watched(ctx)
	ran, err := s.parts.Scripts.Run(ctx, program(r.reactor), script.Call{
		Entry: entry, Args: r.args, Configuration: Configuration(r.reactor), Timeout: SyncTimeout, Origin: c.Origin(), Protected: r.protected, HideAll: r.hideAll, Carry: seen.Over,
	})
	errors.As(err, &t.Custom)
	if err != nil && t.Custom == nil && (ran.Took == 0 || errors.Is(err, script.ErrNotStarted) || !isFault(err)) {
		return t, err // no code ran, or we failed
	}
	t.Took, t.Memory = ran.Took, ran.Memory
	for line := range bytes.Lines(ran.Console) {
		if json.Valid(line) { // what a sandbox says is not trusted to be
			t.Console = append(t.Console, json.RawMessage(bytes.TrimSpace(line)))
		}
	}
	switch {
	case t.Custom != nil:
	case err != nil:
		t.Err = err
	default:
		if t.Err = CheckResult(ran.Value); t.Err == nil {
			t.Raw, _ = ran.Value.Get("raw")
			t.Tokenize, _ = ran.Value.Get("tokenize")
		}
	}
	return t, nil //nolint:nilerr // what is wrong with the code is the result of the trial
}

// fill puts the values of tokens into the arguments of a trial, and logs it.
func (s *Service) fill(ctx context.Context, c access.Caller, r *ready, args jsonvalue.Value) error {
	b := s.parts.Tokens.BodyBudget(ctx, c.Tenant(), s.options.MaxBody)
	b.Grow(args.JSONSize())
	doc, err := expression.ParseDocument(b, args)
	if err != nil {
		return err
	}
	if len(doc.IDs()) == 0 && r.reactor.ApplicationID == "" {
		r.args, r.protected = args, func(func(jsonvalue.Value) bool) {}
		err := s.parts.Store.Update(ctx, c.Tenant(), func(tx store.Tx) error {
			return tx.AppendLog(ctx, audit.EntryPart(c, s.options.Now(), audit.Reactor, audit.Many, "code", audit.Use))
		})
		if err != nil {
			return fmt.Errorf("log a trial: %w", err)
		}
		return checkArgs(r.args)
	}
	used, err := s.parts.Tokens.Use(ctx, c, token.User{Type: audit.Reactor, ID: audit.Many}, doc.IDs())
	if err != nil {
		return err
	}
	r.epoch, r.shown = used.Epoch(), used.Shown()
	used.Grow(b)
	expanded, err := doc.Resolve(used.Lookup(), b)
	if err != nil {
		return err
	}
	if err := token.ChargeExpansion(c, expanded); err != nil {
		return err
	}
	r.args = expanded.Value()
	r.protected = protected(used.Leaves(), args, r.args)
	return checkArgs(r.args)
}

// checkArgs says what is wrong with arguments once the tokens are in them.
func checkArgs(args jsonvalue.Value) error {
	if !args.IsNull() && args.Kind() != jsonvalue.Object {
		return errArgs
	}
	if nesting(args) > maxNesting {
		return errNesting
	}
	return nil
}
