package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
)

// group makes a command that only holds others.
func group(use, short string, children ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(children...)
	return c
}

// operatorCommand makes a command that talks to the running server over its
// admin socket. It has --data and --json; what it prints is the value that run
// returns, as JSON or in the form that table gives it; a value that is itself
// bad news has a method failure.
func operatorCommand(c *cobra.Command, run func(c *cobra.Command, call *admin.Client, args []string) (any, error), table func(w io.Writer, v any)) *cobra.Command {
	data := dataFlag(c)
	asJSON := c.Flags().Bool("json", false, "print JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		v, err := run(c, admin.NewClient(*data), args)
		if err != nil || v == nil {
			return err
		}
		err = show(c, *asJSON, v, table)
		if f, ok := v.(interface{ failure() error }); ok && err == nil {
			return f.failure()
		}
		return err
	}
	return c
}

// show prints a value.
func show(c *cobra.Command, asJSON bool, v any, table func(w io.Writer, v any)) error {
	if asJSON {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			return errors.New("the answer cannot be written as JSON")
		}
		_, err := io.WriteString(c.OutOrStdout(), plainJSON(b.Bytes()))
		return err
	}
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	table(w, v)
	return w.Flush()
}

// allPages reads a list to its end.
func allPages[T any](c *cobra.Command, call *admin.Client, path string) ([]T, error) {
	all := []T{}
	for page := 1; ; page++ {
		var out api.List[T]
		if err := call.Call(c.Context(), http.MethodGet, fmt.Sprintf("%s?size=100&page=%d", path, page), nil, &out); err != nil {
			return nil, err
		}
		all = append(all, out.Data...)
		if int64(page) >= out.Pagination.TotalPages {
			return all, nil
		}
	}
}

// tell shows on the error stream how far long work has come.
func tell(c *cobra.Command) func(admin.Progress) error {
	return func(p admin.Progress) error {
		_, err := fmt.Fprintf(c.ErrOrStderr(), "… %s\n", p.Doing)
		return err
	}
}

func printf(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

const shownOnce = "\nThe key is shown this once: put it where your secrets are.\n"

func tenantCommand() *cobra.Command {
	create := &cobra.Command{Use: "create NAME", Short: "Make a tenant and print the key of its management application", Args: cobra.ExactArgs(1)}
	list := &cobra.Command{Use: "list", Short: "List the tenants", Args: cobra.NoArgs}
	remove := &cobra.Command{
		Use: "delete TENANT", Short: "Destroy the keys of a tenant, and with them everything it holds",
		Long: `Destroys the tenant's keys at once: from then on nothing of it opens, here or in
any copy that does not have the wrapped keysets. Its rows are removed in the
background; the sealed batches of its log stay, for verification. There is no
way back, so the command asks for --yes.`,
		Args: cobra.ExactArgs(1),
	}
	yes := remove.Flags().Bool("yes", false, "really delete it")
	return group("tenant", "Make, list and delete tenants",
		operatorCommand(create, func(c *cobra.Command, call *admin.Client, args []string) (any, error) {
			var out api.CreatedTenant
			return &out, call.Call(c.Context(), http.MethodPost, "/tenants", api.CreateTenant{Name: args[0]}, &out)
		}, func(w io.Writer, v any) {
			t := v.(*api.CreatedTenant)
			printf(w, "tenant\t%s\nname\t%s\nmanagement application\t%s\nmanagement key\t%s\n", t.Tenant.ID, t.Tenant.Name, t.Application.ID, t.Application.Key)
			printf(w, shownOnce)
		}),
		operatorCommand(list, func(c *cobra.Command, call *admin.Client, _ []string) (any, error) {
			var out []api.Tenant
			return &out, call.Call(c.Context(), http.MethodGet, "/tenants", nil, &out)
		}, func(w io.Writer, v any) {
			printf(w, "TENANT\tNAME\tCREATED\n")
			for _, t := range *v.(*[]api.Tenant) {
				printf(w, "%s\t%s\t%s\n", t.ID, t.Name, t.CreatedAt.Format("2006-01-02 15:04:05"))
			}
		}),
		operatorCommand(remove, func(c *cobra.Command, call *admin.Client, args []string) (any, error) {
			if !*yes {
				return nil, &usageError{fmt.Errorf("this destroys everything that the tenant holds: add --yes to do it")}
			}
			if err := call.Call(c.Context(), http.MethodDelete, "/tenants/"+url.PathEscape(args[0]), nil, nil); err != nil {
				return nil, err
			}
			return &api.Health{Status: "deleted"}, nil
		}, func(w io.Writer, _ any) {
			printf(w, "The tenant's keys are destroyed; its rows are being removed.\n")
		}),
	)
}

func applicationCommand() *cobra.Command {
	path := func(tenant string, rest ...string) string {
		return tenantPath(tenant, append([]string{"applications"}, rest...)...)
	}
	showCreated := func(w io.Writer, v any) {
		a := v.(*api.Application)
		printf(w, "application\t%s\nname\t%s\ntype\t%s\nkey\t%s\n", a.ID, a.Name, a.Type, a.Key)
		printf(w, shownOnce)
	}

	create := &cobra.Command{
		Use: "create NAME", Short: "Make an application and print its key", Args: cobra.ExactArgs(1),
		Example: `  tokenkeep application create checkout --tenant ID --type private \
    --permission token:create --permission token:use --rules rules.json`,
	}
	createTenant := tenantFlag(create)
	kind := create.Flags().String("type", "private", "public, private or management")
	permissions := create.Flags().StringArray("permission", nil, "a permission; may be repeated")
	rules := create.Flags().String("rules", "", "file with the access rules, a JSON list")

	list := &cobra.Command{Use: "list", Short: "List a tenant's applications", Args: cobra.NoArgs}
	listTenant := tenantFlag(list)
	keys := &cobra.Command{Use: "keys APPLICATION", Short: "List the keys of an application, never the keys themselves", Args: cobra.ExactArgs(1)}
	keysTenant := tenantFlag(keys)
	rotate := &cobra.Command{Use: "rotate-key APPLICATION", Short: "Give an application one new key and revoke the others", Args: cobra.ExactArgs(1),
		Long: `Makes a new key and prints it once. Without --keep-old all older keys are dead
at once; with it they stay until 'application revoke-key', so that a fleet can
change over without a pause.`}
	rotateTenant := tenantFlag(rotate)
	keepOld := rotate.Flags().Bool("keep-old", false, "leave the older keys valid")
	revoke := &cobra.Command{Use: "revoke-key APPLICATION KEY", Short: "Revoke one key of an application", Args: cobra.ExactArgs(2)}
	revokeTenant := tenantFlag(revoke)

	return group("application", "Make, list and re-key a tenant's applications",
		operatorCommand(create, func(c *cobra.Command, call *admin.Client, args []string) (any, error) {
			in := api.CreateApplication{Name: args[0], Type: *kind, Permissions: *permissions}
			if *rules != "" {
				b, err := os.ReadFile(*rules)
				if err != nil {
					return nil, &usageError{fmt.Errorf("the file given with --rules cannot be read")}
				}
				if err := json.Unmarshal(b, &in.Rules); err != nil {
					return nil, &usageError{fmt.Errorf("the file given with --rules is not a JSON list of rules")}
				}
			}
			var out api.Application
			return &out, call.Call(c.Context(), http.MethodPost, path(*createTenant), in, &out)
		}, showCreated),
		operatorCommand(list, func(c *cobra.Command, call *admin.Client, _ []string) (any, error) {
			return allPages[api.Application](c, call, path(*listTenant))
		}, func(w io.Writer, v any) {
			printf(w, "APPLICATION\tNAME\tTYPE\tKEYS\tPERMISSIONS\tRULES\n")
			for _, a := range v.([]api.Application) {
				printf(w, "%s\t%s\t%s\t%d\t%d\t%d\n", a.ID, a.Name, a.Type, len(a.Keys), len(a.Permissions), len(a.Rules))
			}
		}),
		operatorCommand(keys, func(c *cobra.Command, call *admin.Client, args []string) (any, error) {
			var out []api.Key
			return &out, call.Call(c.Context(), http.MethodGet, path(*keysTenant, args[0], "keys"), nil, &out)
		}, func(w io.Writer, v any) {
			printf(w, "KEY\tVERSION\tBEGINS WITH\tCREATED\n")
			for _, k := range *v.(*[]api.Key) {
				printf(w, "%s\t%d\t%s…\t%s\n", k.ID, k.Version, k.Prefix, k.CreatedAt.Format("2006-01-02 15:04:05"))
			}
		}),
		operatorCommand(rotate, func(c *cobra.Command, call *admin.Client, args []string) (any, error) {
			if !*keepOld {
				var out api.Application
				return &out, call.Call(c.Context(), http.MethodPost, path(*rotateTenant, args[0], "regenerate"), nil, &out)
			}
			var out api.Key
			return &out, call.Call(c.Context(), http.MethodPost, path(*rotateTenant, args[0], "keys"), nil, &out)
		}, func(w io.Writer, v any) {
			if a, ok := v.(*api.Application); ok {
				showCreated(w, a)
				return
			}
			k := v.(*api.Key)
			printf(w, "key\t%s\nkey id\t%s\n", k.Key, k.ID)
			printf(w, shownOnce)
		}),
		operatorCommand(revoke, func(c *cobra.Command, call *admin.Client, args []string) (any, error) {
			return &api.Health{Status: "revoked"}, call.Call(c.Context(), http.MethodDelete, path(*revokeTenant, args[0], "keys", args[1]), nil, nil)
		}, func(w io.Writer, _ any) { printf(w, "The key is revoked.\n") }),
	)
}
