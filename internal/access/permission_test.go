package access_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
)

func names(permissions []access.Permission) string {
	var all []string
	for _, p := range permissions {
		all = append(all, p.String())
	}
	return strings.Join(all, " ")
}

func TestApplicationTypesHoldWhatTheListSays(t *testing.T) {
	tests := map[access.ApplicationType]string{
		access.Public:  "token:create token:update",
		access.Private: "token:create token:read token:update token:delete token:search token:use",
		access.Management: "tenant:read tenant:update tenant:delete " +
			"application:create application:read application:update application:delete session:read session:delete " +
			"reactor:create reactor:read reactor:update reactor:delete proxy:create proxy:read proxy:update proxy:delete " +
			"log:read report:read member:create member:read member:update member:delete",
		"":      "",
		"robot": "",
	}
	for applicationType, want := range tests {
		if got := names(applicationType.Permissions()); got != want {
			t.Errorf("%q.Permissions() = %s, want %s", applicationType, got, want)
		}
	}
}

func TestEveryPermissionIsFoundByItsName(t *testing.T) {
	for _, p := range access.Permissions() {
		got, ok := access.ParsePermission(p.String())
		if got != p || !ok {
			t.Errorf("ParsePermission(%q) = %v, %v", p, got, ok)
		}
		if p.Entity()+":"+p.Action() != p.String() || p.Action() == "" {
			t.Errorf("%q has entity %q and action %q", p, p.Entity(), p.Action())
		}
		if p.Description() == "" || len(p.ApplicationTypes()) == 0 {
			t.Errorf("%q has no description or no holders", p)
		}
		for _, applicationType := range p.ApplicationTypes() {
			if !slices.Contains(applicationType.Permissions(), p) {
				t.Errorf("%q names %q, which does not name it back", p, applicationType)
			}
		}
	}
}

func TestTheConstantsStandForTheirNames(t *testing.T) {
	for p, want := range map[access.Permission]string{
		access.TokenCreate: "token:create", access.TokenRead: "token:read", access.TokenUse: "token:use",
		access.TenantDelete: "tenant:delete", access.ApplicationRead: "application:read", access.SessionDelete: "session:delete",
		access.ReactorUpdate: "reactor:update", access.ProxyRead: "proxy:read", access.LogRead: "log:read", access.ReportRead: "report:read",
	} {
		if p.String() != want {
			t.Errorf("permission is %q, want %q", p, want)
		}
	}
}

func TestWhatIsNoPermissionHasNoName(t *testing.T) {
	for _, p := range []access.Permission{0, access.MemberDelete + 1, 200} {
		if p.String() != "" || p.Entity() != "" || p.Action() != "" || p.ApplicationTypes() != nil {
			t.Errorf("permission %d calls itself %q", uint8(p), p)
		}
	}
	for _, name := range []string{"", "token", "token:", "token:fly", "TOKEN:READ", "token:read "} {
		if p, ok := access.ParsePermission(name); ok {
			t.Errorf("ParsePermission(%q) = %q, want none", name, p)
		}
	}
}

func TestCallersCannotChangeTheListOfHolders(t *testing.T) {
	access.TokenRead.ApplicationTypes()[0] = access.Public
	if got := access.TokenRead.ApplicationTypes()[0]; got != access.Private {
		t.Errorf("token:read is now held by %s", got)
	}
}

func TestApplicationTypesAreThree(t *testing.T) {
	for _, name := range []string{"public", "private", "management"} {
		if got, ok := access.ParseApplicationType(name); !ok || string(got) != name {
			t.Errorf("ParseApplicationType(%q) = %q, %v", name, got, ok)
		}
	}
	for _, name := range []string{"", "Public", "session", "system"} {
		if _, ok := access.ParseApplicationType(name); ok {
			t.Errorf("ParseApplicationType(%q) is accepted", name)
		}
	}
}
