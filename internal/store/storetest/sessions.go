package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

var sessionTests = []test{
	{"a session comes back whole, by id, key and nonce", sessionComesBack},
	{"ids and hashes are taken once", sessionTaken},
	{"a replacement changes what is decided about a session", sessionReplacement},
	{"a replacement needs the next version", sessionVersions},
	{"a session that was deleted is gone", sessionDeletion},
	{"a list of those that live, newest first, in pages", sessionList},
	{"a list of those whose keys are live", sessionsWithLiveKeys},
	{"expired sessions are found across tenants, longest expired first", expiredSessions},
}

// living chooses every session that has not expired at the time of the tests.
var living = store.SessionFilter{Now: day}

func insertSession(s store.Session) func(context.Context, store.Tx) error {
	return func(ctx context.Context, tx store.Tx) error { return tx.InsertSession(ctx, s) }
}

func sessionComesBack(f *fixture) {
	f.update(tenantA, insertSession(session(1)))
	f.update(tenantA, insertSession(session(2)))
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		byID, errID := tx.Session(ctx, session(1).ID)
		byKey, errKey := tx.SessionByKey(ctx, session(1).KeyHash)
		byNonce, errNonce := tx.SessionByNonce(ctx, session(1).NonceHash)
		f.same("Session", byID, session(1))
		f.same("SessionByKey", byKey, session(1))
		f.same("SessionByNonce", byNonce, session(1))
		for _, hash := range [][]byte{nil, {}, []byte("key hash"), []byte("key hash 1 "), []byte("KEY HASH 1"), session(1).NonceHash} {
			if _, err := tx.SessionByKey(ctx, hash); !errors.Is(err, store.ErrNotFound) {
				f.Errorf("SessionByKey(%q): got error %v, want %v", hash, err, store.ErrNotFound)
			}
		}
		for _, hash := range [][]byte{nil, {}, []byte("nonce hash"), session(1).KeyHash} {
			if _, err := tx.SessionByNonce(ctx, hash); !errors.Is(err, store.ErrNotFound) {
				f.Errorf("SessionByNonce(%q): got error %v, want %v", hash, err, store.ErrNotFound)
			}
		}
		return errors.Join(errID, errKey, errNonce)
	})
}

func sessionTaken(f *fixture) {
	f.update(tenantA, insertSession(version2(session(1), func(s *store.Session) { s.ExpiresAt = day - hour }))) // and not swept
	for name, change := range map[string]func(*store.Session){
		"an id":      func(s *store.Session) { s.ID = session(1).ID },
		"a key":      func(s *store.Session) { s.KeyHash = session(1).KeyHash },
		"a nonce":    func(s *store.Session) { s.NonceHash = session(1).NonceHash },
		"everything": func(s *store.Session) { *s = session(1) },
	} {
		f.refused("InsertSession with "+name+" that is taken", tenantA, store.ErrExists, insertSession(version2(session(2), change)))
	}
	f.refused("InsertSession twice in one transaction", tenantA, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
		if err := tx.InsertSession(ctx, session(3)); err != nil {
			return err
		}
		return tx.InsertSession(ctx, session(3))
	})
	f.same("number of sessions", f.contents(tenantA).SessionCount, int64(0))
}

func sessionReplacement(f *fixture) {
	f.update(tenantA, insertSession(version2(session(1), func(s *store.Session) { s.AuthorizedBy, s.AuthorizedAt = "", 0 })))
	changed := store.Session{
		ID: session(1).ID, KeyHash: []byte("a forged key"), NonceHash: []byte("a forged nonce"), Prefix: "forged", Grant: []byte("new grant"),
		CreatedBy: "a forger", CreatedKeyID: "a forger's key", CreatedAt: day + 99*hour, AuthorizedBy: "application 3", AuthorizedKeyID: "key 3",
		AuthorizedAt: day + 2*second, ExpiresAt: day + 3*hour, Version: 2,
	}
	want := changed
	want.KeyHash, want.NonceHash, want.Prefix = session(1).KeyHash, session(1).NonceHash, session(1).Prefix
	want.CreatedBy, want.CreatedKeyID, want.CreatedAt = session(1).CreatedBy, session(1).CreatedKeyID, session(1).CreatedAt
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.ReplaceSession(ctx, changed) })
	f.same("sessions", f.contents(tenantA).Sessions, []store.Session{want})
}

func sessionVersions(f *fixture) {
	f.update(tenantA, insertSession(session(1)))
	for _, version := range []int64{-1, 0, 1, 3} {
		f.refused(fmt.Sprintf("ReplaceSession with version %d over 1", version), tenantA, store.ErrConflict, func(ctx context.Context, tx store.Tx) error {
			return tx.ReplaceSession(ctx, version2(session(1), func(s *store.Session) { s.Version = version }))
		})
	}
	f.refused("ReplaceSession of one that is not there", tenantA, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.ReplaceSession(ctx, version2(session(2), func(s *store.Session) { s.Version = 2 }))
	})
	f.same("sessions", f.contents(tenantA).Sessions, []store.Session{session(1)})
}

func sessionDeletion(f *fixture) {
	remove := func(ctx context.Context, tx store.Tx) error { return tx.DeleteSession(ctx, session(1).ID) }
	f.update(tenantA, insertSession(session(1)))
	f.update(tenantA, remove)
	f.refused("DeleteSession again", tenantA, store.ErrNotFound, remove)
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		if _, err := tx.SessionByKey(ctx, session(1).KeyHash); !errors.Is(err, store.ErrNotFound) {
			f.Errorf("SessionByKey of one that was deleted: got error %v, want %v", err, store.ErrNotFound)
		}
		return nil
	})
	f.update(tenantA, insertSession(session(1))) // id and hashes are free again
}

func sessionList(f *fixture) {
	var want []string
	for n := range 14 {
		s := version2(session(n), func(s *store.Session) {
			s.CreatedAt = day + store.Time(n/2) // two at an instant
			if n%4 == 1 {
				s.ExpiresAt = day // not a moment longer
			} else {
				want = append([]string{s.ID}, want...)
				s.ExpiresAt = day + 1
			}
		})
		f.update(tenantA, insertSession(s))
	}
	pages(f, "sessions", want,
		func(ctx context.Context, tx store.Tx, p store.Page) ([]store.Session, error) {
			return tx.Sessions(ctx, living, p)
		},
		func(s store.Session) string { return s.ID },
		func(s store.Session) store.Position { return store.Position{CreatedAt: s.CreatedAt, ID: s.ID} })
	for now, count := range map[store.Time]int64{1: 14, day - 1: 14, day: int64(len(want)), day + 1: 0} {
		f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
			n, err := tx.CountSessions(ctx, store.SessionFilter{Now: now})
			f.same(fmt.Sprintf("sessions that live at %d", now-day), n, count)
			return err
		})
	}
}

// sessionsWithLiveKeys has one session for every way in which the key that
// created or authorized it can be there or not.
func sessionsWithLiveKeys(f *fixture) {
	application := func(id string, expires store.Time) store.Application {
		return store.Application{ID: id, Type: "private", ExpiresAt: expires, CreatedAt: day, Version: 1}
	}
	key := func(application, id string, created store.Time) store.Key {
		return store.Key{ID: id, ApplicationID: application, Version: 1, Hash: []byte(application + id), CreatedAt: created}
	}
	fill := func(ctx context.Context, tx store.Tx) error {
		return errors.Join(
			tx.InsertApplication(ctx, application("lives", 0)), tx.InsertApplication(ctx, application("later", day+1)), tx.InsertApplication(ctx, application("over", day)),
			tx.InsertApplication(ctx, application("bare", 0)),
			tx.InsertKey(ctx, key("lives", "k1", day)), tx.InsertKey(ctx, key("lives", "k2", day+second)),
			tx.InsertKey(ctx, key("later", "k3", day)), tx.InsertKey(ctx, key("over", "k4", day)))
	}
	f.update(tenantA, fill)
	f.update(tenantB, func(ctx context.Context, tx store.Tx) error { // another tenant's keys count for nothing
		return errors.Join(tx.InsertApplication(ctx, application("bare", 0)), tx.InsertKey(ctx, key("bare", "k9", 1)))
	})
	created, authorized := day, day+2*second
	ways := []struct {
		application, id string
		early           bool // before any key of the application
		live            bool
	}{
		{"lives", "k1", false, true}, {"lives", "k2", false, true}, {"later", "k3", false, true},
		{"lives", "k3", false, false}, {"lives", "gone", false, false}, {"over", "k4", false, false}, {"bare", "k1", false, false}, {"bare", "k9", false, false}, {"gone", "k1", false, false},
		// Of older releases, without the id of the key.
		{"lives", "", false, true}, {"lives", "", true, false}, {"over", "", false, false}, {"bare", "", false, false}, {"gone", "", false, false},
	}
	var want []string
	n := 0
	insert := func(s store.Session, live bool) {
		s.ID = session(n).ID
		s.KeyHash, s.NonceHash = session(n).KeyHash, session(n).NonceHash
		if n++; live {
			want = append(want, s.ID)
		}
		f.update(tenantA, insertSession(s))
	}
	for _, by := range ways {
		s := version2(session(1), func(s *store.Session) {
			s.CreatedBy, s.CreatedKeyID, s.CreatedAt = by.application, by.id, created
			s.AuthorizedBy, s.AuthorizedKeyID, s.AuthorizedAt = "", "", 0
			if by.early {
				s.CreatedAt = created - 1
			}
		})
		insert(s, by.live) // waits for its authorization
		for _, with := range ways {
			s.AuthorizedBy, s.AuthorizedKeyID, s.AuthorizedAt = with.application, with.id, authorized
			if with.early {
				s.AuthorizedAt = created - 1
			}
			insert(s, by.live && with.live)
		}
	}
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		filter := store.SessionFilter{Now: day, LiveKeys: true}
		list, err := tx.Sessions(ctx, filter, large)
		if err != nil {
			return err
		}
		var got []string
		for _, s := range list {
			got = append(got, s.ID)
		}
		slices.Sort(got)
		f.same("sessions with live keys", got, want)
		page, errPage := tx.Sessions(ctx, filter, store.Page{Offset: 1, Limit: 2})
		f.same("a page of them", page, list[1:3])
		count, errCount := tx.CountSessions(ctx, filter)
		f.same("their number", count, int64(len(want)))
		all, errAll := tx.CountSessions(ctx, store.SessionFilter{Now: day})
		f.same("the number of all", all, int64(n))
		filter.Now = day + hour
		over, errOver := tx.CountSessions(ctx, filter)
		f.same("their number once they have expired", over, int64(0))
		return errors.Join(errPage, errCount, errAll, errOver)
	})
}

func expiredSessions(f *fixture) {
	tenants := []string{tenantA, tenantB, tenantC}
	var want []store.SessionRef
	for n := range 30 {
		s := version2(session(n), func(s *store.Session) { s.ExpiresAt = day - 29*second + store.Time(n)*second })
		id := tenants[n%3]
		f.update(id, insertSession(s))
		want = append(want, store.SessionRef{Tenant: id, ID: s.ID})
	}
	f.update(tenantA, insertSession(session(100)))
	for name, c := range map[string]struct {
		now         store.Time
		skip, limit int
		want        []store.SessionRef
	}{
		"all":               {day, 0, 1000, want},
		"a bounded number":  {day, 0, 7, want[:7]},
		"those behind them": {day, 7, 7, want[7:14]},
		"all but one":       {day - 1, 0, 1000, want[:29]},
		"before the first":  {day - hour, 0, 1000, nil},
	} {
		got, err := f.AllTenants().ExpiredSessions(f.Context(), c.now, c.skip, c.limit)
		if err != nil {
			f.Errorf("ExpiredSessions, %s: %v", name, err)
		}
		f.same("ExpiredSessions, "+name, append([]store.SessionRef(nil), got...), c.want)
	}
}
