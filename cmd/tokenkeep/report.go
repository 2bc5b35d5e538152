package main

import (
	"cmp"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
)

func reportCommand() *cobra.Command {
	return group("report", "Report activity, keys, access and what deserves attention, over the API",
		reportActivityCommand(), reportKeysCommand(), reportAccessCommand(), reportAttentionCommand())
}

func reportActivityCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "activity", Short: "Count reads, uses, changes and refusals by time and application",
		Long: `Counts the reads of tokens by how much they showed, other reads, uses by
reactors and proxies, changes and refusals. The key needs report:read.`,
		Example: "  tokenkeep report activity --bucket day --from 720h",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	var f client.ActivityFilter
	c.Flags().StringVar(&f.Bucket, "bucket", "hour", "minute, hour or day")
	_ = c.RegisterFlagCompletionFunc("bucket", cobra.FixedCompletions([]string{"minute", "hour", "day"}, cobra.ShellCompDirectiveNoFileComp))
	c.Flags().StringVar(&f.ApplicationID, "application", "", "only what the application with this id did")
	c.Flags().BoolVar(&f.Together, "together", false, "add up all applications")
	from := c.Flags().String("from", "", "from this time on: an instant, a day, or how long ago (default: an hour, a day or a month ago)")
	before := c.Flags().String("before", "", "before this time (default: now)")
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (_ any, err error) {
		if f.From, err = when(*from, time.Now()); err != nil {
			return nil, err
		}
		if f.Before, err = when(*before, time.Now()); err != nil {
			return nil, err
		}
		return call.Reports.Activity(c.Context(), f)
	}, func(w io.Writer, v any) {
		printf(w, "TIME\tAPPLICATION\tREVEALED\tMASKED\tREDACTED\tOTHER READS\tUSES\tCHANGES\tREFUSALS\n")
		line := func(time, application string, n api.ActivityCounts) {
			printf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", time, plain(application), n.Reads.Revealed, n.Reads.Masked, n.Reads.Redacted, n.Reads.Other, n.Uses, n.Changes, n.Refusals)
		}
		r := v.(api.ActivityReport)
		for _, a := range r.Data {
			line(at(a.At.Time), a.ApplicationID, a.ActivityCounts)
		}
		line("all", "", r.Total)
	})
}

func reportKeysCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "keys", Short: "List the API keys with their age and the day of their last use",
		Long: `Lists the API keys of the key's tenant, oldest first. The last use is a day in
UTC; it is known from when the server began to note it. The key needs
application:read.`,
		Example: "  tokenkeep report keys",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	limit := limitFlag(c)
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		return upTo(c, *limit, call.Reports.Keys(c.Context()))
	}, func(w io.Writer, v any) {
		printf(w, "KEY\tPREFIX\tAPPLICATION\tTYPE\tDAYS\tLAST USED\n")
		for _, k := range v.([]api.KeyReport) {
			printf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", plain(k.ID), plain(k.Prefix), plain(k.ApplicationName), plain(k.ApplicationType), k.AgeDays, plain(cmp.Or(k.LastUsedOn, "-")))
		}
	})
}

func reportAccessCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "access", Short: "List who may see values, and in which containers",
		Long: `Lists every application and live session that may read, use or search tokens
with reveal, once for each permission and container where that begins. With
--since it marks what was created or changed at that time or later. The key
needs application:read.`,
		Example: "  tokenkeep report access --since 2030-01-01",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	since := c.Flags().String("since", "", "mark what changed at this time or later: an instant, a day, or how long ago")
	limit := limitFlag(c)
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		from, err := when(*since, time.Now())
		if err != nil {
			return nil, err
		}
		return upTo(c, *limit, call.Reports.Access(c.Context(), from))
	}, func(w io.Writer, v any) {
		printf(w, "KIND\tID\tNAME\tPERMISSION\tWHERE\tCHANGED\n")
		for _, a := range v.([]api.AccessReport) {
			changed := ""
			if a.Changed {
				changed = at(a.ChangedAt.Time)
			}
			printf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", plain(a.Kind), plain(a.ID), plain(a.Name), plain(a.Permission), plain(a.Container), changed)
		}
	})
}

func reportAttentionCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "attention", Short: "List what deserves attention: broad rules, open proxies, old keys, an unverified log",
		Long: `Lists what somebody should look at, most urgent first. The key needs
report:read, and is shown only things that it may read: application:read,
proxy:read and log:read show more.`,
		Example: "  tokenkeep report attention",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		return call.Reports.Attention(c.Context())
	}, func(w io.Writer, v any) {
		printf(w, "SEVERITY\tKIND\tTYPE\tENTITY\tNAME\tDETAIL\n")
		for _, i := range v.([]api.AttentionItem) {
			printf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", plain(i.Severity), plain(i.Kind), plain(i.EntityType), plain(i.EntityID), plain(i.Name), plain(i.Detail))
		}
	})
}
