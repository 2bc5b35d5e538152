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
	errForeign      = fault.New(fault.Forbidden, "the session was made by another application").WithCode("foreign_session")
	errNonceUsed    = fault.New(fault.Conflict, "the nonce was used already").WithCode("nonce_used")
	errSessionEnded = fault.New(fault.Unauthenticated, "the session has expired").WithCode("session_expired")
	errNotYet       = fault.New(fault.Forbidden, "the session is not authorized yet").WithCode("session_not_authorized")

	errNoCreatingKey    = fault.New(fault.Unauthenticated, "the key that created this session is no longer valid").WithCode("session_revoked")
	errNoAuthorizingKey = fault.New(fault.Unauthenticated, "the key that authorized this session is no longer valid").WithCode("session_revoked")
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
// key, pass it off as another application's, or let it outlive the keys that
// created and authorized it.
type sealedSession struct {
	Key            []byte         `json:"key"`
	Nonce          []byte         `json:"nonce"`
	CreatedBy      string         `json:"created_by"`
	CreatedWith    applicationKey `json:"created_with,omitzero"`
	AuthorizedBy   string         `json:"authorized_by,omitempty"`
	AuthorizedWith applicationKey `json:"authorized_with,omitzero"`
	ExpiresAt      store.Time     `json:"expires_at"`
	Permissions    []string       `json:"permissions,omitempty"`
	Rules          []access.Rule  `json:"rules,omitempty"`
}

// applicationKey identifies a key of an application. Anyone who can write to the
// database can insert a row under the id of a key that was revoked. The hash of
// that key is gone with its row, so such a row does not bring it back. The zero
// value is an unknown key.
type applicationKey struct {
	ID   string `json:"id,omitempty"`
	Hash []byte `json:"hash,omitempty"`
}

// sealSession seals a row with the keys and the grant in g. The rest of g is
// taken from the row.
func sealSession(keys *keyring.Keys, r *store.Session, g sealedSession) error {
	g.Key, g.Nonce, g.CreatedBy, g.AuthorizedBy, g.ExpiresAt = r.KeyHash, r.NonceHash, r.CreatedBy, r.AuthorizedBy, r.ExpiresAt
	r.CreatedKeyID, r.AuthorizedKeyID = g.CreatedWith.ID, g.AuthorizedWith.ID
	b, err := json.Marshal(g)
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
		g.AuthorizedBy != r.AuthorizedBy || g.ExpiresAt != r.ExpiresAt ||
		!g.CreatedWith.isOrUnknown(r.CreatedKeyID) || !g.AuthorizedWith.isOrUnknown(r.AuthorizedKeyID) {
		return g, &keyring.OpenError{Record: r.ID, Field: keyring.FieldSessionGrant}
	}
	return g, nil
}

// isOrUnknown reports whether a row names this key. A server of the release
// before does not know of keys, and drops them when it authorizes a session.
func (k applicationKey) isOrUnknown(id string) bool { return k.ID == "" || k.ID == id }

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
	err = s.logged(ctx, c, audit.Session, r.ID, audit.Create, func(tx store.Tx) error {
		with, err := presentedKey(ctx, tx, c)
		if err != nil {
			return err
		}
		r := r // a transaction may run again
		if err := sealSession(keys, &r, sealedSession{CreatedWith: with}); err != nil {
			return err
		}
		if err := tx.InsertSession(ctx, r); err != nil {
			return fmt.Errorf("insert session: %w", err)
		}
		out = sessionOf(c.Tenant(), r, sealedSession{})
		out.Key, out.Nonce = key.Text(), nonce.Text()
		return store.Finish(tx, out, last)
	})
	return out, err
}

// presentedKey returns the key that the caller presented, unless it was revoked
// since. Code that acts for an application has none, and reaches no route that
// creates or authorizes a session.
func presentedKey(ctx context.Context, tx store.Tx, c access.Caller) (applicationKey, error) {
	list, err := tx.Keys(ctx, c.Application())
	if err != nil {
		return applicationKey{}, fmt.Errorf("list keys: %w", err)
	}
	for _, k := range list {
		if k.ID == c.Key() {
			return applicationKey{k.ID, k.Hash}, nil
		}
	}
	return applicationKey{}, errUnknownKey
}

// Authorization is what a private application gives to the session of a nonce.
type Authorization struct {
	Nonce       secret.Text
	Permissions []string
	Rules       []access.Rule
	ExpiresAt   time.Time // zero leaves it as it is
	// ApplicationID is the public application that must have made the session;
	// "" for any.
	ApplicationID string
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
		g, err := openSession(keys, r)
		if err != nil {
			return fmt.Errorf("open session: %w", err)
		}
		if ended(r, s.now()) {
			return errNoNonce
		}
		if _, _, err := s.creatorOf(ctx, tx, keys, r, g); errors.Is(err, errNoCreatingKey) {
			return errNoNonce
		} else if err != nil {
			return err
		}
		if in.ApplicationID != "" && in.ApplicationID != r.CreatedBy {
			return access.About(access.Refuse(0, errForeign), access.Entity{Type: audit.Session, ID: r.ID})
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
				return access.About(err, access.Entity{Type: audit.Session, ID: r.ID})
			}
		}
		if g.AuthorizedWith, err = presentedKey(ctx, tx, c); err != nil {
			return err
		}
		g.Permissions, g.Rules = in.Permissions, in.Rules
		r.AuthorizedBy, r.AuthorizedAt = c.Application(), store.At(s.now())
		if !in.ExpiresAt.IsZero() {
			r.ExpiresAt = store.At(in.ExpiresAt)
		}
		r.Version++
		if err := sealSession(keys, &r, g); err != nil {
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
		out = sessionOf(c.Tenant(), r, g)
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
	widening, err := WideningOf(t, keys)
	return widening.UncappedSessions, err
}

// Sessions returns a page of the tenant's live sessions, newest first, and how
// many there are.
func (s *Service) Sessions(ctx context.Context, c access.Caller, page store.Page) (list []Session, total int64, err error) {
	keys, err := s.keysFor(ctx, c, access.SessionRead)
	if err != nil {
		return nil, 0, err
	}
	err = s.logged(ctx, c, audit.Session, audit.Many, audit.Read, func(tx store.Tx) error {
		list = nil // a transaction may run again
		live := store.SessionFilter{Now: store.At(s.now()), LiveKeys: true}
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

// callerOfSession is the caller that a session's key stands for. The keys that
// created and authorized the session, and what their applications may do, are
// read every time: the session dies with either key, and gets the lesser of its
// own grant and what the application that authorized it may do.
func (s *Service) callerOfSession(ctx context.Context, tx store.Tx, keys *keyring.Keys, r store.Session) (access.Caller, error) {
	g, err := openSession(keys, r)
	if err != nil {
		return access.Caller{}, fmt.Errorf("open session: %w", err)
	}
	if ended(r, s.now()) {
		return access.Caller{}, errSessionEnded
	}
	_, name, err := s.creatorOf(ctx, tx, keys, r, g)
	if err != nil {
		return access.Caller{}, err
	}
	if r.AuthorizedBy == "" {
		return access.Caller{}, errNotYet
	}
	limit, _, err := s.holderOfKey(ctx, tx, keys, issuer{r.AuthorizedBy, g.AuthorizedWith, r.AuthorizedKeyID, r.AuthorizedAt, errNoAuthorizingKey})
	if err != nil {
		return access.Caller{}, err
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
		return access.NewUncappedSession(keys.Tenant(), r.CreatedBy, r.ID, own).WithActorName(name), nil
	}
	return access.NewSession(keys.Tenant(), r.CreatedBy, r.ID, own, limit).WithActorName(name), nil
}

// issuer is who created a session, or who authorized it: an application, and the
// key that it presented.
type issuer struct {
	application string
	key         applicationKey // as sealed
	keyID       string         // as the row has it, for when nothing was sealed
	at          store.Time
	dead        *fault.Fault // returned when the key is no longer live
}

// creatorOf returns what the application that created a session may do, or
// errNoCreatingKey.
func (s *Service) creatorOf(ctx context.Context, tx store.Tx, keys *keyring.Keys, r store.Session, g sealedSession) (grant access.Grant, name string, err error) {
	return s.holderOfKey(ctx, tx, keys, issuer{r.CreatedBy, g.CreatedWith, r.CreatedKeyID, r.CreatedAt, errNoCreatingKey})
}

// holderOfKey returns what an application may do now and its name, if its key is
// live: the key is not revoked, and the application is neither gone nor expired.
func (s *Service) holderOfKey(ctx context.Context, tx store.Tx, keys *keyring.Keys, from issuer) (grant access.Grant, name string, err error) {
	find := findKey
	if from.key.ID == "" {
		find = findAnyKey
	}
	a, err := find(ctx, tx, from)
	if err != nil {
		return access.Grant{}, "", notFound(err, from.dead)
	}
	// Opened first: what the row says in clear counts only once that is known
	// to be what was sealed.
	if grant, err = s.grants.of(keys.Tenant(), keys, a); err != nil {
		return access.Grant{}, "", err
	}
	if !a.ExpiresAt.IsZero() && a.ExpiresAt <= store.At(s.now()) {
		return access.Grant{}, "", from.dead
	}
	return grant, a.Name, nil
}

// findKey returns the application of a key that is live.
func findKey(ctx context.Context, tx store.Tx, from issuer) (store.Application, error) {
	k, a, err := tx.KeyByHash(ctx, from.key.Hash)
	if err == nil && (k.ID != from.key.ID || a.ID != from.application) {
		err = store.ErrNotFound
	}
	return a, err
}

// findAnyKey is findKey for a session of the release before, which recorded no
// keys. Such a session lives 24 hours at most. It dies when the application has
// no key left that is as old as the creation or the authorization, as after a
// regeneration. When one of several such keys is revoked, it cannot be told
// which of them was used, and the session lives on. When a server of this release
// created the session and one of the release before authorized it, the row still
// has the id of the creating key.
func findAnyKey(ctx context.Context, tx store.Tx, from issuer) (store.Application, error) {
	a, err := tx.Application(ctx, from.application)
	if err != nil {
		return a, err
	}
	list, err := tx.Keys(ctx, from.application)
	if err != nil {
		return a, fmt.Errorf("list keys: %w", err)
	}
	for _, k := range list {
		if k.ID == from.keyID || from.keyID == "" && k.CreatedAt <= from.at {
			return a, nil
		}
	}
	return a, store.ErrNotFound
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
