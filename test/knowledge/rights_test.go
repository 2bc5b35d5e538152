package knowledge_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
)

// level is how much of a token an operation shows.
type level int

const (
	nothing  level = iota // refused
	redacted              // no data
	masked                // the evaluated mask
	revealed              // plaintext
)

func (l level) String() string { return [...]string{"nothing", "redact", "mask", "reveal"}[l] }

var levels = map[string]level{"redact": redacted, "mask": masked, "reveal": revealed}

// grant is what an application or a session holds.
type grant struct {
	permissions []string
	rules       []api.Rule
}

// plain is what a permission without a rule shows.
var plain = map[string]level{
	"token:create": masked, "token:update": masked, "token:read": masked, "token:search": masked, "token:use": revealed, "token:delete": redacted,
}

// typePermissions are the token permissions that a type of application can hold.
var typePermissions = map[string][]string{
	"public":     {"token:create", "token:update"},
	"private":    {"token:create", "token:read", "token:update", "token:delete", "token:search", "token:use"},
	"management": {},
}

// matches reports whether a rule is about a token in one of its containers.
func matches(r api.Rule, id, container string) bool {
	if len(r.Conditions) == 0 {
		return strings.HasPrefix(container, r.Container)
	}
	for _, c := range r.Conditions {
		value := id
		if c.Attribute == "container" {
			value = container
		}
		if c.Operator == "equals" && value != c.Value || c.Operator == "starts_with" && !strings.HasPrefix(value, c.Value) {
			return false
		}
	}
	return true
}

// inContainer is the decision about a token in one of its containers: the first
// rule by priority that matches and carries the permission, then the plain
// permission, then nothing.
func (g grant) inContainer(permission, id, container string) level {
	rules := slices.Clone(g.rules)
	slices.SortStableFunc(rules, func(a, b api.Rule) int {
		if a.Priority == nil || b.Priority == nil {
			return 0 // then position counts
		}
		return *a.Priority - *b.Priority
	})
	for _, r := range rules {
		if slices.Contains(r.Permissions, permission) && matches(r, id, container) {
			return levels[r.Transform]
		}
	}
	if slices.Contains(g.permissions, permission) {
		return plain[permission]
	}
	return nothing
}

// on is the decision about a token in all of its containers: the least counts.
func (g grant) on(permission, id string, containers []string) level {
	if len(containers) == 0 {
		return nothing
	}
	least := revealed
	for _, container := range containers {
		least = min(least, g.inContainer(permission, id, container))
	}
	switch {
	case permission == "token:create" || permission == "token:update":
		return min(least, masked) // these responses never reveal
	case permission == "token:use" && least == redacted:
		return nothing // there is nothing to put in the token's place
	case permission == "token:delete":
		return min(least, redacted)
	}
	return least
}

// somewhere reports whether a grant gives a permission on some token.
func (g grant) somewhere(permission string) bool {
	return slices.Contains(g.permissions, permission) ||
		slices.ContainsFunc(g.rules, func(r api.Rule) bool { return slices.Contains(r.Permissions, permission) })
}

// TestTheEvaluatorAgreesWithTheServer asks the server about random grants and
// compares its explanations with what the model assumes.
func TestTheEvaluatorAgreesWithTheServer(t *testing.T) {
	s := newSite(t)
	tenant := s.k.Tenant(t)
	r := rand.New(rand.NewPCG(5, 6))
	containers := []string{"/", "/pci/", "/pci/high/", "/pci/low/", "/own/"}
	pick := func(list []string) string { return list[r.IntN(len(list))] }
	seen := map[level]int{}
	for range 150 {
		kind := pick([]string{"private", "private", "public", "session"})
		holds := typePermissions[kind]
		if kind == "session" {
			holds = typePermissions["private"]
		}
		var g grant
		for _, p := range holds {
			if r.IntN(3) == 0 {
				g.permissions = append(g.permissions, p)
			}
		}
		for range r.IntN(4) {
			one := rule(pick(containers), pick([]string{"redact", "mask", "reveal"}), pick(holds))
			if kind == "session" && r.IntN(2) == 0 {
				one.Container = ""
				one.Conditions = []api.Condition{{Attribute: "container", Operator: pick([]string{"equals", "starts_with"}), Value: pick(containers)}}
			}
			g.rules = append(g.rules, one)
		}
		for i, at := range r.Perm(len(g.rules)) { // in another order than their position
			g.rules[i].Priority = new(at + 1)
		}
		if len(g.permissions)+len(g.rules) == 0 {
			continue
		}
		permission := pick(typePermissions["private"])
		in := []string{pick(containers)}
		if second := pick(containers); r.IntN(2) == 0 && second != in[0] {
			in = append(in, second)
		}
		question, err := json.Marshal(api.ExplainAccess{Permission: permission, Containers: in, Proposed: &api.ProposedGrant{Type: kind, Permissions: g.permissions, Rules: g.rules}})
		if err != nil {
			t.Fatal(err)
		}
		var got api.Explanation
		s.k.Call(t, "POST", "/access/explain", tenant.Application.Key, string(question)).Into(t, 200, &got)
		want := g.on(permission, "some-id", in)
		if kind == "public" && !slices.Contains(holds, permission) {
			want = nothing
		}
		seen[want]++
		if levels[got.Transform] != want {
			t.Errorf("the server says %q and the model %s for %s", got.Transform, want, question)
		}
	}
	for _, l := range []level{nothing, redacted, masked, revealed} {
		if seen[l] < 5 {
			t.Errorf("only %d questions come to %s: %v", seen[l], l, fmt.Sprint(seen))
		}
	}
}
