package audit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// rowsRead counts the rows that reports read.
type rowsRead struct {
	store.Store
	rows int
}

type rowsReadTx struct {
	store.Tx
	of *rowsRead
}

func (s *rowsRead) View(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	return s.Store.View(ctx, tenant, func(tx store.Tx) error { return fn(rowsReadTx{tx, s}) })
}

func (x rowsReadTx) Activity(ctx context.Context, f store.ActivityFilter, limit int) ([]store.Activity, error) {
	list, err := x.Tx.Activity(ctx, f, limit)
	x.of.rows += len(list)
	return list, err
}

func (x rowsReadTx) UnsealedLog(ctx context.Context, limit int) ([]store.LogEntry, error) {
	list, err := x.Tx.UnsealedLog(ctx, limit)
	x.of.rows += len(list)
	return list, err
}

func (x rowsReadTx) Logs(ctx context.Context, f store.LogFilter, p store.Page) ([]store.LogEntry, error) {
	list, err := x.Tx.Logs(ctx, f, p)
	x.of.rows += len(list)
	return list, err
}

// TestActivityOfMuchReadsAsManyRowsAsOfLittle has many entries in as many buckets
// as few.
func TestActivityOfMuchReadsAsManyRowsAsOfLittle(t *testing.T) {
	t.Parallel()
	large := 4000
	if storetest.All() {
		large = 1_000_000
	}
	read := make(map[int]int)
	for _, n := range []int{60, large} {
		w := newWorld(t)
		tenant := w.tenant()
		w.clock.Advance(time.Minute - time.Duration(w.clock.Now().Second())*time.Second)
		w.readers(tenant, n)
		for {
			sealed, err := w.sealer.SealTenant(t.Context(), tenant)
			if err != nil {
				t.Fatal(err)
			}
			if sealed.Entries == 0 {
				break
			}
		}
		counted := &rowsRead{Store: w.store}
		service := audit.New(counted, w.ring, w.options())
		c := accesstest.Caller(t, tenant, application, access.ReportRead)
		r, err := service.Activity(t.Context(), c, audit.ActivityQuery{Bucket: "day"})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Total; got.Revealed != int64(n+2)/3 || got.Masked != int64(n)-int64(n+2)/3 || got.Uses != 0 || got.Refusals != 0 {
			t.Errorf("of %d reads the report counts %+v", n, got)
		}
		read[n] = counted.rows
	}
	if read[60] != read[large] || read[60] == 0 {
		t.Errorf("a report read %d rows over 60 entries and %d over %d", read[60], read[large], large)
	}
}

func TestActivityCountsEveryEntryOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenant, other := w.tenant(), w.tenant()
	c := accesstest.Caller(t, tenant, application, access.ReportRead, access.LogRead)
	entries := w.readers(tenant, 9)
	w.readers(other, 3)
	w.update(tenant, func(tx store.Tx) error {
		return tx.AppendLog(t.Context(), audit.Entry(c, w.clock.Now(), "card", "card-1", audit.Use), audit.Entry(c, w.clock.Now(), "card", "card-1", audit.Update),
			audit.Entry(c, w.clock.Now(), audit.Application, "a", audit.Read))
	})
	w.service.Refused(t.Context(), c, c.Require(access.TenantDelete), audit.Attempt{})
	want := audit.Activity{Revealed: 3, Masked: 6, OtherReads: 1, Uses: 1, Changes: 1, Refusals: 1}
	report := func(q audit.ActivityQuery) audit.ActivityReport {
		t.Helper()
		r, err := w.service.Activity(t.Context(), c, q)
		if err != nil {
			t.Fatalf("Activity(%+v) = %v", q, err)
		}
		return r
	}
	if got := report(audit.ActivityQuery{Bucket: "minute"}).Total; got != want {
		t.Errorf("before it is sealed: %+v, want %+v", got, want)
	}
	w.seal(tenant, 1)
	want.OtherReads++ // the report
	for _, bucket := range []string{"minute", "hour", "day"} {
		if got := report(audit.ActivityQuery{Bucket: bucket}).Total; got != want {
			t.Errorf("by the %s: %+v, want %+v", bucket, got, want)
		}
		want.OtherReads++
	}
	if _, _, err := w.service.List(t.Context(), c, store.LogFilter{}, store.Page{Limit: 1}); err != nil { // is not counted
		t.Fatal(err)
	}
	one := report(audit.ActivityQuery{Bucket: "hour", Application: entries[1].ActorID})
	if len(one.Buckets) != 1 || one.Buckets[0].Application != entries[1].ActorID || one.Total.Revealed != 1 || one.Total.Masked != 3 || one.Total.Uses != 0 {
		t.Errorf("of one application: %+v", one)
	}
	if all := report(audit.ActivityQuery{Bucket: "hour", Together: true}); len(all.Buckets) != 1 || all.Buckets[0].Application != "" || all.Buckets[0].Revealed != 3 {
		t.Errorf("all together: %+v", all)
	}
	if early := report(audit.ActivityQuery{Bucket: "hour", Before: store.At(start.Add(-24 * time.Hour))}); len(early.Buckets) != 0 {
		t.Errorf("the day before: %+v", early)
	}
	for name, q := range map[string]audit.ActivityQuery{
		"no bucket": {}, "an unknown bucket": {Bucket: "year"}, "too long": {Bucket: "minute", From: 1}, "an end before its beginning": {Bucket: "day", From: store.At(start), Before: store.At(start.AddDate(0, 0, -3))},
	} {
		if _, err := w.service.Activity(t.Context(), c, q); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s = %v, want a fault", name, err)
		}
	}
	if _, err := w.service.Activity(t.Context(), accesstest.Caller(t, tenant, application, access.LogRead), audit.ActivityQuery{Bucket: "day"}); !errors.Is(err, fault.Forbidden) {
		t.Errorf("without report:read = %v", err)
	}
}

// TestOldCountersAreDropped seals a week after counters by the minute were made.
func TestOldCountersAreDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenant := w.tenant()
	c := accesstest.Caller(t, tenant, application, access.ReportRead)
	w.readers(tenant, 3)
	w.seal(tenant, 1)
	first := store.At(start)
	w.clock.Advance(8 * 24 * time.Hour)
	w.readers(tenant, 1)
	w.seal(tenant, 1)
	for bucket, want := range map[string]int64{"minute": 0, "hour": 1, "day": 1} {
		r, err := w.service.Activity(t.Context(), c, audit.ActivityQuery{Bucket: bucket, From: first, Before: first + store.Time(time.Hour.Microseconds())})
		if err != nil || r.Total.Revealed != want {
			t.Errorf("by the %s: %+v, %v, want %d", bucket, r.Total, err, want)
		}
	}
}
