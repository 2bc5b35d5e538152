package server

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/endpoint"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

var errOtherHost = fault.New(fault.NotFound, "no such resource under this host name; elements.public_url gives the field pages one of their own")

// origins finds the pages that may embed the fields of a public key.
func (s *Server) origins(ctx context.Context, key string) (list []string, known bool, err error) {
	list, err = s.directory.AllowedOrigins(ctx, secret.NewText(key))
	if errors.Is(err, fault.NotFound) {
		return nil, false, nil
	}
	return list, err == nil, endpoint.OrBusy(err)
}

// byHost refuses what the host name of a request does not serve: where the field
// pages have a name of their own, that name serves the fields and what they
// call, and no other name serves a field page. It is nil where they have none.
func byHost(c *config.Config) func(*http.Request) error {
	_, fields, own := strings.Cut(c.ElementsPublicURL, "://")
	if !own || c.ElementsPublicURL == c.PublicURL {
		return nil
	}
	defaultPort := ":443"
	if strings.HasPrefix(c.ElementsPublicURL, "http://") {
		defaultPort = ":80"
	}
	return func(r *http.Request) error {
		if strings.TrimSuffix(strings.ToLower(r.Host), defaultPort) == fields {
			if path := r.URL.EscapedPath(); !isForFields(path) {
				return errOtherHost
			}
			return nil
		}
		// The decoded path, in which nothing is hidden.
		if file, found := strings.CutPrefix(r.URL.Path, "/elements/v1/"); found && strings.Contains(file, "/") {
			return errOtherHost
		}
		return nil
	}
}

// isForFields reports whether a path is one of the fields, or one that they call.
func isForFields(path string) bool {
	return path == "/sessions" || path == "/tokens" || strings.HasPrefix(path, "/tokens/") || strings.HasPrefix(path, "/elements/")
}
