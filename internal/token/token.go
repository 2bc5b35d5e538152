// Package token keeps tokens: it checks, seals, masks, finds, shows and
// removes them.
//
// It promises that what a caller sees of a token is what package access allows
// on it and no more, that an answer to a change never reveals, that every token
// shown or changed is in the log before the answer leaves, and that a token
// which has expired is not there. It never keeps a card's security code beyond
// its hour, nor lets one into a mask, a fingerprint or an index, and it never
// holds plaintext longer than a call.
package token

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/limit"
	"github.com/tokenkeep/tokenkeep/internal/processor"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

var (
	errNoToken  = fault.New(fault.NotFound, "no such token").WithCode("token_not_found")
	errNoTenant = fault.New(fault.NotFound, "no such tenant")
	errTaken    = fault.New(fault.Conflict, "a token with this id exists already").WithCode("token_id_taken")

	errContainers = fault.New(fault.Conflict, "the tenant has as many different containers as it may have; use one that has tokens, or delete the tokens of another").WithCode("too_many_containers")
)

// Options are the settings of a Service. The zero Options are good ones.
type Options struct {
	Now     func() time.Time // default time.Now
	Random  io.Reader        // what aliases draw from; default crypto/rand
	Metrics prometheus.Registerer
	// MaxBody bounds what a detokenized document may come to; default 5 MiB.
	MaxBody int
	// Expressions bound the expressions of one request.
	Expressions expression.Limits
	// Processors are the turns that requests take at expressions; nil bounds nothing.
	Processors *processor.Turns
	// Limits counts the limits that callers reach; nil counts nothing.
	Limits *limit.Recorder
}

// Service keeps tokens. Its methods are safe for concurrent use.
type Service struct {
	store   store.Store
	ring    *keyring.Ring
	now     func() time.Time
	random  io.Reader
	maxBody int
	limits  expression.Limits // of the expressions of one request
	turns   *processor.Turns
	reached *limit.Recorder
	groups  groupCounts
	// changing lets the updates of one token take turns.
	changing turns
	// cache holds the expressions that are stored with tokens.
	cache               *expression.Cache
	expired, recomputed prometheus.Counter
}

// The cache of expressions: many tokens share few of them.
const (
	cachedExpressions = 4096
	cachedBytes       = 16 << 20
)

// New returns the service over a store and the ring of its keys.
func New(s store.Store, ring *keyring.Ring, o Options) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	if o.MaxBody <= 0 {
		o.MaxBody = 5 << 20
	}
	expired := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tokenkeep_tokens_expired_total", Help: "Tokens that were removed because they had expired.",
	})
	recomputed := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tokenkeep_fingerprints_recomputed_total", Help: "Tokens whose fingerprint an older release wrote and this one computed again.",
	})
	if o.Metrics != nil {
		o.Metrics.MustRegister(expired, recomputed)
	}
	return &Service{
		store: s, ring: ring, now: o.Now, random: o.Random, maxBody: o.MaxBody, limits: o.Expressions, turns: o.Processors, reached: o.Limits,
		cache: expression.NewCache(cachedExpressions, cachedBytes), expired: expired, recomputed: recomputed,
	}
}

// limitsOf are the limits of the expressions of one request of a tenant.
func (s *Service) limitsOf(tenant string) expression.Limits {
	limits := s.limits
	limits.Work = s.turns.For(tenant)
	return limits
}

// settings are what a tenant chose for its tokens.
type settings struct {
	directory.Settings
	directory.Widening
}

func settingsOf(ctx context.Context, tx store.Tx, keys *keyring.Keys) (settings, error) {
	row, err := tx.TenantRow(ctx)
	if errors.Is(err, store.ErrNotFound) {
		return settings{}, errNoTenant
	}
	if err != nil {
		return settings{}, fmt.Errorf("read tenant: %w", err)
	}
	chosen, err := directory.SettingsOf(row)
	if err != nil {
		return settings{}, err
	}
	widening, err := directory.WideningOf(row, keys)
	return settings{chosen, widening}, err
}

// keysOf returns the keys of the caller's tenant, which may take I/O and so
// cannot wait for the transaction.
func (s *Service) keysOf(ctx context.Context, c access.Caller) (*keyring.Keys, error) {
	keys, err := s.ring.For(ctx, c.Tenant())
	if errors.Is(err, keyring.ErrNoKeys) || errors.Is(err, store.ErrNoTenant) {
		return nil, errNoTenant
	}
	if err != nil {
		return nil, fmt.Errorf("get keys: %w", err)
	}
	return keys, nil
}

// update runs fn on the rows of the caller's tenant. The store keeps nothing
// for a tenant that was deleted since its keys were asked for.
func (s *Service) update(ctx context.Context, c access.Caller, fn func(store.Tx) error) error {
	err := s.store.Update(ctx, c.Tenant(), fn)
	if errors.Is(err, store.ErrNoTenant) {
		return errNoTenant
	}
	if errors.Is(err, store.ErrContainers) {
		s.reached.Reached(limit.Containers)
		return errContainers
	}
	return err
}

// read runs fn on a snapshot of the caller's tenant. The entries that it appends
// are in the log before read returns nil.
func (s *Service) read(ctx context.Context, c access.Caller, fn func(store.Tx) error) error {
	err := s.store.Read(ctx, c.Tenant(), fn)
	if errors.Is(err, store.ErrNoTenant) {
		return errNoTenant
	}
	return err
}

// begin asks first whether there is anything that the caller could do, then
// for what every call needs: the tenant's keys and settings.
func (s *Service) begin(ctx context.Context, c access.Caller, p access.Permission) (keys *keyring.Keys, set settings, err error) {
	if err := c.RequireSomewhere(p); err != nil {
		return nil, set, err
	}
	if keys, err = s.keysOf(ctx, c); err != nil {
		return nil, set, err
	}
	err = s.store.View(ctx, c.Tenant(), func(tx store.Tx) (err error) {
		set, err = settingsOf(ctx, tx, keys)
		return err
	})
	return keys, set, err
}

// live returns a token that has not expired.
func (s *Service) live(ctx context.Context, tx store.Tx, id string) (store.Token, error) {
	if !expression.ValidID(id) {
		return store.Token{}, errNoToken
	}
	row, err := tx.Token(ctx, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && expired(row, s.now()) {
		return store.Token{}, errNoToken
	}
	if err != nil {
		return store.Token{}, fmt.Errorf("read token: %w", err)
	}
	return row, nil
}

func expired(row store.Token, now time.Time) bool {
	return !row.Expiry.At.IsZero() && row.Expiry.At <= store.At(now)
}

// decide says how much of a token a permission shows; Nothing when it is
// refused, and then the error names the token for the log.
func decide(c access.Caller, p access.Permission, row store.Token) access.Decision {
	return c.Decide(p, access.Target{ID: row.ID, Containers: row.Containers, Type: row.Type})
}
