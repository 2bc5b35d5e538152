package sqlite

import (
	"database/sql/driver"
	"runtime"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

var (
	insertTokens = manyRows("INSERT INTO tokens (tenant_id, "+tokenColumns+")", 17)
	insertTerms  = manyRows("INSERT INTO token_terms (tenant_id, term, created_at, id, group_id, expires_at)", 6)
)

// tokenInserts are the rows of new tokens that are not written yet: a
// thousand of them take few statements together. They are written before the
// next statement of their transaction, and at its end.
type tokenInserts struct {
	tokens [][]driver.Value
	terms  [][]driver.Value
}

func (i *tokenInserts) addTerms(tenant tenantKey, r store.Token, group store.GroupKey) {
	for _, term := range r.Terms {
		i.terms = append(i.terms, []driver.Value{tenant[:], term, int64(r.CreatedAt), r.ID, group[:], orNull(r.Expiry.At)})
	}
}

// flushTokens writes the tokens that wait. When an id is taken, nothing of the
// transaction is kept.
func (t *tx) flushTokens() error {
	waiting := t.inserts
	t.inserts = tokenInserts{}
	if err := t.insertMany(insertTokens, waiting.tokens); err != nil {
		return t.fail(err)
	}
	return t.fail(t.insertMany(insertTerms, waiting.terms))
}

// insertMany inserts rows with as few statements as there are sizes for. Every
// row counts as a statement in what the transaction costs. Between two of them,
// what waits for the processor has its turn: others wait for this transaction,
// and more for the processor.
func (t *tx) insertMany(statements map[int]string, rows [][]driver.Value) error {
	var args []driver.Value
	for len(rows) > 0 {
		n := chunkOf(len(rows))
		args = args[:0]
		for _, row := range rows[:n] {
			args = append(args, row...)
		}
		if _, err := t.conn.exec(statements[n], args...); err != nil {
			return err
		}
		t.conn.cost += int64(n - 1)
		if rows = rows[n:]; len(rows) > 0 {
			runtime.Gosched()
		}
	}
	return nil
}

// chunkOf returns how many of so many rows the next statement inserts.
func chunkOf(rows int) int {
	for _, n := range insertRows {
		if n <= rows {
			return n
		}
	}
	return rows
}
