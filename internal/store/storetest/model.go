package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

var modelTests = []test{
	{"thousands of changes of tokens agree with a plain map", tokenModel},
}

// model is what a tenant's tokens should be: the plainest thing that could.
type model struct {
	tokens map[string]store.Token
	groups map[string]bool // that have had tokens
}

func (m model) clone() model { return model{maps.Clone(m.tokens), maps.Clone(m.groups)} }

func (m model) put(t store.Token) { m.tokens[t.ID], m.groups[groupName(t)] = t, true }

func (m model) rows() []store.Token { return slices.Collect(maps.Values(m.tokens)) }

// world is a store and the models of its tenants, at one moment.
type world struct {
	*fixture
	random *rand.Rand
	now    store.Time
	next   int
	models map[string]model
}

func tokenModel(f *fixture) {
	Long(f.T)
	seed := uint64(time.Now().UnixNano())
	f.Cleanup(func() {
		if f.Failed() {
			f.Logf("the seed was %d", seed)
		}
	})
	w := &world{fixture: f, random: rand.New(rand.NewPCG(seed, 1)), now: day, models: map[string]model{}}
	for _, id := range []string{tenantA, tenantB} {
		w.models[id] = model{map[string]store.Token{}, map[string]bool{}}
	}
	for round := 0; round < 900 && !f.Failed(); round++ {
		id := []string{tenantA, tenantB}[w.random.IntN(2)]
		w.change(id)
		w.now += store.Time(w.random.IntN(int(3 * second)))
		if w.random.IntN(20) == 0 {
			w.sweep()
		}
		if round%10 == 0 {
			w.compare(id)
			w.compareOutdated()
		}
	}
	w.compare(tenantA)
	w.compare(tenantB)
	w.compareOutdated()
	f.sound()
}

// change does a few random operations in one transaction, which is now and
// then rolled back.
func (w *world) change(id string) {
	fail := w.random.IntN(8) == 0
	count := 1 + w.random.IntN(6)
	seed := w.random.Uint64()
	var after model
	err := w.Update(w.Context(), id, func(tx store.Tx) error {
		// The function may run again, so each run starts from the same state.
		random := rand.New(rand.NewPCG(seed, 2))
		after = w.models[id].clone()
		for i := range count {
			if err := w.operate(tx, random, after, w.next+i); err != nil {
				return err
			}
		}
		if fail {
			return errStop
		}
		return nil
	})
	w.next += count
	switch {
	case fail && errors.Is(err, errStop):
	case err != nil:
		w.Errorf("Update: %v", err)
	default:
		w.models[id] = after
	}
}

func (w *world) operate(tx store.Tx, random *rand.Rand, m model, n int) error {
	ctx := w.Context()
	existing := func() (store.Token, bool) {
		if len(m.tokens) == 0 {
			return store.Token{}, false
		}
		keys := slices.Sorted(maps.Keys(m.tokens))
		return m.tokens[keys[random.IntN(len(keys))]], true
	}
	switch t, ok := existing(); {
	case random.IntN(100) < 45 || !ok:
		t := w.shape(random, store.Token{ID: fmt.Sprintf("id-%d", n), Type: []string{"card", "bank", "token"}[random.IntN(3)], Version: 1})
		t.CreatedAt, t.CreatedBy = day+store.Time(random.IntN(400)), "maker"
		m.put(t)
		return tx.InsertToken(ctx, t)
	case random.IntN(100) < 55:
		changed := w.shape(random, t)
		if random.IntN(3) == 0 { // only the sealed bytes
			changed.Terms, changed.Expiry, changed.Containers = t.Terms, t.Expiry, t.Containers
		}
		changed.Version++
		m.put(changed)
		return tx.ReplaceToken(ctx, changed)
	case random.IntN(100) < 85:
		delete(m.tokens, t.ID)
		return tx.DeleteToken(ctx, t.ID)
	default: // away and back at once
		again := w.shape(random, t)
		again.Version = 1
		m.put(again)
		return errors.Join(tx.DeleteToken(ctx, t.ID), tx.InsertToken(ctx, again))
	}
}

// shape gives a token random contents.
func (w *world) shape(random *rand.Rand, t store.Token) store.Token {
	t.Data, t.Details, t.ShortLived = fmt.Append(nil, "data ", random.IntN(1000)), nil, nil
	if random.IntN(2) == 0 {
		t.Details = []byte("details")
	}
	t.Containers = nil
	for c := range 4 {
		if random.IntN(3) == 0 {
			t.Containers = append(t.Containers, fmt.Sprintf("/%d/", c))
		}
	}
	if t.Containers == nil {
		t.Containers = []string{"/"}
	}
	t.Terms = nil
	for term := range 5 {
		if random.IntN(2) == 0 {
			t.Terms = append(t.Terms, fmt.Append(nil, "term ", term))
		}
	}
	t.Expiry = store.Expiry{}
	if random.IntN(2) == 0 {
		t.Expiry = store.Expiry{At: w.now + store.Time(random.IntN(int(600*second))) - 10*second, OffsetSeconds: 3600}
	}
	t.ModifiedBy, t.ModifiedAt, t.Derived = "changer", w.now, random.IntN(2) == 0
	return t
}

// compareOutdated compares what OutdatedTokens returns with the models of all tenants.
func (w *world) compareOutdated() {
	var want []store.TokenRef
	for id, m := range w.models {
		for _, t := range m.tokens {
			if !t.Derived {
				want = append(want, store.TokenRef{Tenant: id, ID: t.ID})
			}
		}
	}
	slices.SortFunc(want, byTenant)
	skip := w.random.IntN(len(want) + 1)
	if want = want[skip:]; len(want) == 0 {
		want = nil
	}
	limit := 1 + w.random.IntN(20)
	w.same(fmt.Sprintf("OutdatedTokens(%d, %d)", skip, limit), w.outdated(skip, limit), want[:min(len(want), limit)])
}

// sweep removes what has expired, as the sweeper does.
func (w *world) sweep() {
	refs, err := w.AllTenants().ExpiredTokens(w.Context(), w.now, 0, 20)
	if err != nil {
		w.Errorf("ExpiredTokens: %v", err)
	}
	expired := 0
	for _, m := range w.models {
		for _, t := range m.tokens {
			if !t.Expiry.At.IsZero() && t.Expiry.At <= w.now {
				expired++
			}
		}
	}
	w.same("number of expired tokens", len(refs), min(expired, 20))
	for _, ref := range refs {
		w.update(ref.Tenant, func(ctx context.Context, tx store.Tx) error { return tx.DeleteToken(ctx, ref.ID) })
		delete(w.models[ref.Tenant].tokens, ref.ID)
	}
}

// compare asks random questions of the store and of the model.
func (w *world) compare(id string) {
	m := w.models[id]
	w.view(id, func(ctx context.Context, tx store.Tx) error {
		groups, err := groupIDs(ctx, tx)
		if err != nil {
			return err
		}
		has, types := make(map[string]bool), make(map[string]int64)
		for _, t := range m.tokens {
			has[groupName(t)] = true
			if t.Expiry.At.IsZero() || t.Expiry.At > w.now {
				types[t.Type]++
			}
		}
		for name := range has {
			if groups[name] == "" {
				w.Errorf("the groups lack %s", name)
			}
		}
		for name := range groups {
			if !has[name] {
				w.Errorf("there is a group %s without tokens", name)
			}
		}
		counted, err := tx.CountTypes(ctx, w.now)
		if err != nil {
			return err
		}
		w.same("types", counted, types)
		for range 6 {
			filter := store.TokenFilter{Now: w.now}
			var some []string
			for name, g := range groups {
				if w.random.IntN(1+len(groups)) < 3 && m.groups[name] {
					some = append(some, g)
				}
			}
			filter.Groups = store.OnlyGroups(some...)
			if w.random.IntN(2) == 0 {
				filter.Groups = every
			}
			for term := range w.random.IntN(4) {
				filter.Terms = append(filter.Terms, fmt.Append(nil, "term ", term+w.random.IntN(2)))
			}
			if w.random.IntN(4) == 0 {
				for _, t := range m.rows()[:min(len(m.tokens), 7)] {
					filter.IDs = append(filter.IDs, t.ID)
				}
			}
			want := choose(m.rows(), filter, groups)
			count, err := tx.CountTokens(ctx, filter)
			if err != nil {
				return err
			}
			if count != int64(len(want)) {
				w.Errorf("CountTokens(%+v): got %d, want %d", filter, count, len(want))
			}
			page := store.Page{Limit: 1 + w.random.IntN(20)}
			if len(want) > 0 && w.random.IntN(2) == 0 {
				i := w.random.IntN(len(want))
				page.After = &store.Position{CreatedAt: want[i].CreatedAt, ID: want[i].ID}
				want = want[i+1:]
			} else if len(want) > 0 {
				page.Offset = w.random.IntN(len(want))
				want = want[page.Offset:]
			}
			got, err := tx.Tokens(ctx, filter, page)
			if err != nil {
				return err
			}
			if want = want[:min(len(want), page.Limit)]; len(got)+len(want) > 0 {
				w.same(fmt.Sprintf("Tokens(%+v, %+v)", filter, page), got, want)
			}
		}
		return nil
	})
}
