package access

import "github.com/tokenkeep/tokenkeep/internal/fault"

var (
	errConfer  = fault.New(fault.Forbidden, "this would give an application more than your own role holds; it takes the role owner").WithCode("exceeds_role")
	errAppoint = fault.New(fault.Forbidden, "this would give a member more than you hold yourself").WithCode("exceeds_role")
	errOwner   = fault.New(fault.Forbidden, "this takes the role owner").WithCode("exceeds_role")
)

// leadsFurther are permissions with which a holder can get others, or have code
// act for others: an application that holds one is not bound by the role of the
// member who has its key.
var leadsFurther = setOf(TenantUpdate, ApplicationCreate, ApplicationUpdate, ReactorCreate, ReactorUpdate, ProxyCreate, ProxyUpdate, MemberCreate, MemberUpdate)

// RequireToConfer returns nil when the caller may let an application have a
// grant, or have code or a key act with it, and a *Denial otherwise. A member
// may when its own role allows as much on every token, and holds every other
// permission; an owner always may, and so may applications, whose keys members
// get only by this question. What the application had before does not count:
// a change that adds nothing is for the caller of this method to recognize.
func (c Caller) RequireToConfer(p Permission, t ApplicationType, g Grant) error {
	if c.kind != kindMember || c.member.Owner {
		return nil
	}
	g = g.limitedTo(t.holds())
	if g.held()&leadsFurther != 0 || !g.Within(c.own) {
		return Refuse(p, errConfer)
	}
	return nil
}

// RequireToAppoint returns nil when the caller may give a member a role with
// that grant, or change a member who has it. A member may within its own role,
// an owner always; an application within what it holds, or when it may create
// applications, which can hold everything.
func (c Caller) RequireToAppoint(p Permission, owner bool, g Grant) error {
	switch {
	case c.kind == kindSystem, c.kind == kindMember && c.member.Owner, c.kind == kindApplication && c.own.plain().has(ApplicationCreate):
		return nil
	case owner || !g.Within(c.own):
		return Refuse(p, errAppoint)
	}
	return nil
}

// RequireOwner returns nil unless the caller is a member who is not an owner:
// for what lets others see more than their rules say.
func (c Caller) RequireOwner(p Permission) error {
	if c.kind == kindMember && !c.member.Owner {
		return Refuse(p, errOwner)
	}
	return nil
}

// held returns every permission that a grant has somewhere.
func (g Grant) held() permissionSet {
	all := g.plain()
	for _, r := range g.rules() {
		all |= r.permissions
	}
	return all & g.limit
}

// Within reports whether a grant allows nothing that another does not, on any
// token, with a reason or without. It is exact for rules without conditions:
// such a grant says the same about a container as about the longest path above
// it that a rule names, so it is compared at all of those. A grant that has
// conditions is never within another.
func (g Grant) Within(other Grant) bool {
	for p := range (g.held() &^ tokenPermissions).each() {
		if !(other.plain() & other.limit).has(p) {
			return false
		}
	}
	for _, r := range g.rules() {
		if r.conditions != nil {
			return false
		}
	}
	for p := range (g.held() & tokenPermissions).each() {
		for _, places := range [...]Grant{g, other} {
			for container := range places.containers() {
				if g.exceeds(other, p, container) || g.withReason().exceeds(other.withReason(), p, container) {
					return false
				}
			}
		}
	}
	return true
}

// exceeds reports whether a grant allows more than another in one container.
func (g Grant) exceeds(other Grant, p Permission, container string) bool {
	asked, _ := g.decide(p, container, unnamed, false, nil)
	has, _ := other.decide(p, container, unnamed, false, nil)
	return asked.most() > has.least()
}
