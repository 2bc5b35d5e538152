package access

import (
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// errGrant says that a stored grant does not follow the rules. It is our
// failure: a request with such a grant was refused before anything was stored.
var errGrant = errors.New("access: the grant is not valid")

// Grant is what an application or a session holds: plain permissions, and
// rules in the order of their priority. It is immutable, may be kept and
// shared, and its zero value grants nothing.
type Grant struct {
	// terms is a function because printers that follow unexported fields and
	// pointers stop there: a rule holds a tenant's own words. nil grants nothing.
	terms func() *terms
	// limit is what the holder can hold at all, whatever the terms say.
	limit permissionSet
	// reasoned says that the holder has given a reason, as some rules require.
	reasoned bool
}

type terms struct {
	plain permissionSet
	rules []rule
}

// rule is a Rule made ready for decisions.
type rule struct {
	position    int // in the list as it was given, from 0
	priority    int
	permissions permissionSet
	transform   Transform
	needsReason bool   // shows the mask to callers that gave no reason
	container   string // "" when there are conditions
	conditions  []condition
}

type condition struct {
	onID   bool // else on the container
	prefix bool // else on the whole value
	value  string
}

// NewGrant makes the grant of a stored application or session. It checks
// everything again and fails on what could not have been stored: to leave out
// a rule that cannot be read might uncover another that shows more.
func NewGrant(permissions []string, rules []Rule) (Grant, error) {
	var faults fault.Fields
	n := normalizer{faults: &faults, holds: allPermissions, conditions: true, reasons: true}
	permissions = n.permissions("permissions", n.holds, permissions)
	rules = n.rules(rules)
	if faults.Err() != nil {
		return Grant{}, errGrant
	}
	t := &terms{plain: parsed(permissions), rules: make([]rule, 0, len(rules))}
	for i, r := range rules {
		transform, _ := ParseTransform(r.Transform)
		made := rule{
			position:    i,
			priority:    *r.Priority,
			permissions: parsed(r.Permissions),
			transform:   transform,
			needsReason: r.RequiresReason,
			container:   r.Container,
		}
		for _, c := range r.Conditions {
			made.conditions = append(made.conditions, condition{
				onID: c.Attribute == attributeID, prefix: c.Operator == operatorStartsWith, value: c.Value,
			})
		}
		t.rules = append(t.rules, made)
	}
	slices.SortFunc(t.rules, func(a, b rule) int { return a.priority - b.priority })
	return newGrant(t), nil
}

// PlainGrant grants permissions without rules.
func PlainGrant(permissions ...Permission) Grant {
	return newGrant(&terms{plain: setOf(permissions...)})
}

func newGrant(t *terms) Grant {
	return Grant{terms: func() *terms { return t }, limit: allPermissions}
}

func parsed(names []string) permissionSet {
	var s permissionSet
	for _, name := range names {
		s |= setOf(permissionsByName[name])
	}
	return s
}

// limitedTo returns the grant for a holder that can hold no more than s.
func (g Grant) limitedTo(s permissionSet) Grant {
	g.limit &= s
	return g
}

// withReason returns the grant of a holder that has given a reason.
func (g Grant) withReason() Grant {
	g.reasoned = true
	return g
}

func (g Grant) rules() []rule {
	if g.terms == nil {
		return nil
	}
	return g.terms().rules
}

func (g Grant) plain() permissionSet {
	if g.terms == nil {
		return 0
	}
	return g.terms().plain
}

// uniform reports whether the grant says the same about a permission on every
// token: no rule carries it, or the first that does is about all containers.
func (g Grant) uniform(p Permission) bool {
	for _, r := range g.rules() {
		if r.permissions.has(p) {
			return r.container == "/"
		}
	}
	return true
}

// containers yields "/" and every container that a rule names. What a grant
// says about some container, it says about one of these or about an unnamed
// one right below one of these.
func (g Grant) containers() iter.Seq[string] {
	return func(yield func(string) bool) {
		more := yield("/")
		for _, r := range g.rules() {
			if more && r.container != "" {
				more = yield(r.container)
			}
			for _, c := range r.conditions {
				if more && !c.onID {
					more = yield(c.value)
				}
			}
		}
	}
}

// unnamed stands, in an id or a container, for something that no rule names:
// no value of a condition and no container holds a control character.
const unnamed = "\x00"

// below returns an unnamed container right below the given one.
func below(container string) string { return container + unnamed + "/" }

// shows returns the transform of a rule. A rule that requires a reason counts as
// a mask until one is given; token:use is not affected, because it shows the
// value to code and destinations and not to the caller.
func (r *rule) shows(p Permission, reasoned bool) Transform {
	if r.needsReason && !reasoned && p != TokenUse {
		return min(r.transform, Mask)
	}
	return r.transform
}

// match says whether a rule decides about a permission on a token in one
// container, and if not, why; for ConditionFails also which condition. An
// empty id is one that is not known.
func (r *rule) match(p Permission, container, id string) (Reason, int) {
	if !r.permissions.has(p) {
		return WithoutPermission, 0
	}
	if !strings.HasPrefix(container, r.container) {
		return OtherContainer, 0
	}
	reason := Decides
	for i := range r.conditions {
		c := &r.conditions[i]
		switch {
		case c.onID && id == "":
			reason = NeedsID
		case c.onID && !c.holds(id), !c.onID && !c.holds(container):
			return ConditionFails, i
		}
	}
	return reason, 0
}

func (c *condition) holds(value string) bool {
	if c.prefix {
		return strings.HasPrefix(value, c.value)
	}
	return value == c.value
}
