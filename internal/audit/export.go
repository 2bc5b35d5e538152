package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// exportFormat names the format of an export and its version.
const exportFormat = "tokenkeep audit export 1"

// The kinds of lines, in the order in which they first come.
const (
	lineExport = "export"
	lineBatch  = "batch"
	lineEntry  = "entry"
	lineEnd    = "end"
)

// exportHead is the first line.
type exportHead struct {
	Kind   string `json:"kind"`
	Format string `json:"format"`
	Tenant string `json:"tenant_id"`
	Range
}

// exportBatch is the line of a batch; the lines of its entries follow.
type exportBatch struct {
	Kind string `json:"kind"`
	Checkpoint
	Dropped bool `json:"dropped,omitempty"`
}

// exportEntry is the line of an entry, with the path from its leaf to the root.
type exportEntry struct {
	Kind          string    `json:"kind"`
	Batch         int64     `json:"batch"`
	Index         int       `json:"index"`
	CreatedAt     time.Time `json:"created_at"`
	ID            string    `json:"id"`
	ActorID       string    `json:"actor_id"`
	ActorType     string    `json:"actor_type"`
	SessionID     string    `json:"session_id"`
	EntityType    string    `json:"entity_type"`
	EntityID      string    `json:"entity_id"`
	Operation     string    `json:"operation"`
	Outcome       string    `json:"outcome"`
	Message       string    `json:"message"`
	TraceID       string    `json:"trace_id"`
	ClientAddress string    `json:"client_address"`
	ActorName     string    `json:"actor_name,omitempty"`
	Reason        string    `json:"reason,omitempty"`
	Path          []Hash    `json:"path"`
}

func exportedEntry(number int64, index int, e *store.LogEntry, path []Hash) exportEntry {
	return exportEntry{
		Kind: lineEntry, Batch: number, Index: index, CreatedAt: e.CreatedAt.Time(), ID: e.ID, ActorID: e.ActorID, ActorType: e.ActorType,
		SessionID: e.SessionID, EntityType: e.EntityType, EntityID: e.EntityID, Operation: e.Operation, Outcome: e.Outcome,
		Message: e.Message, TraceID: e.TraceID, ClientAddress: e.ClientAddress, ActorName: e.ActorName, Reason: e.Reason, Path: path,
	}
}

func (e *exportEntry) entry() store.LogEntry {
	return store.LogEntry{
		CreatedAt: store.At(e.CreatedAt), ID: e.ID, ActorID: e.ActorID, ActorType: e.ActorType, SessionID: e.SessionID,
		EntityType: e.EntityType, EntityID: e.EntityID, Operation: e.Operation, Outcome: e.Outcome, Message: e.Message,
		TraceID: e.TraceID, ClientAddress: e.ClientAddress, ActorName: e.ActorName, Reason: e.Reason,
	}
}

// exportEnd is the last line: without it an export was cut short.
type exportEnd struct {
	Kind string `json:"kind"`
	Exported
}

// Range chooses what is exported. The zero Range is everything that is sealed.
type Range struct {
	From   *time.Time `json:"from,omitempty"`   // entries at or after
	Before *time.Time `json:"before,omitempty"` // entries before
	// After is the batch behind which to begin: an export that was broken off
	// goes on behind the last batch that it wrote.
	After int64 `json:"after,omitempty"`
}

func (r Range) has(at store.Time) bool {
	return (r.From == nil || at >= store.At(*r.From)) && (r.Before == nil || at < store.At(*r.Before))
}

// whole reports whether every entry of a batch is to be exported.
func (r Range) whole() bool { return r.From == nil && r.Before == nil }

// Exported is what an export wrote.
type Exported struct {
	Batches int64 `json:"batches"`
	Entries int64 `json:"entries"`
	// Missing entries are sealed and not in the log: Verify names them.
	Missing int64 `json:"missing,omitempty"`
	// Last is the last batch that was written as a whole.
	Last int64 `json:"last"`
}

// Export writes what is sealed of a tenant's log as lines of JSON: each batch
// with its signature, each entry with the proof that it is in its batch. The
// lines can be verified without the store (VerifyExport). All batches are
// written, also those that have no entry in the range, because they are the
// chain. Memory is bounded, and each batch is written in one piece: after an
// error, Exported says where to go on.
func (s *Service) Export(ctx context.Context, tenant string, r Range, w io.Writer, progress func(Progress)) (Exported, error) {
	done := Exported{Last: r.After}
	tenant, err := canonical(tenant)
	if err != nil {
		return done, err
	}
	trust, err := s.trust(ctx, tenant, nil)
	if err != nil {
		return done, err
	}
	if err := writeLines(w, exportHead{lineExport, exportFormat, tenant, r}); err != nil {
		return done, err
	}
	for {
		batches, total, err := s.readBatches(ctx, tenant, done.Last, !trust.deleted)
		if err != nil {
			return done, err
		}
		for _, b := range batches {
			if err := writeBatch(w, b, r, &done); err != nil {
				return done, err
			}
		}
		if len(batches) == 0 {
			return done, writeLines(w, exportEnd{lineEnd, done})
		}
		report(progress, "exporting batches", done.Last, total)
	}
}

// writeBatch writes the line of a batch and those of its entries.
func writeBatch(w io.Writer, b *batch, r Range, done *Exported) error {
	if b.leaves == nil {
		return fmt.Errorf("audit: export batch %d: its list of entries was changed: %w", b.head.Number, store.ErrDamaged)
	}
	lines := []any{exportBatch{lineBatch, b.head, b.dropped || b.entries == nil}}
	paths := make([][]Hash, len(b.leaves))
	merkle(hashLeaves(b.leaves), paths)
	entries, missing := int64(0), int64(0)
	for i, e := range b.entries {
		switch {
		case !r.has(b.leaves[i].at):
		case e == nil:
			missing++
		default:
			lines = append(lines, exportedEntry(b.head.Number, i, e, paths[i]))
			entries++
		}
	}
	if err := writeLines(w, lines...); err != nil {
		return err
	}
	done.Batches++
	done.Entries += entries
	done.Missing += missing
	done.Last = b.head.Number
	return nil
}

func writeLines(w io.Writer, lines ...any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	for _, line := range lines {
		if err := e.Encode(line); err != nil {
			return fmt.Errorf("audit: encode a line: %w", err)
		}
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("audit: write an export: %w", err)
	}
	return nil
}
