package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

var parcelTests = []test{
	{"a parcel comes back whole", parcelComesBack},
	{"an id is taken in its kind alone", parcelTaken},
	{"a replacement changes everything but what never changes", parcelReplacement},
	{"a replacement needs the next version", parcelVersions},
	{"changes of one parcel in one transaction keep their order", parcelOrder},
	{"a list by kind and group, newest first, in pages", parcelList},
	{"a walk over all kinds meets parcels of one id and instant", parcelWalk},
	{"expired parcels are found across tenants, longest expired first", sweptParcels},
	{"due parcels are found tenant by tenant", dueParcels},
	{"due kinds are found", dueKinds},
}

func insertParcel(p store.Parcel) func(context.Context, store.Tx) error {
	return func(ctx context.Context, tx store.Tx) error { return tx.InsertParcel(ctx, p) }
}

// job is the n-th job.
func job(n int) store.Parcel { return parcel(store.ParcelJob, n) }

func parcelComesBack(f *fixture) {
	f.update(tenantA, insertParcel(job(1)))
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		got, err := tx.Parcel(ctx, store.ParcelJob, job(1).ID)
		f.same("Parcel", got, job(1))
		for _, c := range [][2]string{{store.ParcelRun, job(1).ID}, {store.ParcelJob, "nope"}, {"", job(1).ID}, {store.ParcelJob, ""}} {
			if _, err := tx.Parcel(ctx, c[0], c[1]); !errors.Is(err, store.ErrNotFound) {
				f.Errorf("Parcel(%q): got error %v, want %v", c, err, store.ErrNotFound)
			}
		}
		return err
	})
}

func parcelTaken(f *fixture) {
	f.update(tenantA, insertParcel(version2(job(1), func(p *store.Parcel) { p.ExpiresAt = day - hour }))) // and not swept
	f.refused("InsertParcel of an id that is taken", tenantA, store.ErrExists, insertParcel(job(1)))
	f.refused("InsertParcel twice in one transaction", tenantA, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.InsertParcel(ctx, job(2)), tx.InsertParcel(ctx, job(2)))
	})
	f.update(tenantA, insertParcel(parcel(store.ParcelResult, 1)))
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.DeleteParcel(ctx, store.ParcelJob, job(1).ID) })
	f.refused("DeleteParcel again", tenantA, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.DeleteParcel(ctx, store.ParcelJob, job(1).ID)
	})
	f.same("parcels", f.contents(tenantA).Parcels, []store.Parcel{parcel(store.ParcelResult, 1)})
}

func parcelReplacement(f *fixture) {
	f.update(tenantA, insertParcel(job(1)))
	changed := store.Parcel{
		Kind: store.ParcelJob, ID: job(1).ID, Group: "a forged group", Owner: "application 2", Contents: []byte("new contents"), Epoch: 0,
		CreatedAt: day + 99*hour, DueAt: 0, ExpiresAt: day + 5*hour, Attempts: 4, Version: 2,
	}
	want := changed
	want.Group, want.CreatedAt = job(1).Group, job(1).CreatedAt
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.ReplaceParcel(ctx, changed) })
	f.same("parcels", f.contents(tenantA).Parcels, []store.Parcel{want})
	changed.Version, changed.Contents, changed.DueAt = 3, nil, day
	want.Version, want.Contents, want.DueAt = 3, nil, day
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.ReplaceParcel(ctx, changed) })
	f.same("parcels", f.contents(tenantA).Parcels, []store.Parcel{want})
}

func parcelVersions(f *fixture) {
	f.update(tenantA, insertParcel(job(1)))
	for _, version := range []int64{-1, 0, 1, 3} {
		f.refused(fmt.Sprintf("ReplaceParcel with version %d over 1", version), tenantA, store.ErrConflict, func(ctx context.Context, tx store.Tx) error {
			return tx.ReplaceParcel(ctx, version2(job(1), func(p *store.Parcel) { p.Version = version }))
		})
	}
	for _, kind := range []string{store.ParcelJob, store.ParcelResult} {
		f.refused("ReplaceParcel of one that is not there", tenantA, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
			return tx.ReplaceParcel(ctx, version2(parcel(kind, 2), func(p *store.Parcel) { p.Version = 2 }))
		})
	}
	// One that is wrong spoils the others of its transaction, and a write
	// behind it changes nothing about that.
	f.refused("ReplaceParcel of two, one of them stale", tenantA, store.ErrConflict, func(ctx context.Context, tx store.Tx) error {
		if err := tx.InsertParcel(ctx, job(3)); err != nil {
			return err
		}
		return errors.Join(
			tx.ReplaceParcel(ctx, version2(job(3), func(p *store.Parcel) { p.Version = 2 })),
			tx.ReplaceParcel(ctx, version2(job(1), func(p *store.Parcel) { p.Version = 5 })),
			tx.AppendLog(ctx, entry(1)))
	})
	c := f.contents(tenantA)
	f.same("parcels", c.Parcels, []store.Parcel{job(1)})
	f.same("log entries", c.LogCount, int64(0))
}

func parcelOrder(f *fixture) {
	next := func(p store.Parcel, contents string) store.Parcel {
		p.Version, p.Contents = p.Version+1, []byte(contents)
		return p
	}
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(
			tx.InsertParcel(ctx, job(1)), tx.ReplaceParcel(ctx, next(job(1), "second")), tx.ReplaceParcel(ctx, next(next(job(1), ""), "third")),
			tx.InsertParcel(ctx, job(2)), tx.DeleteParcel(ctx, store.ParcelJob, job(2).ID))
	})
	f.same("parcels", f.contents(tenantA).Parcels, []store.Parcel{next(next(job(1), ""), "third")})
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(
			tx.DeleteParcel(ctx, store.ParcelJob, job(1).ID), tx.InsertParcel(ctx, job(1)),
			tx.InsertParcel(ctx, job(2)), tx.DeleteParcel(ctx, store.ParcelJob, job(2).ID), tx.InsertParcel(ctx, next(job(2), "again")))
	})
	f.same("parcels", f.contents(tenantA).Parcels, []store.Parcel{next(job(2), "again"), job(1)})
	f.refused("DeleteParcel twice in one transaction", tenantA, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.DeleteParcel(ctx, store.ParcelJob, job(1).ID), tx.DeleteParcel(ctx, store.ParcelJob, job(1).ID))
	})
	f.refused("ReplaceParcel of one that the transaction deleted", tenantA, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.DeleteParcel(ctx, store.ParcelJob, job(1).ID), tx.ReplaceParcel(ctx, next(job(1), "late")))
	})
	f.same("parcels", f.contents(tenantA).ParcelCount, int64(2))
}

func parcelList(f *fixture) {
	kinds, groups := []string{store.ParcelJob, store.ParcelRun}, []string{"", "one", "two"}
	var rows []store.Parcel // newest first
	for n := range 18 {
		p := version2(parcel(kinds[n%2], n), func(p *store.Parcel) { p.Group, p.CreatedAt = groups[n%3], day+store.Time(n/4) }) // two of a kind at an instant
		f.update(tenantA, insertParcel(p))
		rows = append([]store.Parcel{p}, rows...)
	}
	for _, filter := range []store.ParcelFilter{
		{Kind: store.ParcelJob}, {Kind: store.ParcelRun}, {Kind: store.ParcelAnswer}, {Kind: store.ParcelJob, Group: "one"},
		{Kind: store.ParcelRun, Group: "two"}, {Kind: store.ParcelRun, Group: "three"}, {Kind: store.ParcelAnswer, Group: "one"},
	} {
		var want []string
		for _, p := range rows {
			if p.Kind == filter.Kind && (filter.Group == "" || filter.Group == p.Group) {
				want = append(want, p.ID)
			}
		}
		what := fmt.Sprintf("parcels by %+v", filter)
		pages(f, what, want,
			func(ctx context.Context, tx store.Tx, p store.Page) ([]store.Parcel, error) {
				return tx.Parcels(ctx, filter, p)
			},
			func(p store.Parcel) string { return p.ID },
			func(p store.Parcel) store.Position { return store.Position{CreatedAt: p.CreatedAt, ID: p.ID} })
		f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
			n, err := tx.CountParcels(ctx, filter)
			f.same("count of "+what, n, int64(len(want)))
			for _, most := range []int64{1, int64(len(want)), int64(len(want)) + 1} {
				bounded := filter
				bounded.Most = most
				n, errMost := tx.CountParcels(ctx, bounded)
				f.same(fmt.Sprintf("count of %s up to %d", what, most), n, min(most, int64(len(want))))
				err = errors.Join(err, errMost)
			}
			return err
		})
	}
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		_, errList := tx.Parcels(ctx, store.ParcelFilter{Group: "one"}, large)
		_, errCount := tx.CountParcels(ctx, store.ParcelFilter{Group: "one"})
		if errList == nil || errCount == nil {
			f.Errorf("parcels by a group without a kind: got errors %v and %v, want some", errList, errCount)
		}
		return nil
	})
}

func parcelWalk(f *fixture) {
	var want []string
	for _, kind := range []string{store.ParcelRun, store.ParcelResult, store.ParcelJob, store.ParcelAnswer} { // by their names, from the last
		for n := 4; n >= 0; n-- {
			p := version2(parcel(kind, n), func(p *store.Parcel) { p.CreatedAt = day })
			f.update(tenantA, insertParcel(p))
			want = append(want, p.Record())
		}
	}
	pages(f, "parcels of all kinds", want,
		func(ctx context.Context, tx store.Tx, p store.Page) ([]store.Parcel, error) {
			return tx.Parcels(ctx, store.ParcelFilter{}, p)
		},
		store.Parcel.Record,
		func(p store.Parcel) store.Position {
			return store.Position{CreatedAt: p.CreatedAt, ID: p.ID, Kind: p.Kind}
		})
}

func sweptParcels(f *fixture) {
	tenants, kinds := []string{tenantA, tenantB, tenantC}, []string{store.ParcelAnswer, store.ParcelJob}
	var expired []store.ParcelRef
	for n := range 30 {
		id := tenants[n%3]
		p := version2(parcel(kinds[n%2], n), func(p *store.Parcel) {
			p.ExpiresAt = day - 29*second + store.Time(n)*second
		})
		f.update(id, insertParcel(p))
		expired = append(expired, store.ParcelRef{Tenant: id, Kind: p.Kind, ID: p.ID})
	}
	f.update(tenantA, insertParcel(job(100)))
	a := f.AllTenants()
	behind := func(skip int) func(context.Context, store.Time, int) ([]store.ParcelRef, error) {
		return func(ctx context.Context, now store.Time, limit int) ([]store.ParcelRef, error) {
			return a.ExpiredParcels(ctx, now, skip, limit)
		}
	}
	for name, c := range map[string]struct {
		find  func(ctx context.Context, now store.Time, limit int) ([]store.ParcelRef, error)
		now   store.Time
		limit int
		want  []store.ParcelRef
	}{
		"all expired":              {behind(0), day, 1000, expired},
		"some expired":             {behind(0), day, 7, expired[:7]},
		"those behind them":        {behind(7), day, 7, expired[7:14]},
		"all but one expired":      {behind(0), day - 1, 1000, expired[:29]},
		"before the first expires": {behind(0), day - hour, 1000, nil},
	} {
		got, err := c.find(f.Context(), c.now, c.limit)
		if err != nil {
			f.Errorf("%s: %v", name, err)
		}
		f.same(name, append([]store.ParcelRef(nil), got...), c.want)
	}
}

func dueKinds(f *fixture) {
	kinds := func(want ...string) {
		f.Helper()
		got, err := f.AllTenants().DueKinds(f.Context())
		if err != nil {
			f.Errorf("DueKinds: %v", err)
		}
		f.same("the kinds that are due", append([]string(nil), got...), append([]string(nil), want...))
	}
	put := func(tenant, kind string, n int, due store.Time) {
		f.update(tenant, insertParcel(version2(parcel(kind, n), func(p *store.Parcel) { p.DueAt = due })))
	}
	kinds()
	put(tenantA, store.ParcelResult, 1, 0) // never due
	kinds()
	for n := range 3 {
		put(tenantA, store.ParcelJob, n, day)
		put(tenantB, store.ParcelJob, n, day+hour)
	}
	put(tenantB, store.ParcelDelivery, 1, day)
	put(tenantC, "a kind of a later release", 1, day)
	kinds("a kind of a later release", store.ParcelDelivery, store.ParcelJob)
	f.update(tenantB, func(ctx context.Context, tx store.Tx) error {
		return tx.DeleteParcel(ctx, store.ParcelDelivery, parcel(store.ParcelDelivery, 1).ID)
	})
	kinds("a kind of a later release", store.ParcelJob)
}

func dueParcels(f *fixture) {
	ref := func(tenant, kind string, n int) store.ParcelRef {
		return store.ParcelRef{Tenant: tenant, Kind: kind, ID: parcel(kind, n).ID}
	}
	put := func(tenant, kind string, n int, due store.Time) {
		f.update(tenant, insertParcel(version2(parcel(kind, n), func(p *store.Parcel) { p.DueAt = due })))
	}
	var ofA, ofC []store.ParcelRef
	for n := range 20 { // the later ones have been due longer
		put(tenantA, store.ParcelJob, n, day-store.Time(n)*second)
		ofA = append([]store.ParcelRef{ref(tenantA, store.ParcelJob, n)}, ofA...)
	}
	put(tenantA, store.ParcelJob, 30, 0) // never due
	put(tenantB, store.ParcelJob, 0, day+hour)
	put(tenantB, store.ParcelDelivery, 1, day-hour)
	for n := range 2 {
		put(tenantC, store.ParcelJob, n, day+store.Time(n)*second-second)
		ofC = append(ofC, ref(tenantC, store.ParcelJob, n))
	}
	both := func(a, c []store.ParcelRef) []store.ParcelRef {
		return append(append([]store.ParcelRef(nil), a...), c...)
	}
	for name, c := range map[string]struct {
		kind          string
		now           store.Time
		after         string
		tenants, each int
		want          []store.ParcelRef
		next          string
	}{
		"all jobs":                           {store.ParcelJob, day, "", 10, 100, both(ofA, ofC), ""},
		"some of each tenant":                {store.ParcelJob, day, "", 10, 1, both(ofA[:1], ofC[:1]), ""},
		"one that is due later counts":       {store.ParcelJob, day, "", 2, 3, ofA[:3], tenantB},
		"those after it":                     {store.ParcelJob, day, tenantB, 2, 3, ofC, ""},
		"exactly as many tenants":            {store.ParcelJob, day, "", 3, 1, both(ofA[:1], ofC[:1]), tenantC},
		"none after the last":                {store.ParcelJob, day, tenantC, 3, 1, nil, ""},
		"a moment before":                    {store.ParcelJob, day - 1, "", 10, 100, both(ofA[:19], ofC[:1]), ""},
		"another kind":                       {store.ParcelDelivery, day, "", 10, 100, []store.ParcelRef{ref(tenantB, store.ParcelDelivery, 1)}, ""},
		"a kind that is never due":           {store.ParcelResult, day, "", 10, 100, nil, ""},
		"before the first is due":            {store.ParcelJob, day - hour, "", 10, 100, nil, ""},
		"the zero time is before everything": {store.ParcelJob, 0, "", 10, 100, nil, ""},
		"no tenants":                         {store.ParcelJob, day, "", 0, 100, nil, ""},
	} {
		got, next, err := f.AllTenants().DueParcels(f.Context(), c.kind, c.now, c.after, c.tenants, c.each)
		if err != nil {
			f.Errorf("%s: %v", name, err)
		}
		f.same(name, append([]store.ParcelRef(nil), got...), c.want)
		f.same(name+": where to go on", next, c.next)
	}
}

// parcelRace sends changes that succeed and changes that cannot, all at once: a
// backend may commit them together, and must still tell each what became of it.
func parcelRace(f *fixture) {
	const n = 48
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		for i := range n {
			if err := tx.InsertParcel(ctx, job(i)); err != nil {
				return err
			}
		}
		return tx.InsertParcel(ctx, job(9999))
	})
	type change struct {
		name  string
		want  []error
		write func(ctx context.Context, tx store.Tx) error
	}
	var kept, won atomic.Int64
	inParallel(n, func(i int) {
		changed := version2(job(i), func(p *store.Parcel) { p.Version, p.Contents = 2, []byte("changed") })
		shared := version2(job(9999), func(p *store.Parcel) { p.Version, p.Contents = 2, fmt.Append(nil, i) })
		replace := func(ctx context.Context, tx store.Tx) error { return tx.ReplaceParcel(ctx, changed) }
		remove := func(ctx context.Context, tx store.Tx) error { return tx.DeleteParcel(ctx, changed.Kind, changed.ID) }
		for j, c := range []change{
			{"ReplaceParcel of its own", []error{nil}, replace},
			{"ReplaceParcel of its own again", []error{store.ErrConflict}, replace},
			{"ReplaceParcel of everybody's", []error{nil, store.ErrConflict}, func(ctx context.Context, tx store.Tx) error { return tx.ReplaceParcel(ctx, shared) }},
			{"InsertParcel of a few", []error{nil, store.ErrExists}, insertParcel(parcel(store.ParcelAnswer, i%8))},
			{"DeleteParcel of its own", []error{nil}, remove},
			{"DeleteParcel of its own again", []error{store.ErrNotFound}, remove},
			{"ReplaceParcel of what is gone", []error{store.ErrNotFound}, replace},
		} {
			var err error
			for range 50 {
				err = f.Update(f.Context(), tenantA, func(tx store.Tx) error {
					if err := c.write(f.Context(), tx); err != nil {
						return err
					}
					return tx.AppendLog(f.Context(), entry(i*10+j))
				})
				if !errors.Is(err, store.ErrUnavailable) { // too many at once
					break
				}
			}
			if !slices.ContainsFunc(c.want, func(want error) bool { return errors.Is(err, want) }) {
				f.Errorf("%s: got error %v, want one of %v", c.name, err, c.want)
			}
			if err == nil {
				kept.Add(1)
				if j == 2 {
					won.Add(1)
				}
			}
		}
	})
	f.same("changes of everybody's parcel that were kept", won.Load(), int64(1))
	c := f.contents(tenantA)
	f.same("parcels that are left", c.ParcelCount, int64(9)) // everybody's, and eight answers
	f.same("changes that were kept", kept.Load(), int64(2*n+1+8))
	f.same("log entries of changes that were kept", c.LogCount, kept.Load())
	f.sound()
}
