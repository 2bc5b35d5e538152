package postgres_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// fill gives a tenant rows in every table.
func fill(t *testing.T, s *postgres.Store, tenant string) {
	t.Helper()
	ctx := t.Context()
	tok, e := storetest.SomeToken(), storetest.SomeEntry("x")
	if err := s.Update(ctx, tenant, func(tx store.Tx) error {
		return errors.Join(
			tx.InsertTenant(ctx, store.Tenant{}), tx.PutMark(ctx, "m", []byte("v")),
			tx.PutKeyset(ctx, store.Keyset{Purpose: "p", Wrapped: []byte("w"), Version: 1}),
			tx.InsertApplication(ctx, store.Application{ID: "a", Type: "private", Version: 1}), tx.InsertKey(ctx, store.Key{ID: "k", ApplicationID: "a", Hash: []byte("h")}),
			tx.InsertToken(ctx, tok), tx.AppendLog(ctx, e, storetest.SomeEntry("y")),
			tx.InsertSession(ctx, store.Session{ID: "s", KeyHash: []byte("k"), NonceHash: []byte("n"), Version: 1}),
			tx.InsertParcel(ctx, store.Parcel{Kind: "job", ID: "p", DueAt: 1, ExpiresAt: 1, Version: 1}),
			tx.InsertDefinition(ctx, store.Definition{Kind: "proxy", ID: "d", KeyHash: []byte("k"), Version: 1}),
			tx.AddActivity(ctx, []store.Activity{{Width: 1, At: 1, ActorID: "a", Kind: "k", Entries: 1}}),
			tx.AppendLogBatch(ctx, store.LogBatch{Number: 1}, []store.Position{{CreatedAt: e.CreatedAt, ID: e.ID}}))
	}); err != nil {
		t.Fatal(err)
	}
	numbered, queued := storetest.SomeEntry("n"), storetest.SomeEntry("q")
	numbered.Event, queued.Event = "token.created", "token.deleted"
	left := storetest.SomeToken()
	left.Containers = []string{"/left/"}
	for _, change := range []func(store.Tx) error{
		func(tx store.Tx) error { return tx.AppendLog(ctx, numbered) },
		func(tx store.Tx) error { _, err := tx.NumberEvents(ctx, 1); return err },
		func(tx store.Tx) error { return tx.AppendLog(ctx, queued) },
		func(tx store.Tx) error { return tx.InsertToken(ctx, left) }, func(tx store.Tx) error { return tx.DeleteToken(ctx, left.ID) },
	} {
		if err := s.Update(ctx, tenant, change); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.EpochKeys().AddEpochKey(ctx, tenant, 1, []byte("w")); err != nil {
		t.Fatal(err)
	}
}

// denied reports whether the server refused a statement for want of a right.
func denied(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && pe.Code == "42501"
}

func TestAStatementThatForgetsTheTenantSeesAndChangesNothing(t *testing.T) {
	s := openBare(t, pgtest.Database(t), postgres.Options{})
	ctx := t.Context()
	fill(t, s, tenantA)
	tables, installation := postgres.Tables()
	for _, table := range tables {
		for who, c := range map[string]struct {
			tenant string
			sees   bool
		}{"its tenant": {tenantA, true}, "another tenant": {tenantB, false}, "nobody": {"", false}} {
			for _, text := range []string{"SELECT 1 FROM ", "UPDATE %s SET tenant_id = tenant_id", "DELETE FROM "} {
				if text == "DELETE FROM " && c.sees {
					continue // keep the rows
				}
				if strings.Contains(text, "%s") {
					text = fmt.Sprintf(text, table)
				} else {
					text += table
				}
				n, err := s.AsTenant(ctx, c.tenant, text)
				if (n > 0) != c.sees || err != nil {
					t.Errorf("%q as %s: %d rows, error %v; want rows: %t", text, who, n, err, c.sees)
				}
			}
		}
		// A row cannot be given to another tenant, nor made for it.
		if _, err := s.AsTenant(ctx, tenantA, "UPDATE "+table+" SET tenant_id = '"+tenantB+"'"); !denied(err) {
			t.Errorf("moving rows of %s to another tenant: got error %v, want it denied", table, err)
		}
		if _, err := s.AsTenant(ctx, tenantB, "TRUNCATE "+table); !denied(err) {
			t.Errorf("TRUNCATE %s: got error %v, want it denied", table, err)
		}
	}
	for name, c := range map[string]struct{ tenant, row string }{"another tenant": {tenantA, tenantB}, "a tenant, by nobody": {"", tenantA}} {
		if _, err := s.AsTenant(ctx, c.tenant, "INSERT INTO marks (tenant_id, name, value) VALUES ($1, 'x', 'y')", c.row); !denied(err) {
			t.Errorf("a row for %s: got error %v, want it denied", name, err)
		}
	}
	for _, text := range []string{"SELECT 1 FROM " + installation, "DELETE FROM " + installation, "CREATE TABLE tokenkeep.mine ()"} {
		if _, err := s.AsTenant(ctx, tenantA, text); !denied(err) {
			t.Errorf("%q as a request: got error %v, want it denied", text, err)
		}
	}
	if _, err := s.AsTenant(ctx, tenantA, "INSERT INTO marks (tenant_id, name, value) VALUES ($1, 'x', 'y')", tenantA); err != nil {
		t.Errorf("a row of its own: got error %v, want none", err)
	}
}

// administer runs statements as the superuser.
func administer(t *testing.T, database string, statements ...string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }()
	for _, text := range statements {
		if _, err := c.Exec(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// fresh returns a word that no role has: roles outlive the database of a test.
func fresh() string { return strings.ReplaceAll(uuid.NewString(), "-", "") }

// as returns a URL for another role.
func as(database, role string) string {
	return strings.Replace(database, "user=postgres", "user="+url.QueryEscape(role), 1)
}

// inURL returns the name of the database in a URL.
func inURL(database string) string {
	n, _, _ := strings.Cut(strings.TrimPrefix(database, "postgres:///"), "?")
	return n
}

func TestAnOwnerWithoutPowersWillDo(t *testing.T) {
	database := pgtest.Database(t)
	owner, role := "owner_"+fresh(), "requests_"+fresh()
	administer(t, database, "CREATE ROLE "+owner+" LOGIN", "CREATE ROLE "+role+" NOLOGIN", "GRANT "+role+" TO "+owner,
		"ALTER DATABASE "+inURL(database)+" OWNER TO "+owner)
	s := openBare(t, as(database, owner), postgres.Options{RequestRole: role})
	ctx := t.Context()
	fill(t, s, tenantA)
	fill(t, s, tenantB)
	// What crosses tenants sees all, also through row-level security that is forced on the owner.
	tenants, err := s.AllTenants().Tenants(ctx, "", 10)
	if len(tenants) != 2 || err != nil {
		t.Errorf("Tenants: got %d, error %v; want 2", len(tenants), err)
	}
	if list, err := s.AllTenants().UnsealedTenants(ctx, "", 10); len(list) != 2 || err != nil {
		t.Errorf("UnsealedTenants: got %d, error %v; want 2", len(list), err)
	}
	if list, err := s.AllTenants().ExpiredSessions(ctx, 1, 0, 10); len(list) != 2 || err != nil {
		t.Errorf("ExpiredSessions: got %d, error %v; want 2", len(list), err)
	}
	if list, _, err := s.AllTenants().DueParcels(ctx, store.ParcelJob, 1, "", 10, 10); len(list) != 2 || err != nil {
		t.Errorf("DueParcels: got %d, error %v; want 2", len(list), err)
	}
	if found, err := s.Check(ctx, nil); len(found) > 0 || err != nil {
		t.Errorf("Check: got %q, error %v; want nothing", found, err)
	}
	if err := s.AsOwner(ctx, "DELETE FROM token_terms WHERE tenant_id = $1", tenantA); err != nil {
		t.Fatal(err)
	}
	if found, err := s.Check(ctx, nil); len(found) == 0 || err != nil {
		t.Errorf("Check of a damaged store: got %q, error %v; want something", found, err)
	}
	if n, err := s.EpochKeys().DestroyEpochKeys(ctx, 100, 200); n != 2 || err != nil {
		t.Errorf("DestroyEpochKeys: got %d, error %v; want 2", n, err)
	}
	if err := s.Tidy(ctx); err != nil {
		t.Errorf("Tidy: %v", err)
	}
	if n, err := s.AsTenant(ctx, tenantB, "SELECT 1 FROM tokens"); n != 1 || err != nil {
		t.Errorf("a request of one tenant sees %d tokens, error %v; want 1", n, err)
	}
}

func TestARoleThatPassesTheWallIsRefused(t *testing.T) {
	database := pgtest.Database(t)
	owner, weak, stranger := "owner_"+fresh(), "weak_"+fresh(), "stranger_"+fresh()
	administer(t, database, "CREATE ROLE "+owner+" LOGIN", "CREATE ROLE "+weak+" NOLOGIN BYPASSRLS", "GRANT "+weak+" TO "+owner,
		"CREATE ROLE "+stranger+" NOLOGIN", "ALTER DATABASE "+inURL(database)+" OWNER TO "+owner)
	for role, want := range map[string]string{
		weak:                 "passes row-level security",
		"missing_" + fresh(): "is missing and may not be made",
		stranger:             "is no member of",
	} {
		s, err := postgres.Open(t.Context(), as(database, owner), postgres.Options{RequestRole: role})
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open with the role %s: got error %v, want one with %q", role, err, want)
		}
	}
}
