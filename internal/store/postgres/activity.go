package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

func (t *tx) AddActivity(_ context.Context, counts []store.Activity) error {
	if len(counts) == 0 {
		return t.writes()
	}
	n := len(counts)
	widths, at, entries := make([]int64, n), make([]int64, n), make([]int64, n)
	actors, kinds := make([]string, n), make([]string, n)
	for i, a := range counts {
		widths[i], at[i], actors[i], kinds[i], entries[i] = a.Width, int64(a.At), a.ActorID, a.Kind, a.Entries
	}
	return t.later(step{doing: "count activity", text: `
		INSERT INTO log_activity (tenant_id, width, at, actor_id, kind, entries)
		SELECT $1, * FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bigint[])
		ON CONFLICT (tenant_id, width, at, actor_id, kind) DO UPDATE SET entries = log_activity.entries + excluded.entries`,
		args: []any{widths, at, actors, kinds, entries}})
}

func (t *tx) Activity(ctx context.Context, f store.ActivityFilter, limit int) ([]store.Activity, error) {
	s := selection{text: "log_activity WHERE tenant_id = $1"}
	s.where("width = %s", f.Width)
	s.where("at >= %s", int64(f.From))
	s.where("at < %s", int64(f.Before))
	if f.ActorID != "" {
		s.where("actor_id = %s", f.ActorID)
	}
	s.text += " ORDER BY at, actor_id, kind LIMIT " + s.arg(int64(limit))
	return list(ctx, t, "read activity", "SELECT width, at, actor_id, kind, entries FROM "+s.text, s.args, func(row pgx.Rows) (a store.Activity, err error) {
		return a, row.Scan(&a.Width, &a.At, &a.ActorID, &a.Kind, &a.Entries)
	})
}

func (t *tx) DropActivity(_ context.Context, width int64, before store.Time) error {
	return t.later(step{doing: "drop activity", text: "DELETE FROM log_activity WHERE tenant_id = $1 AND width = $2 AND at < $3", args: []any{width, int64(before)}})
}
