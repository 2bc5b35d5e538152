package token_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// modelled is a token as the model knows it.
type modelled struct {
	id, kind, data, container, tier string
	made, expires                   time.Time
}

// viewer is a caller with a naive idea of what it may see.
type viewer struct {
	name   string
	caller access.Caller
	sees   func(m modelled) bool
}

type model struct {
	*world
	random  *rand.Rand
	tokens  map[string]modelled
	viewers []viewer
}

// TestTheServiceAgreesWithANaiveModel changes tokens at random by two callers
// with different rules, and compares every list, count, filter and search with
// what a map and a few loops say.
func TestTheServiceAgreesWithANaiveModel(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t)
			m := &model{world: w, random: rand.New(rand.NewPCG(seed, 1)), tokens: map[string]modelled{}}
			m.viewers = []viewer{
				{"two containers", w.within("/a/", "/b/c/"), func(m modelled) bool {
					return strings.HasPrefix(m.container, "/a/") || strings.HasPrefix(m.container, "/b/c/")
				}},
				{"a session by id", session(w, "id", "x"), func(m modelled) bool { return strings.HasPrefix(m.id, "x") }},
			}
			for range 30 {
				for range 6 {
					m.step()
				}
				m.compare()
			}
		})
	}
}

func pick[T any](m *model, list ...T) T { return list[m.random.IntN(len(list))] }

func (m *model) step() {
	v := m.viewers[m.random.IntN(len(m.viewers))]
	next := modelled{
		id: pick(m, "x", "y") + fmt.Sprintf("-%02d", m.random.IntN(20)), kind: pick(m, "token", "card_number"),
		container: pick(m, "/a/", "/a/d/", "/b/", "/b/c/"), tier: pick(m, "gold", "lead", ""),
	}
	if next.data = pick(m, "one", "two"); next.kind == "card_number" {
		next.data = pick(m, visa, "4111111111111111")
	}
	if m.random.IntN(3) == 0 {
		next.expires = m.clock.Now().Add(time.Duration(1+m.random.IntN(20)) * time.Second)
	}
	m.clock.Advance(time.Duration(m.random.IntN(3)) * time.Second)
	old, there := m.live(next.id)
	switch m.random.IntN(10) {
	case 0, 1, 2, 3, 4:
		m.create(v, next, there)
	case 5, 6, 7:
		next.id, next.kind, next.made = old.id, old.kind, old.made
		if there {
			m.update(v, old, next)
		}
	case 8:
		err := m.world.tokens.Delete(m.t.Context(), v.caller, next.id)
		m.expect("delete", err, there, there && v.sees(old), func() { delete(m.tokens, next.id) })
	case 9:
		if _, err := m.world.tokens.Sweep(m.t.Context()); err != nil {
			m.t.Fatal(err)
		}
	}
}

// live returns a token of the model that has not expired.
func (m *model) live(id string) (modelled, bool) {
	found, there := m.tokens[id]
	if there && !found.expires.IsZero() && !found.expires.After(m.clock.Now()) {
		delete(m.tokens, id)
		return modelled{}, false
	}
	return found, there
}

func (m *model) expect(what string, err error, there, allowed bool, done func()) {
	m.t.Helper()
	want := error(nil)
	switch {
	case !there:
		want = fault.NotFound
	case !allowed:
		want = fault.Forbidden
	}
	if want != nil {
		wantFault(m.t, what, err, want.(fault.Kind), "")
		return
	}
	if err != nil {
		m.t.Errorf("%s = %s", what, says(err))
		return
	}
	done()
}

func (m *model) attributes(n modelled) string {
	out := fmt.Sprintf(`"data":%q,"containers":[%q],"search_indexes":["{{ data }}"]`, n.data, n.container)
	out += fmt.Sprintf(`,"metadata":{"tier":%s}`, map[bool]string{true: "null", false: `"` + n.tier + `"`}[n.tier == ""])
	if n.expires.IsZero() {
		return out + `,"expires_at":null`
	}
	return out + `,"expires_at":"` + n.expires.Format(time.RFC3339) + `"`
}

func (m *model) create(v viewer, n modelled, taken bool) {
	if !n.expires.IsZero() && !n.expires.After(m.clock.Now()) {
		return
	}
	n.made = m.clock.Now()
	_, err := m.world.create(v.caller, fmt.Sprintf(`{"id":%q,"type":%q,%s}`, n.id, n.kind, m.attributes(n)))
	if v.sees(n) && taken {
		wantFault(m.t, "create", err, fault.Conflict, "")
		return
	}
	m.expect("create", err, true, v.sees(n), func() { m.tokens[n.id] = n })
}

func (m *model) update(v viewer, old, n modelled) {
	if !n.expires.IsZero() && !n.expires.After(m.clock.Now()) {
		return
	}
	if n.data = pick(m, "three", "four"); n.kind == "card_number" {
		n.data = pick(m, visa, "5555555555554444")
	}
	_, err := m.patch(v.caller, old.id, `{`+m.attributes(n)+`}`)
	m.expect("update", err, true, v.sees(old) && v.sees(n), func() { m.tokens[n.id] = n })
}

// compare asks every question of both.
func (m *model) compare() {
	m.t.Helper()
	var all []modelled
	for id := range m.tokens {
		if found, there := m.live(id); there {
			all = append(all, found)
		}
	}
	slices.SortFunc(all, func(a, b modelled) int {
		return cmp.Or(b.made.Compare(a.made), strings.Compare(b.id, a.id))
	})
	named := []string{"y-03", "x-07", "x-01", "none", "y-11"}
	for _, v := range m.viewers {
		for name, test := range map[string]struct {
			filter token.Filter
			query  string
			keep   func(modelled) bool
		}{
			"all":      {token.Filter{}, "", func(modelled) bool { return true }},
			"type":     {token.Filter{Types: []string{"token"}}, "type:token", func(n modelled) bool { return n.kind == "token" }},
			"metadata": {token.Filter{Metadata: map[string]string{"tier": "GOLD"}}, "metadata.tier:gold", func(n modelled) bool { return n.tier == "gold" }},
			"ids":      {token.Filter{IDs: named}, "", func(n modelled) bool { return slices.Contains(named, n.id) }},
			"index":    {token.Filter{}, "data:ONE OR data:" + visa, func(n modelled) bool { return n.data == "one" || n.data == visa }},
			"place":    {token.Filter{}, `container:"/a/*" AND NOT metadata.tier:lead`, func(n modelled) bool { return strings.HasPrefix(n.container, "/a/") && n.tier != "lead" }},
			"mixed": {token.Filter{}, "(id:x-01 OR metadata.tier:lead) AND NOT type:card_number",
				func(n modelled) bool { return (n.id == "x-01" || n.tier == "lead") && n.kind != "card_number" }},
		} {
			var want []string
			for _, n := range all {
				if v.sees(n) && test.keep(n) {
					want = append(want, n.id)
				}
			}
			page := store.Page{Offset: m.random.IntN(3), Limit: 1 + m.random.IntN(5)}
			if test.query != "" {
				list, total, err := m.world.tokens.Search(m.t.Context(), v.caller, test.query, page)
				m.same(v.name+", search "+name, list, total, err, want, page)
			}
			if name == "index" || name == "place" || name == "mixed" {
				continue
			}
			if test.filter.IDs != nil {
				slices.SortFunc(want, func(a, b string) int { return slices.Index(named, a) - slices.Index(named, b) })
			}
			list, total, err := m.world.tokens.List(m.t.Context(), v.caller, test.filter, page)
			m.same(v.name+", list "+name, list, total, err, want, page)
			for _, found := range list {
				if got := text(found.Data); got != `"`+m.tokens[found.ID].data+`"` {
					m.t.Errorf("%s holds %s, want %s", found.ID, got, m.tokens[found.ID].data)
				}
			}
		}
	}
}

func (m *model) same(what string, list []token.Token, total int64, err error, want []string, p store.Page) {
	m.t.Helper()
	part := want[min(p.Offset, len(want)):]
	part = part[:min(p.Limit, len(part))]
	if err != nil || int(total) != len(want) || ids(list) != strings.Join(part, " ") {
		m.t.Errorf("%s = %q of %d, %s, want %q of %d", what, ids(list), total, says(err), part, len(want))
	}
}
