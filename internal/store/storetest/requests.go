package storetest

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// EveryRequest runs every statement of the request path for a tenant that is
// not there yet, with every shape of filter and page.
func EveryRequest(t *testing.T, s store.Store, tenant string) {
	t.Helper()
	ctx := t.Context()
	fail := func(err error) {
		t.Helper()
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
	}
	tok, e := SomeToken(), SomeEntry("x")
	var groups []store.TokenGroup
	fail(s.Update(ctx, tenant, func(tx store.Tx) error {
		changed := tok
		changed.Version, changed.Terms = 2, tok.Terms[:1]
		if err := errors.Join(
			tx.InsertTenant(ctx, store.Tenant{}), tx.ReplaceTenant(ctx, store.Tenant{}),
			tx.PutKeyset(ctx, store.Keyset{Purpose: "p", Wrapped: []byte("w"), Version: 1}), tx.PutKeyset(ctx, store.Keyset{Purpose: "p", Wrapped: []byte("w"), Version: 2}),
			tx.PutMark(ctx, "m", []byte("v")), tx.PutMark(ctx, "n", nil),
			tx.InsertApplication(ctx, store.Application{ID: "a", Type: "private", Version: 1}), tx.ReplaceApplication(ctx, store.Application{ID: "a", Version: 2}),
			tx.InsertKey(ctx, store.Key{ID: "k", ApplicationID: "a", Hash: []byte("h")}),
			tx.InsertToken(ctx, tok), tx.ReplaceToken(ctx, changed), tx.AppendLog(ctx, e, withEvent(SomeEntry("y"), "token.created")),
			none2(tx.NumberEvents(ctx, 10)), tx.PutDispatched(ctx, 1), none2(tx.DropEvents(ctx, 1, 10)),
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
	fail(s.View(ctx, tenant, func(tx store.Tx) error {
		for _, f := range []store.TokenFilter{
			{Groups: every}, {Groups: every, IDs: []string{tok.ID}}, {IDs: []string{tok.ID}, Groups: store.OnlyGroups(many[:2]...)}, {Groups: store.OnlyGroups(groups[0].ID)}, {Groups: store.OnlyGroups(many...)},
			{Groups: every, Terms: terms[:1]}, {Groups: every, Terms: terms[:2]}, {Groups: every, Terms: terms}, {Terms: terms[:1], Groups: store.OnlyGroups(many...)}, {Terms: terms[:2], Groups: store.OnlyGroups(many[:1]...)},
		} {
			for _, p := range pages {
				_, err := tx.Tokens(ctx, f, p)
				fail(err)
			}
			_, err := tx.CountTokens(ctx, f)
			fail(err)
		}
		for _, f := range []store.LogFilter{
			{}, {ExceptType: "log"}, {ExceptType: "log", From: 1, Before: 1 << 60}, {ExceptType: "card", EntityID: "x"}, {EntityType: "card"}, {EntityID: "x"}, {EntityType: "card", EntityID: "x"}, {From: 1}, {Before: 1}, {From: 1, Before: 2},
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
			for _, f := range []store.SessionFilter{{Now: 1}, {Now: 1, LiveKeys: true}} {
				_, err := tx.Sessions(ctx, f, p)
				fail(err)
				_, err = tx.CountSessions(ctx, f)
				fail(err)
			}
			for _, f := range []store.ParcelFilter{{}, {Kind: "job"}, {Kind: "job", Group: "g"}} {
				_, err := tx.Parcels(ctx, f, p)
				fail(err)
				_, err = tx.CountParcels(ctx, f)
				f.Most = 10
				_, errMost := tx.CountParcels(ctx, f)
				err = errors.Join(err, errMost)
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
			func() error { _, err := tx.Parcel(ctx, "job", "p"); return err },
			func() error { _, err := tx.Definition(ctx, "proxy", "d"); return err },
			func() error { _, err := tx.DefinitionByKey(ctx, []byte("k")); return err },
			func() error { _, err := tx.TenantRow(ctx); return err },
			func() error { _, err := tx.Events(ctx, store.EventFilter{}, 0, 10); return err },
			func() error { _, err := tx.Events(ctx, store.EventFilter{EntityID: "e"}, 1, 10); return err },
			func() error { _, err := tx.EventHead(ctx); return err },
			func() error { _, err := tx.Keysets(ctx); return err },
			func() error { _, err := tx.Mark(ctx, "m"); return err },
			func() error { _, err := tx.Keys(ctx, "a"); return err },
			func() error { _, _, err := tx.KeyByHash(ctx, []byte("h")); return err },
			func() error { _, err := tx.TokenGroups(ctx); return err },
			func() error { _, err := tx.CountTypes(ctx, day); return err },
			func() error { _, err := tx.TokenType(ctx, "t"); return err },
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
	keys := s.EpochKeys()
	_, err := keys.AddEpochKey(ctx, tenant, 1, []byte("w"))
	fail(err)
	fail(keys.ReplaceEpochKey(ctx, tenant, 1, []byte("v")))
	_, err = keys.EpochKeyList(ctx, tenant)
	fail(err)
	fail(keys.DestroyTenantEpochKeys(ctx, tenant))
	fail(s.Update(ctx, tenant, func(tx store.Tx) error {
		return errors.Join(tx.DeleteKey(ctx, "a", "k"), tx.DeleteApplication(ctx, "a"), tx.DeleteToken(ctx, tok.ID), tx.DestroyKeysets(ctx),
			tx.DeleteSession(ctx, "s"), tx.DeleteParcel(ctx, "job", "p"), tx.DeleteDefinition(ctx, "proxy", "d"))
	}))
}

// EverySweep runs the statements that cross tenants, but for checks.
func EverySweep(t *testing.T, s store.Store) {
	t.Helper()
	ctx := t.Context()
	_, errTenants := s.AllTenants().Tenants(ctx, "", 10)
	_, errExpired := s.AllTenants().ExpiredTokens(ctx, 1, 0, 10)
	_, errOutdated := s.AllTenants().OutdatedTokens(ctx, "", 0, 10)
	_, errSessions := s.AllTenants().ExpiredSessions(ctx, 1, 0, 10)
	_, errParcels := s.AllTenants().ExpiredParcels(ctx, 1, 0, 10)
	_, _, errDue := s.AllTenants().DueParcels(ctx, store.ParcelJob, 1, "", 10, 10)
	_, errKinds := s.AllTenants().DueKinds(ctx)
	_, errUnsealed := s.AllTenants().UnsealedTenants(ctx, "", 10)
	_, errEvents := s.AllTenants().EventTenants(ctx, "", 10)
	_, errKeys := s.EpochKeys().DestroyEpochKeys(ctx, 1, math.MaxInt64)
	errPut := s.AllTenants().PutSetting(ctx, "x", []byte("y"))
	_, errSetting := s.AllTenants().Setting(ctx, "x")
	if err := errors.Join(errTenants, errExpired, errOutdated, errSessions, errParcels, errDue, errKinds, errUnsealed, errEvents, errKeys, errPut, errSetting); err != nil {
		t.Fatal(err)
	}
}
