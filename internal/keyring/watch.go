package keyring

import (
	"context"
	"sync"
)

// Watch notes which epochs' keys opened values under a context, so that what is
// made from those values can be sealed not to outlive them: code of a tenant
// may read a security code at any moment of its run.
type Watch struct {
	mu     sync.Mutex // guards oldest
	oldest *EpochKey
}

type watchKey struct{}

// Watched returns a context that is watched, with its watch. Under a watched
// context the watch is the same: an inner run is part of the outer one.
func Watched(ctx context.Context) (context.Context, *Watch) {
	if w, ok := ctx.Value(watchKey{}).(*Watch); ok {
		return ctx, w
	}
	w := new(Watch)
	return w.Over(ctx), w
}

// Over watches another context too.
func (w *Watch) Over(ctx context.Context) context.Context {
	return context.WithValue(ctx, watchKey{}, w)
}

// Oldest returns the key of the oldest epoch that was seen; nil for none.
func (w *Watch) Oldest() *EpochKey {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.oldest
}

// note tells the watch of a context which keys were given out.
func (s *EpochSet) note(ctx context.Context) {
	w, ok := ctx.Value(watchKey{}).(*Watch)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range s.keys {
		if key != nil && (w.oldest == nil || key.Epoch() < w.oldest.Epoch()) {
			w.oldest = key
		}
	}
}
