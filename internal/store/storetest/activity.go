package storetest

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// everyActivity is the filter of all counters by the minute.
var everyActivity = store.ActivityFilter{Width: 60, Before: math.MaxInt64}

func activity(n int) store.Activity {
	return store.Activity{Width: 60, At: day + store.Time(n)*60*second, ActorID: "application 1", Kind: fmt.Sprint("kind ", n), Entries: int64(n)}
}

// activityIsCounted adds to counters, reads and drops them.
func activityIsCounted(f *fixture) {
	other := activity(1)
	other.ActorID = "application 2"
	hour := activity(1)
	hour.Width = 3600
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		return tx.AddActivity(ctx, []store.Activity{activity(1), activity(2), activity(3), other, hour})
	})
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		return tx.AddActivity(ctx, []store.Activity{activity(2), hour})
	})
	f.update(tenantB, func(ctx context.Context, tx store.Tx) error {
		return tx.AddActivity(ctx, []store.Activity{activity(1)})
	})
	twice := activity(2)
	twice.Entries *= 2
	wants := func(name string, filter store.ActivityFilter, limit int, want ...store.Activity) {
		f.Helper()
		var got []store.Activity
		f.view(tenantA, func(ctx context.Context, tx store.Tx) (err error) {
			got, err = tx.Activity(ctx, filter, limit)
			return err
		})
		if !slices.Equal(got, want) {
			f.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	wants("all", everyActivity, 100, activity(1), other, twice, activity(3))
	wants("the first", everyActivity, 2, activity(1), other)
	wants("of one actor", store.ActivityFilter{Width: 60, Before: math.MaxInt64, ActorID: "application 2"}, 100, other)
	wants("between two instants", store.ActivityFilter{Width: 60, From: activity(2).At, Before: activity(3).At}, 100, twice)
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.DropActivity(ctx, 60, activity(3).At) })
	wants("what is left", everyActivity, 100, activity(3))
	hour.Entries *= 2
	wants("of another width", store.ActivityFilter{Width: 3600, Before: math.MaxInt64}, 100, hour)
}
