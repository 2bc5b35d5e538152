// Package keeptest starts a whole server inside a test.
//
// It promises that the server is the one that users run, on a store of its own
// in a temporary folder and on a free port, with debug logging on and kept for
// the test to search, and that whatever passes through its client is held
// against api/openapi.yaml. It never shares anything between two tests.
package keeptest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/sandbox"
	"github.com/tokenkeep/tokenkeep/internal/server"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/test/openapitest"
)

// Server is a running server, or an installation of several that behave as one.
// Stop ends it; otherwise the end of the test does.
type Server struct {
	*server.Server // the first
	URL            string
	Data           string
	Client         *http.Client
	Log            *Log // of all

	nodes  []*node
	chance *chance
	once   sync.Once
	err    error
}

// Options change what Start starts. The zero value will do.
type Options struct {
	Data     string            // default: a new folder
	Settings map[string]string // beside those of a developer's machine
	Now      func() time.Time
	Routes   []httpapi.Route
	Ahead    []string                      // migrations of a database behind those of this release
	Store    func(store.Store) store.Store // what stands in front of the store
	KeyCache time.Duration
	Requests time.Duration // what a rotation of keys leaves requests under way; for tests that make both
	Listener net.Listener  // default: one on a free port
	StoreURL string        // of a database; default: what the environment chooses
	Alone    bool          // one node whatever the environment says: the test is about a bound that each has for itself
}

// Start starts a server and waits until it is ready.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	if o.Data == "" {
		o.Data = filepath.Join(t.TempDir(), "data")
	}
	k := &Server{Data: o.Data, Log: &Log{}}
	database := storeOf(t, o)
	t.Cleanup(func() { k.end(t) }) // before the database goes
	k.nodes = append(k.nodes, startNode(t, o, database, k.Log))
	if os.Getenv(nodesVariable) == "2" && len(database) > 0 && o.StoreURL == "" && o.Listener == nil && !o.Alone {
		second := o
		second.Data = filepath.Join(t.TempDir(), "data")
		second.Settings = map[string]string{"kek.file": filepath.Join(o.Data, "dev-kek.json")} // which the first has made
		maps.Copy(second.Settings, o.Settings)
		second.Ahead = []string{pgtest.Tomorrow}
		k.nodes = append(k.nodes, startNode(t, second, database, k.Log))
	}
	k.chance = newChance(t, len(k.nodes))
	k.Server, k.URL, k.Client = k.nodes[0].Server, k.nodes[0].BaseURL(), client(t, k.nodes, k.chance)
	k.Client.Transport = watched(t, o, k.Client.Transport)
	return k
}

// end stops what is left at the end of a test.
func (s *Server) end(t testing.TB) {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Errorf("stop server: %v", err)
	}
	if !t.Failed() {
		return
	}
	for line := range strings.Lines(s.Log.String()) { // what went wrong inside is nowhere else
		if strings.Contains(line, `"level":"ERROR`) {
			t.Log(line)
		}
	}
	if len(s.nodes) > 1 {
		t.Logf("%s=%d chooses the same nodes again", seedVariable, s.chance.seed)
	}
}

// startNode starts one server of an installation.
func startNode(t testing.TB, o Options, database []string, log *Log) *node {
	t.Helper()
	settings := map[string]string{
		"addr": "127.0.0.1:0", "data": o.Data, "environment": "test", "log.level": "debug", "drain.delay": "0s", "drain.timeout": "5m",
		"sandbox.level": "off", "kek.timeout": "1h", // a slow machine is no outage
	}
	maps.Copy(settings, o.Settings)
	conf, err := config.Load("", database, settings)
	if err != nil {
		t.Fatal(err)
	}
	conf.Dev = true
	s, err := server.New(t.Context(), conf, server.Options{
		Logger: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Now:    o.Now, Version: "test", Routes: o.Routes, Ahead: o.Ahead, Store: o.Store, KeyCache: o.KeyCache, Requests: o.Requests, Listener: o.Listener,
	})
	if err != nil {
		t.Fatalf("start server: %v", err)
	}
	return run(s, o.Data)
}

// watched returns a transport that holds everything against api/openapi.yaml,
// but for measurements and for servers with rows that only a test has.
func watched(t testing.TB, o Options, next http.RoundTripper) http.RoundTripper {
	if t, ok := t.(*testing.T); ok && len(o.Routes) == 0 {
		return openapitest.NewWatch(t, openapitest.For(t, cmp.Or(o.Settings["header_prefix"], api.DefaultPrefix)), next)
	}
	return next
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
	if settings := os.Getenv(childVariable); settings != "" { // it is a server of a farm
		if err := serve(settings); err != nil {
			fmt.Println("error:", err)
			return 1
		}
		return 0
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
		for _, n := range s.nodes {
			s.err = errors.Join(s.err, n.stop())
		}
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
