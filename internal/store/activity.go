package store

import "context"

// Activity is how many log entries of a kind an actor made within one bucket of
// time. It holds no ids but the actor's.
type Activity struct {
	Width   int64 // of the bucket, in seconds
	At      Time  // when the bucket begins
	ActorID string
	Kind    string // a word of package audit
	Entries int64
}

// ActivityFilter chooses buckets of one width.
type ActivityFilter struct {
	Width   int64
	From    Time   // buckets that begin at or after
	Before  Time   // buckets that begin before
	ActorID string // empty for all
}

// ActivityRows are the methods of a transaction on the counters of log entries.
type ActivityRows interface {
	// AddActivity adds to the counters.
	AddActivity(ctx context.Context, counts []Activity) error
	// Activity returns up to limit counters, in the order of time, actor and kind.
	Activity(ctx context.Context, f ActivityFilter, limit int) ([]Activity, error)
	// DropActivity removes the counters of buckets of a width that begin before
	// an instant.
	DropActivity(ctx context.Context, width int64, before Time) error
}
