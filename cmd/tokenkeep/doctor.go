package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/doctor"
	"github.com/tokenkeep/tokenkeep/internal/server"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
)

var errUnwell = errors.New("something must be put right: the lines that say fail tell what")

func doctorCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "doctor", Short: "Look at a server and its machine and say what to put right",
		Long: `Looks at clock, disk, file modes, certificate, keys, migrations, sandbox, core
dumps, swap and limits, and says of each whether it is ok, worth a warning or a
failure, and what to do. Give it the configuration of the server, and run it as
the server's user on the server's machine. What a running server knows is asked
of it; without one some rows are unknown. Changes nothing.`,
		Example: "  tokenkeep doctor --config /etc/tokenkeep/tokenkeep.yaml",
		Args:    cobra.NoArgs,
	}
	asJSON := c.Flags().Bool("json", false, "print JSON")
	load := settingFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		conf, err := load()
		if err != nil {
			return err
		}
		file, _ := c.Flags().GetString("config")
		findings := doctor.Examine(patient(c.Context(), conf, file))
		err = show(c, *asJSON, findings, func(w io.Writer, _ any) {
			for _, f := range findings {
				printf(w, "%s\t%s\t%s\n", f.State, f.Name, f.Found)
				if f.Do != "" {
					printf(w, "\t\t→ %s\n", f.Do)
				}
			}
		})
		if err == nil && doctor.Worst(findings) == doctor.Fail {
			return errUnwell
		}
		return err
	}
	return c
}

// patient gathers what the doctor looks at.
func patient(ctx context.Context, conf *config.Config, file string) doctor.Patient {
	p := doctor.Patient{
		Config: conf, ConfigFile: file, ConfigErr: server.Check(conf), Now: time.Now, PID: os.Getpid(), Proc: "/proc",
		Schema: func() (int, int, error) { return sqlite.Schema(conf.Data) },
	}
	call := admin.NewClient(conf.Data)
	var status admin.Status
	if call.Call(ctx, http.MethodGet, "/status", nil, &status) != nil {
		return p
	}
	p.Status = &status
	var keys admin.KeyStatus
	if call.Call(ctx, http.MethodGet, "/keys", nil, &keys) == nil {
		p.Keys = &keys
	}
	var note server.Note
	if b, err := os.ReadFile(filepath.Join(conf.Data, server.NoteFile)); err == nil && json.Unmarshal(b, &note) == nil {
		p.PID = note.PID
	}
	return p
}
