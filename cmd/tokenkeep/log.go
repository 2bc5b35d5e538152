package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
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
	c.AddCommand(logListCommand("list"), logExportCommand(), logIntegrityCommand(), logVerifyCommand(), logNamesCommand(), logTypesCommand())
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
	filter := logFilterFlags(c)
	follow := c.Flags().BoolP("follow", "f", false, "go on with the entries that come")
	interval := c.Flags().Duration("interval", time.Second, "with --follow, how long to wait before connecting again")
	limit := c.Flags().Uint("limit", 100, "how many at most, 0 for all; with --follow, how many of the past (then default 10, at most 100)")
	connect := apiFlags(c)
	asJSON := c.Flags().Bool("json", false, "print JSON, one entry a line")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		f, err := filter()
		if err != nil {
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
			return followLog(c, call, f, client.Streaming{Pause: *interval, Past: int(min(past, 100))}, put)
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

// logFilterFlags gives a command the flags that choose entries, and returns what
// they say once they are parsed.
func logFilterFlags(c *cobra.Command) func() (client.LogFilter, error) {
	var f client.LogFilter
	c.Flags().StringVar(&f.EntityType, "entity-type", "", "only entries about this type of thing; 'tokenkeep log types' lists them")
	var types []string
	for _, t := range audit.EntityTypes() {
		types = append(types, t.Value)
	}
	_ = c.RegisterFlagCompletionFunc("entity-type", cobra.FixedCompletions(types, cobra.ShellCompDirectiveNoFileComp))
	c.Flags().StringVar(&f.EntityID, "entity", "", "only entries about the thing with this id")
	c.Flags().StringVar(&f.ActorID, "actor", "", "only entries of the actor with this id")
	c.Flags().StringVar(&f.Operation, "operation", "", "only entries of this operation: create, read, update, delete, use or rotate")
	c.Flags().StringVar(&f.Outcome, "outcome", "", "only what was allowed, or denied")
	c.Flags().StringVar(&f.Transform, "transform", "", "only entries that showed this much of a token: reveal, mask or redact")
	c.Flags().StringVar(&f.TraceID, "trace", "", "only entries of requests with this trace id")
	from := c.Flags().String("from", "", "only entries of this time and later: an instant, a day, or how long ago (default: the beginning)")
	before := c.Flags().String("before", "", "only entries before this time (default: now)")
	return func() (_ client.LogFilter, err error) {
		if f.From, err = when(*from, time.Now()); err != nil {
			return f, err
		}
		f.Before, err = when(*before, time.Now())
		return f, err
	}
}

func logExportCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "export", Short: "Write all entries of a filter as lines of JSON or as CSV",
		Long: `Writes all entries that the flags choose, newest first, to the standard output.
Cells of CSV that a spreadsheet could take for a formula begin with an
apostrophe. It takes log:read. Entries with proofs, for an auditor, are written
by 'tokenkeep audit export'.`,
		Example: "  tokenkeep log export --entity card-of-jane --operation read --format csv > who-saw-it.csv",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	filter := logFilterFlags(c)
	format := c.Flags().String("format", "ndjson", "ndjson or csv")
	connect := apiFlags(c)
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		f, err := filter()
		if err != nil {
			return err
		}
		call, err := connect(keyNeeded)
		if err != nil {
			return err
		}
		if *asJSON {
			*format = "ndjson"
		}
		return asUsage(call.Logs.Export(c.Context(), f, *format, c.OutOrStdout()))
	}
	return c
}

func logIntegrityCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "integrity", Short: "Print the signed head of the log and when it was last verified",
		Long: `Prints the signed head of the log, how many entries are not sealed yet, and when
the log was last verified and by whom. With --json the member "head" is a
checkpoint for 'tokenkeep audit verify --checkpoint'. It takes log:read.`,
		Example: "  tokenkeep log integrity",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		return call.Logs.Integrity(c.Context())
	}, func(w io.Writer, v any) {
		in := v.(api.LogIntegrity)
		head, verified := "nothing is sealed yet", "never"
		if in.Head != nil {
			head = fmt.Sprintf("batch %d, sealed %s", in.Head.Number, at(in.Head.SealedAt))
		}
		if l := in.LastVerification; l != nil {
			verified = fmt.Sprintf("%s by %s: %d entries, %d findings", at(l.At.Time), plain(cmp.Or(l.ActorName, l.ActorID, l.ActorType)), l.Entries, l.Findings)
		}
		fields(w, "head", head, "not sealed", strconv.FormatInt(in.Unsealed, 10), "verified", verified)
	})
}

// verifyPause is how often a verification is looked at.
const verifyPause = time.Second

func logVerifyCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "verify", Short: "Verify the log of the key's tenant on the server",
		Long: `Starts a verification of the whole log and waits until it is done. A log that
was changed ends with exit code 10. It takes log:read. 'tokenkeep audit verify',
on the server's machine, also takes a checkpoint.`,
		Example: "  tokenkeep log verify",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	noWait := c.Flags().Bool("no-wait", false, "print the verification and do not wait for it")
	id := c.Flags().String("id", "", "look at a verification that was started before")
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		ctx, stop := interruptible(c)
		defer stop()
		start := call.Logs.Verify
		if *id != "" {
			start = func(ctx context.Context) (api.LogVerification, error) { return call.Logs.Verification(ctx, *id) }
		}
		v, err := start(ctx)
		for err == nil && !*noWait && v.Result == nil && v.State != "failed" {
			select {
			case <-ctx.Done():
				return v, ctx.Err()
			case <-time.After(verifyPause):
			}
			v, err = call.Logs.Verification(ctx, v.ID)
		}
		if err == nil && v.Result != nil && !v.Result.Clean {
			for _, f := range v.Result.Findings {
				printf(c.ErrOrStderr(), "%s: batch %d, entry %s (%s)\n", plain(f.Kind), f.Batch, plain(f.EntryID), plain(f.Detail))
			}
			err = errLogChanged
		}
		return v, err
	}, func(w io.Writer, v any) {
		j := v.(api.LogVerification)
		fields(w, "verification", plain(j.ID), "state", plain(j.State))
		if r := j.Result; r != nil {
			printf(w, "%d entries in %d batches are as they were sealed (%d batches dropped by retention).\n", r.Entries, r.Batches, r.Dropped)
		}
	})
}

func followLog(c *cobra.Command, call *client.Client, f client.LogFilter, o client.Streaming, put func(io.Writer, api.LogEntry) error) error {
	ctx, stop := interruptible(c)
	defer stop()
	o.Trouble = func(err error) { tellTrouble(c, err) }
	for e, err := range call.Logs.Stream(ctx, f, o) {
		if err != nil {
			return asUsage(err)
		}
		if err := put(c.OutOrStdout(), e.Entry); err != nil {
			return err
		}
	}
	return nil // interrupted
}

// entryForm is a line of the table, which has no end that widths could be
// computed at.
const entryForm = "%-19s  %-28s  %-12s  %-36s  %s\n"

func printEntry(w io.Writer, e api.LogEntry) error {
	_, err := fmt.Fprintf(w, entryForm, at(e.CreatedAt.Time), plain(e.Message), plain(e.EntityType), plain(e.EntityID), plain(cmp.Or(e.ActorName, e.ActorID, e.ActorType)))
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
