package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

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
		Args: cobra.NoArgs,
	}
	data := dataFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		last, err := admin.NewClient(*data).Follow(c.Context(), http.MethodPost, "/store/check", nil, tell(c))
		found := last.Found
		if errors.Is(err, admin.ErrNoServer) {
			found, err = sqlite.CheckFiles(c.Context(), *data, func(doing string) { _ = tell(c)(admin.Progress{Doing: doing}) })
		}
		if err != nil {
			return err
		}
		for _, f := range found {
			_, _ = fmt.Fprintln(c.OutOrStdout(), f)
		}
		if len(found) > 0 {
			return errChecksFailed
		}
		_, err = fmt.Fprintln(c.OutOrStdout(), "The store is sound.")
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
		Args: cobra.NoArgs,
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
	c := &cobra.Command{Use: "status", Short: "Tell how the server on a data folder is doing", Args: cobra.NoArgs}
	return operatorCommand(c, func(c *cobra.Command, call *admin.Client, _ []string) (any, error) {
		var s admin.Status
		return &s, call.Call(c.Context(), http.MethodGet, "/status", nil, &s)
	}, func(w io.Writer, v any) {
		s := v.(*admin.Status)
		printf(w, "address\t%s\nrelease\t%s\nstarted\t%s\nready\t%t\n", s.BaseURL, s.Version, s.StartedAt.Format(time.RFC3339), s.Ready)
	})
}
