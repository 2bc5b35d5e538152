package directory

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// How long a session lives: from its making until somebody says otherwise, and
// from its authorization at most.
const (
	sessionLife    = 3 * time.Minute
	maxSessionLife = 24 * time.Hour
)

var (
	errNoSession    = fault.New(fault.NotFound, "no such session")
	errNoNonce      = fault.New(fault.NotFound, "no session waits for this nonce")
	errNonceUsed    = fault.New(fault.Conflict, "the nonce was used already")
	errSessionEnded = fault.New(fault.Unauthenticated, "the session has expired")
	errNotYet       = fault.New(fault.Forbidden, "the session is not authorized yet")
)

// Session is a session as the applications of its tenant see it. Its key and
// its nonce are there only in the answer that made it.
type Session struct {
	ID           string
	TenantID     string
	Prefix       string
	Permissions  []string
	Rules        []access.Rule
	CreatedBy    string // the public application that made it
	CreatedAt    time.Time
	AuthorizedBy string // the private application; "" until then
	AuthorizedAt time.Time
	ExpiresAt    time.Time

	Key   secret.Text
	Nonce secret.Text
}

// sealedSession is all that decides what a session may do, and for whom. It is
// sealed as one, for this session alone, from its making on: whoever can write
// to the database must not authorize a session, prolong it, give it another
// key, or pass it off as another application's.
type sealedSession struct {
	Key          []byte        `json:"key"`
	Nonce        []byte        `json:"nonce"`
	CreatedBy    string        `json:"created_by"`
	AuthorizedBy string        `json:"authorized_by,omitempty"`
	ExpiresAt    store.Time    `json:"expires_at"`
	Permissions  []string      `json:"permissions,omitempty"`
	Rules        []access.Rule `json:"rules,omitempty"`
}

func sealSession(keys *keyring.Keys, r *store.Session, permissions []string, rules []access.Rule) error {
	b, err := json.Marshal(sealedSession{r.KeyHash, r.NonceHash, r.CreatedBy, r.AuthorizedBy, r.ExpiresAt, permissions, rules})
	if err != nil {
		return fmt.Errorf("encode a session: %w", err)
	}
	r.Grant, err = keys.Seal(r.ID, keyring.FieldSessionGrant, b)
	return err
}

// openSession returns what a session was granted, if its row says what was sealed.
func openSession(keys *keyring.Keys, r store.Session) (sealedSession, error) {
	var g sealedSession
	b, err := keys.Open(r.ID, keyring.FieldSessionGrant, r.Grant)
	if err != nil {
		return g, err
	}
	if err := json.Unmarshal(b, &g); err != nil {
		return g, errors.New("decode a session") // the decoder's words may repeat it
	}
	if !bytes.Equal(g.Key, r.KeyHash) || !bytes.Equal(g.Nonce, r.NonceHash) || g.CreatedBy != r.CreatedBy ||
		g.AuthorizedBy != r.AuthorizedBy || g.ExpiresAt != r.ExpiresAt {
		return g, &keyring.OpenError{Record: r.ID, Field: keyring.FieldSessionGrant}
	}
	return g, nil
}

func sessionOf(tenant string, r store.Session, g sealedSession) Session {
	return Session{
		ID: r.ID, TenantID: tenant, Prefix: r.Prefix, Permissions: g.Permissions, Rules: g.Rules, CreatedBy: r.CreatedBy,
		CreatedAt: r.CreatedAt.Time(), AuthorizedBy: r.AuthorizedBy, AuthorizedAt: r.AuthorizedAt.Time(), ExpiresAt: r.ExpiresAt.Time(),
	}
}

// CreateSession makes a session that may do nothing until it is authorized.
// It takes the key of a public application.
func (s *Service) CreateSession(ctx context.Context, c access.Caller, last ...store.Step[Session]) (out Session, err error) {
	if err := c.RequireType(access.Public); err != nil {
		return Session{}, err
	}
	keys, err := s.keysOf(ctx, c)
	if err != nil {
		return Session{}, err
	}
	key, err := access.NewKey(s.random, s.environment, access.SessionKey, c.Tenant())
	if err != nil {
		return Session{}, err
	}
	nonce, err := access.NewKey(s.random, s.environment, access.Nonce, c.Tenant())
	if err != nil {
		return Session{}, err
	}
	now := s.now()
	r := store.Session{
		ID: access.NewID(), KeyHash: keys.HashKey(key.Text()), NonceHash: keys.HashKey(nonce.Text()), Prefix: key.Prefix(),
		CreatedBy: c.Application(), CreatedAt: store.At(now), ExpiresAt: store.At(now.Add(sessionLife)), Version: 1,
	}
	if err := sealSession(keys, &r, nil, nil); err != nil {
		return Session{}, err
	}
	err = s.logged(ctx, c, audit.Session, r.ID, audit.Create, func(tx store.Tx) error {
		if err := tx.InsertSession(ctx, r); err != nil {
			return fmt.Errorf("insert session: %w", err)
		}
		out = sessionOf(c.Tenant(), r, sealedSession{})
		out.Key, out.Nonce = key.Text(), nonce.Text()
		return store.Finish(tx, out, last)
	})
	return out, err
}

// Authorization is what a private application gives to the session of a nonce.
type Authorization struct {
	Nonce       secret.Text
	Permissions []string
	Rules       []access.Rule
	ExpiresAt   time.Time // zero leaves it as it is
}

// AuthorizeSession gives a session its rights, once. They are no more than the
// caller has itself, unless the tenant has lifted that bound.
func (s *Service) AuthorizeSession(ctx context.Context, c access.Caller, in Authorization, last ...store.Step[Session]) (out Session, err error) {
	if err := c.RequireType(access.Private); err != nil {
		return Session{}, err
	}
	var f fault.Fields
	if in.Nonce.IsZero() {
		f.Add("nonce", "is required")
	}
	in.Permissions, in.Rules = access.NormalizeSession(&f, in.Permissions, in.Rules)
	now := s.now()
	if at := in.ExpiresAt; !at.IsZero() && (!at.After(now) || at.After(now.Add(maxSessionLife))) {
		f.Add("expires_at", "must be in the future and at most 24 hours ahead")
	}
	if err := f.Err(); err != nil {
		return Session{}, err
	}
	grant, err := access.NewGrant(in.Permissions, in.Rules)
	if err != nil {
		return Session{}, err
	}
	keys, err := s.keysOf(ctx, c)
	if err != nil {
		return Session{}, err
	}
	nonce, ok := access.ParseKey(in.Nonce, access.Nonce)
	if !ok || nonce.Tenant() != c.Tenant() {
		return Session{}, errNoNonce
	}
	hash := keys.HashKey(in.Nonce)
	err = s.update(ctx, c, func(tx store.Tx) error {
		r, err := tx.SessionByNonce(ctx, hash)
		if err != nil {
			return notFound(err, errNoNonce)
		}
		if _, err := openSession(keys, r); err != nil {
			return fmt.Errorf("open session: %w", err)
		}
		if ended(r, s.now()) {
			return errNoNonce
		}
		if r.AuthorizedBy != "" {
			return errNonceUsed
		}
		lifted, err := uncapped(ctx, tx, keys)
		if err != nil {
			return err
		}
		if !lifted {
			if err := c.RequireToGrant(grant); err != nil {
				return err
			}
		}
		r.AuthorizedBy, r.AuthorizedAt = c.Application(), store.At(s.now())
		if !in.ExpiresAt.IsZero() {
			r.ExpiresAt = store.At(in.ExpiresAt)
		}
		r.Version++
		if err := sealSession(keys, &r, in.Permissions, in.Rules); err != nil {
			return err
		}
		if err := tx.ReplaceSession(ctx, r); errors.Is(err, store.ErrConflict) {
			return errNonceUsed // another was first
		} else if err != nil {
			return fmt.Errorf("replace session: %w", err)
		}
		if err := tx.AppendLog(ctx, audit.EntryBy(c, s.now(), audit.Session, r.ID, audit.Update, "authorization")); err != nil {
			return err
		}
		out = sessionOf(c.Tenant(), r, sealedSession{Permissions: in.Permissions, Rules: in.Rules})
		return store.Finish(tx, out, last)
	})
	if errors.Is(err, store.ErrConflict) {
		return Session{}, errNonceUsed // said at the commit instead
	}
	return out, err
}

// uncapped reports whether the tenant lets sessions exceed their makers: its
// settings say so, and so does what was sealed when they were chosen.
func uncapped(ctx context.Context, tx store.Tx, keys *keyring.Keys) (bool, error) {
	t, err := tx.TenantRow(ctx)
	if err != nil {
		return false, notFound(err, errNoTenant)
	}
	if !liftsCap(t) {
		return false, nil
	}
	kept, err := openSecrets(keys, t.Secrets)
	if err != nil {
		return false, fmt.Errorf("open secrets: %w", err)
	}
	return kept.UncappedSessions, nil
}

// liftsCap is what the row says in clear.
func liftsCap(t store.Tenant) bool { return SettingsOf(t)["uncapped_sessions"] == "true" }

// Sessions returns a page of the tenant's live sessions, newest first, and how
// many there are.
func (s *Service) Sessions(ctx context.Context, c access.Caller, page store.Page) (list []Session, total int64, err error) {
	keys, err := s.keysFor(ctx, c, access.SessionRead)
	if err != nil {
		return nil, 0, err
	}
	err = s.logged(ctx, c, audit.Session, audit.Many, audit.Read, func(tx store.Tx) error {
		list = nil // a transaction may run again
		live := store.SessionFilter{Now: store.At(s.now())}
		rows, err := tx.Sessions(ctx, live, page)
		if err != nil {
			return fmt.Errorf("list sessions: %w", err)
		}
		for _, r := range rows {
			g, err := openSession(keys, r)
			if err != nil {
				return fmt.Errorf("open session: %w", err)
			}
			list = append(list, sessionOf(c.Tenant(), r, g))
		}
		total, err = tx.CountSessions(ctx, live)
		return err
	})
	return list, total, err
}

// DeleteSession ends a session: its key opens nothing from the next request on.
func (s *Service) DeleteSession(ctx context.Context, c access.Caller, id string) error {
	if err := c.Require(access.SessionDelete); err != nil {
		return err
	}
	return s.logged(ctx, c, audit.Session, id, audit.Delete, func(tx store.Tx) error {
		r, err := tx.Session(ctx, id)
		if err == nil && r.ExpiresAt <= store.At(s.now()) {
			return errNoSession // to be swept
		}
		if err == nil {
			err = tx.DeleteSession(ctx, id)
		}
		return notFound(err, errNoSession)
	})
}

// skew is how far the clocks of two servers may be apart.
const skew = 5 * time.Minute

// ended says whether a session can no longer be used. One that was made later
// than now was made before the clock was set back: it may have ended since, and
// must not come back to life.
func ended(r store.Session, now time.Time) bool {
	return r.ExpiresAt <= store.At(now) || r.CreatedAt > store.At(now.Add(skew))
}

// authenticateSession finds the caller of a session's key.
func (s *Service) authenticateSession(ctx context.Context, keys *keyring.Keys, key secret.Text) (c access.Caller, err error) {
	hash := keys.HashKey(key)
	err = s.store.View(ctx, keys.Tenant(), func(tx store.Tx) error {
		r, err := tx.SessionByKey(ctx, hash)
		if err != nil {
			return notFound(err, errUnknownKey)
		}
		if subtle.ConstantTimeCompare(r.KeyHash, hash) != 1 {
			return errUnknownKey
		}
		c, err = s.callerOfSession(ctx, tx, keys, r)
		return err
	})
	return c, err
}

// callerOfSession is the caller that a session's key stands for. What the
// session's maker may do is read with it, every time: a session gets the lesser
// of both.
func (s *Service) callerOfSession(ctx context.Context, tx store.Tx, keys *keyring.Keys, r store.Session) (access.Caller, error) {
	g, err := openSession(keys, r)
	if err != nil {
		return access.Caller{}, fmt.Errorf("open session: %w", err)
	}
	// A public application that is gone or has expired takes its sessions
	// along, as it does its keys.
	by, err := tx.Application(ctx, r.CreatedBy)
	if err != nil {
		return access.Caller{}, notFound(err, errUnknownKey)
	}
	if _, err := s.grants.of(keys.Tenant(), keys, by); err != nil {
		return access.Caller{}, err // the row is not what was sealed
	}
	if ended(r, s.now()) {
		return access.Caller{}, errSessionEnded
	}
	if !by.ExpiresAt.IsZero() && by.ExpiresAt <= store.At(s.now()) {
		return access.Caller{}, errExpired
	}
	if r.AuthorizedBy == "" {
		return access.Caller{}, errNotYet
	}
	own, err := access.NewGrant(g.Permissions, g.Rules)
	if err != nil {
		return access.Caller{}, fmt.Errorf("read session: %w", err)
	}
	lifted, err := uncapped(ctx, tx, keys)
	if err != nil {
		return access.Caller{}, err
	}
	if lifted {
		return access.NewUncappedSession(keys.Tenant(), r.CreatedBy, r.ID, own), nil
	}
	maker, err := tx.Application(ctx, r.AuthorizedBy)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return access.Caller{}, err
	}
	limit, err := s.capOf(keys, maker)
	if err != nil {
		return access.Caller{}, err
	}
	return access.NewSession(keys.Tenant(), r.CreatedBy, r.ID, own, limit), nil
}

// capOf is what a session's maker may do now: nothing when it is gone or has
// expired.
func (s *Service) capOf(keys *keyring.Keys, maker store.Application) (access.Grant, error) {
	if maker.ID == "" || maker.Type != string(access.Private) {
		return access.Grant{}, nil
	}
	// Opened first: what the row says in clear counts only once that is known
	// to be what was sealed.
	g, err := s.grants.of(keys.Tenant(), keys, maker)
	if err != nil || !maker.ExpiresAt.IsZero() && maker.ExpiresAt <= store.At(s.now()) {
		return access.Grant{}, err
	}
	return g, nil
}

// SweepSessions removes sessions that have expired, of all tenants, and returns
// how many. Each is removed, and logged, by the node that still finds it.
func (s *Service) SweepSessions(ctx context.Context) (removed int, err error) {
	return store.Sweep(ctx, func(skip, limit int) ([]store.SessionRef, error) {
		return s.store.AllTenants().ExpiredSessions(ctx, store.At(s.now()), skip, limit)
	}, func(r store.SessionRef) string { return r.Tenant }, func(tenant string, due []store.SessionRef) (removed int, err error) {
		err = s.store.Update(ctx, tenant, func(tx store.Tx) error {
			removed = 0 // a transaction may run again
			now := s.now()
			var entries []store.LogEntry
			for _, ref := range due {
				r, err := tx.Session(ctx, ref.ID)
				if errors.Is(err, store.ErrNotFound) || err == nil && r.ExpiresAt > store.At(now) {
					continue // another node was first
				}
				if err != nil {
					return err
				}
				if err := tx.DeleteSession(ctx, r.ID); err != nil {
					return err
				}
				entries = append(entries, audit.Expired(tenant, now, audit.Session, r.ID))
				removed++
			}
			return tx.AppendLog(ctx, entries...)
		})
		if err != nil {
			return 0, fmt.Errorf("remove expired sessions: %w", err)
		}
		return removed, nil
	})
}
