package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/date"
)

func applicationCommand() *cobra.Command {
	return group("application", "Make, list, change and re-key applications, over the API or as the operator",
		applicationCreateCommand(), applicationListCommand(), applicationGetCommand(), applicationUpdateCommand(), applicationDeleteCommand(),
		applicationKeysCommand(), applicationRotateKeyCommand(), applicationRevokeKeyCommand())
}

// applicationPath is a path of the admin socket.
func applicationPath(tenant string, rest ...string) string {
	return tenantPath(tenant, append([]string{"applications"}, rest...)...)
}

// grantFlags are what an application may do.
func grantFlags(c *cobra.Command) (read func() ([]string, []api.Rule, error)) {
	list := c.Flags().StringArray("permission", nil, "a permission; may be repeated")
	completePermissions(c)
	file := c.Flags().String("rules", "", "file with access rules, a JSON list")
	return func() ([]string, []api.Rule, error) {
		if *file == "" {
			return *list, nil, nil
		}
		b, err := readFile(*file, "the rules")
		if err != nil {
			return nil, nil, err
		}
		var rules []api.Rule
		if json.Unmarshal(b, &rules) != nil {
			return nil, nil, errRules
		}
		return *list, rules, nil
	}
}

var (
	errRules   = &usageError{errors.New("the file given with --rules is not a JSON list of rules")}
	errInstant = &usageError{errors.New("--expires-at takes an instant such as 2030-12-31T00:00:00Z, or a day such as 2030-12-31")}
)

func instant(s string) (api.Time, error) {
	if s == "" {
		return api.Time{}, nil
	}
	d, ok := date.Parse(s)
	if !ok {
		return api.Time{}, errInstant
	}
	return api.Time{Time: d.Time}, nil
}

// originFlag adds the pages that may embed fields.
func originFlag(c *cobra.Command, list *[]string, otherwise string) {
	c.Flags().StringArrayVar(list, "allowed-origin", nil, "origin of pages that may embed fields, such as https://shop.example; may be repeated"+otherwise)
}

func applicationCreateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "create NAME", Short: "Make an application and print its key",
		Long: "Makes an application. Its key is printed this once. Over the API it takes\napplication:create.",
		Example: `  tokenkeep application create checkout --type public --permission token:create --allowed-origin https://shop.example
  tokenkeep application create server --permission token:use --rules rules.json --tenant acme --data /var/lib/tokenkeep`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	var in api.CreateApplication
	c.Flags().StringVar(&in.Type, "type", "private", "public, private or management")
	completeApplicationTypes(c)
	grant := grantFlags(c)
	expires := c.Flags().String("expires-at", "", "instant from which on it may do nothing (default: never)")
	originFlag(c, &in.AllowedOrigins, "")
	noKey := c.Flags().Bool("no-key", false, "make no key yet")
	fill := func(args []string) (err error) {
		in.Name = args[0]
		if *noKey {
			in.CreateKey = new(bool)
		}
		if in.Permissions, in.Rules, err = grant(); err == nil {
			in.ExpiresAt, err = instant(*expires)
		}
		return err
	}
	return eitherCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		if err := fill(args); err != nil {
			return nil, err
		}
		return call.Applications.Create(c.Context(), in)
	}, func(c *cobra.Command, call *admin.Client, tenant string, args []string) (any, error) {
		if err := fill(args); err != nil {
			return nil, err
		}
		var out api.Application
		err := call.Call(c.Context(), http.MethodPost, applicationPath(tenant), in, &out)
		return out, err
	}, showApplication)
}

func completeApplicationTypes(c *cobra.Command) {
	_ = c.RegisterFlagCompletionFunc("type", cobra.FixedCompletions([]string{"public", "private", "management"}, cobra.ShellCompDirectiveNoFileComp))
}

// showApplication prints an application, with its key in the one answer that
// has it.
func showApplication(w io.Writer, v any) {
	a := v.(api.Application)
	fields(w, "application", a.ID, "name", a.Name, "type", a.Type, "permissions", strings.Join(a.Permissions, " "))
	for i, r := range a.Rules {
		where := r.Container
		for _, c := range r.Conditions {
			where += c.Attribute + " " + c.Operator + " " + c.Value + " "
		}
		fields(w, "rule "+strconv.Itoa(i), strings.Join(r.Permissions, " ")+" on "+where+": "+r.Transform)
	}
	fields(w, "origins", strings.Join(a.AllowedOrigins, " "))
	fields(w, "keys", strconv.Itoa(len(a.Keys)), "expires", at(a.ExpiresAt.Time), "created", at(a.CreatedAt.Time), "modified", at(a.ModifiedAt.Time), "key", a.Key)
	if a.Key != "" {
		printf(w, shownOnce)
	}
}

func applicationListCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List applications, newest first",
		Long: "Lists applications. Over the API it takes application:read.",
		Example: `  tokenkeep application list --type private
  tokenkeep application list --tenant acme --data /var/lib/tokenkeep`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	var f client.ApplicationFilter
	c.Flags().StringArrayVar(&f.Types, "type", nil, "only applications of this type; may be repeated")
	completeApplicationTypes(c)
	limit := limitFlag(c)
	return eitherCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		return upTo(c, *limit, call.Applications.List(c.Context(), f))
	}, func(c *cobra.Command, call *admin.Client, tenant string, _ []string) (any, error) {
		return upTo(c, *limit, func(yield func(api.Application, error) bool) {
			for a, err := range allPages[api.Application](c, call, applicationPath(tenant)) {
				if (len(f.Types) == 0 || err != nil || slices.Contains(f.Types, a.Type)) && !yield(a, err) {
					return
				}
			}
		})
	}, func(w io.Writer, v any) {
		printf(w, "APPLICATION\tNAME\tTYPE\tKEYS\tPERMISSIONS\tRULES\n")
		for _, a := range v.([]api.Application) {
			printf(w, "%s\t%s\t%s\t%d\t%d\t%d\n", plain(a.ID), plain(a.Name), plain(a.Type), len(a.Keys), len(a.Permissions), len(a.Rules))
		}
	})
}

func applicationGetCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "get [APPLICATION]", Short: "Print an application; without an id, that of the key",
		Long:    "Prints an application, never its key. Without an id it is the one that the key\nbelongs to, for which any key will do; otherwise it takes application:read.",
		Example: "  tokenkeep application get",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		if len(args) == 0 {
			return call.Applications.Own(c.Context())
		}
		return call.Applications.Get(c.Context(), args[0])
	}, showApplication)
}

func applicationUpdateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "update APPLICATION", Short: "Change what an application is called and may do",
		Long: `Changes what is given and leaves the rest: permissions, rules and origins are
replaced as whole lists. What it loses, it loses with the next request. It takes
application:read and application:update.`,
		Example: "  tokenkeep application update APPLICATION --permission token:create --permission token:use",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	name := c.Flags().String("name", "", "new name (default: as it was)")
	grant := grantFlags(c)
	var origins []string
	originFlag(c, &origins, "; one that is empty for none (default: as they were)")
	expires := c.Flags().String("expires-at", "", "instant from which on it may do nothing; empty for never (default: as it was)")
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		permissions, rules, err := grant()
		if err != nil {
			return nil, err
		}
		until, err := instant(*expires)
		if err != nil {
			return nil, err
		}
		old, err := call.Applications.Get(c.Context(), args[0])
		if err != nil {
			return nil, err
		}
		in := api.ReplaceApplication{Name: cmp.Or(*name, old.Name), Permissions: old.Permissions, Rules: old.Rules, ExpiresAt: old.ExpiresAt, AllowedOrigins: old.AllowedOrigins}
		if c.Flags().Changed("permission") {
			in.Permissions = permissions
		}
		if c.Flags().Changed("rules") {
			in.Rules = rules
		}
		if c.Flags().Changed("allowed-origin") {
			in.AllowedOrigins = slices.DeleteFunc(origins, func(o string) bool { return o == "" })
		}
		if c.Flags().Changed("expires-at") {
			in.ExpiresAt = until
		}
		return call.Applications.Replace(c.Context(), args[0], in)
	}, showApplication)
}

func applicationDeleteCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "delete APPLICATION", Short: "Delete an application with its keys; there is no way back",
		Long:    "Deletes an application. It takes application:delete.",
		Example: "  tokenkeep application delete APPLICATION",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return deleted, call.Applications.Delete(c.Context(), args[0])
	}, func(w io.Writer, _ any) { printf(w, "The application is deleted, and its keys open nothing.\n") })
}

func applicationKeysCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "keys APPLICATION [KEY]", Short: "List the keys of an application, or one of them; never the keys themselves",
		Long:    "Lists what is known of the keys of an application, oldest first; with the id of a\nkey, of that one. Over the API it takes application:read.",
		Example: "  tokenkeep application keys APPLICATION",
		Args:    cobra.RangeArgs(1, 2), ValidArgsFunction: cobra.NoFileCompletions,
	}
	return eitherCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		if len(args) == 1 {
			return call.Keys.List(c.Context(), args[0])
		}
		k, err := call.Keys.Get(c.Context(), args[0], args[1])
		return []api.Key{k}, err
	}, func(c *cobra.Command, call *admin.Client, tenant string, args []string) (any, error) {
		var out []api.Key
		if err := call.Call(c.Context(), http.MethodGet, applicationPath(tenant, args[0], "keys"), nil, &out); err != nil || len(args) == 1 {
			return out, err
		}
		if out = slices.DeleteFunc(out, func(k api.Key) bool { return k.ID != args[1] }); len(out) == 0 {
			return nil, errors.New("no such key")
		}
		return out, nil
	}, func(w io.Writer, v any) {
		printf(w, "KEY\tVERSION\tBEGINS WITH\tCREATED\n")
		for _, k := range v.([]api.Key) {
			printf(w, "%s\t%s\t%s…\t%s\n", plain(k.ID), plain(k.Version), plain(k.Prefix), at(k.CreatedAt.Time))
		}
	})
}

func applicationRotateKeyCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "rotate-key APPLICATION", Short: "Give an application one new key and revoke the others",
		Long: `Makes a new key and prints it once. Without --keep-old all older keys are dead
at once, with the sessions that they created or authorized; with it they stay
until 'application revoke-key', so that a fleet can change over without a
pause. Over the API it takes application:update.`,
		Example: "  tokenkeep application rotate-key APPLICATION --keep-old",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	keepOld := c.Flags().Bool("keep-old", false, "leave the older keys valid")
	return eitherCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		if *keepOld {
			return call.Keys.Create(c.Context(), args[0])
		}
		return call.Applications.Regenerate(c.Context(), args[0])
	}, func(c *cobra.Command, call *admin.Client, tenant string, args []string) (any, error) {
		if *keepOld {
			var out api.Key
			err := call.Call(c.Context(), http.MethodPost, applicationPath(tenant, args[0], "keys"), nil, &out)
			return out, err
		}
		var out api.Application
		err := call.Call(c.Context(), http.MethodPost, applicationPath(tenant, args[0], "regenerate"), nil, &out)
		return out, err
	}, func(w io.Writer, v any) {
		if a, ok := v.(api.Application); ok {
			showApplication(w, a)
			return
		}
		k := v.(api.Key)
		fields(w, "key", k.Key, "key id", k.ID)
		printf(w, shownOnce)
	})
}

func applicationRevokeKeyCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "revoke-key APPLICATION KEY", Short: "Revoke one key of an application, by its id",
		Long:    "Revokes a key: it opens nothing from the next request on, and neither do the\nsessions that it created or authorized. A key that does not exist, or whose\napplication does not, is no error. Over the API it takes application:update.",
		Example: "  tokenkeep application revoke-key APPLICATION KEY-ID",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: cobra.NoFileCompletions,
	}
	revoked := &api.Health{Status: "revoked"}
	return eitherCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return revoked, call.Keys.Delete(c.Context(), args[0], args[1])
	}, func(c *cobra.Command, call *admin.Client, tenant string, args []string) (any, error) {
		return revoked, call.Call(c.Context(), http.MethodDelete, applicationPath(tenant, args[0], "keys", args[1]), nil, nil)
	}, func(w io.Writer, _ any) { printf(w, "The key is revoked, or does not exist.\n") })
}

func permissionCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List the permissions that applications may hold",
		Long:    "Lists what applications may be given, as the server has it. Any key will do.",
		Example: "  tokenkeep permission list --type private",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	kind := c.Flags().String("type", "", "only what applications of this type may hold")
	completeApplicationTypes(c)
	return group("permission", "List the permissions that applications may hold, over the API",
		apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
			return call.Permissions.List(c.Context(), *kind)
		}, func(w io.Writer, v any) {
			printf(w, "PERMISSION\tAPPLICATIONS\tWHAT FOR\n")
			for _, p := range v.([]api.Permission) {
				printf(w, "%s\t%s\t%s\n", plain(p.Type), plain(strings.Join(p.ApplicationTypes, " ")), plain(p.Description))
			}
		}))
}
