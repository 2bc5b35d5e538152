package sqlite

import (
	"database/sql/driver"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const (
	// recentBytes bounds what recentTokens keeps, about.
	recentBytes = 4 << 20
	// recentShards is how many locks its readers spread over.
	recentShards = 16
	// recentRow is what a row takes beside its contents, about.
	recentRow = 512
)

// recentTokens keeps the rows of tokens that were read lately, sealed as they are
// stored, so that most reads need neither a connection nor a statement. No other
// process writes to this store, so what is kept is exact: the writer takes out
// what a commit changes before the commit begins, and nothing comes in that was
// read before the commit ended.
type recentTokens struct {
	seed maphash.Seed
	// changes counts the beginnings and the ends of commits that change or remove
	// tokens: while it is odd, one is under way. By it a view knows that several
	// rows are of one instant.
	changes atomic.Uint64
	shards  [recentShards]recentShard
}

// recentShard has two generations: when the younger one is full it becomes the
// older one, and what was not read since is forgotten.
type recentShard struct {
	mu         sync.Mutex // guards what follows
	young, old map[recentKey]store.Token
	size       int    // of the younger generation
	changes    uint64 // as in recentTokens, of the tokens of this shard
}

type recentKey struct {
	tenant tenantKey
	id     string
}

func newRecentTokens() *recentTokens {
	r := &recentTokens{seed: maphash.MakeSeed()}
	for i := range r.shards {
		r.shards[i].forget()
	}
	return r
}

func (s *recentShard) forget() {
	s.young, s.old, s.size = map[recentKey]store.Token{}, map[recentKey]store.Token{}, 0
}

func (r *recentTokens) shard(k recentKey) *recentShard {
	return &r.shards[maphash.Comparable(r.seed, k)%recentShards]
}

// find returns a row, and the count of changes that keep wants.
func (r *recentTokens) find(k recentKey) (row store.Token, ok bool, changes uint64) {
	s := r.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if row, ok = s.young[k]; ok {
		return row, true, s.changes
	}
	if row, ok = s.old[k]; ok {
		s.add(k, row)
	}
	return row, ok, s.changes
}

// keep keeps a row that was read since the count of changes was that.
func (r *recentTokens) keep(k recentKey, row store.Token, changes uint64) {
	s := r.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes == changes && changes%2 == 0 {
		s.add(k, row)
	}
}

func (s *recentShard) add(k recentKey, row store.Token) {
	size := int(row.Size()) + len(k.id) + recentRow
	if size > recentBytes/recentShards/8 {
		return
	}
	if s.size+size > recentBytes/recentShards/2 {
		s.young, s.old, s.size = map[recentKey]store.Token{}, s.young, 0
	}
	s.young[k] = row
	s.size += size
}

// recentChange is what a commit changes or removes.
type recentChange struct {
	keys []recentKey
	all  bool // more than can be named
}

func (c *recentChange) empty() bool { return len(c.keys) == 0 && !c.all }

// note adds what a statement with these arguments changes: the token that they
// begin with, or what they do not name.
func (c *recentChange) note(args []driver.Value) {
	if len(args) >= 2 {
		tenant, isTenant := args[0].([]byte)
		id, isID := args[1].(string)
		if isTenant && isID && len(tenant) == len(tenantKey{}) {
			c.keys = append(c.keys, recentKey{tenantKey(tenant), id})
			return
		}
	}
	c.all = true
}

// turn notes that a commit of these tokens begins or has ended, and forgets them.
func (r *recentTokens) turn(c *recentChange) {
	r.changes.Add(1)
	touched := map[*recentShard]bool{}
	for i := range r.shards {
		if c.all {
			touched[&r.shards[i]] = true
		}
	}
	for _, k := range c.keys {
		touched[r.shard(k)] = true
	}
	for s := range touched {
		s.mu.Lock()
		s.changes++
		if c.all {
			s.forget()
		}
		s.mu.Unlock()
	}
	for _, k := range c.keys {
		s := r.shard(k)
		s.mu.Lock()
		delete(s.young, k)
		delete(s.old, k)
		s.mu.Unlock()
	}
}

// recall returns a token to a view that has no snapshot yet, or reads and keeps
// it. What a view gets is its own.
func (t *tx) recall(id string, read func() (store.Token, error)) (store.Token, error) {
	if t.recent == nil || t.begin == nil || t.ended || t.failed != nil {
		return read()
	}
	at := t.recent.changes.Load()
	k := recentKey{t.tenant, id}
	row, ok, changes := t.recent.find(k)
	if ok && at%2 == 0 && (t.recalled == nil || *t.recalled == at) && t.stillRemembered() {
		t.recalled = &at
		return ownToken(row), nil
	}
	row, err := read()
	if err == nil {
		t.recent.keep(k, ownToken(row), changes)
	}
	return row, err
}

// ownToken copies a row with all that it holds.
func ownToken(row store.Token) store.Token {
	row.Containers = slices.Clone(row.Containers)
	row.Data, row.Details, row.ShortLived = slices.Clone(row.Data), slices.Clone(row.Details), slices.Clone(row.ShortLived)
	terms := row.Terms
	row.Terms = nil
	for _, term := range terms {
		row.Terms = append(row.Terms, slices.Clone(term))
	}
	return row
}
