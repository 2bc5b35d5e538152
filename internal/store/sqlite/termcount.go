package sqlite

import (
	"context"
	"database/sql/driver"
	"hash/crc32"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// commonTerm is how many tokens a term has, about, when it gets counters of
// its own. Most terms have one token, as fingerprints do: counting those would
// cost every insert a page for each term, and counting a thousand rows of an
// index is quick.
const commonTerm = 1000

// commonTerms are the terms with counters. A term either has no row in
// token_term_counts, and is counted on its index, or has one for each group
// with tokens that have it. Expired tokens count until they are swept.
type commonTerms struct {
	from int // see Options
	// known spares most terms a statement. It belongs to the writer, and may
	// hold a term whose counters were rolled back or deleted, but misses none.
	known map[tenantTerm]struct{}
}

type tenantTerm struct {
	tenant tenantKey
	term   string
}

func loadCommonTerms(ctx context.Context, c *conn, from int) (*commonTerms, error) {
	k := &commonTerms{from: from, known: make(map[tenantTerm]struct{})}
	return k, c.query(ctx, "SELECT tenant_id, term FROM token_term_counts", nil, func(row []driver.Value) (bool, error) {
		k.known[tenantTerm{tenantKey(blob(row[0])), string(blob(row[1]))}] = struct{}{}
		return true, nil
	})
}

// termKey is a term in a group.
type termKey struct {
	term  string
	group store.GroupKey
}

// countTerm notes that a token has come to a term, or has gone.
func (t *tx) countTerm(term []byte, group store.GroupKey, id string, n int64) {
	if _, common := t.common.known[tenantTerm{t.tenant, string(term)}]; common {
		if t.terms == nil {
			t.terms = make(map[termKey]int64)
		}
		t.terms[termKey{string(term), group}] += n
	}
	// Only some inserts ask whether the term has become common: asking costs
	// as much as counting that far.
	if n > 0 && int(crc32.ChecksumIEEE([]byte(id)))%(t.common.from/16+1) == 0 {
		if t.maybeCommon == nil {
			t.maybeCommon = make(map[string]bool)
		}
		t.maybeCommon[string(term)] = true
	}
}

func (t *tx) flushTerms() error {
	for term := range t.maybeCommon {
		begun, err := t.beginCounting([]byte(term))
		if err != nil {
			return err
		}
		t.maybeCommon[term] = begun
	}
	for key, n := range t.terms {
		if n == 0 || t.maybeCommon[key.term] {
			continue // nothing has changed, or it has just been counted
		}
		if _, err := t.exec(`
			INSERT INTO token_term_counts (tenant_id, term, group_id, tokens) SELECT ?1, ?2, ?3, ?4
			WHERE EXISTS (SELECT 1 FROM token_term_counts WHERE tenant_id = ?1 AND term = ?2)
			ON CONFLICT DO UPDATE SET tokens = tokens + excluded.tokens`, []byte(key.term), key.group[:], n); err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		// A term has as many counters as it has groups now, and not as it ever had.
		if _, err := t.exec("DELETE FROM token_term_counts WHERE tenant_id = ? AND term = ? AND group_id = ? AND tokens = 0", []byte(key.term), key.group[:]); err != nil {
			return err
		}
	}
	t.terms, t.maybeCommon = nil, nil
	return nil
}

// beginCounting makes the counters of a term that has become common, and
// reports whether it did.
func (t *tx) beginCounting(term []byte) (bool, error) {
	ctx := context.Background()
	counted, err := t.number(ctx, "SELECT EXISTS (SELECT 1 FROM token_term_counts WHERE tenant_id = ? AND term = ?)", term)
	if err != nil || counted != 0 {
		return false, err
	}
	if n, err := t.countUpTo(ctx, term, t.common.from); err != nil || n < int64(t.common.from) {
		return false, err
	}
	t.common.known[tenantTerm{t.tenant, string(term)}] = struct{}{}
	_, err = t.exec(`
		INSERT INTO token_term_counts (tenant_id, term, group_id, tokens)
		SELECT tenant_id, term, group_id, count(*) FROM token_terms WHERE tenant_id = ? AND term = ? GROUP BY group_id`, term)
	return err == nil, err
}

func (t *tx) countUpTo(ctx context.Context, term []byte, most int) (int64, error) {
	return t.number(ctx, "SELECT count(*) FROM (SELECT 1 FROM token_terms WHERE tenant_id = ? AND term = ? LIMIT ?)", term, int64(most))
}

// termSize is how many tokens a term has, or that they are many: enough to
// tell which of two is the rarer.
func (t *tx) termSize(ctx context.Context, term []byte) (int64, error) {
	n, err := t.number(ctx, "SELECT sum(tokens) FROM token_term_counts WHERE tenant_id = ? AND term = ?", term)
	if err != nil || n > 0 {
		return n, err
	}
	return t.countUpTo(ctx, term, commonTerm)
}

// countCommon counts the tokens of a term by its counters; false when it has
// none.
func (t *tx) countCommon(ctx context.Context, term []byte, groups groupSet, now store.Time) (n int64, counted bool, err error) {
	if err := t.flushTerms(); err != nil {
		return 0, false, err
	}
	err = t.query(ctx, "SELECT group_id, tokens FROM token_term_counts WHERE tenant_id = ? AND term = ?", []driver.Value{term},
		func(row []driver.Value) (bool, error) {
			counted = true
			if groups.has(row[0]) {
				n += whole(row[1])
			}
			return true, nil
		})
	if err != nil || !counted {
		return 0, false, err
	}
	// What has expired and not been swept is little, because sweeps are frequent.
	err = t.query(ctx, `
		SELECT x.group_id FROM tokens AS x INDEXED BY tokens_expiring CROSS JOIN token_terms AS y
		WHERE x.tenant_id = ?1 AND x.expires_at <= ?3 AND y.tenant_id = ?1 AND y.term = ?2 AND y.created_at = x.created_at AND y.id = x.id`,
		[]driver.Value{term, int64(now)},
		func(row []driver.Value) (bool, error) {
			if groups.has(row[0]) {
				n--
			}
			return true, nil
		})
	return n, true, err
}
