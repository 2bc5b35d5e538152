package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// agreements are what must hold between tables. Each query counts the rows
// that break it.
var agreements = []struct{ doing, broken, count string }{
	{"comparing the token counters with the tokens", "token groups whose counter differs from their tokens", `
		SELECT count(*) FROM (SELECT 1 FROM (
		  SELECT tenant_id, group_id, tokens AS n FROM token_groups
		  UNION ALL
		  SELECT tenant_id, group_id, -count(*) FROM tokens GROUP BY tenant_id, group_id
		) AS both_sides GROUP BY tenant_id, group_id HAVING sum(n) <> 0) AS broken`},
	// The counters below follow what has been counted of the groups.
	{"comparing the counters of types with the groups", "types whose counter differs from their tokens", `
		SELECT count(*) FROM (SELECT 1 FROM (
		  SELECT tenant_id, type COLLATE "C" AS type, tokens AS n FROM token_types
		  UNION ALL
		  SELECT tenant_id, type, -counted FROM token_groups
		) AS both_sides GROUP BY tenant_id, type HAVING sum(n) <> 0) AS broken`},
	{"comparing the containers with the groups", "containers that do not agree with the token groups", `
		SELECT count(*) FROM (SELECT 1 FROM (
		  SELECT tenant_id, container, group_id, 1 AS n FROM token_containers
		  UNION ALL
		  SELECT DISTINCT g.tenant_id, c.container, g.group_id, -1 FROM token_groups AS g, json_array_elements_text(g.containers::json) AS c (container)
		    WHERE EXISTS (SELECT 1 FROM token_groups AS k WHERE k.tenant_id = g.tenant_id AND k.group_id = g.group_id AND k.counted <> 0)
		      OR EXISTS (SELECT 1 FROM token_containers AS x WHERE x.tenant_id = g.tenant_id AND x.container = c.container AND x.group_id = g.group_id)
		) AS both_sides GROUP BY tenant_id, container, group_id HAVING sum(n) <> 0) AS broken`},
	{"comparing the counters of containers with the containers", "tenants whose counter of containers differs from their containers", `
		SELECT count(*) FROM (SELECT 1 FROM (
		  SELECT tenant_id, containers AS n, groups AS g FROM container_counts
		  UNION ALL
		  SELECT tenant_id, -count(DISTINCT container), -count(DISTINCT group_id) FROM token_containers GROUP BY tenant_id
		) AS both_sides GROUP BY tenant_id HAVING sum(n) <> 0 OR sum(g) <> 0) AS broken`},
	{"comparing the search terms with the tokens", "search terms without their token", `
		SELECT count(*) FROM token_terms x WHERE NOT EXISTS (
		  SELECT 1 FROM tokens t WHERE t.tenant_id = x.tenant_id AND t.id = x.id
		    AND t.created_at = x.created_at AND t.group_id = x.group_id AND t.expires_at IS NOT DISTINCT FROM x.expires_at)`},
	{"comparing the log counters with the log", "kinds of log entries whose counter differs from their entries", `
		SELECT count(*) FROM (SELECT 1 FROM (
		  SELECT tenant_id, entity_type, entries AS n FROM log_counts
		  UNION ALL
		  SELECT tenant_id, entity_type, -count(*) FROM log GROUP BY tenant_id, entity_type
		) AS both_sides GROUP BY tenant_id, entity_type HAVING sum(n) <> 0) AS broken`},
	{"comparing the unsealed log with the log", "unsealed log entries that are not in the log", `
		SELECT count(*) FROM log_unsealed u WHERE NOT EXISTS (
		  SELECT 1 FROM log l WHERE l.tenant_id = u.tenant_id AND l.created_at = u.created_at AND l.id = u.id)`},
	{"comparing the events with their heads", "events with a number that their tenant has not reached", `
		SELECT count(*) FROM events e LEFT JOIN event_heads h ON h.tenant_id = e.tenant_id WHERE h.last IS NULL OR e.number > h.last`},
	{"looking for keys without an application", "keys whose application is gone", `
		SELECT count(*) FROM application_keys k WHERE NOT EXISTS (
		  SELECT 1 FROM applications a WHERE a.tenant_id = k.tenant_id AND a.id = k.application_id)`},
}

// Check implements store.Store. It compares what is stored with itself; pages
// and indexes are the server's own to check, with checksums and amcheck.
func (s *Store) Check(ctx context.Context, progress func(doing string)) (found []string, err error) {
	doing := "begin"
	err = s.asOwnerWithin(ctx, checkWait, "check the store", func(ctx context.Context, pool *pgxpool.Pool) (err error) {
		found, err = check(ctx, pool, func(next string) {
			if doing = next; progress != nil {
				progress(next)
			}
		})
		return err
	})
	if err != nil {
		return found, fmt.Errorf("%s: %w", doing, err)
	}
	return found, nil
}

func check(ctx context.Context, pool *pgxpool.Pool, progress func(doing string)) (found []string, err error) {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	for _, a := range agreements {
		progress(a.doing)
		var n int64
		if err := tx.QueryRow(ctx, a.count).Scan(&n); err != nil {
			return found, err
		}
		if n > 0 {
			found = append(found, fmt.Sprintf("%d %s", n, a.broken))
		}
	}
	progress("comparing the tokens with their groups and search terms")
	more, err := checkTokens(ctx, tx)
	return append(found, more...), err
}

// checkPart is how many tokens are looked at in one round trip.
const checkPart = 2000

// checkTokens looks from the tokens to what is derived of them: by a term that
// is not in its index a token is never found again.
func checkTokens(ctx context.Context, tx pgx.Tx) (found []string, err error) {
	var (
		strangers, missing, unreadable int64
		tenant                         = tenantKey{}.column()
		id                             string
	)
	for more := true; more; {
		var (
			tenants []pgtype.UUID
			terms   [][]byte
			made    []int64
			ids     []string
		)
		rows, err := tx.Query(ctx, `
			SELECT tenant_id, id, created_at, group_id, type, containers, terms FROM tokens
			WHERE (tenant_id, id) > ($1, $2) ORDER BY tenant_id, id LIMIT $3`, tenant, id, checkPart)
		if err != nil {
			return nil, err
		}
		more = false
		for rows.Next() {
			var (
				at         int64
				group      pgtype.UUID
				kind, list string
				encoded    []byte
			)
			if err := rows.Scan(&tenant, &id, &at, &group, &kind, &list, &encoded); err != nil {
				return nil, err
			}
			more = true
			containers, errContainers := store.DecodeStrings(list)
			own, errTerms := store.DecodeTerms(encoded)
			if errContainers != nil || errTerms != nil {
				unreadable++
				continue
			}
			if want, _ := store.GroupOf(kind, containers); want != group.Bytes {
				strangers++
			}
			for _, term := range own {
				tenants, terms, made, ids = append(tenants, tenant), append(terms, term), append(made, at), append(ids, id)
			}
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
		var n int64
		if err := tx.QueryRow(ctx, `
			SELECT count(*) FROM unnest($1::uuid[], $2::bytea[], $3::bigint[], $4::text[]) AS want (tenant_id, term, created_at, id)
			WHERE NOT EXISTS (SELECT 1 FROM token_terms x WHERE x.tenant_id = want.tenant_id AND x.term = want.term
			  AND x.created_at = want.created_at AND x.id = want.id)`, tenants, terms, made, ids).Scan(&n); err != nil {
			return nil, err
		}
		missing += n
	}
	for _, f := range []struct {
		n      int64
		broken string
	}{
		{unreadable, "tokens whose containers or search terms cannot be read"},
		{strangers, "tokens in a group that is not theirs"},
		{missing, "search terms that are missing from their index"},
	} {
		if f.n > 0 {
			found = append(found, fmt.Sprintf("%d %s", f.n, f.broken))
		}
	}
	return found, nil
}
