package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/admin"
)

func sessionCommand() *cobra.Command {
	return group("session", "Make, authorize, list and end the short-lived keys of browsers",
		sessionCreateCommand(), sessionAuthorizeCommand(), sessionListCommand(), sessionRevokeCommand())
}

// tenantPath is a path of the admin socket below a tenant.
func tenantPath(tenant string, rest ...string) string {
	p := "/tenants/" + url.PathEscape(tenant)
	for _, r := range rest {
		p += "/" + url.PathEscape(r)
	}
	return p
}

func sessionCreateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "create", Short: "Make a session and print its key and its nonce",
		Long: `Makes a session, which may do nothing until it is authorized, and is gone after
three minutes if nothing else is said then. It takes the key of a public
application. Key and nonce are printed this once.`,
		Example: "  tokenkeep session create --profile shop-page --json > session.json",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		return call.Sessions.Create(c.Context())
	}, func(w io.Writer, v any) {
		s := v.(api.CreatedSession)
		fields(w, "session key", s.SessionKey, "nonce", s.Nonce, "expires", at(s.ExpiresAt.Time))
		printf(w, "\nKey and nonce are shown this once. 'tokenkeep session authorize' takes the nonce.\n")
	})
}

var errNonce = &usageError{errors.New("the input must be a nonce, or what 'tokenkeep session create --json' printed")}

func sessionAuthorizeCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "authorize", Short: "Give the session of a nonce its rights, once",
		Long: `Reads the nonce from standard input, or from a file: alone, or in the JSON that
'session create --json' printed. It takes the key of a private application, which
can give no more than it has itself.`,
		Example: "  tokenkeep session authorize --profile shop-server --permission token:create < session.json",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	read := inputFlag(c, "the nonce")
	grant := grantFlags(c)
	from := c.Flags().String("application", "", "id of the public application that must have made the session (default: any)")
	expires := c.Flags().String("expires-at", "", "instant at which the session ends, within 24 hours (default: three minutes after it was made)")
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		in := api.AuthorizeSession{ApplicationID: *from}
		var err error
		if in.Permissions, in.Rules, err = grant(); err != nil {
			return nil, err
		}
		if in.ExpiresAt, err = instant(*expires); err != nil {
			return nil, err
		}
		b, err := read(c)
		if err != nil {
			return nil, err
		}
		var made api.CreatedSession
		if json.Unmarshal(b, &made) == nil {
			in.Nonce = made.Nonce
		} else {
			in.Nonce = strings.TrimSpace(string(b))
		}
		if in.Nonce == "" {
			return nil, errNonce
		}
		return &api.Health{Status: "authorized"}, call.Sessions.Authorize(c.Context(), in)
	}, func(w io.Writer, _ any) { printf(w, "The session is authorized.\n") })
}

func sessionListCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List live sessions, newest first",
		Long:    "Lists live sessions, never their keys. Over the API it takes session:read.",
		Example: "  tokenkeep session list",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	limit := limitFlag(c)
	return eitherCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		return upTo(c, *limit, call.Sessions.List(c.Context()))
	}, func(c *cobra.Command, call *admin.Client, tenant string, _ []string) (any, error) {
		return upTo(c, *limit, allPages[api.Session](c, call, tenantPath(tenant, "sessions")))
	}, func(w io.Writer, v any) {
		printf(w, "SESSION\tBEGINS WITH\tAUTHORIZED BY\tPERMISSIONS\tRULES\tEXPIRES\n")
		for _, s := range v.([]api.Session) {
			printf(w, "%s\t%s…\t%s\t%d\t%d\t%s\n", plain(s.ID), plain(s.Prefix), plain(cmp.Or(s.AuthorizedBy, "nobody yet")), len(s.Permissions), len(s.Rules), at(s.ExpiresAt.Time))
		}
	})
}

func sessionRevokeCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "revoke SESSION", Short: "End a session at once",
		Long:    "Ends a session: its key opens nothing from the next request on, on every node.\nOver the API it takes session:delete.",
		Example: "  tokenkeep session revoke SESSION",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	revoked := &api.Health{Status: "revoked"}
	return eitherCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return revoked, call.Sessions.Delete(c.Context(), args[0])
	}, func(c *cobra.Command, call *admin.Client, tenant string, args []string) (any, error) {
		return revoked, call.Call(c.Context(), http.MethodDelete, tenantPath(tenant, "sessions", args[0]), nil, nil)
	}, func(w io.Writer, _ any) { printf(w, "The session is ended.\n") })
}
