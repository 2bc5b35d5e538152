package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// contents is all that a transaction can see of a tenant.
type contents struct {
	Tenant       []store.Tenant
	Keysets      []store.Keyset
	Mark         []byte
	Applications []store.Application
	Counted      int64
	Keys         []store.Key
	Tokens       []store.Token
	TokenCount   int64
	ByTerm       int64
	Groups       []string
	Sessions     []store.Session
	SessionCount int64
	Parcels      []store.Parcel
	ParcelCount  int64
	Definitions  []store.Definition
	DefinitionN  int64
	Log          []store.LogEntry
	LogCount     int64
	LogKinds     int64
	Positions    []store.Position
	Unsealed     []store.LogEntry
	UnsealedN    int64
	Batches      []store.LogBatch
	Events       []store.Event
	EventHead    store.EventHead
	Activity     []store.Activity
}

const markName = "re-encryption"

func readAll(ctx context.Context, tx store.Tx) (c contents, err error) {
	t, err := tx.TenantRow(ctx)
	if err == nil {
		c.Tenant = append(c.Tenant, t)
	} else if !errors.Is(err, store.ErrNotFound) {
		return c, err
	}
	if c.Mark, err = tx.Mark(ctx, markName); err != nil && !errors.Is(err, store.ErrNotFound) {
		return c, err
	}
	var groups []store.TokenGroup
	for _, read := range []func() error{
		func() error { c.Keysets, err = tx.Keysets(ctx); return err },
		func() error { c.Applications, err = tx.Applications(ctx, store.ApplicationFilter{}, large); return err },
		func() error { c.Activity, err = tx.Activity(ctx, everyActivity, 100); return err },
		func() error { c.Counted, err = tx.CountApplications(ctx, store.ApplicationFilter{}); return err },
		func() error { c.Tokens, err = tx.Tokens(ctx, all, large); return err },
		func() error { c.TokenCount, err = tx.CountTokens(ctx, all); return err },
		func() error {
			c.ByTerm, err = tx.CountTokens(ctx, store.TokenFilter{Now: day, Groups: every, Terms: [][]byte{[]byte("term of all")}})
			return err
		},
		func() error { groups, err = tx.TokenGroups(ctx); return err },
		func() error { c.Sessions, err = tx.Sessions(ctx, living, large); return err },
		func() error { c.SessionCount, err = tx.CountSessions(ctx, living); return err },
		func() error { c.Parcels, err = tx.Parcels(ctx, store.ParcelFilter{}, large); return err },
		func() error { c.ParcelCount, err = tx.CountParcels(ctx, store.ParcelFilter{}); return err },
		func() error { c.Definitions, err = tx.Definitions(ctx, store.DefinitionFilter{}, large); return err },
		func() error { c.DefinitionN, err = tx.CountDefinitions(ctx, store.DefinitionFilter{}); return err },
		func() error { c.Log, err = tx.Logs(ctx, store.LogFilter{}, large); return err },
		func() error { c.LogCount, err = tx.CountLogs(ctx, store.LogFilter{}); return err },
		func() error { c.LogKinds, err = tx.CountLogs(ctx, store.LogFilter{EntityType: "card"}); return err },
		func() error { c.Positions, err = tx.LogPositions(ctx, nil, large.Limit); return err },
		func() error { c.Unsealed, err = tx.UnsealedLog(ctx, large.Limit); return err },
		func() error { c.UnsealedN, err = tx.CountUnsealedLog(ctx); return err },
		func() error { c.Batches, err = tx.LogBatches(ctx, 0, large.Limit); return err },
		func() error { c.Events, err = tx.Events(ctx, store.EventFilter{}, 0, large.Limit); return err },
		func() error { c.EventHead, err = tx.EventHead(ctx); return err },
	} {
		if err := read(); err != nil {
			return c, err
		}
	}
	for _, a := range c.Applications {
		keys, err := tx.Keys(ctx, a.ID)
		if err != nil {
			return c, err
		}
		c.Keys = append(c.Keys, keys...)
	}
	for _, g := range groups {
		c.Groups = append(c.Groups, g.Type+" "+strings.Join(g.Containers, " "))
	}
	slices.Sort(c.Groups)
	if len(c.Tokens) == 0 {
		c.Tokens = nil
	}
	if len(c.Sessions) == 0 {
		c.Sessions = nil
	}
	if len(c.Definitions) == 0 {
		c.Definitions = nil
	}
	return c, nil
}

// contents reads all of a tenant's rows.
func (f *fixture) contents(tenant string) (c contents) {
	f.Helper()
	f.view(tenant, func(ctx context.Context, tx store.Tx) (err error) {
		c, err = readAll(ctx, tx)
		return err
	})
	return c
}

// fill gives a tenant rows of every kind. They have the same ids in every
// tenant: token 1, application 1 with key 1, session 1, job 1, proxy 1, entries 1
// (sealed in a batch, the first if there was none) and 2 (unsealed), keyset
// "data", and a mark.
func (f *fixture) fill(id string) {
	f.Helper()
	f.update(id, func(ctx context.Context, tx store.Tx) error {
		last, err := tx.LastLogBatch(ctx)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		_, err = tx.TenantRow(ctx)
		if errors.Is(err, store.ErrNotFound) {
			err = tx.InsertTenant(ctx, tenant(id))
		}
		return errors.Join(
			err,
			tx.PutKeyset(ctx, keyset("data", 1)),
			tx.PutMark(ctx, markName, []byte("half way")),
			tx.InsertApplication(ctx, application(1)),
			tx.InsertKey(ctx, key(application(1).ID, 1)),
			tx.InsertToken(ctx, token(1)),
			tx.InsertSession(ctx, session(1)),
			tx.InsertParcel(ctx, parcel(store.ParcelJob, 1)),
			tx.InsertDefinition(ctx, definition(store.DefinitionProxy, 1)),
			tx.AppendLog(ctx, entry(1), withEvent(entry(2), "token.created")),
			none2(tx.NumberEvents(ctx, 10)),
			tx.AppendLogBatch(ctx, batch(last.Number+1, 1), []store.Position{at(entry(1))}),
			tx.AddActivity(ctx, []store.Activity{activity(1)}),
		)
	})
}

// method is one method of store.Tx, called with the ids of the rows that fill
// makes.
type method struct {
	name   string
	writes bool
	// absent is the error for a tenant without any rows.
	absent error
	// call returns how many rows it saw.
	call func(ctx context.Context, tx store.Tx) (seen int, err error)
}

func some[T any](list []T, err error) (int, error) { return len(list), err }
func one[T any](_ T, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	return 1, nil
}
func number(n int64, err error) (int, error) { return int(n), err }
func none(err error) (int, error)            { return 0, err }
func none2(_ int, err error) error           { return err }

// version2 is a row in place of the first version of itself.
func version2[T any](row T, change func(*T)) T { change(&row); return row }

var methods = []method{
	{"InsertTenant", true, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		return none(tx.InsertTenant(ctx, tenant(tx.Tenant())))
	}},
	{"TenantRow", false, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) { return one(tx.TenantRow(ctx)) }},
	{"ReplaceTenant", true, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return none(tx.ReplaceTenant(ctx, store.Tenant{ID: tenantA, Name: "Other"}))
	}},
	{"DeleteTenantRows", true, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		more, err := tx.DeleteTenantRows(ctx, 1000)
		if more {
			return 1, err
		}
		return 0, err
	}},

	{"Keysets", false, nil, func(ctx context.Context, tx store.Tx) (int, error) { return some(tx.Keysets(ctx)) }},
	{"PutKeyset", true, store.ErrConflict, func(ctx context.Context, tx store.Tx) (int, error) {
		return none(tx.PutKeyset(ctx, keyset("data", 2)))
	}},
	{"DestroyKeysets", true, nil, func(ctx context.Context, tx store.Tx) (int, error) { return none(tx.DestroyKeysets(ctx)) }},
	{"Mark", false, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) { return one(tx.Mark(ctx, markName)) }},
	{"PutMark", true, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		return none(tx.PutMark(ctx, markName, []byte("done")))
	}},

	{"InsertApplication", true, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		return none(tx.InsertApplication(ctx, application(2)))
	}},
	{"Application", false, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return one(tx.Application(ctx, application(1).ID))
	}},
	{"ReplaceApplication", true, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return none(tx.ReplaceApplication(ctx, version2(application(1), func(a *store.Application) { a.Version, a.Name = 2, "Other" })))
	}},
	{"DeleteApplication", true, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return none(tx.DeleteApplication(ctx, application(1).ID))
	}},
	{"Applications", false, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		return some(tx.Applications(ctx, store.ApplicationFilter{IDs: []string{application(1).ID}}, large))
	}},
	{"CountApplications", false, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		return number(tx.CountApplications(ctx, store.ApplicationFilter{}))
	}},
	{"InsertKey", true, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return none(tx.InsertKey(ctx, key(application(1).ID, 2)))
	}},
	{"Keys", false, nil, func(ctx context.Context, tx store.Tx) (int, error) { return some(tx.Keys(ctx, application(1).ID)) }},
	{"KeyByHash", false, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		_, a, err := tx.KeyByHash(ctx, key("", 1).Hash)
		return one(a, err)
	}},
	{"DeleteKey", true, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return none(tx.DeleteKey(ctx, application(1).ID, key("", 1).ID))
	}},

	{"InsertToken", true, nil, func(ctx context.Context, tx store.Tx) (int, error) { return none(tx.InsertToken(ctx, token(2))) }},
	{"Token", false, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) { return one(tx.Token(ctx, token(1).ID)) }},
	{"TokenType", false, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return one(tx.TokenType(ctx, token(1).ID))
	}},
	{"ReplaceToken", true, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return none(tx.ReplaceToken(ctx, version2(token(1), func(t *store.Token) {
			t.Version, t.Containers, t.Terms = 2, []string{"/other/"}, [][]byte{[]byte("another term")}
		})))
	}},
	{"DeleteToken", true, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return none(tx.DeleteToken(ctx, token(1).ID))
	}},
	{"TokenGroups", false, nil, func(ctx context.Context, tx store.Tx) (int, error) { return some(tx.TokenGroups(ctx)) }},
	{"Tokens", false, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		byID, err := tx.Tokens(ctx, store.TokenFilter{Now: day, Groups: every, IDs: []string{token(1).ID}}, large)
		if err != nil {
			return 0, err
		}
		byTerm, err := tx.Tokens(ctx, store.TokenFilter{Now: day, Groups: every, Terms: token(1).Terms}, large)
		if err != nil {
			return 0, err
		}
		inOrder, err := tx.Tokens(ctx, all, large)
		return len(byID) + len(byTerm) + len(inOrder), err
	}},
	{"CountTokens", false, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		byID, err := tx.CountTokens(ctx, store.TokenFilter{Now: day, Groups: every, IDs: []string{token(1).ID}})
		if err != nil {
			return 0, err
		}
		byTerm, err := tx.CountTokens(ctx, store.TokenFilter{Now: day, Groups: every, Terms: token(1).Terms})
		if err != nil {
			return 0, err
		}
		total, err := tx.CountTokens(ctx, all)
		return int(byID + byTerm + total), err
	}},

	{"CountTypes", false, nil, func(ctx context.Context, tx store.Tx) (n int, err error) {
		types, err := tx.CountTypes(ctx, day)
		for _, count := range types {
			n += int(count)
		}
		return n, err
	}},

	{"InsertSession", true, nil, func(ctx context.Context, tx store.Tx) (int, error) { return none(tx.InsertSession(ctx, session(2))) }},
	{"Session", false, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return one(tx.Session(ctx, session(1).ID))
	}},
	{"SessionByKey", false, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return one(tx.SessionByKey(ctx, session(1).KeyHash))
	}},
	{"SessionByNonce", false, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return one(tx.SessionByNonce(ctx, session(1).NonceHash))
	}},
	{"ReplaceSession", true, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return none(tx.ReplaceSession(ctx, version2(session(1), func(s *store.Session) { s.Version, s.Grant = 2, []byte("other") })))
	}},
	{"DeleteSession", true, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return none(tx.DeleteSession(ctx, session(1).ID))
	}},
	{"Sessions", false, nil, func(ctx context.Context, tx store.Tx) (int, error) { return some(tx.Sessions(ctx, living, large)) }},
	{"CountSessions", false, nil, func(ctx context.Context, tx store.Tx) (int, error) { return number(tx.CountSessions(ctx, living)) }},

	{"InsertParcel", true, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		return none(tx.InsertParcel(ctx, parcel(store.ParcelJob, 2)))
	}},
	{"Parcel", false, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return one(tx.Parcel(ctx, store.ParcelJob, parcel("", 1).ID))
	}},
	{"ReplaceParcel", true, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return none(tx.ReplaceParcel(ctx, version2(parcel(store.ParcelJob, 1), func(p *store.Parcel) { p.Version, p.Contents = 2, []byte("other") })))
	}},
	{"DeleteParcel", true, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return none(tx.DeleteParcel(ctx, store.ParcelJob, parcel("", 1).ID))
	}},
	{"Parcels", false, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		byKind, err := tx.Parcels(ctx, store.ParcelFilter{Kind: store.ParcelJob}, large)
		if err != nil {
			return 0, err
		}
		byGroup, err := tx.Parcels(ctx, store.ParcelFilter{Kind: store.ParcelJob, Group: parcel("", 1).Group}, large)
		return len(byKind) + len(byGroup), err
	}},
	{"CountParcels", false, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		return number(tx.CountParcels(ctx, store.ParcelFilter{Kind: store.ParcelJob, Group: parcel("", 1).Group}))
	}},

	{"InsertDefinition", true, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		return none(tx.InsertDefinition(ctx, definition(store.DefinitionProxy, 2)))
	}},
	{"Definition", false, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return one(tx.Definition(ctx, store.DefinitionProxy, definition("", 1).ID))
	}},
	{"DefinitionByKey", false, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return one(tx.DefinitionByKey(ctx, definition(store.DefinitionProxy, 1).KeyHash))
	}},
	{"ReplaceDefinition", true, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return none(tx.ReplaceDefinition(ctx, version2(definition(store.DefinitionProxy, 1), func(d *store.Definition) { d.Version, d.Name = 2, "Other" })))
	}},
	{"DeleteDefinition", true, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return none(tx.DeleteDefinition(ctx, store.DefinitionProxy, definition("", 1).ID))
	}},
	{"Definitions", false, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		byName, err := tx.Definitions(ctx, store.DefinitionFilter{Kind: store.DefinitionProxy, Name: "definition"}, large)
		if err != nil {
			return 0, err
		}
		byApplication, err := tx.Definitions(ctx, store.DefinitionFilter{ApplicationID: definition("", 1).ApplicationID}, large)
		return len(byName) + len(byApplication), err
	}},
	{"CountDefinitions", false, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		return number(tx.CountDefinitions(ctx, store.DefinitionFilter{IDs: []string{definition("", 1).ID}}))
	}},

	{"AddActivity", true, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		return none(tx.AddActivity(ctx, []store.Activity{activity(2)}))
	}},
	{"Activity", false, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		return some(tx.Activity(ctx, everyActivity, 100))
	}},
	{"DropActivity", true, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		return none(tx.DropActivity(ctx, 60, day+1000*second))
	}},
	{"AppendLog", true, nil, func(ctx context.Context, tx store.Tx) (int, error) { return none(tx.AppendLog(ctx, entry(3))) }},
	{"Logs", false, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		return some(tx.Logs(ctx, store.LogFilter{EntityID: entry(1).EntityID}, large))
	}},
	{"CountLogs", false, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		return number(tx.CountLogs(ctx, store.LogFilter{}))
	}},
	{"LogEntry", false, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return one(tx.LogEntry(ctx, at(entry(1))))
	}},
	{"LogPositions", false, nil, func(ctx context.Context, tx store.Tx) (int, error) { return some(tx.LogPositions(ctx, nil, 10)) }},
	{"UnsealedLog", false, nil, func(ctx context.Context, tx store.Tx) (int, error) { return some(tx.UnsealedLog(ctx, 10)) }},
	{"UnsealedLogPositions", false, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		return some(tx.UnsealedLogPositions(ctx, nil, 10))
	}},
	{"CountUnsealedLog", false, nil, func(ctx context.Context, tx store.Tx) (int, error) { return number(tx.CountUnsealedLog(ctx)) }},
	{"AppendLogBatch", true, store.ErrConflict, func(ctx context.Context, tx store.Tx) (int, error) {
		last, err := tx.LastLogBatch(ctx)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return 0, err
		}
		return none(tx.AppendLogBatch(ctx, batch(last.Number+1, 1), []store.Position{at(entry(2))}))
	}},
	{"LogBatches", false, nil, func(ctx context.Context, tx store.Tx) (int, error) { return some(tx.LogBatches(ctx, 0, 10)) }},
	{"LastLogBatch", false, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) { return one(tx.LastLogBatch(ctx)) }},
	{"DropLogBatch", true, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) {
		return none(tx.DropLogBatch(ctx, 1, []store.Position{at(entry(1))}))
	}},

	{"NumberEvents", true, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		if err := tx.AppendLog(ctx, withEvent(entry(4), "token.created")); err != nil {
			return 0, err
		}
		return none(none2(tx.NumberEvents(ctx, 10)))
	}},
	{"Events", false, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		byEntity, err := tx.Events(ctx, store.EventFilter{EntityID: entry(2).EntityID}, 0, 10)
		if err != nil {
			return 0, err
		}
		all, err := tx.Events(ctx, store.EventFilter{}, 0, 10)
		return len(byEntity) + len(all), err
	}},
	{"EventHead", false, nil, func(ctx context.Context, tx store.Tx) (int, error) {
		head, err := tx.EventHead(ctx)
		return int(head.Last), err
	}},
	{"PutDispatched", true, store.ErrNotFound, func(ctx context.Context, tx store.Tx) (int, error) { return none(tx.PutDispatched(ctx, 1)) }},
	{"DropEvents", true, nil, func(ctx context.Context, tx store.Tx) (int, error) { return tx.DropEvents(ctx, day+hour, 10) }},
}
