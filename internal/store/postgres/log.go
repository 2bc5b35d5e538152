package postgres

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const logColumns = "created_at, id, actor_id, actor_type, session_id, entity_type, entity_id, operation, outcome, message, trace_id, client_address, actor_name, reason"

func scanEntry(row pgx.Rows) (e store.LogEntry, err error) {
	var id pgtype.UUID
	err = row.Scan(&e.CreatedAt, &id, &e.ActorID, &e.ActorType, &e.SessionID, &e.EntityType, &e.EntityID, &e.Operation, &e.Outcome, &e.Message,
		&e.TraceID, &e.ClientAddress, &e.ActorName, &e.Reason)
	e.ID = uuid.UUID(id.Bytes).String()
	return e, err
}

func scanPosition(row pgx.Rows) (p store.Position, err error) {
	var id pgtype.UUID
	err = row.Scan(&p.CreatedAt, &id)
	p.ID = uuid.UUID(id.Bytes).String()
	return p, err
}

func entryID(id string) (pgtype.UUID, error) {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return pgtype.UUID{}, errors.New("postgres: a log entry's id must be a UUID")
	}
	return pgtype.UUID{Bytes: parsed, Valid: true}, nil
}

// entryIDs splits positions into the columns that a statement unnests.
func entryIDs(positions []store.Position) (made []int64, ids []pgtype.UUID, err error) {
	for _, p := range positions {
		id, err := entryID(p.ID)
		if err != nil {
			return nil, nil, err
		}
		made, ids = append(made, int64(p.CreatedAt)), append(ids, id)
	}
	return made, ids, nil
}

func (t *tx) AppendLog(_ context.Context, entries ...store.LogEntry) error {
	if err := t.writes(); err != nil {
		return err
	}
	list := make([]entryRow, len(entries))
	for i, e := range entries {
		id, err := entryID(e.ID)
		if err != nil {
			return err
		}
		list[i] = entryRow{e, id}
		for _, text := range list[i].texts() {
			if !storable(text) {
				return errUnstorable
			}
		}
	}
	for _, e := range list {
		t.rows.entries = append(t.rows.entries, e)
		t.rows.bytes += 500
		t.rows.countEntry(e.EntityType, 1)
	}
	return nil
}

// logSource picks the index that narrows the most and the conditions that remain.
func logSource(f store.LogFilter) (s selection) {
	s.text = "log WHERE tenant_id = $1"
	switch {
	case f.EntityID != "":
		s.where("entity_id = %s", f.EntityID)
		if f.EntityType != "" {
			s.where("entity_type || '' = %s", f.EntityType) // which keeps the planner on the index of the entity
		}
	case f.EntityType != "":
		s.where("entity_type = %s", f.EntityType)
	}
	if f.ExceptType != "" && f.EntityType == "" {
		s.where("entity_type || '' <> %s", f.ExceptType)
	}
	s.between(f)
	return s
}

// between adds the bounds of time of a filter.
func (s *selection) between(f store.LogFilter) {
	if !f.From.IsZero() {
		s.where("created_at >= %s", int64(f.From))
	}
	if !f.Before.IsZero() {
		s.where("created_at < %s", int64(f.Before))
	}
}

// exceptSource is the page of a filter that leaves out one type and names no
// entity: it merges the index of each other type, so that it never passes over
// the entries that are left out.
func exceptSource(f store.LogFilter, p store.Page) (s selection, err error) {
	s.text = "log WHERE tenant_id = $1 AND entity_type = kinds.entity_type"
	s.between(f)
	if p.After != nil {
		id, err := entryID(p.After.ID)
		if err != nil {
			return s, err
		}
		s.where("(created_at, id) < (%s, %s)", int64(p.After.CreatedAt), id)
	}
	const newestFirst = " ORDER BY created_at DESC, id DESC LIMIT "
	each := "SELECT created_at, id FROM " + s.text + newestFirst + s.arg(int64(p.Limit)+int64(p.Offset))
	s.text = `
		(SELECT newest.created_at, newest.id
		 FROM (SELECT DISTINCT entity_type FROM log_counts WHERE tenant_id = $1 AND entity_type <> ` + s.arg(f.ExceptType) + `) AS kinds,
		   LATERAL (` + each + `) AS newest` +
		newestFirst + s.arg(int64(p.Limit)) + " OFFSET " + s.arg(int64(p.Offset)) + `) AS page,
		LATERAL (SELECT ` + logColumns + ` FROM log WHERE tenant_id = $1 AND created_at = page.created_at AND id = page.id OFFSET 0) AS e
		ORDER BY e.created_at DESC, e.id DESC`
	return s, nil
}

func (t *tx) Logs(ctx context.Context, f store.LogFilter, p store.Page) ([]store.LogEntry, error) {
	if f.ExceptType != "" && f.EntityType == "" && f.EntityID == "" {
		s, err := exceptSource(f, p)
		if err != nil {
			return nil, err
		}
		if err := t.settleCounters(ctx); err != nil {
			return nil, err
		}
		return list(ctx, t, "list log", "SELECT e.* FROM "+s.text, s.args, scanEntry)
	}
	s := logSource(f)
	if p.After != nil {
		id, err := entryID(p.After.ID)
		if err != nil {
			return nil, err
		}
		s.where("(created_at, id) < (%s, %s)", int64(p.After.CreatedAt), id)
		p.After = nil
	}
	s.page(p)
	return list(ctx, t, "list log", "SELECT "+logColumns+" FROM "+s.text, s.args, scanEntry)
}

func (t *tx) CountLogs(ctx context.Context, f store.LogFilter) (int64, error) {
	if err := t.settleCounters(ctx); err != nil {
		return 0, err
	}
	switch f {
	case store.LogFilter{}:
		return t.number(ctx, "count log", "SELECT sum(entries)::bigint FROM log_counts WHERE tenant_id = $1")
	case store.LogFilter{ExceptType: f.ExceptType}:
		return t.number(ctx, "count log but one type", "SELECT sum(entries)::bigint FROM log_counts WHERE tenant_id = $1 AND entity_type <> $2", f.ExceptType)
	case store.LogFilter{EntityType: f.EntityType, ExceptType: f.ExceptType}:
		return t.number(ctx, "count log by type", "SELECT sum(entries)::bigint FROM log_counts WHERE tenant_id = $1 AND entity_type = $2", f.EntityType)
	}
	s := logSource(f)
	return t.number(ctx, "count log entries", "SELECT count(*) FROM "+s.text, s.args...)
}

func (t *tx) LogEntry(ctx context.Context, at store.Position) (e store.LogEntry, err error) {
	id, err := entryID(at.ID)
	if err != nil {
		return e, err
	}
	err = t.one(ctx, "read log entry", "SELECT "+logColumns+" FROM log WHERE tenant_id = $1 AND created_at = $2 AND id = $3", []any{int64(at.CreatedAt), id},
		func(row pgx.Rows) (err error) { e, err = scanEntry(row); return err })
	return e, err
}

func (t *tx) LogPositions(ctx context.Context, after *store.Position, limit int) ([]store.Position, error) {
	return t.positions(ctx, "log", after, limit)
}

func (t *tx) UnsealedLogPositions(ctx context.Context, after *store.Position, limit int) ([]store.Position, error) {
	return t.positions(ctx, "log_unsealed", after, limit)
}

func (t *tx) positions(ctx context.Context, table string, after *store.Position, limit int) ([]store.Position, error) {
	s := selection{text: table + " WHERE tenant_id = $1"}
	if after != nil {
		id, err := entryID(after.ID)
		if err != nil {
			return nil, err
		}
		s.where("(created_at, id) > (%s, %s)", int64(after.CreatedAt), id)
	}
	s.text += " ORDER BY created_at, id LIMIT " + s.arg(int64(limit))
	return list(ctx, t, "read positions", "SELECT created_at, id FROM "+s.text, s.args, scanPosition)
}

// UnsealedLog walks the queue in its order and looks each entry up; OFFSET 0
// keeps the planner from gathering both tables and sorting.
func (t *tx) UnsealedLog(ctx context.Context, limit int) ([]store.LogEntry, error) {
	return list(ctx, t, "read unsealed log", `
		SELECT e.* FROM log_unsealed u, LATERAL (
		  SELECT `+logColumns+` FROM log WHERE tenant_id = $1 AND created_at = u.created_at AND id = u.id OFFSET 0) AS e
		WHERE u.tenant_id = $1 ORDER BY u.created_at, u.id LIMIT $2`, []any{int64(limit)}, scanEntry)
}

func (t *tx) CountUnsealedLog(ctx context.Context) (int64, error) {
	return t.number(ctx, "count unsealed log", "SELECT count(*) FROM log_unsealed WHERE tenant_id = $1")
}

func (t *tx) AppendLogBatch(ctx context.Context, b store.LogBatch, sealed []store.Position) error {
	return t.spared(func() error { return t.appendLogBatch(ctx, b, sealed) })
}

func (t *tx) appendLogBatch(ctx context.Context, b store.LogBatch, sealed []store.Position) error {
	if err := t.writes(); err != nil {
		return err
	}
	made, ids, err := entryIDs(sealed)
	if err != nil {
		return err
	}
	last, err := t.number(ctx, "read last batch", "SELECT max(number) FROM log_batches WHERE tenant_id = $1")
	if err != nil {
		return err
	}
	if b.Number != last+1 {
		return store.ErrConflict
	}
	if len(sealed) > 0 {
		n, err := t.now(ctx, step{doing: "take entries off the queue", text: `
			DELETE FROM log_unsealed u USING unnest($2::bigint[], $3::uuid[]) AS sealed (created_at, id)
			WHERE u.tenant_id = $1 AND u.created_at = sealed.created_at AND u.id = sealed.id`, args: []any{made, ids}})
		if err != nil {
			return err
		}
		if n != int64(len(sealed)) {
			return t.fail(store.ErrConflict) // some of them have been taken off
		}
	}
	return t.later(step{doing: "append batch", taken: store.ErrConflict,
		text: "INSERT INTO log_batches (tenant_id, number, entries, leaves, root, link, signature, sealed_at, dropped) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
		args: []any{b.Number, int64(b.Count), orEmpty(b.Leaves), orEmpty(b.Root), orEmpty(b.Link), orEmpty(b.Signature), int64(b.SealedAt), b.Dropped}})
}

const batchColumns = "number, entries, leaves, root, link, signature, sealed_at, dropped"

func scanBatch(row pgx.Rows) (b store.LogBatch, err error) {
	return b, row.Scan(&b.Number, &b.Count, &b.Leaves, &b.Root, &b.Link, &b.Signature, &b.SealedAt, &b.Dropped)
}

func (t *tx) LogBatches(ctx context.Context, after int64, limit int) ([]store.LogBatch, error) {
	return list(ctx, t, "read batches", "SELECT "+batchColumns+" FROM log_batches WHERE tenant_id = $1 AND number > $2 ORDER BY number LIMIT $3",
		[]any{after, int64(limit)}, scanBatch)
}

func (t *tx) LastLogBatch(ctx context.Context) (b store.LogBatch, err error) {
	err = t.one(ctx, "read last batch", "SELECT "+batchColumns+" FROM log_batches WHERE tenant_id = $1 ORDER BY number DESC LIMIT 1", nil,
		func(row pgx.Rows) (err error) { b, err = scanBatch(row); return err })
	return b, err
}

// DropLogBatch does not mind entries that an earlier try, cut short, has dropped.
func (t *tx) DropLogBatch(ctx context.Context, number int64, entries []store.Position) error {
	if err := t.writes(); err != nil {
		return err
	}
	made, ids, err := entryIDs(entries)
	if err != nil {
		return err
	}
	if err := t.changeOne(ctx, store.ErrNotFound, step{doing: "mark a batch as dropped",
		text: "UPDATE log_batches SET dropped = true WHERE tenant_id = $1 AND number = $2", args: []any{number}}); err != nil || len(entries) == 0 {
		return err
	}
	var kinds []string
	_, err = t.now(ctx, step{doing: "drop entries", rows: readKinds(&kinds), args: []any{made, ids}, text: `
		DELETE FROM log USING unnest($2::bigint[], $3::uuid[]) AS gone (at, named)
		WHERE tenant_id = $1 AND created_at = at AND id = named RETURNING entity_type`})
	for _, kind := range kinds {
		t.rows.countEntry(kind, -1)
	}
	return err
}
