package main

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
)

// byTenant is part of the help of every command that names a tenant.
const byTenant = "\n\nTENANT is the id of the tenant, or its name."

var (
	errTenantName = errors.New("no such tenant; 'tokenkeep tenant list' shows ids and names")
	errNoTenantID = &usageError{errors.New("the id or the name of the tenant is missing")}
)

// tenantID returns the id of the tenant that an operator named, by its id or by
// its name.
//
// A text in the form of an id always is one. Tenants choose their names, and one
// that took the id of a deleted tenant for its name must not be verified, or
// deleted, in its place.
func tenantID(c *cobra.Command, call *admin.Client, named string) (string, error) {
	const idLength = 36
	if named == "" {
		return "", errNoTenantID // a variable that was not set
	}
	if len(named) == idLength && uuid.Validate(named) == nil {
		return strings.ToLower(named), nil
	}
	list, err := tenantsOf(c, call)
	if err != nil {
		return "", err
	}
	var ids []string
	for _, t := range list {
		if t.Name == named {
			ids = append(ids, t.ID)
		}
	}
	switch len(ids) {
	case 0:
		return "", errTenantName
	case 1:
		printf(c.ErrOrStderr(), "… tenant %s\n", ids[0])
		return ids[0], nil
	}
	slices.Sort(ids)
	return "", &usageError{errors.New("several tenants have this name; use an id: " + strings.Join(ids, ", "))}
}

func tenantsOf(c *cobra.Command, call *admin.Client) (list []api.Tenant, err error) {
	return list, call.Call(c.Context(), http.MethodGet, "/tenants", nil, &list)
}

// completeTenants completes the names and ids of the tenants of a server that
// runs on --data.
func completeTenants(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	list, err := tenantsOf(c, socket(c))
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp // no server runs there
	}
	var names []string
	for _, t := range list {
		id := cobra.CompletionWithDesc(t.ID, plain(t.Name))
		names = append(names, id)
		if !strings.ContainsFunc(t.Name, func(r rune) bool { return r <= ' ' }) && plain(t.Name) == t.Name {
			names = append(names, cobra.CompletionWithDesc(t.Name, t.ID))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeOneTenant does so for a first argument.
func completeOneTenant(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completeTenants(c, args, typed)
}
