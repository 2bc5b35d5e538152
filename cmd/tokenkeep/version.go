package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
)

var errArgsFile = &usageError{errors.New("the file given with --args must hold JSON")}

func reactorTryCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "try FILE.js", Short: "Run code on the server that is not saved",
		Long: `Runs the code of a file on the server, behind the same walls as a reactor, and
prints what it returned and printed. Nothing is tokenized. It takes
reactor:update and, with --application or tokens among the arguments, token:use.
'reactor run' runs code on this machine.`,
		Example: "  tokenkeep reactor try charge.js --args args.json",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.FixedCompletions([]string{"js"}, cobra.ShellCompDirectiveFilterFileExt),
	}
	argsFile := c.Flags().String("args", "", "file with the arguments, in JSON")
	config := c.Flags().String("config", "", "file with the configuration, a JSON object of texts")
	application := c.Flags().String("application", "", "application whose rights the code has")
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		code, err := readFile(args[0], "the code")
		if err != nil {
			return nil, err
		}
		in := api.TryReactor{Code: string(code), ApplicationID: *application}
		if *argsFile != "" {
			b, err := readFile(*argsFile, "the arguments")
			if err != nil {
				return nil, err
			}
			if !json.Valid(b) {
				return nil, errArgsFile
			}
			in.Args = json.RawMessage(b)
		}
		if *config != "" {
			if in.Configuration, err = configurationFile(*config); err != nil {
				return nil, err
			}
		}
		return call.Reactors.Try(c.Context(), in)
	}, nil)
}

// versionsCommands are the commands for versions of code.
func versionsCommands(noun, permission string, list func(*client.Client) func(*cobra.Command, string) ([]api.CodeVersion, error),
	restore func(*client.Client) func(*cobra.Command, string, string) (any, error)) (versions, restoring *cobra.Command) {
	upper := strings.ToUpper(noun)
	versions = apiCommand(&cobra.Command{
		Use: "versions " + upper, Short: "List the last versions of the code of a " + noun,
		Long:    "Lists the last 20 versions with who wrote each and when, newest first. With\n--json it prints the code too. It takes " + permission + ":read.",
		Example: "  tokenkeep " + noun + " versions " + upper,
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return list(call)(c, args[0])
	}, func(w io.Writer, v any) {
		printf(w, "VERSION\tTIME\tBY\n")
		for _, x := range v.([]api.CodeVersion) {
			printf(w, "%d\t%s\t%s\n", x.Number, at(x.CreatedAt.Time), plain(cmp.Or(x.ActorName, x.CreatedBy)))
		}
	})
	restoring = apiCommand(&cobra.Command{
		Use: "restore " + upper + " VERSION", Short: "Restore the code of an earlier version of a " + noun,
		Long:    "Gives the " + noun + " the code of a version, as a new version. Everything else\nstays. It takes " + permission + ":update.",
		Example: "  tokenkeep " + noun + " restore " + upper + " 3",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: cobra.NoFileCompletions,
	}, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return restore(call)(c, args[0], args[1])
	}, func(w io.Writer, _ any) { printf(w, "The code was restored.\n") })
	return versions, restoring
}

func reactorVersionCommands() (versions, restoring *cobra.Command) {
	return versionsCommands("reactor", "reactor", func(call *client.Client) func(*cobra.Command, string) ([]api.CodeVersion, error) {
		return func(c *cobra.Command, id string) ([]api.CodeVersion, error) {
			return call.Reactors.Versions(c.Context(), id)
		}
	}, func(call *client.Client) func(*cobra.Command, string, string) (any, error) {
		return func(c *cobra.Command, id, number string) (any, error) {
			return call.Reactors.Restore(c.Context(), id, number)
		}
	})
}

func proxyVersionCommands() (versions, restoring *cobra.Command) {
	return versionsCommands("proxy", "proxy", func(call *client.Client) func(*cobra.Command, string) ([]api.CodeVersion, error) {
		return func(c *cobra.Command, id string) ([]api.CodeVersion, error) {
			return call.Proxies.Versions(c.Context(), id)
		}
	}, func(call *client.Client) func(*cobra.Command, string, string) (any, error) {
		return func(c *cobra.Command, id, number string) (any, error) {
			return call.Proxies.Restore(c.Context(), id, number)
		}
	})
}
