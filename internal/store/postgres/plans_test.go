package postgres_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// requests runs every statement of the request path, with every shape of
// filter and page.
func requests(t *testing.T, s *postgres.Store) {
	t.Helper()
	ctx := t.Context()
	fail := func(err error) {
		t.Helper()
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
	}
	tok, e := storetest.SomeToken(), storetest.SomeEntry("x")
	var groups []store.TokenGroup
	fail(s.Update(ctx, tenantB, func(tx store.Tx) error {
		changed := tok
		changed.Version, changed.Terms = 2, tok.Terms[:1]
		if err := errors.Join(
			tx.InsertTenant(ctx, store.Tenant{}), tx.ReplaceTenant(ctx, store.Tenant{}),
			tx.PutKeyset(ctx, store.Keyset{Purpose: "p", Wrapped: []byte("w"), Version: 1}), tx.PutKeyset(ctx, store.Keyset{Purpose: "p", Wrapped: []byte("w"), Version: 2}),
			tx.PutMark(ctx, "m", []byte("v")), tx.PutMark(ctx, "n", nil),
			tx.InsertApplication(ctx, store.Application{ID: "a", Type: "private", Version: 1}), tx.ReplaceApplication(ctx, store.Application{ID: "a", Version: 2}),
			tx.InsertKey(ctx, store.Key{ID: "k", ApplicationID: "a", Hash: []byte("h")}),
			tx.InsertToken(ctx, tok), tx.ReplaceToken(ctx, changed), tx.AppendLog(ctx, e, storetest.SomeEntry("y")),
			tx.InsertSession(ctx, store.Session{ID: "s", KeyHash: []byte("k"), NonceHash: []byte("n"), Version: 1}), tx.ReplaceSession(ctx, store.Session{ID: "s", Version: 2}),
			tx.InsertParcel(ctx, store.Parcel{Kind: "job", ID: "p", Version: 1}), tx.ReplaceParcel(ctx, store.Parcel{Kind: "job", ID: "p", Version: 2}),
			tx.InsertDefinition(ctx, store.Definition{Kind: "proxy", ID: "d", KeyHash: []byte("k"), Version: 1}), tx.ReplaceDefinition(ctx, store.Definition{Kind: "proxy", ID: "d", Version: 2}),
			tx.AppendLogBatch(ctx, store.LogBatch{Number: 1}, []store.Position{{CreatedAt: e.CreatedAt, ID: e.ID}}),
			tx.DropLogBatch(ctx, 1, []store.Position{{CreatedAt: e.CreatedAt, ID: e.ID}}),
		); err != nil {
			return err
		}
		var err error
		groups, err = tx.TokenGroups(ctx)
		return err
	}))
	terms := [][]byte{tok.Terms[0], []byte("b"), []byte("c")}
	var many []string
	for n := range 600 {
		many = append(many, fmt.Sprintf("%032x", n))
	}
	after := &store.Position{CreatedAt: e.CreatedAt, ID: e.ID}
	pages := []store.Page{{Limit: 10}, {Limit: 10, Offset: 5}, {Limit: 10, After: after}}
	fail(s.View(ctx, tenantB, func(tx store.Tx) error {
		for _, f := range []store.TokenFilter{
			{}, {IDs: []string{tok.ID}}, {IDs: []string{tok.ID}, Groups: many[:2]}, {Groups: []string{groups[0].ID}}, {Groups: many},
			{Terms: terms[:1]}, {Terms: terms[:2]}, {Terms: terms}, {Terms: terms[:1], Groups: many}, {Terms: terms[:2], Groups: many[:1]},
		} {
			for _, p := range pages {
				_, err := tx.Tokens(ctx, f, p)
				fail(err)
			}
			_, err := tx.CountTokens(ctx, f)
			fail(err)
		}
		for _, f := range []store.LogFilter{
			{}, {EntityType: "card"}, {EntityID: "x"}, {EntityType: "card", EntityID: "x"}, {From: 1}, {Before: 1}, {From: 1, Before: 2},
			{EntityType: "card", From: 1, Before: 2}, {EntityID: "x", From: 1, Before: 2}, {EntityType: "card", EntityID: "x", From: 1, Before: 2},
		} {
			for _, p := range pages {
				_, err := tx.Logs(ctx, f, p)
				fail(err)
			}
			_, err := tx.CountLogs(ctx, f)
			fail(err)
		}
		for _, f := range []store.ApplicationFilter{{}, {IDs: []string{"a"}}, {Types: []string{"private"}}} {
			for _, p := range pages {
				_, err := tx.Applications(ctx, f, p)
				fail(err)
			}
			_, err := tx.CountApplications(ctx, f)
			fail(err)
		}
		for _, p := range pages {
			_, err := tx.Sessions(ctx, store.SessionFilter{Now: 1}, p)
			fail(err)
			for _, f := range []store.ParcelFilter{{}, {Kind: "job"}, {Kind: "job", Group: "g"}} {
				_, err := tx.Parcels(ctx, f, p)
				fail(err)
				_, err = tx.CountParcels(ctx, f)
				fail(err)
			}
			for _, f := range []store.DefinitionFilter{
				{}, {Kind: "proxy"}, {Kind: "proxy", IDs: []string{"d"}}, {Kind: "proxy", Name: "a*"}, {ApplicationID: "a"}, {Kind: "proxy", ApplicationID: "a"},
				{Kind: "proxy", ApplicationID: "a", IDs: []string{"d"}, Name: "a"},
			} {
				_, err := tx.Definitions(ctx, f, p)
				fail(err)
				_, err = tx.CountDefinitions(ctx, f)
				fail(err)
			}
		}
		for _, read := range []func() error{
			func() error { _, err := tx.Session(ctx, "s"); return err },
			func() error { _, err := tx.SessionByKey(ctx, []byte("k")); return err },
			func() error { _, err := tx.SessionByNonce(ctx, []byte("n")); return err },
			func() error { _, err := tx.CountSessions(ctx, store.SessionFilter{Now: 1}); return err },
			func() error { _, err := tx.Parcel(ctx, "job", "p"); return err },
			func() error { _, err := tx.Definition(ctx, "proxy", "d"); return err },
			func() error { _, err := tx.DefinitionByKey(ctx, []byte("k")); return err },
			func() error { _, err := tx.TenantRow(ctx); return err },
			func() error { _, err := tx.Keysets(ctx); return err },
			func() error { _, err := tx.Mark(ctx, "m"); return err },
			func() error { _, err := tx.Keys(ctx, "a"); return err },
			func() error { _, _, err := tx.KeyByHash(ctx, []byte("h")); return err },
			func() error { _, err := tx.TokenGroups(ctx); return err },
			func() error { _, err := tx.LogEntry(ctx, *after); return err },
			func() error { _, err := tx.LogPositions(ctx, after, 10); return err },
			func() error { _, err := tx.UnsealedLogPositions(ctx, nil, 10); return err },
			func() error { _, err := tx.UnsealedLog(ctx, 10); return err },
			func() error { _, err := tx.CountUnsealedLog(ctx); return err },
			func() error { _, err := tx.LogBatches(ctx, 0, 10); return err },
			func() error { _, err := tx.LastLogBatch(ctx); return err },
		} {
			fail(read())
		}
		return nil
	}))
	keys := s.EpochKeys()
	_, err := keys.AddEpochKey(ctx, tenantB, 1, []byte("w"))
	fail(err)
	fail(keys.ReplaceEpochKey(ctx, tenantB, 1, []byte("v")))
	_, err = keys.EpochKeyList(ctx, tenantB)
	fail(err)
	fail(keys.DestroyTenantEpochKeys(ctx, tenantB))
	fail(s.Update(ctx, tenantB, func(tx store.Tx) error {
		return errors.Join(tx.DeleteKey(ctx, "a", "k"), tx.DeleteApplication(ctx, "a"), tx.DeleteToken(ctx, tok.ID), tx.DestroyKeysets(ctx),
			tx.DeleteSession(ctx, "s"), tx.DeleteParcel(ctx, "job", "p"), tx.DeleteDefinition(ctx, "proxy", "d"))
	}))
}

// many fills the tables with rows of one large tenant and of a few small ones.
var many = []string{
	`CREATE FUNCTION pg_temp.tenant(n int) RETURNS uuid LANGUAGE sql AS $$ SELECT CASE WHEN n % 10 = 0 THEN lpad((1 + n % 50)::text, 32, '0') ELSE repeat('2', 12) || '4' || repeat('2', 3) || '8' || repeat('2', 15) END::uuid $$`,
	`INSERT INTO tenants SELECT lpad(n::text, 32, '0')::uuid, '', '{}', NULL, '', 0, '', 0, false FROM generate_series(100, 3100) n`,
	`INSERT INTO tokens SELECT pg_temp.tenant(n), 't' || n, lpad((n % 40)::text, 32, '0')::uuid, 'card', '["/"]', 'data', NULL, NULL, NULL,
	  CASE WHEN n % 20 = 0 THEN n END, 0, '', n, '', n, 1 FROM generate_series(1, 20000) n`,
	`INSERT INTO token_terms SELECT pg_temp.tenant(n), ('term ' || k || ' ' || n % k)::bytea, n, 't' || n, lpad((n % 40)::text, 32, '0')::uuid, CASE WHEN n % 20 = 0 THEN n END
	  FROM generate_series(1, 20000) n, (VALUES (2), (5000)) AS x (k)`,
	`INSERT INTO token_groups SELECT pg_temp.tenant(n), lpad((n % 400)::text, 32, '0')::uuid, n / 400 % 16, 'card', '["/"]', 1 FROM generate_series(1, 6400) n ON CONFLICT DO NOTHING`,
	`INSERT INTO log SELECT pg_temp.tenant(n), n, gen_random_uuid(), '', '', '', 'type ' || n % 5, 't' || n % 3000, '', '', '', '', '' FROM generate_series(1, 20000) n`,
	`INSERT INTO log_unsealed SELECT tenant_id, created_at, id FROM log WHERE created_at % 4 = 0 ON CONFLICT DO NOTHING`,
	`INSERT INTO log_counts SELECT pg_temp.tenant(n), 'type ' || n % 300, n / 300 % 16, 1 FROM generate_series(1, 4800) n ON CONFLICT DO NOTHING`,
	`INSERT INTO log_batches SELECT pg_temp.tenant(n), n + 10, 1, '', '', '', '', 0, false FROM generate_series(1, 3000) n`,
	`INSERT INTO commits SELECT pg_temp.tenant(n), gen_random_uuid(), true FROM generate_series(1, 3000) n`,
	`INSERT INTO marks SELECT pg_temp.tenant(n), 'mark ' || n, 'v' FROM generate_series(1, 3000) n`,
	`INSERT INTO keysets SELECT lpad(n::text, 32, '0')::uuid, 'p', 'w', '', 1, 0, 0 FROM generate_series(100, 3100) n`,
	`INSERT INTO applications SELECT pg_temp.tenant(n), 'a' || n, '', 'private', '[]', NULL, 0, '', n, '', n, 1 FROM generate_series(1, 3000) n`,
	`INSERT INTO application_keys SELECT pg_temp.tenant(n), ('h' || n)::bytea, 'a' || n, 'k', 1, '', '', 0 FROM generate_series(1, 3000) n`,
	`INSERT INTO sessions SELECT pg_temp.tenant(n), 's' || n, ('k' || n)::bytea, ('n' || n)::bytea, '', NULL, '', n, '', 0, n, 1 FROM generate_series(1, 20000) n`,
	`INSERT INTO parcels SELECT pg_temp.tenant(n), (ARRAY['answer', 'job', 'result', 'run'])[1 + n % 4], 'p' || n, CASE WHEN n % 4 = 3 THEN 'g' || n % 40 ELSE '' END,
	  '', 'contents', 0, n, CASE WHEN n % 4 = 1 THEN n END, n, 0, 1 FROM generate_series(1, 20000) n`,
	`INSERT INTO definitions SELECT pg_temp.tenant(n), (ARRAY['proxy', 'reactor'])[1 + n % 2], 'd' || n, '', '', CASE WHEN n % 2 = 0 THEN 'a' || n % 500 ELSE '' END,
	  ('k' || n)::bytea, '', n, '', n, 1, 'contents' FROM generate_series(1, 5000) n`,
	`INSERT INTO epoch_keys SELECT pg_temp.tenant(n), n, 'w' FROM generate_series(1, 3000) n`,
	`ANALYZE`,
}

// sorts are the statements that may sort: pages of a bounded number of rows,
// and what returns all rows of a tenant in any case.
var sorts = []string{"AS page", "AS head", "AS counted", "DISTINCT ON (group_id)", "FROM epoch_keys", "FROM keysets"}

// TestNoRequestScansATable asks the planner, with its own settings and not with
// ours, how it would run each statement over many rows.
func TestNoRequestScansATable(t *testing.T) {
	storetest.Long(t)
	database := pgtest.Database(t)
	var sent, crossing recorder
	s := openTraced(t, database, postgres.Options{}, &sent, &crossing)
	requests(t, s)
	sweeps(t, s)
	administer(t, database+"&search_path=tokenkeep", many...)

	const settings = "&search_path=tokenkeep&plan_cache_mode=force_generic_plan"
	seeks := checkPlans(t, database+settings+"&role=tokenkeep_requests", sent.read(), "tokens_by_expiry", "sessions_by_expiry", "parcels_by_expiry", "parcels_by_due")
	if seeks < 60 {
		t.Errorf("only %d seeks: the plans are not read rightly", seeks)
	}
	if seeks := checkPlans(t, database+settings, crossing.read()); seeks < 7 {
		t.Errorf("only %d seeks across tenants: the plans are not read rightly", seeks)
	}
}

// sweeps runs the statements that cross tenants, but for checks.
func sweeps(t *testing.T, s *postgres.Store) {
	t.Helper()
	ctx := t.Context()
	_, errTenants := s.AllTenants().Tenants(ctx, "", 10)
	_, errExpired := s.AllTenants().ExpiredTokens(ctx, 1, 0, 10)
	_, errSessions := s.AllTenants().ExpiredSessions(ctx, 1, 0, 10)
	_, errParcels := s.AllTenants().ExpiredParcels(ctx, 1, 0, 10)
	_, errDue := s.AllTenants().DueParcels(ctx, 1, 10)
	_, errUnsealed := s.AllTenants().UnsealedTenants(ctx, "", 10)
	_, errKeys := s.EpochKeys().DestroyEpochKeys(ctx, 1, math.MaxInt64)
	if err := errors.Join(errTenants, errExpired, errSessions, errParcels, errDue, errUnsealed, errKeys); err != nil {
		t.Fatal(err)
	}
}

// checkPlans fails for every statement whose plan passes over a table, and
// returns how many seeks there are in all.
func checkPlans(t *testing.T, database string, statements []string, forbidden ...string) (seeks int) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }()
	for _, text := range statements {
		switch word, _, _ := strings.Cut(strings.TrimSpace(text), " "); word {
		case "SELECT", "INSERT", "UPDATE", "DELETE", "WITH":
		default:
			continue
		}
		plan := explain(t, c, text)
		for _, step := range plan {
			if strings.Contains(step, "Index Cond: ") {
				seeks++
			}
			sort := strings.Contains(step, "Sort  (") && !containsAny(text, sorts)
			if sort || containsAny(step, append(forbidden, "Seq Scan", "Hash Join", "Merge Join")) {
				t.Errorf("%s\n\tis run with:\n\t%s", strings.Join(strings.Fields(text), " "), strings.Join(plan, "\n\t"))
				break
			}
		}
	}
	return seeks
}

func containsAny(text string, words []string) bool {
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

// explain returns the plan of a statement whatever it is given.
func explain(t *testing.T, c *pgx.Conn, text string) []string {
	t.Helper()
	d, err := c.Prepare(t.Context(), "asked", text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer func() { _ = c.Deallocate(t.Context(), "asked") }()
	nulls := strings.TrimSuffix(strings.Repeat("NULL, ", len(d.ParamOIDs)), ", ")
	if nulls != "" {
		nulls = "(" + nulls + ")"
	}
	rows, err := c.Query(t.Context(), "EXPLAIN EXECUTE asked"+nulls, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return plan
}
