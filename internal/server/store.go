package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/folder"
	"github.com/tokenkeep/tokenkeep/internal/limit"
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
		o := sqlite.Options{
			Logger: s.log, Metrics: s.registry, ReserveBytes: s.config.StoreReserve, MaxContainers: int64(s.config.MaxContainers),
			TurnEnded: func() { s.limits.Reached(limit.WriterTurn) },
		}
		if s.config.Dev && s.config.Source("store.reserve") == "default" {
			o.ReserveBytes = 0 // a developer's disk has better uses for it
		}
		opened, err := sqlite.Open(ctx, s.config.Data, o)
		if err != nil {
			return err
		}
		s.store = opened
		return s.watchBackups(ctx)
	}
	// The folder holds the admin socket, which one server has for itself.
	if s.lock, err = folder.CreateAndLock(s.config.Data); err != nil {
		return err
	}
	opened, err := openPostgres(ctx, s.config, postgres.Options{Logger: s.log, Metrics: s.registry, Ahead: s.options.Ahead, MaxContainers: int64(s.config.MaxContainers)})
	if err != nil {
		return err
	}
	s.store = opened
	return nil
}

// openPostgres opens the database of the configuration.
func openPostgres(ctx context.Context, c *config.Config, o postgres.Options) (*postgres.Store, error) {
	url, err := storeURL(c.StoreURL, c.StoreURLFile)
	if err != nil {
		return nil, err
	}
	o.Connections, o.RequestRole, o.LoggedEpochKeys = c.StoreConnections, c.StoreRequestRole, c.StoreLoggedEpochKeys
	return postgres.Open(ctx, url.Reveal(), o)
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
