package main

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/server"
)

func migrateStoreCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "migrate-store", Short: "Move the embedded store to PostgreSQL",
		Long: `Moves the embedded store in the data folder to the PostgreSQL database that
store.url or store.url_file names: every row of every tenant as it stands, sealed
as it is, the logs with their seals, and the keys that live an hour. Stop the
server first; the command has the data folder to itself while it runs. The
database must be empty.

First the store is read, checked, every sealed value opened and every log
verified; then the rows are copied; then the copy is compared with what was read,
and checked, opened and verified in its turn. Servers refuse the database until
all of that is done. A run that was cut short, by whatever, is run again and goes
on where it was. The store in the folder stays as it is, but for the keys that
live an hour.`,
		Example: "  tokenkeep migrate-store --config /etc/tokenkeep/tokenkeep.yaml",
		Args:    cobra.NoArgs,
	}
	asJSON := c.Flags().Bool("json", false, "print JSON")
	load := settingFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		conf, err := load()
		if err != nil {
			return err
		}
		say := func(doing string) { _ = tell(c)(admin.Progress{Doing: doing}) }
		moved, err := server.MigrateStore(c.Context(), conf, time.Now, say)
		if err != nil {
			return err
		}
		return show(c, *asJSON, moved, func(w io.Writer, _ any) {
			printf(w, "complete since\t%s\n", moved.Complete.Format(time.RFC3339))
			printf(w, "tenants\t%d\ntokens\t%d\nlog entries\t%d\n", moved.Tables["tenants"].Rows, moved.Tables["tokens"].Rows, moved.Tables["log"].Rows)
			if v := moved.Verified; v != nil {
				printf(w, "\nEvery one of %d sealed values of %d tenants opens; %d log entries are as they were sealed.\n", v.Values, v.Tenants, v.Entries)
			}
			printf(w, "\nThe store is in the database. Start the servers on it, and none on the old store.\n")
		})
	}
	return c
}
