package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/backup"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
)

// lastBackup names the setting that says when the last backup was done.
const lastBackup = "backup.last"

// watchBackups shows in the metrics when the last backup was done: 0 means
// never. PostgreSQL has backups of its own, which we know nothing of.
func (s *Server) watchBackups(ctx context.Context) error {
	s.lastBackup = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tokenkeep_backup_last_success_timestamp_seconds", Help: "When the last backup of the embedded store was done; 0 when there was none.",
	})
	s.registry.MustRegister(s.lastBackup)
	value, err := s.store.AllTenants().Setting(ctx, lastBackup)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read when the last backup was done: %w", err)
	}
	if at, err := time.Parse(time.RFC3339, string(value)); err == nil {
		s.lastBackup.Set(float64(at.Unix()))
	}
	return nil
}

var (
	errNotOurs        = fault.New(fault.Conflict, "the store is PostgreSQL, which is backed up with its own tools: docs/operations.md has the commands")
	errBackupFolder   = fault.New(fault.Invalid, "the server cannot make or read the folder for the backup: name one that its user can write to")
	errFolderNotEmpty = fault.New(fault.Conflict, "the folder for the backup is not empty")
	errRelative       = fault.Field("folder", "must be an absolute path")
)

// adminBackup writes a backup into a folder of this machine. When it does not
// succeed, nothing of it is left.
func (s *Server) adminBackup(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	var in admin.Backup
	if err := httpapi.Decode(r, &in); err != nil {
		return err
	}
	backups := s.store.Backups()
	if backups == nil {
		return errNotOurs
	}
	if !filepath.IsAbs(in.Folder) {
		return errRelative
	}
	undo, err := backup.Create(in.Folder)
	if errors.Is(err, backup.ErrNotEmpty) {
		return errFolderNotEmpty
	}
	if err != nil {
		return errBackupFolder
	}
	return follow(w, func(say func(string)) (any, error) {
		m, err := s.backup(r.Context(), backups, in.Folder, say)
		if err != nil {
			undo()
			return nil, err
		}
		return m, nil
	})
}

func (s *Server) backup(ctx context.Context, backups store.Backups, folder string, say func(string)) (backup.Manifest, error) {
	began := s.now().UTC()
	told := time.Time{}
	contents, err := backups.Backup(ctx, filepath.Join(folder, sqlite.BackupFile), func(written, of int64) {
		if at := time.Now(); at.Sub(told) >= time.Second || written == of {
			told = at
			say(fmt.Sprintf("wrote %.1f of about %.1f MB", float64(written)/1e6, float64(of)/1e6))
		}
	})
	if err != nil {
		return backup.Manifest{}, err
	}
	say("reading it once more, for its hash")
	m, err := backup.Finish(ctx, folder, sqlite.BackupFile, backup.Manifest{
		Release: s.options.Version, MadeAt: began, Schema: contents.Schema, KEKs: contents.KEKs, Rows: contents.Rows,
	})
	if err != nil {
		return m, err
	}
	s.lastBackup.Set(float64(began.Unix()))
	if err := s.store.AllTenants().PutSetting(ctx, lastBackup, []byte(began.Format(time.RFC3339))); err != nil {
		// The backup is whole all the same.
		s.log.Warn("could not note that a backup was done", "cause", err)
	}
	return m, nil
}
