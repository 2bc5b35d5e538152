package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// The kinds of activity. Counters are stored under these words.
const (
	activityReveal = "reveal" // reads of tokens by what they showed
	activityMask   = "mask"
	activityRedact = "redact"
	activityRead   = "read" // other reads
	activityUse    = "use"
	activityChange = "change"
	activityDenied = "denied"
)

// kindOf is the kind under which an entry is counted; "" for entries about the
// log itself, which are not.
func kindOf(e store.LogEntry) string {
	switch {
	case e.EntityType == Log:
		return ""
	case e.Outcome == outcomeDenied:
		return activityDenied
	case e.Operation == string(Use):
		return activityUse
	case e.Operation != string(Read):
		return activityChange
	case e.Transform != "":
		return e.Transform
	}
	return activityRead
}

// bucket is a width of counters, and how long they are kept; 0 for always.
type bucket struct {
	name  string
	width time.Duration
	kept  time.Duration
	// usual is the range of a report that names none.
	usual time.Duration
}

var buckets = []bucket{
	{"minute", time.Minute, 7 * 24 * time.Hour, time.Hour},
	{"hour", time.Hour, 400 * 24 * time.Hour, 24 * time.Hour},
	{"day", 24 * time.Hour, 0, 30 * 24 * time.Hour},
}

func (b bucket) of(at store.Time) store.Time {
	width := store.Time(b.width.Microseconds())
	return at - at%width
}

// countActivity adds up entries for some buckets.
func countActivity(entries []store.LogEntry, widths ...bucket) []store.Activity {
	counts := make(map[store.Activity]int64)
	for _, e := range entries {
		kind := kindOf(e)
		if kind == "" {
			continue
		}
		for _, b := range widths {
			counts[store.Activity{Width: int64(b.width.Seconds()), At: b.of(e.CreatedAt), ActorID: e.ActorID, Kind: kind}]++
		}
	}
	list := make([]store.Activity, 0, len(counts))
	for a, n := range counts {
		a.Entries = n
		list = append(list, a)
	}
	// In one order, so that two transactions never wait for each other.
	slices.SortFunc(list, func(a, b store.Activity) int {
		return strings.Compare(fmt.Sprint(a.Width, a.At, a.ActorID, a.Kind), fmt.Sprint(b.Width, b.At, b.ActorID, b.Kind))
	})
	return list
}

// addActivity counts the entries of a batch, in the transaction that seals them:
// an entry is in one batch, so it is counted once. It drops counters whose time
// is over. A tenant that is being deleted has no more reports.
func addActivity(ctx context.Context, tx store.Tx, entries []store.LogEntry, now time.Time) error {
	if row, err := tx.TenantRow(ctx); errors.Is(err, store.ErrNotFound) || err == nil && row.Deleting {
		return nil
	} else if err != nil {
		return err
	}
	if err := tx.AddActivity(ctx, countActivity(entries, buckets...)); err != nil {
		return err
	}
	for _, b := range buckets {
		if b.kept == 0 {
			continue
		}
		if err := tx.DropActivity(ctx, int64(b.width.Seconds()), b.of(store.At(now.Add(-b.kept)))); err != nil {
			return err
		}
	}
	return nil
}

// ActivityQuery asks for a report of activity.
type ActivityQuery struct {
	Bucket string     // minute, hour or day
	From   store.Time // default: an hour, a day or a month ago
	Before store.Time // default: now
	// Application is the one whose activity counts; "" for all.
	Application string
	// Together adds up all applications.
	Together bool
}

// Activity is what happened within a bucket.
type Activity struct {
	At          time.Time
	Application string
	// Reads of tokens by how much they showed, and other reads.
	Revealed, Masked, Redacted, OtherReads int64
	Uses, Changes, Refusals                int64
}

// ActivityReport is what happened in a range of time.
type ActivityReport struct {
	Bucket       string
	From, Before time.Time
	Total        Activity
	Buckets      []Activity // in the order of time and application; those without activity are left out
}

const (
	// maxBuckets bounds the range of a report.
	maxBuckets = 1500
	// maxActivity bounds the counters that a report reads.
	maxActivity = 50_000
	// maxTail bounds the entries that wait to be sealed and that a report counts.
	maxTail = 5000
)

var (
	errBucket        = fault.Field("bucket", "must be minute, hour or day")
	errActivityRange = fault.Field("start_date", "must be before end_date, and at most 1,500 buckets earlier")
	errMuchActivity  = fault.New(fault.Invalid, "there is too much activity for one report: give closer dates or an application_id")
)

// Activity reports what happened, from counters: its cost depends on the number
// of buckets and applications, and not on the size of the log. What is not sealed
// yet is counted as it is read. The caller needs report:read.
func (s *Service) Activity(ctx context.Context, c access.Caller, q ActivityQuery) (r ActivityReport, err error) {
	if err := c.Require(access.ReportRead); err != nil {
		return r, err
	}
	i := slices.IndexFunc(buckets, func(b bucket) bool { return b.name == q.Bucket })
	if i < 0 {
		return r, errBucket
	}
	b, width := buckets[i], store.Time(buckets[i].width.Microseconds())
	if q.Before.IsZero() {
		q.Before = store.At(s.now()) + 1
	}
	if q.From.IsZero() {
		q.From = max(q.Before-store.Time(b.usual.Microseconds()), 1)
	}
	from := b.of(q.From)
	if from >= q.Before || (q.Before-from)/width >= maxBuckets {
		return r, errActivityRange
	}
	r = ActivityReport{Bucket: b.name, From: from.Time(), Before: q.Before.Time()}
	var counts []store.Activity
	err = s.store.View(ctx, c.Tenant(), func(tx store.Tx) error {
		counts, err = tx.Activity(ctx, store.ActivityFilter{Width: int64(b.width.Seconds()), From: from, Before: q.Before, ActorID: q.Application}, maxActivity+1)
		if err != nil {
			return err
		}
		tail, err := tx.UnsealedLog(ctx, maxTail)
		if err != nil {
			return err
		}
		for _, a := range countActivity(tail, b) {
			if a.At >= from && a.At < q.Before && (q.Application == "" || q.Application == a.ActorID) {
				counts = append(counts, a)
			}
		}
		return nil
	})
	if err != nil {
		return r, fmt.Errorf("audit: read activity: %w", err)
	}
	if len(counts) > maxActivity {
		return r, errMuchActivity
	}
	r.add(counts, q.Together)
	return r, s.Reported(ctx, c, "activity report")
}

// add sorts the counters into the report.
func (r *ActivityReport) add(counts []store.Activity, together bool) {
	type key struct {
		at    store.Time
		actor string
	}
	found := make(map[key]*Activity)
	for _, a := range counts {
		k := key{a.At, a.ActorID}
		if together {
			k.actor = ""
		}
		if found[k] == nil {
			found[k] = &Activity{At: a.At.Time(), Application: k.actor}
		}
		found[k].count(a.Kind, a.Entries)
		r.Total.count(a.Kind, a.Entries)
	}
	for _, a := range found {
		r.Buckets = append(r.Buckets, *a)
	}
	slices.SortFunc(r.Buckets, func(a, b Activity) int {
		if c := a.At.Compare(b.At); c != 0 {
			return c
		}
		return strings.Compare(a.Application, b.Application)
	})
}

func (a *Activity) count(kind string, n int64) {
	switch kind {
	case activityReveal:
		a.Revealed += n
	case activityMask:
		a.Masked += n
	case activityRedact:
		a.Redacted += n
	case activityRead:
		a.OtherReads += n
	case activityUse:
		a.Uses += n
	case activityChange:
		a.Changes += n
	case activityDenied:
		a.Refusals += n
	}
}

// Reported logs that a caller read a report about its tenant. The words are a
// constant of the program.
func (s *Service) Reported(ctx context.Context, c access.Caller, what string) error {
	entry := EntryBy(c, s.now(), Tenant, c.Tenant(), Read, what)
	err := s.store.Update(ctx, c.Tenant(), func(tx store.Tx) error { return tx.AppendLog(ctx, entry) })
	if errors.Is(err, store.ErrNoTenant) {
		return errNoTenant
	}
	if err != nil {
		return fmt.Errorf("audit: log a report: %w", err)
	}
	return nil
}
