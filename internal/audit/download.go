package audit

import (
	"context"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Download passes all entries of a filter to put, newest first, in pieces. The
// caller needs log:read. The entry of the call is committed before the first
// piece; entries that are written meanwhile are not part of the download. What it
// lists is as in List. Memory does not grow with the log.
func (s *Service) Download(ctx context.Context, c access.Caller, f store.LogFilter, m Match, put func([]store.LogEntry) error) error {
	if err := c.Require(access.LogRead); err != nil {
		return err
	}
	f = standing(f)
	if f.Before.IsZero() {
		f.Before = store.At(s.now()) + 1
	}
	if err := s.readFor(ctx, c, "exported", func(store.Tx) error { return nil }); err != nil {
		return err
	}
	for after := (*store.Position)(nil); ; {
		var piece []store.LogEntry
		var last *store.Position
		err := s.store.View(ctx, c.Tenant(), func(tx store.Tx) (err error) {
			piece = nil
			last, err = scan(ctx, tx, f, after, scanPage, func(e store.LogEntry) bool {
				if m.has(e) {
					piece = append(piece, e)
				}
				return false
			})
			return err
		})
		if err != nil {
			return err
		}
		if len(piece) > 0 {
			if err := put(piece); err != nil {
				return err
			}
		}
		if after = last; after == nil {
			return nil
		}
	}
}
