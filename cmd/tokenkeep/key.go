package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/keyring/providers"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

func keyCommand() *cobra.Command {
	create := &cobra.Command{
		Use: "create FILE|URI", Short: "Make a key-encryption key in a new file, or print how to make one in a KMS",
		Long: `Makes a key-encryption key in a file that only you can read. Keep a copy of it
away from the machine and away from its backups: without it nothing that the
server stores can ever be opened again, and with it and a copy of the data
everything can.

For a pkcs11: URI it makes the key inside the token, which it never leaves; the
PIN comes from the file that pin-source names, or from TOKENKEEP_KEK_PIN. For the
URI of a key in another KMS it creates nothing: it prints the command that makes
the key and the permissions that the server needs.`,
		Example: "  tokenkeep key create /etc/tokenkeep/kek\n  tokenkeep key create 'hcvault://vault.example:8200/transit/keys/tokenkeep?auth=token&token_file=/etc/tokenkeep/token'",
		Args:    cobra.ExactArgs(1),
	}
	asJSON := jsonFlag(create)
	create.RunE = func(c *cobra.Command, args []string) error {
		uri, set := args[0], "kek to the URI"
		if !providers.IsURI(uri) {
			uri, set = "file:"+uri, "kek.file to this file"
		}
		id, advice, err := providers.Create(c.Context(), uri, providers.Options{PIN: secret.NewText(os.Getenv("TOKENKEEP_KEK_PIN"))})
		if err != nil {
			return err
		}
		if advice != "" {
			return show(c, *asJSON, map[string]string{"advice": advice}, func(w io.Writer, _ any) {
				printf(w, "To make the key, %s\n\nThen set %s.\n", advice, set)
			})
		}
		return show(c, *asJSON, map[string]string{"id": id}, func(w io.Writer, _ any) {
			printf(w, "Made key-encryption key %s. Set %s.\n", id, set)
		})
	}
	add := &cobra.Command{
		Use: "add FILE", Short: "Add a key-encryption key to a file, for several servers that rotate together",
		Long: `Adds a new key to a file and makes it the one that wraps; the others stay and
unwrap. It talks to no server. Put the file on every server, in place of the one
that kek.file names: they read it by themselves. Then run 'tokenkeep key
rotate-kek' on one of them, which takes the key that is there.`,
		Example: "  tokenkeep key add /root/kek.next",
		Args:    cobra.ExactArgs(1),
	}
	addJSON := jsonFlag(add)
	add.RunE = func(c *cobra.Command, args []string) error {
		keys, err := localkms.Open(args[0])
		if err != nil {
			return err
		}
		id, err := keys.Rotate(c.Context())
		if err != nil {
			return err
		}
		return show(c, *addJSON, map[string]string{"id": id}, func(w io.Writer, _ any) {
			printf(w, "Added key-encryption key %s. Put the file on every server, then run 'tokenkeep key rotate-kek' on one.\n", id)
		})
	}
	status := &cobra.Command{Use: "status", Short: "Tell which keys there are, how old, and what still needs old ones", Args: cobra.NoArgs,
		Example: "  tokenkeep key status --data /var/lib/tokenkeep"}
	rotateKEK := &cobra.Command{
		Use: "rotate-kek", Short: "Make a new key-encryption key and wrap every tenant's keys with it",
		Long: `Adds a new key to the file of the running server and wraps all keysets with it;
when the file has a key already that wraps less than everything, such as one of
'tokenkeep key add', it takes that. Requests go on meanwhile. A run that was cut
short is continued by running the command again. The old key stays in the file
until 'tokenkeep key drop-kek': backups made before need it.

Where several servers share a database, add the key with 'tokenkeep key add' and
put the file on all of them first.`,
		Example: "  tokenkeep key rotate-kek --data /var/lib/tokenkeep",
		Args:    cobra.NoArgs,
	}
	dropKEK := &cobra.Command{Use: "drop-kek ID", Short: "Remove a key-encryption key that wraps nothing any more", Args: cobra.ExactArgs(1),
		Example: "  tokenkeep key drop-kek local-1234abcd --data /var/lib/tokenkeep"}
	rotateTenant := &cobra.Command{
		Use: "rotate-tenant TENANT", Short: "Give a tenant a new data key and seal everything it has with it",
		Long: `Brings in a new data key, seals all of the tenant's values with it in small
steps, and destroys the old key when nothing is left on it. Requests go on
meanwhile. A run that was cut short is continued by running the command again.
Fingerprints and search indexes do not change.` + byTenant,
		Example: "  tokenkeep key rotate-tenant acme --data /var/lib/tokenkeep",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: completeOneTenant,
	}
	return group("key", "Make, inspect and rotate keys",
		create, add,
		operatorCommand(status, func(c *cobra.Command, call *admin.Client, _ []string) (any, error) {
			var out admin.KeyStatus
			return &out, call.Call(c.Context(), http.MethodGet, "/keys", nil, &out)
		}, func(w io.Writer, v any) {
			s := v.(*admin.KeyStatus)
			printf(w, "Key-encryption keys: %s (primary %s)\n\n", strings.Join(s.KEKs, ", "), s.Primary)
			printf(w, "TENANT\tDATA KEY\tMADE\tPRIMARY\tVALUES\tWRAPPED BY\tROTATION\n")
			for _, t := range s.Tenants {
				for _, k := range t.Keys {
					values := "all"
					if k.Values >= 0 {
						values = fmt.Sprint(k.Values)
					}
					printf(w, "%s\t%s\t%s\t%t\t%s\t%s\t%s\n", t.Tenant, k.ID, k.MadeAt.Format("2006-01-02 15:04:05"), k.Primary, values, strings.Join(t.KEKs, ","), t.Rotation)
				}
			}
		}),
		operatorCommand(rotateKEK, func(c *cobra.Command, call *admin.Client, _ []string) (any, error) {
			_, err := call.Follow(c.Context(), http.MethodPost, "/keys/rotate-kek", nil, tell(c))
			return &api.Health{Status: "rotated"}, err
		}, func(w io.Writer, _ any) {
			printf(w, "Everything is wrapped with the new key. 'tokenkeep key status' names the old one, for 'tokenkeep key drop-kek'.\n")
		}),
		operatorCommand(dropKEK, func(c *cobra.Command, call *admin.Client, args []string) (any, error) {
			return &api.Health{Status: "dropped"}, call.Call(c.Context(), http.MethodPost, "/keys/drop-kek", admin.DropKEK{ID: args[0]}, nil)
		}, func(w io.Writer, _ any) { printf(w, "The key is gone from the file.\n") }),
		operatorCommand(rotateTenant, func(c *cobra.Command, call *admin.Client, args []string) (any, error) {
			tenant, err := tenantID(c, call, args[0])
			if err != nil {
				return nil, err
			}
			_, err = call.Follow(c.Context(), http.MethodPost, tenantPath(tenant, "rotate-key"), nil, tell(c))
			return &api.Health{Status: "rotated"}, err
		}, func(w io.Writer, _ any) {
			printf(w, "Everything is sealed with the new key, and the old one is destroyed.\n")
		}),
	)
}
