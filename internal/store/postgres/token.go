package postgres

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const tokenColumns = "id, group_id, type, containers, data, details, short_lived, terms, expires_at, expires_offset, " +
	"created_by, created_at, modified_by, modified_at, version, derived_at"

func groupColumn(k store.GroupKey) pgtype.UUID { return pgtype.UUID{Bytes: k, Valid: true} }

// groupSet is the groups of a filter as statements take them. The zero value
// has none.
type groupSet struct {
	all  bool
	only []pgtype.UUID
}

func groupSetOf(groups store.Groups) (groupSet, error) {
	keys, err := groups.Keys()
	set := groupSet{all: groups.All(), only: make([]pgtype.UUID, 0, len(keys))}
	for _, key := range keys {
		set.only = append(set.only, groupColumn(key))
	}
	return set, err
}

func scanToken(row pgx.Rows) (r store.Token, err error) {
	var (
		group      pgtype.UUID
		containers string
		terms      []byte
		expires    pgtype.Int8
		derivedAt  int64
	)
	if err := row.Scan(&r.ID, &group, &r.Type, &containers, &r.Data, &r.Details, &r.ShortLived, &terms, &expires, &r.Expiry.OffsetSeconds,
		&r.CreatedBy, &r.CreatedAt, &r.ModifiedBy, &r.ModifiedAt, &r.Version, &derivedAt); err != nil {
		return r, err
	}
	r.Expiry.At, r.Derived = store.Time(expires.Int64), derivedAt == r.Version
	if r.Containers, err = store.DecodeStrings(containers); err != nil {
		return r, err
	}
	r.Terms, err = store.DecodeTerms(terms)
	return r, err
}

// rowOf checks a token and computes what its row has beside its own parts.
func rowOf(r store.Token) (tokenRow, error) {
	if len(r.Containers) == 0 {
		return tokenRow{}, errors.New("postgres: a token must have a container")
	}
	terms, err := store.EncodeTerms(r.Terms)
	if err != nil {
		return tokenRow{}, err
	}
	group, containers := store.GroupOf(r.Type, r.Containers)
	if unstorable(r.ID, r.Type, containers, r.CreatedBy, r.ModifiedBy) {
		return tokenRow{}, errUnstorable
	}
	return tokenRow{Token: r, group: group, containers: containers, terms: terms}, nil
}

func (t *tx) InsertToken(_ context.Context, r store.Token) error {
	if err := t.writes(); err != nil {
		return err
	}
	row, err := rowOf(r)
	if err != nil {
		return err
	}
	t.rows.tokens = append(t.rows.tokens, row)
	t.rows.bytes += len(r.Data) + len(r.Details) + len(r.ShortLived) + 500
	t.rows.countToken(row.group, r.Type, row.containers, 1)
	return nil
}

func (t *tx) Token(ctx context.Context, id string) (r store.Token, err error) {
	err = t.one(ctx, "read token", "SELECT "+tokenColumns+" FROM tokens WHERE tenant_id = $1 AND id = $2", []any{id},
		func(row pgx.Rows) (err error) { r, err = scanToken(row); return err })
	if err == nil && t.begin != beginView {
		if t.seen == nil {
			t.seen = make(map[string]store.Token)
		}
		t.seen[id] = r
	}
	return r, err
}

func (t *tx) TokenType(ctx context.Context, id string) (kind string, err error) {
	err = t.one(ctx, "read token type", "SELECT type FROM tokens WHERE tenant_id = $1 AND id = $2", []any{id},
		func(row pgx.Rows) error { return row.Scan(&kind) })
	return kind, err
}

// old returns a token that is about to change.
func (t *tx) old(ctx context.Context, id string) (store.Token, error) {
	if err := t.writes(); err != nil {
		return store.Token{}, err
	}
	r, ok := t.seen[id]
	if !ok {
		var err error
		if r, err = t.Token(ctx, id); err != nil {
			return r, err
		}
	}
	delete(t.seen, id)
	return r, nil
}

// ReplaceToken changes the row as the snapshot has it: when another
// transaction was faster, the statement fails and the function runs again.
func (t *tx) ReplaceToken(ctx context.Context, r store.Token) error {
	old, err := t.old(ctx, r.ID)
	if err != nil {
		return err
	}
	if r.Version != old.Version+1 {
		return store.ErrConflict
	}
	r.CreatedAt, r.CreatedBy, r.Type = old.CreatedAt, old.CreatedBy, old.Type
	row, err := rowOf(r)
	if err != nil {
		return err
	}
	if err := t.later(step{doing: "replace token", text: `
		UPDATE tokens SET group_id = $3, containers = $4, data = $5, details = $6, short_lived = $7, terms = $8, expires_at = $9,
		  expires_offset = $10, modified_by = $11, modified_at = $12, version = $13, derived_at = $14
		WHERE tenant_id = $1 AND id = $2`,
		args: []any{r.ID, groupColumn(row.group), row.containers, orEmpty(r.Data), r.Details, r.ShortLived, row.terms,
			orNull(r.Expiry.At), int64(r.Expiry.OffsetSeconds), r.ModifiedBy, int64(r.ModifiedAt), r.Version, r.DerivedAt()}}); err != nil {
		return err
	}
	before, beforeContainers := store.GroupOf(old.Type, old.Containers)
	if before != row.group {
		t.rows.countToken(before, old.Type, beforeContainers, -1)
		t.rows.countToken(row.group, r.Type, row.containers, 1)
	}
	if before == row.group && old.Expiry.At == r.Expiry.At && slices.EqualFunc(old.Terms, r.Terms, bytes.Equal) {
		return nil // its index rows stay as they are
	}
	if err := t.deleteTerms(old); err != nil {
		return err
	}
	if terms, some := insertTerms([]tokenRow{row}); some {
		return t.later(terms)
	}
	return nil
}

func (t *tx) DeleteToken(ctx context.Context, id string) error {
	old, err := t.old(ctx, id)
	if err != nil {
		return err
	}
	if err := t.later(step{doing: "delete token", text: "DELETE FROM tokens WHERE tenant_id = $1 AND id = $2", args: []any{id}}); err != nil {
		return err
	}
	group, containers := store.GroupOf(old.Type, old.Containers)
	t.rows.countToken(group, old.Type, containers, -1)
	return t.deleteTerms(old)
}

// deleteTerms does not mind a term that is missing already: what is damaged
// must still be possible to delete.
func (t *tx) deleteTerms(tokens ...store.Token) error {
	var terms [][]byte
	var made []int64
	var ids []string
	for _, r := range tokens {
		for _, term := range r.Terms {
			terms, made, ids = append(terms, term), append(made, int64(r.CreatedAt)), append(ids, r.ID)
		}
	}
	if len(terms) == 0 {
		return nil
	}
	return t.later(step{doing: "delete search terms", text: `
		DELETE FROM token_terms x USING unnest($2::bytea[], $3::bigint[], $4::text[]) AS gone (term, created_at, id)
		WHERE x.tenant_id = $1 AND x.term = gone.term AND x.created_at = gone.created_at AND x.id = gone.id`,
		args: []any{terms, made, ids}})
}

func (t *tx) TokenGroups(ctx context.Context) ([]store.TokenGroup, error) {
	if err := t.settleCounters(ctx); err != nil {
		return nil, err
	}
	return list(ctx, t, "read token groups",
		"SELECT group_id, min(type), min(containers) FROM token_groups WHERE tenant_id = $1 GROUP BY group_id HAVING sum(tokens) > 0", nil,
		func(row pgx.Rows) (g store.TokenGroup, err error) {
			var id pgtype.UUID
			var containers string
			if err := row.Scan(&id, &g.Type, &containers); err != nil {
				return g, err
			}
			g.ID = hex.EncodeToString(id.Bytes[:])
			g.Containers, err = store.DecodeStrings(containers)
			return g, err
		})
}
