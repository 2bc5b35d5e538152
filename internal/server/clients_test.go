package server_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// document is a row that reads its body as the API's rows do.
var document = httpapi.Route{Pattern: "POST /document", Auth: httpapi.Anonymous, Body: httpapi.JSON, Handle: func(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	var d map[string]any
	if err := httpapi.Decode(r, &d); err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, d)
}}

// all reads until the server closes.
func all(c net.Conn) string {
	b, _ := io.ReadAll(c) // what came before a reset
	return string(b)
}

// drip sends a text a byte at a time until the server closes.
func drip(c net.Conn, text string) {
	for i := range text {
		if _, err := c.Write([]byte{text[i]}); err != nil {
			return
		}
		waittest.Sometime(40 * time.Millisecond)
	}
}

func TestBadClientsDisturbNobody(t *testing.T) {
	storetest.Long(t)
	k := keeptest.Start(t, keeptest.Options{
		Settings: map[string]string{"timeout.read_header": "5s", "timeout.read": "5s", "timeout.idle": "1s"},
		Routes:   append([]httpapi.Route{document}, restartRows...),
	})
	const head = "POST /document HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
	clients := map[string]func(t *testing.T, c *net.TCPConn){
		"a slow header": func(t *testing.T, c *net.TCPConn) {
			go drip(c, "GET /healthz HTTP/1.1\r\nHost: "+strings.Repeat("a", 1000))
			all(c)
		},
		"a slow body": func(t *testing.T, c *net.TCPConn) {
			go drip(c, head+"Content-Length: 1000\r\n\r\n{"+strings.Repeat(" ", 999))
			all(c)
		},
		"a body that stops": func(t *testing.T, c *net.TCPConn) {
			_, _ = io.WriteString(c, head+"Content-Length: 1000\r\n\r\n{")
			if got := all(c); !strings.HasPrefix(got, "HTTP/1.1 408 ") {
				t.Errorf("answer %.100q, want a 408", got)
			}
		},
		"half closed": func(t *testing.T, c *net.TCPConn) {
			_, _ = io.WriteString(c, head+"Connection: close\r\nContent-Length: 2\r\n\r\n{}")
			_ = c.CloseWrite()
			if got := all(c); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
				t.Errorf("answer %.100q, want a 200", got)
			}
		},
		"gone at once": func(_ *testing.T, c *net.TCPConn) { _ = c.Close() },
		"reset in the body": func(_ *testing.T, c *net.TCPConn) {
			_, _ = io.WriteString(c, head+"Content-Length: 9\r\n\r\n{")
			_ = c.SetLinger(0)
			_ = c.Close()
		},
		"pipelined": func(t *testing.T, c *net.TCPConn) {
			_, _ = io.WriteString(c, strings.Repeat("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", 50))
			r := bufio.NewReader(c)
			for i := range 50 {
				response, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatalf("answer %d: %v", i, err)
				}
				b, err := io.ReadAll(response.Body)
				if response.StatusCode != http.StatusOK || err != nil || !strings.Contains(string(b), "ok") {
					t.Fatalf("answer %d = %d %q, %v", i, response.StatusCode, b, err)
				}
			}
		},
		"a header of 10 MiB": func(t *testing.T, c *net.TCPConn) {
			_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: a\r\nX-A: ")
			chunk := strings.Repeat("a", 64<<10)
			for range 160 {
				if _, err := io.WriteString(c, chunk); err != nil {
					return // refused before the end, as it should be
				}
			}
			all(c)
		},
		"HTTP/0.9": func(t *testing.T, c *net.TCPConn) {
			_, _ = io.WriteString(c, "GET /healthz\r\n\r\n")
			if got := all(c); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
				t.Errorf("answer %.100q, want a 400", got)
			}
		},
		"garbage": func(t *testing.T, c *net.TCPConn) {
			_, _ = c.Write([]byte(strings.Repeat("\x00\xff\x16\x03", 5000)))
			if got := all(c); got != "" && !strings.HasPrefix(got, "HTTP/1.1 4") {
				t.Errorf("answer %.100q, want a 4xx or a closed connection", got)
			}
		},
		"a TLS hello": func(t *testing.T, c *net.TCPConn) {
			if err := tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake(); err == nil {
				t.Error("a plain port shook hands")
			}
		},
		"200 idle connections": func(t *testing.T, _ *net.TCPConn) {
			var idle []net.Conn
			for range 200 {
				c := dial(t, k.URL)
				_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
				idle = append(idle, c)
			}
			for i, c := range idle {
				if got := all(c); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
					t.Fatalf("connection %d: %.100q, want an answer, then a close when it stays idle", i, got)
				}
			}
		},
	}

	before := memory()
	stop, good := make(chan struct{}), make(chan int, 1)
	go func() {
		answered := 0
		defer func() { good <- answered }()
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		for answered < 2000 { // what the test keeps of the log counts as memory
			select {
			case <-stop:
				return
			default:
			}
			if err := exchanges()[1].try(client, k.URL); err != nil {
				t.Errorf("a good client beside the bad ones: %v", err)
				return
			}
			answered++
		}
	}()
	t.Run("all at once", func(t *testing.T) {
		for name, behave := range clients {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				behave(t, dial(t, k.URL))
			})
		}
	})
	close(stop)
	if n := <-good; n == 0 { // how many there are is the machine's affair
		t.Errorf("the good client had %d answers meanwhile", n)
	}
	waittest.Until(t, "the memory of the bad clients is given back", func() bool { return memory() < before+4<<20 })
}

// memory returns the bytes in use once nothing more can be collected.
func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
