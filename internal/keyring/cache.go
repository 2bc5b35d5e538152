package keyring

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// lru holds a bounded number of values and lets go of the one that was used
// longest ago. It lets go by forgetting: Tink's keys cannot be overwritten
// from outside, so their bytes stay until the garbage collector reuses them.
type lru[K comparable, V any] struct {
	mu    sync.Mutex // guards all below
	max   int
	order *list.List // of *lruItem, the latest used in front
	items map[K]*list.Element
	// dropped counts the calls of drop. A value that was fetched before one
	// must not be put after it.
	dropped uint64
}

type lruItem[K comparable, V any] struct {
	key   K
	value V
}

func newLRU[K comparable, V any](max int) *lru[K, V] {
	return &lru[K, V]{max: max, order: list.New(), items: make(map[K]*list.Element)}
}

// get returns a value and notes its use.
func (c *lru[K, V]) get(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.items[key]
	if !ok {
		return value, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*lruItem[K, V]).value, true
}

// before returns what put wants to know: the drops until now.
func (c *lru[K, V]) before() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped
}

// put keeps a value, unless one is there already or something was dropped
// since before. It returns the value that is to be used.
func (c *lru[K, V]) put(key K, value V, before uint64) V {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.items[key]; ok {
		return e.Value.(*lruItem[K, V]).value
	}
	if c.dropped != before {
		return value
	}
	c.items[key] = c.order.PushFront(&lruItem[K, V]{key, value})
	if c.order.Len() > c.max {
		oldest := c.order.Remove(c.order.Back()).(*lruItem[K, V])
		delete(c.items, oldest.key)
	}
	return value
}

// clear forgets every value.
func (c *lru[K, V]) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropped++
	c.order.Init()
	clear(c.items)
}

// drop forgets every value whose key is chosen.
func (c *lru[K, V]) drop(chosen func(K) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropped++
	for key, e := range c.items {
		if chosen(key) {
			c.order.Remove(e)
			delete(c.items, key)
		}
	}
}

// loadTimeout bounds a load that no caller waits for any more.
const loadTimeout = 30 * time.Second

// flights lets all who ask for the same key at the same time wait for one load.
type flights[K comparable, V any] struct {
	mu      sync.Mutex // guards running
	running map[K]*flight[V]
}

type flight[V any] struct {
	done  chan struct{}
	value V     // once done
	err   error // once done
}

// do returns what load returns. The load goes on when a caller gives up,
// because others may be waiting for it.
func (f *flights[K, V]) do(ctx context.Context, key K, load func(context.Context) (V, error)) (V, error) {
	f.mu.Lock()
	l, ok := f.running[key]
	if !ok {
		l = &flight[V]{done: make(chan struct{})}
		if f.running == nil {
			f.running = make(map[K]*flight[V])
		}
		f.running[key] = l
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
			defer cancel()
			l.value, l.err = load(ctx)
			f.leave(key, l)
			close(l.done)
		}()
	}
	f.mu.Unlock()
	select {
	case <-l.done:
		return l.value, l.err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

// leave lets later callers start a load of their own. It is called at the end
// of a load, and with no flight in mind when a load must not be joined.
func (f *flights[K, V]) leave(key K, l *flight[V]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l == nil || f.running[key] == l {
		delete(f.running, key)
	}
}
