// Package server puts the parts together: from a configuration to a store,
// services, listeners and tickers, and back down in the right order.
//
// It promises that a server which New returned is ready to serve, that no
// request which it accepted is cut when it is asked to stop, and that the
// store is closed last. It never reads the environment, and it holds no rules:
// what is allowed is decided in the services that it connects.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/admission"
	"github.com/tokenkeep/tokenkeep/internal/apidoc"
	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/console"
	"github.com/tokenkeep/tokenkeep/internal/elements"
	"github.com/tokenkeep/tokenkeep/internal/endpoint"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/keyring/providers"
	"github.com/tokenkeep/tokenkeep/internal/limit"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Options are what a server needs beside its configuration.
type Options struct {
	Logger *slog.Logger
	// Now tells the time. Unless it is given, it is the machine's clock, whose
	// jumps are doubted at first.
	Now     func() time.Time
	Version string
	// Listener, when not nil, is used instead of listening on the configured
	// address: an inherited socket survives a restart, with all who wait in it.
	Listener net.Listener
	// Routes are rows beside the server's own, for tests.
	Routes []httpapi.Route
	// Ahead are migrations of a database behind the server's own, for tests.
	Ahead []string
	// Store, when not nil, returns what stands in front of the store, for tests.
	Store func(store.Store) store.Store
	// KeyCache is how long keys in memory are used before the store is asked
	// whether they changed; 0 means two seconds. A rotation waits for it to
	// pass, several times.
	KeyCache time.Duration
	// Requests is how long a request may be under way before an old key is
	// destroyed without it; 0 means what the time-outs allow, or nothing for
	// servers that choose their own KeyCache.
	Requests time.Duration
}

// Server is a server that listens. Run serves.
type Server struct {
	config  *config.Config
	options Options
	log     *slog.Logger
	now     func() time.Time
	started time.Time
	steady  func() bool // whether the clock is believed
	patient time.Time   // until when nothing is destroyed, whatever the clock says

	services
	store       store.Store
	lock        *os.File // of the data folder, where the store has none of its own
	registry    *prometheus.Registry
	limits      *limit.Recorder
	memory      *admission.Pool
	outage      *outage
	lastBackup  prometheus.Gauge // nil without the embedded store
	certificate *certificate     // nil without TLS
	api         *httpapi.Handler
	doors       []*door
	listener    net.Listener
	demo        atomic.Pointer[string] // the public key of the demo tenant; nil without one
}

// Check says whether New would refuse the configuration. It opens nothing.
func Check(c *config.Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if _, err := openKMS(context.Background(), c, providers.Options{}); err != nil || c.TLSCertFile == "" {
		return err
	}
	_, err := loadCertificate(c.TLSCertFile, c.TLSKeyFile)
	return err
}

// New opens the store and the listeners. When it fails, nothing is left open,
// the listener in the options included.
func New(ctx context.Context, c *config.Config, o Options) (_ *Server, err error) {
	inForce := *c
	if o.Listener != nil {
		defer func() {
			if err != nil {
				_ = o.Listener.Close()
			}
		}()
		// An inherited socket must be as safe as a configured address.
		if a, ok := o.Listener.Addr().(*net.TCPAddr); ok {
			inForce.Addr = a.String()
		}
	}
	if err := inForce.Validate(); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	steady := func() bool { return true }
	if o.Now == nil {
		machine := machineClock(o.Logger)
		o.Now, steady = machine.Now, machine.Steady
	}
	if o.KeyCache == 0 {
		o.KeyCache = 2 * time.Second
		if o.Requests == 0 {
			o.Requests = c.ReadTimeout + c.WriteTimeout
		}
	}
	s := &Server{config: c, options: o, log: o.Logger, now: o.Now, started: o.Now(), registry: newRegistry(o.Version), steady: steady}
	s.limits = limit.NewRecorder(o.Now, s.registry)
	s.memory = newMemory(c, s.limits, s.registry)
	defer func() {
		if err != nil {
			_ = s.release()
		}
	}()
	if c.TLSCertFile != "" {
		if s.certificate, err = loadCertificate(c.TLSCertFile, c.TLSKeyFile); err != nil {
			return nil, err
		}
	}
	s.outage = newOutage(s.now, s.log, s.registry)
	if s.kms, err = openKMS(ctx, c, providers.Options{Now: s.now, Called: s.outage.called}); err != nil {
		return nil, err
	}
	if err := s.openEgress(); err != nil {
		return nil, err
	}
	// Before the store and its caches: what starts processes is best started small.
	if err := s.openSandbox(ctx); err != nil {
		return nil, err
	}
	if err := s.openStore(ctx); err != nil {
		return nil, err
	}
	if o.Store != nil {
		s.store = o.Store(s.store)
	}
	if err := s.compareClock(ctx); err != nil {
		return nil, err
	}
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	rows, err := s.routes()
	if err != nil {
		return nil, err
	}
	s.api = httpapi.New(httpapi.Options{
		HeaderPrefix: c.HeaderPrefix, Authenticate: s.endpoints().Authenticate, Ready: s.ready, Logger: o.Logger, Now: o.Now, Metrics: s.registry,
		MaxBody: c.MaxBody, CORSOrigins: c.CORSOrigins, TrustedProxies: c.TrustedProxies,
		People: s.people(), RateLimits: rateLimits(c), Memory: s.memory, Limits: s.limits, Refuse: byHost(c),
	}, rows)
	if err := s.listen(); err != nil {
		return nil, err
	}
	return s, s.note()
}

func newRegistry(version string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tokenkeep_build_info", Help: "Always 1; the label tells the release.", ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), build)
	return r
}

// routes are the rows of the API.
func (s *Server) routes() ([]httpapi.Route, error) {
	rows := endpoint.Routes(s.endpoints())
	fields, err := elements.Routes(elements.Options{HeaderPrefix: s.config.HeaderPrefix, URL: s.config.ElementsURL(), Dev: s.config.Dev, Origins: s.origins, DemoKey: s.demoKey})
	if err != nil {
		return nil, err
	}
	rows = append(rows, fields...)
	rows = append(rows, apidoc.Routes(apidoc.Options{HeaderPrefix: s.config.HeaderPrefix, Release: s.options.Version, Page: s.config.APIPage})...)
	rows = append(rows, console.Routes(s.config.ElementsPublicURL)...)
	rows = append(rows, s.options.Routes...)
	if s.config.MetricsAddr == "" {
		rows = append(rows, s.metricsRoute())
	}
	return rows, nil
}

func (s *Server) metricsRoute() httpapi.Route {
	// What a scraper asks for must not end up in an error of the library's.
	h := promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
	return httpapi.Route{Pattern: "GET /metrics", Auth: httpapi.Anonymous, Unlimited: true, NoCORS: true, Handle: httpapi.Serve(h)}
}

// listen opens the doors: the API, the metrics when they have an address of
// their own, and the admin socket.
func (s *Server) listen() error {
	limits := httpapi.Limits{
		ReadHeaderTimeout: s.config.ReadHeaderTimeout, ReadTimeout: s.config.ReadTimeout, WriteTimeout: s.config.WriteTimeout,
		IdleTimeout: s.config.IdleTimeout, MaxHeaderBytes: s.config.MaxHeaderBytes,
	}
	l := s.options.Listener
	if l == nil {
		var err error
		if l, err = net.Listen("tcp", s.config.Addr); err != nil {
			return &ListenError{"addr", err}
		}
	}
	s.listener = l
	main := newDoor("api", s.bounded(l), s.api, limits)
	if s.certificate != nil {
		main.server.TLSConfig = s.certificate.tlsConfig()
	}
	s.doors = append(s.doors, main)

	if s.config.MetricsAddr != "" {
		l, err := net.Listen("tcp", s.config.MetricsAddr)
		if err != nil {
			return &ListenError{"metrics_addr", err}
		}
		s.doors = append(s.doors, newDoor("metrics", s.bounded(l), s.beside(false, s.metricsRoute()), limits))
	}

	socket, err := admin.Listen(s.config.Data)
	if err != nil {
		return err
	}
	unhurried := newDoor("admin", socket, s.beside(true, s.adminRoutes()...), limits)
	// An operator's work may take long: no bound on the time of an answer.
	unhurried.server.WriteTimeout = 0
	s.doors = append(s.doors, unhurried)
	return nil
}

// beside makes the handler of a listener beside the API. Its health checks say
// what those of the API say.
func (s *Server) beside(adminSocket bool, rows ...httpapi.Route) *httpapi.Handler {
	return httpapi.New(httpapi.Options{HeaderPrefix: s.config.HeaderPrefix, Ready: s.ready, Logger: s.log, Now: s.now, AdminSocket: adminSocket}, rows)
}

// ListenError says that an address could not be had.
type ListenError struct {
	Setting string
	cause   error
}

func (e *ListenError) Error() string {
	// The kernel's own words are safe. A resolver's would repeat the host.
	why := "its host is not known"
	if errno := syscall.Errno(0); errors.As(e.cause, &errno) {
		why = errno.Error()
	}
	return fmt.Sprintf("cannot listen on the address in %s: %s", e.Setting, why)
}

func (e *ListenError) Unwrap() error { return e.cause }

// BaseURL returns the address under which the API is reached.
func (s *Server) BaseURL() string {
	scheme := "http"
	if s.certificate != nil {
		scheme = "https"
	}
	return scheme + "://" + s.listener.Addr().String()
}

// Routes returns the rows of the API.
func (s *Server) Routes() []httpapi.Route { return s.api.Routes() }

// Reload reads the TLS files again. When that fails the old certificate stays.
func (s *Server) Reload() error {
	if s.certificate == nil {
		return nil
	}
	return s.certificate.reload()
}

// Run serves until ctx ends, then lets the requests under way finish and
// closes the store. It returns nil when everything ended well.
func (s *Server) Run(ctx context.Context) error {
	working, idle := context.WithCancel(context.WithoutCancel(ctx))
	var chores sync.WaitGroup
	for _, c := range s.chores() {
		chores.Go(func() { s.work(working, c) })
	}
	chores.Go(func() { s.sealer.Run(working) })
	taking, enough := context.WithCancel(ctx)
	worked := make(chan struct{})
	chores.Go(func() {
		defer close(worked)
		s.jobs.Work(taking, working)
	})
	keeping, kept := context.WithCancel(context.WithoutCancel(ctx))
	chores.Go(func() { s.reactors.KeepRuns(keeping) })
	// The store closes behind the last chore. Code that nobody waits for may
	// come to its end like a request. Records of runs are written when the last
	// run has ended.
	rest := func(ctx context.Context) {
		select {
		case <-worked:
		case <-ctx.Done():
		}
		idle()
		<-worked
		kept()
		chores.Wait()
	}
	failed := make(chan error, len(s.doors)+1)
	chores.Go(func() {
		if err := s.proveKEK(working); err != nil {
			failed <- err
		}
	})
	for _, d := range s.doors {
		go func() {
			if err := d.serve(); err != nil {
				failed <- err
			}
		}()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	enough()
	return errors.Join(err, s.stop(context.WithoutCancel(ctx), rest))
}

// stop says "not ready" and asks clients to leave their connections, waits for
// load balancers to notice, then closes the doors behind the last request.
func (s *Server) stop(ctx context.Context, rest func(context.Context)) error {
	s.log.Info("stopping", "drain_delay", s.config.DrainDelay, "drain_timeout", s.config.DrainTimeout)
	for _, d := range s.doors {
		d.handler.Drain()
	}
	time.Sleep(s.config.DrainDelay)
	ctx, cancel := context.WithTimeout(ctx, s.config.DrainTimeout)
	defer cancel()
	var errs []error
	for _, d := range s.doors {
		errs = append(errs, d.close(ctx))
	}
	rest(ctx)
	_ = os.Remove(filepath.Join(s.config.Data, NoteFile))
	errs = append(errs, s.release())
	s.log.Info("stopped")
	return errors.Join(errs...)
}

// release closes what New opened, the store last.
func (s *Server) release() error {
	for _, d := range s.doors {
		_ = d.listener.Close()
	}
	var err error
	if s.sandbox != nil {
		err = s.sandbox.Close()
	}
	if s.egress != nil {
		s.egress.Close()
	}
	if s.store != nil {
		err = errors.Join(err, s.store.Close())
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return errors.Join(err, s.kms.Close())
}

// NoteFile is the file in the data folder that tells commands on this machine where the server is.
const NoteFile = "server.json"

// Note is what a running server says of itself in its data folder.
type Note struct {
	BaseURL   string    `json:"base_url"`
	PID       int       `json:"pid"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"started_at"`
}

func (s *Server) note() error {
	n := Note{BaseURL: s.BaseURL(), PID: os.Getpid(), Version: s.options.Version, StartedAt: s.started.UTC()}
	return WriteFile(filepath.Join(s.config.Data, NoteFile), n)
}

// WriteFile writes a value as JSON, mode 0600, whole or not at all.
func WriteFile(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("server: encode %s: %w", filepath.Base(path), err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("server: write %s: %w", filepath.Base(path), err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if _, err := f.Write(append(b, '\n')); err != nil {
		_ = f.Close()
		return fmt.Errorf("server: write %s: %w", filepath.Base(path), err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("server: write %s: %w", filepath.Base(path), err)
	}
	return os.Rename(f.Name(), path)
}
