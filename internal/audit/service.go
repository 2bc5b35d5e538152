package audit

import (
	"context"
	"encoding/base64"
	"encoding/json"
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
	streams streams
}

// New returns the service over a store and the ring of its keys.
func New(s store.Store, ring *keyring.Ring, o Options) *Service {
	o = o.filled()
	return &Service{store: s, ring: ring, now: o.Now, log: o.Logger, refused: newRefusals(o.Metrics)}
}

// List returns a page of the caller's tenant's log, newest first, and how many
// entries match in all. The caller needs log:read. The call makes an entry,
// which is on disk before List returns.
//
// Entries about the log itself are in the list only when the filter names their
// type or one entity: the call that reads a page makes one, and would push the
// entries of the next page down. They are in the log, its exports and its
// verification all the same.
//
// A Match narrows the list further. Then the call reads a bounded number of
// entries, and a filter with more of them is a fault.
func (s *Service) List(ctx context.Context, c access.Caller, f store.LogFilter, p store.Page, also ...Match) (list []store.LogEntry, total int64, err error) {
	if err := c.Require(access.LogRead); err != nil {
		return nil, 0, err
	}
	f = standing(f)
	err = s.read(ctx, c, func(tx store.Tx) (err error) {
		list, total = nil, 0
		if m, narrows := matching(also); narrows {
			list, total, err = listMatching(ctx, tx, f, m, p)
			return err
		}
		if total, err = tx.CountLogs(ctx, f); err != nil || int64(p.Offset) >= total {
			return err
		}
		list, err = tx.Logs(ctx, f, p)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return list, total, nil
}

// ListFrom returns up to size entries after the cursor start, newest first, and
// the cursor of the next ones; "" at the end. Entries that are written meanwhile
// are newer and not in it, so whoever follows the cursors meets each entry once.
// What it lists and logs is as in List. Its cost does not grow with depth.
//
// With a Match it reads a bounded number of entries: it may return fewer than
// size, even none, and a cursor.
func (s *Service) ListFrom(ctx context.Context, c access.Caller, f store.LogFilter, start string, size int, also ...Match) (list []store.LogEntry, next string, err error) {
	if err := c.Require(access.LogRead); err != nil {
		return nil, "", err
	}
	keys, err := s.ring.For(ctx, c.Tenant())
	if errors.Is(err, keyring.ErrNoKeys) || errors.Is(err, store.ErrNoTenant) {
		return nil, "", errNoTenant
	}
	if err != nil {
		return nil, "", fmt.Errorf("audit: get keys: %w", err)
	}
	after, err := openCursor(keys, start)
	if err != nil {
		return nil, "", err
	}
	f = standing(f)
	if after != nil && (f.Before.IsZero() || f.Before > after.CreatedAt) {
		f.Before = after.CreatedAt + 1 // so that the index begins there
	}
	m, narrows := matching(also)
	var last *store.Position // that was read
	err = s.read(ctx, c, func(tx store.Tx) (err error) {
		if narrows {
			list, last, err = listMatchingFrom(ctx, tx, f, m, after, size)
			return err
		}
		// One more than is asked for tells whether there is more.
		list, err = tx.Logs(ctx, f, store.Page{After: after, Limit: size + 1})
		return err
	})
	if err != nil {
		return nil, "", err
	}
	if !narrows && len(list) > size {
		list = list[:size]
		last = &store.Position{CreatedAt: list[size-1].CreatedAt, ID: list[size-1].ID}
	}
	if last == nil {
		return list, "", nil
	}
	next, err = sealCursor(keys, *last)
	return list, next, err
}

// standing is a filter without the entries that reading the log makes, unless
// it names their type or one entity.
func standing(f store.LogFilter) store.LogFilter {
	if f.EntityType == "" && (f.EntityID == "" || f.EntityID == Many) {
		f.ExceptType = Log
	}
	return f
}

// read reads the log in a view of its own, because a count may take long and
// others wait for the connections of reads, and then logs that it was read.
func (s *Service) read(ctx context.Context, c access.Caller, view func(store.Tx) error) error {
	return s.readFor(ctx, c, past[Read], view)
}

// readFor is read with words that say what the log was read for.
func (s *Service) readFor(ctx context.Context, c access.Caller, what string, view func(store.Tx) error) error {
	return s.readAbout(ctx, c, Many, what, view)
}

// readAbout is readFor with the id of what the log was read about.
func (s *Service) readAbout(ctx context.Context, c access.Caller, id, what string, view func(store.Tx) error) error {
	if err := s.store.View(ctx, c.Tenant(), view); err != nil {
		return fmt.Errorf("audit: list the log: %w", err)
	}
	entry := EntryThat(c, s.now(), Log, id, Read, what)
	err := s.store.Read(ctx, c.Tenant(), func(tx store.Tx) error { return tx.AppendLog(ctx, entry) })
	if errors.Is(err, store.ErrNoTenant) {
		return errNoTenant
	}
	if err != nil {
		return fmt.Errorf("audit: log the reading of the log: %w", err)
	}
	return nil
}

var errStart = fault.Field("start", "is not a cursor of this tenant's log")

// cursor is a position in the log. It is sealed with the tenant's key, so it can
// be neither made up nor used in another tenant.
type cursor struct {
	At store.Time `json:"at"`
	ID string     `json:"id"`
}

const cursorRecord = "logs"

func sealCursor(keys *keyring.Keys, at store.Position) (string, error) {
	b, err := json.Marshal(cursor{At: at.CreatedAt, ID: at.ID})
	if err != nil {
		return "", errors.New("audit: encode a cursor")
	}
	sealed, err := keys.Seal(cursorRecord, keyring.FieldLogCursor, b)
	return base64.RawURLEncoding.EncodeToString(sealed), err
}

func openCursor(keys *keyring.Keys, text string) (*store.Position, error) {
	if text == "" {
		return nil, nil
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, errStart
	}
	b, err := keys.Open(cursorRecord, keyring.FieldLogCursor, sealed)
	if err != nil {
		return nil, errStart
	}
	var at cursor
	if json.Unmarshal(b, &at) != nil {
		return nil, errStart
	}
	return &store.Position{CreatedAt: at.At, ID: at.ID}, nil
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
