package endpoint

import (
	"cmp"
	"net/http"
	"net/url"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

func (s Services) explainAccess(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	var in api.ExplainAccess
	if err := httpapi.Decode(r, &in); err != nil {
		return nil, err
	}
	q := directory.Question{
		Application: in.ApplicationID, Session: in.SessionID, Permission: in.Permission, Token: in.TokenID, Containers: in.Containers,
	}
	if in.Container != "" {
		q.Containers = append(q.Containers, in.Container)
	}
	if p := in.Proposed; p != nil {
		q.Proposed = &directory.Proposal{Type: p.Type, Permissions: p.Permissions, Rules: p.Rules}
	}
	e, err := s.Directory.Explain(r.Context(), c, q)
	if err != nil {
		return nil, err
	}
	out := api.Explanation{
		Allowed: e.Allowed(), Transform: e.Transform.String(), Permission: e.Permission.String(), DependsOnID: e.DependsOnID,
		Inactive: string(e.Inactive), Containers: e.Containers, Steps: make([]api.AccessStep, len(e.Steps)),
	}
	for i, step := range e.Steps {
		out.Steps[i] = stepOf(step)
	}
	if len(e.Steps) > 0 {
		by := stepOf(e.By)
		out.DecidedBy = &by
	}
	return respond(http.StatusOK, out)
}

func stepOf(step access.Step) api.AccessStep {
	out := api.AccessStep{
		Container: step.Container, Transform: step.Transform.String(), Reason: step.Reason.String(), OfMaker: step.Maker,
		Decides: step.Reason == access.Decides || step.Reason == access.PlainDecides,
	}
	if step.Rule != access.NoRule {
		out.Rule, out.Priority = &step.Rule, step.Priority
	}
	if step.Reason == access.ConditionFails {
		out.Condition = &step.Condition
	}
	return out
}

func (s Services) whoHasAccess(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	return listed(r, func(q url.Values, page store.Page) ([]directory.Holder, int64, error) {
		if !q.Has("token_id") {
			all, err := s.Directory.Who(r.Context(), c, q.Get("permission"), q.Get("container"))
			return part(all, page), int64(len(all)), err
		}
		if q.Has("container") {
			return nil, 0, errTokenOrContainer
		}
		all, err := s.Directory.WhoOf(r.Context(), c, cmp.Or(q.Get("permission"), access.TokenRead.String()), q.Get("token_id"))
		return part(all, page), int64(len(all)), err
	}, holderOf)
}

var errTokenOrContainer = fault.Field("container", "cannot be given with token_id")

func holderOf(h directory.Holder) api.AccessHolder {
	row := api.AccessHolder{
		Kind: "application", ID: h.ID, Name: h.Name, ApplicationType: string(h.Type), Transform: h.Transform.String(),
		Container: h.Container, ExpiresAt: api.Time{Time: h.ExpiresAt},
	}
	if h.Session {
		row.Kind = "session"
	}
	return row
}
