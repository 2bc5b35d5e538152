package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// noRoom is a migration that older servers could not live with.
const noRoom = "ALTER TABLE marks RENAME value TO contents;"

func TestAMigrationSaysWhoCanGoOn(t *testing.T) {
	adds := func(n int) string { return fmt.Sprintf("-- Servers that know number %d go on working.\nSELECT 1;", n) }
	for name, c := range map[string]struct {
		texts []string
		want  int
	}{
		"nobody unless it says so":          {[]string{"SELECT 1", "SELECT 1"}, 2},
		"those who know the one before":     {[]string{"SELECT 1", "SELECT 1", adds(2)}, 2},
		"those who know an older one":       {[]string{"SELECT 1", adds(1), adds(1)}, 1},
		"none who an older one has stopped": {[]string{"SELECT 1", "SELECT 1", adds(1)}, 2},
		"a number that does not exist yet":  {[]string{"SELECT 1", adds(9)}, 2},
		"a number that never was":           {[]string{"SELECT 1", adds(0)}, 2},
		"a line that is not the first":      {[]string{"SELECT 1", "\n" + adds(1)}, 2},
	} {
		if got := postgres.OldestServer(c.texts); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

// TestTwoReleasesShareADatabase: the older one is at work when the newer one
// changes the schema, goes on, and starts again beside it.
func TestTwoReleasesShareADatabase(t *testing.T) {
	database := pgtest.Database(t)
	older := open(t, database, postgres.Options{})
	insert := func(s *postgres.Store) {
		t.Helper()
		for range 3 { // from the second time on with statements that are prepared
			if err := s.Update(t.Context(), tenantA, func(tx store.Tx) error {
				return errors.Join(tx.InsertToken(t.Context(), storetest.SomeToken()), tx.AppendLog(t.Context(), storetest.SomeEntry("x")))
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	insert(older)
	if err := older.AllTenants().Current(t.Context()); err != nil {
		t.Errorf("Current before: got error %v, want none", err)
	}
	newer := openBare(t, database, postgres.Options{Ahead: []string{pgtest.Tomorrow}})
	var log bytes.Buffer
	again := openBare(t, database, postgres.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if !strings.Contains(log.String(), "a newer release has changed the database: this server goes on until it is replaced") {
		t.Errorf("the older server that starts says %q", log.String())
	}
	for name, c := range map[string]struct {
		store *postgres.Store
		want  error
	}{
		"the older one": {older, store.ErrNewerSchema}, "the newer one": {newer, nil}, "the older one, started again": {again, store.ErrNewerSchema},
	} {
		insert(c.store)
		fill(t, c.store, uuid.NewString())
		if err := c.store.AllTenants().Current(t.Context()); !errors.Is(err, c.want) {
			t.Errorf("Current of %s: got error %v, want %v", name, err, c.want)
		}
		if found, err := c.store.Check(t.Context(), nil); len(found) > 0 || err != nil {
			t.Errorf("Check of %s: got %q, error %v; want nothing", name, found, err)
		}
	}
}

// TestAMigrationThatMustWaitHoldsNobodyUp: something reads a table for long, as
// a dump does, and requests do not wait behind the one who wants to change it.
func TestAMigrationThatMustWaitHoldsNobodyUp(t *testing.T) {
	storetest.Long(t)
	database := pgtest.Database(t)
	older := open(t, database, postgres.Options{})
	dump, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dump.Close(context.WithoutCancel(t.Context())) }()
	if _, err := dump.Exec(t.Context(), "BEGIN; LOCK TABLE tokenkeep.tokens IN ACCESS SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		newer, err := postgres.Open(t.Context(), database, postgres.Options{Ahead: []string{pgtest.Tomorrow}})
		if err == nil {
			err = newer.Close()
		}
		opened <- err
	}()
	waiting := func() (yes bool) {
		if err := dump.QueryRow(t.Context(), "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'tokenkeep.tokens'::regclass AND mode = 'AccessExclusiveLock')").Scan(&yes); err != nil {
			t.Fatal(err)
		}
		return yes
	}
	for tries := 0; tries < 2; tries++ {
		for deadline := time.Now().Add(30 * time.Second); !waiting(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the migration does not wait")
			}
		}
		if err := older.Update(t.Context(), tenantA, func(tx store.Tx) error { return tx.InsertToken(t.Context(), storetest.SomeToken()) }); err != nil {
			t.Errorf("an update while a migration waits: %v", err)
		}
	}
	if err := older.AllTenants().Current(t.Context()); err != nil {
		t.Errorf("Current while the migration waits: got error %v, want none", err)
	}
	if _, err := dump.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Errorf("Open when the table is free: %v", err)
	}
}

// TestAReleaseThatCannotShareWaitsForTheOlderOnesToStop, and they do not come back.
func TestAReleaseThatCannotShareWaitsForTheOlderOnesToStop(t *testing.T) {
	database := pgtest.Database(t)
	older := open(t, database, postgres.Options{})
	mark := func() error {
		return older.Update(t.Context(), tenantA, func(tx store.Tx) error { return tx.PutMark(t.Context(), "m", []byte("v")) })
	}
	tomorrow := postgres.Options{Ahead: []string{pgtest.Tomorrow, noRoom}}
	if s, err := postgres.Open(t.Context(), database, tomorrow); !errors.Is(err, store.ErrInUse) {
		t.Errorf("Open beside an older server: got %v, error %v; want %v", s, err, store.ErrInUse)
	}
	if err := mark(); err != nil { // the first of the two migrations has run
		t.Errorf("an update of the older server: %v", err)
	}
	// A server without a connection is in nobody's way, until it wants one.
	older.Disconnect()
	var newer *postgres.Store
	for deadline := time.Now().Add(30 * time.Second); newer == nil; {
		s, err := postgres.Open(t.Context(), database, tomorrow)
		if err != nil && (!errors.Is(err, store.ErrInUse) || time.Now().After(deadline)) {
			t.Fatal(err)
		}
		newer = s // the connections take a moment to end
	}
	defer func() { _ = newer.Close() }()
	if err := mark(); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("an update of the older server afterwards: got error %v, want %v", err, store.ErrUnavailable)
	}
	if err := older.Ready(t.Context()); err == nil {
		t.Error("the older server is ready")
	}
	if s, err := postgres.Open(t.Context(), database, postgres.Options{}); !errors.Is(err, store.ErrNewerSchema) {
		t.Errorf("Open of the older release: got %v, error %v; want %v", s, err, store.ErrNewerSchema)
	}
	if err := newer.Ready(t.Context()); err != nil {
		t.Errorf("the newer server is not ready: %v", err)
	}
}
