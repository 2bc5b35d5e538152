package reactor

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jobs"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
)

var errCallback = fault.Field("callback_url", "is not an address that this service may call")

func (s *Service) checkCallback(address string) error {
	if s.parts.CheckURL == nil {
		return errCallback
	}
	if err := s.parts.CheckURL(address); err != nil {
		if told := fault.Of(err); told.Kind() == fault.Invalid {
			var f fault.Fields
			f.Add("callback_url", told.Detail())
			return f.Err()
		}
		return err
	}
	return nil
}

// problem is the error body of a run that failed.
func (s *Service) problem(err error, held contents) result {
	p := s.parts.Problem(err, held.origin.TraceID)
	body, _ := json.Marshal(p) // texts and numbers: it cannot fail
	return result{p.Status, body}
}

// deliver sends a result to its callback.
func (s *Service) deliver(ctx context.Context, _ *keyring.Keys, j jobs.Job, held contents) (jobs.Verdict, error) {
	if held.gone {
		// Said instead, to whoever waits for the rest.
		res := s.problem(errTooLate, held)
		held.status, held.payload = res.status, res.body
	}
	secrets, err := s.parts.Secrets(ctx, j.Tenant)
	if err != nil { // our own trouble does not use a try up
		return jobs.GiveBack(lease), fmt.Errorf("get callback secrets: %w", err)
	}
	body := held.payload
	if len(body) == 0 {
		body = []byte("null") // a custom answer without a body
	}
	header := func(name string) string { return api.Header(s.options.HeaderPrefix, name) }
	taken := jobs.Sender{Now: s.options.Now, Transport: s.parts.Transport}.Send(ctx, j.Tenant, jobs.Message{
		ID: j.ID, URL: held.callback, Body: body, Secrets: secrets,
		Header: map[string]string{header(api.TraceID): held.origin.TraceID, header(api.ReactorID): j.Group, header(api.RequestID): j.ID},
	}) == nil
	switch {
	case taken:
		s.delivered.Inc()
		return jobs.Done, nil
	case ctx.Err() != nil:
		return jobs.GiveBack(0), nil //nolint:nilerr // the server stops: that is no error, and no fault of the receiver
	default:
		return jobs.Failed, nil
	}
}
