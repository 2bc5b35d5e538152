package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
)

func proxyCommand() *cobra.Command {
	versions, restore := proxyVersionCommands()
	return group("proxy", "Make, list, change, delete and call proxies, and see what a call would send, over the API",
		proxyCreateCommand(), proxyListCommand(), proxyGetCommand(), proxyUpdateCommand(), proxyReplaceCommand(), proxyRotateKeyCommand(), proxyDeleteCommand(),
		proxyTryCommand(), proxyCallCommand(), versions, restore)
}

func proxyCreateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "create", Short: "Make a proxy and print it with its key",
		Long: `Makes a proxy in front of a destination. Its code and its configuration come from
files: configuration holds secrets, and arguments are seen by every process on the
machine. It takes proxy:create.

--request-reactor and --response-reactor name reactors whose code, configuration
and application are the transform. That takes reactor:read too.

With --open whoever has the proxy's key may call it, without an API key. Such a
call uses the tokens that --application may use, and any token without one.`,
		Example: `  tokenkeep proxy create --name payments --destination https://psp.example.com/v1
  tokenkeep proxy create --name payments --destination https://psp.example.com/v1 --request-transform sign.js --config sign.json`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	read := proxyFlags(c)
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		in, err := read()
		if err != nil {
			return nil, err
		}
		return call.Proxies.Create(c.Context(), in)
	}, showProxyWithKey)
}

// transformFile reads the code of a transform; nil where no file is named.
func transformFile(name, what string) (*api.ProxyTransform, error) {
	if name == "" {
		return nil, nil
	}
	code, err := readFile(name, what)
	return &api.ProxyTransform{Code: string(code)}, err
}

// showProxy prints a proxy without its key and its code, and of its
// configuration the names: the values may be secrets.
func showProxy(w io.Writer, v any) {
	p := v.(api.Proxy)
	printf(w, "proxy\t%s\nname\t%s\ndestination\t%s\n", plain(p.ID), plain(p.Name), plain(p.DestinationURL))
	callers := "with an API key"
	if !p.RequireAuth {
		callers = "anybody with the proxy's key"
	}
	printf(w, "callers\t%s\n", callers)
	if p.ApplicationID != "" {
		printf(w, "application\t%s\n", plain(p.ApplicationID))
	}
	for _, t := range []struct {
		name      string
		transform *api.ProxyTransform
	}{{"request transform", p.RequestTransform}, {"response transform", p.ResponseTransform}} {
		if t.transform != nil {
			printf(w, "%s\t%d lines\n", t.name, strings.Count(strings.TrimSuffix(t.transform.Code, "\n"), "\n")+1)
		}
	}
	if p.RequestReactorID != "" {
		printf(w, "request reactor\t%s\n", plain(p.RequestReactorID))
	}
	if p.ResponseReactorID != "" {
		printf(w, "response reactor\t%s\n", plain(p.ResponseReactorID))
	}
	if len(p.Configuration) > 0 {
		printf(w, "configuration\t%s\n", plain(strings.Join(slices.Sorted(maps.Keys(p.Configuration)), " ")))
	}
	fields(w, "created", at(p.CreatedAt.Time), "modified", at(p.ModifiedAt.Time))
}

func showProxyWithKey(w io.Writer, v any) {
	showProxy(w, v)
	printf(w, "key\t%s\n", plain(v.(api.Proxy).Key))
}

func proxyListCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List proxies, newest first",
		Example: "  tokenkeep proxy list --name 'pay*'",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	var f client.ProxyFilter
	c.Flags().StringVar(&f.Name, "name", "", "only proxies whose name holds this; * stands for anything")
	limit := limitFlag(c)
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		return upTo(c, *limit, call.Proxies.List(c.Context(), f))
	}, func(w io.Writer, v any) {
		printf(w, "PROXY\tNAME\tDESTINATION\tAPI KEY\tAPPLICATION\n")
		for _, p := range v.([]api.Proxy) {
			asked := "asked for"
			if !p.RequireAuth {
				asked = "ignored"
			}
			printf(w, "%s\t%s\t%s\t%s\t%s\n", plain(p.ID), plain(p.Name), plain(p.DestinationURL), asked, plain(p.ApplicationID))
		}
	})
}

func proxyGetCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "get PROXY", Short: "Print a proxy",
		Long: `Prints a proxy without its key, and of its configuration only the names: the
values may be secrets. --json prints all of it, --key the key alone.`,
		Example: "  PROXY_KEY=$(tokenkeep proxy get PROXY --key)",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	key := c.Flags().Bool("key", false, "print the key alone")
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return call.Proxies.Get(c.Context(), args[0])
	}, func(w io.Writer, v any) {
		if *key {
			printf(w, "%s\n", plain(v.(api.Proxy).Key))
			return
		}
		showProxy(w, v)
	})
}

func proxyRotateKeyCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "rotate-key PROXY", Short: "Give a proxy a new key; the old one opens nothing from then on",
		Example: "  tokenkeep proxy rotate-key PROXY",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return call.Proxies.RotateKey(c.Context(), args[0])
	}, showProxyWithKey)
}

func proxyDeleteCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "delete PROXY", Short: "Delete a proxy; there is no way back",
		Example: "  tokenkeep proxy delete PROXY",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return deleted, call.Proxies.Delete(c.Context(), args[0])
	}, func(w io.Writer, _ any) { printf(w, "The proxy is deleted.\n") })
}

var errHeader = &usageError{errors.New("a header is written as Name: value, and each name once")}

func proxyTryCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "try PROXY", Short: "Print the request that a call would send, without values; nothing is sent",
		Long: `Goes the way of a call with the key of the application, and stops before sending:
no connection is made and no code runs. Prints the request, with a placeholder such
as [card] in place of each value, and for each token whether the application may use
it and by which rule. It ends with 11 when the call would be refused. It takes
proxy:read, and the preview is in the tenant's log.

Tokens that the key given here may itself read show their masks instead. A management
key can read none.

Without --as it is a call without an API key, for a proxy that asks for none. The
body is JSON if it is an object or a list and no Content-Type is given. As nothing
is sent, no header needs its real secret: arguments are seen by every process.`,
		Example: `  echo '{"card": "{{ TOKEN }}"}' | tokenkeep proxy try PROXY --as APPLICATION --path /charges --body-file -
  tokenkeep proxy try PROXY --as APPLICATION --method PUT --path /charges --query dry=1 --header 'Content-Type: text/plain' --body-file body.txt`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	var in api.PreviewProxy
	c.Flags().StringVar(&in.ApplicationID, "as", "", "id of the application that would call (default: a call without an API key)")
	c.Flags().StringVar(&in.Method, "method", "", "method (default POST with a body, else GET)")
	c.Flags().StringVar(&in.Path, "path", "", "what would follow /proxy, from its slash on")
	c.Flags().StringVar(&in.Query, "query", "", "query")
	headers := c.Flags().StringArray("header", nil, "header, as Name: value; may be repeated")
	body := c.Flags().String("body-file", "", "file with the body; - is standard input (default: no body)")
	refused := false
	apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		var typed bool
		var err error
		if in.Headers, typed, err = readHeaders(*headers); err != nil {
			return nil, err
		}
		if *body != "" {
			b, err := namedInput(c, *body, "the body")
			if err != nil {
				return nil, err
			}
			if !typed && isDocument(b) {
				in.Headers["Content-Type"] = api.MediaJSON
			}
			if in.Body, err = json.Marshal(string(b)); err != nil { // a text, byte for byte
				return nil, errors.New("the body cannot be written as JSON")
			}
		}
		p, err := call.Proxies.Preview(c.Context(), args[0], in)
		refused = err == nil && len(p.Tokens) > 0 && !p.Allowed
		return p, err
	}, func(_ io.Writer, v any) { printPreview(c.OutOrStdout(), v.(api.ProxyPreview)) })
	show := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := show(c, args); err != nil || !refused {
			return err
		}
		return errCallRefused
	}
	return c
}

// errCallRefused says that a call that was tried would not be sent.
var errCallRefused = errors.New("the call would be refused: it may not use every token in its body")

// isDocument reports whether a body is an object or a list of JSON.
func isDocument(b []byte) bool {
	b = bytes.TrimSpace(b)
	return json.Valid(b) && (b[0] == '{' || b[0] == '[')
}

// readHeaders reads lines of headers, and says whether one is the content type.
func readHeaders(lines []string) (headers map[string]string, typed bool, err error) {
	headers = make(map[string]string, len(lines))
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if _, twice := headers[name]; !ok || name == "" || twice {
			return nil, false, errHeader
		}
		headers[name] = strings.TrimSpace(value)
		typed = typed || strings.EqualFold(name, "Content-Type")
	}
	return headers, typed, nil
}

// printPreview prints a request as it would be written, and why it may be sent
// or not.
func printPreview(w io.Writer, p api.ProxyPreview) {
	printf(w, "%s %s\n", plain(p.Method), plain(p.URL))
	for _, name := range slices.Sorted(maps.Keys(p.Headers)) {
		printf(w, "%s: %s\n", plain(name), plain(p.Headers[name]))
	}
	if p.Body != "" {
		printf(w, "\n")
		for line := range strings.SplitSeq(strings.TrimSuffix(p.Body, "\n"), "\n") {
			printf(w, "%s\n", plain(strings.ReplaceAll(strings.TrimSuffix(line, "\r"), "\t", "    ")))
		}
	}
	printf(w, "\n")
	for _, t := range p.Tokens {
		by := "by a plain permission"
		switch {
		case t.DecidedBy.Rule != nil:
			by = "by rule " + strconv.Itoa(*t.DecidedBy.Rule) + ", priority " + strconv.Itoa(t.DecidedBy.Priority)
		case !t.Allowed:
			by = "by no rule and no plain permission"
		}
		printf(w, "token %s (%s in %s): %s, %s; shown as a %s\n", plain(cmp.Or(t.ID, "with an id that could be a card number")), plain(t.Type),
			plain(strings.Join(t.Containers, " ")), plain(cmp.Or(t.Transform, "refused")), by, plain(t.Shown))
	}
	for _, t := range []struct{ what, state string }{{"request", p.RequestTransform}, {"response", p.ResponseTransform}} {
		if t.state != "" {
			printf(w, "The %s transform was not run.\n", t.what)
		}
	}
	printf(w, "Nothing was sent.\n")
}
