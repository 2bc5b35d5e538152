package access

import (
	"slices"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// ApplicationType says what an application is for, and so what it may hold.
type ApplicationType string

// The application types.
const (
	Public     ApplicationType = "public"     // in browsers and apps of customers
	Private    ApplicationType = "private"    // on servers of the tenant
	Management ApplicationType = "management" // administers the tenant, holds no permission on tokens
)

// ParseApplicationType finds the type of that name.
func ParseApplicationType(name string) (ApplicationType, bool) {
	t := ApplicationType(name)
	return t, t == Public || t == Private || t == Management
}

// Permissions returns what an application of this type may hold, in the order
// of the list; nothing for a type that is none of ours.
func (t ApplicationType) Permissions() []Permission {
	var held []Permission
	for _, p := range Permissions() {
		if slices.Contains(p.ApplicationTypes(), t) {
			held = append(held, p)
		}
	}
	return held
}

// Permission is one thing that a caller may be allowed to do. The zero
// Permission is none: nobody holds it.
type Permission uint8

// The permissions, in the order in which they are listed. Those on tokens come
// first, because rules carry no others.
const (
	TokenCreate Permission = iota + 1
	TokenRead
	TokenUpdate
	TokenDelete
	TokenSearch
	TokenUse
	TenantRead
	TenantUpdate
	TenantDelete
	ApplicationCreate
	ApplicationRead
	ApplicationUpdate
	ApplicationDelete
	SessionRead
	SessionDelete
	ReactorCreate
	ReactorRead
	ReactorUpdate
	ReactorDelete
	ProxyCreate
	ProxyRead
	ProxyUpdate
	ProxyDelete
	LogRead
	ReportRead
	MemberCreate
	MemberRead
	MemberUpdate
	MemberDelete
)

// permissionRow is what there is to say about a permission.
type permissionRow struct {
	name        string
	description string
	holders     []ApplicationType
	refusal     *fault.Fault
	// plain is what the permission shows when it is held without a rule.
	plain Transform
	// A rule's transform counts between least and most: below least the rule
	// refuses, above most it shows no more. An answer to create or update never
	// reveals, a deletion shows nothing, and using what is redacted is refused.
	least, most Transform
}

var (
	publicAndPrivate = []ApplicationType{Public, Private}
	privateAlone     = []ApplicationType{Private}
	managementAlone  = []ApplicationType{Management}
)

var permissionRows = [...]permissionRow{
	TokenCreate: {"token:create", "Create tokens", publicAndPrivate,
		fault.New(fault.Forbidden, "this takes token:create, which the caller does not have here"), Mask, Redact, Mask},
	TokenRead: {"token:read", "Read tokens", privateAlone,
		fault.New(fault.Forbidden, "this takes token:read, which the caller does not have here"), Mask, Redact, Reveal},
	TokenUpdate: {"token:update", "Update tokens", publicAndPrivate,
		fault.New(fault.Forbidden, "this takes token:update, which the caller does not have here"), Mask, Redact, Mask},
	TokenDelete: {"token:delete", "Delete tokens", privateAlone,
		fault.New(fault.Forbidden, "this takes token:delete, which the caller does not have here"), Redact, Redact, Redact},
	TokenSearch: {"token:search", "Search tokens", privateAlone,
		fault.New(fault.Forbidden, "this takes token:search, which the caller does not have here"), Mask, Redact, Reveal},
	TokenUse: {"token:use", "Use tokens in reactors and proxies", privateAlone,
		fault.New(fault.Forbidden, "this takes token:use, which the caller does not have here"), Reveal, Mask, Reveal},

	TenantRead: {"tenant:read", "Read the tenant", managementAlone,
		fault.New(fault.Forbidden, "this takes tenant:read, which the caller does not have"), Redact, Redact, Redact},
	TenantUpdate: {"tenant:update", "Update the tenant", managementAlone,
		fault.New(fault.Forbidden, "this takes tenant:update, which the caller does not have"), Redact, Redact, Redact},
	TenantDelete: {"tenant:delete", "Delete the tenant with everything in it", managementAlone,
		fault.New(fault.Forbidden, "this takes tenant:delete, which the caller does not have"), Redact, Redact, Redact},
	ApplicationCreate: {"application:create", "Create applications and their keys", managementAlone,
		fault.New(fault.Forbidden, "this takes application:create, which the caller does not have"), Redact, Redact, Redact},
	ApplicationRead: {"application:read", "Read applications and explain their access", managementAlone,
		fault.New(fault.Forbidden, "this takes application:read, which the caller does not have"), Redact, Redact, Redact},
	ApplicationUpdate: {"application:update", "Update applications and replace their keys", managementAlone,
		fault.New(fault.Forbidden, "this takes application:update, which the caller does not have"), Redact, Redact, Redact},
	ApplicationDelete: {"application:delete", "Delete applications and their keys", managementAlone,
		fault.New(fault.Forbidden, "this takes application:delete, which the caller does not have"), Redact, Redact, Redact},
	SessionRead: {"session:read", "Read sessions", managementAlone,
		fault.New(fault.Forbidden, "this takes session:read, which the caller does not have"), Redact, Redact, Redact},
	SessionDelete: {"session:delete", "End sessions", managementAlone,
		fault.New(fault.Forbidden, "this takes session:delete, which the caller does not have"), Redact, Redact, Redact},
	ReactorCreate: {"reactor:create", "Create reactors", managementAlone,
		fault.New(fault.Forbidden, "this takes reactor:create, which the caller does not have"), Redact, Redact, Redact},
	ReactorRead: {"reactor:read", "Read reactors and their runs", managementAlone,
		fault.New(fault.Forbidden, "this takes reactor:read, which the caller does not have"), Redact, Redact, Redact},
	ReactorUpdate: {"reactor:update", "Update reactors", managementAlone,
		fault.New(fault.Forbidden, "this takes reactor:update, which the caller does not have"), Redact, Redact, Redact},
	ReactorDelete: {"reactor:delete", "Delete reactors", managementAlone,
		fault.New(fault.Forbidden, "this takes reactor:delete, which the caller does not have"), Redact, Redact, Redact},
	ProxyCreate: {"proxy:create", "Create proxies", managementAlone,
		fault.New(fault.Forbidden, "this takes proxy:create, which the caller does not have"), Redact, Redact, Redact},
	ProxyRead: {"proxy:read", "Read proxies and preview their calls", managementAlone,
		fault.New(fault.Forbidden, "this takes proxy:read, which the caller does not have"), Redact, Redact, Redact},
	ProxyUpdate: {"proxy:update", "Update proxies", managementAlone,
		fault.New(fault.Forbidden, "this takes proxy:update, which the caller does not have"), Redact, Redact, Redact},
	ProxyDelete: {"proxy:delete", "Delete proxies", managementAlone,
		fault.New(fault.Forbidden, "this takes proxy:delete, which the caller does not have"), Redact, Redact, Redact},
	LogRead: {"log:read", "Read the audit log", managementAlone,
		fault.New(fault.Forbidden, "this takes log:read, which the caller does not have"), Redact, Redact, Redact},
	ReportRead: {"report:read", "Read usage reports", managementAlone,
		fault.New(fault.Forbidden, "this takes report:read, which the caller does not have"), Redact, Redact, Redact},
	MemberCreate: {"member:create", "Add members", managementAlone,
		fault.New(fault.Forbidden, "this takes member:create, which the caller does not have"), Redact, Redact, Redact},
	MemberRead: {"member:read", "Read members, their sign-ins and roles", managementAlone,
		fault.New(fault.Forbidden, "this takes member:read, which the caller does not have"), Redact, Redact, Redact},
	MemberUpdate: {"member:update", "Update members, end their sign-ins, change roles", managementAlone,
		fault.New(fault.Forbidden, "this takes member:update, which the caller does not have"), Redact, Redact, Redact},
	MemberDelete: {"member:delete", "Remove members", managementAlone,
		fault.New(fault.Forbidden, "this takes member:delete, which the caller does not have"), Redact, Redact, Redact},
}

var permissionsByName = func() map[string]Permission {
	m := make(map[string]Permission, len(permissionRows))
	for _, p := range Permissions() {
		m[p.String()] = p
	}
	return m
}()

// Permissions returns all permissions in the order in which they are listed.
func Permissions() []Permission {
	all := make([]Permission, 0, len(permissionRows)-1)
	for p := TokenCreate; p <= MemberDelete; p++ {
		all = append(all, p)
	}
	return all
}

// ParsePermission finds the permission of that name, such as "token:read".
func ParsePermission(name string) (Permission, bool) {
	p, ok := permissionsByName[name]
	return p, ok
}

// row is the zero row for what is no permission of ours.
func (p Permission) row() *permissionRow {
	if int(p) >= len(permissionRows) {
		p = 0
	}
	return &permissionRows[p]
}

// String returns the name, such as "token:read"; "" for no permission.
func (p Permission) String() string { return p.row().name }

// Description says in a few words what the permission allows.
func (p Permission) Description() string { return p.row().description }

// ApplicationTypes returns the types of applications that may hold it.
func (p Permission) ApplicationTypes() []ApplicationType { return slices.Clone(p.row().holders) }

// Entity returns what the permission is about: "token" of "token:read".
func (p Permission) Entity() string {
	entity, _, _ := strings.Cut(p.String(), ":")
	return entity
}

// Action returns what it allows to do: "read" of "token:read".
func (p Permission) Action() string {
	_, action, _ := strings.Cut(p.String(), ":")
	return action
}

// OnTokens reports whether the permission is decided token by token.
func (p Permission) OnTokens() bool { return tokenPermissions.has(p) }

// under returns what a rule's transform comes to for this permission.
func (p Permission) under(t Transform) Transform {
	row := p.row()
	if t < row.least {
		return Nothing
	}
	return min(t, row.most)
}

// permissionSet holds permissions as bits. What is no permission is in none of
// the sets below, and those limit every caller.
type permissionSet uint64

var (
	allPermissions        = setOf(Permissions()...)
	tokenPermissions      = setOf(TokenCreate, TokenRead, TokenUpdate, TokenDelete, TokenSearch, TokenUse)
	publicPermissions     = setOf(Public.Permissions()...)
	privatePermissions    = setOf(Private.Permissions()...)
	managementPermissions = setOf(Management.Permissions()...)
)

func setOf(ps ...Permission) permissionSet {
	var s permissionSet
	for _, p := range ps {
		s |= 1 << p
	}
	return s
}

func (s permissionSet) has(p Permission) bool { return s>>p&1 == 1 }

// holds returns what applications of this type may hold.
func (t ApplicationType) holds() permissionSet {
	switch t {
	case Public:
		return publicPermissions
	case Private:
		return privatePermissions
	case Management:
		return managementPermissions
	}
	return 0
}
