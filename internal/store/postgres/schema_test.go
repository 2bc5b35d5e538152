package postgres_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
)

// TestTheSchemaIsReadyToBeSharded looks into the catalog: whatever migrations
// come, the rows of a tenant stay together and nothing ties tenants to each other.
func TestTheSchemaIsReadyToBeSharded(t *testing.T) {
	database := pgtest.Database(t)
	open(t, database, postgres.Options{})
	c, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }()
	ask := func(text string) []string {
		t.Helper()
		rows, err := c.Query(t.Context(), text)
		if err != nil {
			t.Fatal(err)
		}
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	const ours = " relnamespace = 'tokenkeep'::regnamespace"
	tenants, installation := postgres.Tables()
	want := append([]string{installation}, tenants...)
	got := ask("SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND" + ours)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("tables: got %v, want %v: a new one needs its rights and its policies", got, want)
	}
	for what, text := range map[string]string{
		"unique keys that do not begin with the tenant": `
			SELECT i.relname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class r ON r.oid = x.indrelid
			LEFT JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[0]
			WHERE x.indisunique AND r.relkind <> 't' AND i.` + ours[1:] + ` AND a.attname IS DISTINCT FROM 'tenant_id' AND r.relname <> 'installation'`,
		"tables without a primary key": "SELECT relname FROM pg_class r WHERE relkind = 'r' AND" + ours + " AND NOT EXISTS (SELECT 1 FROM pg_index WHERE indrelid = r.oid AND indisprimary)",
		"tables of tenants without row-level security that is forced": "SELECT relname FROM pg_class WHERE relkind = 'r' AND" + ours +
			" AND NOT (relrowsecurity AND relforcerowsecurity) AND relname <> 'installation'",
		"tables of tenants without the policy for one tenant": "SELECT relname FROM pg_class r WHERE relkind = 'r' AND" + ours +
			" AND relname <> 'installation' AND NOT EXISTS (SELECT 1 FROM pg_policies WHERE tablename = r.relname AND policyname = 'one_tenant' AND cmd = 'ALL' AND qual LIKE '%tokenkeep.tenant_id%')",
		"sequences":    "SELECT relname FROM pg_class WHERE relkind = 'S' AND" + ours,
		"foreign keys": "SELECT conname FROM pg_constraint WHERE contype = 'f' AND connamespace = 'tokenkeep'::regnamespace",
		"triggers":     "SELECT tgname FROM pg_trigger g JOIN pg_class ON pg_class.oid = tgrelid WHERE" + ours,
		"columns tenant_id that are no uuid or may be null": "SELECT relname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid WHERE attname = 'tenant_id' AND relkind = 'r' AND" + ours +
			" AND (atttypid <> 'uuid'::regtype OR NOT attnotnull)",
		"ids that are neither uuid nor text by its bytes": `
			SELECT relname || '.' || attname FROM pg_attribute a JOIN pg_class ON pg_class.oid = attrelid LEFT JOIN pg_collation c ON c.oid = attcollation
			WHERE relkind = 'r' AND` + ours + ` AND attname ~ '(^|_)id$' AND attname NOT IN ('actor_id', 'session_id', 'trace_id')
			AND NOT (atttypid = 'uuid'::regtype OR atttypid = 'text'::regtype AND collname = 'C')`,
	} {
		if found := ask(text); len(found) > 0 {
			t.Errorf("there are %s: %v", what, found)
		}
	}
}
