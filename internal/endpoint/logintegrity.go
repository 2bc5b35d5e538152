package endpoint

import (
	"net/http"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/response"
)

func (s Services) getIntegrity(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	in, err := s.Audit.Integrity(r.Context(), c)
	if err != nil {
		return nil, err
	}
	out := api.LogIntegrity{Unsealed: in.Unsealed, OldestUnsealedAt: timeOf(in.Oldest)}
	if in.Head != nil {
		head := headOf(*in.Head)
		out.Head = &head
	}
	if v := in.Last; v != nil {
		out.LastVerification = &api.LogVerified{
			ID: v.ID, At: api.Time{Time: v.At}, ActorID: v.ActorID, ActorType: v.ActorType, ActorName: v.ActorName,
			Batches: v.Batches, Entries: v.Entries, Findings: v.Found, Clean: v.Found == 0, Head: v.Head,
		}
	}
	return respond(http.StatusOK, out)
}

// timeOf is an instant that may be missing.
func timeOf(t *time.Time) *api.Time {
	if t == nil {
		return nil
	}
	return &api.Time{Time: *t}
}

func headOf(c audit.Checkpoint) api.LogHead {
	return api.LogHead{
		TenantID: c.Tenant, Number: c.Number, Entries: c.Entries, Root: c.Root.String(), Previous: c.Previous.String(), SealedAt: c.SealedAt,
		Link: c.Link.String(), Signature: c.Signature, PublicKey: c.PublicKey,
	}
}

func (s Services) startVerification(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	j, err := s.Verifications.Start(r.Context(), c)
	if err != nil {
		return nil, err
	}
	return about(audit.Log, j.ID, http.StatusAccepted, "/logs/verify/"+j.ID, verificationOf(j))
}

func (s Services) getVerification(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	j, err := s.Verifications.Get(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, verificationOf(j))
}

func verificationOf(j audit.VerificationJob) api.LogVerification {
	out := api.LogVerification{
		ID: j.ID, State: j.State, StartedAt: api.Time{Time: j.StartedAt}, ActorID: j.ActorID, ActorType: j.ActorType, ActorName: j.ActorName,
		FinishedAt: timeOf(j.FinishedAt),
	}
	if p := j.Progress; p != nil {
		out.Progress = &api.Progress{Doing: p.Doing, Done: p.Done, Total: p.Total}
	}
	if v := j.Result; v != nil {
		out.Result = &api.LogVerificationResult{
			Clean: v.Clean(), Batches: v.Batches, Entries: v.Entries, Dropped: v.Dropped, Unsealed: v.Unsealed, Found: v.Found,
			Findings: each(v.Findings, findingOf),
		}
		if v.Head != nil {
			head := headOf(*v.Head)
			out.Result.Head = &head
		}
	}
	return out
}

func findingOf(f audit.Finding) api.LogFinding {
	return api.LogFinding{Kind: string(f.Kind), Batch: f.Batch, EntryID: f.ID, Detail: f.Detail}
}
