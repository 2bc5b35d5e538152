package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const tokenColumns = "id, group_id, type, containers, data, details, short_lived, terms, expires_at, expires_offset, " +
	"created_by, created_at, modified_by, modified_at, version, derived_at"

// maxMerged bounds how many index rows a list by groups merges from the
// indexes of the groups, the head of each. Beyond that it passes over the
// tenant's tokens in order and leaves out the other groups: then a page of a
// few rare groups would cost as much as all tokens, so it is the last resort.
const maxMerged = 5000

type groupDelta struct {
	kind, containers string
	tokens           int64
}

// groupSet is the groups of a filter as rows are compared with them. The zero
// value has none.
type groupSet struct {
	all  bool
	only map[store.GroupKey]bool
}

func groupSetOf(groups store.Groups) (groupSet, error) {
	keys, err := groups.Keys()
	set := groupSet{all: groups.All(), only: make(map[store.GroupKey]bool, len(keys))}
	for _, key := range keys {
		set.only[key] = true
	}
	return set, err
}

// has takes a group as a row holds it.
func (s groupSet) has(group driver.Value) bool { return s.all || s.only[store.GroupKey(blob(group))] }

func scanToken(row []driver.Value) (r store.Token, err error) {
	r = store.Token{
		ID: text(row[0]), Type: text(row[2]), Data: blob(row[4]), Details: blob(row[5]), ShortLived: blob(row[6]),
		Expiry:    store.Expiry{At: when(row[8]), OffsetSeconds: int(whole(row[9]))},
		CreatedBy: text(row[10]), CreatedAt: when(row[11]), ModifiedBy: text(row[12]), ModifiedAt: when(row[13]), Version: whole(row[14]),
		Derived: whole(row[15]) == whole(row[14]),
	}
	if r.Containers, err = store.DecodeStrings(text(row[3])); err != nil {
		return r, err
	}
	r.Terms, err = store.DecodeTerms(blob(row[7]))
	return r, err
}

func (t *tx) InsertToken(_ context.Context, r store.Token) error {
	if err := t.grows(); err != nil {
		return err
	}
	if !t.writable && !t.ended {
		return store.ErrReadOnly
	}
	if err := t.usable(); err != nil {
		return err
	}
	if len(r.Containers) == 0 {
		return errors.New("sqlite: a token must have a container")
	}
	group, containers := store.GroupOf(r.Type, r.Containers)
	terms, err := store.EncodeTerms(r.Terms)
	if err != nil {
		return err
	}
	t.needsTenant = true
	t.inserts.tokens = append(t.inserts.tokens, []driver.Value{
		t.tenant[:], r.ID, group[:], r.Type, containers, r.Data, orNullBytes(r.Details), orNullBytes(r.ShortLived), orNullBytes(terms),
		orNull(r.Expiry.At), int64(r.Expiry.OffsetSeconds),
		r.CreatedBy, int64(r.CreatedAt), r.ModifiedBy, int64(r.ModifiedAt), r.Version, r.DerivedAt(),
	})
	t.inserts.addTerms(t.tenant, r, group)
	t.countToken(group, r.Type, containers, 1)
	t.countTerms(r, group)
	return nil
}

// countTerms notes that a token has come to its terms.
func (t *tx) countTerms(r store.Token, group store.GroupKey) {
	for _, term := range r.Terms {
		t.countTerm(term, group, r.ID, 1)
	}
}

// deleteTerms does not mind a term that is missing already: what is damaged
// must still be possible to delete.
func (t *tx) deleteTerms(r store.Token, group store.GroupKey) error {
	for _, term := range r.Terms {
		n, err := t.exec("DELETE FROM token_terms WHERE tenant_id = ? AND term = ? AND created_at = ? AND id = ?",
			term, int64(r.CreatedAt), r.ID)
		if err != nil {
			return t.fail(err)
		}
		t.countTerm(term, group, r.ID, -n)
	}
	return nil
}

func (t *tx) Token(ctx context.Context, id string) (r store.Token, err error) {
	return t.recall(id, func() (r store.Token, err error) {
		err = t.one(ctx, "SELECT "+tokenColumns+" FROM tokens WHERE tenant_id = ? AND id = ?", []driver.Value{id},
			func(row []driver.Value) (err error) { r, err = scanToken(row); return err })
		return r, err
	})
}

func (t *tx) TokenType(ctx context.Context, id string) (kind string, err error) {
	// The type stands before what is sealed, which may lie on many pages.
	err = t.one(ctx, "SELECT type FROM tokens WHERE tenant_id = ? AND id = ?", []driver.Value{id},
		func(row []driver.Value) error { kind = text(row[0]); return nil })
	return kind, err
}

func (t *tx) ReplaceToken(ctx context.Context, r store.Token) error {
	if err := t.grows(); err != nil {
		return err
	}
	if !t.writable {
		return store.ErrReadOnly
	}
	old, err := t.Token(ctx, r.ID)
	if err != nil {
		return err
	}
	if r.Version != old.Version+1 {
		return store.ErrConflict
	}
	r.CreatedAt, r.CreatedBy, r.Type = old.CreatedAt, old.CreatedBy, old.Type
	if len(r.Containers) == 0 {
		return errors.New("sqlite: a token must have a container")
	}
	terms, err := store.EncodeTerms(r.Terms)
	if err != nil {
		return err
	}
	group, containers := store.GroupOf(r.Type, r.Containers)
	if err := t.changeOne(store.ErrConflict, `
		UPDATE tokens SET group_id = ?3, containers = ?4, data = ?5, details = ?6, short_lived = ?7, terms = ?8, expires_at = ?9,
		  expires_offset = ?10, modified_by = ?11, modified_at = ?12, version = ?13, derived_at = ?14
		WHERE tenant_id = ?1 AND id = ?2`,
		r.ID, group[:], containers, r.Data, orNullBytes(r.Details), orNullBytes(r.ShortLived), orNullBytes(terms),
		orNull(r.Expiry.At), int64(r.Expiry.OffsetSeconds), r.ModifiedBy, int64(r.ModifiedAt), r.Version, r.DerivedAt()); err != nil {
		return err
	}
	before, beforeContainers := store.GroupOf(old.Type, old.Containers)
	if before != group {
		t.countToken(before, old.Type, beforeContainers, -1)
		t.countToken(group, r.Type, containers, 1)
	}
	if before == group && old.Expiry.At == r.Expiry.At && slices.EqualFunc(old.Terms, r.Terms, bytes.Equal) {
		return nil // its index rows stay as they are
	}
	if err := t.deleteTerms(old, before); err != nil {
		return err
	}
	t.inserts.addTerms(t.tenant, r, group)
	t.countTerms(r, group)
	return nil
}

func (t *tx) DeleteToken(ctx context.Context, id string) error {
	if !t.writable {
		return store.ErrReadOnly
	}
	old, err := t.Token(ctx, id)
	if err != nil {
		return err
	}
	if err := t.changeOne(store.ErrNotFound, "DELETE FROM tokens WHERE tenant_id = ? AND id = ?", id); err != nil {
		return err
	}
	group, containers := store.GroupOf(old.Type, old.Containers)
	t.countToken(group, old.Type, containers, -1)
	return t.deleteTerms(old, group)
}

func (t *tx) countToken(group store.GroupKey, kind, containers string, n int64) {
	if t.groups == nil {
		t.groups = make(map[store.GroupKey]*groupDelta)
	}
	d := t.groups[group]
	if d == nil {
		d = &groupDelta{kind: kind, containers: containers}
		t.groups[group] = d
	}
	d.tokens += n
}

// flushGroups writes the changes of the counters. A group comes with its first
// token and goes with its last.
func (t *tx) flushGroups() error {
	if len(t.groups) == 0 {
		return nil
	}
	// The groups that grow come first: before is what was there before any
	// group came or went.
	var before *containerCounts
	types := make(map[string]int64)
	keys := slices.SortedFunc(maps.Keys(t.groups), func(a, b store.GroupKey) int { return cmp.Compare(t.groups[b].tokens, t.groups[a].tokens) })
	for _, group := range keys {
		d := t.groups[group]
		if d.tokens == 0 {
			continue
		}
		types[d.kind] += d.tokens
		left := int64(0)
		err := t.one(context.Background(), "UPDATE token_groups SET tokens = tokens + ?3 WHERE tenant_id = ?1 AND group_id = ?2 RETURNING tokens",
			[]driver.Value{group[:], d.tokens}, func(row []driver.Value) error { left = whole(row[0]); return nil })
		switch {
		case errors.Is(err, store.ErrNotFound):
			if before == nil {
				if before, err = t.containerCounts(); err != nil {
					return err
				}
			}
			err = t.addGroup(group, d)
		case err == nil && left == 0:
			err = t.removeGroup(group, d)
		}
		if err != nil {
			return err
		}
	}
	t.groups = nil
	for kind, n := range types {
		if n == 0 {
			continue
		}
		if _, err := t.exec("INSERT INTO token_types (tenant_id, type, tokens) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET tokens = tokens + excluded.tokens", kind, n); err != nil {
			return err
		}
	}
	if before == nil {
		return nil
	}
	return t.checkContainers(*before)
}

// containerCounts is the row of a tenant in the table of that name.
type containerCounts struct{ containers, groups int64 }

func (t *tx) containerCounts() (*containerCounts, error) {
	var n containerCounts
	err := t.one(context.Background(), "SELECT containers, groups FROM container_counts WHERE tenant_id = ?", nil, func(row []driver.Value) error {
		n = containerCounts{whole(row[0]), whole(row[1])}
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	return &n, err
}

// checkContainers refuses what makes a tenant exceed its bounds. A tenant that
// exceeds them already goes on working.
func (t *tx) checkContainers(before containerCounts) error {
	if t.maxContainers == 0 {
		return nil
	}
	n, err := t.containerCounts()
	if err != nil {
		return err
	}
	if n.containers > max(before.containers, t.maxContainers) || n.groups > max(before.groups, store.MaxGroups(t.maxContainers)) {
		return t.fail(fmt.Errorf("sqlite: count containers: %w", store.ErrContainers))
	}
	return nil
}

func (t *tx) addGroup(group store.GroupKey, d *groupDelta) error {
	if _, err := t.exec("INSERT INTO token_groups (tenant_id, group_id, type, containers, tokens) VALUES (?, ?, ?, ?, ?)", group[:], d.kind, d.containers, d.tokens); err != nil {
		return err
	}
	return t.changeContainers(group, d, 1, "INSERT INTO token_containers (tenant_id, container, group_id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING")
}

func (t *tx) removeGroup(group store.GroupKey, d *groupDelta) error {
	if _, err := t.exec("DELETE FROM token_groups WHERE tenant_id = ? AND group_id = ?", group[:]); err != nil {
		return err
	}
	return t.changeContainers(group, d, -1, "DELETE FROM token_containers WHERE tenant_id = ? AND container = ? AND group_id = ?")
}

// changeContainers makes the containers of a group agree with it, and counts
// those that no other group has.
func (t *tx) changeContainers(group store.GroupKey, d *groupDelta, n int64, change string) error {
	containers, err := store.DecodeStrings(d.containers)
	if err != nil {
		return err
	}
	own := int64(0)
	for _, container := range containers {
		changed, err := t.exec(change, container, group[:])
		if err != nil {
			return err
		}
		others, err := t.number(context.Background(), "SELECT EXISTS (SELECT 1 FROM token_containers WHERE tenant_id = ?1 AND container = ?2 AND group_id <> ?3)", container, group[:])
		if err != nil {
			return err
		}
		if changed > 0 && others == 0 {
			own += n
		}
	}
	_, err = t.exec(`
		INSERT INTO container_counts (tenant_id, containers, groups) VALUES (?, ?, ?)
		ON CONFLICT DO UPDATE SET containers = containers + excluded.containers, groups = groups + excluded.groups`, own, n)
	return err
}

func (t *tx) TokenGroups(ctx context.Context) ([]store.TokenGroup, error) {
	if err := t.flushGroups(); err != nil {
		return nil, err
	}
	return t.groupsOf(func() (list []store.TokenGroup, err error) {
		err = t.query(ctx, "SELECT group_id, type, containers FROM token_groups WHERE tenant_id = ?", nil,
			func(row []driver.Value) (bool, error) {
				containers, err := store.DecodeStrings(text(row[2]))
				list = append(list, store.TokenGroup{ID: hex.EncodeToString(blob(row[0])), Type: text(row[1]), Containers: containers})
				return true, err
			})
		return list, err
	})
}

func (t *tx) Tokens(ctx context.Context, f store.TokenFilter, p store.Page) ([]store.Token, error) {
	places, err := t.places(ctx, f, p)
	if err != nil {
		return nil, err
	}
	list := make([]store.Token, 0, len(places))
	for _, place := range places {
		r, err := t.Token(ctx, place.ID)
		if err != nil {
			return nil, err
		}
		if err := p.AdmitToken(r); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// places returns where the tokens of a page stand, from indexes alone: a row
// that the list passes over is never read.
func (t *tx) places(ctx context.Context, f store.TokenFilter, p store.Page) ([]store.Position, error) {
	if f.Groups.None() {
		return nil, nil
	}
	if len(f.IDs) > 0 {
		return t.placesByID(ctx, f, p)
	}
	groups, err := groupSetOf(f.Groups)
	if err != nil {
		return nil, err
	}
	if len(f.Terms) == 0 && !groups.all && p.Offset <= maxMerged && len(groups.only)*(p.Offset+p.Limit) <= maxMerged {
		return t.placesByGroup(ctx, groups, f.Now, p)
	}
	from, args, err := t.source(ctx, f)
	if err != nil {
		return nil, err
	}
	return t.scanPlaces(ctx, from, args, groups, f.Now, p)
}

// source is the index to walk: that of the rarest term, or that of all tokens.
func (t *tx) source(ctx context.Context, f store.TokenFilter) (from string, args []driver.Value, err error) {
	if len(f.Terms) == 0 {
		return "tokens INDEXED BY tokens_by_time WHERE tenant_id = ?", nil, nil
	}
	terms := slices.Clone(f.Terms)
	if len(terms) > 1 {
		// The rarer term drives: passing over the common one's rows costs
		// hundreds of times as much.
		sizes := make(map[string]int64, len(terms))
		for _, term := range terms {
			n, err := t.termSize(ctx, term)
			if err != nil {
				return "", nil, err
			}
			sizes[string(term)] = n
		}
		slices.SortStableFunc(terms, func(a, b []byte) int { return cmp.Compare(sizes[string(a)], sizes[string(b)]) })
	}
	from = "token_terms AS x WHERE tenant_id = ?1 AND term = ?2"
	args = []driver.Value{terms[0]}
	for i, term := range terms[1:] {
		from += fmt.Sprintf(" AND EXISTS (SELECT 1 FROM token_terms y WHERE y.tenant_id = ?1 AND y.term = ?%d AND y.created_at = x.created_at AND y.id = x.id)", i+3)
		args = append(args, term)
	}
	return from, args, nil
}

// scanPlaces walks an index from newest to oldest and keeps what the filter lets through.
func (t *tx) scanPlaces(ctx context.Context, from string, args []driver.Value, groups groupSet, now store.Time, p store.Page) ([]store.Position, error) {
	after, afterArgs := behind(p.After)
	var places []store.Position
	skip := p.Offset
	err := t.query(ctx, "SELECT created_at, id, group_id, expires_at FROM "+from+after+" ORDER BY created_at DESC, id DESC", append(args, afterArgs...),
		func(row []driver.Value) (bool, error) {
			if len(places) >= p.Limit {
				return false, nil
			}
			if !passes(row[2], row[3], groups, now) {
				return true, nil
			}
			if skip > 0 {
				skip--
				return true, nil
			}
			places = append(places, store.Position{CreatedAt: when(row[0]), ID: text(row[1])})
			return len(places) < p.Limit, nil
		})
	return places, err
}

func passes(group, expires driver.Value, groups groupSet, now store.Time) bool {
	if expires != nil && when(expires) <= now {
		return false
	}
	return groups.has(group)
}

// placesByGroup takes the head of each group's own index and merges them.
func (t *tx) placesByGroup(ctx context.Context, groups groupSet, now store.Time, p store.Page) ([]store.Position, error) {
	var merged []store.Position
	for group := range groups.only {
		head, err := t.scanPlaces(ctx, "tokens INDEXED BY tokens_by_group WHERE tenant_id = ? AND group_id = ?", []driver.Value{group[:]},
			groups, now, store.Page{After: p.After, Limit: p.Offset + p.Limit})
		if err != nil {
			return nil, err
		}
		merged = append(merged, head...)
	}
	slices.SortFunc(merged, newestFirst)
	return cut(merged, p), nil
}

// placesByID keeps the order in which the ids were given.
func (t *tx) placesByID(ctx context.Context, f store.TokenFilter, p store.Page) ([]store.Position, error) {
	groups, err := groupSetOf(f.Groups)
	if err != nil {
		return nil, err
	}
	var places []store.Position
	seen := make(map[string]bool, len(f.IDs))
	behind := p.After == nil
	for _, id := range f.IDs {
		if seen[id] {
			continue
		}
		seen[id] = true
		if !behind {
			behind = id == p.After.ID
			continue
		}
		err := t.one(ctx, "SELECT created_at, group_id, expires_at, terms FROM tokens WHERE tenant_id = ? AND id = ?", []driver.Value{id},
			func(row []driver.Value) error {
				terms, err := store.DecodeTerms(blob(row[3]))
				if err == nil && passes(row[1], row[2], groups, f.Now) && hasAll(terms, f.Terms) {
					places = append(places, store.Position{CreatedAt: when(row[0]), ID: id})
				}
				return err
			})
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
	}
	return cut(places, p), nil
}

func hasAll(terms, wanted [][]byte) bool {
	for _, w := range wanted {
		if !slices.ContainsFunc(terms, func(have []byte) bool { return bytes.Equal(have, w) }) {
			return false
		}
	}
	return true
}

func newestFirst(a, b store.Position) int {
	if a.CreatedAt != b.CreatedAt {
		if a.CreatedAt > b.CreatedAt {
			return -1
		}
		return 1
	}
	return -bytes.Compare([]byte(a.ID), []byte(b.ID))
}

func cut(places []store.Position, p store.Page) []store.Position {
	if p.Offset >= len(places) {
		return nil
	}
	places = places[p.Offset:]
	return places[:min(len(places), p.Limit)]
}

func (t *tx) CountTokens(ctx context.Context, f store.TokenFilter) (int64, error) {
	switch {
	case f.Groups.None():
		return 0, nil
	case len(f.IDs) > 0:
		places, err := t.placesByID(ctx, f, store.Page{Limit: len(f.IDs)})
		return int64(len(places)), err
	case len(f.Terms) > 0:
		return t.countByTerms(ctx, f)
	}
	return t.countByGroups(ctx, f)
}

// countByGroups adds the counters up and takes off what has expired and not
// been swept: little, because sweeps are frequent.
func (t *tx) countByGroups(ctx context.Context, f store.TokenFilter) (n int64, err error) {
	if err := t.flushGroups(); err != nil {
		return 0, err
	}
	groups, err := groupSetOf(f.Groups)
	if err != nil {
		return 0, err
	}
	if groups.all {
		n, err = t.number(ctx, "SELECT sum(tokens) FROM token_types WHERE tenant_id = ?")
	} else {
		n, err = t.sumGroups(ctx, groups)
	}
	if err != nil {
		return 0, err
	}
	err = t.query(ctx, "SELECT group_id FROM tokens INDEXED BY tokens_expiring WHERE tenant_id = ? AND expires_at <= ?", []driver.Value{int64(f.Now)},
		func(row []driver.Value) (bool, error) {
			if groups.has(row[0]) {
				n--
			}
			return true, nil
		})
	return n, err
}

// passedOver is how many groups are passed over in the time that it takes to
// look one up.
const passedOver = 4

// sumGroups adds up the counters of groups: one by one, or all of the tenant's
// when these are most of them.
func (t *tx) sumGroups(ctx context.Context, groups groupSet) (n int64, err error) {
	all, err := t.containerCounts()
	if err != nil {
		return 0, err
	}
	if int64(len(groups.only))*passedOver > all.groups {
		err = t.query(ctx, "SELECT group_id, tokens FROM token_groups WHERE tenant_id = ?", nil, func(row []driver.Value) (bool, error) {
			if groups.has(row[0]) {
				n += whole(row[1])
			}
			return true, nil
		})
		return n, err
	}
	for group := range groups.only {
		tokens, err := t.number(ctx, "SELECT tokens FROM token_groups WHERE tenant_id = ? AND group_id = ?", group[:])
		if err != nil {
			return 0, err
		}
		n += tokens
	}
	return n, nil
}

// CountTypes takes off what has expired and not been swept, as countByGroups.
func (t *tx) CountTypes(ctx context.Context, now store.Time) (map[string]int64, error) {
	if err := t.flushGroups(); err != nil {
		return nil, err
	}
	types := make(map[string]int64)
	err := t.query(ctx, "SELECT type, tokens FROM token_types WHERE tenant_id = ?", nil, func(row []driver.Value) (bool, error) {
		types[text(row[0])] = whole(row[1])
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	err = t.query(ctx, "SELECT type FROM tokens INDEXED BY tokens_expiring WHERE tenant_id = ? AND expires_at <= ?", []driver.Value{int64(now)},
		func(row []driver.Value) (bool, error) {
			types[text(row[0])]--
			return true, nil
		})
	maps.DeleteFunc(types, func(_ string, n int64) bool { return n <= 0 })
	return types, err
}

func (t *tx) countByTerms(ctx context.Context, f store.TokenFilter) (n int64, err error) {
	groups, err := groupSetOf(f.Groups)
	if err != nil {
		return 0, err
	}
	if len(f.Terms) == 1 {
		if n, counted, err := t.countCommon(ctx, f.Terms[0], groups, f.Now); err != nil || counted {
			return n, err
		}
	}
	from, args, err := t.source(ctx, f)
	if err != nil {
		return 0, err
	}
	if groups.all {
		return t.number(ctx, fmt.Sprintf("SELECT count(*) FROM %s AND (expires_at IS NULL OR expires_at > ?%d)", from, len(args)+2), append(args, int64(f.Now))...)
	}
	err = t.query(ctx, "SELECT group_id, expires_at FROM "+from, args, func(row []driver.Value) (bool, error) {
		if passes(row[0], row[1], groups, f.Now) {
			n++
		}
		return true, nil
	})
	return n, err
}
