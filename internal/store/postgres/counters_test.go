package postgres_test

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// counts keeps the statements of requests that add counters up.
type counts struct {
	recorder
	mu   sync.Mutex // guards sent
	sent []*pgx.QueuedQuery
}

func (r *counts) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range data.Batch.QueuedQueries {
		if strings.Contains(q.SQL, "sum(tokens)") {
			r.sent = append(r.sent, q)
		}
	}
	return ctx
}

var scanned = regexp.MustCompile(`Scan .*rows=([0-9.]+) loops=([0-9]+)`)

// rowsRead runs the statements again, and returns how many rows their scans read.
func (r *counts) rowsRead(t *testing.T, database string) (rows float64) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), database+"&search_path=tokenkeep")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.sent) == 0 {
		t.Error("nothing was counted")
	}
	for _, q := range r.sent {
		found, err := c.Query(t.Context(), "EXPLAIN (ANALYZE, TIMING OFF) "+q.SQL, q.Arguments...)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := pgx.CollectRows(found, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range plan {
			if n := scanned.FindStringSubmatch(step); n != nil {
				each, _ := strconv.ParseFloat(n[1], 64)
				loops, _ := strconv.ParseFloat(n[2], 64)
				rows += each * loops
			}
		}
	}
	r.sent = nil
	return rows
}

// TestTotalsCostTheSameHoweverManyContainersThereAre counts the rows that are
// read for a tenant with one container and for one with hundreds, which has
// also emptied some.
func TestTotalsCostTheSameHoweverManyContainersThereAre(t *testing.T) {
	database := pgtest.Database(t)
	sent := &counts{}
	s := openTraced(t, database, postgres.Options{}, sent, nil)
	ctx := t.Context()
	if err := storetest.AddTenants(ctx, s, tenantA, tenantB); err != nil {
		t.Fatal(err)
	}
	const many = 300
	if err := s.Update(ctx, tenantB, func(tx store.Tx) error {
		for n := range many {
			tok := storetest.SomeToken()
			tok.Containers = []string{fmt.Sprintf("/%d/", n)}
			if err := tx.InsertToken(ctx, tok); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(ctx, tenantA, func(tx store.Tx) error { return tx.InsertToken(ctx, storetest.SomeToken()) }); err != nil {
		t.Fatal(err)
	}
	read := func(tenant string, want int64) float64 {
		t.Helper()
		if err := s.View(ctx, tenant, func(tx store.Tx) error {
			types, err := tx.CountTypes(ctx, 1)
			if err != nil {
				return err
			}
			total := int64(0)
			for _, n := range types {
				total += n
			}
			n, err := tx.CountTokens(ctx, store.TokenFilter{Now: 1, Groups: store.AllGroups()})
			if total != want || n != want {
				t.Errorf("types come to %d, and all tokens to %d; want %d", total, n, want)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return sent.rowsRead(t, database)
	}
	one, hundreds := read(tenantA, 1), read(tenantB, many)
	if one != hundreds || one == 0 {
		t.Errorf("%v rows are read for one container, and %v for %d; want as many", one, hundreds, many)
	}
}

// TestCountersFollowServersOfTheReleaseBefore writes what such a server writes,
// which does not know the counters, beside one that does.
func TestCountersFollowServersOfTheReleaseBefore(t *testing.T) {
	texts, err := postgres.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	ctx, database := t.Context(), pgtest.Database(t)
	administer(t, database, "CREATE SCHEMA tokenkeep", `CREATE TABLE tokenkeep.installation (name text COLLATE "C" NOT NULL PRIMARY KEY, value bytea NOT NULL)`)
	within := database + "&search_path=tokenkeep"
	administer(t, within, texts[:5]...)
	administer(t, within, "INSERT INTO installation VALUES ('schema', '5'), ('oldest', '3')",
		fmt.Sprintf("INSERT INTO tenants VALUES ('%s', '', '{}', NULL, '', 0, '', 0, false)", tenantA))
	count := func(container string, n int) {
		group, containers := store.GroupOf("card", []string{container})
		administer(t, within, fmt.Sprintf(`INSERT INTO token_groups (tenant_id, group_id, slot, type, containers, tokens) VALUES ('%s', '%s', 0, 'card', '%s', %d)
			ON CONFLICT (tenant_id, group_id, slot) DO UPDATE SET tokens = token_groups.tokens + excluded.tokens`, tenantA, group, containers, n))
	}
	insert := func(id, container string) {
		group, containers := store.GroupOf("card", []string{container})
		count(container, 1)
		administer(t, within, fmt.Sprintf(`INSERT INTO tokens (tenant_id, id, group_id, type, containers, data, expires_offset, created_by, created_at, modified_by, modified_at, version)
			VALUES ('%s', '%s', '%s', 'card', '%s', 'd', 0, '', 1, '', 1, 1)`, tenantA, id, group, containers))
	}
	remove := func(id, container string) {
		count(container, -1)
		administer(t, within, fmt.Sprintf("DELETE FROM tokens WHERE tenant_id = '%s' AND id = '%s'", tenantA, id))
	}
	insert("one", "/one/")
	insert("two", "/two/")
	remove("two", "/two/") // and leaves the group

	s := openBare(t, database, postgres.Options{MaxContainers: 3})
	check := func(doing string, tokens int64, groups int) {
		t.Helper()
		if err := s.View(ctx, tenantA, func(tx store.Tx) error {
			types, err := tx.CountTypes(ctx, 1)
			if err != nil {
				return err
			}
			if want := map[string]int64{"card": tokens}; !reflect.DeepEqual(types, want) {
				t.Errorf("%s: types are %v, want %v", doing, types, want)
			}
			found, err := tx.TokenGroups(ctx)
			if len(found) != groups {
				t.Errorf("%s: there are %d groups, want %d", doing, len(found), groups)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if found, err := s.Check(ctx, nil); len(found) > 0 || err != nil {
			t.Errorf("%s: Check: got %q, error %v; want nothing", doing, found, err)
		}
	}
	check("after the migration", 1, 1)

	older, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = older.Close(ctx) }()
	if _, err := older.Exec(ctx, "SELECT pg_advisory_lock_shared($1, 5)", postgres.ReleaseSpace); err != nil {
		t.Fatal(err)
	}
	if err := s.Tidy(ctx); err != nil {
		t.Fatal(err)
	}
	insert("three", "/three/")
	insert("four", "/three/")
	remove("one", "/one/")
	check("beside an older server", 2, 1)

	if err := older.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the server may not have noticed yet
		if err := s.Tidy(ctx); err != nil {
			t.Fatal(err)
		}
	}
	check("when it has ended", 2, 1)
	for _, table := range []string{"token_groups", "token_containers"} {
		if n, err := s.AsTenant(ctx, tenantA, "SELECT 1 FROM "+table); n != 1 || err != nil {
			t.Errorf("%d rows of %s are left, error %v; want those of /three/", n, table, err)
		}
	}
	add := func(container string) error {
		return s.Update(ctx, tenantA, func(tx store.Tx) error {
			tok := storetest.SomeToken()
			tok.Containers = []string{container}
			return tx.InsertToken(ctx, tok)
		})
	}
	for _, container := range []string{"/four/", "/five/", "/three/"} {
		if err := add(container); err != nil {
			t.Errorf("a token in %s: %v", container, err)
		}
	}
	if err := add("/six/"); err == nil {
		t.Error("a fourth container was taken")
	}
}

// TestACheckFindsWrongCounters breaks each counter in its turn.
func TestACheckFindsWrongCounters(t *testing.T) {
	s := openBare(t, pgtest.Database(t), postgres.Options{})
	fill(t, s, tenantA)
	for broken, texts := range map[string][2]string{
		"types whose counter differs":         {"UPDATE token_types SET tokens = tokens + 1", "UPDATE token_types SET tokens = tokens - 1"},
		"tenants whose counter of containers": {"UPDATE container_counts SET containers = containers + 1", "UPDATE container_counts SET containers = containers - 1"},
		"containers that do not agree with":   {"UPDATE token_containers SET container = container || 'x/'", "UPDATE token_containers SET container = rtrim(container, 'x/') || '/'"},
		"token groups whose counter differs":  {"UPDATE token_groups SET tokens = tokens + 1", "UPDATE token_groups SET tokens = tokens - 1"},
	} {
		if err := s.AsOwner(t.Context(), texts[0]); err != nil {
			t.Fatal(err)
		}
		found, err := s.Check(t.Context(), nil)
		if err != nil || !strings.Contains(strings.Join(found, "\n"), broken) {
			t.Errorf("Check after %s: got %q, error %v; want %q", texts[0], found, err, broken)
		}
		if err := s.AsOwner(t.Context(), texts[1]); err != nil {
			t.Fatal(err)
		}
	}
}
