package server

import (
	"context"
	"net/http"

	"github.com/tokenkeep/tokenkeep/internal/admission"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

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

// NoteTime keeps the time for the next start.
func (s *Server) NoteTime(ctx context.Context) error { return s.noteTime(ctx) }

// DoubtsClock says that nothing is destroyed because the clock says so.
func (s *Server) DoubtsClock() bool { return s.doubtsClock() }

// Memory returns what requests in flight hold.
func (s *Server) Memory() *admission.Pool { return s.memory }

// TotalMemory is totalMemory.
var TotalMemory = totalMemory

// ByHost is byHost.
var ByHost = byHost

// Handler is what serves the API.
func (s *Server) Handler() http.Handler { return s.api }
