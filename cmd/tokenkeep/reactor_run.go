package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/server"
)

// The bounds of a server on how long code may run.
const (
	syncTimeout = 10 * time.Second
	maxTimeout  = 210 * time.Second
)

// watchEvery is how often --watch looks at the files.
const watchEvery = 200 * time.Millisecond

// errCodeFailed says that code ran and did not succeed. What was wrong with it
// is printed by then.
var errCodeFailed = errors.New("the code did not succeed")

var errArguments = &usageError{errors.New("the file given with --args must hold a JSON object")}

func reactorRunCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "run FILE.js", Short: "Run reactor code on this machine, without a server",
		Long: `Runs the code once as a server does: on the same engine, behind the same walls,
with the same bounds, and with the ways out of a developer's machine. Prints what
it returned to standard output; what it printed, the time that it took and its
memory go to standard error. Ends with 13 when the code fails.

There are no tokens here. Expressions such as {{ TOKEN }} in the arguments are not
evaluated: the code gets them as they stand, so give it values of your own. req.bt
is null, and what the code wants tokenized is printed as it is.

The settings sandbox.* and allow_* are taken from their variables, such as
TOKENKEEP_SANDBOX_RUNTIME.`,
		Example: `  tokenkeep reactor run charge.js --args args.json --config charge.json
  tokenkeep reactor run charge.js --args args.json --watch`,
		Args: cobra.ExactArgs(1),
	}
	r := localRun{}
	c.Flags().StringVar(&r.args, "args", "", "file with the arguments, a JSON object (default: none)")
	c.Flags().StringVar(&r.configuration, "config", "", "file with the configuration, a JSON object of texts (default: empty)")
	c.Flags().DurationVar(&r.timeout, "timeout", syncTimeout, "how long the code may run; a server gives it 10s, and up to 3m30s while nobody waits")
	c.Flags().BoolVar(&r.asJSON, "json", false, "print one JSON object with everything")
	watch := c.Flags().Bool("watch", false, "run again whenever a file changes, until interrupted")
	c.RunE = func(c *cobra.Command, args []string) error {
		r.code = args[0]
		if r.timeout <= 0 || r.timeout > maxTimeout {
			return errFlagValue
		}
		if _, _, _, err := r.read(); err != nil && !*watch {
			return err
		}
		bench, err := openBench(c)
		if err != nil {
			return err
		}
		defer func() { _ = bench.Close() }()
		if *watch {
			return r.watch(c, bench)
		}
		return r.once(c, bench)
	}
	return c
}

// openBench opens what runs code, with the settings of the environment.
func openBench(c *cobra.Command) (*server.Bench, error) {
	settings := map[string]string{
		"log.level": "warn", "log.format": "text", "sandbox.blank": "1",
		"sandbox.level": "reduced", // the least; it reaches more where the machine has it
	}
	if _, set := os.LookupEnv("TOKENKEEP_SANDBOX_LEVEL"); set {
		delete(settings, "sandbox.level")
	}
	conf, err := config.Load("", os.Environ(), settings)
	if err != nil {
		return nil, err
	}
	conf.Dev = true
	return server.NewBench(c.Context(), conf, newLogger(conf, c.ErrOrStderr()))
}

// localRun is what the command line says of a run. The first three are files.
type localRun struct {
	code, args, configuration string
	timeout                   time.Duration
	asJSON                    bool
}

func (r localRun) read() (code string, args, configuration []byte, err error) {
	text, err := readFile(r.code, "the code")
	if err != nil {
		return "", nil, nil, err
	}
	args, configuration = []byte("null"), []byte("{}")
	if r.args != "" {
		if args, err = readFile(r.args, "the arguments"); err != nil {
			return "", nil, nil, err
		}
		if given := bytes.TrimSpace(args); !json.Valid(given) || given[0] != '{' {
			return "", nil, nil, errArguments
		}
	}
	if r.configuration != "" {
		given, err := configurationFile(r.configuration)
		if err != nil {
			return "", nil, nil, err
		}
		if configuration, err = json.Marshal(given); err != nil {
			return "", nil, nil, errConfiguration
		}
	}
	return string(text), args, configuration, nil
}

// once runs the code and prints what came of it.
func (r localRun) once(c *cobra.Command, bench *server.Bench) error {
	code, args, configuration, err := r.read()
	if err != nil {
		return err
	}
	trial, err := bench.Run(c.Context(), code, args, configuration, r.timeout)
	if err != nil {
		return err
	}
	if r.asJSON {
		err = show(c, true, trial, nil)
	} else {
		err = r.print(c.OutOrStdout(), c.ErrOrStderr(), bench.Level(), trial)
	}
	if err == nil && trial.Status >= 400 {
		return errCodeFailed
	}
	return err
}

func (r localRun) print(out, words io.Writer, level string, t server.Trial) error {
	printConsole(words, t.Console, "")
	if t.Error != nil {
		printf(words, "%d %s: %s\n", t.Error.Status, plain(t.Error.Title), plain(t.Error.Detail))
		for _, name := range slices.Sorted(maps.Keys(t.Error.Errors)) {
			for _, message := range t.Error.Errors[name] {
				printf(words, "    %s  %s\n", plain(name), plain(message))
			}
		}
	}
	if t.Result != nil {
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, t.Result, "", "  "); err != nil {
			return errors.New("the result cannot be written as JSON")
		}
		printf(out, "%s\n", plainJSON(pretty.Bytes()))
	}
	status := ""
	if t.Error == nil && t.Status != 200 {
		status = fmt.Sprintf("answered with %d, ", t.Status)
	}
	printf(words, "… %s%s, walls: %s\n", status, figures(t.Took, t.Memory), level)
	return nil
}

// watch runs the code whenever a file is not as it was. What is wrong is said
// and waits for the next change.
func (r localRun) watch(c *cobra.Command, bench *server.Bench) error {
	ctx, stop := interruptible(c)
	defer stop()
	for last := ""; ; {
		if now := r.state(); now != last {
			last = now
			if err := r.once(c, bench); err != nil && !errors.Is(err, errCodeFailed) && ctx.Err() == nil {
				_, sentence := explain(err)
				printf(c.ErrOrStderr(), "tokenkeep: %s\n", sentence)
			}
		}
		if !wait(ctx, watchEvery) {
			return nil // interrupted
		}
	}
}

// wait returns false when ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// state tells one state of the files from another.
func (r localRun) state() (s string) {
	for _, name := range []string{r.code, r.args, r.configuration} {
		if info, err := os.Stat(name); err == nil {
			s += fmt.Sprintf("%d %d ", info.ModTime().UnixNano(), info.Size())
		} else {
			s += "- "
		}
	}
	return s
}
