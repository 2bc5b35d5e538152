package postgres

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// maxMerged bounds how many index rows a list by groups merges from the
// indexes of the groups, the head of each. Beyond that it passes over the
// tenant's tokens in order and leaves out the other groups: then a page of a
// few rare groups would cost as much as all tokens, so it is the last resort.
const maxMerged = 5000

// selection is the part of a statement behind FROM, with its parameters. The
// first parameter is the tenant.
type selection struct {
	text string
	args []any
}

// arg adds a parameter and returns its name.
func (s *selection) arg(v any) string {
	s.args = append(s.args, v)
	return "$" + strconv.Itoa(len(s.args)+1)
}

// where adds a condition; each %s in it is a parameter.
func (s *selection) where(condition string, args ...any) {
	names := make([]any, len(args))
	for i, a := range args {
		names[i] = s.arg(a)
	}
	s.text += " AND " + fmt.Sprintf(condition, names...)
}

// among adds the condition that a text is one of several. A function of the
// column keeps the order of the list's index.
func (s *selection) among(column string, values []string) {
	s.where("array_position(%s::text[], "+column+") IS NOT NULL", slices.DeleteFunc(slices.Clone(values), func(v string) bool { return !storable(v) }))
}

// page orders the selection newest first and cuts a page out of it.
func (s *selection) page(p store.Page) {
	if p.After != nil {
		s.where("(created_at, id) < (%s, %s)", int64(p.After.CreatedAt), p.After.ID)
	}
	s.text += " ORDER BY created_at DESC, id DESC LIMIT " + s.arg(int64(p.Limit)) + " OFFSET " + s.arg(int64(p.Offset))
}

func (t *tx) Tokens(ctx context.Context, f store.TokenFilter, p store.Page) ([]store.Token, error) {
	if f.Groups.None() || p.After != nil && !storable(p.After.ID) {
		return nil, t.usable()
	}
	groups, err := groupSetOf(f.Groups)
	if err != nil {
		return nil, err
	}
	var refused error // told as it is: the row itself was read
	scan := func(row pgx.Rows) (store.Token, error) {
		r, err := scanToken(row)
		if err == nil {
			refused = p.AdmitToken(r)
			err = refused
		}
		return r, err
	}
	if len(f.IDs) > 0 {
		found, err := t.tokensByID(ctx, tokenColumns, f, p.After, groups, scan)
		return cut(found, p), cmp.Or(refused, err)
	}
	places, err := t.places(ctx, f, groups, p)
	if err != nil {
		return nil, err
	}
	// The rows that the list passes over are never read, only their index.
	// OFFSET 0 keeps the planner from joining in another way.
	found, err := list(ctx, t, "list tokens", `
		SELECT token.* FROM (SELECT created_at AS at, id AS named FROM `+places.text+`) AS page,
		  LATERAL (SELECT `+tokenColumns+` FROM tokens WHERE tenant_id = $1 AND id = named OFFSET 0) AS token
		ORDER BY at DESC, named DESC`, places.args, scan)
	return found, cmp.Or(refused, err)
}

// places selects where the tokens of a page stand.
func (t *tx) places(ctx context.Context, f store.TokenFilter, groups groupSet, p store.Page) (s selection, err error) {
	if len(f.Terms) == 0 && !groups.all && p.Offset <= maxMerged && len(groups.only)*(p.Offset+p.Limit) <= maxMerged {
		return placesByGroup(f.Now, groups, p), nil
	}
	if s, err = t.source(ctx, f, groups); err == nil {
		s.page(p)
	}
	return s, err
}

// placesByGroup takes the head of each group's own index and merges them.
func placesByGroup(now store.Time, groups groupSet, p store.Page) (s selection) {
	s.text = "unnest(" + s.arg(groups.only) + "::uuid[]) AS chosen (group_id), LATERAL (SELECT created_at, id FROM tokens WHERE tenant_id = $1 AND group_id = chosen.group_id"
	s.where("(expires_at IS NULL OR expires_at > %s)", int64(now))
	s.page(store.Page{After: p.After, Limit: p.Offset + p.Limit})
	s.text += ") AS head WHERE true"
	s.page(store.Page{Offset: p.Offset, Limit: p.Limit})
	return s
}

// inGroups is the condition that a group is one of several. PostgreSQL puts the
// subquery into a hash table, so that a row costs the same however many they
// are; IS TRUE keeps it from joining, and from taking the index of groups.
const inGroups = "(group_id IN (SELECT unnest(%s::uuid[]))) IS TRUE"

// inGroups adds the condition unless every group fulfils it.
func (s *selection) inGroups(groups groupSet) {
	if !groups.all {
		s.where(inGroups, groups.only)
	}
}

// source is the index to walk: that of the rarest term, or that of all tokens.
// A condition on a subquery's value keeps the planner from joining.
func (t *tx) source(ctx context.Context, f store.TokenFilter, groups groupSet) (s selection, err error) {
	if len(f.Terms) == 0 {
		s.text = "tokens WHERE tenant_id = $1"
	} else {
		terms, err := t.rarestFirst(ctx, f.Terms)
		if err != nil {
			return s, err
		}
		s.text = "token_terms AS x WHERE tenant_id = $1 AND term = " + s.arg(terms[0])
		for _, term := range terms[1:] {
			s.where("(SELECT true FROM token_terms y WHERE y.tenant_id = $1 AND y.term = %s AND y.created_at = x.created_at AND y.id = x.id)", term)
		}
	}
	s.inGroups(groups)
	s.where("(expires_at IS NULL OR expires_at > %s)", int64(f.Now))
	return s, nil
}

// rarestFirst sorts terms by how many tokens have them, up to some number.
// Passing over the rows of a common term costs hundreds of times as much.
func (t *tx) rarestFirst(ctx context.Context, terms [][]byte) ([][]byte, error) {
	if len(terms) == 1 {
		return terms, nil
	}
	const enough = 1000
	return list(ctx, t, "find the rarest search term", `
		SELECT term FROM (
		  SELECT term, (SELECT count(*) FROM (SELECT 1 FROM token_terms x WHERE x.tenant_id = $1 AND x.term = asked.term LIMIT $3) AS few) AS n
		  FROM unnest($2::bytea[]) AS asked (term)) AS counted
		ORDER BY n`, []any{terms, enough}, func(row pgx.Rows) (term []byte, err error) { return term, row.Scan(&term) })
}

// tokensByID returns what the filter lets through of the tokens that it names,
// in the order in which they are named, from the one behind after.
func (t *tx) tokensByID(ctx context.Context, columns string, f store.TokenFilter, after *store.Position, groups groupSet, scan func(pgx.Rows) (store.Token, error)) ([]store.Token, error) {
	place := make(map[string]int, len(f.IDs))
	var ids []string
	behind := after == nil
	for i, id := range f.IDs {
		if _, repeated := place[id]; repeated {
			continue
		}
		place[id] = i
		if !behind {
			behind = id == after.ID
		} else if storable(id) {
			ids = append(ids, id)
		}
	}
	s := selection{text: "tokens WHERE tenant_id = $1"}
	s.where("id = ANY(%s)", ids)
	s.where("(expires_at IS NULL OR expires_at > %s)", int64(f.Now))
	s.inGroups(groups)
	found, err := list(ctx, t, "read tokens", "SELECT "+columns+" FROM "+s.text, s.args, scan)
	found = slices.DeleteFunc(found, func(r store.Token) bool { return !hasAll(r.Terms, f.Terms) })
	slices.SortFunc(found, func(a, b store.Token) int { return place[a.ID] - place[b.ID] })
	return found, err
}

func hasAll(terms, wanted [][]byte) bool {
	for _, w := range wanted {
		if !slices.ContainsFunc(terms, func(have []byte) bool { return bytes.Equal(have, w) }) {
			return false
		}
	}
	return true
}

func cut(tokens []store.Token, p store.Page) []store.Token {
	if p.Offset >= len(tokens) {
		return nil
	}
	tokens = tokens[p.Offset:]
	return tokens[:min(len(tokens), p.Limit)]
}

func (t *tx) CountTokens(ctx context.Context, f store.TokenFilter) (int64, error) {
	if f.Groups.None() {
		return 0, t.usable()
	}
	groups, err := groupSetOf(f.Groups)
	if err != nil {
		return 0, err
	}
	switch {
	case len(f.IDs) > 0:
		found, err := t.tokensByID(ctx, "id, terms", f, nil, groups, func(row pgx.Rows) (r store.Token, err error) {
			var terms []byte
			if err := row.Scan(&r.ID, &terms); err != nil {
				return r, err
			}
			r.Terms, err = store.DecodeTerms(terms)
			return r, err
		})
		return int64(len(found)), err
	case len(f.Terms) > 0:
		s, err := t.source(ctx, f, groups)
		if err != nil {
			return 0, err
		}
		return t.number(ctx, "count tokens by terms", "SELECT count(*) FROM "+s.text, s.args...)
	}
	return t.countByGroups(ctx, f, groups)
}

// countByGroups adds the counters up and takes off what has expired and not
// been swept: little, because sweeps are frequent.
func (t *tx) countByGroups(ctx context.Context, f store.TokenFilter, groups groupSet) (n int64, err error) {
	if err := t.settleCounters(ctx); err != nil {
		return 0, err
	}
	if groups.all {
		return t.number(ctx, "count tokens", `
			SELECT coalesce((SELECT sum(tokens)::bigint FROM `+t.countsTypes()+` WHERE tenant_id = $1), 0)
			  - (SELECT count(*) FROM tokens WHERE tenant_id = $1 AND expires_at <= $2)`, int64(f.Now))
	}
	return t.number(ctx, "count tokens by groups", `
		SELECT coalesce((SELECT sum(tokens)::bigint FROM token_groups WHERE tenant_id = $1 AND group_id = ANY($3)), 0)
		  - (SELECT count(*) FROM tokens WHERE tenant_id = $1 AND expires_at <= $2 AND `+fmt.Sprintf(inGroups, "$3")+`)`, int64(f.Now), groups.only)
}

// countsTypes is the table by which types are counted: the groups, while a
// server may be connected that counts nothing else.
func (t *tx) countsTypes() string {
	if t.store.counted.Load() {
		return "token_types"
	}
	return "token_groups"
}

// CountTypes takes off what has expired and not been swept, as countByGroups.
func (t *tx) CountTypes(ctx context.Context, now store.Time) (map[string]int64, error) {
	if err := t.settleCounters(ctx); err != nil {
		return nil, err
	}
	types := make(map[string]int64)
	err := t.query(ctx, "count types", `
		SELECT type, sum(tokens)::bigint FROM `+t.countsTypes()+` WHERE tenant_id = $1 GROUP BY type
		UNION ALL
		SELECT type, -count(*) FROM tokens WHERE tenant_id = $1 AND expires_at <= $2 GROUP BY type`, []any{int64(now)}, func(row pgx.Rows) error {
		clear(types)
		for row.Next() {
			var kind string
			var n int64
			if err := row.Scan(&kind, &n); err != nil {
				return err
			}
			types[kind] += n
		}
		return nil
	})
	maps.DeleteFunc(types, func(_ string, n int64) bool { return n <= 0 })
	return types, err
}
