package endpoint

import (
	"net/http"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

// OperatorRoutes returns the rows of the admin socket that speak of tenants
// and their applications. Whoever reaches the socket is the operator; below a
// tenant they are the rows of the API, called in the operator's name.
func OperatorRoutes(s Services) []httpapi.Route {
	in := func(handle handler) handler {
		return func(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
			return handle(w, r, directory.Operator(r.PathValue("tenant")).WithOrigin(access.Origin{TraceID: httpapi.TraceID(r.Context())}))
		}
	}
	rows := []httpapi.Route{
		{Pattern: "POST /tenants", Body: httpapi.JSON, Handle: s.createTenant},
		{Pattern: "GET /tenants", Handle: s.listTenants},
		{Pattern: "GET /tenants/{tenant}", Handle: in(s.getTenant)},
		{Pattern: "DELETE /tenants/{tenant}", Handle: in(s.deleteTenant)},
		{Pattern: "POST /tenants/{tenant}/applications", Body: httpapi.JSON, Handle: in(every(s.createApplication))},
		{Pattern: "GET /tenants/{tenant}/applications", Handle: in(s.listApplications)},
		{Pattern: "GET /tenants/{tenant}/applications/{id}", Handle: in(s.getApplication)},
		{Pattern: "DELETE /tenants/{tenant}/applications/{id}", Handle: in(s.deleteApplication)},
		{Pattern: "POST /tenants/{tenant}/applications/{id}/regenerate", Handle: in(every(s.regenerateKey))},
		{Pattern: "GET /tenants/{tenant}/applications/{id}/keys", Handle: in(s.listKeys)},
		{Pattern: "POST /tenants/{tenant}/applications/{id}/keys", Handle: in(every(s.createKey))},
		{Pattern: "DELETE /tenants/{tenant}/applications/{id}/keys/{key_id}", Handle: in(s.deleteKey)},
		{Pattern: "GET /tenants/{tenant}/sessions", Handle: in(s.listSessions)},
		{Pattern: "DELETE /tenants/{tenant}/sessions/{id}", Handle: in(s.deleteSession)},
	}
	for i := range rows {
		rows[i].Auth = httpapi.AdminSocket
	}
	return s.wrapped(rows)
}

// createTenant makes a tenant with a management application that may do
// everything there is to manage; its key is in this answer and nowhere else.
func (s Services) createTenant(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	var in api.CreateTenant
	if err := httpapi.Decode(r, &in); err != nil {
		return err
	}
	t, applications, err := s.Directory.CreateTenant(r.Context(), in.Name, directory.ManagementApplication())
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusCreated, api.CreatedTenant{Tenant: tenantOf(t), Application: applicationOf(applications[0])})
}

func (s Services) listTenants(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	out := []api.Tenant{}
	err := s.Directory.AllTenants(r.Context(), func(t directory.Tenant) error {
		out = append(out, tenantOf(t))
		return nil
	})
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, out)
}
