package access

import (
	"slices"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// Bounds on what one application or session is granted.
const (
	maxRules       = 100 // in a list
	maxConditions  = 10  // in a rule
	maxPermissions = 100 // in a list as sent, repeats included
	maxPriority    = 1<<31 - 1
	maxDescription = 1000 // characters
	maxID          = 400  // characters, as of token ids
)

// Rule grants permissions on some tokens, and says how much of them they show.
// Its wire form is also the one that is sealed in the store.
type (
	Rule      = api.Rule
	Condition = api.Condition
)

// The words of a condition.
const (
	attributeID        = "id"
	attributeContainer = "container"
	operatorEquals     = "equals"
	operatorStartsWith = "starts_with"
)

// NormalizeApplication checks what an application of that type is to hold and
// returns it in the form to be stored: permissions without repeats, rules with
// priorities and lower-case containers, in the order given. What is wrong is
// noted under "permissions" and "rules"; the results count only when nothing
// was. The type is one of ours: whoever decodes it has checked that.
func NormalizeApplication(f *fault.Fields, t ApplicationType, permissions []string, rules []Rule) ([]string, []Rule) {
	n := normalizer{faults: f, holds: t.holds(), reasons: true}
	if t == Management && len(rules) > 0 {
		f.Add("rules", "management applications have no rules")
		rules = nil
	}
	return n.normalize(permissions, rules)
}

// NormalizeSession is NormalizeApplication for what a session is to hold: any
// permission on tokens, and rules that may have conditions.
func NormalizeSession(f *fault.Fields, permissions []string, rules []Rule) ([]string, []Rule) {
	n := normalizer{faults: f, holds: tokenPermissions, conditions: true}
	return n.normalize(permissions, rules)
}

// NormalizeRole is NormalizeApplication for what the members with a role hold:
// any permission.
func NormalizeRole(f *fault.Fields, permissions []string, rules []Rule) ([]string, []Rule) {
	n := normalizer{faults: f, holds: allPermissions, reasons: true}
	return n.normalize(permissions, rules)
}

// normalizer checks one grant for one kind of holder.
type normalizer struct {
	faults     *fault.Fields
	holds      permissionSet
	conditions bool // whether rules may have conditions
	reasons    bool // whether rules may require a reason
}

func (n normalizer) normalize(permissions []string, rules []Rule) ([]string, []Rule) {
	if len(permissions) == 0 && len(rules) == 0 {
		n.faults.Add("permissions", "permissions or rules are required")
	}
	return n.permissions("permissions", n.holds, permissions), n.rules(rules)
}

// permissions checks a list of names and drops repeats.
func (n normalizer) permissions(path string, holds permissionSet, names []string) []string {
	if len(names) > maxPermissions {
		n.faults.Add(path, "has too many entries")
		return nil
	}
	var kept []string
	for _, name := range names {
		p, ok := ParsePermission(name)
		switch {
		case !ok:
			n.faults.Add(path, "has an entry that is not a permission")
		case !holds.has(p):
			n.faults.Add(path, "has a permission that cannot be held here")
		case !slices.Contains(kept, name):
			kept = append(kept, name)
		}
	}
	return kept
}

func (n normalizer) rules(rules []Rule) []Rule {
	if len(rules) > maxRules {
		n.faults.Add("rules", "has too many entries")
		return nil
	}
	var kept []Rule
	for i, r := range rules {
		kept = append(kept, n.rule("rules."+strconv.Itoa(i), r))
	}
	n.priorities(kept)
	return kept
}

func (n normalizer) rule(path string, r Rule) Rule {
	if utf8.RuneCountInString(r.Description) > maxDescription {
		n.faults.Add(path+".description", "is too long")
	}
	if _, ok := ParseTransform(r.Transform); !ok {
		n.faults.Add(path+".transform", "must be redact, mask or reveal")
	}
	if r.RequiresReason && !n.reasons {
		n.faults.Add(path+".requires_reason", "only rules of applications and roles require a reason")
	}
	if len(r.Permissions) == 0 {
		n.faults.Add(path+".permissions", "is required")
	}
	r.Permissions = n.permissions(path+".permissions", n.holds&tokenPermissions, r.Permissions)

	switch {
	case len(r.Conditions) > 0 && !n.conditions:
		n.faults.Add(path+".conditions", "only rules of sessions have conditions")
	case len(r.Conditions) > 0 && r.Container != "":
		n.faults.Add(path+".conditions", "a rule has a container or conditions, not both")
	case len(r.Conditions) > maxConditions:
		n.faults.Add(path+".conditions", "has too many entries")
	case len(r.Conditions) > 0:
		r.Conditions = slices.Clone(r.Conditions)
		for i := range r.Conditions {
			n.condition(path+".conditions."+strconv.Itoa(i), &r.Conditions[i])
		}
	case r.Container == "" && n.conditions:
		n.faults.Add(path+".container", "a container or conditions are required")
	case r.Container == "":
		n.faults.Add(path+".container", "is required")
	default:
		r.Conditions = nil
		r.Container = n.container(path+".container", r.Container)
	}
	return r
}

func (n normalizer) condition(path string, c *Condition) {
	if c.Operator != operatorEquals && c.Operator != operatorStartsWith {
		n.faults.Add(path+".operator", "must be equals or starts_with")
	}
	switch c.Attribute {
	case attributeContainer:
		// A whole path for starts_with too: "/pci" must not reach "/pcix/".
		c.Value = n.container(path+".value", c.Value)
	case attributeID:
		if !isIDValue(c.Value) {
			n.faults.Add(path+".value", "must be a token id or the beginning of one")
		}
	default:
		n.faults.Add(path+".attribute", "must be id or container")
	}
}

func (n normalizer) container(path, value string) string {
	normal, ok := NormalizeContainer(value)
	if !ok {
		n.faults.Add(path, "must be a path of letters, digits, - and _ that begins and ends with /")
	}
	return normal
}

// isIDValue reports whether a token id could equal or begin with the value.
func isIDValue(value string) bool {
	if value == "" || !utf8.ValidString(value) || utf8.RuneCountInString(value) > maxID {
		return false
	}
	return !slices.ContainsFunc([]rune(value), unicode.IsControl)
}

// priorities checks the priorities of a list, or gives them by position.
func (n normalizer) priorities(rules []Rule) {
	given := slices.ContainsFunc(rules, func(r Rule) bool { return r.Priority != nil })
	seen := make(map[int]bool, len(rules))
	for i := range rules {
		path := "rules." + strconv.Itoa(i) + ".priority"
		switch p := rules[i].Priority; {
		case !given:
			rules[i].Priority = new(i + 1)
		case p == nil:
			n.faults.Add(path, "must be given on all rules or on none")
		case *p < 1 || *p > maxPriority:
			n.faults.Add(path, "must be 1 or more, and below 2147483648")
		case seen[*p]:
			n.faults.Add(path, "must be unique")
		default:
			seen[*p] = true
		}
	}
}
