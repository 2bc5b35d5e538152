package hostile_test

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// house is a server in a process of its own, so that it has its own bound on
// open files, and somebody who uses it as it is meant.
type house struct {
	t       *testing.T
	farm    *keeptest.Farm
	address string
	key     string
}

func newHouse(t *testing.T, settings map[string]string) *house {
	t.Helper()
	// All connections come from one address here: what is tested is not the limit of it.
	unlimited := map[string]string{"limits.connections": "20000", "limits.connections_per_address": "0"}
	maps.Copy(unlimited, settings)
	h := &house{t: t, farm: keeptest.NewFarm(t, 1, "", unlimited)}
	h.address = strings.TrimPrefix(h.farm.URL, "http://")
	var tenant api.CreatedTenant
	if err := h.farm.Operator().Call(t.Context(), http.MethodPost, "/tenants", api.CreateTenant{Name: "Tenant"}, &tenant); err != nil {
		t.Fatal(err)
	}
	var made api.Application
	err := h.farm.Operator().Call(t.Context(), http.MethodPost, "/tenants/"+tenant.Tenant.ID+"/applications", api.CreateApplication{
		Name: "server", Type: "private", Permissions: []string{"token:create"},
	}, &made)
	if err != nil {
		t.Fatal(err)
	}
	h.key = made.Key
	return h
}

// served uses the server so many times, each on a connection of its own.
func (h *house) served(times int) {
	h.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for i := range times {
		r, err := http.NewRequest(http.MethodPost, h.farm.URL+"/tokens", strings.NewReader(fmt.Sprintf(`{"type":"token","data":%d}`, i)))
		if err != nil {
			h.t.Fatal(err)
		}
		r.Header.Set(api.Header(api.DefaultPrefix, api.APIKey), h.key)
		r.Header.Set("Content-Type", api.MediaJSON)
		response, err := client.Do(r)
		if err != nil {
			h.t.Fatalf("good traffic was not served: %v", err)
		}
		_, err = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusCreated {
			h.t.Fatalf("good traffic was answered with %d, %v", response.StatusCode, err)
		}
	}
}

// connect opens so many connections and sends a text on each.
func (h *house) connect(n int, text string) []net.Conn {
	h.t.Helper()
	connections := make([]net.Conn, n)
	var failed error
	var mu sync.Mutex // guards failed
	var dialling sync.WaitGroup
	next := make(chan int)
	for range 32 {
		dialling.Go(func() {
			for i := range next {
				c, err := net.Dial("tcp", h.address)
				if err == nil {
					_, err = io.WriteString(c, text)
					connections[i] = c
				}
				if err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	dialling.Wait()
	h.t.Cleanup(func() {
		for _, c := range connections {
			if c != nil {
				_ = c.Close()
			}
		}
	})
	if failed != nil {
		h.t.Fatalf("connect: %v", failed)
	}
	return connections
}

// Those who send a byte now and then are cut off in the end, and nobody else
// notices them.
func TestSlowHeadersAndBodiesKeepNobodyFromBeingServed(t *testing.T) {
	storetest.Long(t)
	h := newHouse(t, map[string]string{"timeout.read_header": "6s", "timeout.read": "6s"})
	n := storetest.Rounds(500, 2000)
	slow := h.connect(n, "POST /tokens HTTP/1.1\r\nHost: a\r\nX-A: ")
	slow = append(slow, h.connect(n, "POST /tokens HTTP/1.1\r\nHost: a\r\nSVC-API-KEY: "+h.key+"\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{")...)
	stop := make(chan struct{})
	var dripping sync.WaitGroup
	dripping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				waittest.Sometime(200 * time.Millisecond)
			}
			for _, c := range slow {
				_, _ = io.WriteString(c, " ")
			}
		}
	})
	h.served(50)
	close(stop)
	dripping.Wait()
	for _, c := range slow { // however slowly they send, the server has had enough
		_, _ = io.Copy(io.Discard, c)
	}
	h.served(10)
}

func TestIdleConnectionsKeepNobodyFromBeingServed(t *testing.T) {
	h := newHouse(t, nil)
	n := storetest.Rounds(1000, 10_000)
	h.connect(n/2, "")                                           // which never send anything
	h.connect(n-n/2, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n") // which have had an answer
	h.served(100)
	t.Logf("%d idle connections", n)
}

// TestSlowHTTPTest lets a tool of others' try.
func TestSlowHTTPTest(t *testing.T) {
	if !storetest.Soak() {
		t.Skip("it takes minutes: make soak runs it")
	}
	tool, err := exec.LookPath("slowhttptest")
	if err != nil {
		t.Fatal("slowhttptest is not installed (Debian: slowhttptest)")
	}
	h := newHouse(t, nil)
	for name, arguments := range map[string][]string{
		"slow headers": {"-H", "-i", "5", "-t", "GET"}, "slow bodies": {"-B", "-i", "5", "-s", "100000", "-t", "POST"}, "slow reading": {"-X", "-w", "1", "-y", "10", "-n", "5", "-z", "5", "-k", "3"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(tool, append(arguments, "-c", "1000", "-r", "200", "-l", "60", "-p", "5", "-u", h.farm.URL+"/healthz")...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- cmd.Wait() }()
			for ended := false; !ended; {
				h.served(5)
				select {
				case <-done:
					ended = true
				default:
					waittest.Sometime(2 * time.Second)
				}
			}
		})
	}
}
