package token

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Search returns a page of the tokens that a query finds and the caller may
// search, newest first, and how many there are in all.
// Like List it takes the most that is shown, and that tokens are compared by.
func (s *Service) Search(ctx context.Context, c access.Caller, text string, p store.Page, most ...access.Transform) ([]Token, int64, error) {
	return s.page(ctx, reading{c, access.TokenSearch, atMost(most)}, searchFor(text), p)
}

// SearchFrom is Search from a place on, as ListFrom is List.
func (s *Service) SearchFrom(ctx context.Context, c access.Caller, text, start string, size int, most ...access.Transform) ([]Token, string, error) {
	return s.pageFrom(ctx, reading{c, access.TokenSearch, atMost(most)}, searchFor(text), start, size)
}

func searchFor(text string) planner {
	return func(keys *keyring.Keys, m matcher) (plan, error) {
		q, err := parseQuery(text)
		if err != nil {
			return plan{}, err
		}
		return q.compile(keys, m).plan(), nil
	}
}

// truth is what is known of a test before the token is.
type truth int

const (
	no truth = iota
	perhaps
	yes
)

func known(b bool) truth {
	if b {
		return yes
	}
	return no
}

// test is a query made ready: hashed where tokens are found by hashes, so that
// nothing is opened to decide it.
type test struct {
	word string
	of   []*test
	// term, id and group are set for comparisons that an index answers.
	term  []byte
	id    string
	group func(kind string, containers []string) bool
	row   func(store.Token) bool // every comparison but those with a group
	// guards are set for comparisons with protected data, and for tests of
	// which one is such: row then also asks them whether the caller may find
	// the token by it.
	guards []func(store.Token) bool
}

func (q *query) compile(keys *keyring.Keys, m matcher) *test {
	t := &test{word: q.word}
	for _, part := range q.of {
		below := part.compile(keys, m)
		t.of, t.guards = append(t.of, below), append(t.guards, below.guards...)
	}
	if q.word != "" {
		return t
	}
	hashed := func(term []byte) {
		t.term = term
		t.row = func(r store.Token) bool {
			return slices.ContainsFunc(r.Terms, func(have []byte) bool { return bytes.Equal(have, term) })
		}
	}
	guard := func(term []byte, may func(store.Token) bool) {
		hashed(term)
		has := t.row
		t.guards, t.row = append(t.guards, may), func(r store.Token) bool { return may(r) && has(r) }
	}
	between := func(at store.Time) bool {
		return !at.IsZero() && at >= q.from && (q.until.IsZero() || at < q.until)
	}
	switch q.field {
	case "id":
		t.id, t.row = q.value, func(r store.Token) bool { return r.ID == q.value }
	case "type":
		t.group = func(kind string, _ []string) bool { return kind == q.value }
	case "container":
		t.group = func(_ string, containers []string) bool { return inContainer(containers, q.value, q.below) }
	case "fingerprint":
		guard(keys.IndexTerm(termFingerprint, q.value), m.fingerprint)
	case "data":
		guard(keys.IndexTerm(termIndex, fold(q.value)), m.data)
	case "created_by":
		t.row = func(r store.Token) bool { return r.CreatedBy == q.value }
	case "modified_by":
		t.row = func(r store.Token) bool { return r.ModifiedBy == q.value }
	case "created_at":
		t.row = func(r store.Token) bool { return between(r.CreatedAt) }
	case "modified_at":
		t.row = func(r store.Token) bool { return between(r.ModifiedAt) }
	default:
		hashed(keys.IndexTerm(termMetadata+strings.TrimPrefix(q.field, "metadata."), fold(q.value)))
	}
	return t
}

// holds decides the test for what is known: a row of nil is not known yet.
func (t *test) holds(kind string, containers []string, row *store.Token) truth {
	switch t.word {
	case "AND":
		out := yes
		for _, part := range t.of {
			out = min(out, part.holds(kind, containers, row))
		}
		return out
	case "OR":
		out := no
		for _, part := range t.of {
			out = max(out, part.holds(kind, containers, row))
		}
		return out
	case "NOT":
		return yes - t.of[0].holds(kind, containers, row)
	}
	switch {
	case t.group != nil:
		return known(t.group(kind, containers))
	case row == nil:
		return perhaps
	}
	return known(t.row(*row))
}

// plan finds the indexes to walk. Groups that cannot match are left out of all
// of them.
func (t *test) plan() plan {
	p := plan{
		sources: t.sources(),
		group:   func(g store.TokenGroup) bool { return t.holds(g.Type, g.Containers, nil) != no },
		keep:    func(r store.Token) bool { return t.holds(r.Type, r.Containers, &r) == yes },
	}
	if !t.comparesGroups() {
		p.group = nil
	}
	if p.sources == nil {
		p.sources = []store.TokenFilter{{}}
	}
	if p.guards = t.guards; len(p.guards) > 0 {
		p.guarded = p.keep
	}
	if t.exact() {
		p.keep = nil
	}
	return p
}

// comparesGroups reports whether the test compares types or containers.
func (t *test) comparesGroups() bool {
	return t.group != nil || slices.ContainsFunc(t.of, (*test).comparesGroups)
}

// exact reports whether the groups and the one source decide the whole test.
func (t *test) exact() bool {
	for _, part := range t.conjuncts() {
		if part.term == nil && part.group == nil {
			return false
		}
	}
	return true
}

// conjuncts are the tests that must all hold.
func (t *test) conjuncts() []*test {
	if t.word == "AND" {
		return t.of
	}
	return []*test{t}
}

// sources returns filters that together find every token for which the test
// holds; nil when no index helps.
func (t *test) sources() []store.TokenFilter {
	switch t.word {
	case "NOT":
		return nil
	case "OR":
		var all []store.TokenFilter
		for _, part := range t.of {
			some := part.sources()
			if some == nil {
				return nil
			}
			all = append(all, some...)
		}
		return all
	}
	var best []store.TokenFilter
	var terms [][]byte
	for _, part := range t.conjuncts() {
		switch {
		case part.id != "":
			return []store.TokenFilter{{IDs: []string{part.id}}}
		case part.term != nil:
			if !slices.ContainsFunc(terms, func(have []byte) bool { return bytes.Equal(have, part.term) }) {
				terms = append(terms, part.term)
			}
		case part.word != "":
			if some := part.sources(); some != nil && (best == nil || len(some) < len(best)) {
				best = some
			}
		}
	}
	if terms != nil {
		return []store.TokenFilter{{Terms: terms}}
	}
	return best
}
