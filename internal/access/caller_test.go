package access_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// everything grants all there is, revealed.
func everything(t testing.TB) access.Grant {
	var all []string
	for _, p := range access.Permissions() {
		all = append(all, p.String())
	}
	return grant(t, list(rule("/", "reveal", "token:create token:read token:update token:delete token:search token:use")), all...)
}

// allowed lists what a caller may do to a token in /a/, or at all.
func allowed(c access.Caller) string {
	var may []access.Permission
	for _, p := range access.Permissions() {
		var containers []string
		if p.Entity() == "token" {
			containers = []string{"/a/"}
		}
		if c.Require(p, containers...) == nil {
			may = append(may, p)
		}
	}
	return names(may)
}

func TestACallerCanDoNoMoreThanItsKindWhateverItsGrantSays(t *testing.T) {
	all := everything(t)
	token := names(access.Private.Permissions())
	tests := map[string]struct {
		caller access.Caller
		want   string
	}{
		"nobody":                           {access.Caller{}, ""},
		"nobody with an origin":            {access.Caller{}.WithOrigin(access.Origin{TraceID: "t"}), ""},
		"an application without a tenant":  {access.NewApplication("", "a", access.Private, all), ""},
		"an application without a type":    {access.NewApplication("t", "a", "", all), ""},
		"an application of no known type":  {access.NewApplication("t", "a", "robot", all), ""},
		"an application without a grant":   {access.NewApplication("t", "a", access.Private, access.Grant{}), ""},
		"a public application":             {access.NewApplication("t", "a", access.Public, all), names(access.Public.Permissions())},
		"a private application":            {access.NewApplication("t", "a", access.Private, all), token},
		"a management application":         {access.NewApplication("t", "a", access.Management, all), names(access.Management.Permissions())},
		"a session of a private maker":     {access.NewSession("t", "a", "s", all, all), token},
		"a session nobody authorized":      {access.NewSession("t", "a", "s", access.Grant{}, all), ""},
		"a session whose maker is gone":    {access.NewSession("t", "a", "s", all, access.Grant{}), ""},
		"an uncapped session":              {access.NewUncappedSession("t", "a", "s", all), token},
		"an uncapped session, not granted": {access.NewUncappedSession("t", "a", "s", access.Grant{}), ""},
		"the system without permissions":   {access.NewSystem("t"), ""},
		"the system with permissions":      {access.NewSystem("t", access.TokenDelete, access.TenantUpdate), "token:delete tenant:update"},
		"the system cannot use tokens":     {access.NewSystem("t", access.TokenUse, access.TokenRead), "token:read"},
		"the system without a tenant":      {access.NewSystem("", access.TokenDelete), ""},
		"an anonymous proxy call":          {access.NewAnonymousProxy("t", all), "token:use"},
		"an anonymous call of a proxy's":   {access.NewApplication("t", "a", access.Private, all).AsAnonymousProxy(), "token:use"},
		"an anonymous call of no grant":    {access.NewAnonymousProxy("t", access.Grant{}), ""},
		"an anonymous call of anything":    {access.NewAnonymousProxy("t", access.PlainGrant(access.TokenUse)), "token:use"},
		"a grant of no permission":         {access.NewSystem("t", 0, 200), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := allowed(test.caller); got != test.want {
				t.Errorf("may %q, want %q", got, test.want)
			}
			for _, p := range access.Permissions() {
				if err := test.caller.RequireSomewhere(p); (err == nil) != strings.Contains(" "+test.want+" ", " "+p.String()+" ") {
					t.Errorf("RequireSomewhere(%s) = %v, while it may %q", p, err, test.want)
				}
			}
		})
	}
}

func TestTheSystemNeverReveals(t *testing.T) {
	c := access.NewSystem("t", access.Permissions()...)
	for _, p := range access.Permissions() {
		if d := c.Decide(p, target("x", "/a/")); d.Transform > access.Mask {
			t.Errorf("Decide(%s) reveals to the system", p)
		}
	}
}

func TestCallersSayWhoTheyAre(t *testing.T) {
	g := access.PlainGrant(access.TokenRead)
	tests := map[string]struct {
		caller                                   access.Caller
		tenant, application, session, class, log string
	}{
		"an application":          {access.NewApplication("t", "a", access.Private, g), "t", "a", "", "private", "application"},
		"a session":               {access.NewSession("t", "a", "s", g, g), "t", "a", "s", "", "application"},
		"an uncapped session":     {access.NewUncappedSession("t", "a", "s", g), "t", "a", "s", "", "application"},
		"the system":              {access.NewSystem("t"), "t", "", "", "", "system"},
		"an anonymous proxy call": {access.NewAnonymousProxy("t", g), "t", "", "", "", ""},
		"one through a proxy":     {access.NewApplication("t", "a", access.Private, g).AsAnonymousProxy(), "t", "", "", "", ""},
		"nobody":                  {access.Caller{}, "", "", "", "", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			origin := access.Origin{TraceID: "trace", Address: "192.0.2.1"}
			c := test.caller.WithOrigin(origin)
			got := []string{c.Tenant(), c.Application(), c.Session(), string(c.ApplicationType()), c.ActorType()}
			want := []string{test.tenant, test.application, test.session, test.class, test.log}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("says %q, want %q", got, want)
			}
			if keyed := c.WithKey("k"); keyed.Key() != "k" || c.Key() != "" {
				t.Errorf("WithKey gave %q and left %q", keyed.Key(), c.Key())
			}
			if c.Origin() != origin || test.caller.Origin() != (access.Origin{}) {
				t.Errorf("WithOrigin gave %+v and left %+v", c.Origin(), test.caller.Origin())
			}
		})
	}
}

func TestManagementPermissionsHaveNoTarget(t *testing.T) {
	c := access.NewApplication("t", "a", access.Management, everything(t))
	if err := c.Require(access.LogRead); err != nil {
		t.Errorf("Require(log:read) = %v", err)
	}
	if d := c.Decide(access.LogRead, access.Target{}); d.Transform != access.Redact || d.By.Reason != access.PlainDecides {
		t.Errorf("Decide(log:read) = %+v", d)
	}
	for _, wrong := range []access.Target{target("x"), target("", "/a/"), target("x", "/a/")} {
		if d := c.Decide(access.LogRead, wrong); d.Allowed() || d.By.Reason != access.WrongTarget {
			t.Errorf("Decide(log:read, %+v) = %+v, want it refused", wrong, d)
		}
	}
}

func TestSessionsNeverExceedTheirMaker(t *testing.T) {
	tests := map[string]struct {
		own, maker access.Grant
		permission access.Permission
		want       access.Transform
	}{
		"both reveal":                       {grant(t, list(rule("/a/", "reveal", "token:read"))), grant(t, list(rule("/", "reveal", "token:read"))), access.TokenRead, access.Reveal},
		"the maker masks":                   {grant(t, list(rule("/a/", "reveal", "token:read"))), grant(t, `[]`, "token:read"), access.TokenRead, access.Mask},
		"the session masks":                 {grant(t, `[]`, "token:read"), grant(t, list(rule("/", "reveal", "token:read"))), access.TokenRead, access.Mask},
		"the maker lacks the permission":    {grant(t, list(rule("/a/", "reveal", "token:read"))), grant(t, `[]`, "token:use"), access.TokenRead, access.Nothing},
		"the session lacks it":              {grant(t, `[]`, "token:use"), grant(t, list(rule("/", "reveal", "token:read"))), access.TokenRead, access.Nothing},
		"the maker lacks the container":     {grant(t, list(rule("/", "reveal", "token:read"))), grant(t, list(rule("/b/", "reveal", "token:read"))), access.TokenRead, access.Nothing},
		"the maker redacts what is used":    {grant(t, `[]`, "token:use"), grant(t, list(rule("/a/", "redact", "token:use")), "token:use"), access.TokenUse, access.Nothing},
		"the maker masks what is used":      {grant(t, `[]`, "token:use"), grant(t, list(rule("/a/", "mask", "token:use"))), access.TokenUse, access.Mask},
		"a named token of a narrow maker":   {grant(t, list(ruleWith(when("id", "equals", "x"), "reveal", "token:read"))), grant(t, list(rule("/a/", "reveal", "token:read"))), access.TokenRead, access.Reveal},
		"a named token outside the maker's": {grant(t, list(ruleWith(when("id", "equals", "x"), "reveal", "token:read"))), grant(t, list(rule("/b/", "reveal", "token:read"))), access.TokenRead, access.Nothing},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if d := access.NewSession("t", "a", "s", test.own, test.maker).Decide(test.permission, target("x", "/a/")); d.Transform != test.want {
				t.Errorf("Decide(%s) = %+v, want %q", test.permission, d, test.want)
			}
			own := access.NewUncappedSession("t", "a", "s", test.own).Decide(test.permission, target("x", "/a/"))
			if own.Transform < test.want {
				t.Errorf("lifting the cap takes something away: %+v", own)
			}
		})
	}
}

func TestRequireSomewhere(t *testing.T) {
	redactsAll := rule("/", "redact", "token:use")
	tests := map[string]struct {
		own, maker string
		want       bool
	}{
		"one container is enough":                 {list(rule("/a/b/", "mask", "token:use")), list(rule("/a/", "mask", "token:use")), true},
		"one token is enough":                     {list(ruleWith(when("id", "equals", "x"), "mask", "token:use")), list(rule("/a/", "mask", "token:use")), true},
		"below an exception for one container":    {list(ruleWith(when("container", "equals", "/a/"), "redact", "token:use"), ruleWith(when("container", "starts_with", "/a/"), "reveal", "token:use")), list(rule("/", "reveal", "token:use")), true},
		"another permission":                      {list(rule("/", "mask", "token:read")), list(rule("/", "mask", "token:use")), false},
		"redacted everywhere":                     {list(redactsAll, rule("/a/", "reveal", "token:use")), list(rule("/", "mask", "token:use")), false},
		"the maker redacts everywhere":            {list(rule("/a/", "reveal", "token:use")), list(redactsAll), false},
		"the maker has it somewhere else":         {list(rule("/a/", "reveal", "token:use")), list(rule("/b/", "reveal", "token:use")), false},
		"the maker has it further below":          {list(rule("/a/", "reveal", "token:use")), list(rule("/a/b/", "reveal", "token:use")), true},
		"only a contradiction would let it in":    {list(ruleWith(when("container", "equals", "/a/")+","+when("container", "equals", "/b/"), "reveal", "token:use")), list(rule("/", "reveal", "token:use")), false},
		"the maker's own named container matches": {list(rule("/", "reveal", "token:use")), list(rule("/b/", "reveal", "token:use")), true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := access.NewSession("t", "a", "s", grant(t, test.own), grant(t, test.maker)).RequireSomewhere(access.TokenUse)
			if (err == nil) != test.want || err != nil && !errors.Is(err, fault.Forbidden) {
				t.Errorf("RequireSomewhere = %v, want allowed %v", err, test.want)
			}
		})
	}
}

func TestRequireType(t *testing.T) {
	g := everything(t)
	callers := map[string]access.Caller{
		"public":     access.NewApplication("t", "a", access.Public, g),
		"private":    access.NewApplication("t", "a", access.Private, g),
		"management": access.NewApplication("t", "a", access.Management, g),
		"session":    access.NewUncappedSession("t", "a", "s", g),
		"system":     access.NewSystem("t", access.Permissions()...),
		"proxy":      access.NewAnonymousProxy("t", g),
		"nobody":     {},
		"homeless":   access.NewApplication("", "a", access.Private, g),
		"typeless":   access.NewApplication("t", "a", "", g),
	}
	for name, c := range callers {
		for _, wanted := range []access.ApplicationType{access.Public, access.Private, access.Management, "robot"} {
			err := c.RequireType(wanted)
			if (err == nil) != (name == string(wanted)) {
				t.Errorf("%s: RequireType(%s) = %v", name, wanted, err)
			}
			var denial *access.Denial
			if err != nil && (!errors.As(err, &denial) || denial.Permission() != 0 || !errors.Is(err, fault.Forbidden)) {
				t.Errorf("%s: RequireType(%s) = %#v", name, wanted, err)
			}
		}
	}
}

func TestADenialNamesThePermission(t *testing.T) {
	for _, p := range access.Permissions() {
		err := fmt.Errorf("wrapped: %w", access.Caller{}.Require(p))
		var denial *access.Denial
		if !errors.As(err, &denial) || denial.Permission() != p {
			t.Fatalf("Require(%s) = %#v", p, err)
		}
		if f := fault.Of(err); f.Kind() != fault.Forbidden || !strings.Contains(f.Detail(), p.String()) || denial.Error() != f.Detail() {
			t.Errorf("Require(%s) says %q", p, f.Detail())
		}
	}
	var denial *access.Denial
	if err := (access.Caller{}).Require(0); !errors.As(err, &denial) || denial.Permission() != 0 || !errors.Is(err, fault.Forbidden) {
		t.Errorf("Require(0) = %v", err)
	}
}

// Rules hold a tenant's own words, and people paste card numbers where ids go.
func TestPrintingACallerShowsNoRules(t *testing.T) {
	own := grant(t, list(ruleWith(when("id", "equals", "4242424242424242"), "reveal", "token:read"), rule("/sesame/", "reveal", "token:read")))
	c := access.NewSession("t", "a", "s", own, own)
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "caller", c, "grant", own)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "caller", c, "grant", own)
	marshalled, _ := json.Marshal([]any{c, own})
	texts := []string{log.String(), string(marshalled)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x"} {
		texts = append(texts, fmt.Sprintf(verb, c), fmt.Sprintf(verb, &c), fmt.Sprintf(verb, own), fmt.Sprintf(verb, &own))
	}
	for _, text := range texts {
		if strings.Contains(text, "4242424242") || strings.Contains(text, "sesame") { // ten digits: no time has so many
			t.Errorf("printed as %s", text)
		}
	}
}

func TestCallersForTests(t *testing.T) {
	rules := []access.Rule{accesstest.Rule("/a/", access.Reveal, access.TokenRead)}
	for name, test := range map[string]struct {
		caller access.Caller
		want   string
	}{
		"private":    {accesstest.Caller(t, "t", "a", access.TokenDelete), "token:delete"},
		"management": {accesstest.Caller(t, "t", "a", access.LogRead), "log:read"},
		"idle":       {accesstest.Caller(t, "t", "a"), ""},
		"rules":      {accesstest.Application(t, "t", "a", access.Private, rules, access.TokenUse), "token:read token:use"},
		"session":    {accesstest.Session(t, "t", "a", "s", rules), "token:read"},
	} {
		if got := allowed(test.caller); got != test.want || test.caller.Tenant() != "t" || test.caller.Application() != "a" {
			t.Errorf("%s: may %q, want %q", name, got, test.want)
		}
	}
}

func TestTheActorHasAName(t *testing.T) {
	c := access.NewSystem("t")
	if c.ActorName() != "" || c.WithActorName("Shop").ActorName() != "Shop" || c.ActorName() != "" {
		t.Errorf("the name is %q, then %q", c.ActorName(), c.WithActorName("Shop").ActorName())
	}
}

func TestReachesYieldsWhereACallerSeesSomething(t *testing.T) {
	c := accesstest.Caller(t, "t", "a", access.TokenCreate)
	for container, most := range c.Reaches(access.TokenRead) {
		t.Errorf("without token:read it reaches %s with %v", container, most)
	}
	c = accesstest.Session(t, "t", "a", "s", []access.Rule{
		{Container: "/pci/low/", Transform: "mask", Permissions: []string{"token:read"}},
		{Container: "/pci/", Transform: "reveal", Permissions: []string{"token:read"}},
		{Container: "/pci/", Transform: "mask", Permissions: []string{"token:search"}},
	})
	got := make(map[string]string)
	for container, most := range c.Reaches(access.TokenRead) {
		got[container] += most.String()
	}
	if len(got) != 2 || got["/pci/"] != "reveal" || got["/pci/low/"] != "mask" {
		t.Errorf("it reaches %v", got)
	}
	for range c.Reaches(access.TokenRead) {
		break
	}
}
