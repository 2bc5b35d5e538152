package access_test

import (
	"errors"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
)

func granted(t *testing.T, permissions []string, rules ...access.Rule) access.Grant {
	t.Helper()
	g, err := access.NewGrant(permissions, rules)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func on(container, transform string, permissions ...string) access.Rule {
	return access.Rule{Container: container, Transform: transform, Permissions: permissions}
}

// withReason is a rule that requires a reason.
func withReason(r access.Rule) access.Rule {
	r.RequiresReason = true
	return r
}

func TestAMemberIsACallerOfItsOwnKind(t *testing.T) {
	c := access.NewMember(tenantID, access.Member{ID: "m", Name: "Jane", SignIn: "s"}, granted(t, []string{"log:read"}))
	if c.Tenant() != tenantID || c.Application() != "m" || c.ActorType() != "user" || c.Member().Name != "Jane" || c.Member().SignIn != "s" || c.Session() != "" || c.ApplicationType() != "" {
		t.Errorf("the member is %s %s %s %+v", c.Tenant(), c.Application(), c.ActorType(), c.Member())
	}
	if err := c.Require(access.LogRead); err != nil {
		t.Errorf("Require(log:read) = %v", err)
	}
	for _, kind := range []access.ApplicationType{access.Public, access.Private, access.Management} {
		if err := c.RequireType(kind); !errors.Is(err, fault.Forbidden) {
			t.Errorf("RequireType(%s) = %v, want a refusal", kind, err)
		}
	}
}

func TestARuleThatRequiresAReasonMasksWithoutOne(t *testing.T) {
	g := granted(t, nil, withReason(on("/pci/", "reveal", "token:read", "token:search", "token:use")), withReason(on("/bank/", "redact", "token:read")))
	c := access.NewApplication(tenantID, "a", access.Private, g)
	for _, test := range []struct {
		permission     access.Permission
		container      string
		without, given access.Transform
	}{
		{access.TokenRead, "/pci/high/", access.Mask, access.Reveal},
		{access.TokenSearch, "/pci/", access.Mask, access.Reveal},
		{access.TokenUse, "/pci/", access.Reveal, access.Reveal}, // which shows the caller nothing
		{access.TokenRead, "/bank/", access.Redact, access.Redact},
		{access.TokenRead, "/", access.Nothing, access.Nothing},
	} {
		target := access.Target{Containers: []string{test.container}}
		if got := c.Decide(test.permission, target).Transform; got != test.without {
			t.Errorf("%s on %s without a reason shows %q, want %q", test.permission, test.container, got, test.without)
		}
		if got := c.WithReason("because").Decide(test.permission, target).Transform; got != test.given {
			t.Errorf("%s on %s with a reason shows %q, want %q", test.permission, test.container, got, test.given)
		}
	}
	if got := c.WithReason("because").Reason(); got != "because" {
		t.Errorf("the reason is %q", got)
	}
	if got := c.WithReason(""); got.Reason() != "" || got.Decide(access.TokenRead, access.Target{Containers: []string{"/pci/"}}).Transform != access.Mask {
		t.Error("an empty reason is one")
	}
	session := access.NewSession(tenantID, "p", "s", granted(t, nil, on("/", "reveal", "token:read")), g)
	if got := session.Decide(access.TokenRead, access.Target{Containers: []string{"/pci/"}}).Transform; got != access.Mask {
		t.Errorf("a session of such an application is shown %q, want the mask", got)
	}
}

func TestOnlySomeRulesMayRequireAReason(t *testing.T) {
	rule := []access.Rule{withReason(on("/", "reveal", "token:read"))}
	for name, test := range map[string]struct {
		check func(*fault.Fields)
		want  bool
	}{
		"an application": {func(f *fault.Fields) { access.NormalizeApplication(f, access.Private, nil, rule) }, true},
		"a role":         {func(f *fault.Fields) { access.NormalizeRole(f, []string{"log:read"}, rule) }, true},
		"a session":      {func(f *fault.Fields) { access.NormalizeSession(f, nil, rule) }, false},
	} {
		var f fault.Fields
		test.check(&f)
		if got := f.Err() == nil; got != test.want {
			t.Errorf("a rule of %s that requires a reason: %v", name, f.Err())
		}
	}
}

func TestWithin(t *testing.T) {
	limit := granted(t, []string{"log:read", "token:create"}, on("/pci/high/", "mask", "token:read"), on("/pci/", "reveal", "token:read"), withReason(on("/bank/", "reveal", "token:read")))
	conditions := access.Rule{Transform: "mask", Permissions: []string{"token:read"}, Conditions: []access.Condition{{Attribute: "id", Operator: "equals", Value: "x"}}}
	for name, test := range map[string]struct {
		grant access.Grant
		want  bool
	}{
		"nothing":                            {access.Grant{}, true},
		"itself":                             {limit, true},
		"a part":                             {granted(t, []string{"log:read"}), true},
		"another permission":                 {granted(t, []string{"report:read"}), false},
		"a permission on tokens":             {granted(t, []string{"token:create"}), true},
		"a plain read":                       {granted(t, []string{"token:read"}), false},
		"a container":                        {granted(t, nil, on("/pci/low/", "reveal", "token:read")), true},
		"an exception further below":         {granted(t, nil, on("/pci/", "reveal", "token:read")), false},
		"the exception":                      {granted(t, nil, on("/pci/high/", "mask", "token:read")), true},
		"more than the exception":            {granted(t, nil, on("/pci/high/x/", "reveal", "token:read")), false},
		"the same exception":                 {granted(t, nil, on("/pci/high/", "redact", "token:read"), on("/pci/", "reveal", "token:read")), true},
		"a reveal without the reason":        {granted(t, nil, on("/bank/", "reveal", "token:read")), false},
		"a reveal with the reason":           {granted(t, nil, withReason(on("/bank/", "reveal", "token:read"))), true},
		"a reason where a reveal has none":   {granted(t, nil, withReason(on("/pci/low/", "reveal", "token:read"))), true},
		"conditions, which are not compared": {granted(t, nil, conditions), false},
	} {
		if got := test.grant.Within(limit); got != test.want {
			t.Errorf("%s is within: %t, want %t", name, got, test.want)
		}
	}
}

func TestWhatAMemberMayGiveToOthers(t *testing.T) {
	role := granted(t, []string{"log:read", "application:create", "application:update"}, on("/", "mask", "token:read"))
	member := access.NewMember(tenantID, access.Member{ID: "m"}, role)
	owner := access.NewMember(tenantID, access.Member{ID: "o", Owner: true}, role)
	root := access.NewApplication(tenantID, "r", access.Management, granted(t, []string{"application:create"}))
	clerk := access.NewApplication(tenantID, "c", access.Management, granted(t, []string{"member:create", "log:read"}))
	system := access.NewSystem(tenantID)
	logs, masks, reveals := granted(t, []string{"log:read"}), granted(t, []string{"token:read"}), granted(t, nil, on("/", "reveal", "token:read"))
	further := granted(t, []string{"application:create"})
	allowed := func(err error) bool {
		if err != nil && !errors.Is(err, fault.Forbidden) {
			t.Errorf("the refusal is %v", err)
		}
		return err == nil
	}
	for name, test := range map[string]struct {
		caller          access.Caller
		kind            access.ApplicationType
		grant           access.Grant
		confer, appoint bool
	}{
		"a member, the log":             {member, access.Management, logs, true, true},
		"a member, masks":               {member, access.Private, masks, true, true},
		"a member, plaintext":           {member, access.Private, reveals, false, false},
		"a member, what leads further":  {member, access.Management, further, false, true},
		"a member, what cannot be held": {member, access.Public, reveals, true, false},
		"an owner, plaintext":           {owner, access.Private, reveals, true, true},
		"an owner, what leads further":  {owner, access.Management, further, true, true},
		"a key for all, plaintext":      {root, access.Private, reveals, true, true},
		"a key for members, the log":    {clerk, access.Management, logs, true, true},
		"a key for members, plaintext":  {clerk, access.Private, reveals, true, false},
		"the operator, plaintext":       {system, access.Private, reveals, true, true},
	} {
		if got := allowed(test.caller.RequireToConfer(access.ApplicationCreate, test.kind, test.grant)); got != test.confer {
			t.Errorf("%s: RequireToConfer allows %t, want %t", name, got, test.confer)
		}
		if got := allowed(test.caller.RequireToAppoint(access.MemberCreate, false, test.grant)); got != test.appoint {
			t.Errorf("%s: RequireToAppoint allows %t, want %t", name, got, test.appoint)
		}
	}
	if allowed(member.RequireToAppoint(access.MemberCreate, true, logs)) || !allowed(owner.RequireToAppoint(access.MemberCreate, true, logs)) {
		t.Error("a member makes an owner, or an owner does not")
	}
	if allowed(member.RequireOwner(access.TenantUpdate)) || !allowed(owner.RequireOwner(access.TenantUpdate)) || !allowed(root.RequireOwner(access.TenantUpdate)) {
		t.Error("RequireOwner allows a member, or refuses an owner or an application")
	}
}
