package access_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// grant makes a grant of rules, as they stand in a request, and permissions.
func grant(t testing.TB, rules string, permissions ...string) access.Grant {
	t.Helper()
	g, err := access.NewGrant(permissions, decodeRules(t, rules))
	if err != nil {
		t.Fatalf("NewGrant(%v, %s): %v", permissions, rules, err)
	}
	return g
}

func rule(container, transform, permissions string) string {
	return `{"container":"` + container + `","transform":"` + transform + `","permissions":["` + strings.ReplaceAll(permissions, " ", `","`) + `"]}`
}

func ruleWith(conditions, transform, permissions string) string {
	return `{"conditions":[` + conditions + `],"transform":"` + transform + `","permissions":["` + strings.ReplaceAll(permissions, " ", `","`) + `"]}`
}

func when(attribute, operator, value string) string {
	return `{"attribute":"` + attribute + `","operator":"` + operator + `","value":"` + value + `"}`
}

func list(rules ...string) string { return "[" + strings.Join(rules, ",") + "]" }

func target(id string, containers ...string) access.Target {
	return access.Target{ID: id, Containers: containers}
}

func TestDecide(t *testing.T) {
	id := func(v string) string { return when("id", "equals", v) }
	type test struct {
		rules       string
		permissions []string
		permission  access.Permission
		target      access.Target
		want        access.Transform
	}
	plain := func(names ...string) []string { return names }
	tests := map[string]test{
		"a rule reaches its container":                 {list(rule("/pci/", "reveal", "token:read")), nil, access.TokenRead, target("x", "/pci/"), access.Reveal},
		"a rule reaches what lies below":               {list(rule("/pci/", "reveal", "token:read")), nil, access.TokenRead, target("x", "/pci/high/"), access.Reveal},
		"a rule does not reach what lies above":        {list(rule("/pci/high/", "reveal", "token:read")), nil, access.TokenRead, target("x", "/pci/"), access.Nothing},
		"a rule does not reach a longer name":          {list(rule("/pci/", "reveal", "token:read")), nil, access.TokenRead, target("x", "/pcix/"), access.Nothing},
		"a rule on the root reaches everything":        {list(rule("/", "mask", "token:read")), nil, access.TokenRead, target("x", "/a/b/c/"), access.Mask},
		"a rule without the permission is passed over": {list(rule("/", "redact", "token:use"), rule("/", "reveal", "token:read")), nil, access.TokenRead, target("x", "/a/"), access.Reveal},
		"the first by priority decides":                {list(rule("/", "mask", "token:read"), rule("/pci/", "reveal", "token:read")), nil, access.TokenRead, target("x", "/pci/"), access.Mask},
		"priority goes before position": {`[{"priority":2,"container":"/","transform":"reveal","permissions":["token:read"]},{"priority":1,"container":"/","transform":"redact","permissions":["token:read"]}]`,
			nil, access.TokenRead, target("x", "/a/"), access.Redact},
		"a more special rule does not go first by itself": {list(rule("/", "redact", "token:read"), rule("/a/b/", "reveal", "token:read")), nil, access.TokenRead, target("x", "/a/b/"), access.Redact},
		"a rule goes before the plain permission":         {list(rule("/", "redact", "token:read")), plain("token:read"), access.TokenRead, target("x", "/a/"), access.Redact},
		"the plain permission decides where no rule does": {list(rule("/pci/", "reveal", "token:read")), plain("token:read"), access.TokenRead, target("x", "/a/"), access.Mask},
		"a rule for another permission leaves the plain":  {list(rule("/", "redact", "token:search")), plain("token:read"), access.TokenRead, target("x", "/a/"), access.Mask},
		"nothing matches and nothing is plain":            {list(rule("/pci/", "reveal", "token:read")), nil, access.TokenRead, target("x", "/a/"), access.Nothing},
		"no grant at all":                                 {`[]`, nil, access.TokenRead, target("x", "/a/"), access.Nothing},

		"a plain create masks":                              {`[]`, plain("token:create"), access.TokenCreate, target("x", "/a/"), access.Mask},
		"a plain update masks":                              {`[]`, plain("token:update"), access.TokenUpdate, target("x", "/a/"), access.Mask},
		"a plain read masks, never reveals":                 {`[]`, plain("token:read"), access.TokenRead, target("x", "/a/"), access.Mask},
		"a plain search masks":                              {`[]`, plain("token:search"), access.TokenSearch, target("x", "/a/"), access.Mask},
		"a plain use reveals":                               {`[]`, plain("token:use"), access.TokenUse, target("x", "/a/"), access.Reveal},
		"a plain delete is allowed":                         {`[]`, plain("token:delete"), access.TokenDelete, target("x", "/a/"), access.Redact},
		"one plain permission is no other":                  {`[]`, plain("token:use", "token:search"), access.TokenRead, target("x", "/a/"), access.Nothing},
		"create never reveals under a rule":                 {list(rule("/", "reveal", "token:create")), nil, access.TokenCreate, target("x", "/a/"), access.Mask},
		"update never reveals under a rule":                 {list(rule("/", "reveal", "token:update")), nil, access.TokenUpdate, target("x", "/a/"), access.Mask},
		"create redacts under a redact rule":                {list(rule("/", "redact", "token:create")), nil, access.TokenCreate, target("x", "/a/"), access.Redact},
		"a search reveals under a rule":                     {list(rule("/", "reveal", "token:search")), nil, access.TokenSearch, target("x", "/a/"), access.Reveal},
		"a deletion shows nothing":                          {list(rule("/", "reveal", "token:delete")), nil, access.TokenDelete, target("x", "/a/"), access.Redact},
		"use under mask gives the mask":                     {list(rule("/", "mask", "token:use")), nil, access.TokenUse, target("x", "/a/"), access.Mask},
		"use under reveal gives plaintext":                  {list(rule("/", "reveal", "token:use")), nil, access.TokenUse, target("x", "/a/"), access.Reveal},
		"use under redact is refused":                       {list(rule("/", "redact", "token:use")), nil, access.TokenUse, target("x", "/a/"), access.Nothing},
		"use under redact is refused although held plainly": {list(rule("/", "redact", "token:use")), plain("token:use"), access.TokenUse, target("x", "/a/"), access.Nothing},

		"every container needs the permission":                         {list(rule("/a/", "reveal", "token:read")), nil, access.TokenRead, target("x", "/a/", "/b/"), access.Nothing},
		"also when the first lacks it":                                 {list(rule("/b/", "reveal", "token:read")), nil, access.TokenRead, target("x", "/a/", "/b/"), access.Nothing},
		"the least revealing container counts":                         {list(rule("/a/", "reveal", "token:read"), rule("/b/", "redact", "token:read")), nil, access.TokenRead, target("x", "/a/", "/b/"), access.Redact},
		"the order of containers does not matter":                      {list(rule("/a/", "reveal", "token:read"), rule("/b/", "redact", "token:read")), nil, access.TokenRead, target("x", "/b/", "/a/"), access.Redact},
		"all containers reveal":                                        {list(rule("/a/", "reveal", "token:read"), rule("/b/", "reveal", "token:read")), nil, access.TokenRead, target("x", "/b/", "/a/"), access.Reveal},
		"the plain permission serves the other one":                    {list(rule("/a/", "reveal", "token:read")), plain("token:read"), access.TokenRead, target("x", "/a/", "/b/"), access.Mask},
		"use is refused if one container is redacted":                  {list(rule("/b/", "redact", "token:use")), plain("token:use"), access.TokenUse, target("x", "/a/", "/b/"), access.Nothing},
		"no containers, no access":                                     {list(rule("/", "reveal", "token:read")), plain("token:read"), access.TokenRead, target("x"), access.Nothing},
		"a container in capitals is not in normal form and is refused": {list(rule("/pci/", "redact", "token:read"), rule("/", "reveal", "token:read")), nil, access.TokenRead, target("x", "/PCI/"), access.Nothing},
		"an empty container is refused":                                {list(rule("/", "reveal", "token:read")), nil, access.TokenRead, target("x", ""), access.Nothing},
		"a bad container beside a good one is refused":                 {list(rule("/", "reveal", "token:read")), nil, access.TokenRead, target("x", "/a/", "/a"), access.Nothing},

		"an id that equals":                                {list(ruleWith(id("x"), "reveal", "token:read")), nil, access.TokenRead, target("x", "/a/"), access.Reveal},
		"an id that does not equal":                        {list(ruleWith(id("x"), "reveal", "token:read")), nil, access.TokenRead, target("xy", "/a/"), access.Nothing},
		"ids keep their case":                              {list(ruleWith(id("x"), "reveal", "token:read")), nil, access.TokenRead, target("X", "/a/"), access.Nothing},
		"an id that starts with":                           {list(ruleWith(when("id", "starts_with", "cus_"), "reveal", "token:read")), nil, access.TokenRead, target("cus_1", "/a/"), access.Reveal},
		"an id that is the start":                          {list(ruleWith(when("id", "starts_with", "cus_"), "reveal", "token:read")), nil, access.TokenRead, target("cus_", "/a/"), access.Reveal},
		"an id that starts otherwise":                      {list(ruleWith(when("id", "starts_with", "cus_"), "reveal", "token:read")), nil, access.TokenRead, target("cu", "/a/"), access.Nothing},
		"a container that equals":                          {list(ruleWith(when("container", "equals", "/a/"), "reveal", "token:read")), nil, access.TokenRead, target("x", "/a/"), access.Reveal},
		"equals does not reach below":                      {list(ruleWith(when("container", "equals", "/a/"), "reveal", "token:read")), nil, access.TokenRead, target("x", "/a/b/"), access.Nothing},
		"starts_with reaches below":                        {list(ruleWith(when("container", "starts_with", "/a/"), "reveal", "token:read")), nil, access.TokenRead, target("x", "/a/b/"), access.Reveal},
		"conditions are ANDed":                             {list(ruleWith(id("x")+","+when("container", "equals", "/a/"), "reveal", "token:read")), nil, access.TokenRead, target("x", "/b/"), access.Nothing},
		"ANDed conditions that hold":                       {list(ruleWith(id("x")+","+when("container", "equals", "/a/"), "reveal", "token:read")), nil, access.TokenRead, target("x", "/a/"), access.Reveal},
		"conditions that contradict":                       {list(ruleWith(id("x")+","+id("y"), "reveal", "token:read")), nil, access.TokenRead, target("x", "/a/"), access.Nothing},
		"an id rule before a wider one":                    {list(ruleWith(id("x"), "redact", "token:read"), rule("/", "reveal", "token:read")), nil, access.TokenRead, target("x", "/a/"), access.Redact},
		"the wider one for other ids":                      {list(ruleWith(id("x"), "redact", "token:read"), rule("/", "reveal", "token:read")), nil, access.TokenRead, target("y", "/a/"), access.Reveal},
		"a container condition is asked of each container": {list(ruleWith(when("container", "equals", "/a/"), "reveal", "token:read")), nil, access.TokenRead, target("x", "/a/", "/b/"), access.Nothing},

		"a permission that does not exist": {list(rule("/", "reveal", "token:read")), plain("token:read"), 0, target("x", "/a/"), access.Nothing},
		"a permission far out of range":    {list(rule("/", "reveal", "token:read")), plain("token:read"), 255, target("x", "/a/"), access.Nothing},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := access.NewUncappedSession("t", "a", "s", grant(t, test.rules, test.permissions...))
			d := c.Decide(test.permission, test.target)
			if d.Transform != test.want || d.Allowed() != (test.want != access.Nothing) || d.DependsOnID {
				t.Errorf("Decide(%s, %+v) under %s and %v = %+v, want %q", test.permission, test.target, test.rules, test.permissions, d, test.want)
			}
			if err := d.Err(); (err == nil) != d.Allowed() || err != nil && !errors.Is(err, fault.Forbidden) {
				t.Errorf("the decision is %+v and the error %v", d, err)
			}
		})
	}
}

func TestDecideContainersSaysWhenTheIDWouldTell(t *testing.T) {
	id := ruleWith(when("id", "equals", "x"), "reveal", "token:read token:use")
	tests := map[string]struct {
		rules      string
		maker      string // "" when there is no cap
		permission access.Permission
		containers []string
		want       access.Transform
		depends    bool
	}{
		"no id is asked for":                     {list(rule("/a/", "reveal", "token:read")), "", access.TokenRead, []string{"/a/"}, access.Reveal, false},
		"an id might be let in":                  {list(id), "", access.TokenRead, []string{"/a/"}, access.Nothing, true},
		"an id might be shown more":              {list(id, rule("/", "mask", "token:read")), "", access.TokenRead, []string{"/a/"}, access.Mask, true},
		"an id might be shown less":              {list(ruleWith(when("id", "equals", "x"), "redact", "token:read"), rule("/", "reveal", "token:read")), "", access.TokenRead, []string{"/a/"}, access.Redact, true},
		"an id might be refused":                 {list(ruleWith(when("id", "equals", "x"), "redact", "token:use"), rule("/", "reveal", "token:use")), "", access.TokenUse, []string{"/a/"}, access.Nothing, true},
		"the id makes no difference":             {list(ruleWith(when("id", "equals", "x"), "mask", "token:read"), rule("/", "mask", "token:read")), "", access.TokenRead, []string{"/a/"}, access.Mask, false},
		"a wider rule goes first":                {list(rule("/", "mask", "token:read"), id), "", access.TokenRead, []string{"/a/"}, access.Mask, false},
		"the id rule is for another permission":  {list(id), "", access.TokenDelete, []string{"/a/"}, access.Nothing, false},
		"the id rule is for another container":   {list(ruleWith(when("id", "equals", "x")+","+when("container", "equals", "/b/"), "reveal", "token:read")), "", access.TokenRead, []string{"/a/"}, access.Nothing, false},
		"the id rule is for one container":       {list(ruleWith(when("container", "equals", "/b/")+","+when("id", "equals", "x"), "reveal", "token:read"), rule("/a/", "reveal", "token:read")), "", access.TokenRead, []string{"/a/", "/b/"}, access.Nothing, true},
		"another container refuses anyway":       {list(ruleWith(when("id", "equals", "x")+","+when("container", "equals", "/b/"), "reveal", "token:read")), "", access.TokenRead, []string{"/a/", "/b/"}, access.Nothing, false},
		"the maker refuses anyway":               {list(id), list(rule("/b/", "reveal", "token:read")), access.TokenRead, []string{"/a/"}, access.Nothing, false},
		"the maker levels the difference":        {list(id, rule("/", "mask", "token:read")), list(rule("/", "mask", "token:read")), access.TokenRead, []string{"/a/"}, access.Mask, false},
		"create shows the same under both rules": {list(ruleWith(when("id", "equals", "x"), "reveal", "token:create"), rule("/", "mask", "token:create")), "", access.TokenCreate, []string{"/a/"}, access.Mask, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := access.NewUncappedSession("t", "a", "s", grant(t, test.rules))
			if test.maker != "" {
				c = access.NewSession("t", "a", "s", grant(t, test.rules), grant(t, test.maker))
			}
			d := c.DecideContainers(test.permission, test.containers)
			if d.Transform != test.want || d.DependsOnID != test.depends {
				t.Errorf("DecideContainers(%s, %v) under %s = %+v, want %q, depends %v", test.permission, test.containers, test.rules, d, test.want, test.depends)
			}
			if err := c.Require(test.permission, test.containers...); (err == nil) != (test.want != access.Nothing) {
				t.Errorf("Require(%s, %v) = %v, want it to hold for every id", test.permission, test.containers, err)
			}
		})
	}
}

func TestDecideEverywhereHoldsForAllTokensOrSaysNothing(t *testing.T) {
	plain, all := grant(t, `[]`, "token:read"), grant(t, list(rule("/", "reveal", "token:read")))
	tests := map[string]struct {
		caller access.Caller
		want   access.Transform
		ok     bool
	}{
		"plain permissions":                {access.NewUncappedSession("t", "a", "s", plain), access.Mask, true},
		"a rule about all containers":      {access.NewUncappedSession("t", "a", "s", all), access.Reveal, true},
		"a permission that is not held":    {access.NewUncappedSession("t", "a", "s", grant(t, `[]`, "token:use")), access.Nothing, true},
		"a rule about one container":       {access.NewUncappedSession("t", "a", "s", grant(t, list(rule("/a/", "redact", "token:read"), rule("/", "reveal", "token:read")))), access.Nothing, false},
		"a rule that is never asked":       {access.NewUncappedSession("t", "a", "s", grant(t, list(rule("/", "reveal", "token:read"), rule("/a/", "redact", "token:read")))), access.Reveal, true},
		"a rule about another permission":  {access.NewUncappedSession("t", "a", "s", grant(t, list(rule("/a/", "redact", "token:use")), "token:read")), access.Mask, true},
		"a rule about ids":                 {access.NewUncappedSession("t", "a", "s", grant(t, list(ruleWith(when("id", "equals", "x"), "reveal", "token:read")), "token:read")), access.Nothing, false},
		"a session whose maker may less":   {access.NewSession("t", "a", "s", all, plain), access.Mask, true},
		"a session whose maker has a rule": {access.NewSession("t", "a", "s", all, grant(t, list(rule("/a/", "reveal", "token:read")))), access.Nothing, false},
		"nobody":                           {access.Caller{}, access.Nothing, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if d, ok := test.caller.DecideEverywhere(access.TokenRead); ok != test.ok || d.Transform != test.want {
				t.Errorf("DecideEverywhere = %+v, %v; want %q, %v", d, ok, test.want, test.ok)
			}
		})
	}
}

func TestTheDecisionNamesWhatSettledIt(t *testing.T) {
	own := list(rule("/a/", "reveal", "token:read token:use"), rule("/b/", "redact", "token:read token:use"))
	tests := map[string]struct {
		permission access.Permission
		containers []string
		maker      access.Grant
		want       access.Step
	}{
		"a rule":                      {access.TokenRead, []string{"/a/"}, grant(t, `[]`, "token:read"), access.Step{Maker: true, Container: "/a/", Rule: access.NoRule, Reason: access.PlainDecides, Transform: access.Mask}},
		"of two containers the least": {access.TokenRead, []string{"/a/", "/b/"}, grant(t, list(rule("/", "reveal", "token:read"))), access.Step{Container: "/b/", Rule: 1, Priority: 2, Reason: access.Decides, Transform: access.Redact}},
		"of equals the own":           {access.TokenRead, []string{"/a/"}, grant(t, list(rule("/", "reveal", "token:read"))), access.Step{Container: "/a/", Priority: 1, Reason: access.Decides, Transform: access.Reveal}},
		"use under redact":            {access.TokenUse, []string{"/b/"}, grant(t, `[]`, "token:use"), access.Step{Container: "/b/", Rule: 1, Priority: 2, Reason: access.Decides}},
		"nothing matches":             {access.TokenRead, []string{"/c/"}, grant(t, `[]`, "token:read"), access.Step{Container: "/c/", Rule: access.NoRule, Reason: access.PlainMissing}},
		"the maker holds nothing":     {access.TokenRead, []string{"/a/"}, access.Grant{}, access.Step{Maker: true, Container: "/a/", Rule: access.NoRule, Reason: access.CannotHold}},
		"not a container":             {access.TokenRead, []string{"/a"}, grant(t, `[]`, "token:read"), access.Step{Rule: access.NoRule, Reason: access.WrongTarget}},
		"a session cannot hold it":    {access.LogRead, nil, access.Grant{}, access.Step{Rule: access.NoRule, Reason: access.CannotHold}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := access.NewSession("t", "a", "s", grant(t, own), test.maker).DecideContainers(test.permission, test.containers)
			if d.By != test.want || d.Transform != test.want.Transform {
				t.Errorf("DecideContainers(%s, %v) = %+v\nwant by %+v", test.permission, test.containers, d, test.want)
			}
		})
	}
}

func TestExplainTellsEveryStepInOrder(t *testing.T) {
	own := list(
		rule("/b/", "reveal", "token:read"),
		rule("/a/", "reveal", "token:use"),
		ruleWith(when("id", "starts_with", "x")+","+when("container", "equals", "/c/"), "reveal", "token:read"),
		ruleWith(when("id", "equals", "x1"), "reveal", "token:read"),
		rule("/", "reveal", "token:read"),
	)
	maker := list(rule("/b/", "reveal", "token:read"))
	c := access.NewSession("t", "a", "s", grant(t, own), grant(t, maker, "token:read"))
	a := func(s access.Step) access.Step { s.Container = "/a/"; return s }
	makers := a(access.Step{Maker: true, Rule: 0, Priority: 1, Reason: access.OtherContainer})
	makersPlain := a(access.Step{Maker: true, Rule: access.NoRule, Reason: access.PlainDecides, Transform: access.Mask})
	tests := map[string]struct {
		id   string
		want []access.Step
	}{
		"an id that a rule names": {"x1", []access.Step{
			a(access.Step{Rule: 0, Priority: 1, Reason: access.OtherContainer}),
			a(access.Step{Rule: 1, Priority: 2, Reason: access.WithoutPermission}),
			a(access.Step{Rule: 2, Priority: 3, Reason: access.ConditionFails, Condition: 1}),
			a(access.Step{Rule: 3, Priority: 4, Reason: access.Decides, Transform: access.Reveal}),
			makers, makersPlain,
		}},
		"no id": {"", []access.Step{
			a(access.Step{Rule: 0, Priority: 1, Reason: access.OtherContainer}),
			a(access.Step{Rule: 1, Priority: 2, Reason: access.WithoutPermission}),
			a(access.Step{Rule: 2, Priority: 3, Reason: access.ConditionFails, Condition: 1}),
			a(access.Step{Rule: 3, Priority: 4, Reason: access.NeedsID, Transform: access.Reveal}),
			a(access.Step{Rule: 4, Priority: 5, Reason: access.Decides, Transform: access.Reveal}),
			makers, makersPlain,
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d, got := c.Explain(access.TokenRead, target(test.id, "/a/"))
			if d != c.Decide(access.TokenRead, target(test.id, "/a/")) || d.Transform != access.Mask {
				t.Errorf("Explain decides %+v", d)
			}
			if len(got) != len(test.want) {
				t.Fatalf("steps %+v\nwant  %+v", got, test.want)
			}
			for i := range got {
				if got[i] != test.want[i] {
					t.Errorf("step %d is %+v, want %+v", i, got[i], test.want[i])
				}
			}
		})
	}
	t.Run("a target that cannot be", func(t *testing.T) {
		if d, steps := c.Explain(access.TokenRead, target("x")); d.Allowed() || len(steps) != 1 || steps[0].Reason != access.WrongTarget {
			t.Errorf("Explain without containers = %+v, %+v", d, steps)
		}
	})
	t.Run("a permission that cannot be held", func(t *testing.T) {
		if d, steps := c.Explain(access.LogRead, access.Target{}); d.Allowed() || len(steps) != 2 || steps[0].Reason != access.CannotHold {
			t.Errorf("Explain(log:read) = %+v, %+v", d, steps)
		}
	})
}

func TestReasonsAndTransformsHaveWords(t *testing.T) {
	for r := access.Decides; r <= access.WrongTarget; r++ {
		if r.String() == "" {
			t.Errorf("reason %d has no words", r)
		}
	}
	for _, silent := range []string{access.Reason(0).String(), access.Reason(99).String(), access.Nothing.String(), access.Transform(99).String()} {
		if silent != "" {
			t.Errorf("a value that means nothing says %q", silent)
		}
	}
	if got := access.Redact.String() + access.Mask.String() + access.Reveal.String(); got != "redactmaskreveal" {
		t.Errorf("the transforms are %s", got)
	}
}

func TestTheZeroDecisionRefuses(t *testing.T) {
	var d access.Decision
	if d.Allowed() || !errors.Is(d.Err(), fault.Forbidden) {
		t.Errorf("the zero decision allows: %v", d.Err())
	}
}
