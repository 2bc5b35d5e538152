package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/egress"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/jobs"
	"github.com/tokenkeep/tokenkeep/internal/limit"
	"github.com/tokenkeep/tokenkeep/internal/proxy"
	"github.com/tokenkeep/tokenkeep/internal/reactor"
	"github.com/tokenkeep/tokenkeep/internal/sandbox"
	"github.com/tokenkeep/tokenkeep/internal/script"
)

// SandboxError says that code of tenants cannot run as it is configured.
type SandboxError struct{ cause error }

func (e *SandboxError) Error() string {
	return "code of tenants cannot run as sandbox.level asks: " + e.cause.Error() + " (sandbox.level: off runs none)"
}

func (e *SandboxError) Unwrap() error { return e.cause }

var errNoRuntime = errors.New("there is no runtime beside the program or in sandbox.runtime; 'make build' makes one")

// openEgress makes the way out to what tenants choose.
func (s *Server) openEgress() (err error) {
	c := s.config
	s.egress, err = egress.New(egress.Settings{
		AllowHTTP: c.AllowHTTP, AllowHosts: c.AllowHosts, AllowNetworks: c.AllowNetworks, AllowPorts: c.AllowPorts, CAFile: c.ExtraCAFile,
		Dev: c.Dev, OwnAddresses: s.ownAddresses, Metrics: s.registry,
	})
	return err
}

// ownAddresses are those at which this server listens. On a developer's
// machine a reactor may call the server that runs it.
func (s *Server) ownAddresses() []netip.AddrPort {
	if s.config.Dev {
		return nil
	}
	var list []netip.AddrPort
	for _, d := range s.doors {
		if a, ok := d.listener.Addr().(*net.TCPAddr); ok {
			list = append(list, a.AddrPort())
		}
	}
	return list
}

// openSandbox starts what runs code. On a developer's machine that cannot, the
// rest of the server works without.
func (s *Server) openSandbox(ctx context.Context) error {
	c := s.config
	if c.SandboxLevel == "off" {
		return nil
	}
	box, err := s.newSandbox(ctx)
	if err == nil {
		s.sandbox = box
		return nil
	}
	if c.Dev && c.Source("sandbox.level") == "default" {
		s.log.Warn("this server runs no code of tenants", "cause", err)
		return nil
	}
	return &SandboxError{err}
}

func (s *Server) newSandbox(ctx context.Context) (*sandbox.Sandbox, error) {
	return newSandbox(ctx, s.config, s.dialForCode, s.reachedInSandbox, s.log, s.registry)
}

// reachedInSandbox counts a limit that code of a tenant has reached.
func (s *Server) reachedInSandbox(b sandbox.Bound) {
	switch b {
	case sandbox.SharedTurns:
		s.limits.Reached(limit.SandboxShare)
	case sandbox.Connections:
		s.limits.Reached(limit.SandboxConnections)
	}
}

type dialer func(ctx context.Context, tenant, host string, port int) (net.Conn, error)

func newSandbox(ctx context.Context, c *config.Config, dial dialer, reached func(sandbox.Bound), log *slog.Logger, metrics prometheus.Registerer) (*sandbox.Sandbox, error) {
	runtime, err := runtimeFolder(c.SandboxRuntime)
	if err != nil {
		return nil, err
	}
	return sandbox.New(ctx, sandbox.Settings{
		Runtime: runtime, Node: c.SandboxNode, Packages: c.SandboxPackages, JIT: c.SandboxJIT, Level: levels[c.SandboxLevel],
		HeaderPrefix:  c.HeaderPrefix,
		PerInvocation: c.SandboxPerInvocation, Blank: c.SandboxBlank, PerProgram: c.SandboxPerProgram, Global: c.SandboxGlobal, Queue: c.SandboxQueue,
		Idle: c.SandboxIdle, MaxAge: c.SandboxMaxAge, OldSpaceMiB: c.SandboxHeap, DataMiB: c.SandboxMemory,
		Dial: dial, Reached: reached, Log: log, Metrics: metrics,
	})
}

// RunsCode reports whether this server runs code of tenants.
func (s *Server) RunsCode() bool { return s.sandbox != nil }

// sandboxLevel is the wall that code of tenants runs behind.
func (s *Server) sandboxLevel() string {
	if s.sandbox == nil {
		return "off"
	}
	return s.sandbox.Level().String()
}

var levels = map[string]sandbox.Level{"full": sandbox.Full, "reduced": sandbox.Reduced, "unsafe_none": sandbox.UnsafeNone}

// runtimeFolder finds the runtime: where it is said to be, or beside the program.
func runtimeFolder(configured string) (string, error) {
	if configured == "" {
		program, err := os.Executable()
		if err != nil {
			return "", errNoRuntime
		}
		configured = filepath.Join(filepath.Dir(program), "runtime")
	}
	if _, err := os.Stat(filepath.Join(configured, "manifest.json")); err != nil {
		return "", errNoRuntime
	}
	return filepath.Abs(configured)
}

// dialForCode opens a connection for code, and tells it errors as it knows them.
func (s *Server) dialForCode(ctx context.Context, tenant, host string, port int) (net.Conn, error) {
	conn, err := s.egress.Dial(ctx, tenant, host, uint16(port))
	if err != nil {
		return nil, dialError{err}
	}
	return conn, nil
}

type dialError struct{ error }

func (e dialError) Unwrap() error { return e.error }

// Errno is the code that a program sees.
func (e dialError) Errno() string { return egress.Errno(e.error) }

// connectCode puts reactors and proxies on what runs code and what dials.
func (s *Server) connectCode() {
	acting := func(ctx context.Context, tenant, application string) (access.Caller, error) {
		return s.directory.Acting(ctx, tenant, application, "")
	}
	s.scripts = script.New(s.sandbox, acting, func(c access.Caller) http.Handler { return s.api.As(c) })
	s.jobs = jobs.New(s.store, jobs.Options{Now: s.now, Logger: s.log, Metrics: s.registry})
	s.reactors = reactor.New(reactor.Parts{
		Store: s.store, Ring: s.ring, Tokens: s.tokens, Scripts: s.scripts, Jobs: s.jobs, Acting: s.acting, Secrets: s.directory.CallbackSecrets,
		Refused: func(ctx context.Context, c access.Caller, err error) { s.audit.Refused(ctx, c, err, audit.Attempt{}) },
		Problem: httpapi.ProblemOf, Transport: s.egress.Transport,
		CheckURL: func(address string) error { _, err := s.egress.Check(address); return err },
	}, reactor.Options{
		Now: s.now, MaxBody: int(s.config.MaxBody), OptionalConfiguration: s.config.OptionalConfiguration, HeaderPrefix: s.config.HeaderPrefix,
		Logger: s.log, Metrics: s.registry, QueuedJobs: s.config.QueuedJobs, Limits: s.limits,
	})
	s.proxies = proxy.New(s.store, s.ring, s.tokens, s.scripts, s.egress, proxy.Options{
		Now: s.now, MaxBody: int(s.config.MaxBody), HeaderPrefix: s.config.HeaderPrefix, Environment: s.config.Environment, Acting: acting,
		Reactor: s.reactors.Deployed,
	})
	s.jobs.SetKinds(s.jobKinds()...)
}

// jobKinds are the rows of all durable work.
func (s *Server) jobKinds() []jobs.Kind {
	return slices.Concat(
		s.reactors.Kinds(),
	)
}
