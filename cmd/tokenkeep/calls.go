package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf16"

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
	tenant := c.Flags().String("tenant", "", "as the operator, on the tenant with this id, through the admin socket of --data (default: over the API, on the tenant of the key)")
	apiCommand(c, overAPI, table)
	callAPI := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if !c.Flags().Changed("tenant") {
			return callAPI(c, args)
		}
		if *tenant == "" {
			return errFlagValue // a variable that was not set must not choose another tenant
		}
		v, err := atSocket(c, socket(c), *tenant, args)
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

func jsonFlag(c *cobra.Command) *bool { return c.Flags().Bool("json", false, "print JSON") }

// Whether a call takes the key of an application.
const (
	keyNeeded = true
	keyIfAny  = false
)

// apiFlags gives a command what says where the server is and who calls. The
// key is in the environment, in a file or in a profile: arguments are seen by
// every process.
//
// Flags win, then a profile that a flag names, then variables, then the profile
// in use.
func apiFlags(c *cobra.Command) (connect func(needsKey bool) (*client.Client, error)) {
	address := c.Flags().String("url", "", "address of the server (default $TOKENKEEP_URL, or that of the profile)")
	data := c.Flags().String("data", "", "data folder of a server that runs on this machine, to find its address")
	keyFile := c.Flags().String("key-file", "", "file with the API key (default $TOKENKEEP_API_KEY, or that of the profile)")
	prefix := c.Flags().String("header-prefix", "", "prefix of the server's own headers (default $TOKENKEEP_HEADER_PREFIX, or that of the profile, or SVC)")
	caFile := c.Flags().String("ca-file", "", "file with the certificates of authorities to trust, in PEM (default $TOKENKEEP_CA_FILE, or that of the profile)")
	name := c.Flags().String("profile", "", "profile to call with, before any variable (default $TOKENKEEP_PROFILE, or the one in use)")
	_ = c.RegisterFlagCompletionFunc("profile", completeProfiles)
	inClear := c.Flags().Bool("in-clear", false, "call an http address that is not on this machine")
	return func(needsKey bool) (*client.Client, error) {
		p, err := chosenProfile(*name)
		if err != nil {
			return nil, err
		}
		variable := func(v string) string {
			if *name != "" {
				return "" // a flag named the profile
			}
			return os.Getenv(v)
		}
		elsewhere, foreign := cmp.Or(*address, *data, variable("TOKENKEEP_URL")), false
		if elsewhere != "" && elsewhere != p.URL {
			foreign = p.Key != ""
			p = profile{} // it is about another server
		}
		w := way{
			key: cmp.Or(variable("TOKENKEEP_API_KEY"), p.Key), prefix: cmp.Or(*prefix, variable("TOKENKEEP_HEADER_PREFIX"), p.HeaderPrefix),
			caFile: cmp.Or(*caFile, variable("TOKENKEEP_CA_FILE"), p.CAFile),
		}
		if *keyFile != "" {
			b, err := os.ReadFile(*keyFile)
			if err != nil {
				return nil, &usageError{errors.New("the file given with --key-file cannot be read")}
			}
			w.key = strings.TrimSpace(string(b))
		}
		if *address == "" && *data != "" {
			w.address, err = addressOf(c, *data)
		} else {
			w.address, err = checkedAddress(cmp.Or(elsewhere, p.URL), *inClear || p.InClear)
		}
		if err != nil {
			return nil, err
		}
		if w.key == "" && needsKey {
			if foreign && *keyFile == "" {
				return nil, errKeyElsewhere
			}
			return nil, errNoKey
		}
		return w.open()
	}
}

// way is how a server is called.
type way struct{ address, key, prefix, caFile string }

func (w way) open() (*client.Client, error) {
	var options []client.Option
	if w.key != "" {
		options = append(options, client.WithKey(w.key))
	}
	if w.prefix != "" {
		options = append(options, client.WithHeaderPrefix(w.prefix))
	}
	if w.caFile != "" {
		b, err := os.ReadFile(w.caFile)
		pool := x509.NewCertPool()
		if err != nil || !pool.AppendCertsFromPEM(b) {
			return nil, errCAFile
		}
		options = append(options, client.WithRootCAs(pool))
	}
	call, err := client.New(w.address, options...)
	if err != nil {
		return nil, &usageError{withoutClient(err)}
	}
	return call, nil
}

var (
	errNoKey        = &usageError{errors.New("there is no key: set TOKENKEEP_API_KEY, name a file with --key-file, or use a profile")}
	errNoAddress    = &usageError{errors.New("there is no address: give --url, set TOKENKEEP_URL, use a profile, or name the folder of a server on this machine with --data")}
	errInClear      = &usageError{errors.New("the address is http and not on this machine, so that key and values would travel in clear: use https, or add --in-clear")}
	errKeyElsewhere = &usageError{errors.New("the key of a profile goes to the address of that profile alone: give a key for this address with --key-file or TOKENKEEP_API_KEY")}
	errCAFile       = &usageError{errors.New("the file with the certificates of authorities cannot be read, or has none in PEM")}
)

// addressOf asks the server of a folder where it is, by way of its admin
// socket, which a server that is gone cannot have left behind.
func addressOf(c *cobra.Command, data string) (string, error) {
	var s admin.Status
	err := admin.NewClient(data).Call(c.Context(), http.MethodGet, "/status", nil, &s)
	return s.BaseURL, err
}

func checkedAddress(address string, inClear bool) (string, error) {
	if address == "" {
		return "", errNoAddress
	}
	if u, err := url.Parse(address); err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()) && !inClear {
		return "", errInClear
	}
	return address, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// asUsage makes a fault in the command line of what the client refused to send.
func asUsage(err error) error {
	if refused := (*client.Error)(nil); errors.Is(err, client.ErrInvalid) && !errors.As(err, &refused) {
		return &usageError{withoutClient(err)}
	}
	return err
}

func withoutClient(err error) error { return errors.New(strings.TrimPrefix(err.Error(), "client: ")) }

// refusal says in one sentence what the server said.
func refusal(e *client.Error) string {
	if len(e.Problem.Errors) == 0 {
		return plain(cmp.Or(e.Problem.Detail, "the server answered "+e.Problem.Title))
	}
	var all []string
	for _, path := range slices.Sorted(maps.Keys(e.Problem.Errors)) {
		for _, message := range e.Problem.Errors[path] {
			if !strings.HasPrefix(message, path) {
				message = path + " " + message
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

// plain makes a text fit for a line of a terminal: somebody else wrote it.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// plainJSON is plain for JSON, of which it keeps the meaning and the lines.
func plainJSON(text []byte) string {
	var b strings.Builder
	for _, r := range string(text) {
		if r == '\n' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			printf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
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

// deleted is what commands that remove something print.
var deleted = &api.Health{Status: "deleted"}

func limitFlag(c *cobra.Command) *uint {
	return c.Flags().Uint("limit", 100, "how many at most; 0 for all")
}

func tellMore(c *cobra.Command) {
	printf(c.ErrOrStderr(), "… there are more; --limit 0 lists all\n")
}

// upTo reads a list up to a limit, or to its end.
func upTo[T any](c *cobra.Command, limit uint, list iter.Seq2[T, error]) (any, error) {
	all := []T{}
	for item, err := range list {
		if err != nil {
			return nil, err
		}
		if limit > 0 && uint(len(all)) == limit {
			tellMore(c)
			break
		}
		all = append(all, item)
		tellCount(c, len(all))
	}
	return all, nil
}

// tellCount shows whoever looks on how far a long list has come.
func tellCount(c *cobra.Command, n int) {
	if n%1000 == 0 && isTerminal(c.ErrOrStderr()) {
		printf(c.ErrOrStderr(), "… %d so far\n", n)
	}
}

func isTerminal(s any) bool {
	f, ok := s.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// at writes an instant for people; nothing for none.
func at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// fields prints names and values of one thing, without those that are empty.
func fields(w io.Writer, pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			printf(w, "%s\t%s\n", plain(pairs[i]), plain(pairs[i+1]))
		}
	}
}

// interruptible returns a context that Ctrl-C ends: then a command that would
// go on for ever ends well.
func interruptible(c *cobra.Command) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
}
