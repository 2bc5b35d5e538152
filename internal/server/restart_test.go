package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/server"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// developers loads the settings of a developer's machine with changes given as
// name, value, name, value.
func developers(t testing.TB, data string, changes ...string) *config.Config {
	t.Helper()
	flags := map[string]string{"addr": "127.0.0.1:0", "data": data, "drain.delay": "0s", "drain.timeout": "1h"}
	for i := 0; i < len(changes); i += 2 {
		flags[changes[i]] = changes[i+1]
	}
	conf, err := config.Load("", nil, flags)
	if err != nil {
		t.Fatal(err)
	}
	conf.Dev = true
	return conf
}

// echo answers with the length and the sum of what was sent, and a tail that
// is long enough to notice when it is missing.
func echo(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%d %x %s", len(b), sha256.Sum256(b), tail)
	return err
}

var tail = strings.Repeat("tail ", 4000)

// slow answers after a while, the first half of its answer some time before the second.
func slow(w http.ResponseWriter, _ *http.Request, _ access.Caller) error {
	waittest.Sometime(30 * time.Millisecond)
	_, _ = io.WriteString(w, "first ")
	_ = http.NewResponseController(w).Flush()
	waittest.Sometime(30 * time.Millisecond)
	_, err := io.WriteString(w, tail)
	return err
}

var restartRows = []httpapi.Route{
	{Pattern: "POST /echo", Auth: httpapi.Anonymous, Body: httpapi.Raw, Handle: echo},
	{Pattern: "GET /slow", Auth: httpapi.Anonymous, Handle: slow},
}

// exchange is a request of a test's client and the whole of its answer.
type exchange struct {
	method, path string
	body         []byte
	want         string
}

func exchanges() []exchange {
	body := bytes.Repeat([]byte("0123456789"), 5000)
	return []exchange{
		{"GET", "/slow", nil, "first " + tail},
		{"POST", "/echo", body, fmt.Sprintf("%d %x %s", len(body), sha256.Sum256(body), tail)},
		{"GET", "/healthz", nil, `{"status":"ok"}` + "\n"},
	}
}

// try makes the exchange once and says what was wrong with the answer.
func (x exchange) try(client *http.Client, url string) error {
	return x.traced(context.Background(), client, url)
}

func (x exchange) traced(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, x.method, url+x.path, bytes.NewReader(x.body))
	if err != nil {
		return err
	}
	// The client is not to hide a cut by trying again.
	request.GetBody = nil
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s %s: read the answer: %w", x.method, x.path, err)
	}
	if response.StatusCode != http.StatusOK || strings.TrimSpace(string(got)) != strings.TrimSpace(x.want) {
		return fmt.Errorf("%s %s = %d with %d bytes, want 200 with %d", x.method, x.path, response.StatusCode, len(got), len(x.want))
	}
	return nil
}

// pause is the drain delay of the restarts.
const pause = 120 * time.Millisecond

// rest watches a request of a client that keeps its connection, to tell
// whether it was sent into one that was being closed, as HTTP allows: a client
// that rests for as long as the drain delay, because the machine is busy, is
// not told before.
type rest struct {
	delay    time.Duration             // of the drain
	since    time.Time                 // the answer before
	sent     atomic.Pointer[time.Time] // the request; nil when it could not be
	answered atomic.Bool               // something came back
}

func (r *rest) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		WroteRequest:         func(httptrace.WroteRequestInfo) { now := time.Now(); r.sent.Store(&now) },
		GotFirstResponseByte: func() { r.answered.Store(true) },
	}
}

// tooLong reports whether a request that failed had been sent too late.
func (r *rest) tooLong() bool {
	sent := time.Now()
	if at := r.sent.Load(); at != nil {
		sent = *at
	}
	return !r.since.IsZero() && !r.answered.Load() && sent.Sub(r.since) >= r.delay
}

func TestNoRequestIsCutOverManyRestartsUnderLoad(t *testing.T) {
	rounds := storetest.Rounds(100, 500)
	shared, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = shared.Close() }()
	url := "http://" + shared.Addr().String()
	data := filepath.Join(t.TempDir(), "data")

	var clients sync.WaitGroup
	var answered, failed atomic.Int64
	stop := make(chan struct{})
	for i := range 6 {
		clients.Add(1)
		go func() {
			defer clients.Done()
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport}
			x := exchanges()[i%3]
			for before := (time.Time{}); ; {
				select {
				case <-stop:
					return
				default:
				}
				r := rest{since: before, delay: pause}
				before = time.Now() // the connection rests from some time after this
				if err := x.traced(httptrace.WithClientTrace(context.Background(), r.trace()), client, url); err != nil {
					if r.tooLong() {
						continue
					}
					if failed.Add(1) <= 10 {
						t.Errorf("after %d answers: %v", answered.Load(), err)
					}
					continue
				}
				answered.Add(1)
			}
		}()
	}
	for round := range rounds {
		s, err := server.New(t.Context(), developers(t, data, "drain.delay", pause.String()), server.Options{Listener: duplicate(t, shared), Routes: restartRows})
		if err != nil {
			t.Fatalf("start %d: %v", round, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		before := answered.Load()
		waittest.Until(t, "20 more answers", func() bool { return answered.Load() >= before+20 || failed.Load() > 0 })
		cancel()
		if err := <-done; err != nil {
			t.Fatalf("stop %d: %v", round, err)
		}
	}
	// One more server answers those who wait, so that every client can leave.
	last, err := server.New(t.Context(), developers(t, data), server.Options{Listener: duplicate(t, shared), Routes: restartRows})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- last.Run(ctx) }()
	close(stop)
	clients.Wait()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("the last stop: %v", err)
	}
	t.Logf("%d answers over %d restarts, %d requests cut", answered.Load(), rounds, failed.Load())
}

// duplicate returns another descriptor of the same socket, as a server gets it
// from whoever keeps the socket open.
func duplicate(t *testing.T, l net.Listener) net.Listener {
	t.Helper()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	d, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
