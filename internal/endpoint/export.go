package endpoint

import (
	"net/http"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/exporting"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/response"
)

func exportOf(x exporting.Export) api.Export {
	out := api.Export{
		ID: x.ID, Status: api.ExportReady, Recipient: x.Recipient, Filter: api.ExportFilter(x.Filter), RequestedBy: x.RequestedBy,
		CreatedAt: api.Time{Time: x.CreatedAt}, ExpiresAt: api.Time{Time: x.ExpiresAt}, ApprovedBy: x.ApprovedBy,
	}
	if x.Waits {
		out.Status = api.ExportWaiting
	}
	if !x.ApprovedAt.IsZero() {
		out.ApprovedAt = &api.Time{Time: x.ApprovedAt}
	}
	return out
}

func exportRequest(r *http.Request) (exporting.Request, error) {
	var in api.CreateExport
	err := httpapi.Decode(r, &in)
	return exporting.Request{Recipient: in.Recipient, Filter: exporting.Filter(in.Filter)}, err
}

func (s Services) createExport(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	in, err := exportRequest(r)
	if err != nil {
		return nil, err
	}
	x, err := s.Exports.Create(r.Context(), c, in)
	if err != nil {
		return nil, err
	}
	out, err := respond(http.StatusCreated, exportOf(x))
	if err != nil {
		return nil, err
	}
	out.Location = "/exports/" + x.ID
	return out, nil
}

func (s Services) getExport(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	x, err := s.Exports.Get(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, exportOf(x))
}

func (s Services) approveExport(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	if err := c.Require(access.TenantUpdate); err != nil {
		return nil, err
	}
	in, err := exportRequest(r)
	if err != nil {
		return nil, err
	}
	x, err := s.Exports.Approve(r.Context(), c, r.PathValue("id"), in)
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, exportOf(x))
}

// getExportContent writes an export as it is read from the store. It may take
// long, so it has the connection to itself; an error breaks it off.
func (s Services) getExportContent(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	begun, err := s.Exports.Begin(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return &response.Response{Stream: func(w http.ResponseWriter) error {
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Time{}) // from here on the server only listens for the caller going away
		first := true
		err := begun.Write(r.Context(), func() (access.Caller, error) {
			if first {
				first = false
				return c, nil
			}
			return httpapi.Authenticate(r)
		}, &patient{w, control})
		if err != nil {
			s.Audit.Refused(r.Context(), c, err, audit.Attempt{})
		}
		return err
	}}, nil
}

// patient writes a response that may take as long as its reader keeps reading.
type patient struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (p *patient) Write(b []byte) (int, error) {
	p.w.Header().Set("Content-Type", api.MediaAge)
	_ = p.control.SetWriteDeadline(time.Now().Add(patience))
	n, err := p.w.Write(b)
	if err != nil {
		return n, errReaderGone
	}
	return n, nil
}
