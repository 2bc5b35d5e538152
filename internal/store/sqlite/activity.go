package sqlite

import (
	"context"
	"database/sql/driver"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

func (t *tx) AddActivity(_ context.Context, counts []store.Activity) error {
	for _, a := range counts {
		if _, err := t.exec(`
			INSERT INTO log_activity (tenant_id, width, at, actor_id, kind, entries) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT DO UPDATE SET entries = entries + excluded.entries`, a.Width, int64(a.At), a.ActorID, a.Kind, a.Entries); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) Activity(ctx context.Context, f store.ActivityFilter, limit int) (list []store.Activity, err error) {
	condition, args := "", []driver.Value{f.Width, int64(f.From), int64(f.Before)}
	if f.ActorID != "" {
		condition, args = " AND actor_id = ?", append(args, f.ActorID)
	}
	err = t.query(ctx, "SELECT width, at, actor_id, kind, entries FROM log_activity WHERE tenant_id = ? AND width = ? AND at >= ? AND at < ?"+condition+
		" ORDER BY at, actor_id, kind LIMIT ?", append(args, int64(limit)), func(row []driver.Value) (bool, error) {
		list = append(list, store.Activity{Width: whole(row[0]), At: when(row[1]), ActorID: text(row[2]), Kind: text(row[3]), Entries: whole(row[4])})
		return true, nil
	})
	return list, err
}

func (t *tx) DropActivity(_ context.Context, width int64, before store.Time) error {
	_, err := t.exec("DELETE FROM log_activity WHERE tenant_id = ? AND width = ? AND at < ?", width, int64(before))
	return err
}
