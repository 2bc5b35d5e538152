package transfer_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/transfer"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

func openBoth(t *testing.T) (dir, url string, from *sqlite.Store, to *postgres.Store) {
	t.Helper()
	dir, url = filepath.Join(t.TempDir(), "data"), pgtest.Database(t)
	from, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = from.Close() })
	if to, err = postgres.Open(t.Context(), url, postgres.Options{Receive: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = to.Close() })
	return dir, url, from, to
}

// TestNothingOfTheSchemasIsLeftBehind finds a table or a column that somebody
// added to a migration and not to the list.
func TestNothingOfTheSchemasIsLeftBehind(t *testing.T) {
	dir, url, _, _ := openBoth(t)
	// What does not move with the rest, and why.
	left := map[string]string{
		"token_term_counts": "SQLite counts common terms", "commits": "PostgreSQL finds out outcomes", "epoch_keys": "they move apart",
		"*.row_id": "SQLite's own order", "token_groups.slot": "PostgreSQL's own", "log_counts.slot": "PostgreSQL's own", "token_groups.counted": "PostgreSQL's own",
		"token_types": "counted again", "token_containers": "counted again", "container_counts": "counted again", "token_groups_emptied": "PostgreSQL's own",
		"event_queue": "PostgreSQL's own",
	}
	listed := map[string][]string{}
	for _, table := range transfer.Tables {
		columns := strings.Split(table.Names(len(table.Columns)), ", ")
		slices.Sort(columns)
		listed[table.Name] = columns
	}
	check := func(backend string, has map[string][]string) {
		for table, columns := range has {
			columns = slices.DeleteFunc(columns, func(c string) bool { return left[table+"."+c] != "" || left["*."+c] != "" })
			slices.Sort(columns)
			if left[table] == "" && !slices.Equal(columns, listed[table]) {
				t.Errorf("%s has in %s the columns %v, and %v move", backend, table, columns, listed[table])
			}
		}
		for table := range listed {
			if has[table] == nil {
				t.Errorf("%s has no table %s", backend, table)
			}
		}
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "tokenkeep.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	rows, err := db.Query("SELECT m.name, p.name FROM sqlite_schema m, pragma_table_info(m.name) p WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'")
	if err != nil {
		t.Fatal(err)
	}
	embedded := map[string][]string{}
	for rows.Next() {
		var table, column string
		if err := rows.Scan(&table, &column); err != nil {
			t.Fatal(err)
		}
		embedded[table] = append(embedded[table], column)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		t.Fatal(err)
	}
	check("SQLite", embedded)
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }()
	found, err := c.Query(t.Context(), "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'tokenkeep'")
	if err != nil {
		t.Fatal(err)
	}
	shared := map[string][]string{}
	for found.Next() {
		var table, column string
		if err := found.Scan(&table, &column); err != nil {
			t.Fatal(err)
		}
		shared[table] = append(shared[table], column)
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	check("PostgreSQL", shared)
}

// fill puts rows into every table, of two tenants, with values at the edges.
func fill(t *testing.T, s store.Store) (tenants []string) {
	t.Helper()
	ctx := t.Context()
	if err := s.AllTenants().PutSetting(ctx, "keyring.check", []byte{0, 1, 0xff}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		tenant := uuid.NewString()
		tenants = append(tenants, tenant)
		err := s.Update(ctx, tenant, func(tx store.Tx) error {
			errs := []error{
				tx.InsertTenant(ctx, store.Tenant{ID: tenant, Name: "Ünïcode \U0001F511", Settings: map[string]string{"a": "b"}, Secrets: []byte{1}, CreatedAt: 1}),
				tx.PutKeyset(ctx, store.Keyset{Purpose: "data", Wrapped: []byte("wrapped"), KEK: "local-1", Version: 1, CreatedAt: 2, ModifiedAt: 3}),
				tx.PutMark(ctx, "work", []byte{}),
				tx.AddActivity(ctx, []store.Activity{{Width: 60, At: 60_000_000, ActorID: "a", Kind: "reveal", Entries: 3}}),
				tx.InsertApplication(ctx, store.Application{ID: "a", Type: "private", Permissions: []string{"x", "y"}, Rules: []byte{7}, CreatedAt: 4, Version: 1}),
				tx.InsertApplication(ctx, store.Application{ID: "none", CreatedAt: 5, Version: 1}),
				tx.InsertKey(ctx, store.Key{ID: "k", ApplicationID: "a", Version: 1, Hash: []byte{0, 9}, Prefix: "key_", CreatedAt: 6}),
				tx.InsertSession(ctx, store.Session{ID: "s", KeyHash: []byte{1}, NonceHash: []byte{2}, Grant: []byte{}, CreatedAt: 7, ExpiresAt: 8, Version: 1}),
				tx.InsertParcel(ctx, store.Parcel{Kind: "answer", ID: "p", Contents: []byte{3}, CreatedAt: 9, ExpiresAt: 10, Version: 1}),
				tx.InsertParcel(ctx, store.Parcel{Kind: "job", ID: "p", Group: "g", Owner: "o", Epoch: 11, CreatedAt: 9, DueAt: 12, ExpiresAt: 10, Attempts: 2, Version: 1}),
				tx.InsertDefinition(ctx, store.Definition{Kind: "proxy", ID: "d", Name: "A*ß", KeyHash: []byte{5}, Contents: []byte{6}, CreatedAt: 13, Version: 1}),
				tx.InsertDefinition(ctx, store.Definition{Kind: "reactor", ID: "d", ApplicationID: "a", CreatedAt: 13, Version: 1}),
			}
			// More than a page, with ids in whose order a collation could err.
			for n := range 230 {
				errs = append(errs, tx.InsertToken(ctx, store.Token{
					ID: fmt.Sprintf("%c-Ä%d_", "aBäz"[n%3], n), Type: "card", Containers: []string{"/a/", "/b/"}[:1+n%2], Data: []byte{byte(n)}, Details: []byte{},
					Terms: [][]byte{{byte(n % 5)}, {0xff, byte(n)}}, Expiry: store.Expiry{At: store.Time(n % 2 * 1e9), OffsetSeconds: -3600 * (n % 2)},
					CreatedAt: store.Time(1000 + n/2), ModifiedAt: -1, Version: int64(n + 1), Derived: n%3 > 0,
				}))
			}
			for n := range 150 {
				errs = append(errs, tx.AppendLog(ctx, store.LogEntry{ID: uuid.NewString(), CreatedAt: store.Time(n), EntityType: []string{"token", "tenant"}[n%2], EntityID: "e", Message: "m", Event: "token.created"}))
			}
			return errors.Join(errs...)
		})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Update(ctx, tenant, func(tx store.Tx) error {
			sealed, err := tx.UnsealedLogPositions(ctx, nil, 40)
			if err != nil {
				return err
			}
			return tx.AppendLogBatch(ctx, store.LogBatch{Number: 1, Count: 40, Leaves: []byte{1}, Root: []byte{2}, Link: []byte{3}, Signature: []byte{}, SealedAt: 5, Dropped: true}, sealed)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return tenants
}

// contents reads everything of a tenant through the interface of stores.
func contents(ctx context.Context, s store.Store, tenant string) (all map[string]any, err error) {
	all = map[string]any{}
	err = s.View(ctx, tenant, func(tx store.Tx) error {
		var errs []error
		keep := func(name string, v any, err error) { all[name] = v; errs = append(errs, err) }
		page := store.Page{Limit: 1000}
		row, err := tx.TenantRow(ctx)
		keep("tenant", row, err)
		keysets, err := tx.Keysets(ctx)
		keep("keysets", keysets, err)
		mark, err := tx.Mark(ctx, "work")
		keep("mark", mark, err)
		applications, err := tx.Applications(ctx, store.ApplicationFilter{}, page)
		keep("applications", applications, err)
		keys, err := tx.Keys(ctx, "a")
		keep("keys", keys, err)
		tokens, err := tx.Tokens(ctx, store.TokenFilter{Now: 1, Groups: store.AllGroups()}, page)
		keep("tokens", tokens, err)
		byTerm, err := tx.Tokens(ctx, store.TokenFilter{Now: 1, Groups: store.AllGroups(), Terms: [][]byte{{3}}}, page)
		keep("tokens by a term", byTerm, err)
		n, err := tx.CountTokens(ctx, store.TokenFilter{Now: 1, Groups: store.AllGroups()})
		keep("number of tokens", n, err)
		groups, err := tx.TokenGroups(ctx)
		slices.SortFunc(groups, func(a, b store.TokenGroup) int { return strings.Compare(a.ID, b.ID) })
		keep("groups", groups, err)
		sessions, err := tx.Sessions(ctx, store.SessionFilter{}, page)
		keep("sessions", sessions, err)
		parcels, err := tx.Parcels(ctx, store.ParcelFilter{}, page)
		keep("parcels", parcels, err)
		definitions, err := tx.Definitions(ctx, store.DefinitionFilter{Name: "a*SS"}, page)
		keep("definitions by name", definitions, err)
		definitions, err = tx.Definitions(ctx, store.DefinitionFilter{}, page)
		keep("definitions", definitions, err)
		logs, err := tx.Logs(ctx, store.LogFilter{}, page)
		keep("log", logs, err)
		n, err = tx.CountLogs(ctx, store.LogFilter{EntityType: "token"})
		keep("number of entries", n, err)
		unsealed, err := tx.UnsealedLogPositions(ctx, nil, 1000)
		keep("unsealed", unsealed, err)
		batches, err := tx.LogBatches(ctx, 0, 10)
		keep("batches", batches, err)
		return errors.Join(errs...)
	})
	return all, err
}

func TestAStoreThatWasMovedReadsTheSame(t *testing.T) {
	_, _, from, to := openBoth(t)
	tenants := fill(t, from)
	for _, table := range transfer.Tables {
		if err := transfer.Copy(t.Context(), from, to, table, func(int64) {}); err != nil {
			t.Fatal(err)
		}
		// Once more adds nothing.
		if err := transfer.Copy(t.Context(), from, to, table, func(int64) { t.Errorf("%s was copied twice", table.Name) }); err != nil {
			t.Fatal(err)
		}
		was, err1 := transfer.DigestOf(t.Context(), from, table, func(int64) {})
		is, err2 := transfer.DigestOf(t.Context(), to, table, func(int64) {})
		if err := errors.Join(err1, err2); err != nil || was != is || was.Rows == 0 {
			t.Errorf("%s: %+v became %+v, %v", table.Name, was, is, err)
		}
	}
	for _, tenant := range tenants {
		want, err1 := contents(t.Context(), from, tenant)
		got, err2 := contents(t.Context(), to, tenant)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		for name := range want {
			// No bytes and none are the same for stores, and in this form.
			if got, want := fmt.Sprintf("%+v", got[name]), fmt.Sprintf("%+v", want[name]); got != want {
				t.Errorf("%s: got %s, want %s", name, got, want)
			}
		}
	}
	want, err1 := from.AllTenants().OutdatedTokens(t.Context(), "", 0, 1000)
	got, err2 := to.AllTenants().OutdatedTokens(t.Context(), "", 0, 1000)
	if err := errors.Join(err1, err2); err != nil || !slices.Equal(got, want) || len(want) != 2*77 {
		t.Errorf("outdated tokens: got %v, want %v, error %v", got, want, err)
	}
	if found, err := to.Check(t.Context(), nil); err != nil || len(found) > 0 {
		t.Errorf("the check found %v, %v", found, err)
	}
}
