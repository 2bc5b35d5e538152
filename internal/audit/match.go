package audit

import (
	"context"
	"slices"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Match narrows a list by fields that have no index. An empty field does not
// narrow it.
type Match struct {
	ActorID   string
	Operation string
	Outcome   string
	Transform string
	TraceID   string
}

// has reports whether an entry matches.
func (m Match) has(e store.LogEntry) bool {
	same := func(want, got string) bool { return want == "" || want == got }
	return same(m.ActorID, e.ActorID) && same(m.Operation, e.Operation) && same(m.Outcome, e.Outcome) &&
		same(m.Transform, e.Transform) && same(m.TraceID, e.TraceID)
}

// Check returns a fault when a field has a value that no entry can have.
func (m Match) Check() error {
	var bad fault.Fields
	if _, known := past[Operation(m.Operation)]; m.Operation != "" && !known {
		bad.Add("operation", "must be create, read, update, delete, use or rotate")
	}
	if m.Outcome != "" && m.Outcome != outcomeAllowed && m.Outcome != outcomeDenied {
		bad.Add("outcome", "must be allowed or denied")
	}
	if _, known := access.ParseTransform(m.Transform); m.Transform != "" && !known {
		bad.Add("transform", "must be reveal, mask or redact")
	}
	return bad.Err()
}

// matching is the one Match of a call, if there is one that narrows the list.
func matching(also []Match) (m Match, narrows bool) {
	if len(also) > 0 {
		m = also[0]
	}
	return m, m != Match{}
}

const (
	// maxScanned bounds how many entries one call reads to find those that match.
	maxScanned = 20_000
	// scanPage is how many of them one read of the store returns.
	scanPage = 500
)

var errScan = fault.New(fault.Invalid, "too many entries would have to be read: give closer dates, an entity_id or an entity_type, or use GET /v2/logs").WithCode("log_range_too_long")

// scan reads the entries of a filter, newest first, from a position on, until
// the visitor has enough or most entries were read. It returns the position of
// the last entry that was read, nil when there are no more.
func scan(ctx context.Context, tx store.Tx, f store.LogFilter, after *store.Position, most int, visit func(store.LogEntry) (enough bool)) (*store.Position, error) {
	for read := 0; ; {
		limit := min(scanPage, most-read)
		if limit <= 0 {
			return after, nil
		}
		if after != nil && (f.Before.IsZero() || f.Before > after.CreatedAt) {
			f.Before = after.CreatedAt + 1 // so that the index begins there
		}
		list, err := tx.Logs(ctx, f, store.Page{After: after, Limit: limit})
		if err != nil {
			return nil, err
		}
		for _, e := range list {
			after = &store.Position{CreatedAt: e.CreatedAt, ID: e.ID}
			if visit(e) {
				return after, nil
			}
		}
		if len(list) < limit {
			return nil, nil
		}
		read += len(list)
	}
}

// listMatching is List for a filter with parts that have no index. It reads
// maxScanned entries at most: of more it is a fault.
func listMatching(ctx context.Context, tx store.Tx, f store.LogFilter, m Match, p store.Page) (list []store.LogEntry, total int64, err error) {
	rest, err := scan(ctx, tx, f, nil, maxScanned+1, func(e store.LogEntry) bool {
		if !m.has(e) {
			return false
		}
		if total >= int64(p.Offset) && len(list) < p.Limit {
			list = append(list, e)
		}
		total++
		return false
	})
	if err == nil && rest != nil {
		err = errScan
	}
	return list, total, err
}

// listMatchingFrom is ListFrom for such a filter. Where it has read maxScanned
// entries it ends, with what it has found and the position to continue from.
func listMatchingFrom(ctx context.Context, tx store.Tx, f store.LogFilter, m Match, after *store.Position, size int) (list []store.LogEntry, next *store.Position, err error) {
	next, err = scan(ctx, tx, f, after, maxScanned, func(e store.LogEntry) bool {
		if m.has(e) {
			list = append(list, e)
		}
		return len(list) > size
	})
	if err == nil && len(list) > size {
		list = slices.Clip(list[:size])
		next = &store.Position{CreatedAt: list[size-1].CreatedAt, ID: list[size-1].ID}
	}
	return list, next, err
}
