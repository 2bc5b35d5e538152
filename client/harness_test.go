package client_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/client"
)

const fakeKey = "key_test_mgt_EXAMPLE_canary"

// fake is a server that answers from a list, the last answer for ever, and
// keeps what it was sent.
type fake struct {
	*httptest.Server
	answers []answer

	mu     sync.Mutex // guards got and waits
	got    []*http.Request
	bodies []string
	waits  []time.Duration
}

type answer struct {
	status int
	body   string
	header []string // name, value, …
	broken bool     // closes the connection instead of answering
}

func newFake(t *testing.T, answers ...answer) *fake {
	f := &fake{answers: answers}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	a := f.answers[min(len(f.got), len(f.answers)-1)]
	f.got, f.bodies = append(f.got, r), append(f.bodies, string(body))
	f.mu.Unlock()
	if a.broken {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("SVC-TRACE-ID", "trace-1")
	for i := 0; i < len(a.header); i += 2 {
		w.Header().Set(a.header[i], a.header[i+1])
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

// client returns a client that notes its waits and does not wait.
func (f *fake) client(t *testing.T, options ...client.Option) *client.Client {
	t.Helper()
	noted := client.WithSleep(func(ctx context.Context, d time.Duration) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.waits = append(f.waits, d)
		return ctx.Err()
	})
	c, err := client.New(f.URL, append([]client.Option{client.WithKey(fakeKey), noted}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (f *fake) requests() []*http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.got
}
