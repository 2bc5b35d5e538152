package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/egress"
	"github.com/tokenkeep/tokenkeep/internal/endpoint"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/jobs"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/keyring/providers"
	"github.com/tokenkeep/tokenkeep/internal/limit"
	"github.com/tokenkeep/tokenkeep/internal/member"
	"github.com/tokenkeep/tokenkeep/internal/openid"
	"github.com/tokenkeep/tokenkeep/internal/proxy"
	"github.com/tokenkeep/tokenkeep/internal/reactor"
	"github.com/tokenkeep/tokenkeep/internal/sandbox"
	"github.com/tokenkeep/tokenkeep/internal/script"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// services are the parts behind the routes.
type services struct {
	kms       keyring.Several // empty until the key of development mode is opened
	ring      *keyring.Ring
	directory *directory.Service
	audit     *audit.Service
	sealer    *audit.Sealer
	tokens    *token.Service
	answers   *idempotency.Service
	egress    *egress.Egress
	sandbox   *sandbox.Sandbox // nil where no code runs
	scripts   *script.Runner
	jobs      *jobs.Queue
	reactors  *reactor.Service
	proxies   *proxy.Service
	members   *member.Service
	openID    *openid.Providers
}

// connect opens the keys and puts the services on the store.
func (s *Server) connect(ctx context.Context) (err error) {
	if s.kms == nil { // development mode: the key lies in the folder, which is ours only now
		path, err := devKEK(s.config.Data)
		if err != nil {
			return err
		}
		key, err := localkms.Open(path)
		if err != nil {
			return err
		}
		s.kms = keyring.Several{key}
	}
	s.ring, err = keyring.Open(ctx, s.kms, s.store, keyring.Options{
		Now: s.now, CacheFor: s.options.KeyCache, Requests: s.options.Requests, Later: true, Missing: func(id string) {
			s.log.Error("a keyset in the store needs a key-encryption key that this server does not have: name it in kek.also, or use the key file of a server that has it", "kek", id)
		},
	})
	if err != nil {
		return err
	}
	o := audit.Options{Now: s.now, Logger: s.log, Metrics: s.registry}
	s.audit, s.sealer = audit.New(s.store, s.ring, o), audit.NewSealer(s.store, s.ring, o)
	s.directory = directory.New(s.store, s.ring, s.now, s.config.Environment, func(ctx context.Context, tenant string) error {
		_, err := s.sealer.SealTenant(ctx, tenant)
		return err
	})
	var providers []openid.Settings
	if s.config.SignInProvidersFile != "" {
		if providers, err = openid.Load(s.config.SignInProvidersFile); err != nil {
			return err
		}
	}
	s.openID = openid.New(providers, s.now)
	s.members = member.New(s.store, s.ring, s.now, s.config.Environment)
	s.tokens = token.New(s.store, s.ring, token.Options{
		Now: s.now, Metrics: s.registry, MaxBody: int(s.config.MaxBody), Limits: s.limits, Expressions: expression.Limits{
			Steps: s.config.ExpressionSteps, Memory: s.config.ExpressionMemory, Reached: func() { s.limits.Reached(limit.Expressions) },
		},
	})
	s.answers = idempotency.New(s.store, s.ring, s.now, s.tokens.Replay)
	s.connectCode()
	return nil
}

func (s *Server) endpoints() endpoint.Services {
	return endpoint.Services{
		Directory: s.directory, Audit: s.audit, Tokens: s.tokens, Idempotency: s.answers, Reactors: s.reactors, Proxies: s.proxies,
		Members: s.members, Providers: s.openID, ConsoleURL: s.consoleURL,
	}
}

// KEKError says that the configured key-encryption key cannot be used.
type KEKError struct{ cause error }

func (e *KEKError) Error() string {
	if errors.Is(e.cause, localkms.ErrFormat) {
		return "the file or the value does not hold a key-encryption key: 'tokenkeep key create' makes one"
	}
	return "the key-encryption key cannot be used: " + e.cause.Error()
}

func (e *KEKError) Unwrap() error { return e.cause }

// openKMS opens the configured key-encryption key; nil when none is configured.
func openKMS(ctx context.Context, c *config.Config, o providers.Options) (keyring.Several, error) {
	o.Token, o.PIN, o.Timeout = c.KEKToken, c.KEKPIN, c.KEKTimeout
	all, err := providers.Open(ctx, c.KEKs(), o)
	if err == nil && !c.KEK.IsZero() {
		var text *localkms.KMS
		if text, err = localkms.FromText(c.KEK); err == nil {
			all = append(keyring.Several{text}, all...)
		}
	}
	if err != nil {
		return nil, &KEKError{err}
	}
	return all, nil
}

// chore is work that comes round again and again.
type chore struct {
	name  string
	every time.Duration
	// destroys says that it removes what is due by the clock: it waits while
	// the clock is not believed.
	destroys bool
	do       func(context.Context) error
}

func (s *Server) chores() []chore {
	return []chore{
		{"destroy short-lived keys", 20 * time.Second, true, func(ctx context.Context) error {
			_, err := s.ring.DestroyDue(ctx, 0)
			return err
		}},
		{"remove expired tokens", 30 * time.Second, true, func(ctx context.Context) error {
			_, err := s.tokens.Sweep(ctx)
			return err
		}},
		{"remove expired sessions", 30 * time.Second, true, func(ctx context.Context) error {
			_, err := s.directory.SweepSessions(ctx)
			return err
		}},
		{"remove answers and jobs whose time is over", time.Minute, true, func(ctx context.Context) error {
			_, err := store.SweepParcels(ctx, s.store, store.At(s.now()))
			return err
		}},
		{"recompute fingerprints of an older release", 10 * time.Second, false, func(ctx context.Context) error {
			done, err := s.tokens.RecomputeFingerprints(ctx)
			if done > 0 {
				s.log.Info("fingerprints of an older release were recomputed", "tokens", done)
			}
			return err
		}},
		{"try the KMS", 30 * time.Second, false, s.watchKMS},
		{"remove the rows of deleted tenants", 5 * time.Second, false, s.directory.FinishDeletions},
		{"note the time", time.Minute, true, s.noteTime},
	}
}

// work does the chores until ctx ends. One that fails is logged and comes
// round again; one that panics must not take the server along.
func (s *Server) work(ctx context.Context, c chore) {
	for ticker := time.NewTicker(c.every); ; {
		select {
		case <-ctx.Done():
			ticker.Stop()
			return
		case <-ticker.C:
		}
		if c.destroys && s.doubtsClock() {
			continue
		}
		if err := safely(func() error { return c.do(ctx) }); err != nil && ctx.Err() == nil {
			s.log.Error("a chore failed and will be tried again", "chore", c.name, "cause", err)
		}
	}
}

func safely(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			// A panic's value may hold data; its type does not.
			err = fmt.Errorf("panic of type %T", p)
		}
	}()
	return do()
}
