package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const logColumns = "created_at, id, actor_id, actor_type, session_id, entity_type, entity_id, operation, outcome, message, trace_id, client_address, actor_name, reason"

func scanEntry(row []driver.Value) (store.LogEntry, error) {
	id, err := uuid.FromBytes(blob(row[1]))
	if err != nil {
		return store.LogEntry{}, fmt.Errorf("sqlite: read log entry id: %w", store.ErrDamaged)
	}
	return store.LogEntry{
		CreatedAt: when(row[0]), ID: id.String(), ActorID: text(row[2]), ActorType: text(row[3]), SessionID: text(row[4]),
		EntityType: text(row[5]), EntityID: text(row[6]), Operation: text(row[7]), Outcome: text(row[8]), Message: text(row[9]),
		TraceID: text(row[10]), ClientAddress: text(row[11]), ActorName: text(row[12]), Reason: text(row[13]),
	}, nil
}

// entryKey returns an entry's place as it stands in keys.
func entryKey(p store.Position) ([]driver.Value, error) {
	id, err := uuid.Parse(p.ID)
	if err != nil {
		return nil, errors.New("sqlite: a log entry's id must be a UUID")
	}
	return []driver.Value{int64(p.CreatedAt), id[:]}, nil
}

// AppendLog leaves the entries for the group to write, so a conflict shows at
// the commit.
func (t *tx) AppendLog(_ context.Context, entries ...store.LogEntry) error {
	if !t.writable {
		return store.ErrReadOnly
	}
	if err := t.usable(); err != nil {
		return err
	}
	for _, e := range entries {
		key, err := entryKey(store.Position{CreatedAt: e.CreatedAt, ID: e.ID})
		if err != nil {
			return t.fail(err)
		}
		t.needsTenant = true
		t.conn.group.entries = append(t.conn.group.entries, groupEntry{t.tenant, key, e})
	}
	return nil
}

func (t *tx) uncountEntry(kind string) {
	if t.kinds == nil {
		t.kinds = make(map[string]int64)
	}
	t.kinds[kind]--
}

const addToLogCount = `
	INSERT INTO log_counts (tenant_id, entity_type, entries) VALUES (?, ?, ?)
	ON CONFLICT DO UPDATE SET entries = entries + excluded.entries`

func (t *tx) flushKinds() error {
	for kind, n := range t.kinds {
		if _, err := t.exec(addToLogCount, kind, n); err != nil {
			return err
		}
	}
	t.kinds = nil
	return nil
}

// source picks the index that narrows the most and the conditions that remain.
func logSource(f store.LogFilter) (where string, args []driver.Value) {
	where = "log WHERE tenant_id = ?"
	switch {
	case f.EntityID != "":
		where, args = "log INDEXED BY log_by_entity WHERE tenant_id = ? AND entity_id = ?", []driver.Value{f.EntityID}
		if f.EntityType != "" {
			// The plus sign keeps the planner on the index of the entity.
			where, args = where+" AND +entity_type = ?", append(args, f.EntityType)
		}
	case f.EntityType != "":
		where, args = "log INDEXED BY log_by_type WHERE tenant_id = ? AND entity_type = ?", []driver.Value{f.EntityType}
	}
	if f.ExceptType != "" && f.EntityType == "" {
		where, args = where+" AND +entity_type <> ?", append(args, f.ExceptType)
	}
	if !f.From.IsZero() {
		where, args = where+" AND created_at >= ?", append(args, int64(f.From))
	}
	if !f.Before.IsZero() {
		where, args = where+" AND created_at < ?", append(args, int64(f.Before))
	}
	return where, args
}

// logsExcept is Logs for a filter that leaves out one type and names no entity:
// it merges the index of each other type, so that it never passes over the
// entries that are left out.
func (t *tx) logsExcept(ctx context.Context, f store.LogFilter, p store.Page) (list []store.LogEntry, err error) {
	var types []string
	err = t.query(ctx, "SELECT entity_type FROM log_counts WHERE tenant_id = ?1 AND entity_type <> ?2 AND entries > 0", []driver.Value{f.ExceptType},
		func(row []driver.Value) (bool, error) {
			types = append(types, text(row[0]))
			return true, nil
		})
	if err != nil || len(types) == 0 {
		return nil, err
	}
	var args []driver.Value
	arg := func(v driver.Value) string {
		args = append(args, v)
		return "?" + strconv.Itoa(len(args)+1) // the first is the tenant
	}
	within := ""
	if !f.From.IsZero() {
		within += " AND created_at >= " + arg(int64(f.From))
	}
	if !f.Before.IsZero() {
		within += " AND created_at < " + arg(int64(f.Before))
	}
	if p.After != nil {
		key, err := entryKey(*p.After)
		if err != nil {
			return nil, err
		}
		within += " AND (created_at, id) < (" + arg(key[0]) + ", " + arg(key[1]) + ")"
	}
	const newestFirst = " ORDER BY created_at DESC, id DESC LIMIT "
	most := arg(int64(p.Limit) + int64(p.Offset))
	parts := make([]string, len(types))
	for i, kind := range types {
		parts[i] = "SELECT * FROM (SELECT created_at, id FROM log INDEXED BY log_by_type WHERE tenant_id = ?1 AND entity_type = " + arg(kind) + within + newestFirst + most + ")"
	}
	err = t.query(ctx, "SELECT "+logColumns+" FROM ("+strings.Join(parts, " UNION ALL ")+newestFirst+arg(int64(p.Limit))+" OFFSET "+arg(int64(p.Offset))+
		") AS page CROSS JOIN log USING (created_at, id) WHERE tenant_id = ?1", args, appendEntry(&list))
	slices.SortFunc(list, func(a, b store.LogEntry) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), strings.Compare(b.ID, a.ID))
	})
	return list, err
}

func (t *tx) Logs(ctx context.Context, f store.LogFilter, p store.Page) ([]store.LogEntry, error) {
	if f.ExceptType != "" && f.EntityType == "" && f.EntityID == "" {
		if err := t.flushKinds(); err != nil {
			return nil, err
		}
		return t.logsExcept(ctx, f, p)
	}
	from, args := logSource(f)
	if p.After != nil {
		key, err := entryKey(*p.After)
		if err != nil {
			return nil, err
		}
		from, args = from+" AND (created_at, id) < (?, ?)", append(args, key...)
	}
	var list []store.LogEntry
	err := t.query(ctx, "SELECT "+logColumns+" FROM "+from+" ORDER BY created_at DESC, id DESC LIMIT ? OFFSET ?",
		append(args, int64(p.Limit), int64(p.Offset)), appendEntry(&list))
	return list, err
}

func appendEntry(list *[]store.LogEntry) func(row []driver.Value) (bool, error) {
	return func(row []driver.Value) (bool, error) {
		e, err := scanEntry(row)
		*list = append(*list, e)
		return true, err
	}
}

func (t *tx) CountLogs(ctx context.Context, f store.LogFilter) (int64, error) {
	if err := t.flushKinds(); err != nil {
		return 0, err
	}
	switch f {
	case store.LogFilter{}:
		return t.number(ctx, "SELECT sum(entries) FROM log_counts WHERE tenant_id = ?")
	case store.LogFilter{ExceptType: f.ExceptType}:
		return t.number(ctx, "SELECT sum(entries) FROM log_counts WHERE tenant_id = ? AND entity_type <> ?", f.ExceptType)
	case store.LogFilter{EntityType: f.EntityType, ExceptType: f.ExceptType}:
		return t.number(ctx, "SELECT entries FROM log_counts WHERE tenant_id = ? AND entity_type = ?", f.EntityType)
	}
	from, args := logSource(f)
	return t.number(ctx, "SELECT count(*) FROM "+from, args...)
}

func (t *tx) LogEntry(ctx context.Context, at store.Position) (e store.LogEntry, err error) {
	key, err := entryKey(at)
	if err != nil {
		return e, err
	}
	err = t.one(ctx, "SELECT "+logColumns+" FROM log WHERE tenant_id = ? AND created_at = ? AND id = ?", key,
		func(row []driver.Value) (err error) { e, err = scanEntry(row); return err })
	return e, err
}

func (t *tx) LogPositions(ctx context.Context, after *store.Position, limit int) ([]store.Position, error) {
	return t.positions(ctx, "log", after, limit)
}

func (t *tx) UnsealedLogPositions(ctx context.Context, after *store.Position, limit int) ([]store.Position, error) {
	return t.positions(ctx, "log_unsealed", after, limit)
}

func (t *tx) positions(ctx context.Context, table string, after *store.Position, limit int) ([]store.Position, error) {
	condition, args := "", []driver.Value(nil)
	if after != nil {
		key, err := entryKey(*after)
		if err != nil {
			return nil, err
		}
		condition, args = " AND (created_at, id) > (?, ?)", key
	}
	var list []store.Position
	err := t.query(ctx, "SELECT created_at, id FROM "+table+" WHERE tenant_id = ?"+condition+" ORDER BY created_at, id LIMIT ?", append(args, int64(limit)),
		func(row []driver.Value) (bool, error) {
			id, err := uuid.FromBytes(blob(row[1]))
			if err != nil {
				return false, fmt.Errorf("sqlite: read log entry id: %w", store.ErrDamaged)
			}
			list = append(list, store.Position{CreatedAt: when(row[0]), ID: id.String()})
			return true, nil
		})
	return list, err
}

func (t *tx) UnsealedLog(ctx context.Context, limit int) ([]store.LogEntry, error) {
	var list []store.LogEntry
	err := t.query(ctx, `
		SELECT `+logColumns+` FROM log_unsealed CROSS JOIN log USING (tenant_id, created_at, id)
		WHERE tenant_id = ? ORDER BY created_at, id LIMIT ?`, []driver.Value{int64(limit)}, appendEntry(&list))
	return list, err
}

func (t *tx) CountUnsealedLog(ctx context.Context) (int64, error) {
	return t.number(ctx, "SELECT count(*) FROM log_unsealed WHERE tenant_id = ?")
}

func (t *tx) AppendLogBatch(ctx context.Context, b store.LogBatch, sealed []store.Position) error {
	return t.spared(func() error { return t.appendLogBatch(ctx, b, sealed) })
}

func (t *tx) appendLogBatch(ctx context.Context, b store.LogBatch, sealed []store.Position) error {
	if !t.writable {
		return store.ErrReadOnly
	}
	last, err := t.number(ctx, "SELECT max(number) FROM log_batches WHERE tenant_id = ?")
	if err != nil {
		return err
	}
	if b.Number != last+1 {
		return store.ErrConflict
	}
	if err := t.deleteUnsealed(ctx, sealed); err != nil {
		return t.fail(err)
	}
	_, err = t.exec("INSERT INTO log_batches (tenant_id, number, entries, leaves, root, link, signature, sealed_at, dropped) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
		b.Number, int64(b.Count), orEmpty(b.Leaves), orEmpty(b.Root), orEmpty(b.Link), orEmpty(b.Signature), int64(b.SealedAt), b.Dropped)
	return err
}

// deleteUnsealed takes entries off those that wait; ErrConflict when one of
// them does not. They mostly are all that wait between the first and the last:
// then one statement does.
func (t *tx) deleteUnsealed(ctx context.Context, sealed []store.Position) error {
	keys := make([][]driver.Value, len(sealed))
	for i, p := range sealed {
		var err error
		if keys[i], err = entryKey(p); err != nil {
			return err
		}
	}
	if len(keys) > 1 {
		between := "FROM log_unsealed WHERE tenant_id = ? AND (created_at, id) >= (?, ?) AND (created_at, id) <= (?, ?)"
		ends := append(slices.Clone(keys[0]), keys[len(keys)-1]...)
		same := 0
		err := t.query(ctx, "SELECT created_at, id "+between+" ORDER BY created_at, id", ends, func(row []driver.Value) (bool, error) {
			if same == len(keys) || whole(row[0]) != keys[same][0] || !bytes.Equal(blob(row[1]), keys[same][1].([]byte)) {
				same = -1
				return false, nil
			}
			same++
			return true, nil
		})
		if err != nil {
			return err
		}
		if same == len(keys) {
			_, err := t.exec("DELETE "+between, ends...)
			return err
		}
	}
	for _, key := range keys {
		if err := t.changeOne(store.ErrConflict, "DELETE FROM log_unsealed WHERE tenant_id = ? AND created_at = ? AND id = ?", key...); err != nil {
			return err
		}
	}
	return nil
}

const batchColumns = "number, entries, leaves, root, link, signature, sealed_at, dropped"

func scanBatch(row []driver.Value) store.LogBatch {
	return store.LogBatch{
		Number: whole(row[0]), Count: int(whole(row[1])), Leaves: blob(row[2]), Root: blob(row[3]), Link: blob(row[4]),
		Signature: blob(row[5]), SealedAt: when(row[6]), Dropped: whole(row[7]) != 0,
	}
}

func (t *tx) LogBatches(ctx context.Context, after int64, limit int) ([]store.LogBatch, error) {
	var list []store.LogBatch
	err := t.query(ctx, "SELECT "+batchColumns+" FROM log_batches WHERE tenant_id = ? AND number > ? ORDER BY number LIMIT ?",
		[]driver.Value{after, int64(limit)}, func(row []driver.Value) (bool, error) {
			list = append(list, scanBatch(row))
			return true, nil
		})
	return list, err
}

func (t *tx) LastLogBatch(ctx context.Context) (b store.LogBatch, err error) {
	err = t.one(ctx, "SELECT "+batchColumns+" FROM log_batches WHERE tenant_id = ? ORDER BY number DESC LIMIT 1", nil,
		func(row []driver.Value) error { b = scanBatch(row); return nil })
	return b, err
}

func (t *tx) DropLogBatch(ctx context.Context, number int64, entries []store.Position) error {
	if err := t.changeOne(store.ErrNotFound, "UPDATE log_batches SET dropped = 1 WHERE tenant_id = ? AND number = ?", number); err != nil {
		return err
	}
	for _, p := range entries {
		e, err := t.LogEntry(ctx, p)
		if errors.Is(err, store.ErrNotFound) {
			continue // dropped by an earlier try that was cut short
		}
		if err != nil {
			return t.fail(err)
		}
		key, err := entryKey(p)
		if err != nil {
			return t.fail(err)
		}
		if _, err := t.exec("DELETE FROM log WHERE tenant_id = ? AND created_at = ? AND id = ?", key...); err != nil {
			return err
		}
		t.uncountEntry(e.EntityType)
	}
	return nil
}
