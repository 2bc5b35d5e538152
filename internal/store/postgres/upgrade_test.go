package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
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

// TestWhatAnOlderServerWritesIsOutdated: it works on the newer schema and does
// not know the column derived_at.
func TestWhatAnOlderServerWritesIsOutdated(t *testing.T) {
	texts, err := postgres.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	ctx, database := t.Context(), pgtest.Database(t)
	administer(t, database, "CREATE SCHEMA tokenkeep", `CREATE TABLE tokenkeep.installation (name text COLLATE "C" NOT NULL PRIMARY KEY, value bytea NOT NULL)`)
	within := database + "&search_path=tokenkeep"
	administer(t, within, texts[:3]...)
	administer(t, within, "INSERT INTO installation VALUES ('schema', '3'), ('oldest', '3')")
	group, containers := store.GroupOf("card", []string{"/"})
	// insert and change are the statements of number 3.
	insert := func(tenant, id string) {
		t.Helper()
		administer(t, within,
			fmt.Sprintf("INSERT INTO tenants VALUES ('%s', '', '{}', NULL, '', 0, '', 0, false) ON CONFLICT DO NOTHING", tenant),
			fmt.Sprintf("INSERT INTO token_groups VALUES ('%s', '%s', 0, 'card', '%s', 1) ON CONFLICT (tenant_id, group_id, slot) DO UPDATE SET tokens = token_groups.tokens + 1", tenant, group, containers),
			fmt.Sprintf(`INSERT INTO tokens (tenant_id, id, group_id, type, containers, data, details, short_lived, terms, expires_at, expires_offset, created_by, created_at, modified_by, modified_at, version)
				VALUES ('%s', '%s', '%s', 'card', '%s', 'd', NULL, NULL, NULL, NULL, 0, '', 1, '', 1, 1)`, tenant, id, group, containers))
	}
	change := func(tenant, id string) {
		t.Helper()
		administer(t, within, fmt.Sprintf("UPDATE tokens SET modified_by = 'x', modified_at = 2, version = version + 1 WHERE tenant_id = '%s' AND id = '%s'", tenant, id))
	}
	insert(tenantB, "b")
	insert(tenantA, "a")
	s := openBare(t, database, postgres.Options{})
	check := func(doing string, want ...store.TokenRef) {
		t.Helper()
		if got, err := s.AllTenants().OutdatedTokens(ctx, "", 0, 10); err != nil || !slices.Equal(got, want) {
			t.Errorf("OutdatedTokens %s: got %v, error %v; want %v", doing, got, err, want)
		}
		if found, err := s.Check(ctx, nil); len(found) > 0 || err != nil {
			t.Errorf("Check %s: got %q, error %v; want nothing", doing, found, err)
		}
	}
	recompute := func(tenant, id string) {
		t.Helper()
		if err := s.Update(ctx, tenant, func(tx store.Tx) error {
			row, err := tx.Token(ctx, id)
			if row.Derived {
				t.Errorf("token %s of an older release reads as derived", id)
			}
			row.Version, row.Derived = row.Version+1, true
			return errors.Join(err, tx.ReplaceToken(ctx, row))
		}); err != nil {
			t.Fatal(err)
		}
	}
	a, b, c := store.TokenRef{Tenant: tenantA, ID: "a"}, store.TokenRef{Tenant: tenantB, ID: "b"}, store.TokenRef{Tenant: tenantA, ID: "c"}
	check("after the migration", a, b)
	recompute(tenantA, "a")
	check("when one was recomputed", b)
	insert(tenantA, "c")
	check("when an older server has inserted one", c, b)
	change(tenantA, "a")
	check("when it has changed the one that was recomputed", a, c, b)
	recompute(tenantA, "a")
	recompute(tenantA, "c")
	recompute(tenantB, "b")
	check("when all were recomputed")
}

// built reports whether the index of outdated tokens is there and valid.
func built(t *testing.T, c *pgx.Conn) (yes bool) {
	t.Helper()
	if err := c.QueryRow(t.Context(), "SELECT EXISTS (SELECT 1 FROM pg_index WHERE indexrelid = to_regclass('tokenkeep.tokens_outdated') AND indisvalid)").Scan(&yes); err != nil {
		t.Fatal(err)
	}
	return yes
}

// TestAnIndexIsBuiltBesideWritersAndStartingServers: the build waits for a
// transaction that began before it, and nobody waits for the build except
// servers of the same release.
func TestAnIndexIsBuiltBesideWritersAndStartingServers(t *testing.T) {
	ctx, database := t.Context(), pgtest.Database(t)
	older := open(t, database, postgres.Options{})
	administer(t, database, "DROP INDEX tokenkeep.tokens_outdated")
	dump, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dump.Close(context.WithoutCancel(ctx)) }()
	if _, err := dump.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM tokenkeep.tokens"); err != nil {
		t.Fatal(err)
	}
	look, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = look.Close(context.WithoutCancel(ctx)) }()
	until := func(what, condition string) {
		t.Helper()
		waittest.Until(t, what, func() (yes bool) {
			if err := look.QueryRow(ctx, "SELECT "+condition).Scan(&yes); err != nil {
				t.Fatal(err)
			}
			return yes
		})
	}
	opened := make(chan error, 2)
	for range 2 {
		go func() {
			s, err := postgres.Open(ctx, database, postgres.Options{})
			if err == nil {
				err = s.Close()
			}
			opened <- err
		}()
	}
	until("the build waits for the dump", "EXISTS (SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE datname = current_database() AND NOT granted AND locktype = 'virtualxid')")
	until("the other server looks whether it has ended", "EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'SELECT pg_try_advisory_lock(%' AND application_name = 'tokenkeep')")
	for range 3 {
		if err := older.Update(ctx, tenantA, func(tx store.Tx) error { return tx.InsertToken(ctx, storetest.SomeToken()) }); err != nil {
			t.Errorf("an update during the build: %v", err)
		}
	}
	// What a server of an older release does first.
	if _, err := look.Exec(ctx, "SELECT pg_advisory_lock(1414219088, 1); SELECT pg_advisory_unlock(1414219088, 1)"); err != nil {
		t.Errorf("the lock of migrations during the build: %v", err)
	}
	if built(t, look) {
		t.Error("the index is valid before the dump has ended")
	}
	select {
	case err := <-opened:
		t.Errorf("Open returned during the build: %v", err)
	default:
	}
	if _, err := dump.Exec(ctx, "COMMIT"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-opened; err != nil {
			t.Errorf("Open: %v", err)
		}
	}
	if !built(t, look) {
		t.Error("the index was not built")
	}
	if refs, err := older.AllTenants().OutdatedTokens(ctx, "", 0, 10); len(refs) != 3 || err != nil {
		t.Errorf("OutdatedTokens: got %v, error %v; want those that were inserted meanwhile", refs, err)
	}
}

// TestAnIndexIsBuiltAgainOnlyWhenItIsNeeded: when a build was interrupted, and
// not when a newer release has dropped the index.
func TestAnIndexIsBuiltAgainOnlyWhenItIsNeeded(t *testing.T) {
	const damaged = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'tokenkeep.tokens_outdated'::regclass"
	for name, c := range map[string]struct {
		before []string
		want   bool
	}{
		"an interrupted build":                  {[]string{damaged}, true},
		"no index":                              {[]string{"DROP INDEX tokenkeep.tokens_outdated"}, true},
		"an index that a newer release dropped": {[]string{"DROP INDEX tokenkeep.tokens_outdated", "UPDATE tokenkeep.installation SET value = '9999' WHERE name = 'schema'"}, false},
	} {
		database := pgtest.Database(t)
		if err := open(t, database, postgres.Options{}).Close(); err != nil {
			t.Fatal(err)
		}
		administer(t, database, c.before...)
		open(t, database, postgres.Options{})
		look, err := pgx.Connect(t.Context(), database)
		if err != nil {
			t.Fatal(err)
		}
		if got := built(t, look); got != c.want {
			t.Errorf("%s: the index is valid after Open: %t, want %t", name, got, c.want)
		}
		_ = look.Close(t.Context())
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
		waittest.Until(t, "the migration waits", waiting)
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
	waittest.Until(t, "the connections of the older server end", func() bool {
		s, err := postgres.Open(t.Context(), database, tomorrow)
		if err != nil && !errors.Is(err, store.ErrInUse) {
			t.Fatal(err)
		}
		newer = s
		return newer != nil
	})
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
