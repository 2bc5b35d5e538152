package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"
)

// ask returns one column of a statement's rows as text. What the statement is
// given does not matter.
func (c *conn) ask(query string, column int) (answers []string, err error) {
	err = c.query(context.Background(), query, make([]driver.Value, 40), func(row []driver.Value) (bool, error) {
		answers = append(answers, fmt.Sprint(row[column]))
		return true, nil
	})
	return answers, err
}

// connections returns every connection of an idle store by its name, and a
// function that gives them back.
func (s *Store) connections() (map[string]*conn, func()) {
	all := map[string]*conn{"writer": s.writer.conn, "checkpointer": s.checkpointer.conn}
	s.checkpointer.mu.Lock()
	taken := map[*conn]connPool{}
	for name, pool := range map[string]connPool{"viewer": s.viewers, "reader": s.readers} {
		for i := range cap(pool) {
			c := <-pool
			taken[c] = pool
			all[fmt.Sprint(name, " ", i+1)] = c
		}
	}
	return all, func() {
		for c, pool := range taken {
			pool <- c
		}
		s.checkpointer.mu.Unlock()
	}
}

// Durable returns the pragmas that the promise rests on, with what they must be.
func Durable() map[string]string {
	want := map[string]string{}
	for _, d := range durable {
		want[d.pragma] = d.want
	}
	return want
}

// Pragmas reads pragmas back from every connection of an idle store.
func (s *Store) Pragmas(names ...string) (map[string]map[string]string, error) {
	all, done := s.connections()
	defer done()
	got := map[string]map[string]string{}
	for name, c := range all {
		got[name] = map[string]string{}
		for _, pragma := range names {
			answers, err := c.ask("PRAGMA "+pragma, 0)
			if err != nil {
				return nil, err
			}
			got[name][pragma] = strings.Join(answers, " ")
		}
	}
	return got, nil
}

// Plans returns how SQLite would run each statement that the connections of an
// idle store have run so far.
func (s *Store) Plans() (map[string][]string, error) {
	all, done := s.connections()
	defer done()
	plans := map[string][]string{}
	for _, c := range all {
		var texts []string
		for text := range c.statements {
			texts = append(texts, text)
		}
		slices.Sort(texts)
		for _, text := range texts {
			switch word, _, _ := strings.Cut(strings.TrimSpace(text), " "); word {
			case "SELECT", "INSERT", "UPDATE", "DELETE":
			default:
				continue
			}
			plan, err := c.ask("EXPLAIN QUERY PLAN "+text, 3)
			if err != nil {
				return nil, err
			}
			plans[text] = plan
		}
	}
	return plans, nil
}

// Checkpoint copies the whole log into the database and reports whether it could.
func (s *Store) Checkpoint() bool { return s.checkpointer.checkpoint("TRUNCATE") }

// Migrations returns the texts of the migrations in their order.
func Migrations() ([]string, error) { return migrations() }

// Waiting returns how many updates wait for the writer.
func (s *Store) Waiting() int {
	s.writer.queue.mu.Lock()
	defer s.writer.queue.mu.Unlock()
	return s.writer.queue.waiting
}

// LimitGrowth lets the database grow by so many pages and no further.
func (s *Store) LimitGrowth(pages int) error {
	have, err := s.writer.conn.number(context.Background(), "PRAGMA page_count")
	if err != nil {
		return err
	}
	_, err = s.writer.conn.number(context.Background(), fmt.Sprintf("PRAGMA max_page_count = %d", have+int64(pages)))
	return err
}

// CountedTerms returns how many terms have counters.
func (s *Store) CountedTerms(ctx context.Context) (n int64, err error) {
	err = s.read(ctx, tenantKey{}, func(t *tx) (err error) {
		n, err = t.conn.number(ctx, "SELECT count(*) FROM (SELECT DISTINCT tenant_id, term FROM token_term_counts)")
		return err
	})
	return n, err
}

// Costs returns how many statements an idle store has run and rows it has read
// so far: on the connections of reads, and on that of the writer.
func (s *Store) Costs() (readers, writer int64) {
	all, done := s.connections()
	defer done()
	for name, c := range all {
		if strings.HasPrefix(name, "reader") {
			readers += c.cost
		}
	}
	return readers, all["writer"].cost
}

// RecentBytes bounds the tokens that are kept in memory.
const RecentBytes = recentBytes

// Recent returns how many tokens are kept in memory.
func (s *Store) Recent() (n int) {
	for i := range s.recent.shards {
		shard := &s.recent.shards[i]
		shard.mu.Lock()
		n += len(shard.young)
		for k := range shard.old {
			if _, both := shard.young[k]; !both {
				n++
			}
		}
		shard.mu.Unlock()
	}
	return n
}
