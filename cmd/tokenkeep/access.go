package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/access"
)

func accessCommand() *cobra.Command {
	return group("access", "Tell who may do what to which tokens, and why, over the API", explainCommand(), whoCommand())
}

// permissionFlag names what is asked about.
func permissionFlag(c *cobra.Command) *string {
	p := c.Flags().String("permission", access.TokenRead.String(), "the permission in question")
	completePermissions(c)
	return p
}

// completePermissions lets shells complete the names of permissions.
func completePermissions(c *cobra.Command) {
	var names []string
	for _, p := range access.Permissions() {
		names = append(names, p.String())
	}
	_ = c.RegisterFlagCompletionFunc("permission", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
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
	token := c.Flags().String("token", "", "the token with this id, instead of a container")
	permission := permissionFlag(c)
	limit := limitFlag(c)
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		if *token != "" {
			return upTo(c, *limit, call.Access.WhoOf(c.Context(), *permission, *token))
		}
		return upTo(c, *limit, call.Access.Who(c.Context(), *permission, *container))
	}, func(w io.Writer, v any) {
		printf(w, "KIND\tID\tNAME\tTYPE\tSHOWS\tWHERE\n")
		for _, h := range v.([]api.AccessHolder) {
			printf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", h.Kind, plain(h.ID), plain(h.Name), h.ApplicationType, h.Transform, plain(h.Container))
		}
	})
}
