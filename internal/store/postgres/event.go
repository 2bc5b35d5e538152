package postgres

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const eventColumns = "id, type, entity_type, entity_id, containers, actor_id, actor_type, created_at"

// eventRow is an event without a number, with its place in the queue.
type eventRow struct {
	xid, position, createdAt int64
	id                       pgtype.UUID
	texts                    [6]string // type, entity type, entity, containers, actor, type of the actor
}

// eventLists splits events into the columns that a statement unnests.
func eventLists(events []eventRow) (args []any) {
	n := len(events)
	ids, made, texts := make([]pgtype.UUID, n), make([]int64, n), make([][]string, 6)
	for i := range texts {
		texts[i] = make([]string, n)
	}
	for i, e := range events {
		ids[i], made[i] = e.id, e.createdAt
		for j, text := range e.texts {
			texts[j][i] = text
		}
	}
	args = append(args, ids)
	for _, list := range texts {
		args = append(args, list)
	}
	return append(args, made)
}

// insertEvents adds the events of entries to the queue of those without a number.
func insertEvents(entries []entryRow) (_ step, some bool) {
	var (
		positions []int64
		events    []eventRow
	)
	for _, e := range entries {
		if e.Event != "" {
			positions = append(positions, e.position)
			events = append(events, eventRow{id: e.id, createdAt: int64(e.CreatedAt), texts: [6]string{e.Event, e.EntityType, e.EntityID, e.Containers, e.ActorID, e.ActorType}})
		}
	}
	return step{doing: "append events", text: `
		INSERT INTO event_queue (tenant_id, xid, position, ` + eventColumns + `)
		SELECT $1, pg_current_xact_id()::text::bigint, * FROM unnest($2::bigint[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::bigint[])`,
		args: append([]any{positions}, eventLists(events)...)}, len(events) > 0
}

// NumberEvents moves events from the queue, in its order.
func (t *tx) NumberEvents(ctx context.Context, limit int) (int, error) {
	if err := t.writes(); err != nil {
		return 0, err
	}
	t.needsTenant = true
	events, err := list(ctx, t, "read new events", "SELECT xid, position, "+eventColumns+" FROM event_queue WHERE tenant_id = $1 ORDER BY xid, position, id LIMIT $2", []any{int64(limit)},
		func(row pgx.Rows) (e eventRow, err error) {
			x := &e.texts
			return e, row.Scan(&e.xid, &e.position, &e.id, &x[0], &x[1], &x[2], &x[3], &x[4], &x[5], &e.createdAt)
		})
	if err != nil || len(events) == 0 {
		return 0, err
	}
	end := events[len(events)-1]
	if err := t.later(step{doing: "take new events", text: "DELETE FROM event_queue WHERE tenant_id = $1 AND (xid, position, id) <= ($2, $3, $4)",
		args: []any{end.xid, end.position, end.id}}); err != nil {
		return 0, err
	}
	var last int64
	if _, err := t.now(ctx, step{doing: "take numbers of events", args: []any{int64(len(events))}, text: `
		INSERT INTO event_heads AS h (tenant_id, last, dispatched) VALUES ($1, $2, 0)
		ON CONFLICT (tenant_id) DO UPDATE SET last = h.last + excluded.last RETURNING last`,
		rows: func(r pgx.Rows) error {
			for r.Next() {
				if err := r.Scan(&last); err != nil {
					return err
				}
			}
			return nil
		}}); err != nil {
		return 0, err
	}
	numbers := make([]int64, len(events))
	for i := range numbers {
		numbers[i] = last - int64(len(events)) + int64(i) + 1
	}
	return len(events), t.later(step{doing: "number events", text: `
		INSERT INTO events (tenant_id, number, ` + eventColumns + `)
		SELECT $1, * FROM unnest($2::bigint[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::bigint[])`,
		args: append([]any{numbers}, eventLists(events)...)})
}

func scanEvent(row pgx.Rows) (e store.Event, err error) {
	var id pgtype.UUID
	var containers string
	err = row.Scan(&e.Number, &id, &e.Type, &e.EntityType, &e.EntityID, &containers, &e.ActorID, &e.ActorType, &e.CreatedAt)
	if err != nil {
		return e, err
	}
	e.ID = uuid.UUID(id.Bytes).String()
	if containers != "" {
		e.Containers, err = store.DecodeStrings(containers)
	}
	return e, err
}

func (t *tx) Events(ctx context.Context, f store.EventFilter, after int64, limit int) ([]store.Event, error) {
	s := selection{text: "events WHERE tenant_id = $1"}
	if f.EntityID != "" {
		s.where("entity_id = %s", f.EntityID)
	}
	s.where("number > %s", after)
	s.text += " ORDER BY number LIMIT " + s.arg(int64(limit))
	return list(ctx, t, "read events", "SELECT number, "+eventColumns+" FROM "+s.text, s.args, scanEvent)
}

func (t *tx) EventHead(ctx context.Context) (store.EventHead, error) {
	heads, err := list(ctx, t, "read the head of the events", "SELECT last, dispatched FROM event_heads WHERE tenant_id = $1", nil,
		func(row pgx.Rows) (h store.EventHead, err error) { return h, row.Scan(&h.Last, &h.Dispatched) })
	if err != nil || len(heads) == 0 {
		return store.EventHead{}, err
	}
	return heads[0], nil
}

func (t *tx) PutDispatched(ctx context.Context, through int64) error {
	return t.changeOne(ctx, store.ErrNotFound, step{doing: "note dispatched events",
		text: "UPDATE event_heads SET dispatched = $2 WHERE tenant_id = $1", args: []any{through}})
}

func (t *tx) DropEvents(ctx context.Context, before store.Time, limit int) (int, error) {
	if err := t.writes(); err != nil {
		return 0, err
	}
	through, err := store.DroppedThrough(ctx, t, before, limit)
	if err != nil {
		return 0, err
	}
	n, err := t.now(ctx, step{doing: "drop events", text: "DELETE FROM events WHERE tenant_id = $1 AND number <= $2", args: []any{through}})
	return int(n), err
}

// EventTenants seeks from tenant to tenant, in the queue and among the heads.
func (a allTenants) EventTenants(ctx context.Context, after string, limit int) (tenants []string, err error) {
	from, err := behindTenant(after)
	if err != nil || limit <= 0 {
		return nil, err
	}
	for _, source := range []string{"event_queue e WHERE ", "event_heads e WHERE e.dispatched < e.last AND "} {
		some, err := across(ctx, a.store, "find tenants with events", `
			WITH RECURSIVE waiting (tenant_id, n) AS (
			  (SELECT tenant_id, 1 FROM `+source+`e.tenant_id > $1 ORDER BY tenant_id LIMIT 1)
			  UNION ALL
			  SELECT next.tenant_id, n + 1 FROM waiting, LATERAL (
			    SELECT tenant_id FROM `+source+`e.tenant_id > waiting.tenant_id ORDER BY tenant_id LIMIT 1) AS next WHERE n < $2)
			SELECT tenant_id FROM waiting`, []any{from, limit}, func(row pgx.Rows) (string, error) {
			var id pgtype.UUID
			err := row.Scan(&id)
			return uuid.UUID(id.Bytes).String(), err
		})
		if err != nil {
			return nil, err
		}
		tenants = append(tenants, some...)
	}
	slices.Sort(tenants)
	tenants = slices.Compact(tenants)
	return tenants[:min(limit, len(tenants))], nil
}
