package postgres_test

import (
	"context"
	"flag"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

const tenantA, tenantB = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"

// open opens the store in a database for the length of a test, with some tenants.
func open(t testing.TB, url string, o postgres.Options) *postgres.Store {
	t.Helper()
	s := openBare(t, url, o)
	if err := storetest.AddTenants(t.Context(), s, storetest.Tenants()...); err != nil {
		t.Fatal(err)
	}
	return s
}

func openBare(t testing.TB, url string, o postgres.Options) *postgres.Store {
	t.Helper()
	return openTraced(t, url, o, nil, nil)
}

func openTraced(t testing.TB, url string, o postgres.Options, requests, owner pgx.QueryTracer) *postgres.Store {
	t.Helper()
	s, err := postgres.OpenTraced(t.Context(), url, o, requests, owner)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// recorder keeps every statement that requests send.
type recorder struct {
	mu         sync.Mutex
	statements map[string]bool
}

func (r *recorder) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.statements == nil {
		r.statements = make(map[string]bool)
	}
	r.statements[text] = true
}

func (r *recorder) read() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.statements))
}

func (r *recorder) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	r.note(data.SQL)
	return ctx
}

func (r *recorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (r *recorder) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		r.note(q.SQL)
	}
	return ctx
}

func (r *recorder) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (r *recorder) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// TestSuite runs the suite, and then looks at every statement that its requests
// have sent: each must name the tenant.
func TestSuite(t *testing.T) {
	pgtest.Database(t) // without PostgreSQL there is nothing to look at
	var sent recorder
	storetest.Run(t, func(t *testing.T) (store.Store, func() store.Store) {
		url := pgtest.Database(t)
		open := func() store.Store { return openTraced(t, url, postgres.Options{}, &sent, nil) }
		return open(), open
	})
	statements := sent.read()
	part := strings.Contains(flag.Lookup("test.run").Value.String()+flag.Lookup("test.skip").Value.String(), "/")
	if len(statements) < 60 && !part {
		t.Errorf("only %d statements were recorded", len(statements))
	}
	for _, text := range statements {
		if !strings.Contains(text, "tenant_id") && !slices.Contains(postgres.Untenanted, text) {
			t.Errorf("a statement of requests does not name the tenant: %s", text)
		}
	}
}

func TestContainersOfATenantAreBounded(t *testing.T) {
	storetest.RunContainers(t, func(t *testing.T, maxContainers int64) store.Store {
		return openBare(t, pgtest.Database(t), postgres.Options{MaxContainers: maxContainers})
	}, func(ctx context.Context, s store.Store) error { return s.(*postgres.Store).Tidy(ctx) })
}
