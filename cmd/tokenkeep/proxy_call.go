package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
)

func proxyUpdateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "update PROXY", Short: "Change a proxy by a merge patch and print it",
		Long: `Reads a JSON object from standard input, or from a file. What it names is
changed, null removes it, and what it does not name stays, the key always. It takes
proxy:update and proxy:read.

"application": null removes the application. From an open proxy nothing else does.`,
		Example: `  echo '{"destination_url":"https://psp.example.com/v2"}' | tokenkeep proxy update PROXY`,
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	read := inputFlag(c, "the merge patch, in JSON")
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		patch, err := inputJSON(read(c))
		if err != nil {
			return nil, err
		}
		if err := call.Proxies.Patch(c.Context(), args[0], patch); err != nil {
			return nil, err
		}
		return call.Proxies.Get(c.Context(), args[0])
	}, showProxy)
}

// proxied is an answer through a proxy as --json prints it.
type proxied struct {
	Status            int                 `json:"status"`
	DestinationStatus int                 `json:"destination_status,omitzero"`
	Headers           map[string][]string `json:"headers"`
	Body              string              `json:"body,omitempty"`
	BodyBase64        string              `json:"body_base64,omitempty"` // of what is no text
	raw               []byte
}

var errProxyKeyFile = &usageError{errors.New("there is no proxy to call: set TOKENKEEP_PROXY_KEY, name a file with --proxy-key-file, or give a --destination")}

func proxyCallCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "call", Short: "Send a request through a proxy and print the answer",
		Long: `Sends a request to the destination of a proxy, with values in place of expressions
such as {{ TOKEN }} in its body, and prints the body of the answer; its status goes
to standard error. A status of the destination is no error of this command.

The key of the proxy is in TOKENKEEP_PROXY_KEY or in a file, as the API key is,
which proxies that ask for none do without. Headers that hold secrets come from a
file, one a line: arguments are seen by every process on the machine. Nothing is
sent twice.`,
		Example: `  echo '{"card":"{{ my-card }}"}' | tokenkeep proxy call --proxy-key-file proxy.key --path /charges --body-file - --header-file headers
  tokenkeep proxy call --destination https://psp.example.com/status`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	var in client.ProxyCall
	keyFile := c.Flags().String("proxy-key-file", "", "file with the key of the proxy (default $TOKENKEEP_PROXY_KEY)")
	c.Flags().StringVar(&in.URL, "destination", "", "URL to call without a proxy; takes the key of a private application")
	c.Flags().StringVar(&in.Method, "method", "", "method (default POST with a body, else GET)")
	c.Flags().StringVar(&in.Path, "path", "", "what follows the path of the destination, from its slash on")
	c.Flags().StringVar(&in.Query, "query", "", "query")
	headers := c.Flags().StringArray("header", nil, "header without secrets, as Name: value; may be repeated")
	headerFile := c.Flags().String("header-file", "", "file with headers, as Name: value, one a line")
	body := c.Flags().String("body-file", "", "file with the body; - is standard input (default: no body)")
	connect := apiFlags(c)
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		key := os.Getenv("TOKENKEEP_PROXY_KEY")
		if *keyFile != "" {
			b, err := readFile(*keyFile, "the key of the proxy")
			if err != nil {
				return err
			}
			key = strings.TrimSpace(string(b))
		}
		if in.URL != "" {
			key = ""
		} else if key == "" {
			return errProxyKeyFile
		}
		lines := *headers
		if *headerFile != "" {
			b, err := readFile(*headerFile, "the headers")
			if err != nil {
				return err
			}
			lines = append(lines, strings.FieldsFunc(string(b), func(r rune) bool { return r == '\n' || r == '\r' })...)
		}
		named, typed, err := readHeaders(lines)
		if err != nil {
			return err
		}
		in.Header = http.Header{}
		for name, value := range named {
			in.Header.Set(name, value)
		}
		if *body != "" {
			if in.Body, err = namedInput(c, *body, "the body"); err != nil {
				return err
			}
			if !typed && !isDocument(in.Body) {
				in.Header.Set("Content-Type", "text/plain; charset=utf-8")
			}
		}
		call, err := connect(keyIfAny)
		if err != nil {
			return err
		}
		got, err := call.Proxies.Invoke(c.Context(), key, in)
		if err != nil {
			return asUsage(err)
		}
		out := proxied{Status: got.Status, DestinationStatus: got.DestinationStatus, Headers: got.Header, raw: got.Body}
		if utf8.Valid(got.Body) {
			out.Body = string(got.Body)
		} else {
			out.BodyBase64 = base64.StdEncoding.EncodeToString(got.Body)
		}
		return show(c, *asJSON, out, func(_ io.Writer, v any) { printProxied(c, v.(proxied)) })
	}
	return c
}

// printProxied prints a body as it came, unless a terminal would take parts of
// it for commands.
func printProxied(c *cobra.Command, p proxied) {
	whose := "destination"
	if p.DestinationStatus == 0 {
		whose = "proxy"
	}
	printf(c.ErrOrStderr(), "… %d from the %s\n", p.Status, whose)
	if out := c.OutOrStdout(); isTerminal(out) {
		for line := range bytes.Lines(p.raw) {
			printf(out, "%s\n", plain(strings.TrimRight(string(line), "\r\n")))
		}
	} else {
		_, _ = out.Write(p.raw)
	}
}

var errTwoApplications = &usageError{errors.New("give one of --application and --no-application")}

// proxyReplaceCommand takes the flags of create.
func proxyReplaceCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "replace PROXY", Short: "Change all of a proxy but its key, and print it",
		Long: `Puts what is given in the place of what there was; what is left out returns to its
default. To change one thing, use 'proxy update'. It takes proxy:update.

An open proxy that has an application keeps it only with --application, and loses
it only with --no-application: then anyone with the proxy's key can use any token.`,
		Example: `  tokenkeep proxy replace PROXY --name payments --destination https://psp.example.com/v2
  tokenkeep proxy replace PROXY --name payments --destination https://psp.example.com/v2 --open --no-application`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	read := proxyFlags(c)
	none := c.Flags().Bool("no-application", false, "the proxy is to have no application, also when it is open")
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		in, err := read()
		if err != nil {
			return nil, err
		}
		if *none && in.ApplicationID != "" {
			return nil, errTwoApplications
		}
		if *none {
			in.Application = &api.ApplicationRef{} // null, written out
		}
		return call.Proxies.Replace(c.Context(), args[0], in)
	}, showProxy)
}

// proxyFlags are the members of a proxy. Its code and configuration come from files.
func proxyFlags(c *cobra.Command) (read func() (api.WriteProxy, error)) {
	var in api.WriteProxy
	c.Flags().StringVar(&in.Name, "name", "", "name of the proxy")
	c.Flags().StringVar(&in.DestinationURL, "destination", "", "URL that requests go to")
	_ = c.MarkFlagRequired("name")
	_ = c.MarkFlagRequired("destination")
	open := c.Flags().Bool("open", false, "ask callers for no API key")
	request := c.Flags().String("request-transform", "", "file with code that runs on each request (default: none)")
	response := c.Flags().String("response-transform", "", "file with code that runs on each answer (default: none)")
	c.Flags().StringVar(&in.RequestReactorID, "request-reactor", "", "id of a reactor that runs on each request in place of such code (default: none)")
	c.Flags().StringVar(&in.ResponseReactorID, "response-reactor", "", "id of a reactor that runs on each answer in place of such code (default: none)")
	config := c.Flags().String("config", "", "file with the configuration, a JSON object of texts (default: empty)")
	application := c.Flags().String("application", "", "id of the application whose rights the code has, and callers without an API key (default: none)")
	return func() (_ api.WriteProxy, err error) {
		in.RequireAuth = new(!*open)
		if in.RequestTransform, err = transformFile(*request, "the request transform"); err != nil {
			return in, err
		}
		if in.ResponseTransform, err = transformFile(*response, "the response transform"); err != nil {
			return in, err
		}
		if *config != "" {
			if in.Configuration, err = configurationFile(*config); err != nil {
				return in, err
			}
		}
		if *application != "" {
			in.ApplicationID = *application
		}
		return in, nil
	}
}
