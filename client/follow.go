package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
)

// Following says how Logs.Follow goes about it. The zero value will do.
type Following struct {
	// Every is how long it waits between two looks; default 2 seconds. Every
	// look is an entry in the log.
	Every time.Duration
	// Past is how many of the newest entries it begins with, at most 100. It
	// counts for nothing when the filter has a From.
	Past int
	// Trouble, unless it is nil, is told of errors that may pass, before Follow
	// waits and looks again.
	Trouble func(error)
}

const (
	// settling is how long after its instant an entry may still come to light:
	// a change is stamped first and committed then, and servers' clocks differ.
	settling = time.Minute
	// mostAtOnce bounds what is read before it is handed on.
	mostAtOnce = 50 * pageSize
	// longestPause is between two tries while there is no answer.
	longestPause = 30 * time.Second
)

var errFollowsOn = fmt.Errorf("client: following has no end: the filter must not have one: %w", ErrInvalid)

// Follow is Stream for servers and networks that do not pass on streams: it looks
// for entries again and again. It goes through the entries that the filter takes as they come, oldest
// first and each one once, until ctx ends. With a From it begins with the
// entries of that time; otherwise with those made after it was called. It takes
// log:read.
//
// Each look goes back a minute behind the newest entry, so that none is lost
// which was committed late. A server that gives no answer, or asks to wait, is
// asked again for as long as it takes, from the same place on; whatever else
// goes wrong ends it, and that error comes last. Follow leaves out the entries
// that its own looks make, which a filter by their type, log, would find.
func (l Logs) Follow(ctx context.Context, f LogFilter, o Following) iter.Seq2[api.LogEntry, error] {
	return func(yield func(api.LogEntry, error) bool) {
		if !f.Before.IsZero() {
			yield(api.LogEntry{}, errFollowsOn)
			return
		}
		w := &follower{logs: l, filter: f, trace: newUUID(), seen: make(map[string]time.Time)}
		look := w.look
		if f.From.IsZero() {
			look = func(ctx context.Context) ([]api.LogEntry, bool, error) { return w.begin(ctx, o.Past) }
		}
		for tried := 0; ; {
			found, more, err := look(ctx)
			if ctx.Err() != nil {
				return
			}
			for _, e := range found {
				if e.TraceID != w.trace && !yield(e, nil) {
					return
				}
			}
			pause := cmp.Or(o.Every, 2*time.Second)
			switch {
			case err == nil:
				look, tried = w.look, 0
			case !passes(err):
				yield(api.LogEntry{}, err)
				return
			default:
				if o.Trouble != nil {
					o.Trouble(err)
				}
				var refusal *Error
				if errors.As(err, &refusal) {
					pause = max(pause, refusal.RetryAfter)
				}
				pause = max(pause, min(pause<<min(tried, 10), longestPause))
				tried++
			}
			if !more && l.caller.sleep(ctx, pause) != nil {
				return
			}
		}
	}
}

// passes reports whether an error may be gone after a while.
func passes(err error) bool {
	var refusal *Error
	if errors.As(err, &refusal) {
		return isPassing(refusal.Status)
	}
	return errors.Is(err, ErrUnavailable)
}

// follower is one run of Follow.
type follower struct {
	logs   Logs
	filter LogFilter // its From is where the next look begins
	trace  string    // stands on the entries that the looks themselves make
	// seen has the entries from filter.From on that were handed on.
	seen map[string]time.Time
}

// begin finds the place to follow from: the newest entry that there is.
func (w *follower) begin(ctx context.Context, past int) (found []api.LogEntry, more bool, err error) {
	page, err := w.logs.page(ctx, w.filter, 1, pageSize, w.trace)
	if err != nil || len(page.Data) == 0 {
		return nil, false, err
	}
	w.filter.From = page.Data[0].CreatedAt.Time
	for _, e := range page.Data {
		if !e.CreatedAt.Before(w.filter.From) {
			w.seen[e.ID] = e.CreatedAt.Time
		}
	}
	found = page.Data[:min(max(past, 0), len(page.Data))]
	slices.Reverse(found)
	return found, false, nil
}

// look returns the entries that were not seen before, oldest first. When there
// are many it takes the older part of them and says that there are more.
func (w *follower) look(ctx context.Context) (found []api.LogEntry, more bool, err error) {
	f := w.filter
	page, err := w.logs.page(ctx, f, 1, pageSize, w.trace)
	if err != nil || len(page.Data) == 0 {
		return nil, false, err
	}
	f.Before = page.Data[0].CreatedAt.Add(time.Microsecond)
	if page, more, err = w.narrow(ctx, &f, page); err != nil {
		return nil, false, err
	}
	fresh := make(map[string]time.Time)
	for number := 1; ; {
		for _, e := range page.Data {
			if _, known := w.seen[e.ID]; known || !fresh[e.ID].IsZero() {
				continue
			}
			fresh[e.ID] = e.CreatedAt.Time
			found = append(found, e)
		}
		// The server counts: when nothing is missing there is nothing to look for.
		if int64(len(w.seen)+len(fresh)) >= page.Pagination.TotalItems || int64(number) >= page.Pagination.TotalPages {
			break
		}
		number++
		if page, err = w.logs.page(ctx, f, number, pageSize, w.trace); err != nil {
			return nil, false, err // all of it once more
		}
	}
	for id, at := range fresh {
		w.seen[id] = at
	}
	w.forget(f.Before.Add(-settling))
	slices.SortFunc(found, func(a, b api.LogEntry) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt.Time), cmp.Compare(a.ID, b.ID))
	})
	return found, more && len(found) > 0, nil
}

// narrow brings the end of a look forward until there is not too much before it
// that was not seen, and returns the first page of that.
func (w *follower) narrow(ctx context.Context, f *LogFilter, page api.List[api.LogEntry]) (first api.List[api.LogEntry], narrowed bool, err error) {
	fresh := func(p api.List[api.LogEntry]) int64 { return p.Pagination.TotalItems - int64(len(w.seen)) }
	low := time.Unix(0, 0)
	if f.From.After(low) {
		low = f.From
	}
	for _, at := range w.seen {
		if at.After(low) {
			low = at
		}
	}
	for fresh(page) > mostAtOnce && f.Before.Sub(low) > time.Millisecond {
		part := *f
		part.Before = low.Add(f.Before.Sub(low) / 2)
		half, err := w.logs.page(ctx, part, 1, pageSize, w.trace)
		if err != nil {
			return half, false, err
		}
		if fresh(half) <= 0 {
			low = part.Before
			continue
		}
		*f, page, narrowed = part, half, true
	}
	return page, narrowed, nil
}

// forget moves the beginning of the next look, never back.
func (w *follower) forget(before time.Time) {
	if !before.After(w.filter.From) {
		return
	}
	w.filter.From = before.Truncate(time.Microsecond)
	for id, at := range w.seen {
		if at.Before(w.filter.From) {
			delete(w.seen, id)
		}
	}
}
