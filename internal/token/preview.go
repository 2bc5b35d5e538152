package token

import (
	"context"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Previewed is a token that a call would use, whether it may, and why.
type Previewed struct {
	// UsedToken says what the call would get of the token: its Transform is
	// Nothing when the call may not use it. The id is empty when it could be a
	// card number.
	UsedToken
	By    access.Step // the step that settled it
	Steps []access.Step
	// Masked reports whether the preview shows the mask of the token. Otherwise
	// it shows a placeholder.
	Masked bool
}

// Preview returns what a preview shows in place of the tokens that expressions
// name: the mask of those that the caller c may read with mask or reveal, and a
// placeholder for all others. It also says of each whether the caller as may use
// it.
//
// Nothing about a token behind a placeholder depends on its data, which is not
// even opened. Of a masked token an expression sees the mask, what says which
// token it is, and only the shape of everything else, so no filter, error or
// length tells more than the mask.
//
// Each token, also one that as may not use, is logged as read by c.
func (s *Service) Preview(ctx context.Context, c, as access.Caller, refs []expression.Reference) (expression.Lookup, []Previewed, error) {
	if len(refs) == 0 {
		return (&Used{}).lookup, nil, nil
	}
	keys, err := s.keysOf(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	var found shown
	var list []Previewed
	var placeholders map[string]expression.Withheld
	err = s.read(ctx, c, func(tx store.Tx) error {
		found.reset(c) // a transaction may run again
		list, placeholders = nil, make(map[string]expression.Withheld)
		var entries []store.LogEntry
		err := s.eachNamed(ctx, tx, refs, func(row store.Token, _ []expression.Reference) error {
			seen := sightOfPreviewed(c, row)
			list = append(list, previewed(as, row, seen))
			if seen.data != access.Mask {
				placeholders[row.ID] = expression.Withheld{Placeholder: "[" + row.Type + "]"}
			} else if err := found.keep(ctx, tx, &viewer{c: c, most: access.Reveal, keys: keys}, row, seen); err != nil {
				return err
			}
			entries = append(entries, audit.Showing(audit.EntryBy(c, s.now(), row.Type, row.ID, audit.Read, "proxy preview"), seen.data))
			return nil
		})
		if err != nil {
			return err
		}
		return tx.AppendLog(ctx, entries...)
	})
	if err != nil {
		return nil, nil, err
	}
	used, err := s.use(ctx, c, keys, found)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range used.tokens {
		used.hide(t.ID)
	}
	return func(ref expression.Reference) (jsonvalue.Value, error) {
		if withheld, ok := placeholders[ref.ID]; ok {
			return jsonvalue.Value{}, withheld
		}
		return used.lookup(ref)
	}, list, nil
}

// previewed decides about one token.
func previewed(as access.Caller, row store.Token, seen sight) Previewed {
	use, steps := as.Explain(access.TokenUse, access.Target{ID: row.ID, Containers: row.Containers})
	p := Previewed{
		UsedToken: UsedToken{Type: row.Type, Containers: row.Containers, Transform: use.Transform}, By: use.By, Steps: steps,
		Masked: seen.data == access.Mask,
	}
	if ids := tellable([]string{row.ID}); len(ids) > 0 {
		p.ID = row.ID
	}
	return p
}

// hide leaves of a token its mask, what says which token it is, and the shape of
// all the rest.
func (u *Used) hide(id string) {
	data := u.data[id]
	if data.IsNull() { // its mask is empty
		data = jsonvalue.NewString(expression.Hidden)
	}
	u.data[id] = data
	whole, _ := u.whole[id].MapLeaves(func(leaf jsonvalue.Value) (jsonvalue.Value, error) { // it never fails
		if leaf.IsNull() {
			return leaf, nil
		}
		return jsonvalue.NewString(expression.Hidden), nil
	})
	for _, name := range []string{"id", "type", "containers"} {
		if v, ok := u.whole[id].Get(name); ok {
			whole = whole.With(name, v)
		}
	}
	u.whole[id] = whole.With("data", data)
}
