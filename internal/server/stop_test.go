package server_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/server"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

func TestClientsThatHeedTheWarningAreNeverCut(t *testing.T) {
	storetest.Long(t)
	const delay = time.Second
	k := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"drain.delay": delay.String()}, Routes: restartRows})
	var clients sync.WaitGroup
	rounds := make(chan struct{}, 1000)
	for i := range 6 {
		clients.Add(1)
		go func() {
			defer clients.Done()
			defer func() { rounds <- struct{}{} }()
			// The last answer on a connection says so, and a balancer that
			// sees 503 on /readyz sends nothing more.
			leave := false
			client := &http.Client{Transport: watching{&http.Transport{}, func(r *http.Response) {
				leave = leave || r.Close || r.StatusCode == http.StatusServiceUnavailable
			}}}
			defer client.CloseIdleConnections()
			for before := (time.Time{}); !leave; {
				r := rest{since: before, delay: delay}
				if err := exchanges()[i%3].traced(httptrace.WithClientTrace(context.Background(), r.trace()), client, k.URL); err != nil {
					if !r.tooLong() {
						t.Error(err)
					}
					return
				}
				if leave {
					return
				}
				before = time.Now()
				r = rest{since: before, delay: delay}
				request, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), r.trace()), http.MethodGet, k.URL+"/readyz", nil)
				if err != nil {
					t.Error(err)
					return
				}
				response, err := client.Do(request)
				if err != nil && r.tooLong() {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				_ = response.Body.Close()
				select {
				case rounds <- struct{}{}:
				default:
				}
			}
		}()
	}
	for range 30 {
		<-rounds
	}
	if err := k.Stop(); err != nil {
		t.Errorf("Stop = %v", err)
	}
	clients.Wait()
}

// watching shows every answer to see.
type watching struct {
	http.RoundTripper
	see func(*http.Response)
}

func (w watching) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := w.RoundTripper.RoundTrip(r)
	if err == nil {
		w.see(response)
	}
	return response, err
}

// gate is a row that says when a request has come and holds it.
type gate struct {
	entered, open chan struct{}
}

func newGate() *gate { return &gate{make(chan struct{}, 1), make(chan struct{})} }

func (g *gate) row() httpapi.Route {
	return httpapi.Route{Pattern: "GET /gate", Auth: httpapi.Anonymous, Handle: func(w http.ResponseWriter, _ *http.Request, _ access.Caller) error {
		g.entered <- struct{}{}
		<-g.open
		_, err := io.WriteString(w, tail)
		return err
	}}
}

func TestARequestUnderWayAtTheStopIsAnsweredInFull(t *testing.T) {
	g := newGate()
	k := keeptest.Start(t, keeptest.Options{Routes: []httpapi.Route{g.row()}})
	answered := make(chan error, 1)
	go func() { answered <- exchange{"GET", "/gate", nil, tail}.try(k.Client, k.URL) }()
	<-g.entered
	stopped := make(chan error, 1)
	go func() { stopped <- k.Stop() }()
	untilClosed(t, k)
	select {
	case err := <-stopped:
		t.Fatalf("Run returned %v while a request was under way", err)
	default:
	}
	close(g.open)
	if err := <-answered; err != nil {
		t.Errorf("the request under way: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Stop = %v", err)
	}
}

func TestAConnectionThatWasAcceptedMaySendItsFirstRequestDuringTheStop(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{})
	early := accepted(t, k)
	stopped := make(chan error, 1)
	go func() { stopped <- k.Stop() }()
	untilClosed(t, k)
	_, _ = io.WriteString(early, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
	answer, err := io.ReadAll(early)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 ") || !strings.Contains(string(answer), "Connection: close") {
		t.Errorf("the first request during the stop = %q, %v; want an answer that closes", answer, err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Stop = %v", err)
	}
}

func TestAConnectionThatSaysNothingDoesNotFailTheStop(t *testing.T) {
	storetest.Long(t)
	k := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"drain.timeout": "2s"}})
	accepted(t, k)
	if err := k.Stop(); err != nil {
		t.Errorf("Stop = %v", err)
	}
}

func TestARequestThatOutlastsTheTimeoutIsReportedAndTheStoreClosed(t *testing.T) {
	g := newGate()
	defer close(g.open)
	data := filepath.Join(t.TempDir(), "data")
	s, err := server.New(t.Context(), developers(t, data, "drain.timeout", "50ms"), server.Options{Routes: []httpapi.Route{g.row()}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	client := &http.Client{}
	answered := make(chan error, 1)
	go func() { answered <- exchange{"GET", "/gate", nil, tail}.try(client, s.BaseURL()) }()
	<-g.entered
	cancel()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "the api door did not finish in time") {
		t.Errorf("Run = %v, want it to name the door whose requests were cut", err)
	}
	if err := <-answered; err == nil {
		t.Error("the request that was cut had an answer")
	}
	for _, name := range []string{"server.json", "admin.sock"} {
		if _, err := os.Lstat(filepath.Join(data, name)); !os.IsNotExist(err) {
			t.Errorf("%s after the stop: %v, want it gone", name, err)
		}
	}
	log := &keeptest.Log{}
	again, err := server.New(t.Context(), developers(t, data), server.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatalf("start again: %v", err)
	}
	if strings.Contains(log.String(), "not closed cleanly") {
		t.Error("the store was not closed cleanly")
	}
	cancelled, end := context.WithCancel(t.Context())
	end()
	if err := again.Run(cancelled); err != nil {
		t.Errorf("Run with an ended context = %v", err)
	}
}

// dial opens a connection that the end of the test closes.
func dial(t *testing.T, url string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", url[strings.Index(url, "//")+2:])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// accepted opens a connection and returns when the server has it. The kernel
// hands connections over in their order: when a later one has been answered,
// the earlier one has been accepted.
func accepted(t *testing.T, k *keeptest.Server) *net.TCPConn {
	t.Helper()
	c := dial(t, k.URL)
	if err := (exchange{"GET", "/healthz", nil, `{"status":"ok"}`}).try(k.Client, k.URL); err != nil {
		t.Fatal(err)
	}
	return c
}

// untilClosed returns when the server lets nobody in any more.
func untilClosed(t *testing.T, k *keeptest.Server) {
	t.Helper()
	waittest.Until(t, "the door closes", func() bool {
		c, err := net.Dial("tcp", k.URL[strings.Index(k.URL, "//")+2:])
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
}
