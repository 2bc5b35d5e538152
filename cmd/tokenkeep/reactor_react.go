package main

import (
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
)

func reactorUpdateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "update REACTOR", Short: "Change a reactor by a merge patch and print it",
		Long: `Reads a JSON object from standard input, or from a file. What it names is
changed, null removes an entry of the configuration, and what it does not name
stays. It takes reactor:update and reactor:read.`,
		Example: `  echo '{"configuration":{"URL":"https://psp.example"}}' | tokenkeep reactor update REACTOR`,
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	read := inputFlag(c, "the merge patch, in JSON")
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		patch, err := inputJSON(read(c))
		if err != nil {
			return nil, err
		}
		if err := call.Reactors.Patch(c.Context(), args[0], patch); err != nil {
			return nil, err
		}
		return call.Reactors.Get(c.Context(), args[0])
	}, showReactor)
}

func reactorReactCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "react REACTOR", Short: "Run a reactor on the server and print what it returned",
		Long: `Runs a reactor with the arguments of a file, in which expressions such as
{{ TOKEN }} become values on the server, and prints what its code returned. With
--async it only starts it and prints the id for 'reactor result'; with
--callback-url the result goes there. It takes token:use.`,
		Example: `  echo '{"card":"{{ my-card }}"}' | tokenkeep reactor react REACTOR --args -
  tokenkeep reactor react REACTOR --args args.json --async --timeout 2m`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	args := c.Flags().String("args", "", "file with the arguments, a JSON object; - is standard input (default: none)")
	async := c.Flags().Bool("async", false, "start it, and do not wait")
	callback := c.Flags().String("callback-url", "", "start it, and have the result sent there")
	timeout := c.Flags().Duration("timeout", 0, "with --async or --callback-url, how long the code may run, from 10s to 3m30s (default 10s)")
	once := onceFlag(c)
	return apiCommand(c, func(c *cobra.Command, call *client.Client, ids []string) (any, error) {
		in := api.React{CallbackURL: *callback, TimeoutMS: int(timeout.Milliseconds())}
		if *args != "" {
			b, err := inputJSON(namedInput(c, *args, "the arguments"))
			if err != nil {
				return nil, err
			}
			in.Args = b
		}
		if *async {
			return call.Reactors.ReactAsync(c.Context(), ids[0], in, once()...)
		}
		return call.Reactors.React(c.Context(), ids[0], in, once()...)
	}, func(_ io.Writer, v any) {
		if r, ok := v.(api.AsyncReactor); ok {
			printf(c.OutOrStdout(), "%s\n", plain(r.AsyncReactorRequestID))
			return
		}
		printResponse(c, v.(api.ReactorResponse))
	})
}

// printResponse prints what code returned, which has a form of its own.
func printResponse(c *cobra.Command, r api.ReactorResponse) {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		b = []byte("{}")
	}
	printf(c.OutOrStdout(), "%s\n", plainJSON(b))
}

func reactorResultCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "result REACTOR REQUEST", Short: "Print what a run that nobody waited for came to",
		Long: `Prints the result of 'reactor react --async', with the key that started it. The
server keeps it for a day. With --wait it looks again until there is one.`,
		Example: "  tokenkeep reactor result REACTOR REQUEST --wait 1m",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: cobra.NoFileCompletions,
	}
	patience := c.Flags().Duration("wait", 0, "how long to wait for the run to end")
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		const every = time.Second
		for left := *patience; ; left -= every {
			got, err := call.Reactors.Result(c.Context(), args[0], args[1])
			if !errors.Is(err, client.ErrNotFound) || left <= 0 {
				return got, err
			}
			if left == *patience {
				printf(c.ErrOrStderr(), "… waiting for the run to end\n")
			}
			if !wait(c.Context(), min(every, left)) {
				return nil, c.Context().Err()
			}
		}
	}, func(_ io.Writer, v any) { printResponse(c, v.(api.ReactorResponse)) })
}
