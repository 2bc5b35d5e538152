package bench_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// peer is another system that keeps values. It is started by whoever measures, with
// the durability and the audit log that are to be compared, and named by its URL.
type peer struct {
	name      string // of its variables too: PEER_<NAME>_URL, _TOKEN and _PID
	url, auth string
	// store keeps a card and returns the path that reads it.
	store func(p peer, c *http.Client, n int64) (path string, err error)
	// headers go with every request.
	headers func(p peer) map[string]string
}

// peers are the systems that there are adapters for. A new one is a row.
var peers = []peer{
	{name: "vault", store: storeInKV, headers: vaultHeaders},
	{name: "openbao", store: storeInKV, headers: vaultHeaders},
	{name: "databunker", store: storeInDatabunker, headers: func(p peer) map[string]string { return map[string]string{"X-Bunker-Token": p.auth} }},
}

func vaultHeaders(p peer) map[string]string { return map[string]string{"X-Vault-Token": p.auth} }

// storeInKV writes a new secret to the engine of kv version 2 that is mounted at secret/.
func storeInKV(p peer, c *http.Client, n int64) (string, error) {
	path := "/v1/secret/data/bench-" + strconv.FormatInt(n, 10)
	_, err := p.ask(c, http.MethodPost, path, `{"data":`+peerCard(n)+`}`)
	return path, err
}

// storeInDatabunker makes a record of a user, which has the card in it.
func storeInDatabunker(p peer, c *http.Client, n int64) (string, error) {
	text, err := p.ask(c, http.MethodPost, "/v1/user", fmt.Sprintf(`{"login":"bench-%d","card":%s}`, n, peerCard(n)))
	if err != nil {
		return "", err
	}
	var made struct{ Token string }
	if err := json.Unmarshal([]byte(text), &made); err != nil || made.Token == "" {
		return "", errors.New("the peer returns no token")
	}
	return "/v1/user/token/" + made.Token, nil
}

func peerCard(n int64) string {
	return `{"number":"` + cardNumber(n) + `","expiration_month":12,"expiration_year":2031}`
}

// ask calls a peer. Its responses of 2xx are all good.
func (p peer) ask(c *http.Client, method, path, body string) (string, error) {
	r, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	for name, value := range p.headers(p) {
		r.Header.Set(name, value)
	}
	text, err := answer(c, r, http.StatusOK)
	var other *statusError
	if errors.As(err, &other) && other.got/100 == 2 {
		err = nil
	}
	return text, err
}

// BenchmarkPeers compares ours with the peers whose URLs are set, in alternating
// turns: a stored card, and the read of one of those that were stored.
func BenchmarkPeers(b *testing.B) {
	for _, p := range peers {
		variable := "PEER_" + strings.ToUpper(p.name)
		p.url, p.auth = strings.TrimSuffix(os.Getenv(variable+"_URL"), "/"), os.Getenv(variable+"_TOKEN")
		if p.url == "" {
			continue
		}
		pid, _ := strconv.Atoi(os.Getenv(variable + "_PID")) // without it, its processor time is not known
		b.Run(p.name, func(b *testing.B) {
			ours := serve(b, "", nil)
			ids := ours.create(b, 200)
			// A new run must not find the secrets of the one before.
			first := time.Now().Unix() % 1_000_000 * 100_000
			var paths []string
			for i := range int64(200) {
				path, err := p.store(p, ours.client, first+i)
				if err != nil {
					b.Fatal(err)
				}
				paths = append(paths, path)
			}
			for _, n := range []int{1, 32} {
				b.Run(fmt.Sprint(n), func(b *testing.B) {
					var mu sync.Mutex // guards next
					next := first + int64(n)*10_000
					f := withCPU(pid, measure(b, n, ours.creating(), side{p.name, pid, func(int, int64) error {
						mu.Lock()
						next++
						number := next
						mu.Unlock()
						_, err := p.store(p, ours.client, number)
						return err
					}}))
					against(named("store a card", n), p.name, f[0], f[1], 1)
					f = withCPU(pid, measure(b, n, side{"read", ours.pid(), func(_ int, i int64) error {
						_, err := ours.ask("GET", "/tokens/"+ids[i%200], ours.revealing, "", 200)
						return err
					}}, side{p.name, pid, func(_ int, i int64) error {
						_, err := p.ask(ours.client, http.MethodGet, paths[i%200], "")
						return err
					}}))
					against(named("read it", n), p.name, f[0], f[1], 1)
				})
			}
		})
	}
}

// withCPU leaves out the processor time of a peer whose process is not known.
func withCPU(pid int, f []figure) []figure {
	if pid == 0 {
		f[1].cpu = 0
	}
	return f
}

// TestPeersAreCalledAsTheyDocument lets the adapters talk to servers that answer
// as the peers' own documentation shows.
func TestPeersAreCalledAsTheyDocument(t *testing.T) {
	for _, c := range []struct{ name, header, made, read, response string }{
		{"vault", "X-Vault-Token", "POST /v1/secret/data/bench-7", "GET /v1/secret/data/bench-7", `{"data":{"version":1}}`},
		{"openbao", "X-Vault-Token", "POST /v1/secret/data/bench-7", "GET /v1/secret/data/bench-7", `{"data":{"version":1}}`},
		{"databunker", "X-Bunker-Token", "POST /v1/user", "GET /v1/user/token/a-token", `{"status":"ok","token":"a-token"}`},
	} {
		var asked []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.Method+" "+r.URL.Path)
			if r.Header.Get(c.header) != "credential" {
				w.WriteHeader(http.StatusForbidden)
			}
			_, _ = w.Write([]byte(c.response))
		}))
		for _, p := range peers {
			if p.name != c.name {
				continue
			}
			p.url, p.auth = server.URL, "credential"
			path, err := p.store(p, server.Client(), 7)
			if err == nil {
				_, err = p.ask(server.Client(), http.MethodGet, path, "")
			}
			if got, want := strings.Join(asked, ", "), c.made+", "+c.read; err != nil || got != want {
				t.Errorf("%s: asked %s, error %v; want %s", c.name, got, err, want)
			}
			p.auth = "another"
			if _, err := p.store(p, server.Client(), 8); err == nil {
				t.Errorf("%s: a refusal is no error", c.name)
			}
		}
		server.Close()
	}
}
