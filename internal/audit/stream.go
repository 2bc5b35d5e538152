package audit

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// MaxStreams is how many streams of its log a tenant may have open on a node.
const MaxStreams = 20

// settling is how much the clocks of servers may differ: entries made since an
// instant are in no batch that was sealed earlier than that before it.
const settling = time.Minute

var (
	// ErrStreams refuses a stream of a tenant that has MaxStreams of them open.
	ErrStreams      = fault.New(fault.TooMany, "the tenant has too many open streams of its log").WithCode("too_many_streams").RetryAfter(30 * time.Second)
	errStreamEnd    = fault.Field("end_date", "must not be given: a stream has no end")
	errStreamStart  = fault.New(fault.Invalid, "the Last-Event-ID header is not of a stream of this tenant's log")
	errStreamedPast = fault.Field("past", "must be a number from 0 to 100")
)

// streams counts the open streams by tenant.
type streams struct {
	mu   sync.Mutex // guards open
	open map[string]int
}

func (s *streams) enter(tenant string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[tenant] >= MaxStreams {
		return false
	}
	if s.open == nil {
		s.open = make(map[string]int)
	}
	s.open[tenant]++
	return true
}

func (s *streams) leave(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[tenant]--; s.open[tenant] <= 0 {
		delete(s.open, tenant)
	}
}

// StreamEvent is an entry in a stream. A stream that is opened with its ID continues
// after it.
type StreamEvent struct {
	ID    string
	Entry store.LogEntry
}

// StreamOptions say where a stream begins. The zero value begins with what is
// written from now on.
type StreamOptions struct {
	LastEventID string
	// Past is how many of the newest entries come first. It does not count with
	// a LastEventID or a From in the filter.
	Past int
}

// Stream is the log of a tenant as it is sealed: every entry once, in the order
// of the batches, a few seconds after it was written. That order never changes,
// so a stream that was cut off continues without a gap and without repeats, on
// any server. Entries that retention has dropped are left out.
type Stream struct {
	log    *Service
	tenant string
	keys   *keyring.Keys
	filter store.LogFilter
	match  Match
	at     eventPosition
	past   []store.LogEntry // not passed on yet
	sent   []string         // ids of the past entries, which may not be sealed yet
}

// eventPosition is the batch and the index of the entry after which a stream
// continues.
type eventPosition struct {
	Batch int64 `json:"batch"`
	Index int   `json:"index"`
}

// ends is the index behind the entries of any batch.
const ends = 1 << 30

// OpenStream begins a stream of the log of the caller's tenant. The caller needs
// log:read, and closes the stream. What it lists is as in List.
func (s *Service) OpenStream(ctx context.Context, c access.Caller, f store.LogFilter, m Match, o StreamOptions) (*Stream, error) {
	if err := c.Require(access.LogRead); err != nil {
		return nil, err
	}
	if !f.Before.IsZero() {
		return nil, errStreamEnd
	}
	if o.Past < 0 || o.Past > maxPast {
		return nil, errStreamedPast
	}
	keys, err := s.ring.For(ctx, c.Tenant())
	if errors.Is(err, keyring.ErrNoKeys) || errors.Is(err, store.ErrNoTenant) {
		return nil, errNoTenant
	}
	if err != nil {
		return nil, fmt.Errorf("audit: get keys: %w", err)
	}
	t := &Stream{log: s, tenant: c.Tenant(), keys: keys, filter: standing(f), match: m}
	if !s.streams.enter(t.tenant) {
		return nil, ErrStreams
	}
	err = s.readFor(ctx, c, "followed", func(tx store.Tx) error { return t.begin(ctx, tx, o) })
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// maxPast is the most entries of the past that a stream begins with.
const maxPast = 100

// Close gives the place of the stream back.
func (t *Stream) Close() { t.log.streams.leave(t.tenant) }

// begin finds where the stream begins.
func (t *Stream) begin(ctx context.Context, tx store.Tx, o StreamOptions) (err error) {
	last, err := tx.LastLogBatch(ctx)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	t.at = eventPosition{last.Number, ends}
	switch {
	case o.LastEventID != "":
		t.at, err = t.parse(o.LastEventID)
		return err
	case !t.filter.From.IsZero():
		number, err := firstSealedAfter(ctx, tx, last.Number, t.filter.From-store.Time(settling.Microseconds()))
		t.at = eventPosition{number - 1, ends}
		return err
	case o.Past == 0:
		// What waits was written before the stream was opened. It comes all the
		// same: to leave it out its places would have to be remembered.
		return nil
	}
	t.past, _, err = listMatchingFrom(ctx, tx, t.filter, t.match, nil, o.Past)
	slices.Reverse(t.past)
	if len(t.past) > 0 {
		t.filter.From = t.past[0].CreatedAt // what is older and not sealed yet was not asked for
	}
	for _, e := range t.past {
		t.sent = append(t.sent, e.ID)
	}
	return err
}

// firstSealedAfter returns the number of the first batch that was sealed at an
// instant or later; one more than the last when there is none.
func firstSealedAfter(ctx context.Context, tx store.Tx, last int64, at store.Time) (int64, error) {
	low, high := int64(1), last+1
	for low < high {
		middle := low + (high-low)/2
		rows, err := tx.LogBatches(ctx, middle-1, 1)
		if err != nil {
			return 0, err
		}
		if len(rows) > 0 && rows[0].SealedAt < at {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, nil
}

// Next returns what was sealed since the last call, and whether there is more
// already. It returns no events when nothing was.
func (t *Stream) Next(ctx context.Context) (events []StreamEvent, more bool, err error) {
	if past := t.past; past != nil {
		t.past = nil
		id, err := t.format(t.at)
		if err != nil {
			return nil, false, err
		}
		for _, e := range past {
			events = append(events, StreamEvent{id, e})
		}
		return events, true, nil
	}
	batches, total, err := t.log.readBatches(ctx, t.tenant, t.after(), true)
	if err != nil {
		return nil, false, err
	}
	for _, b := range batches {
		for i, e := range b.entries {
			if e == nil || b.head.Number == t.at.Batch && i <= t.at.Index || !t.takes(*e) {
				continue
			}
			id, err := t.format(eventPosition{b.head.Number, i})
			if err != nil {
				return nil, false, err
			}
			events = append(events, StreamEvent{id, *e})
		}
	}
	if n := len(batches); n > 0 {
		t.at = eventPosition{batches[n-1].head.Number, ends}
	}
	return events, t.at.Batch < total, nil
}

// after is the number of the last batch of which nothing is left.
func (t *Stream) after() int64 {
	if t.at.Index == ends {
		return t.at.Batch
	}
	return t.at.Batch - 1
}

// takes reports whether the filter takes an entry that was not passed on yet.
func (t *Stream) takes(e store.LogEntry) bool {
	f := t.filter
	if i := slices.Index(t.sent, e.ID); i >= 0 {
		t.sent = slices.Delete(t.sent, i, i+1)
		return false
	}
	return (f.EntityType == "" || f.EntityType == e.EntityType) && (f.ExceptType == "" || f.ExceptType != e.EntityType) &&
		(f.EntityID == "" || f.EntityID == e.EntityID) && (f.From.IsZero() || e.CreatedAt >= f.From) && t.match.has(e)
}

const streamRecord = "log stream"

// format writes a position as the id of an event. It is sealed with the tenant's
// key, so it can be neither made up nor used in another tenant.
func (t *Stream) format(at eventPosition) (string, error) {
	b, err := json.Marshal(at)
	if err != nil {
		return "", errors.New("audit: encode a position")
	}
	sealed, err := t.keys.Seal(streamRecord, keyring.FieldLogCursor, b)
	return base64.RawURLEncoding.EncodeToString(sealed), err
}

func (t *Stream) parse(id string) (at eventPosition, err error) {
	sealed, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil {
		return at, errStreamStart
	}
	b, err := t.keys.Open(streamRecord, keyring.FieldLogCursor, sealed)
	if err != nil || json.Unmarshal(b, &at) != nil || at.Batch < 0 || at.Index < 0 {
		return at, errStreamStart
	}
	return at, nil
}
