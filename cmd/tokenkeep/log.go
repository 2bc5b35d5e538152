package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/date"
)

// logCommand lists the log itself, so that 'tokenkeep log -f' is all that one
// has to remember.
func logCommand() *cobra.Command {
	c := logListCommand("log")
	c.Short = "List and follow the log of the key's tenant, over the API"
	c.AddCommand(logListCommand("list"), logNamesCommand(), logTypesCommand())
	return c
}

var errWhen = &usageError{errors.New("--from and --before take an instant such as 2030-01-31T12:00:00Z, a day such as 2030-01-31, or how long ago, such as 90m")}

// when reads an instant, a day of UTC, or a time ago.
func when(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	d, ok := date.Parse(s)
	if !ok {
		return time.Time{}, errWhen
	}
	return d.Time, nil
}

func logListCommand(use string) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: "List entries of the log, newest first, or follow them",
		Long: `Lists what happened to the tenant of the key, newest first. With --follow it
begins with the last ten entries, or with all since --from, and goes on with those
that come, oldest first, until it is interrupted. It waits through restarts of the
server and prints each entry once. With --json every entry is one line, for
whatever collects logs.

It takes log:read. Reading the log is itself logged; those entries are listed
with --entity-type log.`,
		Example: `  tokenkeep log list --entity-type card --from 24h
  tokenkeep log -f
  tokenkeep log -f --json --from 2030-01-31T00:00:00Z >> audit.jsonl`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	var f client.LogFilter
	c.Flags().StringVar(&f.EntityType, "entity-type", "", "only entries about this type of thing; 'tokenkeep log types' lists them")
	var types []string
	for _, t := range audit.EntityTypes() {
		types = append(types, t.Value)
	}
	_ = c.RegisterFlagCompletionFunc("entity-type", cobra.FixedCompletions(types, cobra.ShellCompDirectiveNoFileComp))
	c.Flags().StringVar(&f.EntityID, "entity", "", "only entries about the thing with this id")
	from := c.Flags().String("from", "", "only entries of this time and later: an instant, a day, or how long ago (default: the beginning)")
	before := c.Flags().String("before", "", "only entries before this time (default: now)")
	follow := c.Flags().BoolP("follow", "f", false, "go on with the entries that come")
	interval := c.Flags().Duration("interval", 2*time.Second, "with --follow, how often to look")
	limit := c.Flags().Uint("limit", 100, "how many at most, 0 for all; with --follow, how many of the past (then default 10, at most 100)")
	connect := apiFlags(c)
	asJSON := c.Flags().Bool("json", false, "print JSON, one entry a line")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if f.From, err = when(*from, time.Now()); err != nil {
			return err
		}
		if f.Before, err = when(*before, time.Now()); err != nil {
			return err
		}
		if *interval <= 0 {
			return errFlagValue
		}
		call, err := connect(keyNeeded)
		if err != nil {
			return err
		}
		put := printEntry
		if *asJSON {
			put = printLine[api.LogEntry]
		}
		if *follow {
			past := *limit
			if !c.Flags().Changed("limit") {
				past = 10
			}
			return followLog(c, call, f, client.Following{Every: *interval, Past: int(min(past, 100))}, put)
		}
		n := uint(0)
		for e, err := range call.Logs.ListFrom(c.Context(), f) {
			if err != nil {
				return asUsage(err)
			}
			if *limit > 0 && n == *limit {
				tellMore(c)
				break
			}
			if n++; n == 1 && !*asJSON {
				printf(c.OutOrStdout(), entryForm, "TIME", "MESSAGE", "TYPE", "ENTITY", "ACTOR")
			}
			if err := put(c.OutOrStdout(), e); err != nil {
				return err
			}
			if !isTerminal(c.OutOrStdout()) {
				tellCount(c, int(n))
			}
		}
		return nil
	}
	return c
}

func followLog(c *cobra.Command, call *client.Client, f client.LogFilter, o client.Following, put func(io.Writer, api.LogEntry) error) error {
	ctx, stop := interruptible(c)
	defer stop()
	o.Trouble = func(err error) { tellTrouble(c, err) }
	for e, err := range call.Logs.Follow(ctx, f, o) {
		if err != nil {
			return asUsage(err)
		}
		if err := put(c.OutOrStdout(), e); err != nil {
			return err
		}
	}
	return nil // interrupted
}

// entryForm is a line of the table, which has no end that widths could be
// computed at.
const entryForm = "%-19s  %-28s  %-12s  %-36s  %s\n"

func printEntry(w io.Writer, e api.LogEntry) error {
	_, err := fmt.Fprintf(w, entryForm, at(e.CreatedAt.Time), plain(e.Message), plain(e.EntityType), plain(e.EntityID), plain(cmp.Or(e.ActorID, e.ActorType)))
	return err
}

func logNamesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "names ID...", Short: "Print what ids of the log belong to",
		Long: `Prints kind and name of what ids belong to, at most 100. What was deleted is known
from the log, without its name; ids that nothing is known of are left out. It takes
log:read, and for a name the permission to read the thing itself.`,
		Example: "  tokenkeep log names ID1 ID2",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return call.Logs.Names(c.Context(), args...)
	}, func(w io.Writer, v any) {
		printf(w, "ID\tKIND\tNAME\n")
		for _, n := range v.([]api.Named) {
			name := plain(n.Name)
			if n.Deleted {
				name = "(deleted)"
			}
			printf(w, "%s\t%s\t%s\n", plain(n.ID), plain(n.Kind), name)
		}
	})
}

func logTypesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "types", Short: "List what entries may be about",
		Long:    "Lists the types of things that entries of the log are about. It takes log:read.",
		Example: "  tokenkeep log types",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		return call.Logs.EntityTypes(c.Context())
	}, func(w io.Writer, v any) {
		printf(w, "TYPE\tNAME\n")
		for _, t := range v.([]api.EntityType) {
			printf(w, "%s\t%s\n", plain(t.Value), plain(t.DisplayName))
		}
	})
}
