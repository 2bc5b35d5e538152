package token

import (
	"context"
	"sync"
)

// turns lets callers that change the same thing on this node take turns, in the
// order in which they came. The zero turns are ready for use.
type turns struct {
	mu    sync.Mutex // guards queue and the waiting of each turn
	queue map[string]*turn
}

type turn struct {
	free    chan struct{} // holds one element while the turn is taken
	waiting int           // callers that hold the turn or wait for it
}

// take waits for the turn of a key. The caller must call done when it has
// finished, and must not take a turn inside a transaction.
func (t *turns) take(ctx context.Context, key string) (done func(), err error) {
	t.mu.Lock()
	if t.queue == nil {
		t.queue = make(map[string]*turn)
	}
	x := t.queue[key]
	if x == nil {
		x = &turn{free: make(chan struct{}, 1)}
		t.queue[key] = x
	}
	x.waiting++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if x.waiting--; x.waiting == 0 {
			delete(t.queue, key)
		}
	}
	select {
	case x.free <- struct{}{}:
		return func() { <-x.free; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
