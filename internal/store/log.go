package store

import "context"

// LogEntry is one entry of a tenant's audit log. It never holds data.
type LogEntry struct {
	// ID is a UUIDv7 that AppendLog assigns; ids of a tenant rise in the order
	// in which the entries were appended, as far as the backend can tell.
	ID            string
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
}

// LogFilter chooses entries; an empty part does not narrow the choice.
type LogFilter struct {
	EntityType string
	EntityID   string
	From       Time // at or after
	Before     Time // before
}

// LogBatch is a sealed run of a tenant's entries. What Leaves, Root, Link and
// Signature mean is the business of package audit; here they are bytes.
type LogBatch struct {
	Number    int64 // from 1, without gaps
	Count     int
	FirstID   string // lowest id in it
	LastID    string // highest id in it
	Leaves    []byte
	Root      []byte
	Link      []byte
	Signature []byte
	SealedAt  Time
	// Dropped says that retention removed the entries and kept the root.
	Dropped bool
}

// LogRows are the methods of a transaction on the audit log.
type LogRows interface {
	// AppendLog adds entries and assigns their ids.
	AppendLog(ctx context.Context, entries ...LogEntry) error
	// Logs returns a page, newest first.
	Logs(ctx context.Context, f LogFilter, p Page) ([]LogEntry, error)
	CountLogs(ctx context.Context, f LogFilter) (int64, error)
	// LogEntries returns up to limit entries in the order of their ids, from
	// the one behind after.
	LogEntries(ctx context.Context, after string, limit int) ([]LogEntry, error)

	// UnsealedLog returns up to limit entries that belong to no batch, in the
	// order of their ids; none that could still be preceded by another.
	UnsealedLog(ctx context.Context, limit int) ([]LogEntry, error)
	// AppendLogBatch adds the batch that seals these entries. ErrConflict when
	// its number is not the next one.
	AppendLogBatch(ctx context.Context, b LogBatch) error
	// LogBatches returns up to limit batches in their order, from the one
	// behind number after.
	LogBatches(ctx context.Context, after int64, limit int) ([]LogBatch, error)
	// LastLogBatch returns the newest batch, or ErrNotFound.
	LastLogBatch(ctx context.Context) (LogBatch, error)
	// DropLogBatch removes the entries of a batch and keeps its root.
	DropLogBatch(ctx context.Context, number int64) error
}
