package bench_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

// BenchmarkProxy sends a small JSON body through a proxy, with nothing to put
// in, with one expression, and with one expression and a warm transform, beside
// a plain reverse proxy to the same destination. Ours answers after its call,
// and each token, is in the log on disk; the plain one logs nothing. Logged is a
// handler that answers a constant after one such entry: that part of ours.
func BenchmarkProxy(b *testing.B) {
	k := keeptest.Start(b, keeptest.Options{Settings: map[string]string{
		"sandbox.level": "full", "sandbox.runtime": runtimetest.Find(b).Folder, "sandbox.per_program": "64",
	}})
	k.Client.Transport.(*http.Transport).MaxIdleConnsPerHost = 128
	to := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", api.MediaJSON)
		_, _ = io.WriteString(w, `{"ok":true}`)
	}))
	b.Cleanup(to.Close)
	address, err := url.Parse(to.URL)
	if err != nil {
		b.Fatal(err)
	}
	reverse := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(address) }, Transport: &http.Transport{MaxIdleConnsPerHost: 128},
	})
	b.Cleanup(reverse.Close)

	tenant := k.Tenant(b)
	key := k.Application(b, tenant.Tenant.ID, api.CreateApplication{Type: "private", Permissions: []string{"token:create", "token:use"}}).Key
	define := func(more string) string {
		var p api.Proxy
		k.Call(b, "POST", "/proxies", tenant.Application.Key, `{"name":"p","destination_url":"`+to.URL+`"`+more+`}`).Into(b, 201, &p)
		return p.Key
	}
	plain := define("")
	shaped := define(`,"request_transform":{"code":"module.exports = async (req) => ({ body: req.args.body, headers: { ...req.args.headers, 'X-A': 'b' } })"}`)
	var card api.Token
	k.Call(b, "POST", "/tokens", key, cardBody(1)).Into(b, 201, &card)
	constant := `{"amount":1999,"number":"9999990000000015"}`
	expression := fmt.Sprintf(`{"amount":1999,"number":"{{ %s | json: '$.number' }}"}`, card.ID)

	send := func(address, proxy, body string) func(int64) error {
		return func(int64) error {
			r, err := http.NewRequest("POST", address, strings.NewReader(body))
			if err != nil {
				return err
			}
			r.Header.Set("Content-Type", api.MediaJSON)
			if proxy != "" {
				r.Header.Set(api.Header(api.DefaultPrefix, api.APIKey), key)
				r.Header.Set(api.Header(api.DefaultPrefix, api.ProxyKey), proxy)
			}
			_, err = answer(k.Client, r, http.StatusOK)
			return err
		}
	}
	bare := newBare(b)
	for _, n := range []int{1, 8} {
		b.Run(fmt.Sprintf("connections=%d", n), func(b *testing.B) {
			sides := []side{
				{"nothing", send(k.URL+"/proxy/x", plain, constant)},
				{"expression", send(k.URL+"/proxy/x", plain, expression)},
				{"transform", send(k.URL+"/proxy/x", shaped, expression)},
				{"logged", bare.constant(constant)},
				{"reverse", send(reverse.URL+"/x", "", constant)},
			}
			clocks := make([]*stopwatch, len(sides))
			for i := range sides {
				if err := sides[i].do(0); err != nil { // connections and code are warm
					b.Fatal(err)
				}
				clocks[i] = &stopwatch{}
				sides[i].do = clocks[i].around(sides[i].do)
			}
			compare(b, n, sides...)
			limit := median(clocks[len(clocks)-1].times)
			for i, c := range clocks[:len(clocks)-1] {
				b.ReportMetric(median(c.times)-limit, sides[i].name+"-added-µs")
			}
		})
	}
}

// stopwatch keeps how long each call of a side took.
type stopwatch struct {
	mu    sync.Mutex // guards times
	times []time.Duration
}

func (s *stopwatch) around(do func(int64) error) func(int64) error {
	return func(n int64) error {
		began := time.Now()
		err := do(n)
		took := time.Since(began)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.times = append(s.times, took)
		return err
	}
}
