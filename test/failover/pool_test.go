package failover_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// callers is how many call at once where a server has two connections.
const callers = 40

// TestAPoolThatIsUsedUpTurnsCallersAway takes all connections of a server, in
// two ways. Everybody gets an answer, the server says that it is not ready, and
// goes on by itself.
func TestAPoolThatIsUsedUpTurnsCallersAway(t *testing.T) {
	storetest.CheckOnly(t)
	t.Parallel()
	for name, take := range map[string]func(t *testing.T, c *pgtest.Cluster, l *line) (release func()){
		"by statements that wait": func(t *testing.T, c *pgtest.Cluster, _ *line) func() {
			conn, err := pgx.Connect(t.Context(), c.URL("vault"))
			if err == nil {
				_, err = conn.Exec(t.Context(), "BEGIN; LOCK TABLE tokenkeep.tokens IN ACCESS EXCLUSIVE MODE")
			}
			if err != nil {
				t.Fatal(err)
			}
			return func() { _ = conn.Close(t.Context()) }
		},
		"by a line that is silent": func(_ *testing.T, _ *pgtest.Cluster, l *line) func() {
			l.set(fault{silent: true})
			return func() { l.set(fault{}) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "by statements that wait" && !every() {
				t.Skip("it waits for many time-outs; KEEPTEST_ROUNDS=all runs it")
			}
			t.Parallel()
			c := pgtest.Start(t, pgtest.Options{NoSync: true})
			ask(t, c, "postgres", "CREATE DATABASE vault")
			l := newLine(t, c)
			w := newWorld(t, url("vault", l), map[string]string{"store.connections": "2"})
			node := w.nodes[0]
			create := func(id string) keeptest.Answer {
				return node.Call(t, http.MethodPost, "/tokens", w.private, fmt.Sprintf(`{"id":%q,"type":"token","data":"x"}`, id))
			}
			// Everybody calls, and calls again until enough says so. It returns
			// how long the slowest answer took.
			together := func(what string, want int, enough <-chan struct{}) time.Duration {
				var wg sync.WaitGroup
				var mu sync.Mutex
				var slowest time.Duration
				for n := range callers {
					wg.Go(func() {
						for ended := false; !ended; {
							began := time.Now()
							a := create(fmt.Sprint(what, "-", n))
							mu.Lock()
							slowest = max(slowest, time.Since(began))
							mu.Unlock()
							if want == http.StatusCreated && a.Status == http.StatusServiceUnavailable {
								continue // a busy machine: those before it took all of its time
							}
							if a.Status != want || want == http.StatusServiceUnavailable && a.Header.Get("Retry-After") == "" {
								t.Errorf("%s: caller %d got %s, want %d", what, n, a, want)
								return
							}
							select {
							case <-enough:
								ended = true
							default:
							}
						}
					})
				}
				wg.Wait()
				return slowest.Round(time.Millisecond)
			}
			once := make(chan struct{})
			close(once)
			t.Logf("%d callers on 2 connections were served within %v", callers, together("before", http.StatusCreated, once))

			release := take(t, c, l)
			defer release()
			enough, turnedAway := make(chan struct{}), make(chan time.Duration)
			go func() { turnedAway <- together("without a connection", http.StatusServiceUnavailable, enough) }()
			// While so many wait before it, it gets no connection in its time.
			waittest.Until(t, "a server without a connection that is not ready", func() bool {
				return node.Call(t, http.MethodGet, "/readyz", "", "").Status == http.StatusServiceUnavailable
			})
			if a := node.Call(t, http.MethodGet, "/healthz", "", ""); a.Status != http.StatusOK {
				t.Errorf("/healthz = %s: nothing is wrong with the process", a)
			}
			close(enough)
			t.Logf("they were turned away within %v", <-turnedAway)
			release()
			again := w.wait("a token after that", func() bool { return create("again").Status == http.StatusCreated })
			w.wait("a server that is ready", func() bool { return node.Call(t, http.MethodGet, "/readyz", "", "").Status == http.StatusOK })
			t.Logf("a token was made %v later", again.Round(time.Millisecond))
			together("after", http.StatusCreated, once)
			if got := ask(t, c, "vault", "SELECT count(*) FROM tokenkeep.tokens"); got != fmt.Sprint(2*callers+1) {
				t.Errorf("there are %s tokens, want %d: those that were told", got, 2*callers+1)
			}
		})
	}
}
