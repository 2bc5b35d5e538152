package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/backup"
	"github.com/tokenkeep/tokenkeep/internal/server"
)

func backupCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "backup FOLDER", Short: "Copy the store of the running server into a new folder",
		Long: `Writes the embedded store, as it is at one instant, and a manifest with hashes,
row counts and the ids of the key-encryption keys that the copy needs. Requests
go on meanwhile. The copy is ciphertext; neither the key-encryption key nor the
keys that live an hour are in it. The server itself writes the folder, so its
user must be allowed to; the folder must be empty or not be there. A copy that
was cut short has no manifest, and 'tokenkeep restore' refuses it.

A store in PostgreSQL is backed up with PostgreSQL's own tools.`,
		Example: "  tokenkeep backup /var/backups/tokenkeep/monday --data /var/lib/tokenkeep",
		Args:    cobra.ExactArgs(1),
	}
	return operatorCommand(c, func(c *cobra.Command, call *admin.Client, args []string) (any, error) {
		folder, err := filepath.Abs(args[0])
		if err != nil {
			return nil, &usageError{errors.New("the folder cannot be found from here: name it with its full path")}
		}
		if err := backup.Empty(folder); errors.Is(err, backup.ErrNotEmpty) {
			return nil, err
		}
		last, err := call.Follow(c.Context(), http.MethodPost, "/backup", admin.Backup{Folder: folder}, tell(c))
		if err != nil {
			return nil, err
		}
		var m backup.Manifest
		if err := json.Unmarshal(last.Data, &m); err != nil {
			return nil, fmt.Errorf("the server's answer is not understood: %w", err)
		}
		return &m, nil
	}, func(w io.Writer, v any) {
		m := v.(*backup.Manifest)
		showManifest(w, *m)
		printf(w, "\nThe backup is whole. It opens with the key-encryption keys named here: keep them elsewhere.\n")
	})
}

func showManifest(w io.Writer, m backup.Manifest) {
	printf(w, "made\t%s\nrelease\t%s\nschema\t%d\nbytes\t%d\nsha256\t%s\n", m.MadeAt.Format(time.RFC3339), m.Release, m.Schema, m.File.Bytes, m.File.SHA256)
	printf(w, "tenants\t%d\ntokens\t%d\nlog entries\t%d\n", m.Rows["tenants"], m.Rows["tokens"], m.Rows["log"])
	printf(w, "key-encryption keys\t%s\n", strings.Join(m.KEKs, ", "))
}

func restoreCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "restore FOLDER", Short: "Make a data folder out of a backup",
		Long: `Puts the store of a backup into an empty data folder, for a server to be started
on it. The hashes of the manifest are checked, the store is opened and brought
up to date, and the configured key-encryption key must open the keys of every
tenant. With --verify the whole store is checked, every sealed value is opened
and every tenant's log is verified. When anything is wrong, nothing is restored.

Security codes do not come back: their keys live an hour and are in no backup.
What happened since the backup is undone, revoked keys and deleted tenants too:
docs/runbooks.md says what to do about it.`,
		Example: "  tokenkeep restore /var/backups/tokenkeep/monday --config /etc/tokenkeep/tokenkeep.yaml --verify",
		Args:    cobra.ExactArgs(1),
	}
	verify := c.Flags().Bool("verify", false, "check the store, open every sealed value and verify every log")
	asJSON := c.Flags().Bool("json", false, "print JSON")
	load := settingFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		conf, err := load()
		if err != nil {
			return err
		}
		say := func(doing string) { _ = tell(c)(admin.Progress{Doing: doing}) }
		restored, err := server.Restore(c.Context(), conf, args[0], *verify, time.Now, say)
		if err != nil {
			return err
		}
		return show(c, *asJSON, restored, func(w io.Writer, _ any) {
			showManifest(w, restored.Backup)
			if v := restored.Verified; v != nil {
				printf(w, "\nEvery one of %d sealed values of %d tenants opens; %d log entries are as they were sealed.\n", v.Values, v.Tenants, v.Entries)
			}
			printf(w, "\nThe store is restored. Start the server on it.\n")
		})
	}
	return c
}
