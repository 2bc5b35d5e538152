package client

import (
	"context"
	"iter"
	"net/url"

	"github.com/tokenkeep/tokenkeep/api"
)

var (
	createMember       = row{method: "POST", path: "/members"}
	listMembers        = row{method: "GET", path: "/members"}
	getMember          = row{method: "GET", path: "/members/{id}"}
	updateMember       = row{method: "PATCH", path: "/members/{id}", media: api.MediaMergePatch}
	deleteMember       = row{method: "DELETE", path: "/members/{id}"}
	listMemberSessions = row{method: "GET", path: "/members/{id}/sessions"}
	endMemberSession   = row{method: "DELETE", path: "/members/sessions/{id}"}
	listRoles          = row{method: "GET", path: "/roles"}
	createRole         = row{method: "POST", path: "/roles"}
	replaceRole        = row{method: "PUT", path: "/roles/{id}"}
	deleteRole         = row{method: "DELETE", path: "/roles/{id}"}
)

// Members are the people of a tenant.
type Members struct{ caller *caller }

// Create adds a member. It takes member:create.
func (m Members) Create(ctx context.Context, in api.CreateMember) (api.Member, error) {
	return get[api.Member](ctx, m.caller, request{row: createMember, in: in})
}

// List goes through all members, newest first, and asks for pages as it goes. An
// error comes last. It takes member:read.
func (m Members) List(ctx context.Context) iter.Seq2[api.Member, error] {
	return each(func(number int) (api.List[api.Member], error) {
		return m.Page(ctx, number, pageSize)
	}, func(x api.Member) string { return x.ID })
}

// Page returns one page of the members.
func (m Members) Page(ctx context.Context, number, size int) (api.List[api.Member], error) {
	return get[api.List[api.Member]](ctx, m.caller, request{row: listMembers, query: withPage(url.Values{}, number, size)})
}

// Get returns a member. It takes member:read.
func (m Members) Get(ctx context.Context, id string) (api.Member, error) {
	return get[api.Member](ctx, m.caller, request{row: getMember, ids: []string{id}})
}

// Update changes name, role or state of a member. It takes member:update.
func (m Members) Update(ctx context.Context, id string, in api.UpdateMember) (api.Member, error) {
	return get[api.Member](ctx, m.caller, request{row: updateMember, ids: []string{id}, in: in})
}

// Delete removes a member, who is signed out. It takes member:delete. When an
// answer was lost on the way, a retry finds nothing: then ErrNotFound means that
// the member is gone.
func (m Members) Delete(ctx context.Context, id string) error {
	return m.caller.call(ctx, request{row: deleteMember, ids: []string{id}}, nil, nil)
}

// Sessions returns where a member is signed in, newest first. It takes
// member:read.
func (m Members) Sessions(ctx context.Context, id string) ([]api.SignIn, error) {
	return get[[]api.SignIn](ctx, m.caller, request{row: listMemberSessions, ids: []string{id}})
}

// EndSession signs a member out of one browser. It takes member:update.
func (m Members) EndSession(ctx context.Context, session string) error {
	return m.caller.call(ctx, request{row: endMemberSession, ids: []string{session}}, nil, nil)
}

// Roles are what members may do.
type Roles struct{ caller *caller }

// List returns all roles, the built-in ones first. It takes member:read.
func (r Roles) List(ctx context.Context) ([]api.Role, error) {
	return get[[]api.Role](ctx, r.caller, request{row: listRoles})
}

// Create adds a role of the tenant. It takes member:update.
func (r Roles) Create(ctx context.Context, in api.CreateRole) (api.Role, error) {
	return get[api.Role](ctx, r.caller, request{row: createRole, in: in})
}

// Replace changes a role of the tenant, for all who have it. It takes
// member:update.
func (r Roles) Replace(ctx context.Context, name string, in api.CreateRole) (api.Role, error) {
	in.Name = ""
	return get[api.Role](ctx, r.caller, request{row: replaceRole, ids: []string{name}, in: in})
}

// Delete removes a role that nobody has. It takes member:update.
func (r Roles) Delete(ctx context.Context, name string) error {
	return r.caller.call(ctx, request{row: deleteRole, ids: []string{name}}, nil, nil)
}
