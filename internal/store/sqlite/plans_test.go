package sqlite_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

const tenantA, tenantB = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"

// requests runs every statement of the request path and of the sweeps, with
// every shape of filter and page.
func requests(t *testing.T, s *sqlite.Store) {
	t.Helper()
	ctx := t.Context()
	fail := func(err error) {
		t.Helper()
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
	}
	tok, e := storetest.SomeToken(), storetest.SomeEntry("x")
	a := store.Application{ID: "a", Type: "private", Version: 1}
	k := store.Key{ID: "k", ApplicationID: "a", Hash: []byte("h")}
	var groups []store.TokenGroup
	fail(s.Update(ctx, tenantA, func(tx store.Tx) error {
		changed := tok
		changed.Version, changed.Terms = 2, tok.Terms[:1]
		if err := errors.Join(
			tx.InsertTenant(ctx, store.Tenant{}), tx.ReplaceTenant(ctx, store.Tenant{}),
			tx.PutKeyset(ctx, store.Keyset{Purpose: "p", Wrapped: []byte("w"), Version: 1}), tx.PutKeyset(ctx, store.Keyset{Purpose: "p", Wrapped: []byte("w"), Version: 2}),
			tx.PutMark(ctx, "m", []byte("v")), tx.PutMark(ctx, "n", nil),
			tx.InsertApplication(ctx, a), tx.ReplaceApplication(ctx, store.Application{ID: "a", Version: 2}), tx.InsertKey(ctx, k),
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
	for n := range 12 {
		many = append(many, fmt.Sprintf("%032x", n))
	}
	after := &store.Position{CreatedAt: e.CreatedAt, ID: e.ID}
	fail(s.View(ctx, tenantA, func(tx store.Tx) error {
		for _, f := range []store.TokenFilter{
			{}, {IDs: []string{tok.ID}}, {Groups: []string{groups[0].ID}}, {Groups: many}, {Terms: terms[:1]}, {Terms: terms[:2]}, {Terms: terms},
			{Terms: terms[:1], Groups: many}, {Terms: terms[:2], Groups: many[:1]},
		} {
			for _, p := range []store.Page{{Limit: 10}, {Limit: 10, Offset: 5}, {Limit: 10, After: after}} {
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
			for _, p := range []store.Page{{Limit: 10}, {Limit: 10, Offset: 5}, {Limit: 10, After: after}} {
				_, err := tx.Logs(ctx, f, p)
				fail(err)
			}
			_, err := tx.CountLogs(ctx, f)
			fail(err)
		}
		for _, f := range []store.ApplicationFilter{{}, {IDs: []string{"a"}}, {Types: []string{"private"}}} {
			for _, p := range []store.Page{{Limit: 10}, {Limit: 10, After: after}} {
				_, err := tx.Applications(ctx, f, p)
				fail(err)
			}
			_, err := tx.CountApplications(ctx, f)
			fail(err)
		}
		for _, p := range []store.Page{{Limit: 10}, {Limit: 10, Offset: 5}, {Limit: 10, After: after}} {
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
			func() error { _, err := tx.LogPositions(ctx, nil, 10); return err },
			func() error { _, err := tx.LogPositions(ctx, after, 10); return err },
			func() error { _, err := tx.UnsealedLogPositions(ctx, nil, 10); return err },
			func() error { _, err := tx.UnsealedLogPositions(ctx, after, 10); return err },
			func() error { _, err := tx.UnsealedLog(ctx, 10); return err },
			func() error { _, err := tx.CountUnsealedLog(ctx); return err },
			func() error { _, err := tx.LogBatches(ctx, 0, 10); return err },
			func() error { _, err := tx.LastLogBatch(ctx); return err },
		} {
			fail(read())
		}
		return nil
	}))
	_, err := s.AllTenants().Tenants(ctx, "", 10)
	fail(err)
	_, err = s.AllTenants().ExpiredTokens(ctx, 1, 0, 10)
	fail(err)
	_, err = s.AllTenants().ExpiredSessions(ctx, 1, 0, 10)
	fail(err)
	_, err = s.AllTenants().ExpiredParcels(ctx, 1, 0, 10)
	fail(err)
	_, err = s.AllTenants().DueParcels(ctx, 1, 10)
	fail(err)
	_, err = s.AllTenants().UnsealedTenants(ctx, "", 10)
	fail(err)
	_, err = s.AllTenants().Setting(ctx, "x")
	fail(err)
	fail(s.AllTenants().PutSetting(ctx, "x", []byte("y")))
	fail(s.Update(ctx, tenantA, func(tx store.Tx) error {
		return errors.Join(tx.DeleteKey(ctx, "a", "k"), tx.DeleteApplication(ctx, "a"), tx.DeleteToken(ctx, tok.ID), tx.DestroyKeysets(ctx),
			tx.DeleteSession(ctx, "s"), tx.DeleteParcel(ctx, "job", "p"), tx.DeleteDefinition(ctx, "proxy", "d"))
	}))
}

func TestNoRequestScansATableOrSorts(t *testing.T) {
	s := openBare(t, t.TempDir(), sqlite.Options{Readers: 2})
	requests(t, s)
	plans, err := s.Plans()
	if err != nil {
		t.Fatal(err)
	}
	if len(plans) < 60 {
		t.Fatalf("only %d statements were recorded", len(plans))
	}
	seeks := 0
	for text, plan := range plans {
		if text == "SELECT tenant_id, term FROM token_term_counts" {
			continue // once, when the store is opened
		}
		for _, step := range plan {
			if strings.HasPrefix(step, "SEARCH") {
				seeks++
			}
			// Whoever asks for more than the tenant's rows must not pass over all
			// of them. In its own table it has one.
			wide := strings.Contains(step, "(tenant_id=?)") && strings.Contains(text, " AND ") && !strings.HasPrefix(step, "SEARCH tenants ")
			scan := strings.HasPrefix(step, "SCAN") && step != "SCAN CONSTANT ROW" && step != "SCAN sqlite_schema" && !strings.HasPrefix(step, "SCAN (")
			if scan || wide || strings.Contains(step, "TEMP B-TREE") || strings.Contains(step, "AUTOMATIC") {
				t.Errorf("%s\n\tis run with: %s", strings.Join(strings.Fields(text), " "), strings.Join(plan, "; "))
			}
		}
	}
	if seeks < 40 {
		t.Errorf("only %d seeks in %d plans: they are not read rightly", seeks, len(plans))
	}
}
