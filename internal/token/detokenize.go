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

var errMissing = fault.New(fault.Invalid, "Failed to detokenize some tokens").WithCode("tokens_not_found")

// Detokenize puts the values of tokens in place of the expressions in a JSON
// value, as far as the caller's token:read on each of them goes. It is bounded
// in the number of tokens and in what the whole comes to, and both are known
// before anything is built.
func (s *Service) Detokenize(ctx context.Context, c access.Caller, body jsonvalue.Value) (jsonvalue.Value, error) {
	if err := c.RequireSomewhere(access.TokenRead); err != nil {
		return jsonvalue.Value{}, err
	}
	b := s.BodyBudget(ctx, c.Tenant(), s.maxBody)
	b.Grow(body.JSONSize())
	doc, err := expression.ParseDocument(b, body)
	if err != nil {
		return jsonvalue.Value{}, err
	}
	used, err := s.gather(ctx, c, holding(access.TokenRead), doc.IDs(), func(row store.Token, now time.Time) store.LogEntry {
		return audit.Entry(c, now, row.Type, row.ID, audit.Read)
	})
	if err != nil {
		return jsonvalue.Value{}, err
	}
	used.Grow(b)
	expanded, err := doc.Resolve(used.lookup, b)
	if err != nil {
		return jsonvalue.Value{}, err
	}
	if err := ChargeExpansion(c, expanded); err != nil {
		return jsonvalue.Value{}, err
	}
	return expanded.Value(), nil
}

// BodyBudget is the budget of a request of a tenant that puts the values of tokens into a
// body of at most maxOutput bytes.
func (s *Service) BodyBudget(ctx context.Context, tenant string, maxOutput int) *expression.Budget {
	return s.limitsOf(tenant).BodyBudget(ctx, maxOutput)
}

// expansionWeight is how many bytes of memory are charged for each byte that
// expressions expand to: the value, its text and a copy of it.
const expansionWeight = 3

// ChargeExpansion charges the caller's request for a document with the values
// of tokens in it, before it is built.
func ChargeExpansion(c access.Caller, e *expression.Expansion) error {
	return c.ChargeMemory(expansionWeight * int64(e.Size()))
}

// distinct counts the tokens that references name.
func distinct(refs []expression.Reference) int {
	seen := make(map[string]bool, len(refs))
	for _, ref := range refs {
		seen[ref.ID] = true
	}
	return len(seen)
}

// judge decides what is seen of a token, or returns why nothing is.
type judge func(ctx context.Context, tx store.Tx, by *viewer, row store.Token) (sight, error)

// holding judges by a permission of the caller.
func holding(p access.Permission) judge {
	return func(ctx context.Context, tx store.Tx, by *viewer, row store.Token) (sight, error) {
		return by.look(ctx, tx, p, row)
	}
}

// gather finds the tokens that expressions name, as far as the judge lets each
// of them through, and logs them with an entry for each and what else belongs
// to the same act. An error about tokens that are refused names all of them.
func (s *Service) gather(ctx context.Context, c access.Caller, decides judge, refs []expression.Reference,
	entry func(store.Token, time.Time) store.LogEntry, also ...store.LogEntry) (*Used, error) {
	if len(refs) == 0 && len(also) == 0 {
		return &Used{}, nil // and nothing will be asked
	}
	if err := c.ChargeTokens(distinct(refs)); err != nil {
		return nil, err
	}
	keys, err := s.keysOf(ctx, c)
	if err != nil {
		return nil, err
	}
	var found shown
	err = s.read(ctx, c, func(tx store.Tx) error {
		found.reset(c) // a transaction may run again
		by := viewer{c: c, most: access.Reveal, keys: keys}
		entries := slices.Clone(also)
		err := s.eachNamed(ctx, tx, refs, func(row store.Token, rest []expression.Reference) error {
			sees, err := decides(ctx, tx, &by, row)
			if err != nil {
				return s.withRefusals(ctx, tx, decides, &by, err, rest)
			}
			entries = append(entries, audit.Showing(entry(row, s.now()), sees.data))
			return found.keep(ctx, tx, &by, row, sees)
		})
		if err != nil {
			return err
		}
		return tx.AppendLog(ctx, entries...)
	})
	if err != nil {
		return nil, err
	}
	return s.use(ctx, c, keys, found)
}

// eachNamed calls do with each token that references name, once, and with the
// references after it. The error names the tokens that are missing, when do
// refused none of the others.
func (s *Service) eachNamed(ctx context.Context, tx store.Tx, refs []expression.Reference, do func(row store.Token, rest []expression.Reference) error) error {
	var missing []string
	seen := make(map[string]bool)
	for i, ref := range refs {
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
		if err := do(row, refs[i+1:]); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return errMissing.Naming(tellable(missing))
	}
	return nil
}

// maxRefused bounds how many tokens of one call are named as refused.
const maxRefused = 10

// withRefusals adds to the refusal of a token those of the tokens after it, so
// that the log has each. What else is wrong with these changes nothing: the
// call is refused.
func (s *Service) withRefusals(ctx context.Context, tx store.Tx, decides judge, by *viewer, first error, rest []expression.Reference) error {
	var all *access.Denial
	if !errors.As(first, &all) {
		return first
	}
	seen := make(map[string]bool)
	for _, e := range all.Entities() {
		seen[e.ID] = true
	}
	for _, ref := range rest {
		if seen[ref.ID] {
			continue
		}
		seen[ref.ID] = true
		row, err := s.live(ctx, tx, ref.ID)
		if errors.Is(err, errNoToken) {
			continue
		}
		if err != nil || len(all.Entities()) >= maxRefused {
			break
		}
		var next *access.Denial
		if _, err := decides(ctx, tx, by, row); errors.As(err, &next) {
			all = all.And(next)
		}
	}
	return all
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
