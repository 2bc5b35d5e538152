// Package postgres keeps the store in PostgreSQL, for any number of servers.
//
// It promises what package store promises on the strength of PostgreSQL's
// serializable transactions and of a commit that waits for the disk. A
// transaction gathers its writes and sends them in one round trip with its
// commit; one that reads nothing shares a commit with others of its tenant.
// When a connection is lost over a commit, the outcome is found out before
// anything is reported or done again.
//
// It never runs a statement of a request without the tenant in it, never as a
// role that could see two tenants, and never repeats anything of the URL, of a
// statement's values or of the server's messages in an error or a log.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// ownerConnections is how many connections serve what crosses tenants.
const ownerConnections = 4

// Options are what Open needs to know beside the URL. The zero value will do.
type Options struct {
	Logger  *slog.Logger
	Metrics prometheus.Registerer
	// Connections is how many connections serve requests at most; 0 means 16.
	// A few more serve sweeps and checks.
	Connections int
	// RequestRole is the role that requests act as; empty means
	// "tokenkeep_requests". It is made when it is missing and the role of the
	// URL may make it.
	RequestRole string
	// LoggedEpochKeys keeps epoch keys through a crash of the database, at the
	// price of copies in its write-ahead log and on its standbys. All servers of
	// an installation must agree.
	LoggedEpochKeys bool
	// MaxContainers is how many different containers the tokens of a tenant may
	// have; 0 means any number.
	MaxContainers int64
	// Ahead are migrations behind those of this release, for tests: with them it
	// is a release of tomorrow.
	Ahead []string
	// Receive opens a database to move a store to: one that is empty, or to
	// which one was moved before, whole or not. Nobody else opens it then before
	// the mark says that the move is complete.
	Receive bool
	// Ungathered gives every update a commit of its own. It exists so that a
	// benchmark can show in one run what gathering is worth.
	Ungathered bool

	// tracers see the statements of each kind of connection; tests set them.
	requestTracer, ownerTracer pgx.QueryTracer
}

// Store is a store in a database.
type Store struct {
	log      *slog.Logger
	release  *release
	owner    *pgxpool.Pool // crosses tenants
	requests *pgxpool.Pool // acts as the role of requests
	metrics  *metrics
	gatherer *gatherer
	turns    turns
	patience time.Duration // with a commit that is not answered
	failing  atomic.Bool   // the last update was refused, say for a full disk
	// maxContainers and receives are the options.
	maxContainers int64
	receives      bool
	// counted says that no server is connected that does not keep all counters
	// of tokens, so that they agree with the groups. recounted is when that was
	// last made so; counting guards it.
	counted   atomic.Bool
	counting  sync.Mutex
	recounted time.Time
	// These say that a table may hold bytes of what was destroyed.
	staleKeysets, staleEpochKeys atomic.Bool

	mu        sync.Mutex // guards closed against running.Add
	closed    bool
	running   sync.WaitGroup // calls under way, and what they leave to do behind them
	closing   sync.Once
	stopTidy  context.CancelFunc
	tidyEnded chan struct{}
}

var _ store.Store = (*Store)(nil)

// Open opens the store in the database that url names, and brings its schema
// up to date. The URL is a plain string, because nothing under store may name a
// protected one; it holds a password, and appears nowhere. Open fails with
// store.ErrNewerSchema when a newer release changed the database so that this
// one cannot work on it, and with store.ErrUnfinished when a store is being
// moved to it, and has then changed nothing. It fails with
// store.ErrInUse when servers are connected that could not go on if it did.
func Open(ctx context.Context, url string, o Options) (_ *Store, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Connections <= 0 {
		o.Connections = 16
	}
	if o.RequestRole == "" {
		o.RequestRole = "tokenkeep_requests"
	}
	config, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	if err := prepare(ctx, config.ConnConfig, o); err != nil {
		return nil, err
	}
	texts, err := migrations(o)
	if err != nil {
		return nil, err
	}
	r := &release{known: len(texts)}
	s := &Store{log: o.Logger, release: r, metrics: newMetrics(o.Metrics), turns: newTurns(), patience: patience, maxContainers: o.MaxContainers, receives: o.Receive, tidyEnded: make(chan struct{})}
	s.gatherer = newGatherer(s, o.Ungathered)
	if s.owner, err = ownerPool(ctx, config, o, r); err != nil {
		return nil, mapError("open pool", err, nil)
	}
	if s.requests, err = requestPool(ctx, config, o, r); err != nil {
		s.owner.Close()
		return nil, mapError("open pool", err, nil)
	}
	if err := s.requests.Ping(ctx); err != nil {
		s.requests.Close()
		s.owner.Close()
		return nil, mapError("act as the role of requests", err, nil)
	}
	if err := s.tidyCounters(ctx); err != nil {
		s.log.Warn("the counters of tokens could not be brought up to date, and will be in a minute", "error", err)
	}
	tidying, stop := context.WithCancel(context.Background())
	s.stopTidy = stop
	go s.tidy(tidying)
	return s, nil
}

// enter begins a call, which Close waits for.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("postgres: closed: %w", store.ErrUnavailable)
	}
	s.running.Add(1)
	return nil
}

// View implements store.Store.
func (s *Store) View(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	key, err := parseTenant(tenant)
	if err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.running.Done()
	return s.look(&tx{store: s, tenant: key, begin: beginView}, fn)
}

// look runs the function of a view.
func (s *Store) look(t *tx, fn func(store.Tx) error) error {
	defer t.end()
	if err := fn(t); err != nil {
		return err
	}
	return t.failed
}

// errMoved says that the entries of a read would have been kept by another
// server than the one that it read from. That one may have been replaced by
// its standby, and then shows what is no longer so.
var errMoved = fmt.Errorf("postgres: another server has taken over: %w", store.ErrUnavailable)

// Read implements store.Store: a view, and then the entries that it left, in a
// commit that they share with others of the tenant. The server that the view
// read from must keep them: only a server that still is the primary can.
func (s *Store) Read(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	key, err := parseTenant(tenant)
	if err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.running.Done()
	for began := time.Now(); ; {
		t := &tx{store: s, tenant: key, begin: beginView, logs: true}
		if err := s.look(t, fn); err != nil || t.rows.empty() {
			return err
		}
		err := s.noted(s.update(ctx, key, func(u store.Tx) error {
			u.(*tx).rows = t.rows
			return nil
		}))
		if !errors.Is(err, errMoved) || time.Since(began) > againWait {
			return err
		}
		s.requests.Reset()
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

const readyStatement = "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::bool"

// Ready implements store.Store.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.running.Done()
	var reading bool
	if err := s.requests.QueryRow(ctx, readyStatement).Scan(&reading); err != nil {
		return callerError(ctx, "look at the server", err)
	}
	if reading {
		return fmt.Errorf("postgres: the server takes no changes: %w", store.ErrUnavailable)
	}
	if !s.failing.Load() {
		return nil
	}
	// Whether the next update would be refused as the last one was, only a
	// write can tell.
	if _, err := s.owner.Exec(ctx, putInstallation, "ready", []byte{1}); err != nil {
		return callerError(ctx, "try a change", err)
	}
	s.failing.Store(false)
	return nil
}

// Room implements store.Store: the server takes every change or none.
func (s *Store) Room() error { return nil }

// Backups implements store.Store: PostgreSQL has its own tools.
func (s *Store) Backups() store.Backups { return nil }

const clockStatement = "SELECT clock_timestamp()"

// Now implements store.Store.
func (s *Store) Now(ctx context.Context) (at time.Time, err error) {
	if err := s.enter(ctx); err != nil {
		return at, err
	}
	defer s.running.Done()
	if err := s.requests.QueryRow(ctx, clockStatement).Scan(&at); err != nil {
		return at, callerError(ctx, "ask for the time", err)
	}
	return at, nil
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.stopTidy()
		<-s.tidyEnded
		s.running.Wait()
		s.requests.Close()
		s.owner.Close()
	})
	return nil
}

// callerError maps an error of a call that ran under the caller's own context.
func callerError(ctx context.Context, doing string, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return mapError(doing, err, nil)
}

// tenantKey is a tenant's id as it stands in every key. The zero key is no
// tenant, and reaches nothing.
type tenantKey [16]byte

func parseTenant(tenant string) (tenantKey, error) {
	id, err := uuid.Parse(tenant)
	if err != nil || id == uuid.Nil || len(tenant) != 36 {
		return tenantKey{}, store.ErrNoTenant
	}
	return tenantKey(id), nil
}

func (k tenantKey) String() string { return uuid.UUID(k).String() }

// column is the key in the form that the driver takes.
func (k tenantKey) column() pgtype.UUID { return pgtype.UUID{Bytes: k, Valid: true} }
