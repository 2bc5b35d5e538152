package main

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/admin"
)

const shownOnce = "\nThe key is shown this once: put it where your secrets are.\n"

func tenantCommand() *cobra.Command {
	return group("tenant", "As the operator, make, list and delete tenants; over the API, look at and change your own",
		tenantCreateCommand(), tenantListCommand(), tenantDeleteCommand(), tenantGetCommand(), tenantUpdateCommand(), tenantUsageCommand(), callbackSecretCommand())
}

func tenantCreateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "create NAME", Short: "Make a tenant and print the key of its management application",
		Example: "  tokenkeep tenant create acme --data /var/lib/tokenkeep",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	return operatorCommand(c, func(c *cobra.Command, call *admin.Client, args []string) (any, error) {
		var out api.CreatedTenant
		return &out, call.Call(c.Context(), http.MethodPost, "/tenants", api.CreateTenant{Name: args[0]}, &out)
	}, func(w io.Writer, v any) {
		t := v.(*api.CreatedTenant)
		fields(w, "tenant", t.Tenant.ID, "name", t.Tenant.Name, "management application", t.Application.ID, "management key", t.Application.Key)
		printf(w, shownOnce)
	})
}

func tenantListCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List the tenants of a server",
		Example: "  tokenkeep tenant list --data /var/lib/tokenkeep",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	return operatorCommand(c, func(c *cobra.Command, call *admin.Client, _ []string) (any, error) {
		var out []api.Tenant
		return &out, call.Call(c.Context(), http.MethodGet, "/tenants", nil, &out)
	}, func(w io.Writer, v any) {
		printf(w, "TENANT\tNAME\tCREATED\n")
		for _, t := range *v.(*[]api.Tenant) {
			printf(w, "%s\t%s\t%s\n", t.ID, plain(t.Name), at(t.CreatedAt.Time))
		}
	})
}

var (
	errReally      = &usageError{errors.New("this destroys everything that the tenant holds: add --yes to do it")}
	errWhichTenant = &usageError{errors.New("the id or the name of the tenant is missing; self is the tenant of the key")}
)

func tenantDeleteCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "delete TENANT", Short: "Destroy the keys of a tenant, and with them everything it holds",
		Long: `Destroys the tenant's keys at once: from then on nothing of it opens, here or in
any copy that does not have the wrapped keysets. Its rows are removed in the
background; the sealed batches of its log stay, for verification. There is no
way back, so the command asks for --yes.

The operator names a tenant of the server on --data, by its id or its name. The
word self instead is the tenant of the key, over the API; that takes
tenant:delete.`,
		Example: `  tokenkeep tenant delete acme --yes --data /var/lib/tokenkeep
  tokenkeep tenant delete self --yes --profile old-shop`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: completeOneTenant,
	}
	yes := c.Flags().Bool("yes", false, "really delete it")
	connect := apiFlags(c)
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if !*yes {
			return errReally
		}
		var err error
		switch args[0] {
		case "":
			return errWhichTenant // a variable that was not set
		case "self":
			var call *client.Client
			if call, err = connect(keyNeeded); err == nil {
				err = call.Tenant.Delete(c.Context())
			}
		default:
			var id string
			if id, err = tenantID(c, socket(c), args[0]); err == nil {
				err = socket(c).Call(c.Context(), http.MethodDelete, tenantPath(id), nil, nil)
			}
		}
		if err != nil {
			return err
		}
		return show(c, *asJSON, deleted, func(w io.Writer, _ any) {
			printf(w, "The tenant's keys are destroyed; its rows are being removed.\n")
		})
	}
	return c
}

func showTenant(w io.Writer, v any) {
	t := v.(api.Tenant)
	fields(w, "tenant", t.ID, "name", t.Name)
	for _, name := range slices.Sorted(maps.Keys(t.Settings)) {
		fields(w, "settings."+name, t.Settings[name])
	}
	fields(w, "created", at(t.CreatedAt.Time), "modified", at(t.ModifiedAt.Time))
}

func tenantGetCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "get", Short: "Print the tenant of the key, with its settings",
		Long:    "Prints the tenant of the key, over the API. It takes tenant:read.",
		Example: "  tokenkeep tenant get",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		return call.Tenant.Get(c.Context())
	}, showTenant)
}

var errSetting = &usageError{errors.New("--set takes setting=value, and each setting once")}

func tenantUpdateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "update", Short: "Change name and settings of the tenant of the key",
		Long: `Changes what is given and leaves the rest. A setting that is set to nothing
returns to its default. It takes tenant:read and tenant:update.`,
		Example: `  tokenkeep tenant update --set deduplicate_tokens=true --set cvc_retention=
  tokenkeep tenant update --name 'Acme Ltd'`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	name := c.Flags().String("name", "", "new name (default: as it was)")
	set := c.Flags().StringArray("set", nil, "setting=value; may be repeated")
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		changes, err := pairs(*set, errSetting)
		if err != nil {
			return nil, err
		}
		old, err := call.Tenant.Get(c.Context())
		if err != nil {
			return nil, err
		}
		in := api.ReplaceTenant{Name: old.Name, Settings: old.Settings}
		if c.Flags().Changed("name") {
			in.Name = *name
		}
		for setting, value := range changes {
			if in.Settings[setting] = value; value == "" {
				delete(in.Settings, setting)
			}
		}
		return call.Tenant.Replace(c.Context(), in)
	}, showTenant)
}

func tenantUsageCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "usage", Short: "Count the tokens of the tenant of the key, by type",
		Long:    "Counts the tokens of the tenant of the key, over the API. It takes report:read.",
		Example: "  tokenkeep tenant usage --json",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		return call.Tenant.Usage(c.Context())
	}, func(w io.Writer, v any) {
		u := v.(api.Usage)
		printf(w, "TYPE\tTOKENS\n")
		for _, kind := range slices.Sorted(maps.Keys(u.TokenReport.MetricsByType)) {
			printf(w, "%s\t%d\n", plain(kind), u.TokenReport.MetricsByType[kind].Count)
		}
		printf(w, "all\t%d\n", u.TotalTokens)
	})
}

func callbackSecretCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "callback-secret", Short: "Print the secret that signs callbacks to the tenant of the key, or replace it",
		Long: `Prints the secret with which receivers check callbacks. With --rotate there is a
new one, and both sign for a day. It takes tenant:read, and tenant:update to
rotate.`,
		Example: `  tokenkeep tenant callback-secret
  tokenkeep tenant callback-secret --rotate`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	rotate := c.Flags().Bool("rotate", false, "make a new one first")
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		if *rotate {
			return call.Tenant.RotateCallbackSecret(c.Context())
		}
		return call.Tenant.CallbackSecret(c.Context())
	}, func(w io.Writer, v any) {
		s := v.(api.CallbackSecret)
		fields(w, "secret", s.Secret, "previous secret", s.PreviousSecret, "which signs until", at(s.PreviousUntil.Time))
	})
}
