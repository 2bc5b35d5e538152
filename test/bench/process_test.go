package bench_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// A limit runs as this binary, with its name in a variable.
const limitVariable = "BENCH_LIMIT"

func TestMain(m *testing.M) {
	if limit := os.Getenv(limitVariable); limit != "" {
		if err := runLimit(limit); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := pgtest.Run(m)
	printTable()
	os.Exit(code)
}

// program is the server that users run, built once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "tokenkeep-bench")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "tokenkeep")
	out, err := exec.Command("go", "build", "-trimpath", "-o", path, "../../cmd/tokenkeep").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the server: %w\n%s", err, out)
	}
	return path, nil
})

// place is a server in a process of its own, with callers.
type place struct {
	data, url          string
	ready              time.Duration // from the start of the process
	cmd                *exec.Cmd
	ended              chan struct{}
	client             *http.Client
	operator           *admin.Client
	tenant             string
	revealing, masking string // keys
	managing           string
	application        string // the id of the revealing one
	attacking          string // the id of the reactor with which a tenant attacks
}

// serve starts a server. Without a folder it makes one, with a tenant.
func serve(b *testing.B, data string, environment []string, flags ...string) *place {
	b.Helper()
	path, err := program()
	if err != nil {
		b.Fatal(err)
	}
	fresh := data == ""
	if fresh {
		data = filepath.Join(b.TempDir(), "data")
	}
	kek := filepath.Join(filepath.Dir(data), "kek")
	if _, err := os.Stat(kek); err != nil {
		if _, err := localkms.Generate(kek); err != nil {
			b.Fatal(err)
		}
	}
	log, err := os.CreateTemp(b.TempDir(), "log")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	p := &place{
		data: data, operator: admin.NewClient(data), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}, Timeout: time.Minute},
		cmd:   exec.Command(path, append([]string{"serve", "--addr", "127.0.0.1:0", "--data", data, "--kek-file", kek, "--drain-delay", "0s", "--sandbox-level", "off"}, flags...)...),
		ended: make(chan struct{}),
	}
	p.cmd.Stderr = log
	p.cmd.Env = append(os.Environ(), environment...)
	began := time.Now()
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	b.Cleanup(p.stop)
	b.Cleanup(p.client.CloseIdleConnections)
	for p.url == "" {
		said, err := os.ReadFile(log.Name())
		if err != nil {
			b.Fatal(err)
		}
		if found := readyLine.FindSubmatch(said); found != nil {
			p.url, p.ready = string(found[1]), time.Since(began)
			break
		}
		select {
		case <-p.ended:
			b.Fatalf("the server does not start: %s", said)
		case <-time.After(time.Millisecond):
		}
	}
	if fresh {
		p.populate(b)
	}
	return p
}

var readyLine = regexp.MustCompile(`"base_url":"(http[^"]+)"`)

func (p *place) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.ended
}

func (p *place) pid() int { return p.cmd.Process.Pid }

// populate makes a tenant and its callers.
func (p *place) populate(b *testing.B) {
	b.Helper()
	var made api.CreatedTenant
	if err := p.operator.Call(b.Context(), http.MethodPost, "/tenants", api.CreateTenant{Name: "bench"}, &made); err != nil {
		b.Fatal(err)
	}
	p.tenant = made.Tenant.ID
	var a api.Application
	key := func(in api.CreateApplication) string {
		in.Name, a = "bench", api.Application{}
		if err := p.operator.Call(b.Context(), http.MethodPost, "/tenants/"+p.tenant+"/applications", in, &a); err != nil {
			b.Fatal(err)
		}
		return a.Key
	}
	rules := func(transform string) []api.Rule {
		return []api.Rule{{Container: "/", Transform: transform, Permissions: []string{"token:create", "token:read", "token:update", "token:search", "token:use"}}}
	}
	p.revealing = key(api.CreateApplication{Type: "private", Rules: rules("reveal")})
	p.application = a.ID
	p.masking = key(api.CreateApplication{Type: "private", Rules: rules("mask")})
	p.managing = key(api.CreateApplication{Type: "management", Permissions: []string{"reactor:create", "proxy:create", "report:read"}})
}

// ask calls the API, and wants that status.
func (p *place) ask(method, path, key, body string, status int, headers ...string) (string, error) {
	r, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set(api.Header(api.DefaultPrefix, api.APIKey), key)
	r.Header.Set("Content-Type", api.MediaJSON)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return answer(p.client, r, status)
}

func answer(c *http.Client, r *http.Request, status int) (string, error) {
	response, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != status {
		err = &statusError{response.StatusCode, status}
	}
	return string(got), err
}

// statusError says that a response has another status.
type statusError struct{ got, want int }

func (e *statusError) Error() string { return fmt.Sprintf("status %d, want %d", e.got, e.want) }

// limit is something simpler than the server, in a process of its own.
type limit struct {
	url string
	pid int
}

// startLimit starts one: "logged", "plain", "destination" or "reverse". Its
// answers are as long as the sample; only the destination of a reverse proxy
// is asked for more.
func startLimit(b *testing.B, name, sample, to string) limit {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), limitVariable+"="+name, "BENCH_SIZE="+strconv.Itoa(len(sample)), "BENCH_TO="+to, "BENCH_DATA="+filepath.Join(b.TempDir(), "data"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(said, "http") {
		b.Fatalf("%s says %q, %v", name, said, err)
	}
	return limit{strings.TrimSpace(said), cmd.Process.Pid}
}

func runLimit(name string) error {
	size, err := strconv.Atoi(os.Getenv("BENCH_SIZE"))
	if err != nil {
		return err
	}
	constant := strings.Repeat("x", size)
	before := func(context.Context) error { return nil }
	if name == "logged" {
		s, err := sqlite.Open(context.Background(), os.Getenv("BENCH_DATA"), sqlite.Options{})
		if err != nil {
			return err
		}
		tenant := uuid.NewString()
		if err := storetest.AddTenants(context.Background(), s, tenant); err != nil {
			return err
		}
		before = func(ctx context.Context) error {
			return s.Update(ctx, tenant, func(tx store.Tx) error { return tx.AppendLog(ctx, entry("read", "x")) })
		}
	}
	var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if err := before(r.Context()); err != nil {
			http.Error(w, "failed", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", api.MediaJSON)
		_, _ = io.WriteString(w, constant)
	})
	if name == "reverse" {
		to, err := url.Parse(os.Getenv("BENCH_TO"))
		if err != nil {
			return err
		}
		handler = &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: &http.Transport{MaxIdleConnsPerHost: 256},
		}
	}
	fmt.Println(httptest.NewServer(handler).URL)
	select {} // until it is killed
}

// do posts a body to a limit.
func (l limit) do(p *place, body string) func(int, int64) error {
	return func(int, int64) error {
		r, err := http.NewRequest("POST", l.url, strings.NewReader(body))
		if err != nil {
			return err
		}
		_, err = answer(p.client, r, http.StatusOK)
		return err
	}
}

func entry(operation, id string) store.LogEntry {
	return store.LogEntry{
		ID: uuid.NewString(), CreatedAt: store.At(time.Now()), ActorID: "5e2d6b1c-8a1d-4a53-9d5a-0d6a2f6f7a11", ActorType: "application",
		EntityType: "card", EntityID: id, Operation: operation, Outcome: "success", Message: "Token created", TraceID: "0123456789abcdef0123",
		ClientAddress: "127.0.0.1",
	}
}
