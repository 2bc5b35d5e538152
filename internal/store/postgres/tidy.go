package postgres

import (
	"context"
	"time"
)

// tidyEvery is how often a store clears away what only time makes useless.
// Every server does; the second one finds nothing left to do.
const tidyEvery = time.Minute

// scrubbed are the tables whose deleted rows must leave no bytes behind.
var scrubbed = []string{"keysets", "epoch_keys"}

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
	// The name of a commit is asked for within seconds. A claimed one stays
	// for a day: it holds off a transaction that is stuck on its way.
	if _, err := s.owner.Exec(ctx, "DELETE FROM commits WHERE made_at < now() - CASE WHEN kept THEN interval '10 minutes' ELSE interval '1 day' END"); err != nil {
		return mapError("forget old commits", err, nil)
	}
	destroyed := s.unscrubbed.Swap(false)
	for _, table := range scrubbed {
		// Another server may have destroyed keys and ended before it got here.
		var dead bool
		if err := s.owner.QueryRow(ctx, "SELECT pg_stat_get_dead_tuples($1::regclass) > 0", table).Scan(&dead); err != nil {
			return mapError("look for deleted keys", err, nil)
		}
		if !destroyed && !dead {
			continue
		}
		// A vacuum would only mark the space as free. This one writes the
		// table anew, and the file with the deleted rows is gone.
		if _, err := s.owner.Exec(ctx, "VACUUM FULL "+table); err != nil {
			s.unscrubbed.Store(true)
			return mapError("rewrite a table of keys", err, nil)
		}
	}
	return nil
}
