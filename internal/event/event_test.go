package event_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/event"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// fixture is a store with two tenants and a clock.
type fixture struct {
	*testing.T
	store         store.Store
	ring          *keyring.Ring
	clock         *clocktest.Clock
	service       *event.Service
	tenant, other string
	acting        func() (access.Caller, error)
	receivers     *receivers
}

// receivers keep what they are handed.
type receivers struct {
	handed []store.Event
	stale  int // how often they have changed when they are asked
}

func (r *receivers) Hand(_ context.Context, _ store.Tx, events []store.Event) error {
	if r.stale > 0 {
		r.stale--
		return event.ErrStale
	}
	r.handed = append(r.handed, events...)
	return nil
}

func (r *receivers) Handed() {}

// onBoth runs a test on both stores.
func onBoth(t *testing.T, test func(f *fixture)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		s, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		test(newFixture(t, s))
	})
	t.Run("postgres", func(t *testing.T) {
		s, err := postgres.Open(t.Context(), pgtest.Database(t), postgres.Options{Connections: 8})
		if err != nil {
			t.Fatal(err)
		}
		test(newFixture(t, s))
	})
}

func newFixture(t *testing.T, s store.Store) *fixture {
	t.Helper()
	t.Cleanup(func() { _ = s.Close() })
	f := &fixture{T: t, store: s, clock: clocktest.New(time.Date(2031, 5, 6, 7, 8, 0, 0, time.UTC)), tenant: uuid.NewString(), other: uuid.NewString(), receivers: &receivers{}}
	kek := filepath.Join(t.TempDir(), "kek.json")
	if _, err := localkms.Generate(kek); err != nil {
		t.Fatal(err)
	}
	kms, err := localkms.Open(kek)
	f.must(err)
	f.ring, err = keyring.Open(t.Context(), kms, s, keyring.Options{Now: f.clock.Now})
	f.must(err)
	for _, tenant := range []string{f.tenant, f.other} {
		sets, err := f.ring.NewTenant(t.Context(), tenant)
		f.must(err)
		f.must(s.Update(t.Context(), tenant, func(tx store.Tx) (err error) {
			for _, set := range sets {
				err = errors.Join(err, tx.PutKeyset(t.Context(), set))
			}
			return errors.Join(err, tx.InsertTenant(t.Context(), store.Tenant{ID: tenant, Name: "test"}))
		}))
	}
	f.acting = func() (access.Caller, error) { return f.reader(f.tenant), nil }
	f.service = event.New(s, f.ring, event.Options{
		Now:       f.clock.Now,
		Acting:    func(context.Context, string, string, string) (access.Caller, error) { return f.acting() },
		Receivers: func(context.Context, string) (event.Receivers, error) { return f.receivers, nil },
	})
	return f
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) reader(tenant string) access.Caller {
	return accesstest.Caller(f.T, tenant, "application-1", access.EventRead)
}

// change appends changes of an entity, a second apart.
func (f *fixture) change(tenant, kind, entity string, operations ...audit.Operation) {
	f.Helper()
	for _, op := range operations {
		at := f.clock.Advance(time.Second)
		f.must(f.store.Update(f.Context(), tenant, func(tx store.Tx) error {
			return tx.AppendLog(f.Context(), audit.Entry(access.NewSystem(tenant), at, kind, entity, op))
		}))
	}
}

// list follows the cursors of a query and returns what it finds, in words.
func (f *fixture) list(q event.Query) (found []string) {
	f.Helper()
	for range 100 {
		page, err := f.service.List(f.Context(), f.reader(f.tenant), q)
		f.must(err)
		for _, e := range page.Events {
			found = append(found, e.Type+" "+e.EntityID)
		}
		if !page.More {
			return found
		}
		q.Start = page.Next
	}
	f.Fatal("the list does not end")
	return nil
}

func TestEventsAreListedByCursorAndFilters(t *testing.T) {
	onBoth(t, func(f *fixture) {
		f.change(f.tenant, "card", "c-1", audit.Create, audit.Read, audit.Update)
		f.change(f.tenant, audit.Application, "a-1", audit.Create)
		half := f.clock.Now().Add(500 * time.Millisecond)
		f.change(f.tenant, "bank", "b-1", audit.Create, audit.Use, audit.Delete)
		f.change(f.other, "card", "theirs", audit.Create)
		all := []string{"token.created c-1", "token.updated c-1", "application.created a-1", "token.created b-1", "token.deleted b-1"}
		for name, c := range map[string]struct {
			query event.Query
			want  []string
		}{
			"all":               {event.Query{Size: 100}, all},
			"one at a time":     {event.Query{Size: 1}, all},
			"two at a time":     {event.Query{Size: 2}, all},
			"by type":           {event.Query{Size: 1, Types: []string{"token.created"}}, []string{all[0], all[3]}},
			"by several types":  {event.Query{Size: 1, Types: []string{"token.created", "application.*"}}, []string{all[0], all[2], all[3]}},
			"by entity":         {event.Query{Size: 1, EntityID: "c-1"}, all[:2]},
			"of another tenant": {event.Query{Size: 1, EntityID: "theirs"}, nil},
			"since":             {event.Query{Size: 1, Since: half}, all[3:]},
			"since the start":   {event.Query{Size: 10, Since: half.Add(-time.Hour)}, all},
			"since later":       {event.Query{Size: 10, Since: half.Add(time.Hour)}, nil},
			"the latest":        {event.Query{Size: 10, Start: event.Latest}, nil},
		} {
			if got := f.list(c.query); !slices.Equal(got, c.want) {
				f.Errorf("%s: got %v, want %v", name, got, c.want)
			}
		}
		// A cursor goes on with what comes later.
		page, err := f.service.List(f.Context(), f.reader(f.tenant), event.Query{Size: 100})
		f.must(err)
		f.change(f.tenant, "card", "c-2", audit.Create)
		if got := f.list(event.Query{Size: 10, Start: page.Next}); !slices.Equal(got, []string{"token.created c-2"}) {
			f.Errorf("after the cursor: got %v, want token.created c-2", got)
		}
		for name, c := range map[string]struct {
			caller access.Caller
			query  event.Query
			want   error
		}{
			"no permission":          {accesstest.Caller(f.T, f.tenant, "a", access.LogRead), event.Query{Size: 1}, fault.Forbidden},
			"nobody":                 {access.Caller{}, event.Query{Size: 1}, fault.Forbidden},
			"another tenant's place": {f.reader(f.other), event.Query{Size: 1, Start: page.Next}, fault.Invalid},
			"no place":               {f.reader(f.tenant), event.Query{Size: 1, Start: "x"}, fault.Invalid},
			"no type":                {f.reader(f.tenant), event.Query{Size: 1, Types: []string{"robot.*"}}, fault.Invalid},
			"a tenant that is gone":  {f.reader(uuid.NewString()), event.Query{Size: 1}, fault.NotFound},
		} {
			if _, err := f.service.List(f.Context(), c.caller, c.query); !errors.Is(err, c.want) {
				f.Errorf("%s: List = %v, want %v", name, err, c.want)
			}
		}
	})
}

func TestAListWaitsForAnEvent(t *testing.T) {
	onBoth(t, func(f *fixture) {
		type answer struct {
			page event.Page
			err  error
		}
		wait := func(q event.Query) chan answer {
			done := make(chan answer, 1)
			ctx := f.Context()
			go func() {
				page, err := f.service.List(ctx, f.reader(f.tenant), q)
				done <- answer{page, err}
			}()
			return done
		}
		waiting := wait(event.Query{Start: event.Latest, Size: 10, Wait: event.MaxWait, Types: []string{"token.deleted"}})
		f.must(f.service.Dispatch(f.Context()))
		f.change(f.tenant, "card", "c-1", audit.Create)
		f.change(f.tenant, "card", "c-1", audit.Delete)
		f.must(f.service.Dispatch(f.Context()))
		// The call may have begun after the change: then a later one is what it waits for.
		var got answer
		for done := false; !done; {
			select {
			case got = <-waiting:
				done = true
			default:
				f.change(f.tenant, "card", "c-2", audit.Delete)
				f.must(f.service.Dispatch(f.Context()))
			}
		}
		if got.err != nil || len(got.page.Events) == 0 || got.page.Events[0].Type != "token.deleted" {
			f.Errorf("the call returned %v, %v; want token.deleted", got.page.Events, got.err)
		}
		// A caller that lost the permission meanwhile gets nothing.
		f.acting = func() (access.Caller, error) {
			return accesstest.Caller(f.T, f.tenant, "application-1", access.LogRead), nil
		}
		waiting = wait(event.Query{Start: event.Latest, Size: 10, Wait: event.MaxWait})
		for done := false; !done; {
			select {
			case got = <-waiting:
				done = true
			default:
				f.change(f.tenant, "card", "c-3", audit.Update)
				f.must(f.service.Dispatch(f.Context()))
			}
		}
		if !errors.Is(got.err, fault.Forbidden) || len(got.page.Events) != 0 {
			f.Errorf("a caller without the permission got %v, %v", got.page.Events, got.err)
		}
	})
}

func TestEachEventIsHandedOnOnceInOrder(t *testing.T) {
	onBoth(t, func(f *fixture) {
		const events = 1100 // more than one transaction hands on
		f.must(f.store.Update(f.Context(), f.tenant, func(tx store.Tx) error {
			var list []store.LogEntry
			for n := range events {
				list = append(list, audit.Entry(access.NewSystem(f.tenant), f.clock.Now(), "card", fmt.Sprint("c-", n), audit.Create))
			}
			return tx.AppendLog(f.Context(), list...)
		}))
		f.receivers.stale = 3
		f.must(f.service.Dispatch(f.Context()))
		f.must(f.service.Dispatch(f.Context()))
		if len(f.receivers.handed) != events {
			f.Fatalf("%d events were handed on, want %d", len(f.receivers.handed), events)
		}
		for i, e := range f.receivers.handed {
			if e.Number != int64(i+1) || e.EntityID != fmt.Sprint("c-", i) {
				f.Fatalf("event %d is number %d of %s", i, e.Number, e.EntityID)
			}
		}
		if left, err := f.store.AllTenants().EventTenants(f.Context(), "", 10); err != nil || len(left) != 0 {
			f.Errorf("tenants with events: %v, %v; want none", left, err)
		}
	})
}

func TestEventsAreKeptThirtyDays(t *testing.T) {
	onBoth(t, func(f *fixture) {
		f.change(f.tenant, "card", "old", audit.Create, audit.Delete)
		f.must(f.service.Dispatch(f.Context()))
		f.clock.Advance(event.Keep - time.Second)
		f.change(f.tenant, "card", "young", audit.Create)
		f.must(f.service.Dispatch(f.Context()))
		f.clock.Advance(time.Hour)
		if n, err := f.service.Sweep(f.Context()); err != nil || n != 2 {
			f.Errorf("Sweep = %d, %v; want 2", n, err)
		}
		if got := f.list(event.Query{Size: 10}); !slices.Equal(got, []string{"token.created young"}) {
			f.Errorf("the list has %v, want token.created young", got)
		}
	})
}

func TestALimitIsAnnouncedOnceAnHour(t *testing.T) {
	onBoth(t, func(f *fixture) {
		for range 3 {
			f.service.Reached(f.tenant, "containers")
			f.service.Reached(uuid.NewString(), "containers") // of a tenant that is gone
			f.must(f.service.Announce(f.Context()))
		}
		f.service.Reached(f.tenant, "queued_jobs")
		f.must(f.service.Announce(f.Context()))
		f.clock.Advance(time.Hour)
		f.service.Reached(f.tenant, "containers")
		f.must(f.service.Announce(f.Context()))
		want := []string{"limit.reached containers", "limit.reached queued_jobs", "limit.reached containers"}
		if got := f.list(event.Query{Size: 10}); !slices.Equal(got, want) {
			f.Errorf("the events are %v, want %v", got, want)
		}
	})
}

func TestSignedBatchesAreAnnouncedOnceAnHour(t *testing.T) {
	onBoth(t, func(f *fixture) {
		sealer := audit.NewSealer(f.store, f.ring, audit.Options{Now: f.clock.Now})
		sign := func() {
			if _, err := sealer.SealTenant(f.Context(), f.tenant); err != nil {
				f.Fatal(err)
			}
			f.must(f.service.Checkpoints(f.Context()))
		}
		f.must(f.service.Checkpoints(f.Context())) // nothing is signed
		f.change(f.tenant, "card", "c-1", audit.Read)
		sign() // batch 1
		f.change(f.tenant, "card", "c-1", audit.Read)
		sign() // batch 2, within the hour
		f.clock.Advance(time.Hour)
		f.must(f.service.Checkpoints(f.Context()))
		f.clock.Advance(time.Hour)
		sign() // batch 3, with the entry of the last event only
		f.clock.Advance(time.Hour)
		f.must(f.service.Checkpoints(f.Context()))
		f.change(f.tenant, "card", "c-1", audit.Read)
		sign() // batch 4
		want := []string{"audit.checkpoint 1", "audit.checkpoint 2", "audit.checkpoint 4"}
		if got := f.list(event.Query{Size: 10}); !slices.Equal(got, want) {
			f.Errorf("the events are %v, want %v", got, want)
		}
	})
}
