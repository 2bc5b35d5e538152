package nodes_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

const callers = 4

// crowd are callers that make tokens, without a pause, on nodes in turn.
type crowd struct {
	t    *testing.T
	key  string
	made chan made

	mu    sync.Mutex // guards nodes
	nodes []*keeptest.Server
	stop  chan struct{}
	group sync.WaitGroup
}

// made is a token that one of the callers got.
type made struct {
	caller int
	id     string
}

func newCrowd(t *testing.T, key string, nodes ...*keeptest.Server) *crowd {
	c := &crowd{t: t, key: key, nodes: nodes, made: make(chan made), stop: make(chan struct{})}
	for i := range callers {
		c.group.Go(func() { c.call(i) })
	}
	return c
}

func (c *crowd) call(caller int) {
	for n := 0; ; n++ {
		c.mu.Lock()
		node := c.nodes[n%len(c.nodes)]
		c.mu.Unlock()
		got := node.Call(c.t, "POST", "/tokens", c.key, `{"type":"token","data":"kept"}`, api.Header(api.DefaultPrefix, api.IdempotencyKey), fmt.Sprint(caller, "-", n))
		var token api.Token
		if got.Status != 201 {
			c.t.Errorf("POST /tokens = %s", got)
		} else {
			got.Into(c.t, 201, &token)
		}
		select {
		case c.made <- made{caller, token.ID}:
		case <-c.stop:
			return
		}
	}
}

// more waits until so many further requests were answered.
func (c *crowd) more(n int) (ids []string) {
	for range n {
		ids = append(ids, (<-c.made).id)
	}
	return ids
}

// meanwhile takes what is made until something is done.
func (c *crowd) meanwhile(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	for {
		select {
		case <-c.made:
		case <-done:
			return
		}
	}
}

// on sends what follows to these nodes. What is under way ends before it returns.
func (c *crowd) on(nodes ...*keeptest.Server) {
	c.mu.Lock()
	c.nodes = nodes
	c.mu.Unlock()
	// What a caller gets secondly was begun on these.
	for got := [callers]int{}; slices.Min(got[:]) < 2; {
		got[(<-c.made).caller]++
	}
}

func (c *crowd) end() {
	close(c.stop)
	c.group.Wait()
}

// TestANewerReleaseTakesOverUnderLoad: no request fails while it changes the
// schema, serves beside the older one, and replaces it.
func TestANewerReleaseTakesOverUnderLoad(t *testing.T) {
	storetest.CheckOnly(t)
	o := options{real: true, keyCache: 50 * time.Millisecond}
	w := newTown(t, o)
	older, again := w.a, w.b
	c := newCrowd(t, w.private.Key, older, again)
	kept := c.more(20)
	var newer *keeptest.Server
	c.meanwhile(func() { newer = w.start(o, []string{pgtest.Tomorrow}) })
	c.on(older, newer)
	kept = append(kept, c.more(20)...)
	if err := again.Stop(); err != nil {
		t.Error(err)
	}
	again = w.start(o, nil) // an older one that was restarted in between
	c.on(older, newer, again)
	kept = append(kept, c.more(20)...)

	for n, want := range map[*keeptest.Server]bool{older: true, again: true, newer: false} {
		var s admin.Status
		if err := n.Operator().Call(t.Context(), http.MethodGet, "/status", nil, &s); err != nil || s.Outdated != want {
			t.Errorf("the status = %+v, %v; want it to be outdated: %t", s, err, want)
		}
	}

	// What destroys is left to the newer one, which knows all rows.
	rotate := func(n *keeptest.Server) (err error) {
		c.meanwhile(func() {
			_, err = n.Operator().Follow(t.Context(), http.MethodPost, "/tenants/"+w.tenant+"/rotate-key", nil, silent)
		})
		return err
	}
	if err := rotate(older); err == nil || !strings.Contains(err.Error(), "on a server of the newest release") {
		t.Errorf("a rotation on the older server = %v, want it to be left to the newest release", err)
	}
	if err := rotate(newer); err != nil {
		t.Errorf("a rotation on the newer server = %v", err)
	}
	kept = append(kept, c.more(20)...)
	c.on(newer)
	for _, n := range []*keeptest.Server{older, again} {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	}
	kept = append(kept, c.more(20)...)
	c.end()
	for _, id := range kept {
		var token api.Token
		newer.Call(t, "GET", "/tokens/"+id, w.private.Key, "").Into(t, 200, &token)
		if string(token.Data) != `"kept"` {
			t.Errorf("a token is %s", token.Data)
		}
	}
	w.sound(newer)
}

// silent follows long work without a word.
func silent(admin.Progress) error { return nil }

// sound looks whether the store and the log are what they should be.
func (w *town) sound(n *keeptest.Server) {
	w.t.Helper()
	last, err := n.Operator().Follow(w.t.Context(), http.MethodPost, "/store/check", nil, silent)
	if err != nil || len(last.Found) > 0 {
		w.t.Errorf("the check of the store = %v, %v", last.Found, err)
	}
	if last, err = n.Operator().Follow(w.t.Context(), http.MethodPost, "/tenants/"+w.tenant+"/audit/verify", admin.VerifyLog{}, silent); err != nil {
		w.t.Fatalf("the log is not verified: %v", err)
	}
	var v audit.Verification
	if err := json.Unmarshal(last.Data, &v); err != nil || !v.Clean() || v.Batches == 0 && v.Unsealed == 0 {
		w.t.Errorf("the verification of the log = %s, %v", last.Data, err)
	}
}
