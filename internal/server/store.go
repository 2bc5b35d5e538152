package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
)

// openStore opens the store that the configuration names: PostgreSQL where
// there is a URL, else the embedded one in the data folder.
func (s *Server) openStore(ctx context.Context) error {
	url, err := storeURL(s.config.StoreURL, s.config.StoreURLFile)
	if err != nil {
		return err
	}
	if url.IsZero() {
		opened, err := sqlite.Open(ctx, s.config.Data, sqlite.Options{Logger: s.log, Metrics: s.registry})
		if err != nil {
			return err
		}
		s.store = opened
		return s.watchBackups(ctx)
	}
	// The folder holds the admin socket, which one server has for itself.
	if s.lock, err = sqlite.LockFolder(s.config.Data); err != nil {
		return err
	}
	opened, err := postgres.Open(ctx, url.Reveal(), postgres.Options{
		Logger: s.log, Metrics: s.registry, Connections: s.config.StoreConnections,
		RequestRole: s.config.StoreRequestRole, LoggedEpochKeys: s.config.StoreLoggedEpochKeys,
		Ahead: s.options.Ahead,
	})
	if err != nil {
		return err
	}
	s.store = opened
	return nil
}

// storeURL reads the URL from its file unless it was given itself.
func storeURL(given secret.Text, file string) (secret.Text, error) {
	if file == "" {
		return given, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return secret.Text{}, fmt.Errorf("read store.url_file: %w", errors.Unwrap(err))
	}
	return secret.NewText(strings.TrimSpace(string(b))), nil
}
