// Package rotation_test changes keys under a server that is at work, and stops
// the change half-way again and again.
package rotation_test

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
	"github.com/tokenkeep/tokenkeep/test/openapitest"
)

const (
	applications = 60 // several steps of a rotation
	kills        = 20
	restarts     = 4 // of the kills, those that stop the whole server
)

// keyCache is long enough for a request on PostgreSQL, which takes several
// round trips.
func keyCache() time.Duration {
	if os.Getenv("KEEPTEST_STORE") == "postgres" {
		return 150 * time.Millisecond
	}
	return 10 * time.Millisecond
}

// requests is how long a request may take on a busy machine.
const requests = 3 * time.Second

// house is a server that comes back on the same data and the same socket.
type house struct {
	t      *testing.T
	socket net.Listener
	data   string
	server *keeptest.Server
}

func (h *house) open() {
	h.t.Helper()
	f, err := h.socket.(*net.TCPListener).File()
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	l, err := net.FileListener(f)
	if err != nil {
		h.t.Fatal(err)
	}
	h.server = keeptest.Start(h.t, keeptest.Options{Data: h.data, Listener: l, KeyCache: keyCache(), Requests: requests, Settings: map[string]string{"drain.delay": "40ms"}})
}

// status asks the running server for its keys.
func (h *house) status() (s admin.KeyStatus) {
	h.t.Helper()
	if err := h.server.Operator().Call(h.t.Context(), http.MethodGet, "/keys", nil, &s); err != nil {
		h.t.Fatalf("key status: %v", err)
	}
	return s
}

// rotate runs both rotations until they are done or ctx ends.
func (h *house) rotate(ctx context.Context, tenant string) error {
	var wg sync.WaitGroup
	var errs [2]error
	for i, path := range []string{"/keys/rotate-kek", "/tenants/" + tenant + "/rotate-key"} {
		wg.Go(func() {
			_, errs[i] = h.server.Operator().Follow(ctx, http.MethodPost, path, nil, func(admin.Progress) error { return nil })
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// client calls the server over and over until stop is closed.
func client(t *testing.T, stop <-chan struct{}, answered *atomic.Int64, call func() (*http.Request, error)) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	c := &http.Client{Transport: openapitest.NewWatch(t, openapitest.Load(t), transport)}
	for failures := 0; failures < 5; {
		select {
		case <-stop:
			return
		default:
		}
		r, err := call()
		if err != nil {
			t.Error(err)
			return
		}
		response, err := c.Do(r)
		if err != nil {
			t.Errorf("after %d answers: %v", answered.Load(), err)
			failures++
			continue
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("after %d answers: %s %s = %d %s, %v", answered.Load(), r.Method, r.URL.Path, response.StatusCode, body, err)
			failures++
			continue
		}
		answered.Add(1)
	}
}

func TestKeysAreRotatedUnderLoadWhateverCutsItShort(t *testing.T) {
	storetest.Long(t)
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	h := &house{t: t, socket: socket, data: filepath.Join(t.TempDir(), "data")}
	h.open()
	made := h.server.Tenant(t)
	tenant, manager := made.Tenant.ID, made.Application.Key
	grant := api.CreateApplication{
		Type: "private", Rules: []api.Rule{{Description: "x", Container: "/", Transform: "mask", Permissions: []string{"token:read"}}},
	}
	var keys, ids []string
	for range applications {
		a := h.server.Application(t, tenant, grant)
		keys, ids = append(keys, a.Key), append(ids, a.ID)
	}
	before := h.status()
	if len(before.Tenants) != 1 || len(before.Tenants[0].Keys) != 1 {
		t.Fatalf("the keys are %+v", before)
	}

	// They authenticate, read what was sealed before, and seal anew.
	request := func(method, path, key, body string) (*http.Request, error) {
		r, err := http.NewRequest(method, "http://"+socket.Addr().String()+path, strings.NewReader(body))
		if err == nil {
			r.Header.Set(api.Header(api.DefaultPrefix, api.APIKey), key)
			r.Header.Set("Content-Type", api.MediaJSON)
			r.Header["Idempotency-Key"] = nil // lets net/http repeat it where a connection was closed before it came; it is not sent
		}
		return r, err
	}
	var answered atomic.Int64
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for _, call := range []func() (*http.Request, error){
		func() (*http.Request, error) {
			return request("GET", "/applications/key", keys[rand.IntN(len(keys))], "")
		},
		func() (*http.Request, error) { return request("GET", "/applications?size=100", manager, "") },
		func() (*http.Request, error) {
			const body = `{"name":"changed","rules":[{"container":"/a/","transform":"redact","permissions":["token:read"]}]}`
			return request("PUT", "/applications/"+ids[rand.IntN(len(ids))], manager, body)
		},
		func() (*http.Request, error) { return request("POST", "/tenants/self/callback-secret", manager, "") },
	} {
		clients.Go(func() { client(t, stop, &answered, call) })
	}

	finished, cut := 0, 0
	for kill := 0; kill < kills || cut == 0; kill++ { // until one was cut short
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			waittest.Sometime(150 * time.Millisecond)
			cancel()
		}()
		done := make(chan error, 1)
		go func() { done <- h.rotate(ctx, tenant) }()
		if kill%(kills/restarts) == kills/restarts-1 {
			<-ctx.Done()
			if err := h.server.Stop(); err != nil {
				t.Fatalf("stop %d: %v", kill, err)
			}
			h.open()
		}
		if <-done == nil {
			finished++
		} else {
			cut++
		}
		cancel()
	}
	if err := h.rotate(t.Context(), tenant); err != nil {
		t.Fatalf("the last rotation: %v", err)
	}
	under := answered.Load()
	waittest.Until(t, "answers under load", func() bool { return answered.Load() >= max(under+20, 40) })
	close(stop)
	clients.Wait()
	t.Logf("%d answers, %d of %d rotations were cut short", answered.Load(), cut, cut+finished)
	h.nothingIsLeft(tenant, before, append(keys, manager))
}

// nothingIsLeft checks that no old key is needed, and drops them.
func (h *house) nothingIsLeft(tenant string, before admin.KeyStatus, keys []string) {
	h.t.Helper()
	after := h.status()
	now := after.Tenants[0]
	if after.Primary == before.Primary || len(now.KEKs) != 1 || now.KEKs[0] != after.Primary {
		h.t.Errorf("the tenant's keys are wrapped by %v, want %s alone", now.KEKs, after.Primary)
	}
	if len(now.Keys) != 1 || !now.Keys[0].Primary || now.Keys[0].ID == before.Tenants[0].Keys[0].ID || now.Rotation != "retired" {
		h.t.Errorf("the data keys are %+v in a rotation that is %q", now.Keys, now.Rotation)
	}
	for _, id := range after.KEKs {
		err := h.server.Operator().Call(h.t.Context(), http.MethodPost, "/keys/drop-kek", admin.DropKEK{ID: id}, nil)
		if (err == nil) != (id != after.Primary) {
			h.t.Errorf("drop key-encryption key %s of primary %s: %v", id, after.Primary, err)
		}
	}
	if err := h.server.Stop(); err != nil {
		h.t.Fatal(err)
	}
	if os.Getenv("KEEPTEST_STORE") != "postgres" {
		h.sealedWith(tenant, now.Keys[0].ID)
	}
	h.open()
	if after := h.status(); len(after.KEKs) != 1 {
		h.t.Errorf("the key-encryption keys are %v, want one", after.KEKs)
	}
	for i, key := range keys {
		if got := h.server.Call(h.t, "GET", "/applications/key", key, ""); got.Status != http.StatusOK {
			h.t.Errorf("key %d after the restart = %s", i, got)
		}
	}
}

// sealedWith reads from the file which key every value names.
func (h *house) sealedWith(tenant, key string) {
	h.t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(h.data, "tokenkeep.db"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	rows, err := db.Query("SELECT rules FROM applications UNION ALL SELECT secrets FROM tenants")
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	n := 0
	for rows.Next() {
		var sealed []byte
		if err := rows.Scan(&sealed); err != nil {
			h.t.Fatal(err)
		}
		// Behind our byte and Tink's stands the id of the key.
		if got := fmt.Sprintf("%08x", binary.BigEndian.Uint32(sealed[2:])); got != key {
			h.t.Errorf("a value is sealed with key %s, want %s", got, key)
		}
		n++
	}
	if err := rows.Err(); err != nil || n != applications+2 {
		h.t.Errorf("%d sealed values, %v; want %d", n, err, applications+2)
	}
}
