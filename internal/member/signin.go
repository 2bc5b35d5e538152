package member

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// How long people stay signed in, and links can be used.
const (
	IdleTimeout = 15 * time.Minute
	MaxLife     = 8 * time.Hour
	LinkLife    = 10 * time.Minute
	// touchEvery is how exactly the last use is known: more would write to the
	// store with every request.
	touchEvery = time.Minute
	// skew is how far the clocks of two servers may be apart.
	skew = 5 * time.Minute
	// maxSignIns bounds the sign-ins of one member: the oldest ends first.
	maxSignIns = 20
)

var (
	errSignedOut = fault.New(fault.Unauthenticated, "you are not signed in: the session has ended").WithCode("signed_out")
	errNoSignIn  = fault.New(fault.NotFound, "no such session")
	errLink      = fault.New(fault.Unauthenticated, "the link is not valid: it was used already, or its ten minutes are over").WithCode("link_invalid")
	errDisabled  = fault.New(fault.Forbidden, "the member is disabled").WithCode("member_disabled")
	errUnmapped  = fault.New(fault.Forbidden, "nobody has invited you: ask an owner to add you as a member").WithCode("not_a_member")
	errOtherRole = fault.New(fault.Conflict, "the member has another role: change it first")
)

// SignIn is a person who is signed in on some browser.
type SignIn struct {
	ID            string
	MemberID      string
	CreatedAt     time.Time
	LastUsedAt    time.Time
	IdleExpiresAt time.Time
	ExpiresAt     time.Time // at the latest
	Address       string    // of the client that signed in
	Provider      string    // "" for a link
}

// sealedSignIn is what the parcel of a sign-in holds. All that decides about it
// is sealed: anyone who can write to the database must not prolong it or give it
// to somebody else.
type sealedSignIn struct {
	Key       []byte     `json:"key"` // keyed hash of the cookie
	Member    string     `json:"member"`
	CreatedAt store.Time `json:"created_at"`
	LastUsed  store.Time `json:"last_used"`
	Address   string     `json:"address,omitempty"`
	Provider  string     `json:"provider,omitempty"`
	Subject   string     `json:"subject,omitempty"`
	// SID is the session at the provider, for its logout.
	SID string `json:"sid,omitempty"`
}

// until returns when a sign-in ends unless it is used.
func (x sealedSignIn) until() store.Time {
	idle, most := x.LastUsed.Time().Add(IdleTimeout), x.CreatedAt.Time().Add(MaxLife)
	if most.Before(idle) {
		return store.At(most)
	}
	return store.At(idle)
}

// ended reports whether a sign-in can no longer be used. One that was made later
// than now was made before the clock was set back.
func (x sealedSignIn) ended(now time.Time) bool {
	return x.until() <= store.At(now) || x.CreatedAt > store.At(now.Add(skew))
}

func (x sealedSignIn) show(id string) SignIn {
	return SignIn{
		ID: id, MemberID: x.Member, CreatedAt: x.CreatedAt.Time(), LastUsedAt: x.LastUsed.Time(), IdleExpiresAt: x.until().Time(),
		ExpiresAt: x.CreatedAt.Time().Add(MaxLife), Address: x.Address, Provider: x.Provider,
	}
}

// idOf is the id of the parcel of a secret: it cannot be computed without the
// secret and the tenant's keys, and looks like the random ids of other things.
func idOf(keys *keyring.Keys, text secret.Text, kind string) string {
	id := uuid.UUID(keys.KeyHolder(text, kind))
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// newSecret makes the secret of a cookie or a link, and the id of its parcel.
func (s *Service) newSecret(keys *keyring.Keys, kind access.KeyKind, parcel string) (text secret.Text, id string, err error) {
	for {
		k, err := access.NewKey(s.random, s.environment, kind, keys.Tenant())
		if err != nil {
			return text, "", err
		}
		if id := idOf(keys, k.Text(), parcel); access.FitForID(id) {
			return k.Text(), id, nil
		}
	}
}

func (x sealedSignIn) seal(keys *keyring.Keys, p *store.Parcel) error {
	b, err := json.Marshal(x)
	if err != nil {
		return fmt.Errorf("encode a sign-in: %w", err)
	}
	p.ExpiresAt = x.until()
	return keys.SealParcel(p, nil, b)
}

func openSignIn(keys *keyring.Keys, p store.Parcel) (x sealedSignIn, err error) {
	b, err := keys.Open(p.Record(), keyring.FieldParcel, p.Contents)
	if err != nil {
		return x, fmt.Errorf("open a sign-in: %w", err)
	}
	if err := json.Unmarshal(b, &x); err != nil {
		return sealedSignIn{}, errors.New("decode a sign-in")
	}
	if x.Member != p.Group || x.Member != p.Owner {
		return sealedSignIn{}, fmt.Errorf("open a sign-in: %w", &keyring.OpenError{Record: p.Record(), Field: keyring.FieldParcel})
	}
	return x, nil
}

// keysOfSecret returns the keys of the tenant that the secret of a cookie or a
// link names; unknown when there is none.
func (s *Service) keysOfSecret(ctx context.Context, text secret.Text, kind access.KeyKind, unknown *fault.Fault) (*keyring.Keys, error) {
	k, ok := access.ParseKey(text, kind)
	if !ok {
		return nil, unknown
	}
	keys, err := s.keysOf(ctx, k.Tenant())
	if errors.Is(err, errNoTenant) {
		return nil, unknown
	}
	return keys, err
}

// find returns the sign-in of a cookie, whose member is active.
func (s *Service) find(ctx context.Context, tx store.Tx, keys *keyring.Keys, cookie secret.Text) (p store.Parcel, x sealedSignIn, err error) {
	if err := live(ctx, tx); err != nil {
		if errors.Is(err, errNoTenant) {
			err = errSignedOut
		}
		return p, x, err
	}
	p, err = tx.Parcel(ctx, store.ParcelSignIn, idOf(keys, cookie, store.ParcelSignIn))
	if errors.Is(err, store.ErrNotFound) {
		return p, x, errSignedOut
	}
	if err != nil {
		return p, x, fmt.Errorf("look for sign-in: %w", err)
	}
	if x, err = openSignIn(keys, p); err != nil {
		return p, x, err
	}
	if subtle.ConstantTimeCompare(x.Key, keys.HashKey(cookie)) != 1 || x.ended(s.now()) {
		return p, x, errSignedOut
	}
	return p, x, nil
}

// Authenticate finds the member of a cookie. It reads the sign-in, the member
// and the role every time: whoever was removed, disabled or signed out a moment
// ago, on whatever node, is refused, and a role counts as it is now.
func (s *Service) Authenticate(ctx context.Context, cookie secret.Text) (c access.Caller, err error) {
	keys, err := s.keysOfSecret(ctx, cookie, access.SignInKey, errSignedOut)
	if err != nil {
		return access.Caller{}, err
	}
	var p store.Parcel
	var x sealedSignIn
	err = s.store.View(ctx, keys.Tenant(), func(tx store.Tx) error {
		if p, x, err = s.find(ctx, tx, keys, cookie); err != nil {
			return err
		}
		c, err = s.caller(ctx, tx, keys, x.Member, p.ID)
		return err
	})
	if errors.Is(err, store.ErrNoTenant) {
		err = errSignedOut
	}
	if err != nil {
		return access.Caller{}, err
	}
	if s.now().Sub(x.LastUsed.Time()) >= touchEvery {
		s.touch(ctx, keys, p.ID)
	}
	return c, nil
}

// caller is the caller that a member is now; errSignedOut when the member is
// gone or disabled.
func (s *Service) caller(ctx context.Context, tx store.Tx, keys *keyring.Keys, id, signIn string) (access.Caller, error) {
	_, m, err := row(ctx, tx, keys, id)
	if errors.Is(err, errNoMember) || err == nil && !m.active() {
		return access.Caller{}, errSignedOut
	}
	if err != nil {
		return access.Caller{}, err
	}
	role, err := roleOf(ctx, tx, keys, m.Role)
	if err != nil && !errors.Is(err, errNoRole) { // which grants nothing
		return access.Caller{}, err
	}
	g, err := role.grant()
	if err != nil {
		return access.Caller{}, err
	}
	return access.NewMember(keys.Tenant(), access.Member{ID: id, Name: m.Name, SignIn: signIn, Owner: m.Role == Owner}, g), nil
}

// Acting is the caller that a member is at this moment, for work that goes on in
// its name without its cookie.
func (s *Service) Acting(ctx context.Context, tenant, id string) (c access.Caller, err error) {
	keys, err := s.keysOf(ctx, tenant)
	if err != nil {
		return access.Caller{}, err
	}
	err = s.store.View(ctx, tenant, func(tx store.Tx) error {
		c, err = s.caller(ctx, tx, keys, id, "")
		return err
	})
	return c, err
}

// touch notes that a sign-in was used. It may fail: the next request tries again.
func (s *Service) touch(ctx context.Context, keys *keyring.Keys, id string) {
	_ = s.store.Update(ctx, keys.Tenant(), func(tx store.Tx) error {
		p, err := tx.Parcel(ctx, store.ParcelSignIn, id)
		if err != nil {
			return err
		}
		x, err := openSignIn(keys, p)
		if err != nil || x.ended(s.now()) {
			return err
		}
		x.LastUsed = store.At(s.now())
		if err := x.seal(keys, &p); err != nil {
			return err
		}
		p.Version++
		if err := tx.ReplaceParcel(ctx, p); err != nil {
			return err
		}
		return s.seen(ctx, tx, keys, x.Member)
	})
}

// seen notes when a member last used the service.
func (s *Service) seen(ctx context.Context, tx store.Tx, keys *keyring.Keys, id string) error {
	r, m, err := row(ctx, tx, keys, id)
	if err != nil {
		return err
	}
	m.LastSeenAt = store.At(s.now())
	return replace(ctx, tx, keys, &r, m)
}

// SignedIn is the result of a sign-in: the secret for the cookie, shown once.
type SignedIn struct {
	Cookie secret.Text
	SignIn SignIn
	Member Member
}

// enter signs a member in, in the transaction that found out who it is.
func (s *Service) enter(ctx context.Context, tx store.Tx, keys *keyring.Keys, o access.Origin, r store.Definition, m sealedMember, by sealedSignIn) (out SignedIn, err error) {
	if err := s.trim(ctx, tx, keys, r.ID); err != nil {
		return out, err
	}
	text, id, err := s.newSecret(keys, access.SignInKey, store.ParcelSignIn)
	if err != nil {
		return out, err
	}
	now := store.At(s.now())
	x := by
	x.Key, x.Member, x.CreatedAt, x.LastUsed, x.Address = keys.HashKey(text), r.ID, now, now, o.Address
	p := store.Parcel{Kind: store.ParcelSignIn, ID: id, Group: r.ID, Owner: r.ID, CreatedAt: now, Version: 1}
	if err := x.seal(keys, &p); err != nil {
		return out, err
	}
	if err := tx.InsertParcel(ctx, p); err != nil {
		return out, fmt.Errorf("insert sign-in: %w", err)
	}
	m.LastSeenAt = now
	if err := replace(ctx, tx, keys, &r, m); err != nil {
		return out, err
	}
	c := access.NewMember(keys.Tenant(), access.Member{ID: r.ID, Name: m.Name, SignIn: id}, access.Grant{}).WithOrigin(o)
	if err := tx.AppendLog(ctx, audit.EntryThat(c, s.now(), audit.Member, r.ID, audit.Use, "signed in")); err != nil {
		return out, err
	}
	return SignedIn{Cookie: text, SignIn: x.show(id), Member: memberOf(keys.Tenant(), r, m)}, nil
}

// trim ends the oldest sign-ins of a member who has too many.
func (s *Service) trim(ctx context.Context, tx store.Tx, keys *keyring.Keys, member string) error {
	list, err := tx.Parcels(ctx, store.ParcelFilter{Kind: store.ParcelSignIn, Group: member}, store.Page{Offset: maxSignIns - 1, Limit: maxSignIns})
	if err != nil {
		return fmt.Errorf("list sign-ins: %w", err)
	}
	for _, p := range list {
		if err := tx.DeleteParcel(ctx, store.ParcelSignIn, p.ID); err != nil {
			return fmt.Errorf("delete sign-in: %w", err)
		}
	}
	return nil
}

// endAll ends every sign-in of a member.
func endAll(ctx context.Context, tx store.Tx, member string) error {
	list, err := tx.Parcels(ctx, store.ParcelFilter{Kind: store.ParcelSignIn, Group: member}, store.Page{Limit: 2 * maxSignIns})
	if err != nil {
		return fmt.Errorf("list sign-ins: %w", err)
	}
	for _, p := range list {
		if err := tx.DeleteParcel(ctx, store.ParcelSignIn, p.ID); err != nil {
			return fmt.Errorf("delete sign-in: %w", err)
		}
	}
	return nil
}

// SignOut ends the sign-in of a cookie. One that has ended is no fault.
func (s *Service) SignOut(ctx context.Context, o access.Origin, cookie secret.Text) error {
	keys, err := s.keysOfSecret(ctx, cookie, access.SignInKey, errSignedOut)
	if errors.Is(err, errSignedOut) {
		return nil
	}
	if err != nil {
		return err
	}
	err = s.store.Update(ctx, keys.Tenant(), func(tx store.Tx) error {
		p, x, err := s.find(ctx, tx, keys, cookie)
		if err != nil {
			return err
		}
		c, err := s.caller(ctx, tx, keys, x.Member, p.ID)
		if err != nil {
			return err
		}
		if err := tx.DeleteParcel(ctx, store.ParcelSignIn, p.ID); err != nil {
			return fmt.Errorf("delete sign-in: %w", err)
		}
		return tx.AppendLog(ctx, audit.EntryThat(c.WithOrigin(o), s.now(), audit.Member, x.Member, audit.Use, "signed out"))
	})
	if errors.Is(err, errSignedOut) || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrNoTenant) {
		return nil
	}
	return err
}

// SignIns returns where a member is signed in, newest first. The caller needs
// member:read.
func (s *Service) SignIns(ctx context.Context, c access.Caller, member string) (list []SignIn, err error) {
	keys, err := s.keysFor(ctx, c, access.MemberRead)
	if err != nil {
		return nil, err
	}
	err = s.update(ctx, c.Tenant(), func(tx store.Tx) error {
		list = nil // a transaction may run again
		if _, _, err := row(ctx, tx, keys, member); err != nil {
			return err
		}
		parcels, err := tx.Parcels(ctx, store.ParcelFilter{Kind: store.ParcelSignIn, Group: member}, store.Page{Limit: 2 * maxSignIns})
		if err != nil {
			return fmt.Errorf("list sign-ins: %w", err)
		}
		for _, p := range parcels {
			x, err := openSignIn(keys, p)
			if err != nil {
				return err
			}
			if !x.ended(s.now()) {
				list = append(list, x.show(p.ID))
			}
		}
		return tx.AppendLog(ctx, audit.EntryPart(c, s.now(), audit.Member, member, "sessions", audit.Read))
	})
	return list, err
}

// EndSignIn signs a member out of one browser. The caller needs member:update,
// and must hold the role that the member has.
func (s *Service) EndSignIn(ctx context.Context, c access.Caller, id string) error {
	keys, err := s.keysFor(ctx, c, access.MemberUpdate)
	if err != nil {
		return err
	}
	return s.update(ctx, c.Tenant(), func(tx store.Tx) error {
		p, err := tx.Parcel(ctx, store.ParcelSignIn, id)
		if errors.Is(err, store.ErrNotFound) {
			return errNoSignIn
		}
		if err != nil {
			return fmt.Errorf("look for sign-in: %w", err)
		}
		x, err := openSignIn(keys, p)
		if err != nil {
			return err
		}
		if x.ended(s.now()) {
			return errNoSignIn // to be swept
		}
		_, m, err := row(ctx, tx, keys, x.Member)
		if err != nil && !errors.Is(err, errNoMember) {
			return err
		}
		if err == nil {
			if err := appoints(ctx, tx, keys, c, access.MemberUpdate, m.Role); err != nil {
				return err
			}
		}
		if err := tx.DeleteParcel(ctx, store.ParcelSignIn, id); err != nil {
			return fmt.Errorf("delete sign-in: %w", err)
		}
		return tx.AppendLog(ctx, audit.EntryPart(c, s.now(), audit.Member, x.Member, "session", audit.Delete))
	})
}

// Self is what a member sees of itself.
type Self struct {
	Member     Member
	Role       Role
	TenantName string
	SignIn     SignIn
}

// Self returns the member that the caller is. It takes no permission, shows
// nobody else, and is not logged.
func (s *Service) Self(ctx context.Context, c access.Caller) (out Self, err error) {
	if c.Member().ID == "" {
		return Self{}, errNotMember
	}
	keys, err := s.keysOf(ctx, c.Tenant())
	if err != nil {
		return Self{}, err
	}
	err = s.store.View(ctx, c.Tenant(), func(tx store.Tx) error {
		t, err := tx.TenantRow(ctx)
		if err != nil {
			return fmt.Errorf("look for tenant: %w", err)
		}
		r, m, err := row(ctx, tx, keys, c.Member().ID)
		if err != nil {
			return err
		}
		out = Self{Member: memberOf(c.Tenant(), r, m), TenantName: t.Name}
		if out.Role, err = roleOf(ctx, tx, keys, m.Role); errors.Is(err, errNoRole) {
			out.Role, err = Role{Name: m.Role}, nil
		}
		if err != nil {
			return err
		}
		p, err := tx.Parcel(ctx, store.ParcelSignIn, c.Member().SignIn)
		if errors.Is(err, store.ErrNotFound) {
			return errSignedOut
		}
		if err != nil {
			return fmt.Errorf("look for sign-in: %w", err)
		}
		x, err := openSignIn(keys, p)
		out.SignIn = x.show(p.ID)
		return err
	})
	return out, err
}

// Link signs a member in, once.
type Link struct {
	Code      secret.Text
	ExpiresAt time.Time
	Member    Member
}

// sealedLink is what the parcel of a link holds.
type sealedLink struct {
	Key       []byte     `json:"key"`
	Member    string     `json:"member"`
	CreatedAt store.Time `json:"created_at"`
}

// CreateLink makes a link for a member, who is added when nobody has the email.
// It is the operator's.
func (s *Service) CreateLink(ctx context.Context, c access.Caller, in NewMember) (out Link, err error) {
	keys, err := s.keysFor(ctx, c, access.MemberCreate)
	if err != nil {
		return out, err
	}
	var f fault.Fields
	email, ok := NormalizeEmail(in.Email)
	if !ok {
		f.Add("email", "must be an email")
	}
	checkName(&f, in.Name)
	if err := f.Err(); err != nil {
		return out, err
	}
	text, id, err := s.newSecret(keys, access.LinkCode, store.ParcelLink)
	if err != nil {
		return out, err
	}
	err = s.update(ctx, c.Tenant(), func(tx store.Tx) error {
		r, m, err := byEmail(ctx, tx, keys, email)
		switch {
		case errors.Is(err, errNoMember):
			if err := mayAppoint(ctx, tx, keys, c, access.MemberCreate, in.Role); err != nil {
				return err
			}
			r = store.Definition{Kind: store.DefinitionMember, ID: access.NewID(), CreatedBy: c.Application(), CreatedAt: store.At(s.now()), Version: 1}
			m = sealedMember{Email: email, Name: in.Name, Role: in.Role, State: Active}
			if err := insert(ctx, tx, keys, &r, m); err != nil {
				return err
			}
			if err := tx.AppendLog(ctx, audit.Entry(c, s.now(), audit.Member, r.ID, audit.Create)); err != nil {
				return err
			}
		case err != nil:
			return err
		case m.Role != in.Role:
			return errOtherRole
		case !m.active():
			return errDisabled
		}
		now := s.now()
		b, err := json.Marshal(sealedLink{Key: keys.HashKey(text), Member: r.ID, CreatedAt: store.At(now)})
		if err != nil {
			return fmt.Errorf("encode a link: %w", err)
		}
		p := store.Parcel{
			Kind: store.ParcelLink, ID: id, Group: r.ID, Owner: r.ID, CreatedAt: store.At(now), ExpiresAt: store.At(now.Add(LinkLife)), Version: 1,
		}
		if err := keys.SealParcel(&p, nil, b); err != nil {
			return err
		}
		if err := tx.InsertParcel(ctx, p); err != nil {
			return fmt.Errorf("insert link: %w", err)
		}
		out = Link{Code: text, ExpiresAt: p.ExpiresAt.Time(), Member: memberOf(c.Tenant(), r, m)}
		return tx.AppendLog(ctx, audit.EntryPart(c, s.now(), audit.Member, r.ID, "link", audit.Create))
	})
	return out, err
}

// Redeem signs the member of a link in. The link is used up, also by a member
// who is refused.
func (s *Service) Redeem(ctx context.Context, o access.Origin, code secret.Text) (out SignedIn, err error) {
	keys, err := s.keysOfSecret(ctx, code, access.LinkCode, errLink)
	if err != nil {
		return out, err
	}
	id, refused := idOf(keys, code, store.ParcelLink), error(nil)
	err = s.store.Update(ctx, keys.Tenant(), func(tx store.Tx) error {
		refused = nil // a transaction may run again
		if err := live(ctx, tx); errors.Is(err, errNoTenant) {
			return errLink
		} else if err != nil {
			return err
		}
		p, err := tx.Parcel(ctx, store.ParcelLink, id)
		if errors.Is(err, store.ErrNotFound) || err == nil && p.ExpiresAt <= store.At(s.now()) {
			return errLink
		}
		if err != nil {
			return fmt.Errorf("look for link: %w", err)
		}
		x, err := openLink(keys, p)
		if err != nil {
			return err
		}
		// The row's expiry is in clear: what was sealed with the link counts too.
		if !bytes.Equal(x.Key, keys.HashKey(code)) || x.CreatedAt > store.At(s.now().Add(skew)) || s.now().Sub(x.CreatedAt.Time()) >= LinkLife {
			return errLink
		}
		if err := tx.DeleteParcel(ctx, store.ParcelLink, id); err != nil {
			return fmt.Errorf("delete link: %w", err)
		}
		r, m, err := row(ctx, tx, keys, x.Member)
		if errors.Is(err, errNoMember) {
			return errLink
		}
		if err != nil {
			return err
		}
		if !m.active() {
			refused = errDisabled
			return s.refuse(ctx, tx, keys.Tenant(), o, r.ID, m)
		}
		out, err = s.enter(ctx, tx, keys, o, r, m, sealedSignIn{})
		return err
	})
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNoTenant):
		return SignedIn{}, errLink // another request was first, which the commit told
	case err != nil:
		return SignedIn{}, err
	case refused != nil:
		return SignedIn{}, refused
	}
	return out, nil
}

// refuse logs that a member could not sign in.
func (s *Service) refuse(ctx context.Context, tx store.Tx, tenant string, o access.Origin, id string, m sealedMember) error {
	c := access.NewMember(tenant, access.Member{ID: id, Name: m.Name}, access.Grant{}).WithOrigin(o)
	return tx.AppendLog(ctx, audit.DeniedThat(c, s.now(), audit.Member, id, audit.Use, "sign-in denied"))
}

func openLink(keys *keyring.Keys, p store.Parcel) (x sealedLink, err error) {
	b, err := keys.Open(p.Record(), keyring.FieldParcel, p.Contents)
	if err != nil {
		return x, fmt.Errorf("open a link: %w", err)
	}
	if err := json.Unmarshal(b, &x); err != nil {
		return sealedLink{}, errors.New("decode a link")
	}
	return x, nil
}

// Identity is a person whom a provider has authenticated.
type Identity struct {
	Provider, Subject, SID string
	Email, Name            string
	Role                   string // for a person who is not a member yet; "" for none
}

// SignIn signs a person in whom a provider has authenticated. A member is known
// by its email and, from the first time on, by the provider's subject: an email
// that went to somebody else opens nothing. Who is not a member becomes one when
// the operator has mapped the person to a role.
func (s *Service) SignIn(ctx context.Context, tenant string, o access.Origin, who Identity) (out SignedIn, err error) {
	email, ok := NormalizeEmail(who.Email)
	if !ok || tenant == "" {
		return out, errUnmapped
	}
	keys, err := s.keysOf(ctx, tenant)
	if errors.Is(err, errNoTenant) {
		return out, errUnmapped
	}
	if err != nil {
		return out, err
	}
	var refused error
	err = s.update(ctx, tenant, func(tx store.Tx) error {
		refused = nil // a transaction may run again
		r, m, err := byEmail(ctx, tx, keys, email)
		if errors.Is(err, errNoMember) {
			r, m, err = s.join(ctx, tx, keys, o, email, who)
		}
		if err != nil {
			return err
		}
		another := m.Provider == who.Provider && m.Subject != "" && m.Subject != who.Subject
		if !m.active() || another {
			refused = errDisabled
			if another {
				refused = errUnmapped
			}
			return s.refuse(ctx, tx, tenant, o, r.ID, m)
		}
		m.Provider, m.Subject = who.Provider, who.Subject
		out, err = s.enter(ctx, tx, keys, o, r, m, sealedSignIn{Provider: who.Provider, Subject: who.Subject, SID: who.SID})
		return err
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return SignedIn{}, err
	}
	return out, nil
}

// join makes a member of a person whom the operator has mapped to a role.
func (s *Service) join(ctx context.Context, tx store.Tx, keys *keyring.Keys, o access.Origin, email string, who Identity) (r store.Definition, m sealedMember, err error) {
	if who.Role == "" {
		return r, m, errUnmapped
	}
	if _, err := roleOf(ctx, tx, keys, who.Role); err != nil {
		if errors.Is(err, errNoRole) {
			err = errUnmapped
		}
		return r, m, err
	}
	var f fault.Fields
	if checkName(&f, who.Name); f.Err() != nil {
		who.Name = email
	}
	r = store.Definition{Kind: store.DefinitionMember, ID: access.NewID(), CreatedAt: store.At(s.now()), Version: 1}
	m = sealedMember{Email: email, Name: who.Name, Role: who.Role, State: Active}
	if err := insert(ctx, tx, keys, &r, m); err != nil {
		return r, m, err
	}
	return r, m, tx.AppendLog(ctx, audit.EntryBy(access.NewSystem(keys.Tenant()).WithOrigin(o), s.now(), audit.Member, r.ID, audit.Create, "sign-in"))
}

// EndFromProvider ends the sign-ins of a session, or of a person, that a
// provider says has ended. Nothing to end is no fault.
func (s *Service) EndFromProvider(ctx context.Context, tenant string, o access.Origin, provider, subject, sid string) error {
	keys, err := s.keysOf(ctx, tenant)
	if errors.Is(err, errNoTenant) {
		return nil
	}
	if err != nil {
		return err
	}
	c := access.NewSystem(tenant).WithOrigin(o)
	return s.update(ctx, tenant, func(tx store.Tx) error {
		return each(ctx, tx, keys, func(r store.Definition, m sealedMember) error {
			if m.Provider != provider || subject != "" && m.Subject != subject {
				return nil
			}
			list, err := tx.Parcels(ctx, store.ParcelFilter{Kind: store.ParcelSignIn, Group: r.ID}, store.Page{Limit: 2 * maxSignIns})
			if err != nil {
				return fmt.Errorf("list sign-ins: %w", err)
			}
			for _, p := range list {
				x, err := openSignIn(keys, p)
				if err != nil {
					return err
				}
				if x.Provider != provider || sid != "" && x.SID != sid || subject != "" && x.Subject != subject {
					continue
				}
				if err := tx.DeleteParcel(ctx, store.ParcelSignIn, p.ID); err != nil {
					return fmt.Errorf("delete sign-in: %w", err)
				}
				if err := tx.AppendLog(ctx, audit.EntryThat(c, s.now(), audit.Member, r.ID, audit.Use, "signed out by the provider")); err != nil {
					return err
				}
			}
			return nil
		})
	})
}
