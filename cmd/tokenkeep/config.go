package main

import (
	"cmp"
	"io"

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
		Long: `Reads the configuration as serve does, refuses what serve would refuse, and prints
every setting with where its value came from.`,
		Example: "  tokenkeep config check --config tokenkeep.yaml",
		Args:    cobra.NoArgs,
	}
	asJSON := jsonFlag(c)
	load := settingFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		conf, err := load()
		if err != nil {
			return err
		}
		if err := server.Check(conf); err != nil {
			return err
		}
		type setting struct {
			Name   string `json:"name"`
			Value  string `json:"value"`
			Source string `json:"source"`
		}
		var all []setting
		for _, s := range config.Settings() {
			all = append(all, setting{s.Name, s.Value(conf), conf.Source(s.Name)})
		}
		return show(c, *asJSON, all, func(w io.Writer, _ any) {
			for _, s := range all {
				printf(w, "%s\t%s\t(%s)\n", s.Name, s.Value, s.Source)
			}
			printf(w, "The configuration is good.\n")
		})
	}
	return c
}

func configSettingsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "settings",
		Short:   "List every setting with its variable, flag and default",
		Example: "  tokenkeep config settings",
		Args:    cobra.NoArgs,
	}
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		type setting struct {
			Name     string `json:"name"`
			Variable string `json:"variable"`
			Flag     string `json:"flag,omitempty"` // secrets have none
			Meaning  string `json:"meaning"`
			Default  string `json:"default,omitempty"`
		}
		var all []setting
		for _, s := range config.Settings() {
			flag := "--" + s.Flag()
			if s.Secret {
				flag = ""
			}
			all = append(all, setting{s.Name, s.Env(), flag, s.Doc, s.Default})
		}
		return show(c, *asJSON, all, func(w io.Writer, _ any) {
			for _, s := range all {
				printf(w, "%s (%s, %s)\n    %s\n", s.Name, s.Variable, cmp.Or(s.Flag, "no flag: environment alone"), s.Meaning)
				if s.Default != "" {
					printf(w, "    Default: %s\n", s.Default)
				}
			}
		})
	}
	return c
}
