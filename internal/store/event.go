package store

import "context"

// Event tells that something happened to an entity of a tenant. It has ids,
// types and containers, never data. AppendLog writes it with the log entry of
// the change, whose id it shares.
type Event struct {
	// Number is the position among the tenant's events: from 1, without gaps, in
	// an order in which the changes of one entity follow each other.
	Number     int64
	ID         string // a UUID
	Type       string
	EntityType string
	EntityID   string
	Containers []string // of a token; nil for other entities
	ActorID    string
	ActorType  string
	CreatedAt  Time
}

// EventFilter chooses events. The zero filter chooses all.
type EventFilter struct {
	EntityID string
}

// EventHead tells how far the events of a tenant have come. Last is the number of
// the newest event, and Dispatched the number through which events were handed to
// those that wait for them.
type EventHead struct{ Last, Dispatched int64 }

// EventRows are the methods of a transaction on events.
type EventRows interface {
	// NumberEvents gives up to limit events that were appended since their
	// numbers, in the order of their changes, and returns how many. A backend
	// with one writer numbers them when they are appended, and returns 0.
	NumberEvents(ctx context.Context, limit int) (int, error)
	// Events returns up to limit events with a number above after, oldest first.
	Events(ctx context.Context, f EventFilter, after int64, limit int) ([]Event, error)
	// EventHead returns the zero head for a tenant without events.
	EventHead(ctx context.Context) (EventHead, error)
	// PutDispatched changes the Dispatched of the head.
	PutDispatched(ctx context.Context, through int64) error
	// DropEvents removes up to limit of the oldest events that are from before a
	// time, and returns how many. It keeps those that are not dispatched.
	DropEvents(ctx context.Context, before Time, limit int) (int, error)
}

// DroppedThrough returns the number through which DropEvents removes events; 0 for
// none. Backends share it.
func DroppedThrough(ctx context.Context, tx EventRows, before Time, limit int) (through int64, err error) {
	head, err := tx.EventHead(ctx)
	if err != nil {
		return 0, err
	}
	oldest, err := tx.Events(ctx, EventFilter{}, 0, limit)
	if err != nil {
		return 0, err
	}
	for _, e := range oldest {
		if e.CreatedAt >= before || e.Number > head.Dispatched {
			break
		}
		through = e.Number
	}
	return through, nil
}
