package token

import (
	"context"
	"errors"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Shown returns the decisions that a response which holds this token rests on.
func (t Token) Shown() []access.Shown { return t.rests }

// Shown returns the decisions that a response made from these tokens rests on.
func (u *Used) Shown() []access.Shown {
	list := make([]access.Shown, len(u.tokens))
	for i, t := range u.tokens {
		list[i] = access.Shown{ID: t.ID, Permission: access.TokenUse, Transform: t.Transform}
	}
	return list
}

// Replay decides whether a caller may get a stored result again, and returns
// the log entries for that: one for each token of the result that still exists.
// On each of these the caller needs the access that the result was made with,
// otherwise the error is a denial about that token. A token that was deleted or has expired
// since does not count. The caller appends the entries in the same transaction.
func (s *Service) Replay(ctx context.Context, tx store.Tx, c access.Caller, result []access.Shown) ([]store.LogEntry, error) {
	var entries []store.LogEntry
	now := s.now()
	logged := make(map[string]bool)
	for _, shown := range result {
		row, err := s.live(ctx, tx, shown.ID)
		if errors.Is(err, errNoToken) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := c.RequireAgain(shown, access.Target{ID: row.ID, Type: row.Type, Containers: row.Containers}); err != nil {
			return nil, err
		}
		if !logged[row.ID] {
			logged[row.ID] = true
			entries = append(entries, audit.Showing(audit.Replayed(c, now, row.Type, row.ID), shown.Transform))
		}
	}
	return entries, nil
}
