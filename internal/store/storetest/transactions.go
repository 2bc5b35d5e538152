package storetest

import (
	"context"
	"errors"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

var transactionTests = []test{
	{"a view cannot write", viewCannotWrite},
	{"an error rolls everything back", errorRollsBack},
	{"a panic rolls everything back and reaches the caller", panicRollsBack},
	{"a panic in a view reaches the caller", viewPanics},
	{"a transaction kept beyond its function reaches nothing", endedTransaction},
	{"a transaction reads what it wrote", readsOwnWrites},
	{"a write that failed leaves nothing, even if the function goes on", failedWriteLeavesNothing},
	{"effect and step commit together", stepCommits},
	{"the error of a step rolls the effect back", stepRollsBack},
	{"a view begun after an update returned sees it", readYourWrites},
	{"a context that has ended does nothing", endedContext},
	{"an update whose context ends while it runs says what became of it", contextEndsInside},
	{"a store is ready and sound", readyAndSound},
}

func viewCannotWrite(f *fixture) {
	f.fill(tenantA)
	want := f.contents(tenantA)
	for _, m := range methods {
		if !m.writes {
			continue
		}
		for _, id := range []string{tenantA, tenantB} {
			f.view(id, func(ctx context.Context, tx store.Tx) error {
				if _, err := m.call(ctx, tx); !errors.Is(err, store.ErrReadOnly) {
					f.Errorf("%s in a view: got error %v, want %v", m.name, err, store.ErrReadOnly)
				}
				return nil
			})
		}
	}
	f.same("contents after the views", f.contents(tenantA), want)
}

func errorRollsBack(f *fixture) {
	f.fill(tenantA)
	want := f.contents(tenantA)
	for _, m := range methods {
		if !m.writes || m.name == "InsertTenant" {
			continue
		}
		f.refused(m.name+" and then an error", tenantA, errStop, func(ctx context.Context, tx store.Tx) error {
			if _, err := m.call(ctx, tx); err != nil {
				return err
			}
			return errStop
		})
		f.same("contents after "+m.name+" was rolled back", f.contents(tenantA), want)
	}
	f.sound()
}

func panicRollsBack(f *fixture) {
	f.fill(tenantA)
	want := f.contents(tenantA)
	for _, m := range methods {
		if !m.writes || m.name == "InsertTenant" {
			continue
		}
		recovered := func() (p any) {
			defer func() { p = recover() }()
			_ = f.Update(f.Context(), tenantA, func(tx store.Tx) error {
				if _, err := m.call(f.Context(), tx); err != nil {
					return err
				}
				panic(errStop)
			})
			return nil
		}()
		if recovered != errStop {
			f.Errorf("%s and then a panic: recovered %v from Update, want %v", m.name, recovered, errStop)
		}
		f.same("contents after "+m.name+" was rolled back", f.contents(tenantA), want)
	}
	f.fill(tenantB) // the store goes on
	f.sound()
}

func viewPanics(f *fixture) {
	f.fill(tenantA)
	for range 40 { // more often than there may be connections
		func() {
			defer func() {
				if p := recover(); p != errStop {
					f.Errorf("recovered %v from View, want %v", p, errStop)
				}
			}()
			_ = f.View(f.Context(), tenantA, func(tx store.Tx) error {
				_, _ = tx.Tokens(f.Context(), all, large)
				panic(errStop)
			})
		}()
	}
	f.contents(tenantA)
}

func endedTransaction(f *fixture) {
	f.fill(tenantA)
	want := f.contents(tenantA)
	var fromView, fromUpdate, rolledBack store.Tx
	f.view(tenantA, func(_ context.Context, tx store.Tx) error { fromView = tx; return nil })
	f.update(tenantA, func(_ context.Context, tx store.Tx) error { fromUpdate = tx; return nil })
	f.refused("an update that fails", tenantA, errStop, func(_ context.Context, tx store.Tx) error { rolledBack = tx; return errStop })
	for name, tx := range map[string]store.Tx{"of a view": fromView, "of an update": fromUpdate, "that was rolled back": rolledBack} {
		for _, m := range methods {
			if seen, err := m.call(f.Context(), tx); seen != 0 || err == nil {
				f.Errorf("%s on a transaction %s that has ended: saw %d rows, error %v; want an error", m.name, name, seen, err)
			}
		}
	}
	f.same("contents afterwards", f.contents(tenantA), want)
	f.sound()
}

func readsOwnWrites(f *fixture) {
	f.fill(tenantA)
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		err := errors.Join(
			tx.InsertToken(ctx, token(2)),
			tx.InsertToken(ctx, token(3)),
			tx.DeleteToken(ctx, token(1).ID),
			tx.AppendLog(ctx, entry(3)),
			tx.InsertSession(ctx, session(2)),
			tx.DeleteSession(ctx, session(1).ID),
			tx.InsertParcel(ctx, parcel(store.ParcelJob, 2)),
			tx.DeleteParcel(ctx, store.ParcelJob, parcel("", 1).ID),
			tx.InsertDefinition(ctx, definition(store.DefinitionProxy, 2)),
			tx.DeleteDefinition(ctx, store.DefinitionProxy, definition("", 1).ID),
			tx.InsertApplication(ctx, application(2)),
			tx.InsertKey(ctx, key(application(2).ID, 2)),
			tx.PutMark(ctx, markName, []byte("further")),
			tx.PutKeyset(ctx, keyset("data", 2)),
		)
		if err != nil {
			return err
		}
		c, err := readAll(ctx, tx)
		if err != nil {
			return err
		}
		f.same("tokens", c.Tokens, []store.Token{token(3), token(2)})
		f.same("token count", c.TokenCount, int64(2))
		f.same("tokens by term", c.ByTerm, int64(2))
		f.same("log", c.Log, []store.LogEntry{entry(3), entry(2), entry(1)})
		f.same("log count", c.LogCount, int64(3))
		f.same("unsealed", c.Unsealed, []store.LogEntry{entry(2), entry(3)})
		f.same("applications", c.Applications, []store.Application{application(2), application(1)})
		f.same("keys", c.Keys, []store.Key{key(application(2).ID, 2), key(application(1).ID, 1)})
		f.same("sessions", c.Sessions, []store.Session{session(2)})
		f.same("parcels", c.Parcels, []store.Parcel{parcel(store.ParcelJob, 2)})
		f.same("parcel count", c.ParcelCount, int64(1))
		f.same("definitions", c.Definitions, []store.Definition{definition(store.DefinitionProxy, 2)})
		f.same("mark", string(c.Mark), "further")
		f.same("keysets", c.Keysets, []store.Keyset{keyset("data", 2)})
		return nil
	})
	f.sound()
}

// failedWriteLeavesNothing: a function may let the error of a write pass. Then
// Update either keeps what else it did, without a trace of the failed write,
// or keeps nothing and says so.
func failedWriteLeavesNothing(f *fixture) {
	f.fill(tenantA)
	for _, c := range []struct {
		name  string
		write func(ctx context.Context, tx store.Tx) error
	}{
		{"InsertToken of an id that is taken", func(ctx context.Context, tx store.Tx) error { return tx.InsertToken(ctx, token(1)) }},
		{"InsertToken without a container", func(ctx context.Context, tx store.Tx) error {
			return tx.InsertToken(ctx, version2(token(9), func(t *store.Token) { t.Containers = nil }))
		}},
		{"InsertToken with a term twice", func(ctx context.Context, tx store.Tx) error {
			return tx.InsertToken(ctx, version2(token(9), func(t *store.Token) { t.Terms = [][]byte{[]byte("x"), []byte("y"), []byte("x")} }))
		}},
		{"InsertToken with a term that is too long", func(ctx context.Context, tx store.Tx) error {
			return tx.InsertToken(ctx, version2(token(9), func(t *store.Token) { t.Terms = [][]byte{[]byte("x"), make([]byte, 65)} }))
		}},
		{"ReplaceToken with a stale version", func(ctx context.Context, tx store.Tx) error { return tx.ReplaceToken(ctx, token(1)) }},
		{"ReplaceToken with a term twice", func(ctx context.Context, tx store.Tx) error {
			return tx.ReplaceToken(ctx, version2(token(1), func(t *store.Token) { t.Version, t.Terms = 2, [][]byte{[]byte("x"), []byte("x")} }))
		}},
		{"DeleteToken of one that is not there", func(ctx context.Context, tx store.Tx) error { return tx.DeleteToken(ctx, "nope") }},
		{"DeleteApplication of one that is not there", func(ctx context.Context, tx store.Tx) error { return tx.DeleteApplication(ctx, "nope") }},
		{"InsertKey with a hash that is taken", func(ctx context.Context, tx store.Tx) error {
			return tx.InsertKey(ctx, version2(key(application(1).ID, 1), func(k *store.Key) { k.ID = "other" }))
		}},
		{"InsertKey for an application that is not there", func(ctx context.Context, tx store.Tx) error {
			return tx.InsertKey(ctx, key("nope", 2))
		}},
		{"InsertSession with a hash that is taken", func(ctx context.Context, tx store.Tx) error {
			return tx.InsertSession(ctx, version2(session(2), func(s *store.Session) { s.NonceHash = session(1).NonceHash }))
		}},
		{"InsertSession without a hash", func(ctx context.Context, tx store.Tx) error {
			return tx.InsertSession(ctx, version2(session(2), func(s *store.Session) { s.KeyHash = nil }))
		}},
		{"ReplaceSession with a stale version", func(ctx context.Context, tx store.Tx) error { return tx.ReplaceSession(ctx, session(1)) }},
		{"InsertParcel of an id that is taken", func(ctx context.Context, tx store.Tx) error {
			return tx.InsertParcel(ctx, parcel(store.ParcelJob, 1))
		}},
		{"ReplaceParcel with a stale version", func(ctx context.Context, tx store.Tx) error {
			return tx.ReplaceParcel(ctx, parcel(store.ParcelJob, 1))
		}},
		{"DeleteParcel of one that is not there", func(ctx context.Context, tx store.Tx) error {
			return tx.DeleteParcel(ctx, store.ParcelAnswer, parcel("", 1).ID)
		}},
		{"InsertDefinition with a hash that is taken", func(ctx context.Context, tx store.Tx) error {
			return tx.InsertDefinition(ctx, version2(definition(store.DefinitionProxy, 1), func(d *store.Definition) { d.ID = "other" }))
		}},
		{"ReplaceDefinition with a stale version", func(ctx context.Context, tx store.Tx) error {
			return tx.ReplaceDefinition(ctx, definition(store.DefinitionProxy, 1))
		}},
		{"PutKeyset with a stale version", func(ctx context.Context, tx store.Tx) error { return tx.PutKeyset(ctx, keyset("data", 1)) }},
		{"AppendLog with an entry that is there", func(ctx context.Context, tx store.Tx) error {
			return tx.AppendLog(ctx, entry(8), entry(1))
		}},
		{"AppendLog with an id that is no UUID", func(ctx context.Context, tx store.Tx) error {
			return tx.AppendLog(ctx, entry(8), version2(entry(9), func(e *store.LogEntry) { e.ID = "nine" }))
		}},
		{"AppendLogBatch with an entry that is sealed", func(ctx context.Context, tx store.Tx) error {
			return tx.AppendLogBatch(ctx, batch(2, 2), []store.Position{at(entry(2)), at(entry(1))})
		}},
		{"AppendLogBatch with an entry twice", func(ctx context.Context, tx store.Tx) error {
			return tx.AppendLogBatch(ctx, batch(2, 2), []store.Position{at(entry(2)), at(entry(2))})
		}},
		{"AppendLogBatch out of turn", func(ctx context.Context, tx store.Tx) error {
			return tx.AppendLogBatch(ctx, batch(3, 1), []store.Position{at(entry(2))})
		}},
		{"DropLogBatch of one that is not there", func(ctx context.Context, tx store.Tx) error {
			return tx.DropLogBatch(ctx, 5, []store.Position{at(entry(1))})
		}},
	} {
		f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.PutMark(ctx, markName, []byte("before")) })
		want := f.contents(tenantA)
		var failed error
		err := f.Update(f.Context(), tenantA, func(tx store.Tx) error {
			failed = c.write(f.Context(), tx)
			_ = tx.PutMark(f.Context(), markName, []byte("behind"))
			return nil
		})
		if failed == nil && err == nil {
			f.Errorf("%s: neither the write nor Update reported an error", c.name)
		}
		if err == nil {
			want.Mark = []byte("behind")
		}
		f.same("contents after "+c.name, f.contents(tenantA), want)
	}
	f.sound()
}

// insertWith is what a service does: an effect, and then the caller's steps.
func insertWith(f *fixture, t store.Token, steps ...store.Step[store.Token]) error {
	return f.Update(f.Context(), tenantA, func(tx store.Tx) error {
		if err := tx.InsertToken(f.Context(), t); err != nil {
			return err
		}
		return store.Finish(tx, t, steps)
	})
}

func stepCommits(f *fixture) {
	f.fill(tenantA)
	record := func(name string) store.Step[store.Token] {
		return func(tx store.Tx, t store.Token) error {
			if name == "second" {
				if _, err := tx.Mark(f.Context(), "first"); err != nil {
					return err // steps run in their order
				}
			}
			return tx.PutMark(f.Context(), name, []byte(t.ID))
		}
	}
	if err := insertWith(f, token(2), record("first"), record("second")); err != nil {
		f.Fatalf("Update with two steps: %v", err)
	}
	if err := insertWith(f, token(3)); err != nil {
		f.Fatalf("Update without steps: %v", err)
	}
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		for _, name := range []string{"first", "second"} {
			got, err := tx.Mark(ctx, name)
			if string(got) != token(2).ID || err != nil {
				f.Errorf("the %s step left %q, error %v; want %q", name, got, err, token(2).ID)
			}
		}
		_, err := tx.Token(ctx, token(2).ID)
		return err
	})
	// The same id again: the effect fails, and its step never runs.
	err := insertWith(f, token(2), func(store.Tx, store.Token) error { return errStop })
	if !errors.Is(err, store.ErrExists) && !errors.Is(err, errStop) {
		f.Errorf("Update with an id that is taken: got error %v, want %v", err, store.ErrExists)
	}
}

func stepRollsBack(f *fixture) {
	f.fill(tenantA)
	want := f.contents(tenantA)
	err := insertWith(f, token(2),
		func(tx store.Tx, t store.Token) error { return tx.PutMark(f.Context(), markName, []byte(t.ID)) },
		func(store.Tx, store.Token) error { return errStop },
		func(store.Tx, store.Token) error { f.Error("a step ran after one that failed"); return nil })
	if !errors.Is(err, errStop) {
		f.Errorf("Update with a step that fails: got error %v, want %v", err, errStop)
	}
	f.same("contents afterwards", f.contents(tenantA), want)
	f.sound()
}

func readYourWrites(f *fixture) {
	f.people(tenantA)
	for n := range 50 {
		f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.InsertToken(ctx, token(n)) })
		f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
			count, err := tx.CountTokens(ctx, all)
			if count != int64(n+1) {
				f.Errorf("a view after update %d: counted %d tokens", n+1, count)
			}
			return err
		})
	}
}

func endedContext(f *fixture) {
	f.fill(tenantA)
	want := f.contents(tenantA)
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	untouched := func(store.Tx) error { f.Error("the function was run"); return nil }
	a, keys := f.AllTenants(), f.EpochKeys()
	for range 20 { // a choice made at random would be found
		if f.Failed() {
			return
		}
		for name, call := range map[string]func() error{
			"View":           func() error { return f.View(ctx, tenantA, untouched) },
			"Read":           func() error { return f.Read(ctx, tenantA, untouched) },
			"Update":         func() error { return f.Update(ctx, tenantA, untouched) },
			"Ready":          func() error { return f.Ready(ctx) },
			"Check":          func() error { _, err := f.Check(ctx, nil); return err },
			"Tenants":        func() error { _, err := a.Tenants(ctx, "", 10); return err },
			"ExpiredTokens":  func() error { _, err := a.ExpiredTokens(ctx, day, 0, 10); return err },
			"OutdatedTokens": func() error { _, err := a.OutdatedTokens(ctx, "", 0, 10); return err },
			"Setting":        func() error { _, err := a.Setting(ctx, "x"); return err },
			"PutSetting":     func() error { return a.PutSetting(ctx, "x", []byte("y")) },
			"EpochKey":       func() error { _, err := keys.EpochKey(ctx, tenantA, 1); return err },
			"AddEpochKey":    func() error { _, err := keys.AddEpochKey(ctx, tenantA, 1, []byte("w")); return err },
		} {
			if err := call(); !errors.Is(err, context.Canceled) {
				f.Errorf("%s with a context that has ended: got error %v, want %v", name, err, context.Canceled)
			}
		}
	}
	f.same("contents afterwards", f.contents(tenantA), want)
	if _, err := a.Setting(f.Context(), "x"); !errors.Is(err, store.ErrNotFound) {
		f.Errorf("Setting afterwards: got error %v, want %v", err, store.ErrNotFound)
	}
	if list, err := keys.EpochKeyList(f.Context(), tenantA); len(list) != 0 || err != nil {
		f.Errorf("EpochKeyList afterwards: got %v, error %v; want none", list, err)
	}
}

func contextEndsInside(f *fixture) {
	ctx, cancel := context.WithCancel(f.Context())
	err := f.Update(ctx, tenantA, func(tx store.Tx) error {
		if err := tx.InsertToken(f.Context(), token(1)); err != nil {
			return err
		}
		cancel()
		return nil
	})
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		_, found := tx.Token(ctx, token(1).ID)
		if (err == nil) != (found == nil) {
			f.Errorf("Update reported %v, and reading the token %v: they must agree", err, found)
		}
		return nil
	})
	f.sound()
}

func readyAndSound(f *fixture) {
	if err := f.Ready(f.Context()); err != nil {
		f.Errorf("Ready: got error %v, want none", err)
	}
	f.fill(tenantA)
	var steps []string
	found, err := f.Check(f.Context(), func(doing string) { steps = append(steps, doing) })
	if len(found) != 0 || err != nil || len(steps) == 0 {
		f.Errorf("Check: found %q in the steps %q, error %v; want nothing in some steps", found, steps, err)
	}
}
