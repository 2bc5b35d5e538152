package postgres_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// statement runs a statement as the superuser and returns what it printed.
func statement(t *testing.T, c *pgtest.Cluster, text string) string {
	t.Helper()
	out, err := c.Command("psql", "postgres", "-v", "ON_ERROR_STOP=1", "-qAtc", text).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", text, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestAStandbyIsNoDatabaseToOpen(t *testing.T) {
	storetest.CheckOnly(t)
	t.Parallel()
	primary := pgtest.Start(t, pgtest.Options{NoSync: true})
	s := open(t, primary.URL("postgres"), postgres.Options{})
	standby := primary.Standby(t)
	if _, err := postgres.Open(t.Context(), standby.URL("postgres"), postgres.Options{}); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "standby") {
		t.Errorf("Open of a standby: got error %v, want %v and a word of why", err, store.ErrUnavailable)
	}
	// Whatever the URL asks for, and wherever the primary stands in it.
	for _, attrs := range []string{"", "&target_session_attrs=any", "&target_session_attrs=prefer-standby"} {
		hosts := url.QueryEscape(standby.Folder() + "," + primary.Folder())
		both := open(t, "postgres:///postgres?user=postgres&host="+hosts+attrs, postgres.Options{})
		if err := errors.Join(both.Ready(t.Context()), storetest.InsertToken(t.Context(), both, 0)); err != nil {
			t.Errorf("a store on a standby and a primary, %q: %v", attrs, err)
		}
	}
	// One that takes no changes any more is left, and found again.
	statement(t, primary, "ALTER SYSTEM SET default_transaction_read_only = on")
	statement(t, primary, "SELECT pg_reload_conf()")
	waittest.Until(t, "it takes no changes", func() bool {
		return errors.Is(storetest.InsertToken(t.Context(), s, 0), store.ErrUnavailable)
	})
	statement(t, primary, "ALTER SYSTEM RESET default_transaction_read_only")
	statement(t, primary, "SELECT pg_reload_conf()")
	waittest.Succeeds(t, "it takes changes again", func() error { return storetest.InsertToken(t.Context(), s, 0) })
}

// TestACommitThatTheStandbyLacksIsNotReported takes the standby away, and then
// has the server stop waiting for it, in two ways. The commit is there, and
// must not be taken for one that a switch to the standby would keep.
func TestACommitThatTheStandbyLacksIsNotReported(t *testing.T) {
	storetest.CheckOnly(t)
	for name, interfere := range map[string]func(t *testing.T, c *pgtest.Cluster){
		"nobody waits any longer": func(*testing.T, *pgtest.Cluster) {},
		"an operator cancels it": func(t *testing.T, c *pgtest.Cluster) {
			waittest.Until(t, "a commit waits", func() bool {
				return statement(t, c, "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") != "0"
			})
		},
		"the server crashes": func(t *testing.T, c *pgtest.Cluster) {
			waittest.Until(t, "a commit waits", func() bool {
				return statement(t, c, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") != "0"
			})
			c.Kill()
			if err := c.Restart(); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary := pgtest.Start(t, pgtest.Options{})
			s := open(t, primary.URL("postgres"), postgres.Options{})
			s.Impatient(2 * time.Second)
			ctx := t.Context()
			if err := storetest.InsertToken(ctx, s, 0); err != nil {
				t.Fatal(err)
			}
			standby := primary.Standby(t)
			statement(t, primary, "ALTER SYSTEM SET synchronous_standby_names = 'standby'")
			statement(t, primary, "SELECT pg_reload_conf()")
			waittest.Succeeds(t, "a commit that the standby has", func() error { return storetest.InsertToken(ctx, s, 0) })
			standby.Kill()
			tok := storetest.SomeToken()
			told := make(chan error)
			go func() {
				told <- s.Update(ctx, storetest.BenchTenant(0), func(tx store.Tx) error { return tx.InsertToken(ctx, tok) })
			}()
			interfere(t, primary)
			if err := <-told; !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("Update: got error %v, want %v", err, store.ErrUnavailable)
			}
			// Nor is it shown to those who only read.
			if err := s.View(ctx, storetest.BenchTenant(0), func(tx store.Tx) error {
				_, err := tx.Token(ctx, tok.ID)
				return err
			}); err == nil && name != "an operator cancels it" {
				t.Error("View shows what the standby lacks")
			}
			if err := standby.Restart(); err != nil {
				t.Fatal(err)
			}
			waittest.Succeeds(t, "the token, when the standby is back", func() error {
				return s.View(ctx, storetest.BenchTenant(0), func(tx store.Tx) error {
					_, err := tx.Token(ctx, tok.ID)
					return err
				})
			})
		})
	}
}

// TestAWarningAtTheBeginningIsNoDoubt has the server warn with every new
// connection, as it does after an upgrade of the C library.
func TestAWarningAtTheBeginningIsNoDoubt(t *testing.T) {
	storetest.CheckOnly(t)
	t.Parallel()
	c := pgtest.Start(t, pgtest.Options{NoSync: true})
	if statement(t, c, "SELECT current_setting('server_version_num')::int >= 150000") != "t" {
		t.Skip("this server does not warn of collations")
	}
	statement(t, c, "UPDATE pg_database SET datcollversion = 'another' WHERE datname = 'postgres'")
	if out, err := c.Command("psql", "postgres", "-Atc", "SELECT 1").CombinedOutput(); err != nil || !strings.Contains(string(out), "WARNING") {
		t.Fatalf("the server does not warn: %s, %v", out, err)
	}
	registry := prometheus.NewPedanticRegistry()
	s := open(t, c.URL("postgres"), postgres.Options{Metrics: registry})
	for range 3 {
		if err := storetest.InsertToken(t.Context(), s, 0); err != nil {
			t.Fatal(err)
		}
	}
	if n := metric(t, registry, "tokenkeep_store_unanswered_commits_total"); n != 0 {
		t.Errorf("%v commits were taken for unanswered", n)
	}
}
