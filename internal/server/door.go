package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

// door is a listener with the server behind it.
type door struct {
	name     string
	listener net.Listener
	handler  *httpapi.Handler
	server   *http.Server
	visitors *visitors
	left     chan struct{} // closed when nobody is let in any more
}

func newDoor(name string, l net.Listener, h *httpapi.Handler, limits httpapi.Limits) *door {
	d := &door{name: name, listener: l, handler: h, server: httpapi.NewServer(h, limits), visitors: newVisitors(), left: make(chan struct{})}
	d.server.ConnState = d.visitors.note
	return d
}

// serve lets connections in until the door is closed.
func (d *door) serve() error {
	defer close(d.left)
	serve := d.server.Serve
	if d.server.TLSConfig != nil {
		serve = func(l net.Listener) error { return d.server.ServeTLS(l, "", "") }
	}
	if err := serve(d.listener); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serve %s: %w", d.name, err)
	}
	return nil
}

// close lets nobody in any more and waits for those inside.
//
// Shutdown alone would cut requests: it drops the first request of every
// connection that was accepted and not yet read from when it was called. So it
// is called when all such connections have had their answer, and only says
// farewell to the idle ones.
func (d *door) close(ctx context.Context) error {
	_ = d.listener.Close()
	<-d.left
	d.visitors.wait(ctx)
	if err := d.server.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("requests on the %s door did not finish in time: %w", d.name, err), d.server.Close())
	}
	return nil
}

// silence is how long a new connection may take to send its first byte while
// the server stops; half the time that is left when that is less. Pools and
// browsers open some that they never use, and a stop must not fail for those.
const silence = 5 * time.Second

// visitors are the connections of a door from which a request is being
// answered or may be about to come.
type visitors struct {
	mu      sync.Mutex             // guards busy
	busy    map[net.Conn]time.Time // when a new one came; zero for one with a request
	changed chan struct{}          // told when one has left
}

func newVisitors() *visitors {
	return &visitors{busy: make(map[net.Conn]time.Time), changed: make(chan struct{}, 1)}
}

// note is an http.Server's ConnState.
func (v *visitors) note(c net.Conn, state http.ConnState) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch state {
	case http.StateNew:
		v.busy[c] = time.Now()
	case http.StateActive:
		v.busy[c] = time.Time{}
	default:
		delete(v.busy, c)
		select {
		case v.changed <- struct{}{}:
		default:
		}
	}
}

// wait returns when nobody is busy, or when ctx ends. It sends those away who
// came and said nothing.
func (v *visitors) wait(ctx context.Context) {
	patience := silence
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline)/2)
	}
	for {
		until, busy := v.look(patience)
		if !busy {
			return
		}
		timer := time.NewTimer(until)
		select {
		case <-v.changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// look tells whether somebody is busy, and when to look again at the latest.
func (v *visitors) look(patience time.Duration) (until time.Duration, busy bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	until = silence
	for c, came := range v.busy {
		if came.IsZero() {
			continue
		}
		left := time.Until(came.Add(patience))
		if left <= 0 {
			_ = c.Close()
			delete(v.busy, c)
			continue
		}
		until = min(until, left)
	}
	return until, len(v.busy) > 0
}
