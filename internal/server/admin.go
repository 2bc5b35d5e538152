package server

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

// adminRoutes are the rows of the admin socket. Who reaches it is the operator.
func (s *Server) adminRoutes() []httpapi.Route {
	return []httpapi.Route{
		{Pattern: "GET /status", Who: httpapi.Open, Operator: true, Handle: s.adminStatus},
		{Pattern: "POST /store/check", Who: httpapi.Open, Operator: true, Handle: s.adminCheck},
	}
}

// Status is what a running server tells its operator.
type Status struct {
	BaseURL   string    `json:"base_url"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"started_at"`
	Ready     bool      `json:"ready"`
}

func (s *Server) adminStatus(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	return httpapi.WriteJSON(w, http.StatusOK, Status{
		BaseURL: s.BaseURL(), Version: s.options.Version, StartedAt: s.started.UTC(), Ready: s.store.Ready(r.Context()) == nil,
	})
}

// Progress is one line of the answer to long work: what is being done, or the
// end of it with what was found.
type Progress struct {
	Doing string   `json:"doing,omitempty"`
	Done  bool     `json:"done,omitempty"`
	Found []string `json:"found,omitempty"`
	Error string   `json:"error,omitempty"`
}

// adminCheck answers in lines, so that whoever waits sees how far it has come.
func (s *Server) adminCheck(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	return stream(w, func(say func(Progress)) ([]string, error) {
		return s.store.Check(r.Context(), func(doing string) { say(Progress{Doing: doing}) })
	})
}

func stream(w http.ResponseWriter, work func(say func(Progress)) ([]string, error)) error {
	w.Header().Set("Content-Type", "application/x-ndjson")
	control := http.NewResponseController(w)
	say := func(p Progress) {
		_ = json.NewEncoder(w).Encode(p) // a client that has gone also ends the context
		_ = control.Flush()
	}
	found, err := work(say)
	last := Progress{Done: true, Found: found}
	if err != nil {
		last.Error = err.Error()
	}
	say(last)
	return nil
}
