package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/luhn"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// The built-in role that is more than its permissions: its members may give
// others what they do not hold themselves.
const Owner = "owner"

const (
	maxRoles       = 100 // of a tenant, beside the built-in ones
	maxDescription = 1000
)

var (
	errNoRole    = fault.New(fault.NotFound, "no such role")
	errRoleTaken = fault.New(fault.Conflict, "there is a role of this name").WithCode("role_exists")
	errBuiltIn   = fault.New(fault.Conflict, "built-in roles cannot be changed or deleted").WithCode("built_in_role")
	errRoleUsed  = fault.New(fault.Conflict, "the role is in use; members who have it")
	errManyRoles = fault.New(fault.Conflict, "the tenant has as many roles as it may have: delete one first")

	roleName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)
)

// Role is what its members may do: permissions and rules, as of an application.
type Role struct {
	Name        string
	Description string
	Permissions []string
	Rules       []access.Rule
	BuiltIn     bool
	CreatedBy   string
	CreatedAt   time.Time
	ModifiedBy  string
	ModifiedAt  time.Time
}

// grant makes the grant of a role.
func (r Role) grant() (access.Grant, error) {
	g, err := access.NewGrant(r.Permissions, r.Rules)
	if err != nil {
		return g, fmt.Errorf("read role: %w", err)
	}
	return g, nil
}

// builtIn are the roles that every tenant has.
var builtIn = func() []Role {
	manage := access.Management.Permissions()
	without := func(list []access.Permission, dropped ...access.Permission) []access.Permission {
		return slices.DeleteFunc(slices.Clone(list), func(p access.Permission) bool { return slices.Contains(dropped, p) })
	}
	entity := func(names ...string) []access.Permission {
		return slices.DeleteFunc(slices.Clone(manage), func(p access.Permission) bool { return !slices.Contains(names, p.Entity()) })
	}
	list := []Role{
		{
			Name: Owner, Description: "Everything. Values are masked; revealing one takes a reason.",
			Permissions: names(append([]access.Permission{access.TokenCreate, access.TokenUpdate, access.TokenDelete, access.TokenUse}, manage...)),
			Rules: []access.Rule{{
				Description: "Reveals with a reason.", Container: "/", Transform: access.Reveal.String(), RequiresReason: true,
				Permissions: names([]access.Permission{access.TokenRead, access.TokenSearch}),
			}},
		},
		{Name: "admin", Description: "Applications, reactors, proxies, settings and members. Shows no values.", Permissions: names(without(manage, access.TenantDelete))},
		{
			Name: "developer", Description: "Reactors, proxies and their runs. Shows no values.",
			Permissions: names(append([]access.Permission{access.TenantRead, access.ApplicationRead}, entity("reactor", "proxy")...)),
		},
		{
			Name: "support", Description: "Finds tokens and sees their masks.",
			Permissions: names([]access.Permission{access.TokenRead, access.TokenSearch}),
		},
		{
			Name: "auditor", Description: "The log, reports, and who has access. Shows no values.",
			Permissions: names([]access.Permission{
				access.TenantRead, access.ApplicationRead, access.SessionRead, access.ReactorRead, access.ProxyRead, access.LogRead, access.ReportRead, access.MemberRead,
			}),
		},
	}
	for i := range list {
		list[i].BuiltIn = true
	}
	return list
}()

func names(permissions []access.Permission) []string {
	out := make([]string, len(permissions))
	for i, p := range permissions {
		out[i] = p.String()
	}
	return out
}

// sealedRole is what the row of a role holds.
type sealedRole struct {
	Description string        `json:"description,omitempty"`
	Permissions []string      `json:"permissions,omitempty"`
	Rules       []access.Rule `json:"rules,omitempty"`
}

func openRole(keys *keyring.Keys, r store.Definition) (Role, error) {
	b, err := keys.Open(r.Record(), keyring.FieldDefinition, r.Contents)
	if err != nil {
		return Role{}, fmt.Errorf("open a role: %w", err)
	}
	var in sealedRole
	if err := json.Unmarshal(b, &in); err != nil {
		return Role{}, errors.New("decode a role") // the decoder's words may repeat it
	}
	return Role{
		Name: r.ID, Description: in.Description, Permissions: in.Permissions, Rules: in.Rules,
		CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt.Time(), ModifiedBy: r.ModifiedBy, ModifiedAt: r.ModifiedAt.Time(),
	}, nil
}

func (r Role) seal(keys *keyring.Keys, row *store.Definition) error {
	b, err := json.Marshal(sealedRole{r.Description, r.Permissions, r.Rules})
	if err != nil {
		return fmt.Errorf("encode a role: %w", err)
	}
	row.Contents, err = keys.Seal(row.Record(), keyring.FieldDefinition, b)
	return err
}

// roleOf finds a role of the tenant, or errNoRole.
func roleOf(ctx context.Context, tx store.Tx, keys *keyring.Keys, name string) (Role, error) {
	for _, r := range builtIn {
		if r.Name == name {
			return r, nil
		}
	}
	r, err := tx.Definition(ctx, store.DefinitionRole, name)
	if errors.Is(err, store.ErrNotFound) {
		return Role{}, errNoRole
	}
	if err != nil {
		return Role{}, fmt.Errorf("look for role: %w", err)
	}
	return openRole(keys, r)
}

// Roles returns all roles, the built-in ones first. The caller needs
// member:read.
func (s *Service) Roles(ctx context.Context, c access.Caller) (list []Role, err error) {
	keys, err := s.keysFor(ctx, c, access.MemberRead)
	if err != nil {
		return nil, err
	}
	err = s.update(ctx, c.Tenant(), func(tx store.Tx) error {
		list = slices.Clone(builtIn) // a transaction may run again
		rows, err := tx.Definitions(ctx, store.DefinitionFilter{Kind: store.DefinitionRole}, store.Page{Limit: maxRoles})
		if err != nil {
			return fmt.Errorf("list roles: %w", err)
		}
		for _, r := range rows {
			role, err := openRole(keys, r)
			if err != nil {
				return err
			}
			list = append(list, role)
		}
		return tx.AppendLog(ctx, audit.Entry(c, s.now(), audit.Role, audit.Many, audit.Read))
	})
	return list, err
}

// NewRole is what a role is made from, and what it is replaced by.
type NewRole struct {
	Name        string
	Description string
	Permissions []string
	Rules       []access.Rule
}

// check notes what is wrong, and returns the role to store.
func (n NewRole) check() (Role, error) {
	var f fault.Fields
	if !roleName.MatchString(n.Name) || luhn.WrittenCard(n.Name) {
		f.Add("name", "must have 1 to 40 lower-case letters, digits and dashes, and begin with a letter")
	}
	if utf8.RuneCountInString(n.Description) > maxDescription {
		f.Add("description", "is too long")
	}
	r := Role{Name: n.Name, Description: n.Description}
	r.Permissions, r.Rules = access.NormalizeRole(&f, n.Permissions, n.Rules)
	return r, f.Err()
}

// mayGrant checks that the caller may let members have a role.
func mayGrant(c access.Caller, r Role) error {
	g, err := r.grant()
	if err != nil {
		return err
	}
	return c.RequireToAppoint(access.MemberUpdate, false, g)
}

func isBuiltIn(name string) bool {
	return slices.ContainsFunc(builtIn, func(r Role) bool { return r.Name == name })
}

// CreateRole adds a role. The caller needs member:update, and may give no more
// than it holds.
func (s *Service) CreateRole(ctx context.Context, c access.Caller, in NewRole) (made Role, err error) {
	keys, err := s.keysFor(ctx, c, access.MemberUpdate)
	if err != nil {
		return Role{}, err
	}
	r, err := in.check()
	if err != nil {
		return Role{}, err
	}
	if isBuiltIn(r.Name) {
		return Role{}, errRoleTaken
	}
	if err := mayGrant(c, r); err != nil {
		return Role{}, err
	}
	row := store.Definition{Kind: store.DefinitionRole, ID: r.Name, CreatedBy: c.Application(), CreatedAt: store.At(s.now()), Version: 1}
	if err := r.seal(keys, &row); err != nil {
		return Role{}, err
	}
	err = s.update(ctx, c.Tenant(), func(tx store.Tx) error {
		n, err := tx.CountDefinitions(ctx, store.DefinitionFilter{Kind: store.DefinitionRole})
		if err != nil {
			return fmt.Errorf("count roles: %w", err)
		}
		if n >= maxRoles {
			return errManyRoles
		}
		if err := tx.InsertDefinition(ctx, row); err != nil {
			return err
		}
		made, err = openRole(keys, row)
		if err != nil {
			return err
		}
		return tx.AppendLog(ctx, audit.Entry(c, s.now(), audit.Role, r.Name, audit.Create))
	})
	if errors.Is(err, store.ErrExists) {
		return Role{}, errRoleTaken
	}
	return made, err
}

// ReplaceRole changes a role of the tenant, for all members who have it. The
// caller needs member:update, and must hold what the role was and will be.
func (s *Service) ReplaceRole(ctx context.Context, c access.Caller, name string, in NewRole) (changed Role, err error) {
	keys, err := s.keysFor(ctx, c, access.MemberUpdate)
	if err != nil {
		return Role{}, err
	}
	if isBuiltIn(name) {
		return Role{}, errBuiltIn
	}
	in.Name = name
	r, err := in.check()
	if err != nil {
		return Role{}, err
	}
	if err := mayGrant(c, r); err != nil {
		return Role{}, err
	}
	err = s.changeRole(ctx, c, keys, name, audit.Update, func(tx store.Tx, row store.Definition) error {
		row.ModifiedBy, row.ModifiedAt = c.Application(), store.At(s.now())
		row.Version++
		if err := r.seal(keys, &row); err != nil {
			return err
		}
		if err := tx.ReplaceDefinition(ctx, row); err != nil {
			return fmt.Errorf("replace role: %w", err)
		}
		changed, err = openRole(keys, row)
		return err
	})
	return changed, err
}

// DeleteRole removes a role that no member has.
func (s *Service) DeleteRole(ctx context.Context, c access.Caller, name string) error {
	keys, err := s.keysFor(ctx, c, access.MemberUpdate)
	if err != nil {
		return err
	}
	if isBuiltIn(name) {
		return errBuiltIn
	}
	return s.changeRole(ctx, c, keys, name, audit.Delete, func(tx store.Tx, row store.Definition) error {
		used := int64(0)
		err := each(ctx, tx, keys, func(_ store.Definition, m sealedMember) error {
			if m.Role == name {
				used++
			}
			return nil
		})
		if err != nil {
			return err
		}
		if used > 0 {
			return errRoleUsed.Counting(used)
		}
		return tx.DeleteDefinition(ctx, store.DefinitionRole, row.ID)
	})
}

// changeRole runs a change of a role that the caller may grant as it is, with
// its entry.
func (s *Service) changeRole(ctx context.Context, c access.Caller, keys *keyring.Keys, name string, op audit.Operation, change func(store.Tx, store.Definition) error) error {
	return s.update(ctx, c.Tenant(), func(tx store.Tx) error {
		row, err := tx.Definition(ctx, store.DefinitionRole, name)
		if errors.Is(err, store.ErrNotFound) {
			return errNoRole
		}
		if err != nil {
			return fmt.Errorf("look for role: %w", err)
		}
		was, err := openRole(keys, row)
		if err != nil {
			return err
		}
		if err := mayGrant(c, was); err != nil {
			return err
		}
		if err := change(tx, row); err != nil {
			return err
		}
		return tx.AppendLog(ctx, audit.Entry(c, s.now(), audit.Role, name, op))
	})
}
