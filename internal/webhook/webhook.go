// Package webhook keeps the addresses to which tenants want their events sent, and
// sends them.
//
// It promises that each event reaches each webhook that takes its type at least
// once, under one id, unless its attempts are used up or the webhook is disabled;
// and that the events of one entity arrive in their order, the next only when the
// one before it was taken or has failed. Messages are signed after Standard Webhooks
// with the secret of the webhook. The package never sends data: an event has ids,
// types and containers. What a receiver answers is never kept, except its status.
package webhook

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/definition"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jobs"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

const (
	// Overlap is how long a secret goes on signing after it was replaced.
	Overlap = 24 * time.Hour
	// MaxWebhooks bounds the webhooks of a tenant.
	MaxWebhooks = 50
	maxEvents   = 50 // patterns of one webhook
	maxURL      = 2000
)

// The states of webhooks.
const (
	Enabled  = "enabled"
	Disabled = "disabled"
)

var (
	errNoWebhook  = fault.New(fault.NotFound, "no such webhook")
	errNoDelivery = fault.New(fault.NotFound, "no such delivery")
	errTooMany    = fault.New(fault.Conflict, "the tenant has as many webhooks as it may have; delete one first")
	errDisabled   = fault.New(fault.Conflict, "the webhook is disabled; enable it first")
)

var kind = definition.Kind{
	Row: store.DefinitionWebhook, Entity: audit.Webhook, Absent: errNoWebhook,
	Create: access.WebhookCreate, Read: access.WebhookRead, Update: access.WebhookUpdate, Delete: access.WebhookDelete,
}

// Options are what a Service works with.
type Options struct {
	Now func() time.Time // default time.Now
	// Jobs has the kinds of this service.
	Jobs *jobs.Queue
	// CheckURL judges an address without looking anything up. Transport sends the
	// requests of one tenant and follows no redirects.
	CheckURL  func(address string) error
	Transport func(tenant string, firstByte time.Duration) http.RoundTripper
	Logger    *slog.Logger
	Metrics   prometheus.Registerer
}

// Service keeps webhooks and sends events to them. Its methods are safe for
// concurrent use.
type Service struct {
	definitions *definition.Service[Webhook]
	store       store.Store
	options     Options

	attempts *prometheus.CounterVec
	disabled prometheus.Counter
}

// New returns the service.
func New(s store.Store, ring *keyring.Ring, o Options) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	w := &Service{
		definitions: definition.New(kind, s, ring, o.Now, nil, func(d definition.Definition) Webhook { return Webhook{d} }), store: s, options: o,
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tokenkeep_webhook_attempts_total", Help: "Attempts to send an event to a webhook, by how they ended.",
		}, []string{"outcome"}),
		disabled: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tokenkeep_webhooks_disabled_total", Help: "Webhooks that were disabled because their receiver failed or returned 410.",
		}),
	}
	for _, outcome := range []string{outcomeDelivered, outcomeRefused} {
		w.attempts.WithLabelValues(outcome)
	}
	if o.Metrics != nil {
		o.Metrics.MustRegister(w.attempts, w.disabled)
	}
	return w
}

// Webhook is a webhook as its management sees it.
type Webhook struct{ definition.Definition }

// The fields of the contents of a webhook.
const (
	fieldName     = "name"
	fieldURL      = "url"
	fieldEvents   = "events"
	fieldState    = "state"
	fieldReason   = "disabled_reason"
	fieldSecret   = "secret"
	fieldPrevious = "previous_secret"
	fieldRotated  = "rotated_at" // RFC 3339
)

// URL returns where the events go.
func URL(w Webhook) string { return definition.Member(w.Contents, fieldURL) }

// Events returns the patterns of the types that the webhook takes.
func Events(w Webhook) (list []string) {
	events, _ := w.Contents.Get(fieldEvents)
	for _, e := range events.Items() {
		list = append(list, e.PublicText())
	}
	return list
}

// State returns Enabled or Disabled.
func State(w Webhook) string { return definition.Member(w.Contents, fieldState) }

// DisabledReason says why the service has disabled a webhook; "" when it has not.
func DisabledReason(w Webhook) string { return definition.Member(w.Contents, fieldReason) }

// Secret returns the secret that signs. Answers show it once.
func Secret(w Webhook) secret.Text { return secretIn(w.Contents, fieldSecret) }

// PreviousUntil returns how long the secret before it signs too; zero when there is
// none.
func PreviousUntil(w Webhook) time.Time {
	at, err := time.Parse(time.RFC3339Nano, definition.Member(w.Contents, fieldRotated))
	if err != nil {
		return time.Time{}
	}
	return at.Add(Overlap)
}

func secretIn(contents jsonvalue.Value, name string) secret.Text {
	v, _ := contents.Get(name)
	return secret.NewText(v.Reveal())
}

// secrets are those that sign now, the newest first.
func secrets(w Webhook, now time.Time) []secret.Text {
	list := []secret.Text{Secret(w)}
	if previous := secretIn(w.Contents, fieldPrevious); !previous.IsZero() && now.Before(PreviousUntil(w)) {
		list = append(list, previous)
	}
	return list
}

func takes(w Webhook, kind string) bool {
	return slices.ContainsFunc(Events(w), func(pattern string) bool { return audit.MatchEvent(pattern, kind) })
}

func newSecret() jsonvalue.Value {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return jsonvalue.NewString("whsec_" + base64.StdEncoding.EncodeToString(b[:]))
}

// draft reads a webhook without its secrets from its wire form.
func (s *Service) draft(in jsonvalue.Value) (d definition.Draft, err error) {
	if in.Kind() != jsonvalue.Object {
		return d, definition.ErrNotObject
	}
	var f fault.Fields
	d.Name = definition.Text(&f, in, fieldName, fieldName)
	definition.CheckName(&f, d.Name)
	address := definition.Text(&f, in, fieldURL, fieldURL)
	switch {
	case address == "":
		f.Add(fieldURL, "is required")
	case len(address) > maxURL:
		f.Add(fieldURL, "must have at most 2,000 bytes")
	case s.options.CheckURL == nil:
		f.Add(fieldURL, "is not an address that this service may call")
	default:
		if err := s.options.CheckURL(address); err != nil {
			f.Add(fieldURL, fault.Of(err).Detail())
		}
	}
	state := definition.Text(&f, in, fieldState, fieldState)
	if state == "" {
		state = Enabled
	}
	if state != Enabled && state != Disabled {
		f.Add(fieldState, "must be enabled or disabled")
	}
	var contents jsonvalue.Builder
	contents.Add(fieldURL, jsonvalue.NewString(address))
	contents.Add(fieldEvents, events(&f, in))
	contents.Add(fieldState, jsonvalue.NewString(state))
	d.Contents = contents.Value()
	return d, f.Err()
}

// events reads the patterns of a wire form.
func events(f *fault.Fields, in jsonvalue.Value) jsonvalue.Value {
	list, _ := in.Get(fieldEvents)
	if list.Kind() != jsonvalue.Array || list.Len() == 0 || list.Len() > maxEvents {
		f.Add(fieldEvents, "must be a list of 1 to 50 types of events, such as token.created, token.* or *")
		return list
	}
	for _, e := range list.Items() {
		if e.Kind() != jsonvalue.String || !e.Matches(audit.ValidEventPattern) {
			f.Add(fieldEvents, "must hold types of events, such as token.created, token.* or *")
		}
	}
	return list
}

// Create adds a webhook, with a secret.
func (s *Service) Create(ctx context.Context, c access.Caller, in jsonvalue.Value, last ...store.Step[Webhook]) (Webhook, error) {
	if err := c.Require(access.WebhookCreate); err != nil {
		return Webhook{}, err
	}
	d, err := s.draft(in)
	if err != nil {
		return Webhook{}, err
	}
	d.Contents = d.Contents.With(fieldSecret, newSecret())
	bounded := func(tx store.Tx, _ Webhook) error {
		n, err := tx.CountDefinitions(ctx, store.DefinitionFilter{Kind: kind.Row})
		if err == nil && n > MaxWebhooks {
			return errTooMany
		}
		return err
	}
	return s.definitions.Create(ctx, c, d, append([]store.Step[Webhook]{bounded}, last...)...)
}

// Get returns a webhook.
func (s *Service) Get(ctx context.Context, c access.Caller, id string) (Webhook, error) {
	return s.definitions.Get(ctx, c, id)
}

// List returns a page of webhooks, newest first, and how many match in all.
func (s *Service) List(ctx context.Context, c access.Caller, f definition.Filter, page store.Page) ([]Webhook, int64, error) {
	return s.definitions.List(ctx, c, f, page)
}

// Delete removes a webhook. What waits for it is not sent.
func (s *Service) Delete(ctx context.Context, c access.Caller, id string) error {
	return s.definitions.Delete(ctx, c, id)
}

// Replace changes all of a webhook except its secrets. To enable a webhook that was
// disabled is to begin again: it gets the events from then on.
func (s *Service) Replace(ctx context.Context, c access.Caller, id string, in jsonvalue.Value, last ...store.Step[Webhook]) (Webhook, error) {
	if err := c.Require(access.WebhookUpdate); err != nil {
		return Webhook{}, err
	}
	d, err := s.draft(in)
	if err != nil {
		return Webhook{}, err
	}
	forgiven := func(tx store.Tx, w Webhook) error {
		if State(w) == Disabled {
			return nil
		}
		return tx.PutMark(ctx, failingMark(id), nil)
	}
	return s.definitions.Change(ctx, c, id, audit.Update, func(old Webhook) (definition.Draft, error) {
		return withSecrets(d, old), nil
	}, append([]store.Step[Webhook]{forgiven}, last...)...)
}

// withSecrets is a draft with the secrets of a webhook.
func withSecrets(d definition.Draft, old Webhook) definition.Draft {
	for _, name := range []string{fieldSecret, fieldPrevious, fieldRotated} {
		if v, ok := old.Contents.Get(name); ok {
			d.Contents = d.Contents.With(name, v)
		}
	}
	return d
}

// RotateSecret gives a webhook a new secret. The old one goes on signing for a day.
func (s *Service) RotateSecret(ctx context.Context, c access.Caller, id string, last ...store.Step[Webhook]) (Webhook, error) {
	if err := c.Require(access.WebhookUpdate); err != nil {
		return Webhook{}, err
	}
	fresh, at := newSecret(), jsonvalue.NewString(s.options.Now().UTC().Format(time.RFC3339Nano))
	return s.definitions.Change(ctx, c, id, audit.Rotate, func(old Webhook) (definition.Draft, error) {
		was, _ := old.Contents.Get(fieldSecret)
		return definition.Draft{Name: old.Name, Contents: old.Contents.With(fieldPrevious, was).With(fieldSecret, fresh).With(fieldRotated, at)}, nil
	}, last...)
}

// disable ends the deliveries to a webhook, with an event and a warning. The words
// are constants of the program.
func (s *Service) disable(ctx context.Context, tenant, id, reason string) error {
	announce := func(tx store.Tx, w Webhook) error {
		if err := tx.PutMark(ctx, failingMark(id), nil); err != nil {
			return err
		}
		return tx.AppendLog(ctx, audit.Announced(tenant, s.options.Now(), audit.EventWebhookDisabled, audit.Webhook, id, audit.Update, "disabled"))
	}
	already := false
	_, err := s.definitions.Change(ctx, access.NewSystem(tenant, access.WebhookUpdate), id, audit.Update, func(old Webhook) (definition.Draft, error) {
		if already = State(old) == Disabled; already {
			return definition.Draft{}, errDisabled
		}
		contents := old.Contents.With(fieldState, jsonvalue.NewString(Disabled)).With(fieldReason, jsonvalue.NewString(reason))
		return definition.Draft{Name: old.Name, Contents: contents}, nil
	}, announce)
	if already || err != nil {
		if already {
			return nil
		}
		return err
	}
	s.disabled.Inc()
	s.options.Logger.Warn("a webhook was disabled", "tenant", tenant, "webhook", id, "reason", reason)
	return nil
}
