package postgres_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// many fills the tables with rows of one large tenant and of a few small ones.
var many = []string{
	`CREATE FUNCTION pg_temp.tenant(n int) RETURNS uuid LANGUAGE sql AS $$ SELECT CASE WHEN n % 10 = 0 THEN lpad((1 + n % 50)::text, 32, '0') ELSE repeat('2', 12) || '4' || repeat('2', 3) || '8' || repeat('2', 15) END::uuid $$`,
	`INSERT INTO tenants SELECT lpad(n::text, 32, '0')::uuid, '', '{}', NULL, '', 0, '', 0, false FROM generate_series(100, 3100) n`,
	`INSERT INTO tokens SELECT pg_temp.tenant(n), 't' || n, lpad((n % 40)::text, 32, '0')::uuid, 'card', '["/"]', 'data', NULL, NULL, NULL,
	  CASE WHEN n % 20 = 0 THEN n END, 0, '', n, '', n, 1 FROM generate_series(1, 20000) n`,
	`INSERT INTO token_terms SELECT pg_temp.tenant(n), ('term ' || k || ' ' || n % k)::bytea, n, 't' || n, lpad((n % 40)::text, 32, '0')::uuid, CASE WHEN n % 20 = 0 THEN n END
	  FROM generate_series(1, 20000) n, (VALUES (2), (5000)) AS x (k)`,
	`INSERT INTO token_groups SELECT pg_temp.tenant(n), lpad((n % 400)::text, 32, '0')::uuid, n / 400 % 16, 'card', '["/"]', 1 FROM generate_series(1, 6400) n ON CONFLICT DO NOTHING`,
	`INSERT INTO token_types SELECT lpad(n::text, 32, '0')::uuid, 'type ' || k, 0, 1 FROM generate_series(100, 3100) n, generate_series(1, 3) k ON CONFLICT DO NOTHING`,
	`INSERT INTO token_containers SELECT pg_temp.tenant(n), '/' || n % 3000 || '/', lpad((n % 400)::text, 32, '0')::uuid FROM generate_series(1, 6400) n ON CONFLICT DO NOTHING`,
	`INSERT INTO container_counts SELECT lpad(n::text, 32, '0')::uuid, 1, 1 FROM generate_series(100, 3100) n ON CONFLICT DO NOTHING`,
	`INSERT INTO token_groups_emptied SELECT pg_temp.tenant(n), lpad((n % 400)::text, 32, '0')::uuid, n % 100 FROM generate_series(1, 4000) n ON CONFLICT DO NOTHING`,
	`INSERT INTO log SELECT pg_temp.tenant(n), n, gen_random_uuid(), '', '', '', 'type ' || n % 5, 't' || n % 3000, '', '', '', '', '' FROM generate_series(1, 20000) n`,
	`INSERT INTO log_unsealed SELECT tenant_id, created_at, id FROM log WHERE created_at % 4 = 0 ON CONFLICT DO NOTHING`,
	`INSERT INTO log_counts SELECT pg_temp.tenant(n), 'type ' || n % 300, n / 300 % 16, 1 FROM generate_series(1, 4800) n ON CONFLICT DO NOTHING`,
	`INSERT INTO log_batches SELECT pg_temp.tenant(n), n + 10, 1, '', '', '', '', 0, false FROM generate_series(1, 3000) n`,
	`INSERT INTO events SELECT pg_temp.tenant(n), n, gen_random_uuid(), 'token.created', 'card', 't' || n % 3000, '', '', '', n FROM generate_series(1, 20000) n ON CONFLICT DO NOTHING`,
	`INSERT INTO event_queue SELECT pg_temp.tenant(n), n, 0, gen_random_uuid(), 'token.created', 'card', 't' || n % 3000, '', '', '', n FROM generate_series(1, 20000) n ON CONFLICT DO NOTHING`,
	`INSERT INTO event_heads SELECT lpad(n::text, 32, '0')::uuid, n, n - n % 2 FROM generate_series(100, 3100) n ON CONFLICT DO NOTHING`,
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
	`INSERT INTO installation SELECT 'name ' || n, 'v' FROM generate_series(1, 3000) n`,
	`INSERT INTO epoch_keys SELECT pg_temp.tenant(n), n, 'w' FROM generate_series(1, 3000) n`,
	`ANALYZE`,
}

// sorts are the statements that may sort: pages of a bounded number of rows,
// the containers of one update, the few types, and what returns all rows of a tenant in any case.
var sorts = []string{"AS page", "AS head", "AS counted", "AS w (group_id, container)", "-count(*) FROM tokens", "HAVING sum(tokens) > 0", "FROM epoch_keys", "FROM keysets"}

// TestNoRequestScansATable asks the planner, with its own settings and not with
// ours, how it would run each statement over many rows.
func TestNoRequestScansATable(t *testing.T) {
	storetest.CheckOnly(t)
	database := pgtest.Database(t)
	var sent, crossing recorder
	s := openTraced(t, database, postgres.Options{}, &sent, &crossing)
	storetest.EveryRequest(t, s, tenantB)
	storetest.EverySweep(t, s)
	administer(t, database+"&search_path=tokenkeep", many...)

	const settings = "&search_path=tokenkeep&plan_cache_mode=force_generic_plan"
	seeks := checkPlans(t, database+settings+"&role=tokenkeep_requests", sent.read(), "tokens_by_expiry", "sessions_by_expiry", "parcels_by_expiry", "parcels_by_due")
	if seeks < 60 {
		t.Errorf("only %d seeks: the plans are not read rightly", seeks)
	}
	// What is done every minute passes over the table of what there is to do, and
	// once an hour over the groups of all tenants.
	chores := slices.DeleteFunc(crossing.read(), func(text string) bool {
		return !strings.Contains(text, "pg_locks") && !strings.Contains(text, "SELECT DISTINCT tenant_id FROM token_groups")
	})
	if len(chores) != 3 {
		t.Errorf("there are %d chores, want 3: %q", len(chores), chores)
	}
	others := slices.DeleteFunc(crossing.read(), func(text string) bool { return slices.Contains(chores, text) })
	if seeks := checkPlans(t, database+settings, others); seeks < 7 {
		t.Errorf("only %d seeks across tenants: the plans are not read rightly", seeks)
	}

	// The key has the order that OutdatedTokens wants too, and passes over all
	// tokens that are up to date.
	c, err := pgx.Connect(t.Context(), database+settings)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }()
	asked := false
	for _, text := range crossing.read() {
		if !strings.Contains(text, "derived_at") {
			continue
		}
		asked = true
		for _, outdated := range []struct{ share, change string }{
			{"all", "UPDATE tokens SET derived_at = 0"}, {"none", "UPDATE tokens SET derived_at = version"},
			{"half", "UPDATE tokens SET derived_at = version + created_at % 2"}, {"one", "UPDATE tokens SET derived_at = version - CASE WHEN id = 't10000' THEN 1 ELSE 0 END"},
		} {
			administer(t, database+"&search_path=tokenkeep", outdated.change, "VACUUM ANALYZE tokens")
			if plan := explain(t, c, text); !strings.Contains(strings.Join(plan, "\n"), "Index Only Scan using tokens_outdated") {
				t.Errorf("when %s of the tokens are outdated, %s\n\tis run with:\n\t%s", outdated.share, text, strings.Join(plan, "\n\t"))
			}
		}
	}
	if !asked {
		t.Error("nobody asked for outdated tokens")
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
