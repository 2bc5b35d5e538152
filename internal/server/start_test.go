package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/server"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// occupied returns an address that somebody else listens on.
func occupied(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

func mustWrite(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAStartThatFailsLeavesNothingOpen(t *testing.T) {
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	broken := mustWrite(t, filepath.Join(t.TempDir(), "broken.pem"), "not PEM")
	obstruct := func(name string) func(string) error {
		return func(data string) error { return os.MkdirAll(filepath.Join(data, name, "full"), 0o700) }
	}
	for name, test := range map[string]struct {
		prepare  func(data string) error
		settings []string
		matches  func(error) bool
	}{
		"the address is taken":         {nil, []string{"addr", occupied(t)}, func(err error) bool { return listenError(err) == "addr" }},
		"the metrics address is taken": {nil, []string{"metrics_addr", occupied(t)}, func(err error) bool { return listenError(err) == "metrics_addr" }},
		"the metrics host is not known": {nil, []string{"metrics_addr", planted + "..:0"},
			func(err error) bool { return listenError(err) == "metrics_addr" }},
		"the certificate is broken": {nil, []string{"tls.cert_file", broken, "tls.key_file", broken},
			func(err error) bool { return errors.As(err, new(*server.CertificateError)) }},
		"the settings are not safe":  {nil, []string{"tls.cert_file", broken}, func(err error) bool { return errors.As(err, new(*config.Error)) }},
		"the socket cannot be made":  {obstruct("admin.sock"), nil, func(err error) bool { return err != nil }},
		"the note cannot be written": {obstruct("server.json"), nil, func(err error) bool { return err != nil }},
		"the data is no database": {func(data string) error {
			return os.WriteFile(filepath.Join(data, "tokenkeep.db"), []byte(strings.Repeat("no database ", 1000)), 0o600)
		}, nil, is(store.ErrDamaged)},
		"the data folder is a file": {func(data string) error { return errors.Join(os.Remove(data), os.WriteFile(data, nil, 0o600)) }, nil, func(err error) bool { return err != nil }},
	} {
		t.Run(name, func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "data")
			if err := os.Mkdir(data, 0o700); err != nil {
				t.Fatal(err)
			}
			if test.prepare != nil {
				if err := test.prepare(data); err != nil {
					t.Fatal(err)
				}
			}
			before := runtime.NumGoroutine()
			s, err := server.New(t.Context(), developers(t, data, test.settings...), server.Options{})
			if err == nil {
				_ = run(t, s)()
			}
			if !test.matches(err) {
				t.Fatalf("New = %v, want another error", err)
			}
			if strings.Contains(err.Error(), planted) {
				t.Errorf("New repeats a value: %v", err)
			}
			waittest.Until(t, "the goroutines of the failed start end", func() bool { return runtime.NumGoroutine() <= before })

			if test.prepare != nil {
				if err := os.RemoveAll(data); err != nil {
					t.Fatal(err)
				}
			}
			s, err = server.New(t.Context(), developers(t, data), server.Options{})
			if err != nil {
				t.Fatalf("start once the obstacle is gone: %v", err)
			}
			if err := run(t, s)(); err != nil {
				t.Error(err)
			}
		})
	}
}

func listenError(err error) (setting string) {
	var le *server.ListenError
	if errors.As(err, &le) {
		return le.Setting
	}
	return ""
}

// run serves in the background until the returned function is called.
func run(t *testing.T, s *server.Server) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() error { cancel(); return <-done }
}

func TestASecondServerOnTheSameDataIsRefused(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{})
	note, err := os.ReadFile(filepath.Join(k.Data, "server.json"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.New(t.Context(), developers(t, k.Data), server.Options{}); !errors.Is(err, store.ErrInUse) {
		t.Fatalf("New = %v, want %v", err, store.ErrInUse)
	}
	if after, err := os.ReadFile(filepath.Join(k.Data, "server.json")); err != nil || string(after) != string(note) {
		t.Errorf("the first server's note is now %q, %v", after, err)
	}
	if s := status(t, k.Data); s.BaseURL != k.URL {
		t.Errorf("the admin socket speaks for %s, want the first server", s.BaseURL)
	}
}

// elsewhere is a listener with the address of another machine's reach.
type elsewhere struct {
	net.Listener
	closed bool
}

func (e *elsewhere) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(203, 0, 113, 1), Port: 80} }
func (e *elsewhere) Close() error   { e.closed = true; return e.Listener.Close() }

func TestAnInheritedSocketMustBeAsSafeAsAConfiguredOne(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	inherited := &elsewhere{Listener: l}
	_, err = server.New(t.Context(), developers(t, filepath.Join(t.TempDir(), "data")), server.Options{Listener: inherited})
	if !errors.As(err, new(*config.Error)) || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("New with a public socket in clear = %v, want it refused", err)
	}
	if !inherited.closed {
		t.Error("the socket was left open")
	}
}

func TestANoteTellsWhereTheServerIs(t *testing.T) {
	started := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	k := keeptest.Start(t, keeptest.Options{Now: func() time.Time { return started }})
	b, err := os.ReadFile(filepath.Join(k.Data, "server.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got server.Note
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	want := server.Note{BaseURL: k.URL, PID: os.Getpid(), Version: "test", StartedAt: started}
	if got != want {
		t.Errorf("server.json = %+v, want %+v", got, want)
	}
	for _, name := range []string{"server.json", "admin.sock"} {
		info, err := os.Lstat(filepath.Join(k.Data, name))
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has mode %04o, want 0600", name, mode)
		}
	}
	if err := k.Stop(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(k.Data)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if !strings.HasPrefix(e.Name(), "tokenkeep.") && e.Name() != "epoch.keys" && e.Name() != "dev-kek.json" {
			t.Errorf("the stop left %s behind", e.Name())
		}
	}
}

func TestWhatAKilledServerLeftIsReplaced(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	// A socket whose process is gone, and a note of another address.
	l, err := net.Listen("unix", filepath.Join(data, "admin.sock"))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	mustWrite(t, filepath.Join(data, "server.json"), `{"base_url":"http://127.0.0.1:1"}`)
	k := keeptest.Start(t, keeptest.Options{Data: data})
	if got := status(t, data).BaseURL; got != k.URL {
		t.Errorf("status tells %s, want %s", got, k.URL)
	}
	if b, _ := os.ReadFile(filepath.Join(data, "server.json")); !strings.Contains(string(b), k.URL) {
		t.Errorf("server.json = %s, want the new address", b)
	}
}

func TestTheRowsOfACallerAreNotChanged(t *testing.T) {
	rows := append(make([]httpapi.Route, 0, 8), restartRows...)
	keeptest.Start(t, keeptest.Options{Routes: rows})
	if extra := rows[:cap(rows)][len(rows)]; extra.Pattern != "" {
		t.Errorf("the server wrote %s into the caller's rows", extra.Pattern)
	}
}

func TestHealthAndReadiness(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"metrics_addr": "127.0.0.1:0"}})
	ask := func(url string) int {
		response, err := k.Client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	metrics := k.MetricsURL()
	expect := func(when string, ready int) {
		t.Helper()
		for _, base := range []string{k.URL, metrics} {
			if got := ask(base + "/healthz"); got != http.StatusOK {
				t.Errorf("%s: GET %s/healthz = %d, want 200", when, base, got)
			}
			if got := ask(base + "/readyz"); got != ready {
				t.Errorf("%s: GET %s/readyz = %d, want %d", when, base, got, ready)
			}
		}
		if got := status(t, k.Data).Ready; got != (ready == http.StatusOK) {
			t.Errorf("%s: status says ready = %t", when, got)
		}
	}
	expect("at work", http.StatusOK)
	if err := k.CloseStore(); err != nil {
		t.Fatal(err)
	}
	expect("without a store", http.StatusServiceUnavailable)
}
