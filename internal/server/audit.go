package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// auditRoutes are the rows of the admin socket that look after tenants' logs.
func (s *Server) auditRoutes() []httpapi.Route {
	return []httpapi.Route{
		{Pattern: "POST /tenants/{tenant}/audit/verify", Auth: httpapi.AdminSocket, Body: httpapi.JSON, Handle: s.verifyLog},
		{Pattern: "POST /tenants/{tenant}/audit/checkpoint", Auth: httpapi.AdminSocket, Handle: s.checkpointLog},
		{Pattern: "POST /tenants/{tenant}/audit/export", Auth: httpapi.AdminSocket, Body: httpapi.JSON, Handle: s.exportLog},
		{Pattern: "POST /tenants/{tenant}/audit/retain", Auth: httpapi.AdminSocket, Body: httpapi.JSON, Handle: s.retainLog},
	}
}

// describe puts progress into a sentence.
func describe(say func(string)) func(audit.Progress) {
	return func(p audit.Progress) {
		if p.Total > 0 {
			say(fmt.Sprintf("%s: %d of %d", p.Doing, p.Done, p.Total))
			return
		}
		say(fmt.Sprintf("%s: %d", p.Doing, p.Done))
	}
}

// auditFault finds the words for a tenant that is not there and never was.
func auditFault(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return errNoTenant
	}
	return asFault(err)
}

var errCheckpoint = fault.New(fault.Invalid, "this is not a checkpoint, or one that was changed")

func (s *Server) verifyLog(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	var in admin.VerifyLog
	if err := httpapi.Decode(r, &in); err != nil {
		return err
	}
	var checkpoint *audit.Checkpoint
	if len(in.Checkpoint) > 0 {
		var err error
		if checkpoint, err = audit.ParseCheckpoint(in.Checkpoint); err != nil {
			return errCheckpoint
		}
	}
	return follow(w, func(say func(string)) (any, error) {
		v, err := s.audit.Verify(r.Context(), r.PathValue("tenant"), checkpoint, describe(say))
		if err == nil {
			err = s.audit.RecordVerification(r.Context(), v)
		}
		return v, auditFault(err)
	})
}

func (s *Server) checkpointLog(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	tenant := r.PathValue("tenant")
	return follow(w, func(say func(string)) (any, error) {
		say("sealing what waits")
		if _, err := s.sealer.SealTenant(r.Context(), tenant); err != nil {
			return nil, auditFault(err)
		}
		c, err := s.audit.Checkpoint(r.Context(), tenant)
		return c, auditFault(err)
	})
}

// exportLog answers with the lines of the export, each as a line of progress.
func (s *Server) exportLog(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	var in admin.ExportLog
	if err := httpapi.Decode(r, &in); err != nil {
		return err
	}
	return stream(w, func(say func(admin.Progress)) (admin.Progress, error) {
		lines := &lineWriter{each: func(line []byte) { say(admin.Progress{Data: json.RawMessage(line)}) }}
		_, err := s.audit.Export(r.Context(), r.PathValue("tenant"), audit.Range{From: in.From, Before: in.Before}, lines, nil)
		return admin.Progress{}, auditFault(err)
	})
}

// lineWriter hands on whole lines.
type lineWriter struct {
	each func(line []byte)
	rest []byte
}

func (l *lineWriter) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		line, rest, found := cutLine(l.rest)
		if !found {
			return len(b), nil
		}
		l.each(line)
		l.rest = rest
	}
}

func cutLine(b []byte) (line, rest []byte, found bool) {
	for i, c := range b {
		if c == '\n' {
			return b[:i], b[i+1:], true
		}
	}
	return nil, b, false
}

func (s *Server) retainLog(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	var in admin.RetainLog
	if err := httpapi.Decode(r, &in); err != nil {
		return err
	}
	keep, err := time.ParseDuration(in.Keep)
	if err != nil || keep < 24*time.Hour {
		return fault.Field("keep", "must be a duration of at least 24h")
	}
	return follow(w, func(say func(string)) (any, error) {
		v, err := s.audit.Retain(r.Context(), r.PathValue("tenant"), keep, describe(say))
		return v, auditFault(err)
	})
}
