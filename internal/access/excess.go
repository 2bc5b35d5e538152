package access

import (
	"math/bits"

	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// Excess is a part of a session's grant that its maker does not have.
type Excess struct {
	Permission Permission
	Rule       int // position in the proposed list, from 0; NoRule for a plain permission
	Lack       Lack
}

// Lack says what the maker is without.
type Lack uint8

// The lacks. The maker does not have the permission anywhere; or not in the
// container; or there, but showing less.
const (
	LacksPermission Lack = iota
	LacksContainer
	LacksTransform
)

// PlainExcess finds the first plain excess in a grant that an application
// proposes for a session, rules first, in the order of their priority. It
// compares what the session would be allowed with what the maker is allowed,
// for each permission of each rule, at that rule's own place:
//
//   - a rule with a container, at that container and at an unnamed one below
//     it; a plain permission, at "/" in the same way;
//   - a rule with conditions on the container, at the container they name, and
//     below it where they say starts_with;
//   - a rule with conditions on the id alone, at the container where the maker
//     is allowed most: where such a token lies cannot be known here.
//
// The id is one that the rule matches and, where the rule leaves it open, that
// no rule names. So whatever is reported is a real excess, and a maker may
// always pass on a copy of its own grant. What is not reported may still exceed: the maker may have an
// exception further below, or the one token named by its id may lie elsewhere.
// That is for the cap at use, which is the wall; this check is a courtesy that
// names mistakes early.
func PlainExcess(proposed, maker Grant) (Excess, bool) {
	proposed = proposed.limitedTo(tokenPermissions)
	for _, r := range proposed.rules() {
		for p := range r.permissions.each() {
			containers, id := r.places(p, maker)
			for _, container := range containers {
				if reason, _ := r.match(p, container, id); reason != Decides {
					continue // conditions that contradict one another, or equals and below
				}
				if lack, exceeds := compare(proposed, maker, p, container, id); exceeds {
					return Excess{Permission: p, Rule: r.position, Lack: lack}, true
				}
			}
		}
	}
	for p := range (proposed.plain() & proposed.limit).each() {
		for _, container := range []string{"/", below("/")} {
			if lack, exceeds := compare(proposed, maker, p, container, unnamed); exceeds {
				return Excess{Permission: p, Rule: NoRule, Lack: lack}, true
			}
		}
	}
	return Excess{}, false
}

// RequireToGrant returns nil when the caller may authorize a session with that
// grant, and otherwise a *Denial that names what it lacks: a private
// application may, without a plain excess. In a tenant that has lifted the cap,
// RequireType(Private) is the question instead.
func (c Caller) RequireToGrant(g Grant) error {
	if err := c.RequireType(Private); err != nil {
		return err
	}
	if excess, found := PlainExcess(g, c.own); found {
		return Refuse(excess.Permission, excessFaults[excess.Permission][excess.Lack])
	}
	return nil
}

// compare reports whether the proposed grant allows more than the maker's in
// one place, and what the maker lacks there.
func compare(proposed, maker Grant, p Permission, container, id string) (Lack, bool) {
	asked, _ := proposed.decide(p, container, id, false, nil)
	has, _ := maker.decide(p, container, id, true, nil)
	if asked.most() <= has.most() {
		return 0, false
	}
	if has.most() != Nothing {
		return LacksTransform, true
	}
	if _, best := maker.best(p, id); best != Nothing {
		return LacksContainer, true
	}
	return LacksPermission, true
}

// places returns the containers and the id at which a rule is looked at.
func (r *rule) places(p Permission, maker Grant) (containers []string, id string) {
	if r.container != "" {
		return []string{r.container, below(r.container)}, unnamed
	}
	id, whole := longest(r.conditions, true)
	if !whole {
		id += unnamed
	}
	container, _ := longest(r.conditions, false)
	if container == "" {
		container, _ = maker.best(p, id)
		return []string{container}, id
	}
	return []string{container, below(container)}, id
}

// longest returns the value that the conditions on one attribute come down to,
// and whether it is the whole value. If they contradict one another, it fails
// one of them.
func longest(conditions []condition, onID bool) (value string, whole bool) {
	for _, c := range conditions {
		switch {
		case c.onID != onID:
		case !c.prefix:
			return c.value, true
		case len(c.value) > len(value):
			value = c.value
		}
	}
	return value, false
}

// best returns the container in which a grant allows most.
func (g Grant) best(p Permission, id string) (container string, most Transform) {
	container = "/"
	for at := range g.containers() {
		if possible, _ := g.decide(p, at, id, true, nil); possible.most() > most {
			container, most = at, possible.most()
		}
	}
	return container, most
}

// each yields the permissions of a set in the order of the list.
func (s permissionSet) each() func(yield func(Permission) bool) {
	return func(yield func(Permission) bool) {
		for rest := s; rest != 0; rest &= rest - 1 {
			if !yield(Permission(bits.TrailingZeros64(uint64(rest)))) {
				return
			}
		}
	}
}

var excessFaults = [...][3]*fault.Fault{
	TokenCreate: {
		fault.New(fault.Forbidden, "the application does not have token:create and cannot grant it"),
		fault.New(fault.Forbidden, "the application does not have token:create on a container for which it would be granted"),
		fault.New(fault.Forbidden, "the application has token:create with a lesser transform than would be granted"),
	},
	TokenRead: {
		fault.New(fault.Forbidden, "the application does not have token:read and cannot grant it"),
		fault.New(fault.Forbidden, "the application does not have token:read on a container for which it would be granted"),
		fault.New(fault.Forbidden, "the application has token:read with a lesser transform than would be granted"),
	},
	TokenUpdate: {
		fault.New(fault.Forbidden, "the application does not have token:update and cannot grant it"),
		fault.New(fault.Forbidden, "the application does not have token:update on a container for which it would be granted"),
		fault.New(fault.Forbidden, "the application has token:update with a lesser transform than would be granted"),
	},
	TokenDelete: {
		fault.New(fault.Forbidden, "the application does not have token:delete and cannot grant it"),
		fault.New(fault.Forbidden, "the application does not have token:delete on a container for which it would be granted"),
		fault.New(fault.Forbidden, "the application has token:delete with a lesser transform than would be granted"),
	},
	TokenSearch: {
		fault.New(fault.Forbidden, "the application does not have token:search and cannot grant it"),
		fault.New(fault.Forbidden, "the application does not have token:search on a container for which it would be granted"),
		fault.New(fault.Forbidden, "the application has token:search with a lesser transform than would be granted"),
	},
	TokenUse: {
		fault.New(fault.Forbidden, "the application does not have token:use and cannot grant it"),
		fault.New(fault.Forbidden, "the application does not have token:use on a container for which it would be granted"),
		fault.New(fault.Forbidden, "the application has token:use with a lesser transform than would be granted"),
	},
}
