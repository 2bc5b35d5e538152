package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/server"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
)

var errChecksFailed = errors.New("the check found faults: restore a backup; nothing was changed")

// errAnotherRelease says that the server does not know what it was asked.
var errAnotherRelease = errors.New("the running server does not know this command: it may be of another release")

func storeCommand() *cobra.Command {
	c := &cobra.Command{Use: "store", Short: "Look after the embedded store", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(storeCheckCommand())
	return c
}

func dataFlag(c *cobra.Command) *string {
	return c.Flags().String("data", "data", "data folder of the server")
}

func storeCheckCommand() *cobra.Command {
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
		say := func(doing string) { _, _ = fmt.Fprintf(c.ErrOrStderr(), "… %s\n", doing) }
		found, err := checkRunning(c, *data, say)
		if errors.Is(err, admin.ErrNoServer) {
			found, err = sqlite.CheckFiles(c.Context(), *data, say)
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
	return c
}

// checkRunning asks the server that has the folder open.
func checkRunning(c *cobra.Command, data string, say func(string)) ([]string, error) {
	req, err := http.NewRequestWithContext(c.Context(), http.MethodPost, "http://admin/store/check", nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: admin.Transport(data)}).Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, errAnotherRelease
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var p server.Progress
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			return nil, fmt.Errorf("the server's answer is not understood: %w", err)
		}
		switch {
		case p.Error != "":
			return nil, errors.New(p.Error)
		case p.Done:
			return p.Found, nil
		}
		say(p.Doing)
	}
	return nil, errors.Join(errors.New("the server went away before the check was done"), lines.Err())
}

func statusCommand() *cobra.Command {
	c := &cobra.Command{Use: "status", Short: "Tell how the server on a data folder is doing", Args: cobra.NoArgs}
	data := dataFlag(c)
	asJSON := c.Flags().Bool("json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		req, err := http.NewRequestWithContext(c.Context(), http.MethodGet, "http://admin/status", nil)
		if err != nil {
			return err
		}
		resp, err := (&http.Client{Transport: admin.Transport(*data), Timeout: 10 * time.Second}).Do(req)
		if errors.Is(err, admin.ErrNoServer) {
			return admin.ErrNoServer
		}
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			return errAnotherRelease
		}
		var s server.Status
		if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
			return fmt.Errorf("the server's answer is not understood: %w", err)
		}
		if *asJSON {
			e := json.NewEncoder(c.OutOrStdout())
			e.SetIndent("", "  ")
			return e.Encode(s)
		}
		w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintf(w, "address\t%s\nrelease\t%s\nstarted\t%s\nready\t%t\n", s.BaseURL, s.Version, s.StartedAt.Format(time.RFC3339), s.Ready)
		return w.Flush()
	}
	return c
}
