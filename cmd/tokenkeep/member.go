package main

import (
	"errors"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/admin"
)

func memberCommand() *cobra.Command {
	return group("member", "Add, list, change and remove the people of a tenant, and sign them out",
		memberListCommand(), memberGetCommand(), memberCreateCommand(), memberUpdateCommand(), memberRemoveCommand(), memberSessionsCommand(), memberSignOutCommand())
}

func showMembers(w io.Writer, v any) {
	printf(w, "MEMBER\tEMAIL\tNAME\tROLE\tSTATE\tLAST SEEN\n")
	for _, m := range v.([]api.Member) {
		printf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", plain(m.ID), plain(m.Email), plain(m.Name), plain(m.Role), plain(m.State), at(m.LastSeenAt.Time))
	}
}

func showMember(w io.Writer, v any) {
	m := v.(api.Member)
	fields(w, "member", m.ID, "email", m.Email, "name", m.Name, "role", m.Role, "state", m.State, "last seen", at(m.LastSeenAt.Time), "created", at(m.CreatedAt.Time))
}

func memberListCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List the members, newest first",
		Long: "Lists the members. Over the API it takes member:read.", Example: "  tokenkeep member list",
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	limit := limitFlag(c)
	return eitherCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		return upTo(c, *limit, call.Members.List(c.Context()))
	}, func(c *cobra.Command, call *admin.Client, tenant string, _ []string) (any, error) {
		return upTo(c, *limit, allPages[api.Member](c, call, tenantPath(tenant, "members")))
	}, showMembers)
}

func memberGetCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "get MEMBER", Short: "Print a member",
		Long: "Prints a member. It takes member:read.", Example: "  tokenkeep member get MEMBER",
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return call.Members.Get(c.Context(), args[0])
	}, showMember)
}

func memberCreateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "create EMAIL", Short: "Add a member",
		Long: `Adds a member with a role. A member signs in with a provider that confirms this
email, or with a link: see 'tokenkeep console link'. Over the API it takes
member:create, and a role that the caller holds.`,
		Example: "  tokenkeep member create jane@shop.example --name 'Jane Doe' --role support",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	var in api.CreateMember
	c.Flags().StringVar(&in.Name, "name", "", "the name that the log shows (default: the email)")
	c.Flags().StringVar(&in.Role, "role", "", "what the member may do: owner, admin, developer, support, auditor, or a role of the tenant")
	fill := func(args []string) {
		in.Email = args[0]
		if in.Name == "" {
			in.Name = args[0]
		}
	}
	return eitherCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		fill(args)
		return call.Members.Create(c.Context(), in)
	}, func(c *cobra.Command, call *admin.Client, tenant string, args []string) (any, error) {
		fill(args)
		var out api.Member
		err := call.Call(c.Context(), http.MethodPost, tenantPath(tenant, "members"), in, &out)
		return out, err
	}, showMember)
}

var errNoChange = &usageError{errors.New("nothing is to be changed: give --name, --role or --state")}

func memberUpdateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "update MEMBER", Short: "Change the name, the role or the state of a member",
		Long: `Changes a member. A new role counts from the next request on, on every node; a
member who is disabled is signed out everywhere. Over the API it takes
member:update.`,
		Example: "  tokenkeep member update MEMBER --role auditor\n  tokenkeep member update MEMBER --state disabled",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	name := c.Flags().String("name", "", "the name that the log shows")
	role := c.Flags().String("role", "", "what the member may do")
	state := c.Flags().String("state", "", "active, or disabled: cannot sign in")
	change := func(c *cobra.Command) (in api.UpdateMember, err error) {
		for flag, field := range map[string]struct {
			from *string
			to   **string
		}{"name": {name, &in.Name}, "role": {role, &in.Role}, "state": {state, &in.State}} {
			if c.Flags().Changed(flag) {
				*field.to = field.from
			}
		}
		if in == (api.UpdateMember{}) {
			return in, errNoChange
		}
		return in, nil
	}
	return eitherCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		in, err := change(c)
		if err != nil {
			return nil, err
		}
		return call.Members.Update(c.Context(), args[0], in)
	}, func(c *cobra.Command, call *admin.Client, tenant string, args []string) (any, error) {
		in, err := change(c)
		if err != nil {
			return nil, err
		}
		var out api.Member
		err = call.Call(c.Context(), http.MethodPatch, tenantPath(tenant, "members", args[0]), in, &out)
		return out, err
	}, showMember)
}

func memberRemoveCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "remove MEMBER", Short: "Remove a member, who is signed out at once",
		Long: "Removes a member. The last owner stays. Over the API it takes member:delete.", Example: "  tokenkeep member remove MEMBER",
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	removed := &api.Health{Status: "removed"}
	return eitherCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return removed, call.Members.Delete(c.Context(), args[0])
	}, func(c *cobra.Command, call *admin.Client, tenant string, args []string) (any, error) {
		return removed, call.Call(c.Context(), http.MethodDelete, tenantPath(tenant, "members", args[0]), nil, nil)
	}, func(w io.Writer, _ any) { printf(w, "The member is removed.\n") })
}

func memberSessionsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "sessions MEMBER", Short: "List where a member is signed in",
		Long: "Lists the browsers in which a member is signed in. Over the API it takes member:read.", Example: "  tokenkeep member sessions MEMBER",
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	return eitherCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return call.Members.Sessions(c.Context(), args[0])
	}, func(c *cobra.Command, call *admin.Client, tenant string, args []string) (any, error) {
		var out []api.SignIn
		err := call.Call(c.Context(), http.MethodGet, tenantPath(tenant, "members", args[0], "sessions"), nil, &out)
		return out, err
	}, func(w io.Writer, v any) {
		printf(w, "SESSION\tSIGNED IN\tLAST USED\tENDS\tADDRESS\tPROVIDER\n")
		for _, s := range v.([]api.SignIn) {
			printf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", plain(s.ID), at(s.CreatedAt.Time), at(s.LastUsedAt.Time), at(s.IdleExpiresAt.Time), plain(s.ClientAddress), plain(s.Provider))
		}
	})
}

func memberSignOutCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "sign-out SESSION", Short: "Sign a member out of one browser",
		Long: "Ends a session of a member: its cookie opens nothing from the next request on.\nOver the API it takes member:update.", Example: "  tokenkeep member sign-out SESSION",
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	ended := &api.Health{Status: "signed out"}
	return eitherCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return ended, call.Members.EndSession(c.Context(), args[0])
	}, func(c *cobra.Command, call *admin.Client, tenant string, args []string) (any, error) {
		return ended, call.Call(c.Context(), http.MethodDelete, tenantPath(tenant, "members", "sessions", args[0]), nil, nil)
	}, func(w io.Writer, _ any) { printf(w, "The session is ended.\n") })
}

func roleCommand() *cobra.Command {
	return group("role", "List the roles of members, and add, change and delete those of the tenant",
		roleListCommand(), roleCreateCommand(), roleReplaceCommand(), roleDeleteCommand())
}

func roleListCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List the roles, the built-in ones first",
		Long: "Lists the roles. It takes member:read.", Example: "  tokenkeep role list",
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		return call.Roles.List(c.Context())
	}, func(w io.Writer, v any) {
		printf(w, "ROLE\tPERMISSIONS\tRULES\tDESCRIPTION\n")
		for _, r := range v.([]api.Role) {
			printf(w, "%s\t%d\t%d\t%s\n", plain(r.Name), len(r.Permissions), len(r.Rules), plain(r.Description))
		}
	})
}

func showRole(w io.Writer, v any) {
	r := v.(api.Role)
	fields(w, "role", r.Name, "description", r.Description)
	for _, p := range r.Permissions {
		fields(w, "permission", p)
	}
	printf(w, "rules\t%d\n", len(r.Rules))
}

// roleInput has the flags of what a role is made from.
func roleInput(c *cobra.Command) func(name string) (api.CreateRole, error) {
	description := c.Flags().String("description", "", "what the role is for")
	grant := grantFlags(c)
	return func(name string) (in api.CreateRole, err error) {
		in.Name, in.Description = name, *description
		in.Permissions, in.Rules, err = grant()
		return in, err
	}
}

func roleCreateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "create ROLE", Short: "Add a role of the tenant",
		Long: "Adds a role: permissions and rules, as an application has them. It takes\nmember:update.", Example: "  tokenkeep role create disputes --permission token:search --rules rules.json",
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	input := roleInput(c)
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		in, err := input(args[0])
		if err != nil {
			return nil, err
		}
		return call.Roles.Create(c.Context(), in)
	}, showRole)
}

func roleReplaceCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "replace ROLE", Short: "Replace a role of the tenant, for all who have it",
		Long: "Replaces what a role may do. It counts from the next request on. It takes\nmember:update.", Example: "  tokenkeep role replace disputes --permission token:read",
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	input := roleInput(c)
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		in, err := input(args[0])
		if err != nil {
			return nil, err
		}
		return call.Roles.Replace(c.Context(), args[0], in)
	}, showRole)
}

func roleDeleteCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "delete ROLE", Short: "Delete a role of the tenant that nobody has",
		Long: "Deletes a role. It takes member:update.", Example: "  tokenkeep role delete disputes",
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return deleted, call.Roles.Delete(c.Context(), args[0])
	}, func(w io.Writer, _ any) { printf(w, "The role is deleted.\n") })
}

func consoleCommand() *cobra.Command {
	return group("console", "Let people into the console", consoleLinkCommand())
}

func consoleLinkCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "link", Short: "Print a link that signs a person in, once",
		Long: `Makes a link that works once, within ten minutes. The person becomes a member of
the tenant with this role, unless one with this email is there. Give each person
an email: the log names the member.`,
		Example: "  tokenkeep console link --tenant acme --role owner --email jane@shop.example --name 'Jane Doe'",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	var in api.CreateLink
	tenant := c.Flags().String("tenant", "", "id or name of the tenant")
	_ = c.RegisterFlagCompletionFunc("tenant", completeTenants)
	c.Flags().StringVar(&in.Role, "role", "", "what the person may do: owner, admin, developer, support, auditor, or a role of the tenant")
	c.Flags().StringVar(&in.Email, "email", "", "email of the person (default: the role at localhost)")
	c.Flags().StringVar(&in.Name, "name", "", "the name that the log shows (default: the email)")
	_, _ = c.MarkFlagRequired("tenant"), c.MarkFlagRequired("role")
	return operatorCommand(c, func(c *cobra.Command, call *admin.Client, _ []string) (any, error) {
		id, err := tenantID(c, call, *tenant)
		if err != nil {
			return nil, err
		}
		var out api.CreatedLink
		return &out, call.Call(c.Context(), http.MethodPost, tenantPath(id, "links"), in, &out)
	}, func(w io.Writer, v any) {
		l := v.(*api.CreatedLink)
		printf(w, "%s\n\nSigns %s in as %s, once, until %s.\n", l.URL, plain(l.Member.Email), plain(l.Member.Role), at(l.ExpiresAt.Time))
	})
}
