package server

import (
	"context"
	"errors"

	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// origins finds the pages that may embed the fields of a public key.
func (s *Server) origins(ctx context.Context, key string) (list []string, known bool, err error) {
	list, err = s.directory.AllowedOrigins(ctx, secret.NewText(key))
	if errors.Is(err, fault.NotFound) {
		return nil, false, nil
	}
	return list, err == nil, err
}
