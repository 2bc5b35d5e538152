package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/admin"
)

func sessionCommand() *cobra.Command {
	path := func(tenant string, rest ...string) string {
		return tenantPath(tenant, append([]string{"sessions"}, rest...)...)
	}
	list := &cobra.Command{Use: "list", Short: "List a tenant's live sessions, newest first", Args: cobra.NoArgs}
	listTenant := tenantFlag(list)
	revoke := &cobra.Command{
		Use: "revoke SESSION", Short: "End a session at once",
		Long: "Ends a session: its key opens nothing from the next request on, on every node.",
		Args: cobra.ExactArgs(1),
	}
	revokeTenant := tenantFlag(revoke)
	return group("session", "List and end the short-lived keys of a tenant's browsers",
		operatorCommand(list, func(c *cobra.Command, call *admin.Client, _ []string) (any, error) {
			return allPages[api.Session](c, call, path(*listTenant))
		}, func(w io.Writer, v any) {
			printf(w, "SESSION\tBEGINS WITH\tAUTHORIZED BY\tPERMISSIONS\tRULES\tEXPIRES\n")
			for _, s := range v.([]api.Session) {
				by := s.AuthorizedBy
				if by == "" {
					by = "nobody yet"
				}
				printf(w, "%s\t%s…\t%s\t%d\t%d\t%s\n", s.ID, s.Prefix, by, len(s.Permissions), len(s.Rules), s.ExpiresAt.Format("2006-01-02 15:04:05"))
			}
		}),
		operatorCommand(revoke, func(c *cobra.Command, call *admin.Client, args []string) (any, error) {
			return &api.Health{Status: "revoked"}, call.Call(c.Context(), http.MethodDelete, path(*revokeTenant, args[0]), nil, nil)
		}, func(w io.Writer, _ any) { printf(w, "The session is ended.\n") }),
	)
}

func tenantFlag(c *cobra.Command) *string {
	t := c.Flags().String("tenant", "", "the tenant's id")
	_ = c.MarkFlagRequired("tenant")
	return t
}

// tenantPath is a path of the admin socket below a tenant.
func tenantPath(tenant string, rest ...string) string {
	p := "/tenants/" + url.PathEscape(tenant)
	for _, r := range rest {
		p += "/" + url.PathEscape(r)
	}
	return p
}

func accessCommand() *cobra.Command {
	return group("access", "Tell who may do what to which tokens, and why, over the API", explainCommand(), whoCommand())
}

// permissionFlag names what is asked about.
func permissionFlag(c *cobra.Command) *string {
	p := c.Flags().String("permission", access.TokenRead.String(), "the permission in question")
	var names []string
	for _, p := range access.Permissions() {
		names = append(names, p.String())
	}
	_ = c.RegisterFlagCompletionFunc("permission", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return p
}

var errGrantFile = &usageError{errors.New("the file given with --proposed cannot be read, or is not a JSON object with type, permissions and rules")}

func explainCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "explain", Short: "Say whether an application or a session may do something, and which rule decides",
		Long: `Says whether an application, a session, or a grant that nobody has yet, may do
something to a token, or to any token in all of the given containers; which
rule decides, how much is shown, and why each rule before it does not decide.
No data is shown. The key needs application:read.`,
		Example: `  tokenkeep access explain --application ID --token my-card
  tokenkeep access explain --session ID --permission token:use --container /pci/high/
  tokenkeep access explain --proposed grant.json --container /pci/high/`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	var in api.ExplainAccess
	c.Flags().StringVar(&in.ApplicationID, "application", "", "the application that would do it")
	c.Flags().StringVar(&in.SessionID, "session", "", "the session that would do it")
	proposed := c.Flags().String("proposed", "", "file with a grant to try out: JSON with type, permissions and rules")
	c.Flags().StringVar(&in.TokenID, "token", "", "the token that it would be done to")
	c.Flags().StringArrayVar(&in.Containers, "container", nil, "a container of the tokens in question; may be repeated")
	permission := permissionFlag(c)
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		in.Permission = *permission
		if *proposed != "" {
			b, err := os.ReadFile(*proposed)
			if err != nil || json.Unmarshal(b, &in.Proposed) != nil {
				return nil, errGrantFile
			}
		}
		return call.Access.Explain(c.Context(), in)
	}, func(w io.Writer, v any) {
		e := v.(api.Explanation)
		answer := "refused"
		if e.Allowed {
			answer = "allowed, " + e.Transform
		}
		printf(w, "%s\t%s\n", plain(e.Permission), answer)
		if e.Inactive != "" {
			printf(w, "but\t%s\n", plain(e.Inactive))
		}
		if e.DependsOnID {
			printf(w, "note\tfor some ids the answer is kinder: name the token\n")
		}
		if len(e.Steps) == 0 {
			return
		}
		printf(w, "\nCONTAINER\tWHOSE\tRULE\tPRIORITY\tSHOWS\tWHY\n")
		for _, s := range e.Steps {
			whose, rule, priority := "own", "-", "-"
			if s.OfMaker {
				whose = "maker's"
			}
			if s.Rule != nil {
				rule, priority = strconv.Itoa(*s.Rule), strconv.Itoa(s.Priority)
			}
			printf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", plain(s.Container), whose, rule, priority, s.Transform, plain(s.Reason))
		}
	})
}

func whoCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "who", Short: "List the applications and live sessions that could do something to tokens of a container",
		Long: `Lists every application and every live session that could do something to some
token in a container or below it, with the most that each would be shown and
the first place where that is so: the review of access that auditors ask for.
The key needs application:read.`,
		Example: `  tokenkeep access who --container /pci/ --permission token:read`,
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	container := c.Flags().String("container", "", "container, such as /pci/; left out for permissions that are not on tokens")
	permission := permissionFlag(c)
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		list := []api.AccessHolder{}
		for h, err := range call.Access.Who(c.Context(), *permission, *container) {
			if err != nil {
				return nil, err
			}
			list = append(list, h)
		}
		return list, nil
	}, func(w io.Writer, v any) {
		printf(w, "KIND\tID\tNAME\tTYPE\tSHOWS\tWHERE\n")
		for _, h := range v.([]api.AccessHolder) {
			printf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", h.Kind, plain(h.ID), plain(h.Name), h.ApplicationType, h.Transform, plain(h.Container))
		}
	})
}
