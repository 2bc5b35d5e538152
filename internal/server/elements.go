package server

import (
	"context"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// origins finds the pages that may embed the fields of a public key.
func (s *Server) origins(ctx context.Context, key string) ([]string, bool, error) {
	c, err := s.endpoints().Authenticate(ctx, secret.NewText(key))
	if err != nil && fault.Of(err).Kind() == fault.Unauthenticated {
		return nil, false, nil
	}
	return nil, err == nil && c.RequireType(access.Public) == nil, err
}
