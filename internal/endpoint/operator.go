package endpoint

import (
	"net/http"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/response"
)

// OperatorRoutes returns the rows of the admin socket that speak of tenants
// and their applications. Whoever reaches the socket is the operator; below a
// tenant they are the rows of the API, called in the operator's name.
func OperatorRoutes(s Services) []httpapi.Route {
	in := func(handle handler) handler {
		return func(r *http.Request, _ access.Caller, a *idempotency.Attempt) (*response.Response, error) {
			return handle(r, directory.Operator(r.PathValue("tenant")).WithOrigin(access.Origin{TraceID: httpapi.TraceID(r.Context())}), a)
		}
	}
	return s.routes([]row{
		{httpapi.Route{Pattern: "POST /tenants", Auth: httpapi.AdminSocket, Body: httpapi.JSON}, s.createTenant},
		{httpapi.Route{Pattern: "GET /tenants", Auth: httpapi.AdminSocket}, s.listTenants},
		{httpapi.Route{Pattern: "GET /tenants/{tenant}", Auth: httpapi.AdminSocket}, in(s.getTenant)},
		{httpapi.Route{Pattern: "DELETE /tenants/{tenant}", Auth: httpapi.AdminSocket}, in(s.deleteTenant)},
		{httpapi.Route{Pattern: "POST /tenants/{tenant}/applications", Auth: httpapi.AdminSocket, Body: httpapi.JSON}, in(s.createApplication)},
		{httpapi.Route{Pattern: "GET /tenants/{tenant}/applications", Auth: httpapi.AdminSocket}, in(s.listApplications)},
		{httpapi.Route{Pattern: "GET /tenants/{tenant}/applications/{id}", Auth: httpapi.AdminSocket}, in(s.getApplication)},
		{httpapi.Route{Pattern: "DELETE /tenants/{tenant}/applications/{id}", Auth: httpapi.AdminSocket}, in(s.deleteApplication)},
		{httpapi.Route{Pattern: "POST /tenants/{tenant}/applications/{id}/regenerate", Auth: httpapi.AdminSocket}, in(s.regenerateKey)},
		{httpapi.Route{Pattern: "GET /tenants/{tenant}/applications/{id}/keys", Auth: httpapi.AdminSocket}, in(s.listKeys)},
		{httpapi.Route{Pattern: "POST /tenants/{tenant}/applications/{id}/keys", Auth: httpapi.AdminSocket}, in(s.createKey)},
		{httpapi.Route{Pattern: "DELETE /tenants/{tenant}/applications/{id}/keys/{key_id}", Auth: httpapi.AdminSocket}, in(s.deleteKey)},
		{httpapi.Route{Pattern: "GET /tenants/{tenant}/sessions", Auth: httpapi.AdminSocket}, in(s.listSessions)},
		{httpapi.Route{Pattern: "DELETE /tenants/{tenant}/sessions/{id}", Auth: httpapi.AdminSocket}, in(s.deleteSession)},
		{httpapi.Route{Pattern: "POST /tenants/{tenant}/links", Auth: httpapi.AdminSocket, Body: httpapi.JSON}, in(s.createLink)},
		{httpapi.Route{Pattern: "POST /tenants/{tenant}/members", Auth: httpapi.AdminSocket, Body: httpapi.JSON}, in(s.createMember)},
		{httpapi.Route{Pattern: "GET /tenants/{tenant}/members", Auth: httpapi.AdminSocket}, in(s.listMembers)},
		{httpapi.Route{Pattern: "PATCH /tenants/{tenant}/members/{id}", Auth: httpapi.AdminSocket, Body: httpapi.MergePatch}, in(s.updateMember)},
		{httpapi.Route{Pattern: "DELETE /tenants/{tenant}/members/{id}", Auth: httpapi.AdminSocket}, in(s.deleteMember)},
		{httpapi.Route{Pattern: "GET /tenants/{tenant}/members/{id}/sessions", Auth: httpapi.AdminSocket}, in(s.listSignIns)},
		{httpapi.Route{Pattern: "DELETE /tenants/{tenant}/members/sessions/{id}", Auth: httpapi.AdminSocket}, in(s.endSignIn)},
	})
}

// createTenant makes a tenant with a management application that may do
// everything there is to manage; its key is in this answer and nowhere else.
func (s Services) createTenant(r *http.Request, _ access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	var in api.CreateTenant
	if err := httpapi.Decode(r, &in); err != nil {
		return nil, err
	}
	t, applications, err := s.Directory.CreateTenant(r.Context(), in.Name, directory.ManagementApplication())
	if err != nil {
		return nil, err
	}
	return respond(http.StatusCreated, api.CreatedTenant{Tenant: tenantOf(t), Application: applicationOf(applications[0])})
}

func (s Services) listTenants(r *http.Request, _ access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	out := []api.Tenant{}
	err := s.Directory.AllTenants(r.Context(), func(t directory.Tenant) error {
		out = append(out, tenantOf(t))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, out)
}
