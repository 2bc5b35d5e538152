package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const (
	// countingRelease is the migration that brought the counters of this file.
	// Servers that know less do not keep them.
	countingRelease = 6
	// recountEvery is how often differences are looked for although no server
	// was seen that could have caused them.
	recountEvery = time.Hour
	// foldGroups is how many groups one transaction of fold looks at.
	foldGroups = 500
	// choreTries is how often a chore is tried that meets requests.
	choreTries = 5
)

// countTokens changes the counters of groups, and notes those that may have
// become empty.
func countTokens(slot int, groups map[store.GroupKey]*groupDelta) step {
	var (
		keys              []pgtype.UUID
		kinds, containers []string
		tokens            []int64
	)
	for group, d := range groups {
		keys, kinds, containers, tokens = append(keys, groupColumn(group)), append(kinds, d.kind), append(containers, d.containers), append(tokens, d.tokens)
	}
	return step{doing: "count tokens", text: `
		WITH changed AS (
		  INSERT INTO token_groups (tenant_id, slot, group_id, type, containers, tokens, counted)
		  SELECT $1, $2::int, *, n FROM unnest($3::uuid[], $4::text[], $5::text[], $6::bigint[]) AS change (group_id, type, containers, n)
		  ON CONFLICT (tenant_id, group_id, slot) DO UPDATE SET tokens = token_groups.tokens + excluded.tokens, counted = token_groups.counted + excluded.counted
		  RETURNING group_id, tokens)
		INSERT INTO token_groups_emptied (tenant_id, group_id, slot) SELECT $1, group_id, $2::int FROM changed WHERE tokens <= 0
		ON CONFLICT DO NOTHING`, args: []any{slot, keys, kinds, containers, tokens}}
}

func countTypes(slot int, types map[string]int64) step {
	var kinds []string
	var tokens []int64
	for kind, n := range types {
		kinds, tokens = append(kinds, kind), append(tokens, n)
	}
	return step{doing: "count types", text: `
		INSERT INTO token_types (tenant_id, slot, type, tokens) SELECT $1, $2::int, * FROM unnest($3::text[], $4::bigint[])
		ON CONFLICT (tenant_id, type, slot) DO UPDATE SET tokens = token_types.tokens + excluded.tokens`,
		args: []any{slot, kinds, tokens}}
}

// countContainers adds the groups that are new, and refuses with
// store.ErrContainers those that would be too many: by a division, because the
// commit is on its way together with the statement. It writes nothing when all
// groups are known, so creating tokens takes no row that others wait for.
func countContainers(limit int64, groups map[store.GroupKey]*groupDelta) (s step, some bool, err error) {
	var keys []pgtype.UUID
	var names []string
	for group, d := range groups {
		if d.tokens <= 0 {
			continue
		}
		containers, err := store.DecodeStrings(d.containers)
		if err != nil {
			return s, false, err
		}
		for _, name := range containers {
			keys, names = append(keys, groupColumn(group)), append(names, name)
		}
	}
	return step{doing: "count containers", full: store.ErrContainers, text: `
		WITH wanted AS MATERIALIZED (
		  SELECT group_id, container FROM unnest($2::uuid[], $3::text[]) AS w (group_id, container)
		  WHERE NOT EXISTS (SELECT 1 FROM token_containers x WHERE x.tenant_id = $1 AND x.container = w.container AND x.group_id = w.group_id)),
		fresh AS MATERIALIZED (
		  SELECT container FROM wanted
		  WHERE NOT EXISTS (SELECT 1 FROM token_containers x WHERE x.tenant_id = $1 AND x.container = wanted.container)
		  GROUP BY container),
		added AS (INSERT INTO token_containers (tenant_id, container, group_id) SELECT $1, container, group_id FROM wanted),
		more AS MATERIALIZED (SELECT (SELECT count(*) FROM fresh) AS containers, (SELECT count(*) FROM (SELECT 1 FROM wanted GROUP BY group_id) AS g) AS groups),
		bounded AS (
		  SELECT more.*, CASE WHEN $4::bigint > 0 AND (
		      more.containers > 0 AND more.containers + coalesce((SELECT containers FROM container_counts WHERE tenant_id = $1), 0) > $4
		      OR more.groups + coalesce((SELECT groups FROM container_counts WHERE tenant_id = $1), 0) > $5::bigint)
		    THEN 0 ELSE 1 END AS fits
		  FROM more WHERE more.groups > 0)
		INSERT INTO container_counts AS k (tenant_id, containers, groups) SELECT $1, containers / fits, groups / fits FROM bounded
		ON CONFLICT (tenant_id) DO UPDATE SET containers = k.containers + excluded.containers, groups = k.groups + excluded.groups`,
		args: []any{keys, names, limit, store.MaxGroups(limit)}}, len(keys) > 0, nil
}

// chore runs a serializable transaction as the owner of the tables, again when
// it meets requests.
func (s *Store) chore(ctx context.Context, doing string, run func(pgx.Tx) error) (err error) {
	for range choreTries {
		err = mapError(doing, pgx.BeginTxFunc(ctx, s.owner, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
			// By an index it locks what it reads of one tenant, and not a table.
			if err := script(ctx, tx.Conn(), "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off"); err != nil {
				return err
			}
			return run(tx)
		}), nil)
		if !errors.Is(err, errAgain) {
			return err
		}
	}
	return err
}

// tidyCounters removes groups that have no tokens left, and carries over what
// servers have written that do not keep all counters.
func (s *Store) tidyCounters(ctx context.Context) error {
	if s.receives {
		return nil
	}
	s.counting.Lock()
	defer s.counting.Unlock()
	var older bool
	if err := s.owner.QueryRow(ctx, `
		SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = $1::bigint::oid AND objid < $2::bigint::oid AND objsubid = 2
		  AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`, releaseSpace, countingRelease).Scan(&older); err != nil {
		return mapError("look for older servers", err, nil)
	}
	if older {
		s.counted.Store(false)
	}
	if older || !s.counted.Load() || time.Since(s.recounted) >= recountEvery {
		if err := s.recount(ctx); err != nil {
			return err
		}
		s.recounted = time.Now()
		s.counted.Store(!older)
	}
	tenants, err := s.tenants(ctx, "look for empty groups", "SELECT DISTINCT tenant_id FROM token_groups_emptied")
	for _, tenant := range tenants {
		if _, err := s.fold(ctx, tenant); err != nil {
			return err
		}
	}
	return err
}

func (s *Store) tenants(ctx context.Context, doing, text string) ([]pgtype.UUID, error) {
	rows, err := s.owner.Query(ctx, text)
	if err != nil {
		return nil, mapError(doing, err, nil)
	}
	tenants, err := pgx.CollectRows(rows, pgx.RowTo[pgtype.UUID])
	return tenants, mapError(doing, err, nil)
}

// recount carries over what older servers have written, and what was there
// before the counters were. It counts in a slot that no connection leases.
func (s *Store) recount(ctx context.Context) error {
	tenants, err := s.tenants(ctx, "look for uncounted tokens", "SELECT DISTINCT tenant_id FROM token_groups WHERE counted <> tokens OR tokens <= 0")
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		err := s.chore(ctx, "recount tokens", func(tx pgx.Tx) error {
			for _, text := range []string{
				`WITH late AS (SELECT type, tokens - counted AS n FROM token_groups WHERE tenant_id = $1 AND counted <> tokens),
				  caught_up AS (UPDATE token_groups SET counted = tokens WHERE tenant_id = $1 AND counted <> tokens)
				  INSERT INTO token_types (tenant_id, type, slot, tokens) SELECT $1, type, -1, sum(n) FROM late GROUP BY type
				  ON CONFLICT (tenant_id, type, slot) DO UPDATE SET tokens = token_types.tokens + excluded.tokens`,
				`INSERT INTO token_containers (tenant_id, container, group_id)
				  SELECT DISTINCT g.tenant_id, c.container, g.group_id FROM token_groups AS g, json_array_elements_text(g.containers::json) AS c (container) WHERE g.tenant_id = $1
				  ON CONFLICT DO NOTHING`,
				`INSERT INTO container_counts (tenant_id, containers, groups)
				  SELECT tenant_id, count(DISTINCT container), count(DISTINCT group_id) FROM token_containers WHERE tenant_id = $1 GROUP BY tenant_id
				  ON CONFLICT (tenant_id) DO UPDATE SET containers = excluded.containers, groups = excluded.groups`,
				`INSERT INTO token_groups_emptied (tenant_id, group_id, slot) SELECT tenant_id, group_id, slot FROM token_groups WHERE tenant_id = $1 AND tokens <= 0
				  ON CONFLICT DO NOTHING`,
			} {
				if _, err := tx.Exec(ctx, text, tenant); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fold removes the groups of a tenant that have no tokens left, and returns how
// many. A group that has some gets one slot in place of many, so that the next
// fold need not look at it. Its cost grows with the number of groups that have
// lost tokens since the last one.
func (s *Store) fold(ctx context.Context, tenant pgtype.UUID) (removed int, err error) {
	for after := (pgtype.UUID{Valid: true}); ; {
		var groups []pgtype.UUID
		gone := 0
		err := s.chore(ctx, "remove empty groups", func(tx pgx.Tx) (err error) {
			rows, err := tx.Query(ctx, `
				SELECT DISTINCT group_id FROM token_groups_emptied WHERE tenant_id = $1 AND group_id > $2 ORDER BY group_id LIMIT $3`, tenant, after, foldGroups)
			if err != nil {
				return err
			}
			if groups, err = pgx.CollectRows(rows, pgx.RowTo[pgtype.UUID]); err != nil || len(groups) == 0 {
				return err
			}
			gone, err = foldSome(ctx, tx, tenant, groups)
			return err
		})
		if err != nil {
			return removed, err
		}
		removed += gone
		if len(groups) < foldGroups {
			return removed, nil
		}
		after = groups[len(groups)-1]
	}
}

// foldedGroup is what the slots of a group come to.
type foldedGroup struct {
	tokens, counted int64
	slots           int
	keep            int32 // the slot that stays
	most            int64 // tokens of it
	containers      string
}

func foldSome(ctx context.Context, tx pgx.Tx, tenant pgtype.UUID, groups []pgtype.UUID) (removed int, err error) {
	folded := make(map[pgtype.UUID]*foldedGroup, len(groups))
	for _, g := range groups {
		folded[g] = &foldedGroup{}
	}
	rows, err := tx.Query(ctx, "SELECT group_id, slot, tokens, counted, containers FROM token_groups WHERE tenant_id = $1 AND group_id = ANY($2)", tenant, groups)
	if err != nil {
		return 0, err
	}
	var (
		group           pgtype.UUID
		slot            int32
		tokens, counted int64
		containers      string
	)
	if _, err := pgx.ForEachRow(rows, []any{&group, &slot, &tokens, &counted, &containers}, func() error {
		f := folded[group]
		if f.slots == 0 || tokens > f.most {
			f.keep, f.most = slot, tokens
		}
		f.tokens, f.counted, f.slots, f.containers = f.tokens+tokens, f.counted+counted, f.slots+1, containers
		return nil
	}); err != nil {
		return 0, err
	}
	var (
		kept, gone, done, owners []pgtype.UUID
		slots                    []int32
		sums, counts             []int64
		names                    []string
	)
	for _, g := range groups {
		switch f := folded[g]; {
		case f.tokens == 0 && f.counted == 0:
			list, err := store.DecodeStrings(f.containers)
			if err != nil && f.slots > 0 {
				return 0, err
			}
			for _, name := range list {
				owners, names = append(owners, g), append(names, name)
			}
			gone, done = append(gone, g), append(done, g)
		case f.tokens > 0:
			kept, slots, sums, counts = append(kept, g), append(slots, f.keep), append(sums, f.tokens), append(counts, f.counted)
			done = append(done, g)
		}
	}
	for _, change := range []struct {
		text string
		args []any
	}{
		{`UPDATE token_groups AS g SET tokens = k.tokens, counted = k.counted FROM unnest($2::uuid[], $3::int[], $4::bigint[], $5::bigint[]) AS k (group_id, slot, tokens, counted)
		  WHERE g.tenant_id = $1 AND g.group_id = k.group_id AND g.slot = k.slot`, []any{kept, slots, sums, counts}},
		{`DELETE FROM token_groups AS g USING unnest($2::uuid[], $3::int[]) AS k (group_id, slot)
		  WHERE g.tenant_id = $1 AND g.group_id = k.group_id AND g.slot <> k.slot`, []any{kept, slots}},
		{"DELETE FROM token_groups WHERE tenant_id = $1 AND group_id = ANY($2)", []any{gone}},
		{"DELETE FROM token_groups_emptied WHERE tenant_id = $1 AND group_id = ANY($2)", []any{done}},
		{`WITH removed AS (DELETE FROM token_containers AS x USING unnest($2::uuid[], $3::text[]) AS g (group_id, container)
		    WHERE x.tenant_id = $1 AND x.container = g.container AND x.group_id = g.group_id RETURNING x.container, x.group_id)
		  UPDATE container_counts SET groups = groups - (SELECT count(DISTINCT group_id) FROM removed),
		    containers = containers - (SELECT count(DISTINCT container) FROM removed WHERE NOT EXISTS (
		      SELECT 1 FROM token_containers AS y WHERE y.tenant_id = $1 AND y.container = removed.container
		        AND NOT EXISTS (SELECT 1 FROM removed AS z WHERE z.container = y.container AND z.group_id = y.group_id)))
		  WHERE tenant_id = $1 AND EXISTS (SELECT 1 FROM removed)`, []any{owners, names}},
	} {
		if _, err := tx.Exec(ctx, change.text, append([]any{tenant}, change.args...)...); err != nil {
			return 0, err
		}
	}
	return len(gone), nil
}
