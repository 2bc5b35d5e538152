package token

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/luhn"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

var errMissing = fault.New(fault.Invalid, "Failed to detokenize some tokens")

// Detokenize puts the values of tokens in place of the expressions in a JSON
// value, as far as the caller's token:read on each of them goes. It is bounded
// in the number of tokens and in what the whole comes to, and both are known
// before anything is built.
func (s *Service) Detokenize(ctx context.Context, c access.Caller, body jsonvalue.Value) (jsonvalue.Value, error) {
	if err := c.RequireSomewhere(access.TokenRead); err != nil {
		return jsonvalue.Value{}, err
	}
	doc, err := expression.ParseDocument(body)
	if err != nil {
		return jsonvalue.Value{}, err
	}
	used, err := s.gather(ctx, c, holding(c, access.TokenRead), doc.IDs(), func(row store.Token, now time.Time) store.LogEntry {
		return audit.Entry(c, now, row.Type, row.ID, audit.Read)
	})
	if err != nil {
		return jsonvalue.Value{}, err
	}
	expanded, err := doc.Resolve(used.lookup, expression.NewBudget(s.maxBody))
	if err != nil {
		return jsonvalue.Value{}, err
	}
	return expanded.Value(), nil
}

// judge says how much of a token is to be seen, or why nothing is.
type judge func(row store.Token) (access.Transform, error)

// holding judges by a permission of the caller.
func holding(c access.Caller, p access.Permission) judge {
	return func(row store.Token) (access.Transform, error) {
		d := decide(c, p, row)
		return d.Transform, d.Err()
	}
}

// gather finds the tokens that expressions name, as far as the judge lets each
// of them through, and logs them with an entry for each and what else belongs
// to the same act.
func (s *Service) gather(ctx context.Context, c access.Caller, by judge, refs []expression.Reference,
	entry func(store.Token, time.Time) store.LogEntry, also ...store.LogEntry) (*Used, error) {
	if len(refs) == 0 && len(also) == 0 {
		return &Used{}, nil // and nothing will be asked
	}
	keys, err := s.keysOf(ctx, c)
	if err != nil {
		return nil, err
	}
	var found shown
	err = s.update(ctx, c, func(tx store.Tx) error {
		found = shown{} // a transaction may run again
		var missing []string
		entries := slices.Clone(also)
		seen := make(map[string]bool)
		for _, ref := range refs {
			if seen[ref.ID] {
				continue
			}
			seen[ref.ID] = true
			row, err := s.live(ctx, tx, ref.ID)
			if errors.Is(err, errNoToken) {
				missing = append(missing, ref.ID)
				continue
			}
			if err != nil {
				return err
			}
			transform, err := by(row)
			if err != nil {
				return err
			}
			if err := found.add(ctx, tx, row, transform); err != nil {
				return err
			}
			entries = append(entries, entry(row, s.now()))
		}
		if len(missing) > 0 {
			return errMissing.Naming(tellable(missing))
		}
		return tx.AppendLog(ctx, entries...)
	})
	if err != nil {
		return nil, err
	}
	return s.use(ctx, c, keys, found)
}

// tellable leaves out ids that hold a card number: people paste those where
// ids go.
func tellable(ids []string) []string {
	var list []string
	for _, id := range ids {
		if !luhn.HasCard(separators.Replace(id)) {
			list = append(list, id)
		}
	}
	return list
}

// enriched adds what only expressions see: for a card that shows anything at
// all, what its number tells of the issuer.
func (t Token) enriched() Token {
	if t.sideName != "card" || t.side.IsNull() {
		return t
	}
	var details, b jsonvalue.Builder
	for _, name := range []string{"bin", "brand", "last4"} {
		if v, ok := t.side.Get(name); ok {
			details.Add(name, v)
		}
	}
	b.Add("bin_details", details.Value())
	t.enrichments = b.Value()
	return t
}
