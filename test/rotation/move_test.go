package rotation_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/keyring/kmstest"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/keyring/transit/transittest"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// The key-encryption key moves from a file to a KMS and to another file, by the
// steps of docs/kms.md. Servers are killed at every step, and the command in the
// middle of its work.
func TestTheKEKMovesUnderLoadWhateverIsKilled(t *testing.T) {
	storetest.Long(t)
	for _, installation := range []struct {
		name     string
		servers  int
		storeURL func(testing.TB) string
	}{
		{"sqlite", 1, func(testing.TB) string { return "" }},
		{"two and postgres", 2, pgtest.Database},
	} {
		t.Run(installation.name, func(t *testing.T) {
			if installation.servers > 1 {
				storetest.CheckOnly(t)
			}
			m := newMove(t, installation.servers, installation.storeURL(t))
			m.load()
			for range storetest.Rounds(3, 10) {
				m.to(m.remote)
				m.to(m.file())
			}
			m.finish()
		})
	}
}

// moving is a farm under load whose key-encryption key moves.
type moving struct {
	t      *testing.T
	vault  *transittest.Server
	farm   *keeptest.Farm
	remote string // URI of the key in the KMS
	kek    string // URI of the key that wraps now
	files  int
	cut    int // rotations that were killed before they ended

	stop     atomic.Bool
	clients  sync.WaitGroup
	answered atomic.Int64

	mu     sync.Mutex // guards what follows
	keys   []string   // of applications, one in each tenant
	tokens []made
}

// made is a token that the server acknowledged.
type made struct{ key, id, data string }

// maxTokens bounds what is made: every token is read at the end.
const maxTokens = 500

func newMove(t *testing.T, servers int, storeURL string) *moving {
	t.Helper()
	m := &moving{t: t, vault: transittest.New(t)}
	m.vault.Create("key")
	dir := t.TempDir()
	token, kek := filepath.Join(dir, "token"), filepath.Join(dir, "kek")
	if err := os.WriteFile(token, []byte(transittest.RootToken), 0o600); err != nil {
		t.Fatal(err)
	}
	m.remote, m.kek = m.vault.URI("key", "auth=token&token_file="+token), "file:"+kek
	m.farm = keeptest.NewFarm(t, servers, storeURL, map[string]string{"kek.file": kek})
	for range 4 + storetest.Rounds(10, 20) {
		m.tenant()
	}
	return m
}

// file makes a key in a new file and returns its URI.
func (m *moving) file() string {
	m.t.Helper()
	m.files++
	path := filepath.Join(m.t.TempDir(), fmt.Sprintf("kek-%d", m.files))
	if _, err := localkms.Generate(path); err != nil {
		m.t.Fatal(err)
	}
	return "file:" + path
}

// tenant makes a tenant with an application. The first server does it, so that
// others have to open keys that it wrapped.
func (m *moving) tenant() {
	m.t.Helper()
	var tenant api.CreatedTenant
	if err := m.farm.Operator().Call(m.t.Context(), http.MethodPost, "/tenants", api.CreateTenant{Name: "Tenant"}, &tenant); err != nil {
		m.t.Fatal(err)
	}
	var application api.Application
	err := m.farm.Operator().Call(m.t.Context(), http.MethodPost, "/tenants/"+tenant.Tenant.ID+"/applications", api.CreateApplication{
		Name: "a", Type: "private", Permissions: []string{"token:create", "token:read"}, Rules: []api.Rule{
			{Description: "all", Container: "/", Transform: "reveal", Permissions: []string{"token:create", "token:read"}},
		}}, &application)
	if err != nil {
		m.t.Fatal(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys = append(m.keys, application.Key)
}

// load starts clients that make tokens and read them until the end.
func (m *moving) load() {
	m.t.Cleanup(func() { // a test that failed has ended its context
		m.stop.Store(true)
		m.clients.Wait()
	})
	for n := range 3 {
		m.clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for i := 0; !m.stop.Load() && !m.t.Failed(); i++ {
				if n == 0 && m.makes(client, i) {
					continue
				}
				if token, ok := m.any(); ok {
					m.reads(client, token)
				}
			}
		})
	}
}

// any returns a token that was made.
func (m *moving) any() (made, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.tokens) == 0 {
		return made{}, false
	}
	return m.tokens[rand.IntN(len(m.tokens))], true
}

// makes makes a token, and reports false when there are enough.
func (m *moving) makes(client *http.Client, n int) bool {
	m.mu.Lock()
	enough, key := len(m.tokens) >= maxTokens, m.keys[rand.IntN(len(m.keys))]
	m.mu.Unlock()
	if enough {
		return false
	}
	token := made{key, fmt.Sprintf("moved-%d", n), fmt.Sprintf("value %d", n)}
	status, body, again := m.call(client, http.MethodPost, "/tokens", key, fmt.Sprintf(`{"id":%q,"type":"token","data":%q}`, token.id, token.data))
	// A server that was killed may have stored it before it could respond.
	if status == 0 {
		return true
	}
	if status != http.StatusCreated && !(again && status == http.StatusConflict) {
		m.t.Errorf("a create = %d %s", status, body)
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tokens = append(m.tokens, token)
	return true
}

func (m *moving) reads(client *http.Client, token made) {
	status, body, _ := m.call(client, http.MethodGet, "/tokens/"+token.id, token.key, "")
	if status == 0 {
		return
	}
	var got api.Token
	if err := json.Unmarshal(body, &got); status != http.StatusOK || err != nil || string(got.Data) != fmt.Sprintf("%q", token.data) {
		m.t.Errorf("a read of %s = %d %s", token.id, status, body)
	}
}

// call makes a request, and makes it again when the server that had it was
// killed. A status that is no success is never tried again; 0 says that the test
// has ended.
func (m *moving) call(client *http.Client, method, path, key, body string) (status int, response []byte, again bool) {
	for ; ; again = true {
		r, err := http.NewRequestWithContext(m.t.Context(), method, m.farm.URL+path, strings.NewReader(body))
		if err != nil {
			m.t.Error(err)
			return 0, nil, again
		}
		r.Header.Set(api.Header(api.DefaultPrefix, api.APIKey), key)
		r.Header.Set("Content-Type", api.MediaJSON)
		got, err := client.Do(r)
		if m.t.Context().Err() != nil {
			return 0, nil, again
		}
		if err != nil {
			continue
		}
		response, err = io.ReadAll(got.Body)
		_ = got.Body.Close()
		if err == nil {
			m.answered.Add(1)
			return got.StatusCode, response, again
		}
	}
}

// to moves the key-encryption key by the steps that docs/kms.md lists.
func (m *moving) to(next string) {
	m.t.Helper()
	before, last := m.status().Primary, m.kek
	m.restart(last, next)
	m.restart(next, last)
	m.rotate()
	m.restart(next, "")
	m.kek = next
	m.tenant()
	after := m.status()
	if after.Primary == before || m.unfinished(after) {
		m.t.Fatalf("after a move from %s the keys are %+v", before, after)
	}
	seen := m.answered.Load()
	waittest.Until(m.t, "requests after the move", func() bool { return m.answered.Load() > seen+10 })
}

// restart kills one server after the other and starts it with other keys. In
// between both kinds serve, and a tenant is made.
func (m *moving) restart(kek, also string) {
	m.t.Helper()
	for i, p := range m.farm.Processes {
		waittest.Sometime(30 * time.Millisecond) // a kill at a random moment is the point
		m.farm.Kill(p)
		p.Settings = map[string]string{"kek.file": "", "kek": kek, "kek.also": also}
		m.farm.Start(p)
		if i == 0 {
			m.tenant()
		}
	}
}

// rotate kills the first server in the middle of the command, and runs that again
// until all is done.
func (m *moving) rotate() {
	m.t.Helper()
	first := m.farm.Processes[0]
	killed := false
	err := m.follow(func(p admin.Progress) error {
		if strings.HasPrefix(p.Doing, "wrapped") && !killed {
			killed = true
			m.farm.Kill(first)
		}
		return nil
	})
	if !killed {
		m.t.Fatalf("rotate-kek wrapped nothing: %v", err)
	}
	m.farm.Start(first)
	left := m.unfinished(m.status())
	if left {
		m.cut++
	}
	err = m.follow(func(admin.Progress) error { return nil })
	// When the first run was killed after its last step, there is nothing to do.
	if err != nil && (left || !strings.Contains(err.Error(), "does not let the server rotate")) {
		m.t.Fatalf("rotate-kek, run again = %v", err)
	}
}

func (m *moving) follow(each func(admin.Progress) error) error {
	_, err := m.farm.Operator().Follow(m.t.Context(), http.MethodPost, "/keys/rotate-kek", nil, each)
	return err
}

func (m *moving) status() (s admin.KeyStatus) {
	m.t.Helper()
	if err := m.farm.Operator().Call(m.t.Context(), http.MethodGet, "/keys", nil, &s); err != nil {
		m.t.Fatal(err)
	}
	return s
}

// unfinished reports whether another key than the primary one wraps something.
func (m *moving) unfinished(s admin.KeyStatus) bool {
	return slices.ContainsFunc(s.Tenants, func(t admin.TenantKeys) bool { return !slices.Equal(t.KEKs, []string{s.Primary}) })
}

// finish ends the load and reads every token, on servers that have nothing in
// memory and no KMS.
func (m *moving) finish() {
	m.t.Helper()
	m.stop.Store(true)
	m.clients.Wait()
	m.vault.Fail(kmstest.Down)
	m.restart(m.kek, "")
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for _, token := range m.tokens {
		m.reads(client, token)
	}
	if len(m.tokens) == 0 {
		m.t.Error("no token was made")
	}
	m.t.Logf("%d answers, %d tokens, %d tenants, %d rotations were killed before their end", m.answered.Load(), len(m.tokens), len(m.keys), m.cut)
}
