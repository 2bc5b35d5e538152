package server

import (
	"github.com/tokenkeep/tokenkeep/internal/event"
	"github.com/tokenkeep/tokenkeep/internal/limit"
	"github.com/tokenkeep/tokenkeep/internal/webhook"
)

// connectWebhooks puts webhooks on what dials.
func (s *Server) connectWebhooks() {
	s.webhooks = webhook.New(s.store, s.ring, webhook.Options{
		Now: s.now, Jobs: s.jobs, Transport: s.egress.Transport, Logger: s.log, Metrics: s.registry,
		CheckURL: func(address string) error { _, err := s.egress.Check(address); return err },
	})
	s.events = event.New(s.store, s.ring, event.Options{Now: s.now, Acting: s.directory.Acting, Receivers: s.webhooks.Receivers})
	s.limits.Tell(func(tenant string, n limit.Name) { s.events.Reached(tenant, string(n)) })
}
