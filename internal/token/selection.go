package token

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// plan says how the tokens of a list or search are found.
type plan struct {
	// sources together hold every token that is wanted, and perhaps others. Their
	// Groups and Now are set when the plan is narrowed to what a caller may see.
	sources []store.TokenFilter
	// group says whether a group may hold tokens that are wanted; nil: all may.
	group func(store.TokenGroup) bool
	// keep says whether a token is wanted; nil where the sources are exact.
	keep func(store.Token) bool
	// guarded is keep for a plan that compares protected data, where the caller
	// may not find every token by it; nil for a plan that does not. guards are
	// what decides that for a token.
	guarded func(store.Token) bool
	guards  []func(store.Token) bool
	// asAsked keeps the order of the one source's ids.
	asAsked bool
}

// selection is a plan narrowed to what one caller may see at one instant.
type selection struct {
	plan
	exact  bool // the one source holds what is wanted and nothing else
	groups int  // that were decided on
	// admit charges the caller's request for rows that the store has read.
	admit func(bytes int64) error
}

// selection asks about access once for each group, and where the answer rests
// on the id once for each token that the list passes over.
//
// Where the answer is the same for all tokens, it reads no groups.
func (p plan) selection(ctx context.Context, tx store.Tx, m matcher, perm access.Permission, now store.Time) (selection, error) {
	if d, ok := m.uniform(perm, len(p.guards) > 0); ok && p.group == nil {
		out := p.narrowed(m, now, groupsIf(d.Allowed()))
		for _, finds := range p.guards {
			if !finds(store.Token{Containers: []string{"/"}}) {
				out.keep = p.guarded
			}
		}
		out.exact = out.keep == nil && len(out.sources) == 1
		return out, nil
	}
	groups, err := tx.TokenGroups(ctx)
	if err != nil {
		return selection{}, fmt.Errorf("list token groups: %w", err)
	}
	var seen []string
	byID, guarded := false, false
	for _, g := range groups {
		if p.group != nil && !p.group(g) {
			continue
		}
		d := m.c.DecideContainers(perm, g.Containers)
		if d.Allowed() || d.DependsOnID {
			seen = append(seen, g.ID)
			byID = byID || d.DependsOnID
			for _, finds := range p.guards {
				// Without an id: the least that any id is allowed.
				guarded = guarded || !finds(store.Token{Containers: g.Containers})
			}
		}
	}
	wantedGroups := store.OnlyGroups(seen...)
	if len(seen) == len(groups) {
		wantedGroups = store.AllGroups() // the index of all tokens is the shorter way
	}
	out := p.narrowed(m, now, wantedGroups)
	if guarded {
		out.keep = p.guarded
	}
	if byID {
		wanted := out.keep
		out.keep = func(row store.Token) bool {
			return (wanted == nil || wanted(row)) && decide(m.c, perm, row).Allowed()
		}
	}
	out.exact, out.groups = out.keep == nil && len(out.sources) == 1, len(groups)
	return out, nil
}

// narrowed is the plan on the tokens of some groups that have not expired.
func (p plan) narrowed(m matcher, now store.Time, groups store.Groups) selection {
	out := selection{plan: p, admit: m.c.ChargeMemory}
	out.sources = slices.Clone(p.sources)
	for i := range out.sources {
		out.sources[i].Now, out.sources[i].Groups = now, groups
	}
	return out
}

// groupsIf returns all groups where access is allowed on all tokens alike, and
// none where it is not.
func groupsIf(allowed bool) store.Groups {
	if allowed {
		return store.AllGroups()
	}
	return store.OnlyGroups()
}

// count returns how many tokens are wanted in all.
func (s selection) count(ctx context.Context, tx store.Tx) (n int64, err error) {
	if s.exact {
		return tx.CountTokens(ctx, s.sources[0])
	}
	err = s.walk(ctx, tx, nil, func(store.Token) bool { n++; return true })
	return n, err
}

// page returns a page of them.
func (s selection) page(ctx context.Context, tx store.Tx, p store.Page) (list []store.Token, err error) {
	if s.exact && (!s.asAsked || p.After == nil) {
		p.Admit = s.admit
		return tx.Tokens(ctx, s.sources[0], p)
	}
	skip := p.Offset
	err = s.walk(ctx, tx, p.After, func(row store.Token) bool {
		if skip > 0 {
			skip--
			return true
		}
		list = append(list, row)
		return len(list) < p.Limit
	})
	return list, err
}

// walked is how many rows a walk takes from a source at a time: few, because
// each may be large.
const walked = 25

// stream is a source on its way.
type stream struct {
	filter store.TokenFilter
	rows   []store.Token
	after  *store.Position
	ended  bool
	admit  func(bytes int64) error
	held   int64 // bytes of memory that are charged for rows
}

// walk merges the sources and calls fn with each token that is wanted, in
// order and once, until it returns false.
func (s selection) walk(ctx context.Context, tx store.Tx, after *store.Position, fn func(store.Token) bool) error {
	streams := make([]*stream, len(s.sources))
	for i, source := range s.sources {
		streams[i] = &stream{filter: source, after: after, admit: s.admit}
		defer streams[i].giveBack()
		if len(source.IDs) > 0 {
			rows, err := s.named(ctx, tx, source, after)
			if err != nil {
				return err
			}
			streams[i].rows, streams[i].ended = rows, true
		}
	}
	for last := ""; ; {
		var first *stream
		for _, st := range streams {
			if err := st.fill(ctx, tx); err != nil {
				return err
			}
			if len(st.rows) > 0 && (first == nil || newestFirst(st.rows[0], first.rows[0]) < 0) {
				first = st
			}
		}
		if first == nil {
			return nil
		}
		row := first.rows[0]
		first.rows = first.rows[1:]
		if row.ID == last { // in two sources
			continue
		}
		last = row.ID
		if (s.keep == nil || s.keep(row)) && !fn(row) {
			return nil
		}
	}
}

func (st *stream) fill(ctx context.Context, tx store.Tx) (err error) {
	if len(st.rows) > 0 || st.ended {
		return nil
	}
	st.giveBack()
	if st.rows, err = tx.Tokens(ctx, st.filter, store.Page{After: st.after, Limit: walked, Admit: st.hold}); err != nil {
		return err
	}
	if len(st.rows) < walked {
		st.ended = true
		return nil
	}
	end := st.rows[len(st.rows)-1]
	st.after = &store.Position{CreatedAt: end.CreatedAt, ID: end.ID}
	return nil
}

// hold charges for a row. The rows of a walk that are kept are charged again as
// such: giveBack gives back what the walk itself was charged with.
func (st *stream) hold(bytes int64) error {
	if err := st.admit(bytes); err != nil {
		return err
	}
	st.held += bytes
	return nil
}

func (st *stream) giveBack() {
	_ = st.admit(-st.held) // giving back never fails
	st.held = 0
}

// named returns the tokens of a source that names ids, from behind a place.
func (s selection) named(ctx context.Context, tx store.Tx, source store.TokenFilter, after *store.Position) ([]store.Token, error) {
	if s.asAsked && after != nil {
		// The token of that place may be gone; its id still has one in the list.
		at := slices.Index(source.IDs, after.ID)
		if source.IDs = source.IDs[at+1:]; len(source.IDs) == 0 {
			return nil, nil
		}
	}
	rows, err := tx.Tokens(ctx, source, store.Page{Limit: len(source.IDs), Admit: s.admit})
	if err != nil || s.asAsked {
		return rows, err
	}
	slices.SortFunc(rows, newestFirst)
	if after != nil {
		place := store.Token{CreatedAt: after.CreatedAt, ID: after.ID}
		rows = slices.DeleteFunc(rows, func(row store.Token) bool { return newestFirst(place, row) >= 0 })
	}
	return rows, nil
}

// newestFirst is the order of lists.
func newestFirst(a, b store.Token) int {
	if a.CreatedAt != b.CreatedAt {
		return -cmp.Compare(a.CreatedAt, b.CreatedAt)
	}
	return -strings.Compare(a.ID, b.ID)
}
