package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/server"
)

func devCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run a server to try things out with, on this machine alone",
		Long: `Starts a server with settings for a developer's own machine: it listens on
loopback, keeps everything under one folder, makes its own key, a tenant and
three applications, and prints what to paste next. The second start finds what
the first one left. Not for real data: the key lies beside what it protects.`,
		Example: "  tokenkeep dev --data data",
		Args:    cobra.NoArgs,
	}
	addr := c.Flags().String("addr", "127.0.0.1:8420", "address to listen on; port 0 takes a free one")
	data := c.Flags().String("data", "data", "folder for everything that the server keeps")
	prefix := c.Flags().String("header-prefix", "SVC", "prefix of the service's own headers")
	c.RunE = func(c *cobra.Command, _ []string) error {
		settings := map[string]string{
			"addr": *addr, "data": *data, "header_prefix": *prefix, "environment": "dev",
			"log.format": "text", "log.level": "warn", "drain.delay": "0s", "drain.timeout": "5s",
		}
		for _, s := range config.Settings() { // a variable wins over what nobody asked for
			if _, set := os.LookupEnv(s.Env()); set && !c.Flags().Changed(s.Flag()) {
				delete(settings, s.Name)
			}
		}
		conf, err := config.Load("", os.Environ(), settings)
		if err != nil {
			return err
		}
		conf.Dev = true
		return serve(c.Context(), conf, newLogger(conf, c.ErrOrStderr()), nil, func(ctx context.Context, s *server.Server) error {
			keys, fresh, err := s.Demo(ctx)
			if err != nil {
				return err
			}
			link, err := s.DemoLink(ctx, keys.TenantID)
			if err != nil {
				return err
			}
			return greet(c.OutOrStdout(), conf, keys, link, fresh, s.RunsCode())
		})
	}
	return c
}

// greet prints what to do next. Keys are shown on the first start alone; later
// ones name the file that has them.
func greet(w io.Writer, conf *config.Config, k server.DevKeys, link string, fresh, code bool) error {
	file := filepath.Join(conf.Data, "dev-keys.json")
	header := api.Header(conf.HeaderPrefix, api.APIKey)
	if !fresh {
		_, err := fmt.Fprintf(w, `Tokenkeep is ready at %s

The keys of the demo tenant are in %s. Stop with Ctrl-C.
%s`, k.BaseURL, file, greetLink(link))
		return err
	}
	page := ""
	if conf.APIPage {
		page = "Try calls in a browser at " + k.BaseURL + "/docs.\n"
	}
	_, err := fmt.Fprintf(w, `Tokenkeep is ready at %[1]s

Tenant demo, %[2]s. Its keys, shown this once and kept in %[3]s:

  management  %[4]s
  private     %[5]s
  public      %[6]s

%[10]s%[9]sPaste one of these:

  # put a card away, as a browser may: the answer has a token and a masked number
  curl -s %[1]s/tokens -H '%[7]s: %[6]s' -H 'Content-Type: application/json' \
    -d '{"id":"my-card","type":"card","data":{"number":"4242424242424242","expiration_month":12,"expiration_year":2030,"cvc":"123"}}'

  # read it back, as your server may
  curl -s %[1]s/tokens/my-card -H '%[7]s: %[5]s'

  # tokenize any JSON: the same structure comes back with tokens in place of values
  curl -s %[1]s/tokenize -H '%[7]s: %[5]s' -H 'Content-Type: application/json' \
    -d '{"name":"Jane Doe","card":{"type":"card","data":{"number":"4242424242424242"}}}'

%[8]s  # who am I?
  curl -s %[1]s/applications/key -H '%[7]s: %[5]s'

  # make an application that may create tokens and nothing else
  curl -s %[1]s/applications -H '%[7]s: %[4]s' -H 'Content-Type: application/json' \
    -d '{"name":"checkout","type":"public","permissions":["token:create"]}'

  # give a browser a key that lives three minutes, and may do nothing before it is authorized
  curl -s -X POST %[1]s/sessions -H '%[7]s: %[6]s'

  # what happened so far?
  curl -s %[1]s/logs -H '%[7]s: %[4]s'

Stop with Ctrl-C.
`, k.BaseURL, k.TenantID, file, k.ManagementKey, k.PrivateKey, k.PublicKey, header, greetCode(k, header, code), page, greetLink(link))
	return err
}

// greetLink has the line with the link that signs a person in.
func greetLink(link string) string {
	if link == "" {
		return ""
	}
	return "Sign in as the owner, once, within ten minutes:\n\n  " + link + "\n\n"
}

// greetCode has the lines that run code, where code runs.
func greetCode(k server.DevKeys, header string, code bool) string {
	if !code {
		return ""
	}
	return fmt.Sprintf(`  # run your own code on the card: whoever calls it sees what it returns, and not the number
  reactor=$(curl -s %[1]s/reactors -H '%[4]s: %[2]s' -H 'Content-Type: application/json' \
    -d '{"name":"last four","configuration":{},"code":"module.exports = async (req) => ({ raw: { last4: req.args.card.number.slice(-4) } })"}' |
    sed 's/^{"id":"\([^"]*\)".*/\1/')
  curl -s %[1]s/reactors/$reactor/react -H '%[4]s: %[3]s' -H 'Content-Type: application/json' -d '{"args":{"card":"{{ my-card }}"}}'

`, k.BaseURL, k.ManagementKey, k.PrivateKey, header)
}
