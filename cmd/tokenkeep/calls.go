package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/admin"
)

// apiCommand makes a command that calls a server's API with the key of an
// application, from this machine or another one. What it prints is the value
// that run returns, as JSON or in the form that table gives it; without a
// table it is JSON, asked for or not.
func apiCommand(c *cobra.Command, run func(c *cobra.Command, call *client.Client, args []string) (any, error), table func(w io.Writer, v any)) *cobra.Command {
	connect := apiFlags(c)
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		call, err := connect(keyNeeded)
		if err != nil {
			return err
		}
		v, err := run(c, call, args)
		if err != nil {
			return asUsage(err)
		}
		return show(c, *asJSON || table == nil, v, table)
	}
	return c
}

// eitherCommand makes a command for two: whoever has the key of an application
// calls the API, and the operator, who names a tenant, goes through the admin
// socket of a server on this machine.
func eitherCommand(c *cobra.Command, overAPI func(c *cobra.Command, call *client.Client, args []string) (any, error),
	atSocket func(c *cobra.Command, call *admin.Client, tenant string, args []string) (any, error), table func(w io.Writer, v any)) *cobra.Command {
	tenant := c.Flags().String("tenant", "", "as the operator, on the tenant with this id or name, through the admin socket of --data (default: over the API, on the tenant of the key)")
	_ = c.RegisterFlagCompletionFunc("tenant", completeTenants)
	apiCommand(c, overAPI, table)
	callAPI := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if !c.Flags().Changed("tenant") {
			return callAPI(c, args)
		}
		id, err := tenantID(c, socket(c), *tenant)
		if err != nil {
			return err
		}
		v, err := atSocket(c, socket(c), id, args)
		if err != nil {
			return err
		}
		asJSON, _ := c.Flags().GetBool("json")
		return show(c, asJSON || table == nil, v, table)
	}
	return c
}

// socket is the operator's way to the server of --data, for commands that have
// the flags of the API as well.
func socket(c *cobra.Command) *admin.Client {
	data, _ := c.Flags().GetString("data")
	return admin.NewClient(cmp.Or(data, "data"))
}

// asUsage makes a fault in the command line of what the client refused to send.
func asUsage(err error) error {
	if refused := (*client.Error)(nil); errors.Is(err, client.ErrInvalid) && !errors.As(err, &refused) {
		return &usageError{withoutClient(err)}
	}
	return err
}

func withoutClient(err error) error { return errors.New(strings.TrimPrefix(err.Error(), "client: ")) }

// separator returns what comes between the path of a field and a message about
// it: a space before a verb, and a colon before a sentence.
func separator(message string) string {
	first, _, _ := strings.Cut(message, " ")
	if slices.Contains([]string{"must", "is", "has", "holds", "cannot", "needs"}, first) {
		return " "
	}
	return ": "
}

// refusal says in one sentence what the server said.
func refusal(e *client.Error) string {
	if len(e.Problem.Errors) == 0 {
		return plain(cmp.Or(e.Problem.Detail, "the server answered "+e.Problem.Title))
	}
	var all []string
	for _, path := range slices.Sorted(maps.Keys(e.Problem.Errors)) {
		for _, message := range e.Problem.Errors[path] {
			if !strings.HasPrefix(message, path) {
				message = path + separator(message) + message
			}
			all = append(all, plain(message))
		}
	}
	return strings.Join(all, "; ")
}

// unanswered says why there was no answer, without the address: it was typed.
func unanswered(err error) string {
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &name):
		return "the name of the server is not known"
	case errors.As(err, &certificate):
		return "the server's certificate is not trusted"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens at the address of the server"
	}
	return "the server gave no answer, so that it may or may not have done what was asked"
}

// maxInput bounds what is read; servers take less.
const maxInput = 64 << 20

// inputFlag gives a command the flag that names what it reads: values to
// protect come from a file or from standard input and never from arguments.
func inputFlag(c *cobra.Command, what string) (read func(*cobra.Command) ([]byte, error)) {
	name := c.Flags().String("data-file", "-", "file with "+what+"; - is standard input")
	return func(c *cobra.Command) ([]byte, error) {
		in := c.InOrStdin()
		if *name != "-" {
			f, err := os.Open(*name)
			if err != nil {
				return nil, &usageError{errors.New("the file given with --data-file cannot be read")}
			}
			defer func() { _ = f.Close() }()
			in = f
		}
		return readInput(c, in)
	}
}

// namedInput reads a file that an argument names; - is standard input.
func namedInput(c *cobra.Command, name, what string) ([]byte, error) {
	if name == "-" {
		return readInput(c, c.InOrStdin())
	}
	return readFile(name, what)
}

func readInput(c *cobra.Command, in io.Reader) ([]byte, error) {
	if isTerminal(in) {
		printf(c.ErrOrStderr(), "… reading standard input; end it with Ctrl-D\n")
	}
	b, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err != nil {
		return nil, &usageError{errors.New("the input cannot be read")}
	}
	if len(b) > maxInput {
		return nil, &usageError{errors.New("the input is larger than 64 MiB")}
	}
	return b, nil
}

var errNotJSON = &usageError{errors.New("the input is not valid JSON")}

// inputJSON is what was read, as it is: numbers keep their text.
func inputJSON(b []byte, err error) (json.RawMessage, error) {
	if err == nil && !json.Valid(b) {
		err = errNotJSON
	}
	return b, err
}

// onceFlag lets whoever got no answer run the same command again.
func onceFlag(c *cobra.Command) (options func() []client.CallOption) {
	key := c.Flags().String("idempotency-key", "", "name of this change, such as an order's: run again under it within a day, the command gets the first answer (default: a new one)")
	return func() []client.CallOption {
		if *key == "" {
			return nil
		}
		return []client.CallOption{client.IdempotencyKey(*key)}
	}
}

// deleted is what commands that remove something print.
var deleted = &api.Health{Status: "deleted"}

// interruptible returns a context that Ctrl-C ends: then a command that would
// go on for ever ends well.
func interruptible(c *cobra.Command) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
}
