package store

import "context"

// LogEntry is one entry of a tenant's audit log. It never holds data.
type LogEntry struct {
	ID            string // a UUID
	CreatedAt     Time
	ActorID       string
	ActorType     string
	SessionID     string
	EntityType    string
	EntityID      string
	Operation     string
	Outcome       string
	Message       string
	TraceID       string
	ClientAddress string
	ActorName     string // of a member; empty for others
	Reason        string // that the actor gave; empty for none
}

// LogFilter chooses entries; an empty part does not narrow the choice.
type LogFilter struct {
	EntityType string
	// ExceptType leaves out the entries about one type of entity, whose number
	// must not slow down the list of the others.
	ExceptType string
	EntityID   string
	From       Time // at or after
	Before     Time // before
}

// LogBatch is a sealed run of a tenant's entries. What Leaves, Root, Link and
// Signature mean is the business of package audit; here they are bytes.
type LogBatch struct {
	Number    int64 // from 1, without gaps
	Count     int
	Leaves    []byte
	Root      []byte
	Link      []byte
	Signature []byte
	SealedAt  Time
	// Dropped says that retention removed the entries and kept the root.
	Dropped bool
}

// LogRows are the methods of a transaction on the audit log. An entry waits
// unsealed from the transaction that appended it to the one that seals it;
// that does not depend on any clock.
type LogRows interface {
	// AppendLog adds entries; ErrExists when one of them is there already.
	AppendLog(ctx context.Context, entries ...LogEntry) error
	// Logs returns a page, newest first.
	Logs(ctx context.Context, f LogFilter, p Page) ([]LogEntry, error)
	CountLogs(ctx context.Context, f LogFilter) (int64, error)
	// LogEntry returns the entry at a position, or ErrNotFound.
	LogEntry(ctx context.Context, at Position) (LogEntry, error)
	// LogPositions returns up to limit positions, oldest first, from the one
	// behind after (nil: from the start).
	LogPositions(ctx context.Context, after *Position, limit int) ([]Position, error)

	// UnsealedLog returns up to limit entries that belong to no batch, oldest
	// first.
	UnsealedLog(ctx context.Context, limit int) ([]LogEntry, error)
	// UnsealedLogPositions returns up to limit positions that wait for a batch,
	// oldest first, from the one behind after (nil: from the start). It reads
	// the queue alone: an entry that was taken out of the log still waits here.
	UnsealedLogPositions(ctx context.Context, after *Position, limit int) ([]Position, error)
	// CountUnsealedLog returns how many entries belong to no batch.
	CountUnsealedLog(ctx context.Context) (int64, error)
	// AppendLogBatch adds the batch that seals the entries at these positions.
	// ErrConflict when its number is not the next one or one of the entries
	// is sealed already.
	AppendLogBatch(ctx context.Context, b LogBatch, sealed []Position) error
	// LogBatches returns up to limit batches in their order, from the one
	// behind number after.
	LogBatches(ctx context.Context, after int64, limit int) ([]LogBatch, error)
	// LastLogBatch returns the newest batch, or ErrNotFound.
	LastLogBatch(ctx context.Context) (LogBatch, error)
	// DropLogBatch removes the entries of a batch, which are the ones at these
	// positions, and keeps its root.
	DropLogBatch(ctx context.Context, number int64, entries []Position) error
}
