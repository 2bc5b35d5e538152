package main

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/audit"
)

// eventForm is a line of the table, which has no end that widths could be computed
// at.
const eventForm = "%-19s  %-24s  %-12s  %-36s  %s\n"

func eventsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "events", Short: "List and follow the events of the key's tenant, over the API",
		Long: `Lists what happened to the entities of the tenant, oldest first, in ids and types:
events never hold data. They are kept 30 days. With --follow it goes on with the
events that come, from now or from --since, until it is interrupted. It waits
through restarts of the server and prints each event once. With --json every event
is one line.

It takes event:read.`,
		Example: `  tokenkeep events --type 'token.*' --since 24h
  tokenkeep events -f
  tokenkeep events -f --json --type token.expired`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	var f client.EventFilter
	typeFlag(c, &f.Types)
	c.Flags().StringVar(&f.EntityID, "entity", "", "only events of the entity with this id")
	since := c.Flags().String("since", "", "only events of this time and later: an instant, a day, or how long ago (default: the oldest; with --follow, now)")
	follow := c.Flags().BoolP("follow", "f", false, "go on with the events that come")
	limit := c.Flags().Uint("limit", 100, "how many at most, 0 for all; without effect with --follow")
	connect := apiFlags(c)
	asJSON := c.Flags().Bool("json", false, "print JSON, one event a line")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if f.Since, err = when(*since, time.Now()); err != nil {
			return err
		}
		call, err := connect(keyNeeded)
		if err != nil {
			return err
		}
		put := printEvent
		if *asJSON {
			put = printLine[api.Event]
		}
		if *follow {
			return followEvents(c, call, f, func(e api.Event) error { return put(c.OutOrStdout(), e) })
		}
		n := uint(0)
		for e, err := range call.Events.List(c.Context(), f) {
			if err != nil {
				return asUsage(err)
			}
			if *limit > 0 && n == *limit {
				tellMore(c)
				break
			}
			if n++; n == 1 && !*asJSON {
				printf(c.OutOrStdout(), eventForm, "TIME", "EVENT", "TYPE", "ENTITY", "ACTOR")
			}
			if err := put(c.OutOrStdout(), e); err != nil {
				return err
			}
		}
		return nil
	}
	return c
}

// typeFlag adds the flag that chooses types of events.
func typeFlag(c *cobra.Command, types *[]string) {
	c.Flags().StringArrayVar(types, "type", nil, "only events of this type, such as token.created or 'token.*'; repeatable")
	var names []string
	for _, t := range audit.EventTypes() {
		names = append(names, t.Name)
	}
	_ = c.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

// followEvents hands on events as they come, until the command is interrupted.
func followEvents(c *cobra.Command, call *client.Client, f client.EventFilter, put func(api.Event) error) error {
	ctx, stop := interruptible(c)
	defer stop()
	for e, err := range call.Events.Follow(ctx, f, client.FollowingEvents{Trouble: func(err error) { tellTrouble(c, err) }}) {
		if err != nil {
			return asUsage(err)
		}
		if err := put(e); err != nil {
			return err
		}
	}
	return nil // interrupted
}

func printEvent(w io.Writer, e api.Event) error {
	_, err := fmt.Fprintf(w, eventForm, at(e.CreatedAt.Time), plain(e.Type), plain(e.EntityType), plain(e.EntityID), plain(cmp.Or(e.ActorID, e.ActorType)))
	return err
}
