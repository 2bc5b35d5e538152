// Package compat_test calls the server with clients that exist already, as
// their users do: only the address, the key and the header prefix are set.
package compat_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/test/openapitest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

func TestMain(m *testing.M) { os.Exit(keeptest.Run(m)) }

// clients are the names under which package.json installs them.
var clients = []string{"node-sdk-5", "node-sdk-2", "basis-theory-js-4"}

// world is what main.js reads.
type world struct {
	URL         string          `json:"url"`
	Destination string          `json:"destination"`
	Keys        map[string]keys `json:"keys"`
}

// keys are those of one client, which has a tenant to itself.
type keys struct {
	Tenant             string `json:"tenant"`
	Management         string `json:"management"`
	Private            string `json:"private"`
	PrivateApplication string `json:"privateApplication"`
	Public             string `json:"public"`
	PublicApplication  string `json:"publicApplication"`
	Doomed             string `json:"doomed"` // manages a tenant that the client deletes
}

func TestExistingClientsWorkUnmodified(t *testing.T) {
	storetest.CheckOnly(t)
	built := runtimetest.Find(t)
	node, err := exec.LookPath("node")
	for _, name := range clients {
		if err == nil {
			_, err = os.Stat(filepath.Join("node_modules", name))
		}
	}
	if err != nil {
		if os.Getenv("KEEPTEST_RUNTIME") == "required" {
			t.Fatal(err)
		}
		t.Skip("the clients are not installed: 'make compat' installs them")
	}
	s := keeptest.Start(t, keeptest.Options{Settings: map[string]string{
		"header_prefix": "BT", "optional_configuration": "true", "sandbox.level": "reduced", "sandbox.runtime": built.Folder,
	}})
	destination := httptest.NewServer(newDestination())
	defer destination.Close()
	watch := s.Client.Transport.(*openapitest.Watch)
	watch.Except("POST /reactors") // without a configuration, as the setting has it
	w := world{URL: openapitest.Gate(t, watch, s.URL), Destination: destination.URL, Keys: map[string]keys{}}
	for _, name := range clients {
		w.Keys[name] = keysOf(t, s)
	}
	results := run(t, node, w)
	t.Run("the page names every check", func(t *testing.T) { checkPage(t, results) })
	for _, r := range results {
		t.Run(r.Name, func(t *testing.T) {
			if r.Error != "" {
				t.Error(r.Error)
			}
		})
	}
	for _, value := range []string{"4242424242424242", "key_test_"} {
		if strings.Contains(s.Log.String(), value) {
			t.Errorf("the server's log holds %s", value)
		}
	}
}

func keysOf(t *testing.T, s *keeptest.Server) keys {
	t.Helper()
	tenant := s.Tenant(t)
	private := s.Application(t, tenant.Tenant.ID, api.CreateApplication{Type: "private", Rules: []api.Rule{{
		Container: "/", Transform: "reveal", Permissions: []string{"token:create", "token:read", "token:update", "token:delete", "token:search", "token:use"},
	}}})
	public := s.Application(t, tenant.Tenant.ID, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}})
	return keys{
		Tenant: tenant.Tenant.ID, Management: tenant.Application.Key, Private: private.Key, PrivateApplication: private.ID,
		Public: public.Key, PublicApplication: public.ID, Doomed: s.Tenant(t).Application.Key,
	}
}

// result is a line of what main.js prints. The last line has Done alone: how
// many checks there were.
type result struct {
	Name, Error string
	Done        int
}

func run(t *testing.T, node string, w world) (results []result) {
	t.Helper()
	files, err := filepath.Glob("*.js*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no checks: %v", err)
	}
	for _, name := range files { // so that a change of them is not answered from the test cache
		if _, err := os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	in, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	var words bytes.Buffer
	cmd := exec.CommandContext(t.Context(), node, "main.js")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &words
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node main.js: %v: %s", err, words.String())
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("node main.js printed %s: %v", lines.Text(), err)
		}
		if r.Done > 0 {
			if r.Done != len(results) {
				t.Fatalf("%d of %d checks ran", len(results), r.Done)
			}
			return results
		}
		results = append(results, r)
	}
	t.Fatalf("node main.js did not come to its end: %s", words.String())
	return nil
}

// destination is where proxies and callbacks go: /echo says what came,
// /count/x counts calls for /counted/count/x, and /keep/x keeps a body for
// /kept/keep/x.
type destination struct {
	mu     sync.Mutex // guards counts and bodies
	counts map[string]int
	bodies map[string][]byte
}

func newDestination() *destination {
	return &destination{counts: map[string]int{}, bodies: map[string][]byte{}}
}

func (d *destination) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	path := r.URL.Path
	switch {
	case strings.HasPrefix(path, "/echo"):
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{
			"method": r.Method, "path": r.URL.RequestURI(), "authorization": r.Header.Get("Authorization"), "mine": r.Header.Get("X-Mine"), "body": string(body),
		})
	case strings.HasPrefix(path, "/counted"):
		_, _ = io.WriteString(w, strconv.Itoa(d.counts[strings.TrimPrefix(path, "/counted")]))
	case strings.HasPrefix(path, "/count/"):
		d.counts[path]++
	case strings.HasPrefix(path, "/kept"):
		kept, there := d.bodies[strings.TrimPrefix(path, "/kept")]
		if !there {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(kept)
	case strings.HasPrefix(path, "/keep/"):
		d.bodies[path] = body
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}
