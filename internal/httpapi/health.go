package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// readyTimeout bounds a readiness check.
const readyTimeout = 5 * time.Second

var (
	errDraining = fault.New(fault.Unavailable, "the service is shutting down")
	errNotReady = fault.New(fault.Unavailable, "the service is not ready")
)

func (h *Handler) healthRoutes() []Route {
	return []Route{
		{Pattern: "GET /healthz", Auth: Anonymous, Unlimited: true, NoCORS: true, Handle: h.healthz},
		{Pattern: "GET /readyz", Auth: Anonymous, Unlimited: true, NoCORS: true, Handle: h.readyz},
	}
}

func (h *Handler) healthz(w http.ResponseWriter, _ *http.Request, _ access.Caller) error {
	return WriteJSON(w, http.StatusOK, api.Health{Status: "ok"})
}

func (h *Handler) readyz(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	if h.draining.Load() {
		return errDraining
	}
	if h.options.Ready != nil {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if err := h.options.Ready(ctx); err != nil {
			exchangeOf(r.Context()).cause = err
			return errNotReady
		}
	}
	return WriteJSON(w, http.StatusOK, api.Health{Status: "ready"})
}

// Serve makes an http.Handler fit for a row, as that of /metrics.
func Serve(h http.Handler) func(http.ResponseWriter, *http.Request, access.Caller) error {
	return func(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
		h.ServeHTTP(w, r)
		return nil
	}
}
