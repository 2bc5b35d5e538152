package idempotency_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
	"github.com/tokenkeep/tokenkeep/test/openapitest"
)

// callers is how many send each key at the same time, and together how many
// keys are on their way at once.
const callers, atOnce = 20, 4

// farm is a farm of servers with what a test does to it.
type farm struct {
	*keeptest.Farm
	t        *testing.T
	settled  atomic.Int64  // requests that have their final response
	progress chan struct{} // says that settled has grown
}

func newFarm(t *testing.T, servers int, storeURL string) *farm {
	return &farm{Farm: keeptest.NewFarm(t, servers, storeURL, nil), t: t, progress: make(chan struct{}, 1)}
}

// settle counts a request that has its final response.
func (f *farm) settle() {
	f.settled.Add(1)
	select {
	case f.progress <- struct{}{}:
	default: // it says so already
	}
}

// killUntil kills one server after the other until done is closed: the first
// when the first requests have their final response, the others at random
// moments. Before every second kill it waits until so many requests have
// theirs, so that a slow machine gets on between the kills.
func (f *farm) killUntil(done <-chan struct{}, requests int64, pause time.Duration) (kills int) {
	for {
		want := f.settled.Load()
		if kills%2 == 0 {
			want += requests
		}
		moment := make(chan struct{})
		go func() {
			defer close(moment)
			if kills > 0 {
				waittest.Sometime(pause)
			}
		}()
		for waiting := true; waiting || f.settled.Load() < want; {
			select {
			case <-done:
				return kills
			case <-f.progress:
			case <-moment:
				waiting, moment = false, nil
			}
		}
		p := f.Processes[kills%len(f.Processes)]
		f.Kill(p)
		f.Start(p)
		kills++
	}
}

// application makes a private application of a new tenant and returns its key.
func (f *farm) application(t *testing.T, permissions ...string) string {
	t.Helper()
	var tenant api.CreatedTenant
	if err := f.Operator().Call(t.Context(), http.MethodPost, "/tenants", api.CreateTenant{Name: "Tenant"}, &tenant); err != nil {
		t.Fatal(err)
	}
	var made api.Application
	err := f.Operator().Call(t.Context(), http.MethodPost, "/tenants/"+tenant.Tenant.ID+"/applications", api.CreateApplication{
		Name: "server", Type: "private", Permissions: permissions,
	}, &made)
	if err != nil {
		t.Fatal(err)
	}
	return made.Key
}

// reply is what a caller got in the end.
type reply struct {
	status   int
	replayed bool
	body     string
}

// post sends a request until it has its final response.
func (f *farm) post(client *http.Client, path, key, idempotencyKey, body string, answered *atomic.Int64) (reply, error) {
	for ; ; waittest.Sometime(25 * time.Millisecond) {
		r, err := http.NewRequest(http.MethodPost, f.URL+path, strings.NewReader(body))
		if err != nil {
			return reply{}, err
		}
		r.Header.Set(api.Header(api.DefaultPrefix, api.APIKey), key)
		r.Header.Set(api.Header(api.DefaultPrefix, api.IdempotencyKey), idempotencyKey)
		r.Header.Set("Content-Type", api.MediaJSON)
		response, err := client.Do(r)
		if err != nil {
			continue // it was killed
		}
		b, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			continue // half-way
		}
		answered.Add(1)
		switch response.StatusCode {
		case http.StatusConflict, http.StatusServiceUnavailable, http.StatusTooManyRequests:
			if response.Header.Get("Retry-After") == "" {
				return reply{}, fmt.Errorf("%d %s, not to be retried", response.StatusCode, b)
			}
		default:
			f.settle()
			return reply{response.StatusCode, response.Header.Get(api.Header(api.DefaultPrefix, api.IdempotentReplayed)) == "true", string(b)}, nil
		}
	}
}

func TestEveryKeyHasOneEffectWhateverIsKilled(t *testing.T) {
	storetest.Long(t)
	t.Run("sqlite", func(t *testing.T) { keysUnderKills(t, newFarm(t, 1, "")) })
	t.Run("postgres", func(t *testing.T) { keysUnderKills(t, newFarm(t, 2, pgtest.Database(t))) })
}

func keysUnderKills(t *testing.T, f *farm) {
	key := f.application(t, "token:create", "token:read")
	transport := &http.Transport{MaxIdleConnsPerHost: callers * atOnce}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: openapitest.NewWatch(t, openapitest.Load(t), transport)}

	n := storetest.Rounds(200, 2000)
	replies := make([][callers]reply, n)
	var answered atomic.Int64
	next := make(chan int)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for k := range next {
				var together sync.WaitGroup
				for i := range callers {
					together.Go(func() {
						// Bodies differ, so that an answer tells whose effect it tells of.
						body := fmt.Sprintf(`{"type":"token","data":"x","metadata":{"key":"%d","caller":"%d"}}`, k, i)
						var err error
						if replies[k][i], err = f.post(client, "/tokens", key, fmt.Sprint("key ", k), body, &answered); err != nil {
							t.Errorf("key %d, caller %d: %v", k, i, err)
						}
					})
				}
				together.Wait()
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for k := range n {
			next <- k
		}
		close(next)
		wg.Wait()
	}()
	kills := f.killUntil(done, callers, 200*time.Millisecond)
	if kills == 0 {
		t.Error("nothing was killed: the test proves nothing")
	}
	t.Logf("%d keys, %d answers, %d kills", n, answered.Load(), kills)
	replayed := f.checkReplies(replies)
	t.Logf("%d of %d were told it again", replayed, n*callers)
	f.checkTokens(client, key, replies)
}

// checkReplies looks that all callers of a key were told the same, and counts
// those who were told it again.
func (f *farm) checkReplies(replies [][callers]reply) (replayed int) {
	f.t.Helper()
	for k, of := range replies {
		first := 0
		for i, r := range of {
			if r.status != http.StatusCreated || r.body != of[0].body {
				f.t.Errorf("key %d: caller %d got %d %s, caller 0 got %s", k, i, r.status, r.body, of[0].body)
			}
			if r.replayed {
				replayed++
			} else {
				first++
			}
		}
		if first > 1 { // none when the first answer was lost
			f.t.Errorf("key %d: %d callers were told that they were first", k, first)
		}
	}
	return replayed
}

// checkTokens looks that there is one token for each key, the one that was told.
func (f *farm) checkTokens(client *http.Client, key string, replies [][callers]reply) {
	f.t.Helper()
	made := map[string][]string{}
	for page, read := 1, 0; ; page++ {
		r, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, fmt.Sprintf("%s/tokens?size=100&page=%d", f.URL, page), nil)
		if err != nil {
			f.t.Fatal(err)
		}
		r.Header.Set(api.Header(api.DefaultPrefix, api.APIKey), key)
		response, err := client.Do(r)
		if err != nil {
			f.t.Fatal(err)
		}
		var list api.List[api.Token]
		err = json.NewDecoder(response.Body).Decode(&list)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK {
			f.t.Fatalf("list tokens: %d, %v", response.StatusCode, err)
		}
		for _, token := range list.Data {
			made[token.Metadata["key"]] = append(made[token.Metadata["key"]], token.ID)
		}
		if read += len(list.Data); len(list.Data) == 0 || int64(read) >= list.Pagination.TotalItems {
			break
		}
	}
	if len(made) != len(replies) {
		f.t.Errorf("there are tokens of %d keys, want %d", len(made), len(replies))
	}
	for k, of := range replies {
		var told api.Token
		if err := json.Unmarshal([]byte(of[0].body), &told); err != nil {
			f.t.Errorf("key %d: %v", k, err)
		}
		if ids := made[fmt.Sprint(k)]; len(ids) != 1 || ids[0] != told.ID {
			f.t.Errorf("key %d made the tokens %v, and %s was told", k, ids, told.ID)
		}
	}
}
