// Package access decides who may do what, and how much of a token it shows.
//
// It promises that every decision, be it for a token, a session, a reactor, a
// proxy or an explanation, is made by the same few lines, and that whatever is
// missing, unknown or malformed refuses. It never does I/O: it reads no store,
// no clock and no request, and it puts nothing that a caller sent into words.
package access

import (
	"iter"
	"strings"
)

// Caller is who asks: made by authentication, handed to every service method,
// never changed. The zero Caller may do nothing.
type Caller struct {
	kind        kind
	tenant      string
	application string
	key         string // the id of the application's key that was presented
	session     string
	class       ApplicationType
	own         Grant
	// maker is what the application that authorized a session may do now; the
	// session gets the lesser of both when it is capped.
	maker  Grant
	capped bool
	origin Origin
	member Member // of a member
	reason string // that the caller gave; see WithReason
}

type kind uint8

const (
	_ kind = iota
	kindApplication
	kindSession
	kindSystem
	kindProxy
	kindMember
)

// Origin is where a request came from, for the log, and what limits it.
type Origin struct {
	TraceID string
	Address string // of the client
	Meter   Meter  // nil outside a request: nothing is limited
}

// Meter limits what one request may use. Services charge it through the caller
// before they do the work. Its errors are faults.
type Meter interface {
	// Tokens charges the tokens that a request accesses to the rate limits of
	// its caller.
	Tokens(n int) error
	// Memory charges bytes to a tenant until the request ends. A negative number
	// gives bytes back, and never fails.
	Memory(tenant string, n int64) error
}

// ChargeMemory charges bytes to a tenant until the request ends.
func (o Origin) ChargeMemory(tenant string, n int64) error {
	if o.Meter == nil {
		return nil
	}
	return o.Meter.Memory(tenant, n)
}

// NewApplication is a caller with an application's own key. Whatever the grant
// says, it can do no more than its type allows.
func NewApplication(tenant, id string, t ApplicationType, g Grant) Caller {
	return Caller{kind: kindApplication, tenant: tenant, application: id, class: t, own: g.limitedTo(t.holds())}
}

// NewSession is a caller with a session's key: own is what the session was
// granted, maker what the private application that authorized it may do now.
// application is the public one that made the session. Either grant may be zero:
// then the session may do nothing.
func NewSession(tenant, application, session string, own, maker Grant) Caller {
	c := NewUncappedSession(tenant, application, session, own)
	c.maker, c.capped = maker.limitedTo(privatePermissions), true
	return c
}

// NewUncappedSession is a session of a tenant that has lifted the cap: what it
// was granted counts, whatever its maker may do.
func NewUncappedSession(tenant, application, session string, own Grant) Caller {
	return Caller{kind: kindSession, tenant: tenant, application: application, session: session,
		own: own.limitedTo(tokenPermissions)}
}

// NewSystem is the program itself at work in a tenant, for a sweep or for a
// command of the operator, with the permissions that this work takes. It never
// sees plaintext: plain permissions mask, and it cannot hold token:use.
func NewSystem(tenant string, permissions ...Permission) Caller {
	return Caller{kind: kindSystem, tenant: tenant, own: PlainGrant(permissions...).limitedTo(allPermissions &^ setOf(TokenUse))}
}

// NewAnonymousProxy is whoever calls a proxy that asks for no key. It can use
// tokens and nothing else, as far as g goes: the grant of the proxy's
// application, or where the tenant allows it PlainGrant(TokenUse).
func NewAnonymousProxy(tenant string, g Grant) Caller {
	return Caller{kind: kindProxy, tenant: tenant, own: g.limitedTo(setOf(TokenUse))}
}

// AsAnonymousProxy is whoever calls, without a key, a proxy whose application
// is c: it can use the tokens that c may use now, and is nobody in the log.
func (c Caller) AsAnonymousProxy() Caller { return NewAnonymousProxy(c.tenant, c.own) }

// Member is a person who has signed in.
type Member struct {
	ID     string
	Name   string // for the log
	SignIn string // the id of the session of this person, not of an application
	// Owner says that the member's role is the built-in owner: it may give
	// applications and members more than it holds itself.
	Owner bool
}

// NewMember is a person of a tenant, with the grant of the role that this
// person has now.
func NewMember(tenant string, m Member, g Grant) Caller {
	return Caller{kind: kindMember, tenant: tenant, application: m.ID, member: m, own: g.limitedTo(allPermissions)}
}

// WithReason returns the caller with the reason that it gave for what it is
// about to do. Rules that require a reason count in full then. An empty reason
// is none.
func (c Caller) WithReason(reason string) Caller {
	if reason == "" {
		return c
	}
	c.reason, c.own, c.maker = reason, c.own.withReason(), c.maker.withReason()
	return c
}

// WithOrigin returns the caller with where its request came from.
func (c Caller) WithOrigin(o Origin) Caller {
	c.origin = o
	return c
}

// WithKey returns the caller with the id of the application's key that it
// presented.
func (c Caller) WithKey(id string) Caller {
	c.key = id
	return c
}

// Tenant returns the tenant in which the caller acts.
func (c Caller) Tenant() string { return c.tenant }

// Application returns the id that created_by and the log name: the
// application, for a session the public application that made it, and for a
// member the member. The system and anonymous callers have none.
func (c Caller) Application() string { return c.application }

// Key returns the id of the application's key that the caller presented. It is
// "" for sessions, and for whatever acts for an application without its key.
func (c Caller) Key() string { return c.key }

// Session returns the session's id; "" for others.
func (c Caller) Session() string { return c.session }

// Member returns the person that the caller is; the zero Member for others.
func (c Caller) Member() Member { return c.member }

// Reason returns the reason that the caller gave, for the log.
func (c Caller) Reason() string { return c.reason }

// ApplicationType returns the type of the application whose own key this is;
// "" for others, sessions included.
func (c Caller) ApplicationType() ApplicationType { return c.class }

// ActorType returns how the log calls this kind of caller; "" for anonymous ones.
func (c Caller) ActorType() string {
	switch c.kind {
	case kindApplication, kindSession:
		return "application"
	case kindSystem:
		return "system"
	case kindMember:
		return "user"
	}
	return ""
}

// Origin returns where the request came from.
func (c Caller) Origin() Origin { return c.origin }

// ChargeTokens charges tokens that the caller is about to access, whether or
// not it may, to its rate limits.
func (c Caller) ChargeTokens(n int) error {
	if c.origin.Meter == nil || n <= 0 {
		return nil
	}
	return c.origin.Meter.Tokens(n)
}

// ChargeMemory charges bytes that the request needs to the caller's tenant.
func (c Caller) ChargeMemory(n int64) error { return c.origin.ChargeMemory(c.tenant, n) }

// Decide says whether the caller may do something to one target. The
// permission is needed on each container, and the least revealing transform
// counts; a session also needs what its maker may do.
func (c Caller) Decide(p Permission, target Target) Decision { return c.decide(p, target, nil) }

// Explain is Decide with every step that led there, in order.
func (c Caller) Explain(p Permission, target Target) (Decision, []Step) {
	var t trace
	d := c.decide(p, target, &t)
	return d, t.steps
}

// DecideContainers is Decide for all tokens in these containers at once: exact
// for each of them, unless DependsOnID says that each must be asked about. Then
// it is what even the least favoured of them is allowed.
func (c Caller) DecideContainers(p Permission, containers []string) Decision {
	return c.Decide(p, Target{Containers: containers})
}

// DecideEverywhere is DecideContainers for all tokens of the tenant at once. ok
// is false when the answer is not the same for all of them.
func (c Caller) DecideEverywhere(p Permission) (d Decision, ok bool) {
	if !c.own.uniform(p) || c.capped && !c.maker.uniform(p) {
		return Decision{}, false
	}
	return c.DecideContainers(p, []string{"/"}), true
}

// Require returns nil when the caller holds a permission, and a *Denial
// otherwise. For tokens it takes their containers, each of them, and holds for
// every id: where the id is known, Decide is exact.
func (c Caller) Require(p Permission, containers ...string) error {
	return c.DecideContainers(p, containers).Err()
}

// RequireSomewhere returns nil when there may be a token that the caller can do
// this to, and a *Denial when there is none. It is the first question of what
// works on any number of tokens: lists, reactors, proxies.
func (c Caller) RequireSomewhere(p Permission) error {
	for _, possible := range c.reaches(p, "/") {
		if possible.most() != Nothing {
			return nil
		}
	}
	return denial(p)
}

// Reach returns the most that the caller may be shown by doing this to some
// token in a container or below it, and the first container where that is so.
func (c Caller) Reach(p Permission, container string) (most Transform, at string) {
	for place, possible := range c.reaches(p, container) {
		if possible.most() > most {
			most, at = possible.most(), place
		}
	}
	return most, at
}

// reaches yields what the caller may do in a container, below it, and at every
// container below it that a rule names: nothing else differs from all of these.
func (c Caller) reaches(p Permission, container string) iter.Seq2[string, outcomes] {
	return func(yield func(string, outcomes) bool) {
		if !c.known() {
			return
		}
		look := func(place string) bool {
			at, _ := c.combine(p, place, "", nil)
			inside, _ := c.combine(p, below(place), "", nil)
			return yield(place, at|inside)
		}
		if !look(container) {
			return
		}
		for _, g := range [...]Grant{c.own, c.maker} {
			for named := range g.containers() {
				if named != container && strings.HasPrefix(named, container) && !look(named) {
					return
				}
			}
		}
	}
}

// RequireType returns nil when this is the own key of an application of that
// type, and a *Denial otherwise.
func (c Caller) RequireType(t ApplicationType) error {
	if c.known() && c.kind == kindApplication && c.class == t {
		return nil
	}
	return wrongType(t)
}

// known reports whether the caller is somebody in some tenant.
func (c Caller) known() bool { return c.kind != 0 && c.tenant != "" }

func (c Caller) decide(p Permission, target Target, t *trace) Decision {
	d := Decision{Permission: p}
	if target.Type != "" {
		d.entity = Entity{target.Type, target.ID}
	}
	refuse := func(reason Reason) Decision {
		d.By = Step{Rule: NoRule, Reason: reason}
		t.add(d.By)
		return d
	}
	if !c.known() {
		return refuse(CannotHold)
	}
	if !p.OnTokens() {
		if target.ID != "" || len(target.Containers) > 0 {
			return refuse(WrongTarget)
		}
		possible, by := c.combine(p, "", "", t)
		d.Transform, d.By = possible.least(), by
		return d
	}
	if len(target.Containers) == 0 {
		return refuse(WrongTarget)
	}
	all := only(Reveal)
	for i, container := range target.Containers {
		if !isContainer(container) {
			return refuse(WrongTarget)
		}
		possible, by := c.combine(p, container, target.ID, t)
		if i == 0 || by.Transform < d.By.Transform {
			d.By = by
		}
		all = lesser(all, possible)
	}
	d.Transform = all.least()
	d.DependsOnID = all.least() != all.most()
	return d
}

// combine is the lesser of what the caller's own grant and, for a capped
// session, its maker's say about one container.
func (c Caller) combine(p Permission, container, id string, t *trace) (outcomes, Step) {
	possible, by := c.own.decide(p, container, id, false, t)
	if c.capped {
		maker, makerBy := c.maker.decide(p, container, id, true, t)
		if makerBy.Transform < by.Transform {
			by = makerBy
		}
		possible = lesser(possible, maker)
	}
	return possible, by
}
