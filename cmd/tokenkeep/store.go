package main

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
)

var errChecksFailed = errors.New("the check found faults: restore a backup; nothing was changed")

func dataFlag(c *cobra.Command) *string {
	return c.Flags().String("data", "data", "data folder of the server")
}

func storeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "check",
		Short: "Read the whole store and say what is wrong with it",
		Long: `Reads every page and every index entry, and compares counters and search terms
with the rows they speak of. Works on a running server, through its admin
socket, and on a folder that no server has open. Changes nothing.`,
		Example: "  tokenkeep store check --data /var/lib/tokenkeep",
		Args:    cobra.NoArgs,
	}
	data := dataFlag(c)
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		last, err := admin.NewClient(*data).Follow(c.Context(), http.MethodPost, "/store/check", nil, tell(c))
		found := last.Found
		if errors.Is(err, admin.ErrNoServer) {
			found, err = sqlite.CheckFiles(c.Context(), *data, func(doing string) { _ = tell(c)(admin.Progress{Doing: doing}) })
		}
		if err != nil {
			return err
		}
		err = show(c, *asJSON, struct {
			Sound bool     `json:"sound"`
			Found []string `json:"found,omitempty"`
		}{len(found) == 0, found}, func(w io.Writer, _ any) {
			for _, f := range found {
				printf(w, "%s\n", f)
			}
			if len(found) == 0 {
				printf(w, "The store is sound.\n")
			}
		})
		if err == nil && len(found) > 0 {
			return errChecksFailed
		}
		return err
	}
	return group("store", "Look after the embedded store", c)
}

func sweepCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "sweep", Short: "Remove now what has expired",
		Long: `Removes expired tokens and sessions, and destroys short-lived keys whose time is
over. The server does so by itself every half minute, and what has expired is
not readable even before: this is for whoever does not want to wait.`,
		Example: "  tokenkeep sweep --data /var/lib/tokenkeep",
		Args:    cobra.NoArgs,
	}
	return operatorCommand(c, func(c *cobra.Command, call *admin.Client, _ []string) (any, error) {
		var swept admin.Swept
		return &swept, call.Call(c.Context(), http.MethodPost, "/sweep", nil, &swept)
	}, func(w io.Writer, v any) {
		swept := v.(*admin.Swept)
		printf(w, "Removed %d tokens and %d sessions, and destroyed %d short-lived keys.\n", swept.Tokens, swept.Sessions, swept.Keys)
	})
}

func statusCommand() *cobra.Command {
	c := &cobra.Command{Use: "status", Short: "Tell how the server on a data folder is doing", Args: cobra.NoArgs,
		Example: "  tokenkeep status --data /var/lib/tokenkeep"}
	return operatorCommand(c, func(c *cobra.Command, call *admin.Client, _ []string) (any, error) {
		var s admin.Status
		return &s, call.Call(c.Context(), http.MethodGet, "/status", nil, &s)
	}, func(w io.Writer, v any) {
		s := v.(*admin.Status)
		printf(w, "address\t%s\nrelease\t%s\nstarted\t%s\nready\t%t\n", s.BaseURL, s.Version, s.StartedAt.Format(time.RFC3339), s.Ready)
	})
}

func healthCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "health", Short: "Tell whether the server at an address is alive and can do its work",
		Long:    "Asks the server once, without a key. It ends with 12 when there is no answer, and\nwith 11 when the server says that it is not ready.",
		Example: "  tokenkeep health --url https://vault.example",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	connect := apiFlags(c)
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		call, err := connect(keyIfAny)
		if err == nil {
			err = call.Health(c.Context())
		}
		if err == nil {
			err = call.Ready(c.Context())
		}
		if err != nil {
			return err
		}
		return show(c, *asJSON, api.Health{Status: "ready"}, func(w io.Writer, _ any) { printf(w, "The server is ready.\n") })
	}
	return c
}
