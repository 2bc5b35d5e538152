package directory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

var errNoToken = fault.New(fault.NotFound, "no such token")

// SessionHolder is the type of a proposed grant that is meant for a session.
const SessionHolder = "session"

// maxContainers is how many a token may have, and so how many a question is about.
const maxContainers = 10

// Question asks whether a holder of rights may do something.
type Question struct {
	// The holder, one of three: an application, a session, or a grant that
	// nobody has yet.
	Application string
	Session     string
	Proposed    *Proposal
	Permission  string
	// What it would be done to: a token, or any token in all of these
	// containers. Permissions that are not on tokens have neither.
	Token      string
	Containers []string
}

// Proposal is a grant for an application of some type, or for a session.
type Proposal struct {
	Type        string // public, private, management or SessionHolder
	Permissions []string
	Rules       []access.Rule
}

// Inactive says why a holder may do nothing, whatever it was granted.
type Inactive string

// What makes a holder inactive.
const (
	Active           Inactive = ""
	HasExpired       Inactive = "it has expired"
	NotAuthorized    Inactive = "it is not authorized yet"
	NoCreatingKey    Inactive = "the key that created it is gone or its application has expired"
	NoAuthorizingKey Inactive = "the key that authorized it is gone or its application has expired"
)

// Explanation is the answer: the decision with every step that led there. An
// inactive session has no steps.
type Explanation struct {
	access.Decision
	Inactive   Inactive
	Containers []string // those of the token, when a token was asked about
	Steps      []access.Step
}

// Explain says whether a holder may do something and why, by asking the same
// question that a request would. It takes application:read, shows no data, and
// is in the log as a look at the holder, and at the token if one is named.
func (s *Service) Explain(ctx context.Context, c access.Caller, q Question) (out Explanation, err error) {
	keys, err := s.keysFor(ctx, c, access.ApplicationRead)
	if err != nil {
		return out, err
	}
	var f fault.Fields
	p, ok := access.ParsePermission(q.Permission)
	if !ok {
		f.AddUnknown("permission", access.PermissionUnknown, q.Permission, access.PermissionNames())
	}
	holders := 0
	for _, given := range [...]bool{q.Application != "", q.Session != "", q.Proposed != nil} {
		if given {
			holders++
		}
	}
	if holders != 1 {
		f.Add("application_id", "is required, or session_id, or proposed, and only one of them")
	}
	if q.Token != "" && len(q.Containers) > 0 {
		f.Add("containers", "cannot be given together with a token")
	}
	if len(q.Containers) > maxContainers {
		f.Add("containers", "must have at most 10 items")
		q.Containers = nil
	}
	containers := make([]string, len(q.Containers))
	for i, container := range q.Containers {
		if containers[i], ok = access.NormalizeContainer(container); !ok {
			f.Add("containers", "must be paths such as /pci/high/")
		}
	}
	if ok := p.OnTokens(); f.Err() == nil && ok != (q.Token != "" || len(containers) > 0) {
		if ok {
			f.Add("token_id", "is required for this permission, or containers")
		} else {
			f.Add("token_id", "cannot be given for a permission that is not on tokens")
		}
	}
	var proposed access.Caller
	if q.Proposed != nil {
		if proposed, err = callerOfProposal(c.Tenant(), &f, *q.Proposed); err != nil {
			return out, err
		}
	}
	if err := f.Err(); err != nil {
		return out, err
	}
	err = s.update(ctx, c, func(tx store.Tx) error {
		out = Explanation{} // a transaction may run again
		holder, entity, id := proposed, audit.Application, audit.Many
		switch {
		case q.Application != "":
			id = q.Application
			r, err := rowOf(ctx, tx, id)
			if err != nil {
				return err
			}
			if holder, out.Inactive, err = s.holderOf(keys, r); err != nil {
				return err
			}
		case q.Session != "":
			entity, id = audit.Session, q.Session
			r, err := tx.Session(ctx, id)
			if err != nil {
				return notFound(err, errNoSession)
			}
			if holder, out.Inactive, err = s.sessionHolder(ctx, tx, keys, r); err != nil {
				return err
			}
		}
		entries := []store.LogEntry{audit.EntryBy(c, s.now(), entity, id, audit.Read, "access explanation")}
		target := access.Target{ID: q.Token, Containers: containers}
		if q.Token != "" {
			t, err := tx.Token(ctx, q.Token)
			if errors.Is(err, store.ErrNotFound) || err == nil && !t.Expiry.At.IsZero() && t.Expiry.At <= store.At(s.now()) {
				return errNoToken
			}
			if err != nil {
				return fmt.Errorf("look for token: %w", err)
			}
			target.Containers = t.Containers
			entries = append(entries, audit.EntryBy(c, s.now(), t.Type, t.ID, audit.Read, "access explanation"))
		}
		out.Containers = target.Containers
		out.Permission = p
		if out.Inactive == Active || q.Session == "" { // of an inactive session no caller is made
			out.Decision, out.Steps = holder.Explain(p, target)
		}
		if out.Inactive != Active {
			out.Transform, out.DependsOnID = access.Nothing, false
		}
		return tx.AppendLog(ctx, entries...)
	})
	return out, err
}

func callerOfProposal(tenant string, f *fault.Fields, in Proposal) (access.Caller, error) {
	var proposed fault.Fields
	kind := access.ApplicationType("")
	if in.Type == SessionHolder {
		in.Permissions, in.Rules = access.NormalizeSession(&proposed, in.Permissions, in.Rules)
	} else if t, ok := access.ParseApplicationType(in.Type); ok {
		kind = t
		in.Permissions, in.Rules = access.NormalizeApplication(&proposed, t, in.Permissions, in.Rules)
	} else {
		proposed.Add("type", "must be public, private, management or session")
	}
	f.Under("proposed", proposed)
	if valid := f.Err() == nil; !valid {
		return access.Caller{}, nil // said with whatever else is wrong
	}
	g, err := access.NewGrant(in.Permissions, in.Rules)
	if err != nil {
		return access.Caller{}, fmt.Errorf("read a proposed grant: %w", err)
	}
	if kind == "" {
		return access.NewUncappedSession(tenant, access.NewID(), access.NewID(), g), nil
	}
	return access.NewApplication(tenant, access.NewID(), kind, g), nil
}

// holderOf is the caller that a key of the application would be.
func (s *Service) holderOf(keys *keyring.Keys, r store.Application) (access.Caller, Inactive, error) {
	g, err := s.grants.of(keys.Tenant(), keys, r)
	if err != nil {
		return access.Caller{}, Active, err
	}
	state := Active
	if !r.ExpiresAt.IsZero() && r.ExpiresAt <= store.At(s.now()) {
		state = HasExpired
	}
	return access.NewApplication(keys.Tenant(), r.ID, access.ApplicationType(r.Type), g).WithActorName(r.Name), state, nil
}

// sessionHolder is the caller that a session's key would be.
func (s *Service) sessionHolder(ctx context.Context, tx store.Tx, keys *keyring.Keys, r store.Session) (access.Caller, Inactive, error) {
	c, err := s.callerOfSession(ctx, tx, keys, r)
	switch {
	case errors.Is(err, errSessionEnded):
		return c, HasExpired, nil
	case errors.Is(err, errNotYet):
		return c, NotAuthorized, nil
	case errors.Is(err, errNoCreatingKey):
		return c, NoCreatingKey, nil
	case errors.Is(err, errNoAuthorizingKey):
		return c, NoAuthorizingKey, nil
	}
	return c, Active, err
}

// Holder is an application or a session that could do what was asked about.
type Holder struct {
	Session   bool
	ID        string
	Name      string // of the application; for a session, of the one that made it
	Type      access.ApplicationType
	Transform access.Transform // the most that it could be shown
	Container string           // the first place where that is so; "" for permissions that are not on tokens
	ExpiresAt time.Time
}

// reviewed is how many rows a review reads at a time.
const reviewed = 200

// Who returns the applications and the live sessions that could do something to
// some token in a container or below it, and the most that each would be
// shown. It is the review of access that auditors ask for: what Explain says
// about one holder, for all of them. It takes application:read.
func (s *Service) Who(ctx context.Context, c access.Caller, permission, container string) (list []Holder, err error) {
	keys, err := s.keysFor(ctx, c, access.ApplicationRead)
	if err != nil {
		return nil, err
	}
	var f fault.Fields
	p, ok := access.ParsePermission(permission)
	if !ok {
		f.AddUnknown("permission", access.PermissionUnknown, permission, access.PermissionNames())
	}
	switch normal, isPath := access.NormalizeContainer(container); {
	case container != "" && !isPath:
		f.Add("container", "must be a path such as /pci/high/")
	case ok && p.OnTokens() != (container != ""):
		f.Add("container", "is for permissions on tokens, and required for those")
	default:
		container = normal
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	could := func(h Holder, holder access.Caller) {
		h.Transform, h.Container = holder.Reach(p, container)
		if !p.OnTokens() {
			h.Transform = holder.Decide(p, access.Target{}).Transform
		}
		if h.Transform != access.Nothing {
			list = append(list, h)
		}
	}
	// The review only reads, however long it takes: writers do not wait for it.
	err = s.store.View(ctx, c.Tenant(), func(tx store.Tx) error {
		list = nil // a transaction may run again
		return s.eachHolder(ctx, tx, keys, func(h Holder, _ made, holder access.Caller) { could(h, holder) })
	})
	if err != nil {
		return nil, err
	}
	return list, s.read(ctx, c, func(tx store.Tx) error {
		return tx.AppendLog(ctx, audit.EntryBy(c, s.now(), audit.Application, audit.Many, audit.Read, "access review"))
	})
}

// WhoOf is Who for one token: the decision about it is exact. It takes
// application:read, and the token is in the log as read.
func (s *Service) WhoOf(ctx context.Context, c access.Caller, permission, token string) (list []Holder, err error) {
	keys, err := s.keysFor(ctx, c, access.ApplicationRead)
	if err != nil {
		return nil, err
	}
	p, ok := access.ParsePermission(permission)
	if !ok || !p.OnTokens() {
		return nil, fault.Field("permission", "must be a permission on tokens")
	}
	err = s.update(ctx, c, func(tx store.Tx) error {
		list = nil // a transaction may run again
		t, err := tx.Token(ctx, token)
		if errors.Is(err, store.ErrNotFound) || err == nil && !t.Expiry.At.IsZero() && t.Expiry.At <= store.At(s.now()) {
			return errNoToken
		}
		if err != nil {
			return fmt.Errorf("look for token: %w", err)
		}
		err = s.eachHolder(ctx, tx, keys, func(h Holder, _ made, holder access.Caller) {
			d := holder.Decide(p, access.Target{ID: t.ID, Containers: t.Containers})
			if h.Transform, h.Container = d.Transform, d.By.Container; h.Transform != access.Nothing {
				list = append(list, h)
			}
		})
		if err != nil {
			return err
		}
		return tx.AppendLog(ctx, audit.EntryBy(c, s.now(), t.Type, t.ID, audit.Read, "access review"))
	})
	return list, err
}

// made is who last changed a holder, and when.
type made struct {
	at store.Time
	by string
}

// eachHolder calls do with every active application and live session.
func (s *Service) eachHolder(ctx context.Context, tx store.Tx, keys *keyring.Keys, do func(h Holder, m made, holder access.Caller)) error {
	names := make(map[string]string)
	err := eachOf(func(page store.Page) ([]store.Application, error) {
		return tx.Applications(ctx, store.ApplicationFilter{}, page)
	}, func(r store.Application) (store.Position, error) {
		names[r.ID] = r.Name
		holder, state, err := s.holderOf(keys, r)
		if err == nil && state == Active {
			m := made{r.ModifiedAt, r.ModifiedBy}
			if m.at.IsZero() {
				m = made{r.CreatedAt, r.CreatedBy}
			}
			do(Holder{ID: r.ID, Name: r.Name, Type: access.ApplicationType(r.Type), ExpiresAt: r.ExpiresAt.Time()}, m, holder)
		}
		return store.Position{CreatedAt: r.CreatedAt, ID: r.ID}, err
	})
	if err != nil {
		return fmt.Errorf("review applications: %w", err)
	}
	err = eachOf(func(page store.Page) ([]store.Session, error) {
		return tx.Sessions(ctx, store.SessionFilter{Now: store.At(s.now())}, page)
	}, func(r store.Session) (store.Position, error) {
		holder, state, err := s.sessionHolder(ctx, tx, keys, r)
		if err == nil && state == Active {
			do(Holder{Session: true, ID: r.ID, Name: names[r.CreatedBy], ExpiresAt: r.ExpiresAt.Time()}, made{r.CreatedAt, r.CreatedBy}, holder)
		}
		return store.Position{CreatedAt: r.CreatedAt, ID: r.ID}, err
	})
	if err != nil {
		return fmt.Errorf("review sessions: %w", err)
	}
	return nil
}

// eachOf goes through a list page by page. do says where its row stands.
func eachOf[R any](list func(store.Page) ([]R, error), do func(R) (store.Position, error)) error {
	for page := (store.Page{Limit: reviewed}); ; {
		rows, err := list(page)
		if err != nil {
			return err
		}
		for _, r := range rows {
			at, err := do(r)
			if err != nil {
				return err
			}
			page.After = &at
		}
		if len(rows) < reviewed {
			return nil
		}
	}
}
