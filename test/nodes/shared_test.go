package nodes_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

// TestRateLimitsAreEachNodesOwn: docs/operations.md says so.
func TestRateLimitsAreEachNodesOwn(t *testing.T) {
	storetest.Long(t)
	w := newTown(t, options{settings: map[string]string{"rate_limit.per_key": "0.1"}}) // a burst of two
	for _, n := range []*keeptest.Server{w.a, w.b} {
		var got []int
		for range 3 {
			got = append(got, n.Call(t, "GET", "/tokens", w.private.Key, "").Status)
		}
		if !slices.Equal(got, []int{200, 200, 429}) {
			t.Errorf("three calls of a node = %v, want 200, 200 and 429", got)
		}
	}
}

// TestEveryNodeSweepsAndEachThingGoesOnce.
func TestEveryNodeSweepsAndEachThingGoesOnce(t *testing.T) {
	w := newTown(t, options{})
	const tokens, sessions = 150, 5
	at := w.clock.Now().Add(time.Minute).Format(time.RFC3339)
	var rows []map[string]any
	for range tokens {
		rows = append(rows, map[string]any{"type": "token", "data": 1, "expires_at": at})
	}
	body, err := json.Marshal(rows)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.a.Call(t, "POST", "/tokenize", w.private.Key, string(body)); got.Status != 200 {
		t.Fatalf("POST /tokenize = %s", got)
	}
	for range sessions {
		w.a.Call(t, "POST", "/sessions", w.public.Key, "").Into(t, 201, new(any))
	}
	w.clock.Advance(time.Hour)
	var swept [2]admin.Swept
	together(func() { w.sweep(w.a, &swept[0]) }, func() { w.sweep(w.b, &swept[1]) })
	if got := swept[0].Tokens + swept[1].Tokens; got != tokens {
		t.Errorf("two nodes removed %d tokens, %+v, want %d", got, swept, tokens)
	}
	if got := swept[0].Sessions + swept[1].Sessions; got != sessions {
		t.Errorf("two nodes removed %d sessions, %+v, want %d", got, swept, sessions)
	}
	var list api.List[api.LogEntry]
	w.must(w.b, "GET", "/logs?entity_type=token&start_date="+at+"&size=100", "").Into(t, 200, &list)
	if list.Pagination.TotalItems != tokens {
		t.Errorf("the log has %d entries of expired tokens, want %d", list.Pagination.TotalItems, tokens)
	}
	w.sound(w.b)
}

func (w *town) sweep(n *keeptest.Server, out *admin.Swept) {
	if err := n.Operator().Call(w.t.Context(), http.MethodPost, "/sweep", nil, out); err != nil {
		w.t.Errorf("sweep: %v", err)
	}
}

// TestKeysAreRotatedOnOneNodeWhileTheOtherServes, which finds the new ones in
// the store and in the file that both read.
func TestKeysAreRotatedOnOneNodeWhileTheOtherServes(t *testing.T) {
	storetest.CheckOnly(t)
	w := newTown(t, options{real: true, keyCache: 50 * time.Millisecond})
	c := newCrowd(t, w.private.Key, w.b)
	kept := c.more(20)
	for _, path := range []string{"/tenants/" + w.tenant + "/rotate-key", "/keys/rotate-kek", "/tenants/" + w.tenant + "/rotate-key"} {
		c.meanwhile(func() {
			if _, err := w.a.Operator().Follow(t.Context(), http.MethodPost, path, nil, silent); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		})
		kept = append(kept, c.more(20)...)
	}
	c.end()
	for _, id := range kept {
		for _, n := range []*keeptest.Server{w.a, w.b} {
			var token api.Token
			n.Call(t, "GET", "/tokens/"+id, w.private.Key, "").Into(t, 200, &token)
			if string(token.Data) != `"kept"` {
				t.Errorf("a token is %s", token.Data)
			}
		}
	}
	made := w.b.Tenant(t) // with keys that one node wraps and the other opens
	for _, n := range []*keeptest.Server{w.a, w.b} {
		if got := n.Call(t, "GET", "/tenants/self", made.Application.Key, ""); got.Status != 200 {
			t.Errorf("a tenant that was made after the rotation = %s", got)
		}
	}
	w.sound(w.b)
}

// TestANewKEKIsGivenToAllBeforeOneUsesIt: nodes with files of their own, as the
// runbook has it.
func TestANewKEKIsGivenToAllBeforeOneUsesIt(t *testing.T) {
	storetest.Long(t)
	o := options{real: true, keyCache: 50 * time.Millisecond}
	w := newTown(t, o)
	old, err := os.ReadFile(w.kek)
	if err != nil {
		t.Fatal(err)
	}
	o.settings = map[string]string{"kek.file": filepath.Join(t.TempDir(), "kek.json")}
	put := func(text []byte) {
		t.Helper()
		if err := errors.Join(os.WriteFile(o.settings["kek.file"]+".new", text, 0o600), os.Rename(o.settings["kek.file"]+".new", o.settings["kek.file"])); err != nil {
			t.Fatal(err)
		}
	}
	put(old)
	other := w.start(o, nil)
	c := newCrowd(t, w.private.Key, w.a, other)
	kept := c.more(20)
	file, err := localkms.Open(w.kek)
	if err != nil {
		t.Fatal(err)
	}
	before := file.Primary()
	added, err := file.Rotate(t.Context()) // which is what 'key add' does
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(w.kek)
	if err != nil {
		t.Fatal(err)
	}
	put(text)
	kept = append(kept, c.more(20)...)
	c.meanwhile(func() {
		if _, err := w.a.Operator().Follow(t.Context(), http.MethodPost, "/keys/rotate-kek", nil, silent); err != nil {
			t.Errorf("rotate-kek: %v", err)
		}
		if err := w.a.Operator().Call(t.Context(), http.MethodPost, "/keys/drop-kek", admin.DropKEK{ID: before}, nil); err != nil {
			t.Errorf("drop-kek: %v", err)
		}
	})
	for n, keks := range map[*keeptest.Server][]string{w.a: {added}, other: {before, added}} {
		for _, id := range kept { // which makes it look for the key that it has not seen
			n.Call(t, "GET", "/tokens/"+id, w.private.Key, "").Into(t, 200, new(api.Token))
		}
		var status admin.KeyStatus
		if err := n.Operator().Call(t.Context(), http.MethodGet, "/keys", nil, &status); err != nil {
			t.Fatal(err)
		}
		if status.Primary != added || !slices.Equal(status.KEKs, keks) || !slices.Equal(status.Tenants[0].KEKs, []string{added}) {
			t.Errorf("the keys of a node = %+v, want %v, and everything wrapped by %s", status, keks, added)
		}
	}
	kept = append(kept, c.more(20)...)
	c.end()
	for _, id := range kept {
		other.Call(t, "GET", "/tokens/"+id, w.private.Key, "").Into(t, 200, new(api.Token))
	}
}

// TestAKeyThatAnotherNodeIsAtWorkOn: while one node waits for the body of a
// request, another may do the work under its idempotency key. It is done once,
// and both are told the same.
func TestAKeyThatAnotherNodeIsAtWorkOn(t *testing.T) {
	const body = `{"type":"token","data":1}`
	for name, test := range map[string]struct {
		body   string
		status int
	}{
		"the first one is in order": {body, 201}, "the first one is not": {"{}", 400},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTown(t, options{})
			key := api.Header(api.DefaultPrefix, api.IdempotencyKey)
			read, write := io.Pipe()
			asked := make(chan struct{}) // for the body
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(asked) }})
			r, err := http.NewRequestWithContext(ctx, "POST", w.a.URL+"/tokens", read)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set(api.Header(api.DefaultPrefix, api.APIKey), w.private.Key)
			r.Header.Set(key, "k")
			r.Header.Set("Content-Type", api.MediaJSON)
			r.Header.Set("Expect", "100-continue")
			transport := &http.Transport{ExpectContinueTimeout: time.Hour}
			defer transport.CloseIdleConnections()
			type answer struct {
				status int
				body   string
			}
			first := make(chan answer, 1)
			go func() {
				response, err := transport.RoundTrip(r)
				if err != nil {
					first <- answer{}
					return
				}
				b, _ := io.ReadAll(response.Body)
				_ = response.Body.Close()
				first <- answer{response.StatusCode, string(b)}
			}()
			select {
			case <-asked:
			case got := <-first:
				t.Fatalf("the first request = %+v before its body was read", got)
			}
			second := w.b.Call(t, "POST", "/tokens", w.private.Key, body, key, "k")
			if second.Status != 201 {
				t.Fatalf("the second request = %s", second)
			}
			if _, err := io.WriteString(write, test.body); err != nil {
				t.Fatal(err)
			}
			_ = write.Close()
			if got := <-first; got.status != test.status || got.status == 201 && got.body != second.Body {
				t.Errorf("the first request = %+v, want %d, and what the second one was told: %s", got, test.status, second)
			}
			for _, n := range []*keeptest.Server{w.a, w.b} {
				if got := n.Call(t, "POST", "/tokens", w.private.Key, body, key, "k"); got.Body != second.Body {
					t.Errorf("the third request = %s, want %s", got, second)
				}
			}
			var list api.List[json.RawMessage]
			w.a.Call(t, "GET", "/tokens", w.private.Key, "").Into(t, 200, &list)
			if list.Pagination.TotalItems != 1 {
				t.Errorf("there are %d tokens, want 1", list.Pagination.TotalItems)
			}
		})
	}
}

// TestJobsOfOneNodeAreDoneByEitherAndOnce.
func TestJobsOfOneNodeAreDoneByEitherAndOnce(t *testing.T) {
	storetest.CheckOnly(t)
	w := newTown(t, options{real: true, settings: map[string]string{"sandbox.level": "full", "sandbox.runtime": runtimetest.Find(t).Folder, "sandbox.blank": "1"}})
	const jobs = 20
	var mu sync.Mutex // guards the two below
	ran, delivered := map[string]int{}, map[string]int{}
	all := make(chan struct{}, 2*jobs)
	count := func(into map[string]int) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			into[r.URL.Query().Get("job")]++
			all <- struct{}{}
		}))
		t.Cleanup(s.Close)
		return s
	}
	called, callback := count(ran), count(delivered)
	var made api.Reactor
	code := `module.exports = ({ args }) => new Promise((done, fail) => require('http').get(args.to, (r) => { r.resume(); r.on('end', () => done({ raw: 1 })) }).on('error', fail))`
	w.must(w.a, "POST", "/reactors", fmt.Sprintf(`{"name":"n","code":%q,"configuration":{"a":"b"}}`, code)).Into(t, 201, &made)
	for i := range jobs {
		n := []*keeptest.Server{w.a, w.b}[i%2]
		body := fmt.Sprintf(`{"args":{"to":"%s/?job=%d"},"callback_url":"%s/?job=%d"}`, called.URL, i, callback.URL, i)
		if got := n.Call(t, "POST", "/reactors/"+made.ID+"/react", w.private.Key, body); got.Status != 202 {
			t.Fatalf("react = %s", got)
		}
	}
	for i := range 2 * jobs {
		waittest.Receive(t, fmt.Sprintf("call %d of %d of jobs and callbacks", i+1, 2*jobs), all)
	}
	for _, n := range []*keeptest.Server{w.a, w.b} { // what is under way ends
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for i := range jobs {
		if id := fmt.Sprint(i); ran[id] != 1 || delivered[id] != 1 {
			t.Errorf("job %d ran %d times and was delivered %d times, want once each", i, ran[id], delivered[id])
		}
	}
}
