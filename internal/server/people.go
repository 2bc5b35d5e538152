package server

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/endpoint"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/member"
)

// consoleURL is the origin under which browsers reach this server.
func (s *Server) consoleURL() string { return cmp.Or(s.config.PublicURL, s.BaseURL()) }

// people says how members who have signed in are known. Browsers reach this
// server over TLS when it ends here, or in front of it and public_url, if there
// is one, says so.
func (s *Server) people() httpapi.People {
	plain := strings.HasPrefix(s.config.PublicURL, "http://")
	return httpapi.People{
		Authenticate: s.endpoints().AuthenticatePerson, PublicURL: s.config.PublicURL,
		Secure: s.certificate != nil || !plain && (s.config.TLSTerminatedElsewhere || s.config.PublicURL != ""),
	}
}

// acting is the caller that an application, a session or a member is now, for
// work that nobody waits for.
func (s *Server) acting(ctx context.Context, tenant, id, session string) (access.Caller, error) {
	c, err := s.directory.Acting(ctx, tenant, id, session)
	if session == "" && errors.Is(err, fault.NotFound) {
		if c, memberErr := s.members.Acting(ctx, tenant, id); memberErr == nil {
			return c, nil
		}
	}
	return c, err
}

// DemoLink returns the address of a link that signs the owner of a tenant in,
// for development mode; "" when the tenant is not known.
func (s *Server) DemoLink(ctx context.Context, tenant string) (string, error) {
	if tenant == "" {
		return "", nil
	}
	link, err := s.members.CreateLink(ctx, directory.Operator(tenant), member.NewMember{Email: "owner@localhost", Name: "Owner", Role: member.Owner})
	if errors.Is(err, fault.Conflict) || errors.Is(err, fault.Forbidden) || errors.Is(err, fault.NotFound) {
		return "", nil // somebody has changed that member, or the tenant is gone
	}
	if err != nil {
		return "", err
	}
	return endpoint.SignInLink(s.consoleURL(), link.Code), nil
}
