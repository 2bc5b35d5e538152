package sqlite

import (
	"fmt"
	"sync"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// memoryBytes bounds what memory keeps, about.
const memoryBytes = 8 << 20

// memory keeps the rows that nearly every request begins with: the keys of
// callers with their applications, tenants and definitions, sealed as they are
// stored. No other process writes to this store, so what is kept is exact: the
// writer forgets everything before it acknowledges a change of such rows.
type memory struct {
	mu   sync.RWMutex
	rows map[memoryKey]any
	size int
	// changes counts the beginnings and the ends of commits that change such
	// rows: while it is odd, one is under way.
	changes uint64

	groups *groupMemory // has a lock of its own
}

type memoryKey struct {
	tenant tenantKey
	kind   string
	id     string
}

func newMemory() *memory { return &memory{rows: map[memoryKey]any{}, groups: newGroupMemory()} }

// turn notes that a commit of such rows begins or has ended, and forgets.
func (m *memory) turn() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
	m.forget()
}

func (m *memory) forget() {
	clear(m.rows)
	m.size = 0
}

func (m *memory) find(k memoryKey) (row any, changes uint64) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.rows[k], m.changes
}

// keep keeps a row that was read since the count of changes was that.
func (m *memory) keep(k memoryKey, row any, size int, changes uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changes != changes || changes%2 == 1 || size > memoryBytes/8 {
		return
	}
	if m.size+size > memoryBytes {
		m.forget()
	}
	m.rows[k] = row
	m.size += size
}

// remember returns a row from memory, or reads and keeps it. Only the first
// reads of a view come from there: one that has begun sees what its snapshot
// has. An update sees what is stored, as nobody else changes it meanwhile,
// unless its own transaction has changed such rows.
func remember[R any](t *tx, kind, id string, size func(R) int, read func() (R, error)) (R, error) {
	if t.ended || t.failed != nil || t.writable && t.conn.forgets || !t.writable && t.begin == nil {
		return read()
	}
	key := memoryKey{t.tenant, kind, id}
	found, changes := t.memory.find(key)
	if row, ok := found.(R); ok && (t.remembered == nil || *t.remembered == changes) && t.stillRecalled() {
		t.remembered = &changes
		return row, nil
	}
	row, err := read()
	if err == nil {
		t.memory.keep(key, row, size(row)+len(id)+256, changes)
	}
	return row, err
}

// errChanged says that a view was told something from memory that its snapshot
// may not have. View then runs its function again, on a snapshot from the start.
var errChanged = fmt.Errorf("sqlite: changed while a view began: %w", store.ErrUnavailable)

// snapshot begins a view that has waited for its first statement. What it was
// told from memory before must be what the snapshot has.
func (t *tx) snapshot() error {
	begin := t.begin
	t.begin = nil
	if err := begin(t); err != nil || t.remembered == nil && t.recalled == nil {
		return err
	}
	// The first statement takes the snapshot.
	if _, err := t.conn.number(t.ctx, "SELECT count(*) FROM installation"); err != nil {
		return err
	}
	if !t.stillRemembered() || !t.stillRecalled() {
		return errChanged
	}
	return nil
}

// stillRemembered reports whether what a view was told from memory is still so.
func (t *tx) stillRemembered() bool {
	if t.remembered == nil {
		return true
	}
	_, changes := t.memory.find(memoryKey{})
	return changes == *t.remembered
}

// stillRecalled reports the same of the tokens that it was told.
func (t *tx) stillRecalled() bool {
	return t.recalled == nil || t.recent.changes.Load() == *t.recalled
}
