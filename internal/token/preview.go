package token

import (
	"context"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

var (
	errRefusedByRule = fault.New(fault.Forbidden, "a rule does not let the caller use a token; position of the rule in its list, from 0, and token")
	errNoRule        = fault.New(fault.Forbidden, "no rule and no plain permission lets the caller use a token")
)

// Previewed is a token that would be used, and why it may be.
type Previewed struct {
	UsedToken
	By    access.Step // what settled it
	Steps []access.Step
}

// Preview gathers the tokens that expressions name as Use would for the caller
// as, and gives none of their values: whatever as may see, the data is its
// mask, and of everything else about a token there is only the shape. So no
// filter, no error and no length can tell more than the mask does. Each token,
// also one that as may not use, is in the log as read by c. On tokens c needs no
// permission: the caller of Preview has asked for one on what uses them.
func (s *Service) Preview(ctx context.Context, c, as access.Caller, refs []expression.Reference) (*Used, []Previewed, error) {
	looked := make(map[string]Previewed)
	used, err := s.gather(ctx, c, func(row store.Token) (access.Transform, error) {
		d, steps := as.Explain(access.TokenUse, access.Target{ID: row.ID, Containers: row.Containers})
		looked[row.ID] = Previewed{UsedToken{row.ID, row.Type, row.Containers, d.Transform}, d.By, steps}
		return min(d.Transform, access.Mask), nil // one that is refused is in the log too
	}, refs, func(row store.Token, now time.Time) store.LogEntry {
		return audit.EntryBy(c, now, row.Type, row.ID, audit.Read, "proxy preview")
	})
	if err != nil {
		return nil, nil, err
	}
	var list []Previewed
	for _, t := range used.tokens {
		p := looked[t.ID]
		if p.Transform == access.Nothing {
			return nil, nil, refusal(p)
		}
		list = append(list, p)
		used.veil(t.ID)
	}
	return used, list, nil
}

func refusal(p Previewed) error {
	f := errNoRule
	if p.By.Rule != access.NoRule {
		f = errRefusedByRule.Counting(int64(p.By.Rule))
	}
	return f.Naming(tellable([]string{p.ID}))
}

// veil leaves of a token its mask, what says which token it is, and the shape
// of all the rest.
func (u *Used) veil(id string) {
	data := u.data[id]
	if data.IsNull() { // its mask comes to nothing
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
