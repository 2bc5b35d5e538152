package main

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/internal/server"
)

var errNoDevKeys = errors.New("the folder has no keys of a development server: start one with 'tokenkeep dev', or name its folder with --data")

func devEnvCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "env",
		Short: "Print the address and keys of the development server as shell variables",
		Long: `Prints lines that a shell can evaluate. They set TOKENKEEP_URL and
TOKENKEEP_API_KEY (the private key), which this command line and the clients read,
and TOKENKEEP_PUBLIC_KEY, TOKENKEEP_MANAGEMENT_KEY and TOKENKEEP_TENANT.`,
		Example: "  eval \"$(tokenkeep dev env)\"",
		Args:    cobra.NoArgs,
	}
	data := c.Flags().String("data", "data", "folder of the development server")
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		keys, err := server.ReadDevKeys(*data)
		if errors.Is(err, fs.ErrNotExist) {
			return errNoDevKeys
		}
		if err != nil {
			return err
		}
		variables := map[string]string{
			"TOKENKEEP_URL": keys.BaseURL, "TOKENKEEP_API_KEY": keys.PrivateKey, "TOKENKEEP_PUBLIC_KEY": keys.PublicKey,
			"TOKENKEEP_MANAGEMENT_KEY": keys.ManagementKey, "TOKENKEEP_TENANT": keys.TenantID,
		}
		return show(c, *asJSON, variables, func(w io.Writer, _ any) {
			for _, name := range slices.Sorted(maps.Keys(variables)) {
				printf(w, "export %s=%s\n", name, shellQuoted(variables[name]))
			}
		})
	}
	return c
}

// shellQuoted returns a text as one word of a shell.
func shellQuoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
