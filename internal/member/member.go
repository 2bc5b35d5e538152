// Package member knows the people of a tenant: who they are, what their roles
// let them do, and who is signed in.
//
// It promises that names, emails, roles and sign-ins are sealed and bound to
// their rows, that the secret of a cookie or a link is stored only as a keyed
// hash, that a member who is removed, disabled or signed out is refused from the
// next request on, on every node, and that every change is in the log with it.
// It never decides what a member may do beyond asking package access.
package member

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/luhn"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Bounds on members.
const (
	maxMembers = 1000
	maxName    = 200 // characters
	maxEmail   = 254 // characters, as of a path in a mail
)

// The states of a member.
const (
	Active   = "active"
	Disabled = "disabled" // cannot sign in
)

var (
	errNoTenant    = fault.New(fault.NotFound, "no such tenant")
	errNoMember    = fault.New(fault.NotFound, "no such member")
	errNotMember   = fault.New(fault.NotFound, "the caller is an application and not a member")
	errEmailTaken  = fault.New(fault.Conflict, "another member has this email").WithCode("email_taken")
	errManyMembers = fault.New(fault.Conflict, "the tenant has as many members as it may have: remove one first")
	errLastOwner   = fault.New(fault.Conflict, "the tenant would have no active owner left: make another member an owner first").WithCode("last_owner")
	errChanged     = fault.New(fault.Conflict, "it was changed meanwhile; read it again").RetryAfter(time.Second)
	errRole        = fault.Field("role", "must be a role of the tenant")
	errState       = fault.Field("state", "must be active or disabled")
)

// Service keeps the members of all tenants. Its methods are safe for concurrent
// use.
type Service struct {
	store       store.Store
	ring        *keyring.Ring
	now         func() time.Time
	environment string
	random      io.Reader
}

// New returns a service. environment is the word that the secrets of cookies and
// links carry.
func New(s store.Store, ring *keyring.Ring, now func() time.Time, environment string) *Service {
	return &Service{store: s, ring: ring, now: now, environment: environment, random: rand.Reader}
}

// Member is a person of a tenant.
type Member struct {
	ID       string
	TenantID string
	Email    string
	Name     string
	Role     string
	State    string
	// LastSeenAt is when the member last used the service, to the minute.
	LastSeenAt time.Time
	CreatedBy  string
	CreatedAt  time.Time
	ModifiedBy string
	ModifiedAt time.Time
}

// sealedMember is what the row of a member holds. Its email is also a keyed hash
// in the row, by which it is found and unique.
type sealedMember struct {
	EmailHash  []byte     `json:"email_hash"`
	Email      string     `json:"email"`
	Name       string     `json:"name"`
	Role       string     `json:"role"`
	State      string     `json:"state"`
	LastSeenAt store.Time `json:"last_seen_at,omitempty"`
	// Provider and Subject are who the member is for the provider that it last
	// signed in with.
	Provider string `json:"provider,omitempty"`
	Subject  string `json:"subject,omitempty"`
}

func emailHash(keys *keyring.Keys, email string) []byte {
	return keys.HashKey(secret.NewText("member email: " + email))
}

// seal puts a member into its row.
func (m sealedMember) seal(keys *keyring.Keys, r *store.Definition) error {
	r.KeyHash = emailHash(keys, m.Email)
	m.EmailHash = r.KeyHash
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode a member: %w", err)
	}
	r.Contents, err = keys.Seal(r.Record(), keyring.FieldDefinition, b)
	return err
}

// openMember returns the member of a row, if the row says what was sealed.
func openMember(keys *keyring.Keys, r store.Definition) (m sealedMember, err error) {
	b, err := keys.Open(r.Record(), keyring.FieldDefinition, r.Contents)
	if err != nil {
		return m, fmt.Errorf("open a member: %w", err)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return sealedMember{}, errors.New("decode a member") // the decoder's words may repeat it
	}
	if !bytes.Equal(m.EmailHash, r.KeyHash) {
		return sealedMember{}, fmt.Errorf("open a member: %w", &keyring.OpenError{Record: r.Record(), Field: keyring.FieldDefinition})
	}
	return m, nil
}

func memberOf(tenant string, r store.Definition, m sealedMember) Member {
	return Member{
		ID: r.ID, TenantID: tenant, Email: m.Email, Name: m.Name, Role: m.Role, State: m.State, LastSeenAt: m.LastSeenAt.Time(),
		CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt.Time(), ModifiedBy: r.ModifiedBy, ModifiedAt: r.ModifiedAt.Time(),
	}
}

// active reports whether the member may sign in.
func (m sealedMember) active() bool { return m.State == Active }

// keysOf returns the keys of a tenant, which may take I/O and so cannot wait for
// the transaction.
func (s *Service) keysOf(ctx context.Context, tenant string) (*keyring.Keys, error) {
	keys, err := s.ring.For(ctx, tenant)
	if errors.Is(err, keyring.ErrNoKeys) || errors.Is(err, store.ErrNoTenant) {
		return nil, errNoTenant
	}
	if err != nil {
		return nil, fmt.Errorf("get keys: %w", err)
	}
	return keys, nil
}

func (s *Service) keysFor(ctx context.Context, c access.Caller, p access.Permission) (*keyring.Keys, error) {
	if err := c.Require(p); err != nil {
		return nil, err
	}
	return s.keysOf(ctx, c.Tenant())
}

// update runs fn on the rows of a tenant, unless that is gone or going.
func (s *Service) update(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	err := s.store.Update(ctx, tenant, func(tx store.Tx) error {
		if err := live(ctx, tx); err != nil {
			return err
		}
		return fn(tx)
	})
	switch {
	case errors.Is(err, store.ErrNoTenant):
		return errNoTenant
	case errors.Is(err, store.ErrConflict):
		return fmt.Errorf("%w: %w", errChanged, err)
	}
	return err
}

// live returns errNoTenant when the tenant is gone or going.
func live(ctx context.Context, tx store.Tx) error {
	t, err := tx.TenantRow(ctx)
	if errors.Is(err, store.ErrNotFound) || err == nil && t.Deleting {
		return errNoTenant
	}
	return err
}

// row returns the row of a member, and the member.
func row(ctx context.Context, tx store.Tx, keys *keyring.Keys, id string) (r store.Definition, m sealedMember, err error) {
	r, err = tx.Definition(ctx, store.DefinitionMember, id)
	if errors.Is(err, store.ErrNotFound) {
		return r, m, errNoMember
	}
	if err != nil {
		return r, m, fmt.Errorf("look for member: %w", err)
	}
	m, err = openMember(keys, r)
	return r, m, err
}

// byEmail returns the member with an email, or errNoMember.
func byEmail(ctx context.Context, tx store.Tx, keys *keyring.Keys, email string) (r store.Definition, m sealedMember, err error) {
	r, err = tx.DefinitionByKey(ctx, emailHash(keys, email))
	if errors.Is(err, store.ErrNotFound) {
		return r, m, errNoMember
	}
	if err != nil {
		return r, m, fmt.Errorf("look for member: %w", err)
	}
	m, err = openMember(keys, r)
	return r, m, err
}

// NormalizeEmail returns an email in the form in which emails are compared, and
// whether it can be one.
func NormalizeEmail(email string) (string, bool) {
	email = strings.ToLower(strings.TrimSpace(email))
	local, host, found := strings.Cut(email, "@")
	odd := func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) || r == '@' }
	ok := found && local != "" && host != "" && utf8.ValidString(email) && utf8.RuneCountInString(email) <= maxEmail &&
		!strings.ContainsFunc(local+host, odd) && !luhn.HasCard(email)
	return email, ok
}

// checkName notes what is wrong with the name of a person. It is written in the
// log, so it must not be a card number.
func checkName(f *fault.Fields, name string) {
	switch {
	case utf8.RuneCountInString(name) > maxName || strings.TrimSpace(name) == "":
		f.Add("name", "must have 1 to 200 characters, and not be blank")
	case strings.ContainsFunc(name, unicode.IsControl):
		f.Add("name", "must not hold control characters")
	case luhn.WrittenCard(name):
		f.Add("name", "must not hold a card number")
	}
}

// NewMember is what a member is made from.
type NewMember struct{ Email, Name, Role string }

// Create adds a member. The caller needs member:create, and may give only a role
// that it holds.
func (s *Service) Create(ctx context.Context, c access.Caller, in NewMember) (made Member, err error) {
	keys, err := s.keysFor(ctx, c, access.MemberCreate)
	if err != nil {
		return Member{}, err
	}
	var f fault.Fields
	email, ok := NormalizeEmail(in.Email)
	if !ok {
		f.Add("email", "must be an email")
	}
	checkName(&f, in.Name)
	if err := f.Err(); err != nil {
		return Member{}, err
	}
	r := store.Definition{
		Kind: store.DefinitionMember, ID: access.NewID(), CreatedBy: c.Application(), CreatedAt: store.At(s.now()), Version: 1,
	}
	m := sealedMember{Email: email, Name: in.Name, Role: in.Role, State: Active}
	err = s.update(ctx, c.Tenant(), func(tx store.Tx) error {
		r := r // a transaction may run again
		if err := mayAppoint(ctx, tx, keys, c, access.MemberCreate, in.Role); err != nil {
			return err
		}
		if err := insert(ctx, tx, keys, &r, m); err != nil {
			return err
		}
		made = memberOf(c.Tenant(), r, m)
		return tx.AppendLog(ctx, audit.Entry(c, s.now(), audit.Member, r.ID, audit.Create))
	})
	if errors.Is(err, store.ErrExists) {
		return Member{}, errEmailTaken
	}
	return made, err
}

// insert adds the row of a member.
func insert(ctx context.Context, tx store.Tx, keys *keyring.Keys, r *store.Definition, m sealedMember) error {
	n, err := tx.CountDefinitions(ctx, store.DefinitionFilter{Kind: store.DefinitionMember})
	if err != nil {
		return fmt.Errorf("count members: %w", err)
	}
	if n >= maxMembers {
		return errManyMembers
	}
	if err := m.seal(keys, r); err != nil {
		return err
	}
	err = tx.InsertDefinition(ctx, *r)
	if errors.Is(err, store.ErrExists) {
		return errEmailTaken
	}
	return err
}

// mayAppoint returns nil when the caller may give a role, or change a member who
// has it. A role that is gone grants nothing.
func mayAppoint(ctx context.Context, tx store.Tx, keys *keyring.Keys, c access.Caller, p access.Permission, role string) error {
	found, err := roleOf(ctx, tx, keys, role)
	if errors.Is(err, errNoRole) {
		return errRole
	}
	if err != nil {
		return err
	}
	g, err := found.grant()
	if err != nil {
		return err
	}
	return c.RequireToAppoint(p, role == Owner, g)
}

// Get returns a member. The caller needs member:read.
func (s *Service) Get(ctx context.Context, c access.Caller, id string) (got Member, err error) {
	keys, err := s.keysFor(ctx, c, access.MemberRead)
	if err != nil {
		return Member{}, err
	}
	err = s.update(ctx, c.Tenant(), func(tx store.Tx) error {
		r, m, err := row(ctx, tx, keys, id)
		if err != nil {
			return err
		}
		got = memberOf(c.Tenant(), r, m)
		return tx.AppendLog(ctx, audit.Entry(c, s.now(), audit.Member, id, audit.Read))
	})
	return got, err
}

// List returns a page of the members, newest first, and how many there are.
func (s *Service) List(ctx context.Context, c access.Caller, page store.Page) (list []Member, total int64, err error) {
	keys, err := s.keysFor(ctx, c, access.MemberRead)
	if err != nil {
		return nil, 0, err
	}
	filter := store.DefinitionFilter{Kind: store.DefinitionMember}
	err = s.update(ctx, c.Tenant(), func(tx store.Tx) error {
		list = nil // a transaction may run again
		rows, err := tx.Definitions(ctx, filter, page)
		if err != nil {
			return fmt.Errorf("list members: %w", err)
		}
		for _, r := range rows {
			m, err := openMember(keys, r)
			if err != nil {
				return err
			}
			list = append(list, memberOf(c.Tenant(), r, m))
		}
		if total, err = tx.CountDefinitions(ctx, filter); err != nil {
			return fmt.Errorf("count members: %w", err)
		}
		return tx.AppendLog(ctx, audit.Entry(c, s.now(), audit.Member, audit.Many, audit.Read))
	})
	return list, total, err
}

// Change is what of a member is changed; nil leaves it.
type Change struct{ Name, Role, State *string }

// Update changes a member. The caller needs member:update, and must hold both
// the role that the member has and the one that it gets. One who is disabled is
// signed out.
func (s *Service) Update(ctx context.Context, c access.Caller, id string, in Change) (changed Member, err error) {
	keys, err := s.keysFor(ctx, c, access.MemberUpdate)
	if err != nil {
		return Member{}, err
	}
	var f fault.Fields
	if in.Name != nil {
		checkName(&f, *in.Name)
	}
	if err := f.Err(); err != nil {
		return Member{}, err
	}
	if in.State != nil && *in.State != Active && *in.State != Disabled {
		return Member{}, errState
	}
	err = s.update(ctx, c.Tenant(), func(tx store.Tx) error {
		r, was, err := row(ctx, tx, keys, id)
		if err != nil {
			return err
		}
		if err := appoints(ctx, tx, keys, c, access.MemberUpdate, was.Role); err != nil {
			return err
		}
		m, what := was, "updated"
		if in.Name != nil {
			m.Name = *in.Name
		}
		if in.Role != nil && *in.Role != was.Role {
			m.Role, what = *in.Role, "role changed"
			if err := mayAppoint(ctx, tx, keys, c, access.MemberUpdate, m.Role); err != nil {
				return err
			}
		}
		if in.State != nil {
			m.State = *in.State
		}
		if err := s.keepsOwner(ctx, tx, keys, id, was, m); err != nil {
			return err
		}
		if !m.active() && was.active() {
			what = "disabled"
			if err := endAll(ctx, tx, id); err != nil {
				return err
			}
		}
		r.ModifiedBy, r.ModifiedAt = c.Application(), store.At(s.now())
		if err := replace(ctx, tx, keys, &r, m); err != nil {
			return err
		}
		changed = memberOf(c.Tenant(), r, m)
		return tx.AppendLog(ctx, audit.EntryThat(c, s.now(), audit.Member, id, audit.Update, what))
	})
	return changed, err
}

// appoints is mayAppoint for a role that a member already has: one that is gone
// grants nothing, so anyone may replace it.
func appoints(ctx context.Context, tx store.Tx, keys *keyring.Keys, c access.Caller, p access.Permission, role string) error {
	if err := mayAppoint(ctx, tx, keys, c, p, role); !errors.Is(err, errRole) {
		return err
	}
	return nil
}

func replace(ctx context.Context, tx store.Tx, keys *keyring.Keys, r *store.Definition, m sealedMember) error {
	if err := m.seal(keys, r); err != nil {
		return err
	}
	r.Version++
	if err := tx.ReplaceDefinition(ctx, *r); err != nil {
		return fmt.Errorf("replace member: %w", err)
	}
	return nil
}

// keepsOwner returns errLastOwner when a change leaves the tenant without an
// active owner. Transactions are serializable, so of two that each remove one of
// two owners, one fails.
func (s *Service) keepsOwner(ctx context.Context, tx store.Tx, keys *keyring.Keys, id string, was, next sealedMember) error {
	owns := func(m sealedMember) bool { return m.Role == Owner && m.active() }
	if !owns(was) || owns(next) {
		return nil
	}
	another := false
	err := each(ctx, tx, keys, func(r store.Definition, m sealedMember) error {
		another = another || r.ID != id && owns(m)
		return nil
	})
	if err == nil && !another {
		return errLastOwner
	}
	return err
}

// each goes through the members of a tenant.
func each(ctx context.Context, tx store.Tx, keys *keyring.Keys, do func(store.Definition, sealedMember) error) error {
	rows, err := tx.Definitions(ctx, store.DefinitionFilter{Kind: store.DefinitionMember}, store.Page{Limit: maxMembers})
	if err != nil {
		return fmt.Errorf("list members: %w", err)
	}
	for _, r := range rows {
		m, err := openMember(keys, r)
		if err != nil {
			return err
		}
		if err := do(r, m); err != nil {
			return err
		}
	}
	return nil
}

// Delete removes a member, who is signed out. The caller needs member:delete,
// and must hold the role that the member has. The last owner stays.
func (s *Service) Delete(ctx context.Context, c access.Caller, id string) error {
	keys, err := s.keysFor(ctx, c, access.MemberDelete)
	if err != nil {
		return err
	}
	return s.update(ctx, c.Tenant(), func(tx store.Tx) error {
		_, was, err := row(ctx, tx, keys, id)
		if err != nil {
			return err
		}
		if err := appoints(ctx, tx, keys, c, access.MemberDelete, was.Role); err != nil {
			return err
		}
		if err := s.keepsOwner(ctx, tx, keys, id, was, sealedMember{}); err != nil {
			return err
		}
		if err := endAll(ctx, tx, id); err != nil {
			return err
		}
		if err := tx.DeleteDefinition(ctx, store.DefinitionMember, id); err != nil {
			return fmt.Errorf("delete member: %w", err)
		}
		return tx.AppendLog(ctx, audit.Entry(c, s.now(), audit.Member, id, audit.Delete))
	})
}
