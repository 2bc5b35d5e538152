package sqlite

import (
	"database/sql/driver"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// groupWork is what the updates that share a commit have in common: the entries
// that they add to the log, which are written together, and the savepoint of
// the one at hand, which only an update that writes anything else needs. Most
// requests read and log, so this is most of what a busy writer does.
type groupWork struct {
	conn    *conn
	entries []groupEntry // of the updates so far, but for those that failed
	written int          // how many of them are in their tables
	first   int          // where those of the update at hand begin
	alone   bool         // the update at hand has no neighbours, and needs no savepoint
	saved   bool         // it has one
	savedAt int          // what was written when it was made
	failed  error        // of a statement of the update at hand, after which SQLite may have rolled everything back by itself
}

type groupEntry struct {
	tenant tenantKey
	key    []driver.Value // when and id
	store.LogEntry
}

// begin forgets what another transaction left.
func (g *groupWork) begin() {
	clear(g.entries) // keeps nothing large alive
	*g = groupWork{conn: g.conn, entries: g.entries[:0]}
}

// next says that another update has its turn.
func (g *groupWork) next(alone bool) {
	g.first, g.alone, g.saved, g.failed = len(g.entries), alone, false, nil
}

// save makes sure that what the update at hand writes from here on can be
// taken back.
func (g *groupWork) save() error {
	if g.alone || g.saved {
		return nil
	}
	if _, err := g.conn.run("SAVEPOINT one"); err != nil {
		return err
	}
	g.saved, g.savedAt = true, g.written
	return nil
}

// end keeps what the update at hand has done, or takes it back. The error says
// that nothing is left of the transaction, as after a full disk.
func (g *groupWork) end(kept bool) error {
	if g.failed != nil && (kept || !g.alone && !g.saved) {
		return g.failed
	}
	if !kept {
		clear(g.entries[g.first:])
		g.entries = g.entries[:g.first]
	}
	if !g.saved {
		return nil
	}
	if !kept {
		if _, err := g.conn.run("ROLLBACK TO one"); err != nil {
			return err
		}
		g.written = g.savedAt
	}
	_, err := g.conn.run("RELEASE one")
	return err
}

// show writes the entries that wait, for a statement that is about the log.
func (g *groupWork) show() error {
	if len(g.entries) > g.first {
		if err := g.save(); err != nil {
			return err
		}
	}
	return g.write()
}

// insertRows are how many rows one statement inserts. Statements stay
// prepared, so there are only a few sizes.
var insertRows = []int{32, 8, 1}

var insertLog, insertUnsealed = manyRows("INSERT INTO log (tenant_id, "+logColumns+")", 15), manyRows("INSERT INTO log_unsealed (tenant_id, created_at, id)", 3)

// manyRows returns the statement for each of insertRows.
func manyRows(insert string, columns int) map[int]string {
	row := "(?" + strings.Repeat(", ?", columns-1) + ")"
	statements := map[int]string{}
	for _, rows := range insertRows {
		statements[rows] = insert + " VALUES " + row + strings.Repeat(", "+row, rows-1)
	}
	return statements
}

// write puts the entries that wait into their tables.
func (g *groupWork) write() error {
	type kind struct {
		tenant tenantKey
		entity string
	}
	counts := map[kind]int64{}
	var rows, unsealed []driver.Value
	for g.written < len(g.entries) {
		chunk := g.entries[g.written:]
		for _, n := range insertRows {
			if n <= len(chunk) {
				chunk = chunk[:n]
				break
			}
		}
		rows, unsealed = rows[:0], unsealed[:0]
		for i := range chunk {
			e := &chunk[i]
			rows = append(rows, e.tenant[:], e.key[0], e.key[1], e.ActorID, e.ActorType, e.SessionID, e.EntityType, e.EntityID, e.Operation, e.Outcome,
				e.Message, e.TraceID, e.ClientAddress, e.ActorName, e.Reason)
			unsealed = append(unsealed, e.tenant[:], e.key[0], e.key[1])
			counts[kind{e.tenant, e.EntityType}]++
		}
		if _, err := g.conn.run(insertLog[len(chunk)], rows...); err != nil {
			return err
		}
		if _, err := g.conn.run(insertUnsealed[len(chunk)], unsealed...); err != nil {
			return err
		}
		g.written += len(chunk)
	}
	for k, n := range counts {
		if _, err := g.conn.run(addToLogCount, k.tenant[:], k.entity, n); err != nil {
			return err
		}
	}
	return nil
}
