package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/server"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

const (
	deliveries = 100
	kills      = 4
)

// TestNoDeliveryIsLostToAKill asks for runs with callbacks while the server is
// killed again and again, and waits until each was delivered. A run that was cut
// off is delivered too: as an error that says so.
func TestNoDeliveryIsLostToAKill(t *testing.T) {
	storetest.Long(t)
	if testing.Short() {
		t.Skip("it waits for leases of servers that were killed")
	}
	built := runtimetest.Find(t)
	for name, variables := range map[string]func(*testing.T) []string{
		"sqlite":   func(*testing.T) []string { return nil },
		"postgres": func(t *testing.T) []string { return []string{"TOKENKEEP_STORE_URL=" + pgtest.Database(t)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			killedOver(t, built.Folder, variables(t))
		})
	}
}

func killedOver(t *testing.T, runtime string, variables []string) {
	data := filepath.Join(t.TempDir(), "data")
	var base atomic.Value // of the server that runs at the moment
	open := func() *process {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self, "dev", "--addr", "127.0.0.1:0", "--data", data)
		cmd.Env = append(variables[:len(variables):len(variables)], "TOKENKEEP_SANDBOX_RUNTIME="+runtime, "TOKENKEEP_SANDBOX_LEVEL=reduced")
		p := startCommand(t, cmd)
		base.Store(p.url)
		return p
	}
	var mu sync.Mutex // guards ids
	ids := make(map[string]map[string]bool)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		defer mu.Unlock()
		if ids[r.URL.Path] == nil {
			ids[r.URL.Path] = make(map[string]bool)
		}
		ids[r.URL.Path][r.Header.Get("Webhook-Id")] = true
	}))
	defer receiver.Close()

	p := open()
	var keys server.DevKeys
	b, err := os.ReadFile(filepath.Join(data, "dev-keys.json"))
	if err == nil {
		err = json.Unmarshal(b, &keys)
	}
	if err != nil {
		t.Fatal(err)
	}
	post := func(path, key, idempotency, body string) (int, []byte) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base.Load().(string)+path, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0, nil
		}
		r.Header.Set("SVC-API-KEY", key)
		r.Header.Set("SVC-IDEMPOTENCY-KEY", idempotency)
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, nil // it was killed
		}
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			return 0, nil
		}
		return answer.StatusCode, text
	}
	status, text := post("/reactors", keys.ManagementKey, "define", `{"name":"r","configuration":{},"code":"module.exports = async (req) => ({ raw: req.args })"}`)
	var made struct{ ID string }
	if json.Unmarshal(text, &made) != nil || status != http.StatusCreated {
		t.Fatalf("POST /reactors = %d %s", status, text)
	}

	var asking sync.WaitGroup
	turn := make(chan int, deliveries)
	for i := range deliveries {
		turn <- i
	}
	close(turn)
	for range 4 {
		asking.Go(func() {
			for i := range turn {
				path, body := "/reactors/"+made.ID+"/react", fmt.Sprintf(`{"args":{"i":%d},"callback_url":"%s/%d"}`, i, receiver.URL, i)
				// Whatever is not its answer may be from somebody who took the
				// port of the killed server.
				waittest.Succeeds(t, fmt.Sprintf("run %d is accepted", i), func() error {
					if status, _ := post(path, keys.PrivateKey, fmt.Sprintf("run-%d", i), body); status != http.StatusAccepted {
						return fmt.Errorf("the status is %d", status)
					}
					return nil
				})
			}
		})
	}
	for range kills {
		waittest.Sometime(300 * time.Millisecond) // a kill at a random moment is the point
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		p.wait()
		p = open()
	}
	asking.Wait()
	waittest.Until(t, "every run is delivered", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(ids) == deliveries
	})
	mu.Lock()
	defer mu.Unlock()
	for path, of := range ids {
		if len(of) != 1 || of[""] {
			t.Errorf("the deliveries to %s have %d ids, want one", path, len(of))
		}
	}
	if code := p.end(); code != 0 {
		t.Errorf("SIGTERM ended the server with %d: %s", code, p.errOut)
	}
}
