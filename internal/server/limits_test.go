package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/limit"
	"github.com/tokenkeep/tokenkeep/internal/server"
)

// want fails the test when an answer has another status.
func want(t *testing.T, status int, got keeptest.Answer) {
	t.Helper()
	if got.Status != status {
		t.Errorf("the answer is %d %.200s, want %d", got.Status, got.Body, status)
	}
}

// backend makes a tenant with a private key that does everything with tokens.
func backend(t *testing.T, k *keeptest.Server) (tenant, key string) {
	t.Helper()
	tenant = k.Tenant(t).Tenant.ID
	return tenant, k.Application(t, tenant, api.CreateApplication{Type: "private", Rules: []api.Rule{{
		Container: "/", Transform: "reveal", Permissions: []string{"token:create", "token:read", "token:update", "token:delete", "token:search", "token:use"},
	}}}).Key
}

func TestLargeTokensOfOneTenantLeaveMemoryForOthers(t *testing.T) {
	const size = 64 << 20
	k := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"limits.request_memory": "67108864"}, Alone: true})
	_, attacker := backend(t, k)
	_, shop := backend(t, k)
	large := `"` + strings.Repeat("x", 1<<20) + `"`
	for i := range 12 {
		want(t, 201, k.Call(t, "POST", "/tokens", attacker, fmt.Sprintf(`{"type":"token","id":"large-%d","data":%s}`, i, large)))
	}
	all := make([]string, 12)
	for i := range all {
		all[i] = fmt.Sprintf(`"{{ large-%d | slice: 0, 1 }}"`, i)
	}
	for name, call := range map[string]func() keeptest.Answer{
		"a detokenization of 12 MiB": func() keeptest.Answer {
			return k.Call(t, "POST", "/detokenize", attacker, "["+strings.Join(all, ",")+"]")
		},
		"a list of 12 MiB":   func() keeptest.Answer { return k.Call(t, "GET", "/tokens?size=100", attacker, "") },
		"a search of 12 MiB": func() keeptest.Answer { return k.Call(t, "POST", "/tokens/search", attacker, `{"query":"type:token"}`) },
		"a list by ids": func() keeptest.Answer {
			return k.Call(t, "GET", "/v2/tokens?size=100&id="+strings.Join(ids(12), "&id="), attacker, "")
		},
	} {
		if got := call(); got.Status != 413 || !strings.Contains(got.Body, `"request_too_heavy"`) {
			t.Errorf("%s = %d %.200s, want 413 request_too_heavy", name, got.Status, got.Body)
		}
		if used := k.Memory().Used(); used != 0 {
			t.Errorf("after %s %d bytes are held", name, used)
		}
	}
	var attack sync.WaitGroup
	for range 6 {
		attack.Go(func() {
			for range 2 {
				got := k.Call(t, "POST", "/detokenize", attacker, "["+strings.Join(all[:4], ",")+"]")
				if got.Status != 200 && got.Status != 503 {
					t.Errorf("a detokenization of 4 MiB = %d %.200s, want 200 or 503", got.Status, got.Body)
				}
			}
		})
	}
	for i := range 12 {
		id := fmt.Sprintf("shop-%d", i)
		want(t, 201, k.Call(t, "POST", "/tokens", shop, `{"type":"token","id":"`+id+`","data":"4242424242424242"}`))
		want(t, 200, k.Call(t, "GET", "/tokens/"+id, shop, ""))
		want(t, 200, k.Call(t, "POST", "/detokenize", shop, `{"a":"{{ `+id+` }}"}`))
	}
	attack.Wait()
	if p := k.Memory(); p.Peak() > size || p.Used() != 0 {
		t.Errorf("requests held at most %d bytes and now %d, want at most %d and 0", p.Peak(), p.Used(), size)
	}
}

func ids(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("large-%d", i)
	}
	return list
}

func TestTheMemoryOfTheMachineIsThatOfItsContainer(t *testing.T) {
	const meminfo = "MemTotal:        4194304 kB\nMemFree:          131072 kB\n"
	for name, tt := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"a machine":                     {map[string]string{"proc/meminfo": meminfo}, 4 << 30},
		"a container without a bound":   {map[string]string{"proc/meminfo": meminfo, "sys/fs/cgroup/memory.max": "max\n"}, 4 << 30},
		"a container":                   {map[string]string{"proc/meminfo": meminfo, "sys/fs/cgroup/memory.max": "536870912\n"}, 512 << 20},
		"a container of the first kind": {map[string]string{"proc/meminfo": meminfo, "sys/fs/cgroup/memory/memory.limit_in_bytes": "268435456\n"}, 256 << 20},
		"a system without such files":   {nil, 2 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range tt.files {
				path := filepath.Join(root, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := server.TotalMemory(root); got != tt.want {
				t.Errorf("totalMemory = %d, want %d", got, tt.want)
			}
		})
	}
}

// connect opens a connection from an address of this machine and reports
// whether a request on it is answered.
func connect(t *testing.T, k *keeptest.Server, from string) (c net.Conn, served bool) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(k.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		return c, false
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return c, false
	}
	_ = answer.Body.Close()
	return c, answer.StatusCode == 200
}

func TestConnectionsOfOneAddressLeaveRoomForOthers(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{Settings: map[string]string{
		"limits.connections": "20", "limits.connections_per_address": "5", "trusted_proxies": "127.0.0.9/32",
	}, Alone: true})
	var attackers []net.Conn
	for {
		c, served := connect(t, k, "127.0.0.1")
		if !served {
			break
		}
		attackers = append(attackers, c)
	}
	if len(attackers) != 5 {
		t.Errorf("one address got %d connections, want 5", len(attackers))
	}
	if _, served := connect(t, k, "127.0.0.2"); !served {
		t.Error("another address was not served")
	}
	for i := range 8 {
		if _, served := connect(t, k, "127.0.0.9"); !served {
			t.Errorf("connection %d of a trusted proxy was not served", i)
		}
	}
	_ = attackers[0].Close()
	for {
		if _, served := connect(t, k, "127.0.0.1"); served { // once the server has noticed
			break
		}
	}
	var status admin.Status
	if err := k.Operator().Call(t.Context(), "GET", "/status", nil, &status); err != nil {
		t.Fatal(err)
	}
	if len(status.LimitsReached) != 1 || status.LimitsReached[0].Name != limit.AddressConnections {
		t.Errorf("the limits reached are %v, want address_connections", status.LimitsReached)
	}
}

func TestConnectionsBeyondTheCapAreClosed(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"limits.connections": "4", "limits.connections_per_address": "0", "metrics_addr": "127.0.0.1:0"}, Alone: true})
	var open []net.Conn
	for {
		c, served := connect(t, k, "127.0.0.1")
		if !served {
			break
		}
		open = append(open, c)
	}
	if len(open) != 4 {
		t.Errorf("%d connections were served at once, want 4", len(open))
	}
	if _, served := connect(t, k, "127.0.0.2"); served {
		t.Error("another address was served beyond the cap")
	}
	_ = open[0].Close()
	for {
		if _, served := connect(t, k, "127.0.0.1"); served {
			return
		}
	}
}

func TestTokensAreCountedWhereverTheyAreAccessed(t *testing.T) {
	clock := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	k := keeptest.Start(t, keeptest.Options{Now: func() time.Time { return clock }, Alone: true, Settings: map[string]string{
		"rate_limit.public_requests": "20", "rate_limit.public_tokens": "50", "rate_limit.public_key_tokens": "2000", "trusted_proxies": "127.0.0.0/8",
	}})
	tenant, private := backend(t, k)
	public := k.Application(t, tenant, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}}).Key
	var session api.CreatedSession
	k.Call(t, "POST", "/sessions", public, "", "X-Forwarded-For", "192.0.2.200").Into(t, 201, &session)
	want(t, 200, k.Call(t, "POST", "/sessions/authorize", private, fmt.Sprintf(`{"nonce":%q,"rules":[{"description":"all","container":"/","transform":"reveal","permissions":["token:read","token:search"]}]}`, session.Nonce)))
	for _, id := range []string{"one", "two", "three"} {
		want(t, 201, k.Call(t, "POST", "/tokens", private, `{"type":"token","id":"`+id+`","data":"value of `+id+`","search_indexes":["{{ data }}"]}`))
	}
	for i, tt := range []struct {
		name, method, path, key, body string
		tokens                        int
		headers                       []string
	}{
		{"tokenize", "POST", "/tokenize", public, `{"a":"x","b":["y","z"]}`, 3, nil},
		{"create", "POST", "/tokens", public, `{"type":"token","data":"x"}`, 1, []string{"SVC-IDEMPOTENCY-KEY", "a-key-that-is-long-enough-to-count"}},
		{"the same create again", "POST", "/tokens", public, `{"type":"token","data":"x"}`, 1, []string{"SVC-IDEMPOTENCY-KEY", "a-key-that-is-long-enough-to-count"}},
		{"a read", "GET", "/tokens/one", session.SessionKey, "", 1, nil},
		{"a read of nothing", "GET", "/tokens/none", session.SessionKey, "", 1, nil},
		{"a detokenization", "POST", "/detokenize", session.SessionKey, `["{{ one }}","{{ two }}","{{ one }}"]`, 2, nil},
		{"a list", "GET", "/tokens?id=one&id=two&id=none", session.SessionKey, "", 2, nil},
		{"a search that guesses", "POST", "/tokens/search", session.SessionKey, `{"query":"data:guess OR data:another OR fingerprint:third"}`, 3, nil},
		{"a search that finds", "POST", "/v2/tokens/search", session.SessionKey, `{"query":"data:\"value of one\""}`, 2, nil},
		{"nothing of tokens", "GET", "/applications/key", public, "", 0, nil},
	} {
		from := fmt.Sprintf("192.0.2.%d", i+1)
		got := k.Call(t, tt.method, tt.path, tt.key, tt.body, append(tt.headers, "X-Forwarded-For", from)...)
		if want := fmt.Sprintf(`"tokens";r=%d;`, 1000-tt.tokens); got.Status >= 429 || !strings.Contains(got.Header.Get("RateLimit"), want) {
			t.Errorf("%s = %d, RateLimit %s, want %s in it\n%s", tt.name, got.Status, got.Header.Get("RateLimit"), want, got.Body)
		}
	}
	many := `["` + strings.Repeat(`x","`, 999) + `x"]`
	if got := k.Call(t, "POST", "/tokenize", public, many, "X-Forwarded-For", "198.51.100.66"); got.Status != 200 {
		t.Errorf("a first tokenization of 1,000 = %d %.200s, want 200", got.Status, got.Body)
	}
	if got := k.Call(t, "POST", "/tokenize", public, many, "X-Forwarded-For", "198.51.100.66"); got.Status != 429 || got.Header.Get("Retry-After") != "20" || !strings.Contains(got.Body, "token_rate") {
		t.Errorf("a second = %d %.200s, Retry-After %s, want 429 token_rate and 20", got.Status, got.Body, got.Header.Get("Retry-After"))
	}
	if got := k.Call(t, "POST", "/tokenize", public, `{"a":"x"}`, "X-Forwarded-For", "198.51.100.7"); got.Status != 200 {
		t.Errorf("another address = %d, want 200", got.Status)
	}
}

func TestDevelopmentModeHasNoRateLimits(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{})
	public := k.Application(t, k.Tenant(t).Tenant.ID, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}}).Key
	if got := k.Call(t, "GET", "/applications/key", public, ""); got.Status != 200 || got.Header.Get("RateLimit") != "" {
		t.Errorf("a call with a public key = %d, RateLimit %q, want 200 and none", got.Status, got.Header.Get("RateLimit"))
	}
}
