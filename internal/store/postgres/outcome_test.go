package postgres_test

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// line stands between a store and its database, and can be cut.
type line struct {
	listener net.Listener
	server   string // path of the database's own socket

	mu  sync.Mutex
	cut func(p pair, request []byte) // what the next request meets
}

// newLine returns a line and the URL that leads over it.
func newLine(t *testing.T, database string) (*line, string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "line-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	listener, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	l := &line{listener: listener, server: filepath.Join(u.Query().Get("host"), ".s.PGSQL.5432")}
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go l.serve(c)
		}
	}()
	return l, strings.Replace(database, url.QueryEscape(u.Query().Get("host")), url.QueryEscape(dir), 1)
}

func (l *line) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("unix", l.server)
	if err != nil {
		return
	}
	ended := make(chan struct{}) // the server has hung up
	var mute atomic.Bool         // what it says gets lost
	go func() {
		defer close(ended)
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if n > 0 && !mute.Load() {
				_, _ = client.Write(buf[:n])
			}
			if err != nil {
				_ = client.Close()
				return
			}
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			_ = server.Close()
			return
		}
		if cut := l.take(); cut != nil {
			cut(pair{client, server.(*net.UnixConn), ended, &mute}, append([]byte(nil), buf[:n]...))
			return
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

// pair are the two ends of a connection over the line.
type pair struct {
	client net.Conn
	server *net.UnixConn
	ended  <-chan struct{}
	mute   *atomic.Bool
}

// deliver hands the last request to the server and waits until it has dealt with it.
func (p pair) deliver(request []byte) {
	_, _ = p.server.Write(request)
	_ = p.server.CloseWrite()
	<-p.ended
}

func (l *line) take() func(p pair, request []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	cut := l.cut
	l.cut = nil
	return cut
}

// arm cuts the line at the next request, whoever sends it.
func (l *line) arm(cut func(p pair, request []byte)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
}

// TestALostCommitIsFoundOut cuts the line at the request that holds the commit,
// in three ways. The function inserts another token each time it runs, so that
// one which ran twice shows.
func TestALostCommitIsFoundOut(t *testing.T) {
	for name, c := range map[string]struct {
		reads bool // the transaction has begun before the commit is sent
		cut   func(late chan<- func()) func(p pair, request []byte)
		runs  int
	}{
		"the answer is lost, of inserts alone":     {false, loseAnswer, 1},
		"the answer is lost, behind a read":        {true, loseAnswer, 1},
		"the request is lost, of inserts alone":    {false, loseRequest, 2},
		"the request is lost, behind a read":       {true, loseRequest, 2},
		"the request comes late, of inserts alone": {false, delayRequest, 2},
		"the request comes late, behind a read":    {true, delayRequest, 2},
	} {
		t.Run(name, func(t *testing.T) {
			l, over := newLine(t, pgtest.Database(t))
			registry := prometheus.NewPedanticRegistry()
			s := open(t, over, postgres.Options{Metrics: registry, Connections: 1})
			ctx := t.Context()
			update := func(run func() (id string)) error {
				return s.Update(ctx, tenantA, func(tx store.Tx) error {
					id := run()
					if c.reads {
						if _, err := tx.Token(ctx, id); !errors.Is(err, store.ErrNotFound) {
							return fmt.Errorf("a token that is not there: %w", err)
						}
					}
					tok := storetest.SomeToken()
					tok.ID = id
					return errors.Join(tx.InsertToken(ctx, tok), tx.AppendLog(ctx, storetest.SomeEntry(id)), arm(tx))
				})
			}
			// Once without harm, so that the statements are prepared.
			if err := update(func() string { return "before" }); err != nil {
				t.Fatal(err)
			}
			late := make(chan func(), 1)
			runs := 0
			arming = func() {
				if runs == 1 {
					l.arm(c.cut(late))
				}
			}
			defer func() { arming = func() {} }()
			if err := update(func() string { runs++; return fmt.Sprint("run ", runs) }); err != nil {
				t.Fatalf("Update over a line that was cut: %v", err)
			}
			select {
			case deliver := <-late:
				deliver()
			default:
			}
			if runs != c.runs {
				t.Errorf("the function ran %d times, want %d", runs, c.runs)
			}
			if n := metric(t, registry, "tokenkeep_store_unanswered_commits_total"); n != 1 {
				t.Errorf("%v outcomes were asked for, want 1", n)
			}
			if err := s.View(ctx, tenantA, func(tx store.Tx) error {
				tokens, err := tx.Tokens(ctx, store.TokenFilter{Now: 1, Groups: store.AllGroups()}, store.Page{Limit: 10})
				if len(tokens) != 2 {
					t.Errorf("%d tokens are there, want that of before and one", len(tokens))
				}
				if err == nil {
					_, err = tx.Token(ctx, fmt.Sprint("run ", runs))
				}
				return err
			}); err != nil {
				t.Errorf("the token of the last run: %v", err)
			}
			if err := storetest.Verify(t.Context(), s, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAnOutcomeThatNobodyKnowsIsReported loses a commit and then every way to
// ask: the update is not run again, because it may be there.
func TestAnOutcomeThatNobodyKnowsIsReported(t *testing.T) {
	l, over := newLine(t, pgtest.Database(t))
	s := open(t, over, postgres.Options{Connections: 1}) // or another one's last words would be lost instead
	s.Impatient(200 * time.Millisecond)
	ctx := t.Context()
	if err := storetest.InsertToken(ctx, s, 0); err != nil {
		t.Fatal(err)
	}
	runs, lost := 0, storetest.SomeToken()
	err := s.Update(ctx, storetest.BenchTenant(0), func(tx store.Tx) error {
		if runs++; runs == 1 {
			_ = l.listener.Close()
			l.arm(loseAnswer(nil))
		}
		return tx.InsertToken(ctx, lost)
	})
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "not known") || runs != 1 {
		t.Errorf("Update: got error %v after %d runs; want %v, an outcome that is not known, after 1", err, runs, store.ErrUnavailable)
	}
}

// TestAViewOutlivesItsConnection cuts the line at the first read, when nothing
// has been seen yet.
func TestAViewOutlivesItsConnection(t *testing.T) {
	l, over := newLine(t, pgtest.Database(t))
	s := open(t, over, postgres.Options{})
	ctx := t.Context()
	if err := storetest.InsertToken(ctx, s, 0); err != nil {
		t.Fatal(err)
	}
	runs := 0
	if err := s.View(ctx, storetest.BenchTenant(0), func(tx store.Tx) error {
		runs++
		l.arm(loseRequest(nil))
		n, err := tx.CountTokens(ctx, store.TokenFilter{Now: 1, Groups: store.AllGroups()})
		if n != 1 {
			t.Errorf("CountTokens: got %d, want 1", n)
		}
		return err
	}); err != nil || runs != 1 {
		t.Errorf("View: got error %v after %d runs, want none after 1", err, runs)
	}
}

// arming is called when a function is about to return.
var arming = func() {}

func arm(store.Tx) error { arming(); return nil }

// loseAnswer lets the server do what it was asked, and then cuts the line.
func loseAnswer(chan<- func()) func(p pair, request []byte) {
	return func(p pair, request []byte) {
		p.mute.Store(true)
		p.deliver(request)
		_ = p.client.Close()
	}
}

// loseRequest cuts the line before the server has heard anything.
func loseRequest(chan<- func()) func(p pair, request []byte) {
	return func(p pair, _ []byte) {
		_ = p.client.Close()
		_ = p.server.Close()
	}
}

// delayRequest cuts the line to the client and delivers the request when all is
// over: nothing of it may be kept.
func delayRequest(late chan<- func()) func(p pair, request []byte) {
	return func(p pair, request []byte) {
		late <- func() { p.deliver(request) }
		_ = p.client.Close()
	}
}
