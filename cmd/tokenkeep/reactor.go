package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
)

func reactorCommand() *cobra.Command {
	versions, restore := reactorVersionCommands()
	return group("reactor", "Try out reactor code on this machine; deploy, run, list, change, delete and watch reactors over the API",
		reactorRunCommand(), reactorDeployCommand(), reactorListCommand(), reactorGetCommand(), reactorUpdateCommand(), reactorDeleteCommand(),
		reactorReactCommand(), reactorResultCommand(), reactorLogsCommand(), reactorTryCommand(), versions, restore)
}

// readFile reads a file that an argument names, without repeating its path.
func readFile(name, what string) ([]byte, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, &usageError{errors.New("the file with " + what + " cannot be read")}
	}
	return b, nil
}

var errConfiguration = &usageError{errors.New("the file given with --config must hold a JSON object of texts")}

// configurationFile reads the configuration of a reactor: an object of texts.
func configurationFile(name string) (map[string]string, error) {
	b, err := readFile(name, "the configuration")
	if err != nil {
		return nil, err
	}
	var out map[string]string
	if json.Unmarshal(b, &out) != nil || out == nil {
		return nil, errConfiguration
	}
	return out, nil
}

var (
	errNoName   = &usageError{errors.New("a reactor is found by --name or by --id: give one of them")}
	errTwoNames = &usageError{errors.New("several reactors have this name: say with --id which one")}
)

func reactorDeployCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "deploy FILE.js", Short: "Make a reactor of a file, or put the file in the place of its code",
		Long: `Looks for the reactor with this id, or with exactly this name. When there is
one, its code is replaced, and its configuration and application too if they are
given; what is not given stays. Otherwise a reactor of this name is made. The
next run takes the new code. It takes reactor:read, reactor:create and
reactor:update.`,
		Example: `  tokenkeep reactor deploy charge.js --name charge --config charge.json --application APPLICATION`,
		Args:    cobra.ExactArgs(1),
	}
	name := c.Flags().String("name", "", "name of the reactor; with --id, its new name")
	id := c.Flags().String("id", "", "id of the reactor")
	config := c.Flags().String("config", "", "file with the configuration, a JSON object of texts (default: as it was, or empty)")
	application := c.Flags().String("application", "", "id of the application whose rights the code has; empty for none (default: as it was, or none)")
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		if *name == "" && *id == "" {
			return nil, errNoName
		}
		code, err := readFile(args[0], "the code")
		if err != nil {
			return nil, err
		}
		old, err := findReactor(c, call, *id, *name)
		if err != nil {
			return nil, err
		}
		in := api.WriteReactor{Name: cmp.Or(*name, old.Name), Code: string(code), Configuration: old.Configuration, Application: old.Application}
		if in.Configuration == nil {
			in.Configuration = map[string]string{}
		}
		if *config != "" {
			if in.Configuration, err = configurationFile(*config); err != nil {
				return nil, err
			}
		}
		if c.Flags().Changed("application") {
			if in.Application = nil; *application != "" {
				in.Application = &api.ApplicationRef{ID: *application}
			}
		}
		if old.ID == "" {
			return call.Reactors.Create(c.Context(), in)
		}
		return call.Reactors.Replace(c.Context(), old.ID, in)
	}, showReactor)
}

// findReactor returns the reactor of an id or, without one, of exactly that
// name; the zero Reactor when no reactor has the name.
func findReactor(c *cobra.Command, call *client.Client, id, name string) (found api.Reactor, err error) {
	if id != "" {
		return call.Reactors.Get(c.Context(), id)
	}
	for r, err := range call.Reactors.List(c.Context(), client.ReactorFilter{Name: name}) {
		if err != nil {
			return found, err
		}
		if r.Name != name {
			continue // the server looks for parts of names
		}
		if found.ID != "" {
			return found, errTwoNames
		}
		found = r
	}
	return found, nil
}

// showReactor prints a reactor without its code, and of its configuration the
// names: the values may be secrets.
func showReactor(w io.Writer, v any) {
	r := v.(api.Reactor)
	printf(w, "reactor\t%s\nname\t%s\n", plain(r.ID), plain(r.Name))
	if r.Application != nil {
		printf(w, "application\t%s\n", plain(r.Application.ID))
	}
	if len(r.Configuration) > 0 {
		printf(w, "configuration\t%s\n", plain(strings.Join(slices.Sorted(maps.Keys(r.Configuration)), " ")))
	}
	printf(w, "code\t%d lines\n", strings.Count(strings.TrimSuffix(r.Code, "\n"), "\n")+1)
	fields(w, "created", at(r.CreatedAt.Time), "modified", at(r.ModifiedAt.Time))
}

func reactorListCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List reactors, newest first",
		Example: "  tokenkeep reactor list --name 'charge*'",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	var f client.ReactorFilter
	c.Flags().StringVar(&f.Name, "name", "", "only reactors whose name holds this; * stands for anything")
	limit := limitFlag(c)
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		return upTo(c, *limit, call.Reactors.List(c.Context(), f))
	}, func(w io.Writer, v any) {
		printf(w, "REACTOR\tNAME\tAPPLICATION\tMODIFIED\n")
		for _, r := range v.([]api.Reactor) {
			application := ""
			if r.Application != nil {
				application = r.Application.ID
			}
			printf(w, "%s\t%s\t%s\t%s\n", plain(r.ID), plain(r.Name), plain(application), cmp.Or(at(r.ModifiedAt.Time), at(r.CreatedAt.Time)))
		}
	})
}

func reactorGetCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "get REACTOR", Short: "Print a reactor",
		Long: `Prints a reactor, of its configuration only the names: the values may be secrets.
--json prints all of it, --code the code alone.`,
		Example: "  tokenkeep reactor get REACTOR --code | diff - charge.js",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	code := c.Flags().Bool("code", false, "print the code alone")
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return call.Reactors.Get(c.Context(), args[0])
	}, func(w io.Writer, v any) {
		if !*code {
			showReactor(w, v)
			return
		}
		_, _ = io.WriteString(c.OutOrStdout(), v.(api.Reactor).Code)
	})
}

func reactorDeleteCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "delete REACTOR", Short: "Delete a reactor; there is no way back",
		Example: "  tokenkeep reactor delete REACTOR",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return deleted, call.Reactors.Delete(c.Context(), args[0])
	}, func(w io.Writer, _ any) { printf(w, "The reactor is deleted.\n") })
}

// mostRuns is how many the server keeps of a reactor, and gives at once.
const mostRuns = 100

func reactorLogsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "logs REACTOR", Short: "Print the last runs of a reactor with what they printed",
		Long: `Prints what the server remembers of the last runs, oldest first: for an hour, and
of at most a hundred runs. With --follow it goes on with those that come, until it
is interrupted. It takes reactor:read, and every look is in the tenant's log.`,
		Example: "  tokenkeep reactor logs REACTOR --follow",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	connect := apiFlags(c)
	asJSON := c.Flags().Bool("json", false, "print JSON, one run a line")
	follow := c.Flags().BoolP("follow", "f", false, "go on with the runs that come")
	interval := c.Flags().Duration("interval", 2*time.Second, "with --follow, how often to look")
	limit := c.Flags().Uint("limit", mostRuns, "how many of the past runs at most")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *interval <= 0 {
			return errFlagValue
		}
		call, err := connect(keyNeeded)
		if err != nil {
			return err
		}
		put := printRun
		if *asJSON {
			put = printLine[api.Run]
		}
		ctx, stop := interruptible(c)
		defer stop()
		seen := make(map[string]bool)
		for first := true; ; {
			page, err := call.Reactors.RunsPage(ctx, args[0], 1, mostRuns)
			if ctx.Err() != nil {
				return nil // interrupted
			}
			if *follow && errors.Is(err, client.ErrUnavailable) {
				tellTrouble(c, err)
				if !wait(ctx, *interval) {
					return nil
				}
				continue
			}
			if err != nil {
				return asUsage(err)
			}
			if first && uint(len(page.Data)) > *limit {
				for _, run := range page.Data[*limit:] {
					seen[run.ID] = true
				}
			}
			now := make(map[string]bool, len(page.Data))
			for _, run := range slices.Backward(page.Data) {
				now[run.ID] = true
				if seen[run.ID] {
					continue
				}
				if err := put(c.OutOrStdout(), run); err != nil {
					return err
				}
			}
			if seen, first = now, false; !*follow || !wait(ctx, *interval) {
				return nil
			}
		}
	}
	return c
}

func printRun(w io.Writer, run api.Run) error {
	ended := "ok"
	if run.Failed {
		ended = "failed"
	}
	printf(w, "%s  %s  %s  %s\n", at(run.StartedAt.Time), plain(cmp.Or(run.RequestID, run.ID)), ended, figures(run.TookMicroseconds, run.MemoryBytes))
	printConsole(w, run.Console, "    ")
	return nil
}

// figures says how long a run took and how much memory it had at its end.
func figures(microseconds, memory int64) string {
	s := (time.Duration(microseconds) * time.Microsecond).Round(100 * time.Microsecond).String()
	if memory > 0 {
		s += fmt.Sprintf(", %d MiB", (memory+1<<19)>>20)
	}
	return s
}

// printConsole prints what code printed, in lines that are fit for a terminal.
func printConsole(w io.Writer, console []json.RawMessage, indent string) {
	for _, entry := range console {
		var line struct{ Level, Text string }
		if json.Unmarshal(entry, &line) != nil {
			continue
		}
		for text := range strings.SplitSeq(line.Text, "\n") {
			printf(w, "%s%-5s  %s\n", indent, plain(line.Level), plain(text))
		}
	}
}
