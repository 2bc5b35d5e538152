package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/endpoint"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// adminRoutes are the rows of the admin socket. Who reaches it is the operator.
func (s *Server) adminRoutes() []httpapi.Route {
	rows := []httpapi.Route{
		{Pattern: "GET /status", Auth: httpapi.AdminSocket, Handle: s.adminStatus},
		{Pattern: "POST /sweep", Auth: httpapi.AdminSocket, Handle: s.adminSweep},
		{Pattern: "POST /store/check", Auth: httpapi.AdminSocket, Handle: s.adminCheck},
		{Pattern: "POST /backup", Auth: httpapi.AdminSocket, Body: httpapi.JSON, Handle: s.adminBackup},
	}
	rows = append(rows, s.keyRoutes()...)
	rows = append(rows, s.auditRoutes()...)
	return append(rows, endpoint.OperatorRoutes(s.endpoints())...)
}

func (s *Server) adminStatus(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	return httpapi.WriteJSON(w, http.StatusOK, admin.Status{
		BaseURL: s.BaseURL(), Version: s.options.Version, StartedAt: s.started.UTC(), Ready: s.ready(r.Context()) == nil, KMS: s.outage.trouble(),
		ClockOffsetMS: s.clockOffset(r.Context()), SandboxLevel: s.sandboxLevel(), LimitsReached: s.limits.LastHour(),
		Outdated: errors.Is(s.store.AllTenants().Current(r.Context()), store.ErrNewerSchema),
	})
}

// clockOffset compares our clock with the database's, at the middle of the
// question; nil when the store has no clock of its own or gives no answer.
func (s *Server) clockOffset(ctx context.Context) *int64 {
	asked := s.now()
	at, err := s.store.Now(ctx)
	if err != nil {
		return nil
	}
	offset := asked.Add(s.now().Sub(asked) / 2).Sub(at).Milliseconds()
	return &offset
}

// adminSweep does at once what the server does by itself every half minute.
func (s *Server) adminSweep(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	keys, err := s.ring.DestroyDue(r.Context(), 0)
	if err != nil {
		return err
	}
	tokens, err := s.tokens.Sweep(r.Context())
	if err != nil {
		return err
	}
	sessions, err := s.directory.SweepSessions(r.Context())
	if err != nil {
		return err
	}
	if _, err := store.SweepParcels(r.Context(), s.store, store.At(s.now())); err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, admin.Swept{Tokens: tokens, Sessions: sessions, Keys: keys})
}

func (s *Server) adminCheck(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	return stream(w, func(say func(admin.Progress)) (last admin.Progress, err error) {
		last.Found, err = s.store.Check(r.Context(), func(doing string) { say(admin.Progress{Doing: doing}) })
		return last, err
	})
}

// follow streams work that reports in sentences and ends with one value.
func follow(w http.ResponseWriter, work func(say func(string)) (any, error)) error {
	return stream(w, func(say func(admin.Progress)) (last admin.Progress, err error) {
		v, err := work(func(doing string) { say(admin.Progress{Doing: doing}) })
		if err == nil && v != nil {
			last.Data, err = json.Marshal(v)
		}
		return last, err
	})
}

// stream answers long work in lines, so that whoever waits sees how far it has
// come. The operator may be told what went wrong inside.
func stream(w http.ResponseWriter, work func(say func(admin.Progress)) (admin.Progress, error)) error {
	w.Header().Set("Content-Type", "application/x-ndjson")
	control := http.NewResponseController(w)
	say := func(p admin.Progress) {
		_ = json.NewEncoder(w).Encode(p) // a client that has gone also ends the context
		_ = control.Flush()
	}
	last, err := work(say)
	last.Done = true
	if err != nil {
		last.Error = err.Error()
	}
	say(last)
	return nil
}

var errNoTenant = fault.New(fault.NotFound, "no such tenant")

// asFault finds the words for what the keyring reports.
func asFault(err error) error {
	switch {
	case errors.Is(err, keyring.ErrNoKeys), errors.Is(err, store.ErrNoTenant):
		return errNoTenant
	case errors.Is(err, keyring.ErrInUse):
		return errKEKInUse
	case errors.As(err, new(*keyring.Unsupported)):
		return errKEKElsewhere
	}
	return err
}
