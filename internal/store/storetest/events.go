package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

var eventTests = []test{
	{"an event commits with its entry or not at all", eventsCommit},
	{"events are numbered from 1 without gaps and come in order", eventsOrder},
	{"writers at the same time leave the events of each entity in order", eventsConcurrent},
	{"tenants with events that are not dispatched are found", eventTenants},
	{"events are dropped by age, once they are dispatched, and numbers go on", eventsDropped},
}

// withEvent is an entry that has an event.
func withEvent(e store.LogEntry, kind string) store.LogEntry {
	e.Event = kind
	return e
}

// eventOf is the event of an entry, with its number.
func eventOf(e store.LogEntry, number int64, containers ...string) store.Event {
	return store.Event{
		Number: number, ID: e.ID, Type: e.Event, EntityType: e.EntityType, EntityID: e.EntityID, Containers: containers,
		ActorID: e.ActorID, ActorType: e.ActorType, CreatedAt: e.CreatedAt,
	}
}

// numbered gives all events of a tenant their numbers and returns them.
func (f *fixture) numbered(tenant string) (all []store.Event) {
	f.Helper()
	f.update(tenant, func(ctx context.Context, tx store.Tx) (err error) {
		if _, err := tx.NumberEvents(ctx, 1000); err != nil {
			return err
		}
		all, err = tx.Events(ctx, store.EventFilter{}, 0, 1000)
		return err
	})
	return all
}

func eventsCommit(f *fixture) {
	first, second := withEvent(entry(1), "token.created").In([]string{"/a/", "/b/"}), withEvent(entry(3), "application.updated")
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.AppendLog(ctx, first, entry(2), second) })
	f.refused("AppendLog in a transaction that fails", tenantA, errStop, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.AppendLog(ctx, withEvent(entry(4), "token.created")), errStop)
	})
	f.refused("AppendLog of an entry that is there", tenantA, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
		return tx.AppendLog(ctx, withEvent(entry(5), "token.created"), first)
	})
	f.same("events", f.numbered(tenantA), []store.Event{eventOf(first, 1, "/a/", "/b/"), eventOf(second, 2)})
	f.same("events of another tenant", len(f.numbered(tenantB)), 0)
}

func eventsOrder(f *fixture) {
	const updates, each = 7, 5
	var want []store.Event
	for u := range updates {
		var entries []store.LogEntry
		for i := range each {
			n := u*each + i
			e := withEvent(entry(n), fmt.Sprintf("kind.%d", i))
			// Ids and times fall, so neither gives the order.
			e.ID, e.CreatedAt, e.EntityID = uuid(1000-n), day-store.Time(n), fmt.Sprintf("entity %d", i%2)
			entries, want = append(entries, e), append(want, eventOf(e, int64(n+1)))
		}
		f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
			for _, e := range entries {
				if err := tx.AppendLog(ctx, e); err != nil {
					return err
				}
				if _, err := tx.EventHead(ctx); err != nil { // so that the statements are apart
					return err
				}
			}
			return nil
		})
		if u%3 == 0 {
			f.numbered(tenantA)
		}
	}
	f.same("events", f.numbered(tenantA), want)
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		var got, wanted []store.Event
		for after := int64(0); ; {
			page, err := tx.Events(ctx, store.EventFilter{EntityID: "entity 1"}, after, 3)
			if err != nil {
				return err
			}
			if got = append(got, page...); len(page) < 3 {
				break
			}
			after = page[2].Number
		}
		for _, e := range want {
			if e.EntityID == "entity 1" {
				wanted = append(wanted, e)
			}
		}
		f.same("events of an entity", got, wanted)
		head, err := tx.EventHead(ctx)
		f.same("head", head, store.EventHead{Last: updates * each})
		return err
	})
}

// eventsConcurrent has writers change entities, each of which counts its changes,
// while others number the events.
func eventsConcurrent(f *fixture) {
	const writers, changes, entities = 4, 12, 3
	for i := range entities {
		f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.PutMark(ctx, fmt.Sprint(i), []byte{0}) })
	}
	var group sync.WaitGroup
	fail := make(chan error, writers+1)
	for w := range writers {
		group.Go(func() {
			for n := range changes {
				id := fmt.Sprint(n % entities)
				err := f.Update(f.Context(), tenantA, func(tx store.Tx) error {
					value, err := tx.Mark(f.Context(), id)
					if err != nil {
						return err
					}
					e := withEvent(entry(w*changes+n), fmt.Sprint("change.", value[0]))
					e.EntityID = id
					return errors.Join(tx.PutMark(f.Context(), id, []byte{value[0] + 1}), tx.AppendLog(f.Context(), e))
				})
				if err != nil {
					fail <- err
					return
				}
			}
		})
	}
	group.Go(func() {
		for range changes {
			if err := f.Update(f.Context(), tenantA, func(tx store.Tx) error { return none2(tx.NumberEvents(f.Context(), 5)) }); err != nil {
				fail <- err
				return
			}
		}
	})
	group.Wait()
	close(fail)
	for err := range fail {
		f.Fatal(err)
	}
	all := f.numbered(tenantA)
	f.same("number of events", len(all), writers*changes)
	seen := map[string]int{}
	for i, e := range all {
		f.same("number", e.Number, int64(i+1))
		f.same("change of entity "+e.EntityID, e.Type, fmt.Sprint("change.", seen[e.EntityID]))
		seen[e.EntityID]++
	}
}

func eventTenants(f *fixture) {
	for _, id := range []string{tenantA, tenantB, tenantC} {
		f.update(id, func(ctx context.Context, tx store.Tx) error {
			return tx.AppendLog(ctx, withEvent(entry(1), "token.created"))
		})
	}
	f.numbered(tenantB)
	f.numbered(tenantC)
	f.update(tenantC, func(ctx context.Context, tx store.Tx) error { return tx.PutDispatched(ctx, 1) })
	find := func(after string, limit int) []string {
		list, err := f.AllTenants().EventTenants(f.Context(), after, limit)
		if err != nil {
			f.Fatal(err)
		}
		return list
	}
	f.same("tenants", find("", 10), []string{tenantA, tenantB})
	f.same("the first", find("", 1), []string{tenantA})
	f.same("the next", find(tenantA, 10), []string{tenantB})
	f.same("no more", len(find(tenantB, 10)), 0)
	f.update(tenantC, func(ctx context.Context, tx store.Tx) error {
		return tx.AppendLog(ctx, withEvent(entry(2), "token.created"))
	})
	f.same("tenants after another event", find("", 10), []string{tenantA, tenantB, tenantC})
}

func eventsDropped(f *fixture) {
	var entries []store.LogEntry
	for n := range 6 {
		entries = append(entries, withEvent(entry(n), "token.created"))
	}
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.AppendLog(ctx, entries...) })
	f.numbered(tenantA)
	drop := func(before store.Time, limit int) (n int) {
		f.update(tenantA, func(ctx context.Context, tx store.Tx) (err error) {
			n, err = tx.DropEvents(ctx, before, limit)
			return err
		})
		return n
	}
	f.same("dropped before they are dispatched", drop(day+hour, 10), 0)
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.PutDispatched(ctx, 5) })
	f.same("dropped of what is young", drop(day, 10), 0)
	f.same("dropped of what is old", drop(day+2, 10), 2)
	f.same("dropped at most", drop(day+hour, 2), 2)
	f.same("dropped of what is dispatched", drop(day+hour, 10), 1)
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.PutDispatched(ctx, 6) })
	f.same("dropped at last", drop(day+hour, 10), 1)
	next := withEvent(entry(9), "token.deleted")
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.AppendLog(ctx, next) })
	f.same("events", f.numbered(tenantA), []store.Event{eventOf(next, 7)})
}
