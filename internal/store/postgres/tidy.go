package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// tidyEvery is how often a store clears away what only time makes useless.
// Every server does; the second one finds nothing left to do.
const tidyEvery = time.Minute

func (s *Store) tidy(ctx context.Context) {
	defer close(s.tidyEnded)
	ticker := time.NewTicker(tidyEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := s.tidyOnce(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("the store could not be tidied, and will be in a minute", "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (s *Store) tidyOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tidyWait)
	defer cancel()
	// The name of a commit is asked for within seconds. A claimed one stays
	// for a day: it holds off a transaction that is stuck on its way.
	if _, err := s.owner.Exec(ctx, "DELETE FROM commits WHERE made_at < now() - CASE WHEN kept THEN interval '10 minutes' ELSE interval '1 day' END"); err != nil {
		return mapError("forget old commits", err, nil)
	}
	return errors.Join(s.tidyCounters(ctx), s.scrub(ctx, "keysets", &s.staleKeysets), s.scrub(ctx, "epoch_keys", &s.staleEpochKeys))
}

// scrub rewrites a table of keys if some of them were destroyed. A vacuum would
// only mark their space as free; this one writes the table anew, and the file
// with the deleted rows is gone. Requests wait behind whoever waits for a lock,
// so a table that is being dumped is left for the next time.
func (s *Store) scrub(ctx context.Context, table string, stale *atomic.Bool) error {
	c, err := s.owner.Acquire(ctx)
	if err != nil {
		return mapError("connect", err, nil)
	}
	defer c.Release()
	// Another server may have destroyed keys and ended before it got here.
	var dead bool
	if err := c.QueryRow(ctx, "SELECT pg_stat_get_dead_tuples($1::regclass) > 0", table).Scan(&dead); err != nil {
		return mapError("look for destroyed keys", err, nil)
	}
	if !stale.Swap(false) && !dead {
		return nil
	}
	err = script(ctx, c.Conn(), fmt.Sprintf("SET lock_timeout = %d", scrubWait.Milliseconds()))
	if err == nil {
		err = script(ctx, c.Conn(), "VACUUM FULL "+table)
	}
	if err != nil {
		stale.Store(true)
	}
	_ = script(ctx, c.Conn(), fmt.Sprintf("SET lock_timeout = %d", lockWait.Milliseconds()))
	return mapError("rewrite a table of keys", err, nil)
}
