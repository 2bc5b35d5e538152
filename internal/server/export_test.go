package server

import "github.com/tokenkeep/tokenkeep/internal/httpapi"

// CloseStore takes the store away from a running server.
func (s *Server) CloseStore() error { return s.store.Close() }

// MetricsURL returns where the metrics have an address of their own.
func (s *Server) MetricsURL() string {
	for _, d := range s.doors {
		if d.name == "metrics" {
			return "http://" + d.listener.Addr().String()
		}
	}
	return ""
}

// AdminRoutes returns the rows of the admin socket.
func (s *Server) AdminRoutes() []httpapi.Route { return s.adminRoutes() }
