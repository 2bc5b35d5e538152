// Package keeptest starts a whole server inside a test.
//
// It promises that the server is the one that users run, on a store of its own
// in a temporary folder and on a free port, with debug logging on and kept for
// the test to search. It never shares anything between two tests.
package keeptest

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/sandbox"
	"github.com/tokenkeep/tokenkeep/internal/server"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
)

// Server is a running server. Stop ends it; otherwise the end of the test does.
type Server struct {
	*server.Server
	URL    string
	Data   string
	Client *http.Client
	Log    *Log

	operator *admin.Client

	cancel context.CancelFunc
	done   chan error
	once   sync.Once
	err    error
}

// Options change what Start starts. The zero value will do.
type Options struct {
	Data     string            // default: a new folder
	Settings map[string]string // beside those of a developer's machine
	Now      func() time.Time
	Routes   []httpapi.Route
	KeyCache time.Duration
	Listener net.Listener // default: one on a free port
	StoreURL string       // of a database; default: what the environment chooses
}

// Start starts a server and waits until it is ready.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	if o.Data == "" {
		o.Data = filepath.Join(t.TempDir(), "data")
	}
	settings := map[string]string{
		"addr": "127.0.0.1:0", "data": o.Data, "environment": "test", "log.level": "debug", "drain.delay": "0s", "drain.timeout": "10s",
		"sandbox.level": "off",
	}
	for name, value := range o.Settings {
		settings[name] = value
	}
	conf, err := config.Load("", storeOf(t, o), settings)
	if err != nil {
		t.Fatal(err)
	}
	conf.Dev = true
	log := &Log{}
	s, err := server.New(t.Context(), conf, server.Options{
		Logger: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Now:    o.Now, Version: "test", Routes: o.Routes, KeyCache: o.KeyCache, Listener: o.Listener,
	})
	if err != nil {
		t.Fatalf("start server: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	k := &Server{
		Server: s, URL: s.BaseURL(), Data: o.Data, Client: &http.Client{Transport: transport, Timeout: 30 * time.Second}, Log: log,
		operator: admin.NewClient(o.Data), cancel: cancel, done: make(chan error, 1),
	}
	go func() { k.done <- s.Run(ctx) }()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := k.Stop(); err != nil {
			t.Errorf("stop server: %v", err)
		}
		if t.Failed() { // what went wrong inside is nowhere else
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, `"level":"ERROR`) {
					t.Log(line)
				}
			}
		}
	})
	return k
}

// storeVariable chooses the store of all servers that tests start: "postgres"
// is a database of PostgreSQL for each data folder, anything else SQLite.
const storeVariable = "KEEPTEST_STORE"

// databases remembers the database of each data folder, for those that start again.
var databases sync.Map

// storeOf returns the variables that choose the store of a server.
func storeOf(t testing.TB, o Options) []string {
	t.Helper()
	switch {
	case o.StoreURL != "":
		return []string{"TOKENKEEP_STORE_URL=" + o.StoreURL}
	case os.Getenv(storeVariable) != "postgres":
		return nil
	}
	url, there := databases.Load(o.Data)
	if !there {
		url = pgtest.Database(t)
		databases.Store(o.Data, url)
	}
	return []string{"TOKENKEEP_STORE_URL=" + url.(string)}
}

// Run runs the tests of a package and removes the PostgreSQL that they shared,
// if there was one; it is what TestMain calls.
func Run(m *testing.M) int {
	if sandbox.Main() {
		return 0 // this process starts others for code of tenants
	}
	return pgtest.Run(m)
}

// OnFiles skips a test that looks into the files of the embedded store.
func OnFiles(t testing.TB) {
	t.Helper()
	if os.Getenv(storeVariable) == "postgres" {
		t.Skip("it looks into the files of the embedded store")
	}
}

// Stop ends the server as SIGTERM does and returns what went wrong.
func (s *Server) Stop() error {
	s.once.Do(func() {
		s.cancel()
		s.err = <-s.done
	})
	return s.err
}

// Log keeps what the server logged.
type Log struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write implements io.Writer for the server's logger.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns everything that was logged so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
