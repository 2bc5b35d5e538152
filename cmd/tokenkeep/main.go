// Command tokenkeep is the vault: the server and the commands that run it.
//
// It promises one clear sentence and a distinct exit code for everything that
// can be wrong before work begins. It is the only place that reads the
// environment, and it never takes a key or a value to protect as an argument:
// arguments are seen by every process on the machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/backup"
	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/sandbox"
	"github.com/tokenkeep/tokenkeep/internal/server"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/transfer"
)

// version is set by the build; a build without it tells its module's version.
var version = ""

func main() {
	if sandbox.Main() {
		return // this process starts others, or became one, for code of tenants
	}
	// The logger of the standard library quotes bytes that a destination sent
	// out of turn. Nothing of ours writes there.
	log.SetOutput(io.Discard)
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	root := rootCommand()
	root.SetArgs(append([]string{}, args...)) // nil would be the arguments of the process
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	code, sentence := explain(err)
	_, _ = fmt.Fprintf(errOut, "tokenkeep: %s\n", sentence)
	return code
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "tokenkeep",
		Short: "A tokenization vault that you run yourself",
		Long: `Tokenkeep keeps card numbers, bank accounts, identity numbers and any other
sensitive JSON sealed, and gives back tokens that are safe to store and log.

Start here:
  tokenkeep dev       a server to try things out with, on this machine alone
  tokenkeep serve     the real thing, with a configuration file
  tokenkeep token     protect values and read them back, over the API
  tokenkeep reactor   try out code that works on protected values, and deploy it
  tokenkeep proxy     send requests with protected values in them, and see them first`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	root.SetHelpCommand(helpCommand(root))
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddGroup(&cobra.Group{ID: callers, Title: "With a key, over the API:"}, &cobra.Group{ID: operators, Title: "As the operator of a server:"})
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(callers, tokenCommand(), tokenizeCommand(), detokenizeCommand(), sessionCommand(), reactorCommand(), proxyCommand(),
		applicationCommand(), memberCommand(), roleCommand(), permissionCommand(), accessCommand(), logCommand(), healthCommand(), profileCommand())
	add(operators, devCommand(), serveCommand(), configCommand(), statusCommand(), storeCommand(), sweepCommand(), backupCommand(), restoreCommand(),
		migrateStoreCommand(), doctorCommand(), tenantCommand(), consoleCommand(), keyCommand(), auditCommand())
	add("", completionCommand(), versionCommand())
	return root
}

// The groups in which the help lists commands.
const (
	callers   = "callers"
	operators = "operators"
)

// usageError is a fault in the command line itself.
type usageError struct{ cause error }

func (e *usageError) Error() string { return e.cause.Error() }

// exits are the causes that have an exit code of their own, first fit first.
// docs/operations.md prints this table.
var exits = []struct {
	code    int
	matches func(error) bool
	means   string
}{
	{2, func(err error) bool { return errors.As(err, new(*usageError)) }, "the command line is not right"},
	{3, func(err error) bool {
		return errors.As(err, new(*config.Error)) || errors.As(err, new(*server.CertificateError)) || errors.As(err, new(*server.KEKError)) || errors.As(err, new(*server.SandboxError)) || errors.As(err, new(*profileError))
	}, "the configuration is not right, or not safe"},
	{4, func(err error) bool { return errors.Is(err, store.ErrInUse) }, "another process has the data folder open, or an older release or another migration the database"},
	{5, func(err error) bool { return errors.Is(err, store.ErrNewerSchema) || errors.Is(err, backup.ErrNewer) }, "a newer release wrote the data"},
	{6, func(err error) bool {
		return errors.Is(err, store.ErrDamaged) || errors.Is(err, errChecksFailed) || errors.Is(err, backup.ErrDamaged) || errors.Is(err, keyring.ErrDamaged)
	}, "the data is damaged"},
	{7, func(err error) bool { return errors.As(err, new(*server.ListenError)) }, "an address cannot be listened on"},
	{8, func(err error) bool { return errors.Is(err, keyring.ErrWrongKEK) }, "the key-encryption key is not the one of this data"},
	{9, func(err error) bool { return errors.Is(err, admin.ErrNoServer) }, "no server is running on the data folder"},
	{10, func(err error) bool { return errors.Is(err, errLogChanged) || errors.Is(err, server.ErrLogChanged) }, "a tenant's log is not what was sealed"},
	{11, func(err error) bool { return errors.As(err, new(*client.Error)) || errors.Is(err, errCallRefused) }, "the server refused what was asked over the API"},
	{12, func(err error) bool { return errors.Is(err, client.ErrUnavailable) }, "the server gave no answer over the API"},
	{13, func(err error) bool { return errors.Is(err, errCodeFailed) }, "the code of a reactor ran and did not succeed"},
	{14, func(err error) bool { return errors.Is(err, backup.ErrIncomplete) }, "the backup is not whole"},
	{15, func(err error) bool {
		return errors.Is(err, backup.ErrNotEmpty) || errors.Is(err, transfer.ErrOccupied)
	}, "a folder or database that must be empty is not"},
	{16, func(err error) bool { return errors.Is(err, errUnwell) }, "the doctor found something that must be put right"},
	{17, func(err error) bool { return errors.Is(err, transfer.ErrDiffers) }, "what a migration wrote is not what it read"},
	{18, func(err error) bool { return errors.Is(err, store.ErrUnfinished) }, "a migration to the database is not complete"},
}

// What the library says of a command line repeats it, and somebody will have
// typed a card number or a key. These say the same without.
var (
	errNoCommand = &usageError{errors.New("there is no such command; 'tokenkeep --help' lists them")}
	errNoFlag    = &usageError{errors.New("there is no such flag; --help lists them")}
	errFlagValue = &usageError{errors.New("the value of a flag is missing or not right; --help tells what it takes")}
)

func flagError(err error) error {
	if s := err.Error(); strings.HasPrefix(s, "invalid argument") || strings.HasPrefix(s, "flag needs an argument") {
		return errFlagValue
	}
	return errNoFlag
}

// explain turns an error into an exit code and one sentence.
func explain(err error) (code int, sentence string) {
	// Cobra reports these without a type.
	switch s := err.Error(); {
	case strings.HasPrefix(s, "unknown command"):
		err = errNoCommand
	case strings.Contains(s, "arg(s)"), strings.HasPrefix(s, "required flag"):
		err = &usageError{err}
	}
	sentence = strings.TrimPrefix(strings.TrimPrefix(withoutPaths(err), "config: "), "client: ")
	if refused := (*client.Error)(nil); errors.As(err, &refused) {
		sentence = refusal(refused)
	} else if errors.Is(err, client.ErrUnavailable) {
		sentence = unanswered(err)
	}
	for _, e := range exits {
		if e.matches(err) {
			return e.code, sentence
		}
	}
	return 1, sentence
}

// withoutPaths returns the words of an error without the path that the system
// puts into its own. The operator knows which folder was named.
func withoutPaths(err error) string {
	s := err.Error()
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		s = strings.ReplaceAll(s, pe.Error(), pe.Err.Error())
	}
	if le := (*os.LinkError)(nil); errors.As(err, &le) {
		s = strings.ReplaceAll(s, le.Error(), le.Err.Error())
	}
	return s
}

// helpCommand is the library's, but for what it says of an unknown command.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Tell more about a command",
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return errNoCommand
			}
			return c.Help()
		},
	}
}

func versionCommand() *cobra.Command {
	c := &cobra.Command{Use: "version", Short: "Print the release", Example: "  tokenkeep version", Args: cobra.NoArgs}
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return show(c, *asJSON, map[string]string{"version": release()}, func(w io.Writer, _ any) { printf(w, "tokenkeep %s\n", release()) })
	}
	return c
}

func release() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
