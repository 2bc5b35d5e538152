package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const eventColumns = "number, id, type, entity_type, entity_id, containers, actor_id, actor_type, created_at"

var insertEvents = manyRows("INSERT INTO events (tenant_id, "+eventColumns+")", 10)

// takeNumbers takes the numbers of some events of a tenant and returns the last.
const takeNumbers = `
	INSERT INTO event_heads (tenant_id, last, dispatched) VALUES (?, ?, 0)
	ON CONFLICT DO UPDATE SET last = last + excluded.last RETURNING last`

// writeEvents adds the events of entries, numbered in the order of the entries:
// that is the order in which their updates are committed.
func (g *groupWork) writeEvents(entries []groupEntry) error {
	counts := map[tenantKey]int64{}
	for i := range entries {
		if entries[i].Event != "" {
			counts[entries[i].tenant]++
		}
	}
	next := make(map[tenantKey]int64, len(counts))
	for tenant, n := range counts {
		last, err := g.conn.runNumber(takeNumbers, tenant[:], n)
		if err != nil {
			return err
		}
		next[tenant] = last - n + 1
	}
	var rows []driver.Value
	const columns = 10
	for i := range entries {
		if e := &entries[i]; e.Event != "" {
			rows = append(rows, e.tenant[:], next[e.tenant], e.key[1], e.Event, e.EntityType, e.EntityID, e.Containers, e.ActorID, e.ActorType, e.key[0])
			next[e.tenant]++
		}
	}
	for len(rows) > 0 {
		n := chunkOf(len(rows) / columns)
		if _, err := g.conn.run(insertEvents[n], rows[:n*columns]...); err != nil {
			return err
		}
		rows = rows[n*columns:]
	}
	return nil
}

// NumberEvents implements store.EventRows: events have numbers from the start.
func (t *tx) NumberEvents(context.Context, int) (int, error) {
	if !t.writable {
		return 0, store.ErrReadOnly
	}
	t.needsTenant = true
	return 0, t.usable()
}

func scanEvent(row []driver.Value) (e store.Event, err error) {
	id, err := uuid.FromBytes(blob(row[1]))
	if err != nil {
		return e, fmt.Errorf("sqlite: read event id: %w", store.ErrDamaged)
	}
	e = store.Event{
		Number: whole(row[0]), ID: id.String(), Type: text(row[2]), EntityType: text(row[3]), EntityID: text(row[4]),
		ActorID: text(row[6]), ActorType: text(row[7]), CreatedAt: when(row[8]),
	}
	if containers := text(row[5]); containers != "" {
		e.Containers, err = store.DecodeStrings(containers)
	}
	return e, err
}

func (t *tx) Events(ctx context.Context, f store.EventFilter, after int64, limit int) (list []store.Event, err error) {
	from, args := "events WHERE tenant_id = ?", []driver.Value(nil)
	if f.EntityID != "" {
		from, args = "events INDEXED BY events_by_entity WHERE tenant_id = ? AND entity_id = ?", []driver.Value{f.EntityID}
	}
	err = t.query(ctx, "SELECT "+eventColumns+" FROM "+from+" AND number > ? ORDER BY number LIMIT ?", append(args, after, int64(limit)),
		func(row []driver.Value) (bool, error) {
			e, err := scanEvent(row)
			list = append(list, e)
			return true, err
		})
	return list, err
}

func (t *tx) EventHead(ctx context.Context) (h store.EventHead, err error) {
	err = t.query(ctx, "SELECT last, dispatched FROM event_heads WHERE tenant_id = ?", nil, func(row []driver.Value) (bool, error) {
		h = store.EventHead{Last: whole(row[0]), Dispatched: whole(row[1])}
		return true, nil
	})
	return h, err
}

func (t *tx) PutDispatched(_ context.Context, through int64) error {
	return t.changeOne(store.ErrNotFound, "UPDATE event_heads SET dispatched = ?2 WHERE tenant_id = ?1", through)
}

func (t *tx) DropEvents(ctx context.Context, before store.Time, limit int) (int, error) {
	if !t.writable {
		return 0, store.ErrReadOnly
	}
	through, err := store.DroppedThrough(ctx, t, before, limit)
	if err != nil {
		return 0, err
	}
	n, err := t.exec("DELETE FROM events WHERE tenant_id = ? AND number <= ?", through)
	return int(n), err
}

// EventTenants reads the index of the heads that wait.
func (a allTenants) EventTenants(ctx context.Context, after string, limit int) (list []string, err error) {
	var from tenantKey
	if after != "" {
		if from, err = parseTenant(after); err != nil {
			return nil, err
		}
	}
	err = a.store.read(ctx, tenantKey{}, func(t *tx) error {
		list = nil
		return t.conn.query(ctx, "SELECT tenant_id FROM event_heads INDEXED BY event_heads_waiting WHERE dispatched < last AND tenant_id > ? ORDER BY tenant_id LIMIT ?",
			[]driver.Value{from[:], int64(limit)}, func(row []driver.Value) (bool, error) {
				id, err := uuid.FromBytes(blob(row[0]))
				list = append(list, id.String())
				return true, err
			})
	})
	return list, err
}
