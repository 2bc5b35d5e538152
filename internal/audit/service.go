package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

var errNoTenant = fault.New(fault.NotFound, "no such tenant")

// Options are the settings of a Service and of a Sealer. The zero Options are
// good ones.
type Options struct {
	Now     func() time.Time // default time.Now
	Logger  *slog.Logger
	Metrics prometheus.Registerer
	// SealEvery is how long Sealer.Run waits between two rounds; 0 means 3
	// seconds.
	SealEvery time.Duration
}

func (o Options) filled() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.SealEvery <= 0 {
		o.SealEvery = 3 * time.Second
	}
	return o
}

// Service reads tenants' logs. What takes a Caller is for requests; what takes
// a tenant's id is for the operator's commands, which no tenant reaches.
type Service struct {
	store   store.Store
	ring    *keyring.Ring
	now     func() time.Time
	log     *slog.Logger
	refused *refusals
}

// New returns the service over a store and the ring of its keys.
func New(s store.Store, ring *keyring.Ring, o Options) *Service {
	o = o.filled()
	return &Service{store: s, ring: ring, now: o.Now, log: o.Logger, refused: newRefusals(o.Metrics)}
}

// List returns a page of the caller's tenant's log, newest first, and how many
// entries match in all. The caller needs log:read. The call makes an entry of
// its own, which is on disk before List returns; what List returns is the log
// as it was before that, so an entry first shows in the list after its own.
func (s *Service) List(ctx context.Context, c access.Caller, f store.LogFilter, p store.Page) (list []store.LogEntry, total int64, err error) {
	if err := c.Require(access.LogRead); err != nil {
		return nil, 0, err
	}
	// A count may take long, so it is not made where it would keep writers waiting.
	err = s.store.View(ctx, c.Tenant(), func(tx store.Tx) (err error) {
		if total, err = tx.CountLogs(ctx, f); err != nil {
			return err
		}
		list, err = tx.Logs(ctx, f, p)
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("audit: list the log: %w", err)
	}
	entry := Entry(c, s.now(), Log, Many, Read)
	err = s.store.Update(ctx, c.Tenant(), func(tx store.Tx) error { return tx.AppendLog(ctx, entry) })
	if errors.Is(err, store.ErrNoTenant) {
		return nil, 0, errNoTenant
	}
	if err != nil {
		return nil, 0, fmt.Errorf("audit: log the reading of the log: %w", err)
	}
	return list, total, nil
}

// EntityTypes returns the kinds of things that entries are about. The caller
// needs log:read. It makes no entry: the list is the same for everyone.
func (s *Service) EntityTypes(_ context.Context, c access.Caller) ([]EntityType, error) {
	if err := c.Require(access.LogRead); err != nil {
		return nil, err
	}
	return EntityTypes(), nil
}

// Progress is how far a long piece of work has come.
type Progress struct {
	Doing string `json:"doing"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"` // 0 when it is not known
}

// report calls the function with the progress, if there is one.
func report(progress func(Progress), doing string, done, total int64) {
	if progress != nil {
		progress(Progress{doing, done, total})
	}
}
