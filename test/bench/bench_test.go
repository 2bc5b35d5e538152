// Package bench_test measures tokens from the outside, each figure beside its
// limit in the same run.
package bench_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// side is one of the things that are compared: it does its work once.
type side struct {
	name string
	do   func(n int64) error
}

// Turns are short and alternate, so that whatever else the machine does meets
// all sides alike.
const (
	turns = 6
	turn  = 300 * time.Millisecond
)

// compare measures how often a second each side does its work on so many
// goroutines, and reports it, and each but the last as a part of the last.
func compare(b *testing.B, goroutines int, sides ...side) {
	rates := make([]float64, len(sides))
	for b.Loop() {
		for range turns {
			for i, s := range sides {
				rates[i] += rate(b, goroutines, s.do) / turns
			}
		}
	}
	limit := len(sides) - 1
	for i, s := range sides {
		b.ReportMetric(rates[i]/float64(b.N), s.name+"/s")
		if i < limit {
			b.ReportMetric(rates[i]/rates[limit], s.name+"/"+sides[limit].name)
		}
	}
	b.ReportMetric(0, "ns/op")
}

func rate(b *testing.B, goroutines int, do func(n int64) error) float64 {
	var n, done atomic.Int64
	var working sync.WaitGroup
	start := time.Now()
	for range goroutines {
		working.Go(func() {
			for time.Since(start) < turn {
				if err := do(n.Add(1)); err != nil {
					b.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	working.Wait()
	return float64(done.Load()) / time.Since(start).Seconds()
}

// place is a server with callers.
type place struct {
	*keeptest.Server
	tenant             string
	revealing, masking string // keys
}

func begin(b *testing.B, data string) *place {
	b.Helper()
	p := &place{Server: keeptest.Start(b, keeptest.Options{Data: data})}
	p.Client.Transport.(*http.Transport).MaxIdleConnsPerHost = 128
	p.tenant = p.Tenant(b).Tenant.ID
	key := func(transform string) string {
		return p.Application(b, p.tenant, api.CreateApplication{Type: "private", Rules: []api.Rule{
			{Container: "/", Transform: transform, Permissions: []string{"token:create", "token:read", "token:update", "token:search"}},
		}}).Key
	}
	p.revealing, p.masking = key("reveal"), key("mask")
	return p
}

// ask calls the API, and wants that status.
func (p *place) ask(method, path, key, body string, status int) (string, error) {
	r, err := http.NewRequest(method, p.URL+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set(api.Header(api.DefaultPrefix, api.APIKey), key)
	r.Header.Set("Content-Type", api.MediaJSON)
	return answer(p.Client, r, status)
}

func answer(c *http.Client, r *http.Request, status int) (string, error) {
	response, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != status {
		err = fmt.Errorf("status %d, want %d", response.StatusCode, status)
	}
	return string(got), err
}

func (p *place) create(b *testing.B, n int) (ids []string) {
	b.Helper()
	for i := range n {
		var made api.Token
		p.Call(b, "POST", "/tokens", p.revealing, cardBody(int64(i))).Into(b, 201, &made)
		ids = append(ids, made.ID)
	}
	return ids
}

// cardNumber is the n-th Luhn-valid number of a range that is no issuer's.
func cardNumber(n int64) string {
	body := fmt.Sprintf("999999%09d", n%1_000_000_000)
	sum := 0
	for i := range body {
		d := int(body[i] - '0')
		if i%2 == 0 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return body + fmt.Sprint((10-sum%10)%10)
}

func cardBody(n int64) string {
	return fmt.Sprintf(`{"type":"card","data":{"number":"%s","expiration_month":12,"expiration_year":2031,"cvc":"123"}}`, cardNumber(n))
}

// bare is a store alone, and a handler that answers a constant after one
// group-committed log entry: what reading cannot be faster than.
type bare struct {
	store  *sqlite.Store
	tenant string
	server *httptest.Server
	client *http.Client
}

const constantAnswer = `{"id":"5e2d6b1c-8a1d-4a53-9d5a-0d6a2f6f7a11"}`

func newBare(b *testing.B) *bare {
	b.Helper()
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "bare"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	x := &bare{store: s, tenant: uuid.NewString(), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 128}}}
	if err := storetest.AddTenants(b.Context(), s, x.tenant); err != nil {
		b.Fatal(err)
	}
	x.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if err := x.store.Update(r.Context(), x.tenant, func(tx store.Tx) error { return tx.AppendLog(r.Context(), entry("read", "x")) }); err != nil {
			http.Error(w, "failed", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", api.MediaJSON)
		_, _ = io.WriteString(w, constantAnswer)
	}))
	b.Cleanup(x.server.Close)
	return x
}

func entry(operation, id string) store.LogEntry {
	return store.LogEntry{
		ID: uuid.NewString(), CreatedAt: store.At(time.Now()), ActorID: "5e2d6b1c-8a1d-4a53-9d5a-0d6a2f6f7a11", ActorType: "application",
		EntityType: "card", EntityID: id, Operation: operation, Outcome: "success", Message: "Token created", TraceID: "0123456789abcdef0123",
		ClientAddress: "127.0.0.1",
	}
}

// insert is the rows of a created card, without anything that makes them.
func (x *bare) insert(int64) error {
	id := uuid.New()
	term := append(id[:], id[:]...)
	row := store.Token{
		ID: id.String(), Type: "card", Containers: []string{"/pci/high/"}, Data: make([]byte, 140), Details: make([]byte, 120), ShortLived: make([]byte, 80),
		Terms: [][]byte{term}, CreatedBy: "5e2d6b1c-8a1d-4a53-9d5a-0d6a2f6f7a11", CreatedAt: store.At(time.Now()), Version: 1,
	}
	e := entry("create", row.ID)
	ctx := context.Background()
	return x.store.Update(ctx, x.tenant, func(tx store.Tx) error {
		if err := tx.InsertToken(ctx, row); err != nil {
			return err
		}
		return tx.AppendLog(ctx, e)
	})
}

func (x *bare) constant(body string) func(int64) error {
	return func(int64) error {
		r, err := http.NewRequest("POST", x.server.URL, strings.NewReader(body))
		if err != nil {
			return err
		}
		_, err = answer(x.client, r, http.StatusOK)
		return err
	}
}

var connections = []int{1, 32}

// BenchmarkCreateCard creates cards over HTTP, beside the bare insert of the
// same rows, and a handler that only logs.
func BenchmarkCreateCard(b *testing.B) {
	for _, n := range connections {
		b.Run(fmt.Sprintf("%d connections", n), func(b *testing.B) {
			p, x := begin(b, ""), newBare(b)
			compare(b, n,
				side{"create", func(i int64) error { _, err := p.ask("POST", "/tokens", p.masking, cardBody(i), 201); return err }},
				side{"insert", x.insert},
				side{"constant", x.constant(cardBody(1))})
		})
	}
}

// BenchmarkReadCard reads cards over HTTP, masked and revealed, beside a
// handler that answers a constant after logging.
func BenchmarkReadCard(b *testing.B) {
	for _, n := range connections {
		b.Run(fmt.Sprintf("%d connections", n), func(b *testing.B) {
			p, x := begin(b, ""), newBare(b)
			ids := p.create(b, 200)
			read := func(key string) func(int64) error {
				return func(i int64) error { _, err := p.ask("GET", "/tokens/"+ids[i%200], key, "", 200); return err }
			}
			compare(b, n, side{"masked", read(p.masking)}, side{"revealed", read(p.revealing)}, side{"constant", x.constant("")})
		})
	}
}

// BenchmarkHundred compares one body of a hundred with a hundred calls.
func BenchmarkHundred(b *testing.B) {
	p := begin(b, "")
	ids := p.create(b, 100)
	var next atomic.Int64
	b.Run("tokenize", func(b *testing.B) {
		compare(b, 1,
			side{"one-body", func(int64) error {
				var list []string
				for range 100 {
					list = append(list, cardBody(next.Add(1)))
				}
				_, err := p.ask("POST", "/tokenize", p.masking, "["+strings.Join(list, ",")+"]", 200)
				return err
			}},
			side{"100-calls", func(int64) error {
				for range 100 {
					if _, err := p.ask("POST", "/tokens", p.masking, cardBody(next.Add(1)), 201); err != nil {
						return err
					}
				}
				return nil
			}})
	})
	b.Run("detokenize", func(b *testing.B) {
		var list []string
		for _, id := range ids {
			list = append(list, `"{{ `+id+` }}"`)
		}
		body := "[" + strings.Join(list, ",") + "]"
		compare(b, 1,
			side{"one-body", func(int64) error { _, err := p.ask("POST", "/detokenize", p.revealing, body, 200); return err }},
			side{"100-calls", func(int64) error {
				for _, id := range ids {
					if _, err := p.ask("GET", "/tokens/"+id, p.revealing, "", 200); err != nil {
						return err
					}
				}
				return nil
			}})
	})
}

// median of how long a call takes, in microseconds.
func median(times []time.Duration) float64 {
	slices.Sort(times)
	return float64(times[len(times)/2].Nanoseconds()) / 1000
}
