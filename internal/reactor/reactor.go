// Package reactor keeps reactors, a tenant's own code on the server, and runs
// them on detokenized arguments.
//
// It promises that code runs only for callers with token:use, on each
// container of every token among its arguments; that every token used is in
// the log before the code runs; and that what is kept of a run is sealed, under
// the epoch key of a security code if one was among the arguments. It never
// repeats arguments, results or console output in the server's own log, and it
// never runs the code of one request twice.
package reactor

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/definition"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jobs"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/limit"
	"github.com/tokenkeep/tokenkeep/internal/script"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

var (
	errNoReactor = fault.New(fault.NotFound, "no such reactor")
	errInUse     = fault.New(fault.Conflict, "the reactor is in use; proxies that name it").WithCode("reactor_in_use")
)

var kind = definition.Kind{
	Row: store.DefinitionReactor, Entity: audit.Reactor, Absent: errNoReactor,
	Users: store.DefinitionProxy, InUse: errInUse,
	Create: access.ReactorCreate, Read: access.ReactorRead, Update: access.ReactorUpdate, Delete: access.ReactorDelete,
}

// maxArgs is what a sandbox takes, in bytes of JSON.
const maxArgs = 5 << 20

// defaultQueuedJobs is how many asynchronous runs one tenant may have waiting.
const defaultQueuedJobs = 1000

// entry is the name of a reactor's one piece of code.
const entry = "main"

// Parts are what a Service works with. Those for callbacks may be left out
// where nothing is called.
type Parts struct {
	Store   store.Store
	Ring    *keyring.Ring
	Tokens  *token.Service
	Scripts *script.Runner
	Jobs    *jobs.Queue // does the rows of Kinds
	// Acting is the caller that an application, or a session if it is not
	// empty, would be now.
	Acting func(ctx context.Context, tenant, application, session string) (access.Caller, error)
	// Secrets sign what is delivered to callbacks of a tenant.
	Secrets func(ctx context.Context, tenant string) ([]secret.Text, error)
	// Refused logs what code of a job was refused in the name of its caller;
	// nil logs nothing. Those of other runs are logged with their request.
	Refused func(ctx context.Context, c access.Caller, err error)
	// Problem says what callers are told of an error.
	Problem func(err error, traceID string) api.Problem
	// CheckURL says what is wrong with the address of a callback; nil refuses all.
	CheckURL func(address string) error
	// Transport calls addresses that a tenant chose.
	Transport func(tenant string, firstByte time.Duration) http.RoundTripper
}

// Options are the settings of a Service. The zero Options are good ones.
type Options struct {
	Now     func() time.Time // default time.Now
	MaxBody int              // bytes of arguments once expanded; default and at most 5 MiB
	// OptionalConfiguration takes reactors that leave their configuration out.
	OptionalConfiguration bool
	HeaderPrefix          string // default SVC
	QueuedJobs            int    // asynchronous runs that one tenant may have waiting; default 1000
	Limits                *limit.Recorder
	Logger                *slog.Logger
	Metrics               prometheus.Registerer
}

// Service keeps and runs reactors. Its methods are safe for concurrent use.
type Service struct {
	parts       Parts
	options     Options
	definitions *definition.Service[Reactor]

	delivered, givenUp, runsLost prometheus.Counter

	keeping sync.Mutex // held while runs are written, so that who looks sees them
	mu      sync.Mutex // guards waiting
	waiting []waiting  // runs that are to be kept
}

// New returns the service.
func New(p Parts, o Options) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxBody <= 0 || o.MaxBody > maxArgs {
		o.MaxBody = maxArgs
	}
	if o.QueuedJobs <= 0 {
		o.QueuedJobs = defaultQueuedJobs
	}
	if o.HeaderPrefix == "" {
		o.HeaderPrefix = api.DefaultPrefix
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		if o.Metrics != nil {
			o.Metrics.MustRegister(c)
		}
		return c
	}
	return &Service{
		parts: p, options: o, definitions: definition.New(kind, p.Store, p.Ring, o.Now, nil, asReactor).Versioned(codeIn),
		delivered: counter("tokenkeep_callbacks_delivered_total", "Results that were delivered to callbacks."),
		givenUp:   counter("tokenkeep_callbacks_given_up_total", "Results that no callback took."),
		runsLost:  counter("tokenkeep_runs_not_kept_total", "Runs of which nothing was kept because too many waited to be."),
	}
}

// Reactor is a reactor as its management sees it.
type Reactor struct{ definition.Definition }

func asReactor(d definition.Definition) Reactor { return Reactor{d} }

// Code returns the code of a reactor, and Configuration its configuration.
func Code(r Reactor) string { return definition.Member(r.Contents, definition.MemberCode) }

func codeIn(contents jsonvalue.Value) map[string]string {
	return map[string]string{definition.MemberCode: definition.Member(contents, definition.MemberCode)}
}

// Versions returns the last versions of a reactor's code, newest first. It takes
// reactor:read.
func (s *Service) Versions(ctx context.Context, c access.Caller, id string) ([]definition.Version, error) {
	return s.definitions.Versions(ctx, c, id)
}

// Restore gives a reactor the code of a version. It takes reactor:update.
func (s *Service) Restore(ctx context.Context, c access.Caller, id, number string, last ...store.Step[Reactor]) (Reactor, error) {
	if err := c.Require(access.ReactorUpdate); err != nil {
		return Reactor{}, err
	}
	v, err := s.definitions.Version(ctx, c.Tenant(), id, number)
	if err != nil {
		return Reactor{}, err
	}
	var patch jsonvalue.Builder
	patch.Add(definition.MemberCode, jsonvalue.NewString(v.Code[definition.MemberCode]))
	return s.Patch(ctx, c, id, patch.Value(), last...)
}

// Configuration returns the configuration of a reactor, an object of texts.
func Configuration(r Reactor) jsonvalue.Value {
	v, _ := r.Contents.Get(definition.MemberConfiguration)
	return v
}

// draft reads name, code and configuration of a reactor from its wire form.
// What is wrong is noted in f; whether the code parses is checked elsewhere, as
// that takes time.
func (s *Service) draft(f *fault.Fields, in jsonvalue.Value) definition.Draft {
	name := definition.Text(f, in, definition.MemberName, definition.MemberName)
	if !f.Has(definition.MemberName) {
		definition.CheckName(f, name)
	}
	configuration, _ := in.Get(definition.MemberConfiguration)
	if configuration.IsNull() {
		if !s.options.OptionalConfiguration {
			f.Add(definition.MemberConfiguration, "is required")
		}
		configuration = definition.EmptyObject
	} else {
		configuration = definition.WithoutNulls(configuration)
		definition.CheckConfiguration(f, configuration)
	}
	var contents jsonvalue.Builder
	contents.Add(definition.MemberCode, jsonvalue.NewString(definition.Text(f, in, definition.MemberCode, definition.MemberCode)))
	contents.Add(definition.MemberConfiguration, configuration)
	return definition.Draft{Name: name, Contents: contents.Value()}
}

// checked is draft with the code parsed.
func (s *Service) checked(ctx context.Context, tenant string, in jsonvalue.Value) (definition.Draft, error) {
	if in.Kind() != jsonvalue.Object {
		return definition.Draft{}, definition.ErrNotObject
	}
	var f fault.Fields
	d := s.draft(&f, in).Named(definition.Application(&f, in))
	if code, _ := d.Contents.Get(definition.MemberCode); !f.Has(definition.MemberCode) {
		if err := s.parts.Scripts.Check(ctx, &f, tenant, definition.MemberCode, code.PublicText(), definition.MaxCode); err != nil {
			return d, err
		}
	}
	return d, f.Err()
}

// Create adds a reactor.
func (s *Service) Create(ctx context.Context, c access.Caller, in jsonvalue.Value, last ...store.Step[Reactor]) (Reactor, error) {
	if err := c.Require(access.ReactorCreate); err != nil {
		return Reactor{}, err
	}
	d, err := s.checked(ctx, c.Tenant(), in)
	if err != nil {
		return Reactor{}, err
	}
	return s.definitions.Create(ctx, c, d, last...)
}

// Get returns a reactor.
func (s *Service) Get(ctx context.Context, c access.Caller, id string) (Reactor, error) {
	return s.definitions.Get(ctx, c, id)
}

// List returns a page of reactors, newest first, and how many match in all.
func (s *Service) List(ctx context.Context, c access.Caller, f definition.Filter, page store.Page) ([]Reactor, int64, error) {
	return s.definitions.List(ctx, c, f, page)
}

// Delete removes a reactor, unless a proxy names it.
func (s *Service) Delete(ctx context.Context, c access.Caller, id string) error {
	return s.definitions.Delete(ctx, c, id)
}

// Replace changes all of a reactor: what is left out returns to its default.
func (s *Service) Replace(ctx context.Context, c access.Caller, id string, in jsonvalue.Value, last ...store.Step[Reactor]) (Reactor, error) {
	if err := c.Require(access.ReactorUpdate); err != nil {
		return Reactor{}, err
	}
	d, err := s.checked(ctx, c.Tenant(), in)
	if err != nil {
		return Reactor{}, err
	}
	return s.definitions.Change(ctx, c, id, audit.Update, func(Reactor) (definition.Draft, error) { return d, nil }, last...)
}

// Patch changes a reactor by a merge patch of its wire form.
func (s *Service) Patch(ctx context.Context, c access.Caller, id string, patch jsonvalue.Value, last ...store.Step[Reactor]) (Reactor, error) {
	if err := c.Require(access.ReactorUpdate); err != nil {
		return Reactor{}, err
	}
	if patch.Kind() != jsonvalue.Object {
		return Reactor{}, definition.ErrNotObject
	}
	if code, ok := patch.Get(definition.MemberCode); ok && code.Kind() == jsonvalue.String {
		var f fault.Fields
		if err := s.parts.Scripts.Check(ctx, &f, c.Tenant(), definition.MemberCode, code.PublicText(), definition.MaxCode); err != nil {
			return Reactor{}, err
		}
		if err := f.Err(); err != nil {
			return Reactor{}, err
		}
	}
	return s.definitions.Change(ctx, c, id, audit.Update, func(old Reactor) (definition.Draft, error) {
		merged, err := jsonvalue.MergePatch(definition.WireForm(old.Definition), definition.WithoutApplication(patch))
		if err != nil {
			return definition.Draft{}, err
		}
		var f fault.Fields
		d := s.draft(&f, merged).Patched(old.Definition, definition.PatchedApplication(&f, patch))
		if code, _ := d.Contents.Get(definition.MemberCode); code.PublicText() == "" && !f.Has(definition.MemberCode) {
			f.Add(definition.MemberCode, "is required")
		}
		return d, f.Err()
	}, last...)
}

// program is the code of a reactor for the runner.
func program(r Reactor) script.Program {
	return script.Program{
		Tenant: r.TenantID, ID: r.ID, Version: r.Version, Application: r.ApplicationID, Sources: map[string]string{entry: Code(r)},
	}
}

// Deployed returns the code of a reactor as it is now, for a proxy that names it
// as a transform. It asks for no permission and logs nothing.
func (s *Service) Deployed(ctx context.Context, tenant, id string) (script.Deployed, error) {
	r, err := s.definitions.Find(ctx, tenant, id)
	if err != nil {
		return script.Deployed{}, err
	}
	return script.Deployed{Program: program(r), Entry: entry, Configuration: Configuration(r)}, nil
}

// isFault reports whether the caller, or the code, is to blame.
func isFault(err error) bool {
	return !errors.Is(err, fault.Internal) && fault.Of(err).Kind() != fault.Internal
}
