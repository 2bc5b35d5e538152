package main

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
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
// table it is always JSON.
func apiCommand(c *cobra.Command, run func(c *cobra.Command, call *client.Client, args []string) (any, error), table func(w io.Writer, v any)) *cobra.Command {
	connect := apiFlags(c)
	asJSON := new(bool)
	*asJSON = table == nil
	if table != nil {
		c.Flags().BoolVar(asJSON, "json", false, "print JSON")
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		call, err := connect(c)
		if err != nil {
			return err
		}
		v, err := run(c, call, args)
		if err != nil {
			return asUsage(err)
		}
		return show(c, *asJSON, v, table)
	}
	return c
}

// apiFlags gives a command what says where the server is and who calls. The
// key is in the environment or in a file: arguments are seen by every process.
func apiFlags(c *cobra.Command) (connect func(*cobra.Command) (*client.Client, error)) {
	address := c.Flags().String("url", "", "address of the server (default $TOKENKEEP_URL)")
	data := c.Flags().String("data", "", "data folder of a server that runs on this machine, to find its address")
	keyFile := c.Flags().String("key-file", "", "file with the API key (default $TOKENKEEP_API_KEY)")
	prefix := c.Flags().String("header-prefix", "", "prefix of the server's own headers (default $TOKENKEEP_HEADER_PREFIX, or SVC)")
	inClear := c.Flags().Bool("in-clear", false, "call an http address that is not on this machine")
	return func(c *cobra.Command) (*client.Client, error) {
		base, err := baseURL(c, *address, *data, *inClear)
		if err != nil {
			return nil, err
		}
		key := os.Getenv("TOKENKEEP_API_KEY")
		if *keyFile != "" {
			b, err := os.ReadFile(*keyFile)
			if err != nil {
				return nil, &usageError{errors.New("the file given with --key-file cannot be read")}
			}
			key = strings.TrimSpace(string(b))
		}
		if key == "" {
			return nil, &usageError{errors.New("there is no key: set TOKENKEEP_API_KEY, or name a file with --key-file")}
		}
		options := []client.Option{client.WithKey(key)}
		if p := cmp.Or(*prefix, os.Getenv("TOKENKEEP_HEADER_PREFIX")); p != "" {
			options = append(options, client.WithHeaderPrefix(p))
		}
		call, err := client.New(base, options...)
		if err != nil {
			return nil, &usageError{withoutClient(err)}
		}
		return call, nil
	}
}

var (
	errNoAddress = &usageError{errors.New("there is no address: give --url, set TOKENKEEP_URL, or name the folder of a server on this machine with --data")}
	errInClear   = &usageError{errors.New("the address is http and not on this machine, so that key and values would travel in clear: use https, or add --in-clear")}
)

// baseURL is where to call. The folder of a server tells by way of its admin
// socket, which a server that is gone cannot have left behind.
func baseURL(c *cobra.Command, address, data string, inClear bool) (string, error) {
	if address == "" && data != "" {
		var s admin.Status
		err := admin.NewClient(data).Call(c.Context(), http.MethodGet, "/status", nil, &s)
		return s.BaseURL, err
	}
	if address = cmp.Or(address, os.Getenv("TOKENKEEP_URL")); address == "" {
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

func readInput(c *cobra.Command, in io.Reader) ([]byte, error) {
	if f, ok := in.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			printf(c.ErrOrStderr(), "… reading standard input; end it with Ctrl-D\n")
		}
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
