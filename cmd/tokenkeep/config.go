package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/server"
)

func configCommand() *cobra.Command {
	return group("config", "Look at the configuration", configCheckCommand(), configSettingsCommand())
}

func configCheckCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "check",
		Short: "Say whether a server would start with this configuration",
		Long:  "Reads the configuration as serve does, refuses what serve would refuse, and prints every setting with where its value came from.",
		Args:  cobra.NoArgs,
	}
	load := settingFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		conf, err := load()
		if err != nil {
			return err
		}
		if err := server.Check(conf); err != nil {
			return err
		}
		w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
		for _, s := range config.Settings() {
			_, _ = fmt.Fprintf(w, "%s\t%s\t(%s)\n", s.Name, s.Value(conf), conf.Source(s.Name))
		}
		if err := w.Flush(); err != nil {
			return err
		}
		_, err = fmt.Fprintln(c.OutOrStdout(), "The configuration is good.")
		return err
	}
	return c
}

func configSettingsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "settings",
		Short: "List every setting with its variable, flag and default",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, s := range config.Settings() {
				flag := "--" + s.Flag()
				if s.Secret {
					flag = "no flag: environment alone"
				}
				if _, err := fmt.Fprintf(c.OutOrStdout(), "%s (%s, %s)\n    %s\n", s.Name, s.Env(), flag, s.Doc); err != nil {
					return err
				}
				if s.Default != "" {
					if _, err := fmt.Fprintf(c.OutOrStdout(), "    Default: %s\n", s.Default); err != nil {
						return err
					}
				}
			}
			return nil
		},
	}
}
