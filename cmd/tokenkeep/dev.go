package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/server"
)

func devCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run a server to try things out with, on this machine alone",
		Long: `Starts a server with settings for a developer's own machine: it listens on
loopback, keeps everything under one folder, makes its own key, and prints
what to paste next. The second start finds what the first one left. Not for
real data: the key lies beside what it protects.`,
		Args: cobra.NoArgs,
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
		return serve(c.Context(), conf, newLogger(conf, c.ErrOrStderr()), nil, func(s *server.Server) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "Tokenkeep is ready at %s\n\n  curl %s/readyz\n", s.BaseURL(), s.BaseURL())
			return err
		})
	}
	return c
}
