package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/sandbox"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// destinations is an egress with one server behind every name.
type destinations struct {
	server *httptest.Server
	mu     sync.Mutex
	asked  []string // "tenant host port"
	conns  atomic.Int64
}

func newDestinations(t *testing.T, secure bool, h http.HandlerFunc) *destinations {
	t.Helper()
	d := &destinations{server: httptest.NewUnstartedServer(h)}
	if secure {
		d.server.EnableHTTP2 = true
		d.server.StartTLS()
	} else {
		d.server.Start()
	}
	t.Cleanup(d.server.Close)
	return d
}

func (d *destinations) dial(ctx context.Context, tenant, host string, port int) (net.Conn, error) {
	d.mu.Lock()
	d.asked = append(d.asked, fmt.Sprintf("%s %s %d", tenant, host, port))
	d.mu.Unlock()
	switch host {
	case "refused.example.com":
		return nil, refusal("EACCES")
	case "unknown.example.com":
		return nil, refusal("ENOTFOUND")
	case "odd.example.com":
		return nil, refusal("<script>")
	case "broken.example.com":
		return nil, errors.New("4242424242424242")
	}
	d.conns.Add(1)
	return new(net.Dialer).DialContext(ctx, "tcp", d.server.Listener.Addr().String())
}

const get = `const get = (lib, options) => new Promise((resolve, reject) => {
	const r = require(lib).request({ rejectUnauthorized: false, ...options }, (m) => { let s = ''; m.on('data', (d) => { s += d }); m.on('end', () => resolve(m.statusCode + ' ' + s)) });
	r.on('error', reject); r.end(options.body);
});
`

func TestConnectionsAreMadeByTheDialler(t *testing.T) {
	storetest.Long(t)
	for _, lib := range []string{"http", "https"} {
		t.Run(lib, func(t *testing.T) {
			d := newDestinations(t, lib == "https", func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				_, _ = fmt.Fprintf(w, "%s %s %d", r.Method, r.Host, len(body))
			})
			s := open(t, func(o *sandbox.Settings) { o.Dial = d.dial })
			p := program("t1", "x", "1", get+`module.exports = ({ args }) => get('`+lib+`', { host: 'api.example.com', port: 8443, method: 'POST', body: 'x'.repeat(args) })`)
			for _, size := range []int{10, 1 << 20, 10} {
				want := fmt.Sprintf(`"200 POST api.example.com:8443 %d"`, size)
				if got := value(t, s, p, size); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			if len(d.asked) != 1 || d.asked[0] != "t1 api.example.com 8443" {
				t.Errorf("asked for %q; want one connection, kept alive between calls", d.asked)
			}
		})
	}
}

func TestClientsOfTheRuntimeWork(t *testing.T) {
	storetest.Long(t)
	d := newDestinations(t, false, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, `{"ok":true}`) })
	s := open(t, func(o *sandbox.Settings) { o.Dial = d.dial })
	for name, code := range map[string]string{
		"axios":      "module.exports = async () => (await require('axios').get('http://api.example.com/')).data",
		"node-fetch": "module.exports = async () => (await require('node-fetch')('http://api.example.com/')).json()",
	} {
		if got := value(t, s, program("t", name, "1", code), nil); got != `{"ok":true}` {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

func TestRefusedConnectionsHaveTheirCode(t *testing.T) {
	storetest.Long(t)
	d := newDestinations(t, false, func(http.ResponseWriter, *http.Request) {})
	s := open(t, func(o *sandbox.Settings) { o.Dial = d.dial })
	closed := open(t, nil)
	code := get + `module.exports = ({ args }) => get('http', args).catch((e) => e.code)`
	for _, r := range []struct {
		s    *sandbox.Sandbox
		host string
		port int
		want string
	}{
		{s, "refused.example.com", 443, `"EACCES"`},
		{s, "unknown.example.com", 443, `"ENOTFOUND"`},
		{s, "odd.example.com", 443, `"ECONNREFUSED"`},
		{s, "broken.example.com", 443, `"ECONNREFUSED"`},
		{s, strings.Repeat("a", 300), 443, `"EINVAL"`},
		{closed, "api.example.com", 443, `"EACCES"`},
	} {
		if got := value(t, r.s, program("t", "x", "1", code), map[string]any{"host": r.host, "port": r.port}); got != r.want {
			t.Errorf("%.30s: got %s, want %s", r.host, got, r.want)
		}
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	storetest.Long(t)
	held := make(chan struct{})
	d := newDestinations(t, false, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-held:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(held) })
	s := open(t, func(o *sandbox.Settings) { o.Dial = d.dial })
	const code = `module.exports = () => new Promise((resolve) => {
		let refused = 0;
		for (let i = 0; i < 60; i++) {
			const r = require('http').request({ host: 'h' + i + '.example.com', agent: false });
			r.on('error', (e) => { if (e.code === 'EMFILE' && ++refused === 28) resolve(refused) });
			r.end();
		}
	})`
	if got := value(t, s, program("t", "x", "1", code), nil); got != "28" {
		t.Errorf("%s of 60 connections were refused; want 28", got)
	}
	waittest.Until(t, "32 connections are made", func() bool { return d.conns.Load() == 32 })
}

// service answers as the API would, and notes who was served when.
type service struct {
	calls   atomic.Int64
	running atomic.Int64
	block   chan struct{}
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.calls.Add(1)
	s.running.Add(1)
	defer s.running.Add(-1)
	if s.block != nil && r.URL.Path == "/tokens/slow" {
		close(s.block)
		<-r.Context().Done()
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"id":%q,"created_by":%d}`, r.Method+" "+r.URL.Path, len(body))
}

func TestCodeCallsTheServiceWhileItRuns(t *testing.T) {
	s := common(t)
	h := &service{}
	call := func(p sandbox.Program, client http.Handler) string {
		t.Helper()
		out, err := s.Run(t.Context(), p, sandbox.Call{Entry: "main", Input: input(nil), Client: client, Timeout: patience})
		return told(out, err) + thrownMessage(out)
	}
	p := program("t", "x", "1", `module.exports = async ({ bt }) => {
		const a = await bt.tokens.retrieve('a');
		const b = await bt.tokens.create({ type: 'token', data: 'x'.repeat(100000) });
		return [a, b.id, b.createdBy > 100000];
	}`)
	const want = `value [{"id":"GET /tokens/a","createdBy":0},"POST /tokens",true]`
	for range 2 { // the second time over new connections: those of a call end with it
		if got := call(p, h); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if n := h.calls.Load(); n != 4 {
		t.Errorf("the service was called %d times, want 4", n)
	}

	// A client that code kept from an earlier call is of no use in a later one.
	kept := program("t", "kept", "1", `let kept; module.exports = async ({ bt }) => { kept = kept || bt; try { await kept.tokens.retrieve('a'); return 'served' } catch (e) { return 'refused' } }`)
	if got := call(kept, h); got != `value "served"` {
		t.Errorf("a first call: got %s", got)
	}
	if got := call(kept, nil); got != `value "refused"` {
		t.Errorf("a later call without a client: got %s, want refused", got)
	}

	if got := call(program("t", "big", "1", `module.exports = async ({ bt }) => { try { await bt.tokenize('x'.repeat(7 << 20)) } catch (e) { return e.status } }`), h); got != "value 413" && got != "value -1" {
		t.Errorf("a request beyond the bounds: got %s, want 413 or none", got)
	}
}

// TestNoCallOfTheServiceOutlivesItsRun ends a run while the service is at work.
func TestNoCallOfTheServiceOutlivesItsRun(t *testing.T) {
	s := common(t)
	h := &service{block: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-h.block
		cancel()
	}()
	_, err := s.Run(ctx, program("t", "x", "1", "module.exports = ({ bt }) => bt.tokens.retrieve('slow')"), sandbox.Call{Entry: "main", Input: input(nil), Client: h, Timeout: patience})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the cancellation", err)
	}
	if n := h.running.Load(); n != 0 {
		t.Errorf("%d calls of the service still run", n)
	}
}
