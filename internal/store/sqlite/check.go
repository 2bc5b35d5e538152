package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/tokenkeep/tokenkeep/internal/folder"
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
		) GROUP BY tenant_id, group_id HAVING sum(n) <> 0)`},
	{"comparing the search terms with the tokens", "search terms without their token", `
		SELECT count(*) FROM token_terms x WHERE NOT EXISTS (
		  SELECT 1 FROM tokens t WHERE t.tenant_id = x.tenant_id AND t.id = x.id
		    AND t.created_at = x.created_at AND t.group_id = x.group_id AND t.expires_at IS x.expires_at)`},
	{"comparing the counters of search terms with the terms", "search terms whose counter differs from their tokens", `
		SELECT count(*) FROM (SELECT 1 FROM (
		  SELECT tenant_id, term, group_id, tokens AS n FROM token_term_counts
		  UNION ALL
		  SELECT tenant_id, term, group_id, -count(*) FROM token_terms AS x
		    WHERE EXISTS (SELECT 1 FROM token_term_counts AS c WHERE c.tenant_id = x.tenant_id AND c.term = x.term)
		    GROUP BY tenant_id, term, group_id
		) GROUP BY tenant_id, term, group_id HAVING sum(n) <> 0)`},
	{"comparing the log counters with the log", "kinds of log entries whose counter differs from their entries", `
		SELECT count(*) FROM (SELECT 1 FROM (
		  SELECT tenant_id, entity_type, entries AS n FROM log_counts
		  UNION ALL
		  SELECT tenant_id, entity_type, -count(*) FROM log GROUP BY tenant_id, entity_type
		) GROUP BY tenant_id, entity_type HAVING sum(n) <> 0)`},
	{"comparing the unsealed log with the log", "unsealed log entries that are not in the log", `
		SELECT count(*) FROM log_unsealed u WHERE NOT EXISTS (
		  SELECT 1 FROM log l WHERE l.tenant_id = u.tenant_id AND l.created_at = u.created_at AND l.id = u.id)`},
	{"looking for keys without an application", "keys whose application is gone", `
		SELECT count(*) FROM application_keys k WHERE NOT EXISTS (
		  SELECT 1 FROM applications a WHERE a.tenant_id = k.tenant_id AND a.id = k.application_id)`},
}

// counterAgreements hold since the migration of that number: a store of an
// older release is checked without them.
var counterAgreements = []struct{ doing, broken, count string }{
	{"comparing the counters of types with the groups", "types whose counter differs from their tokens", `
		SELECT count(*) FROM (SELECT 1 FROM (
		  SELECT tenant_id, type, tokens AS n FROM token_types
		  UNION ALL
		  SELECT tenant_id, type, -tokens FROM token_groups
		) GROUP BY tenant_id, type HAVING sum(n) <> 0)`},
	{"comparing the containers with the groups", "containers that do not agree with the token groups", `
		SELECT count(*) FROM (SELECT 1 FROM (
		  SELECT tenant_id, container, group_id, 1 AS n FROM token_containers
		  UNION ALL
		  SELECT DISTINCT g.tenant_id, c.value, g.group_id, -1 FROM token_groups AS g, json_each(g.containers) AS c
		) GROUP BY tenant_id, container, group_id HAVING sum(n) <> 0)`},
	{"comparing the counters of containers with the containers", "tenants whose counter of containers differs from their containers", `
		SELECT count(*) FROM (SELECT 1 FROM (
		  SELECT tenant_id, containers AS n, groups AS g FROM container_counts
		  UNION ALL
		  SELECT tenant_id, -count(DISTINCT container), -count(DISTINCT group_id) FROM token_containers GROUP BY tenant_id
		) GROUP BY tenant_id HAVING sum(n) <> 0 OR sum(g) <> 0)`},
}

const counterMigration = 6

// eventAgreements hold in stores that have events.
var eventAgreements = []struct{ doing, broken, count string }{
	{"comparing the events with their heads", "events with a number that their tenant has not reached", `
		SELECT count(*) FROM events AS e LEFT JOIN event_heads AS h ON h.tenant_id = e.tenant_id WHERE h.last IS NULL OR e.number > h.last`},
}

const hasEvents = "SELECT count(*) FROM sqlite_master WHERE name = 'event_heads'"

// Check implements store.Store.
func (s *Store) Check(ctx context.Context, progress func(doing string)) ([]string, error) {
	var found []string
	err := s.read(ctx, tenantKey{}, func(t *tx) error {
		var err error
		found, err = checkAll(ctx, t.conn, progress)
		return err
	})
	return found, err
}

// CheckFiles checks the store in dir while no server has it open. It changes
// nothing but for the recovery that SQLite does on opening, and works where
// Open refuses a damaged store.
func CheckFiles(ctx context.Context, dir string, progress func(doing string)) ([]string, error) {
	path := filepath.Join(dir, databaseFile)
	if _, err := os.Stat(path); err != nil { // before the lock, which makes a file
		return nil, fmt.Errorf("sqlite: look at database: %w", err)
	}
	lock, err := folder.Lock(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.Close() }()
	c, err := connectPlain(path, "", false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.close() }()
	return checkAll(ctx, c, progress)
}

func checkAll(ctx context.Context, c *conn, progress func(doing string)) ([]string, error) {
	if progress == nil {
		progress = func(string) {}
	}
	progress("reading every page and every index entry")
	found, err := runCheck(ctx, c, "PRAGMA integrity_check(100)")
	if err != nil || len(found) > 0 {
		return found, err // what follows would only repeat it
	}
	version, err := c.number(ctx, "PRAGMA user_version")
	if err != nil {
		return found, err
	}
	all := agreements
	if version >= counterMigration {
		all = append(slices.Clone(agreements), counterAgreements...)
	}
	if n, err := c.number(ctx, hasEvents); err != nil {
		return found, err
	} else if n > 0 {
		all = append(slices.Clone(all), eventAgreements...)
	}
	for _, a := range all {
		progress(a.doing)
		n, err := c.number(ctx, a.count)
		if err != nil {
			return found, fmt.Errorf("%s: %w", a.doing, err)
		}
		if n > 0 {
			found = append(found, fmt.Sprintf("%d %s", n, a.broken))
		}
	}
	progress("comparing the tokens with their groups and search terms")
	more, err := checkTokens(ctx, c)
	if err != nil {
		return found, fmt.Errorf("comparing the tokens with their groups and search terms: %w", err)
	}
	return append(found, more...), ctx.Err()
}

// checkTokens looks from the tokens to what is derived of them: by a term that
// is not in its index a token is never found again.
func checkTokens(ctx context.Context, c *conn) (found []string, err error) {
	var strangers, missing, unreadable int
	err = c.query(ctx, "SELECT tenant_id, id, created_at, group_id, type, containers, terms FROM tokens", nil, func(row []driver.Value) (bool, error) {
		containers, errContainers := store.DecodeStrings(text(row[5]))
		terms, errTerms := store.DecodeTerms(blob(row[6]))
		if errContainers != nil || errTerms != nil {
			unreadable++
			return true, nil //nolint:nilerr // counted, and told at the end
		}
		if group, _ := store.GroupOf(text(row[4]), containers); !bytes.Equal(group[:], blob(row[3])) {
			strangers++
		}
		for _, term := range terms {
			n, err := c.number(ctx, "SELECT count(*) FROM token_terms WHERE tenant_id = ? AND term = ? AND created_at = ? AND id = ?", row[0], term, row[2], row[1])
			if err != nil {
				return false, err
			}
			if n == 0 {
				missing++
			}
		}
		return true, nil
	})
	for _, f := range []struct {
		n      int
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
	return found, err
}
