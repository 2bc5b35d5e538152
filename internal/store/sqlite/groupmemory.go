package sqlite

import (
	"sync"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const (
	// groupMemoryBytes bounds what the memory of groups keeps, about.
	groupMemoryBytes = 32 << 20
	// groupSize is what a group takes beside its texts, about.
	groupSize = 160
)

// groupMemory keeps the groups of tenants. Every list by a caller with rules
// decides on all groups of its tenant, of which there may be tens of thousands;
// they change when a container gets its first token or loses its last, which is
// rare. No other process writes to this store, so what is kept is exact: the
// writer forgets the groups of a tenant before it acknowledges a change of them.
type groupMemory struct {
	mu sync.Mutex
	// changes counts, for some tenants each, the beginnings and the ends of
	// commits that change their groups: while it is odd, one is under way.
	changes [256]uint64
	lists   map[tenantKey]groupList
	size    int
}

type groupList struct {
	groups []store.TokenGroup
	size   int
}

func newGroupMemory() *groupMemory { return &groupMemory{lists: map[tenantKey]groupList{}} }

// slot is where the changes of a tenant are counted.
func slot(tenant tenantKey) int { return int(tenant[len(tenant)-1]) }

// version is the count of the changes of a tenant's groups.
func (m *groupMemory) version(tenant tenantKey) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changes[slot(tenant)]
}

// find returns the groups of a tenant if they are kept and have not changed
// since that version. They belong to all that find them.
func (m *groupMemory) find(tenant tenantKey, version uint64) ([]store.TokenGroup, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list, ok := m.lists[tenant]
	return list.groups, ok && m.changes[slot(tenant)] == version && version%2 == 0
}

// keep keeps groups that were read from a snapshot of that version, or a later
// one.
func (m *groupMemory) keep(tenant tenantKey, groups []store.TokenGroup, version uint64) {
	size := 0
	for _, g := range groups {
		size += groupSize + len(g.Type)
		for _, container := range g.Containers {
			size += len(container)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changes[slot(tenant)] != version || version%2 == 1 || size > groupMemoryBytes/2 {
		return
	}
	m.size += size - m.lists[tenant].size
	if m.size > groupMemoryBytes {
		clear(m.lists)
		m.size = size
	}
	m.lists[tenant] = groupList{groups, size}
}

// change notes that a commit which changes the groups of these tenants begins.
// The function that it returns notes its end. No tenant stands for all.
func (m *groupMemory) change(tenants []tenantKey) (ended func()) {
	if len(tenants) == 0 {
		return func() {}
	}
	turn := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		var turned [len(m.changes)]bool
		for _, tenant := range tenants {
			if tenant == (tenantKey{}) {
				for i := range turned {
					turned[i] = true
				}
			}
			turned[slot(tenant)] = true
			m.size -= m.lists[tenant].size
			delete(m.lists, tenant)
		}
		for i, yes := range turned {
			if yes {
				m.changes[i]++
			}
		}
	}
	turn()
	return turn
}

// groupsOf returns the groups of a view's tenant from memory, or reads and keeps
// them. The count of changes is taken before the snapshot: while it stays, the
// snapshot has what memory has. A view that has read before reads these too.
func (t *tx) groupsOf(read func() ([]store.TokenGroup, error)) ([]store.TokenGroup, error) {
	if t.memory == nil || t.writable || t.begin == nil || t.ended {
		return read()
	}
	memory := t.memory.groups
	version := memory.version(t.tenant)
	if err := t.usable(); err != nil {
		return nil, err
	}
	// The first statement takes the snapshot.
	if _, err := t.conn.number(t.ctx, "SELECT count(*) FROM installation"); err != nil {
		return nil, t.note(err)
	}
	if groups, ok := memory.find(t.tenant, version); ok {
		return groups, nil
	}
	groups, err := read()
	if err == nil {
		memory.keep(t.tenant, groups, version)
	}
	return groups, err
}
